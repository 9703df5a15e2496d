"""What a class that cannot start waits for: exactly one reason, kept true and recorded when it changes.

Decision 6 of the rules of order. Classes are also found here by what they wait for: `register` enters them in the
books of their lane, gates and tiers.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.scheduling.capacity import DOWN, GATED, LIMITED, OK
from penstock.scheduling.details import Detail
from penstock.scheduling.gates import GateState
from penstock.scheduling.messages import Decision, WaitChange
from penstock.scheduling.order import WorkClass
from penstock.scheduling.room import RoomFinder
from penstock.scheduling.tiers import Tier
from penstock.scheduling.timers import Timers
from penstock.scheduling.world import World

STORE_DOWN = "store-down"


class Reasons:
    def __init__(self, world: World, room: RoomFinder, timers: Timers, out: list[Decision]) -> None:
        self._world = world
        self._aging_s = world.plant.aging_s
        self._room = room
        self._timers = timers
        self._out = out

    # ---- why not

    def is_held(self, work_class: WorkClass) -> bool:
        """Paused or gated, or nothing can be recorded, before any host is looked at."""
        world, shape = self._world, work_class.shape
        draining = world.draining and not shape.lane.carries_on
        if not (draining or world.paused or shape.lane.paused or world.away is not None):
            for gate in shape.gates:
                if not gate.open:
                    work_class.wait_for(f"gate:{gate.name}", gate.detail)
                    break
            else:
                return False
        elif draining and world.answering:
            work_class.wait_for("dispatcher-down", "a request was answered, and nothing more")
        elif draining:
            work_class.wait_for("paused", Detail.STOPPING.value)
        elif world.paused:
            work_class.wait_for("paused", "everything is paused")
        elif shape.lane.paused:
            work_class.wait_for("paused", f"lane {shape.lane.name} is paused")
        else:
            assert world.away is not None
            work_class.wait_for(STORE_DOWN, world.away)
        return True

    def explain(self, work_class: WorkClass) -> bool:
        """No host has room: of all hosts the one nearest to taking the task gives the reason.

        False when it waits as it did, so that there is nothing to register.
        """
        shape = work_class.shape
        own = shape.usable[0]
        if not work_class.opened and own.conditions[OK] and not self._room.claims:  # by far the most frequent
            reason = work_class.reason = own.full_reason or own.name_full()
            detail = work_class.detail = shape.units
            if reason != work_class.recorded or detail != work_class.noted:
                return True
            if shape.rivals:
                for tier in shape.tiers:
                    if tier.keeps:
                        return True
            return not work_class.registered or (work_class.timer_at is None and shape.timed)
        self._explain_at_length(work_class)
        return True

    def _explain_at_length(self, work_class: WorkClass) -> None:
        tiers = work_class.open_tiers()
        condition = next((c for c in range(5) if any(t.conditions[c] for t in tiers)), None)
        if condition is None or condition >= DOWN:
            gate = self._holding(work_class, tiers, condition)
            if gate is not None:
                work_class.wait_for(f"gate:{gate.name}", gate.detail)
                return
        if condition is None:
            work_class.wait_for("host-down", work_class.shape.name)
            return
        names = ",".join(t.names(condition) for t in tiers if t.conditions[condition])
        if condition == OK:
            if self._room.is_kept_from(work_class, tiers):
                work_class.wait_for("order", f"units on {names} are kept for a task that needs more")
            else:
                work_class.wait_for(f"slots:{names}", work_class.shape.units)
            return
        host = next(t.first(condition) for t in tiers if t.conditions[condition])
        if condition == LIMITED:
            work_class.wait_for(f"rate:{names}", "")
        elif condition == DOWN:
            work_class.wait_for("host-down", host.detail)
        elif condition == GATED:
            work_class.wait_for(f"gate:{host.detail}", self._world.gates[host.detail].detail)
        else:
            work_class.wait_for("paused", f"{names} paused")

    def _holding(
        self, work_class: WorkClass, tiers: Sequence[Tier], condition: int | None
    ) -> GateState | None:
        """The gate but for which a task would not wait for its hosts: that the others are down is half the truth.

        It is the lane's spent budget when that closed hosts to it, and of fallback hosts whatever gate holds one.
        """
        shape = work_class.shape
        if shape.usable is not shape.tiers and any(
            len(left.hosts) < len(tier.hosts) for left, tier in zip(tiers, shape.tiers, strict=False)
        ):
            return shape.lane.budget
        if condition == DOWN:
            for tier in tiers[1:]:
                if tier.conditions[GATED]:
                    return self._world.gates[tier.first(GATED).detail]
        return None

    # ---- at the end of a step

    def register(self, work_class: WorkClass, now: float) -> None:
        """Settle what a class waits for: it is found by what it waits for, and the change is recorded."""
        world, shape = self._world, work_class.shape
        lane = shape.lane
        waits = work_class.n > 0
        held = (
            world.paused or lane.paused or (world.draining and not lane.carries_on) or world.away is not None
        )
        for gate in shape.gates:
            held = held or not gate.open
        if not waits:
            work_class.reason = None
            work_class.detail = ""
        elif held:
            self.is_held(work_class)  # and told by what
        elif len(lane.live) >= lane.limit:
            if shape.usable[0].conditions[OK] or self._some_host_is_let(work_class):
                work_class.reason = lane.reason
                work_class.detail = ""
            else:
                self.explain(work_class)  # all its hosts are paused or gated: that comes before the lane
        if waits is not work_class.registered:
            self._enter(work_class, waits)
        reason = work_class.reason
        if work_class.claim is not None and not (reason or "").startswith(("slots:", "order")):
            self._room.drop_claim(work_class)  # whoever waits for anything else keeps no units from others
        if shape.rivals and reason is not None and reason.startswith("slots:"):
            work_class.detail = shape.units
            for tier in shape.tiers:
                if tier.keeps:
                    self._name_reserves(work_class)
                    break
        if reason != work_class.recorded or (
            work_class.detail != work_class.noted and reason is not None and not reason.startswith("gate:")
        ):  # what a gate read last is no news as long as it is closed; `Conditions` says when it is
            work_class.told_at = at = self._since(work_class, now) if reason == STORE_DOWN else now
            work_class.recorded = reason
            work_class.noted = work_class.detail
            self._out.append(WaitChange(work_class.id, at, reason, work_class.detail))
        if shape.timed and waits and work_class.timer_at is None:
            self._arm(work_class, now)

    def _since(self, work_class: WorkClass, now: float) -> float:
        """That the store is away is noticed late: since then its tasks waited for that, unless they were paused."""
        world = self._world
        if now > world.away_noticed or work_class.recorded == "paused":
            return now
        return max(world.away_since, work_class.told_at)

    def _enter(self, work_class: WorkClass, waits: bool) -> None:
        """In the books of all that can make it start, or out of them."""
        work_class.registered = waits
        shape = work_class.shape
        tiers = (*shape.tiers, *shape.free)
        books = [shape.lane.waiting, *(g.waiting for g in shape.gates), *(t.waiting for t in tiers)]
        for book in books:
            if waits:
                book[work_class] = None
            else:
                book.pop(work_class, None)

    def _name_reserves(self, work_class: WorkClass) -> None:
        """Slots that look free and are kept for another lane are part of the reason."""
        shape = work_class.shape
        kept: dict[str, float] = {}
        for tier in work_class.open_tiers():
            for lane, slots in tier.kept() if tier.keeps else ():
                kept[lane] = kept.get(lane, 0.0) + slots
        parts = [f"{slots:g} kept for lane {lane}" for lane, slots in kept.items()]
        work_class.detail = "; ".join(filter(None, (shape.units, *parts)))

    def _some_host_is_let(self, work_class: WorkClass) -> bool:
        """Whether any host is neither paused nor gated, or there is none at all."""
        tiers = work_class.open_tiers()
        return any(sum(t.conditions[:GATED]) for t in tiers) or not any(
            t.hosts for t in work_class.shape.tiers[: len(tiers)]
        )

    def _arm(self, work_class: WorkClass, now: float) -> None:
        """Wake a class when waiting alone changes what it may do: a fallback opens, units are kept for it."""
        shape = work_class.shape
        oldest = work_class.oldest(self._aging_s)
        times = []
        if work_class.opened + 1 < len(shape.tiers):
            after_s = shape.tiers[work_class.opened + 1].after_s
            assert after_s is not None
            times.append(oldest + after_s)
        if not shape.needs.plain and work_class.claim is None and oldest + self._aging_s > now:
            times.append(oldest + self._aging_s)
        if times:
            work_class.timer_at = min(times)
            self._timers.set(work_class.timer_at, work_class)
