"""What is free: hosts with their units and reserves, and lanes with their limits.

Room is the set of live attempts and nothing else: `occupy` adds an attempt to its host's set, `vacate` takes
it out once; the figures beside the set are kept by these two alone, so giving back twice changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.model import EPSILON, Fault, Gate, Host, Lane
from penstock.scheduling.adaptive import Throttle
from penstock.scheduling.budget import Budget, host_gate, lane_gate
from penstock.scheduling.gates import GateState
from penstock.scheduling.order import Entry, Place, Shape, WorkClass
from penstock.scheduling.rates import RateWindow
from penstock.scheduling.retry import Breaker
from penstock.scheduling.tuning import Tuner

if TYPE_CHECKING:
    from penstock.scheduling.tiers import Tier

# A host's condition, the one that stands in the way first last: of several hosts the least value explains.
OK, LIMITED, DOWN, GATED, PAUSED = range(5)

_MEMORY = 20  # attempts that count for the mean of a host's seconds
_LONG_LINE = 64


class Needs(NamedTuple):
    """Units an attempt holds while it runs."""

    slots: float = 1
    extra: tuple[tuple[str, float], ...] = ()
    tokens: float = 0.0  # counted against a host's rate, not held

    @property
    def plain(self) -> bool:
        return self.slots == 1 and not self.extra

    def __str__(self) -> str:
        slots = "1 slot" if self.slots == 1 else f"{self.slots:g} slots"
        return ", ".join([slots, *(f"{amount:g} {unit}" for unit, amount in self.extra)])


ONE_SLOT = Needs()


class LaneState:
    __slots__ = (
        "budget",
        "carries_on",
        "crowded_at",
        "fair_at",
        "gates",
        "lane",
        "limit",
        "limited",
        "line",
        "live",
        "name",
        "paid",
        "paused",
        "reason",
        "shapes",
        "waiting",
        "was_full",
        "weight",
    )

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.name = lane.name
        self.reason = f"lane:{lane.name}"
        self.weight = lane.weight
        self.live: dict[str, Entry] = {}
        self.limit = float("inf") if lane.max_running is None else float(lane.max_running)
        self.limited = lane.max_running is not None
        self.line: list[Place] = []  # classes that would start if it had room, and places that they left
        self.crowded_at = _LONG_LINE  # how long its line may get before the places that were left are dropped
        self.fair_at = 0.0  # start-time fair queueing: when this lane's turn is, in shares
        self.paused = False
        self.carries_on = False  # its tasks start also while the dispatcher stops
        self.was_full = False  # at the end of the last step
        self.waiting: dict[WorkClass, None] = {}
        self.gates: list[GateState] = []  # gates that read this lane's running count
        self.shapes: list[Shape] = []  # of its tasks
        self.paid: set[str] = set()  # its live attempts on hosts that cost money
        limit_usd = lane.budget_usd_per_day
        self.budget = (
            None
            if limit_usd is None
            else Budget(Gate(lane_gate(lane.name), on_error="open"), limit_usd, self.paid, lane.name)
        )
        if self.budget is not None:
            self.budget.waiting = self.waiting

    @property
    def full(self) -> bool:
        return len(self.live) >= self.limit

    def tidy_line(self) -> None:
        """Drop the places that classes have left: while a lane is full nothing takes them off its line."""
        self.line[:] = [place for place in self.line if place[3].place is place]
        heapq.heapify(self.line)
        self.crowded_at = 2 * len(self.line) + _LONG_LINE


class HostState:
    __slots__ = (
        "breaker",
        "budget",
        "check_fault",
        "claim",
        "condition",
        "costs_money",
        "detail",
        "extra_free",
        "free",
        "gates",
        "host",
        "index",
        "lane_extra",
        "lane_slots",
        "large_tiers",
        "last_fault",
        "limited_until",
        "live",
        "mean_s",
        "measured",
        "name",
        "paused",
        "probe",
        "rate",
        "reserves",
        "slots",
        "throttle",
        "tiers",
        "told",
        "told_unused",
        "tuner",
        "unused",
        "unused_slots",
    )

    def __init__(self, host: Host, index: int) -> None:
        self.host = host
        self.name = host.name
        self.index = index
        self.tuner = Tuner(host.auto, host.slots) if host.auto else None
        self.throttle = self.tuner or Throttle(host.slots)
        self.slots: float = self.throttle.limit
        self.free: float = self.slots
        self.extra_free: dict[str, float] = dict(host.units)
        self.live: dict[str, tuple[Needs, str, float]] = {}  # task -> what it holds, its lane, since when
        self.mean_s: float | None = None  # how long attempts that succeed take, of late
        self.measured = 0
        self.lane_slots: dict[str, float] = {}  # of lanes that have a reserve here
        self.lane_extra: dict[tuple[str, str], float] = {}
        self.reserves: dict[str, dict[str, float]] = {}  # lane -> units
        self.unused: dict[str, float] = {}  # lane -> reserved slots it does not hold
        self.unused_slots = 0.0
        self.told_unused: dict[str, float] = {}  # as it was when last looked at for reasons
        self.tiers: list[Tier] = []
        self.large_tiers: list[Tier] = []  # those that keep their hosts sorted
        self.condition = OK
        self.detail = ""
        self.told: tuple[str, int, str, Fault | None] | None = None  # the last HostChange
        self.check_fault: Fault | None = None  # why its health check says that it is down
        self.paused = False
        self.gates: list[GateState] = []  # gates that hold this host
        self.limited_until = 0.0  # it said when to come back
        self.breaker = Breaker(host.breaker)
        self.rate = RateWindow(host.rate) if host.rate else None
        self.probe: str | None = None  # the one task that tries a half-open host
        self.last_fault = Fault("")  # what was wrong when an attempt last failed because of the host
        self.claim: WorkClass | None = None
        self.costs_money = host.costs_money  # or one of its attempts did
        limit_usd = host.fallback.budget_usd_per_day if host.fallback is not None else None
        self.budget: Budget | None = None
        if limit_usd is not None:
            gate = Gate(host_gate(host.name), on_error="open", holds_hosts=(host.name,))
            self.budget = Budget(gate, limit_usd, self.live)
            self.gates.append(self.budget)

    def occupy(self, task: str, needs: Needs, lane: str, now: float) -> None:
        self.live[task] = (needs, lane, now)
        if needs is ONE_SLOT and not self.unused:
            self.free -= 1
        else:
            self._move(needs, lane, -1)

    def vacate(self, task: str) -> float | None:
        """Give back what an attempt holds: since when it held it, or None where it holds nothing."""
        held = self.live.pop(task, None)
        if held is None:
            return None
        if held[0] is ONE_SLOT and not self.unused:
            self.free += 1
        else:
            self._move(held[0], held[1], 1)
        return held[2]

    def took(self, seconds: float) -> None:
        """An attempt succeeded in this time: the plain mean at first, then a mean that forgets."""
        if self.mean_s is None:
            self.mean_s = seconds
            self.measured = 1
        else:
            if self.measured < _MEMORY:
                self.measured += 1
            self.mean_s += (seconds - self.mean_s) / self.measured

    def _move(self, needs: Needs, lane: str, sign: int) -> None:
        slots, extra, _ = needs
        self.free += sign * slots
        for unit, amount in extra:
            self.extra_free[unit] = self.extra_free.get(unit, 0.0) + sign * amount
            key = lane, unit
            self.lane_extra[key] = self.lane_extra.get(key, 0.0) - sign * amount
        if lane in self.unused:
            self.lane_slots[lane] = self.lane_slots.get(lane, 0) - sign * slots
            unused = max(0.0, self.reserves[lane].get("slots", 0.0) - self.lane_slots[lane])
            more = unused - self.unused[lane]
            if more:
                self.unused_slots += more
                self.unused[lane] = unused
                if self.condition == OK:
                    for tier in self.tiers:
                        tier.keep(lane, more)

    def reserve(self, lane: str, units: Mapping[str, float]) -> None:
        """Keep these units for one lane, whoever asks."""
        self.reserves[lane] = dict(units)
        self.unused[lane] = units.get("slots", 0.0)
        self.unused_slots += self.unused[lane]

    @property
    def fault(self) -> Fault | None:
        """What is wrong with it, as far as anybody knows."""
        return self.check_fault or (self.last_fault if self.breaker.failures else None)

    @property
    def full(self) -> bool:
        """Whether not a slot is left, but for those kept for lanes that do not want them."""
        return self.free - self.unused_slots < 1

    def set_slots(self, slots: float) -> None:
        self.free += slots - self.slots
        self.slots = slots

    def fits(self, needs: Needs, lane: str) -> bool:
        """Whether these units are free for that lane: free, and not another lane's unused reserve."""
        slots = self.free - self.unused_slots + self.unused.get(lane, 0.0)
        if needs.slots > slots + EPSILON:
            return False
        for unit, amount in needs.extra:
            free = self.extra_free.get(unit, 0.0)
            if self.reserves:
                free -= self._kept_from(lane, unit)
            if amount > free + EPSILON:
                return False
        return True

    def fits_beside(self, needs: Needs, lane: str, other: Needs, other_lane: str) -> bool:
        """Whether `other` would still fit after `needs` were taken."""
        self._move(needs, lane, -1)
        both = self.fits(other, other_lane)
        self._move(needs, lane, 1)
        return both

    def could_hold(self, needs: Needs, lane: str) -> bool:
        """Whether it would fit on the empty host, with all the slots it may have."""
        kept = self._reserved(lane, "slots")
        slots = self.slots if self.tuner is None else max(self.slots, self.tuner.max)
        return needs.slots <= slots - kept + EPSILON and self.has_units(needs, lane)

    def has_units(self, needs: Needs, lane: str) -> bool:
        """Whether it has as many as are needed, slots aside: those may change, these never do."""
        return self.host.has_units(needs.extra, lambda unit: self._reserved(lane, unit))

    def _reserved(self, lane: str, unit: str) -> float:
        return sum(units.get(unit, 0.0) for other, units in self.reserves.items() if other != lane)

    def _kept_from(self, lane: str, unit: str) -> float:
        kept = 0.0
        for other, units in self.reserves.items():
            if other != lane and unit in units:
                held = (
                    self.lane_slots.get(other, 0)
                    if unit == "slots"
                    else self.lane_extra.get((other, unit), 0.0)
                )
                kept += max(0.0, units[unit] - held)
        return kept

    def share(self, needs: Needs) -> float:
        """The free part of what is asked for: the host with the most is chosen."""
        least = self.free / self.slots if self.slots else 0.0
        for unit, _ in needs.extra:
            total = self.host.units.get(unit, 0.0)
            least = min(least, self.extra_free.get(unit, 0.0) / total if total else 0.0)
        return least
