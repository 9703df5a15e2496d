"""Which host has room for the next task of a class, and for whom freed units are kept.

Decisions 3 and 4 of the rules of order live here: own hosts before fallback ones, then the largest free share;
and a class that needs many units and has waited too long has a claim on those freed on one host.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.scheduling.agenda import Agenda
from penstock.scheduling.capacity import OK, HostState
from penstock.scheduling.conditions import Conditions
from penstock.scheduling.order import WorkClass
from penstock.scheduling.tiers import Tier


class RoomFinder:
    def __init__(self, agenda: Agenda, conditions: Conditions, aging_s: float) -> None:
        self.claims: dict[HostState, WorkClass] = {}  # whom freed units are kept for
        self._agenda = agenda
        self._conditions = conditions
        self._aging_s = aging_s

    def find(self, work_class: WorkClass, now: float) -> HostState | None:
        """The host the head of a class goes to."""
        head = work_class.head
        assert head is not None
        tiers = work_class.shape.usable
        host = tiers[0].best()
        if host is not None and head.host is None and host.claim is None:
            return host
        tiers = work_class.open_tiers()
        failed_on = head.host
        for tier in tiers:
            if tier is not tiers[0]:
                host = tier.best()
            if host is not None and (host is failed_on or host.claim is not None):
                host = tier.best_of(lambda h: h is not failed_on and self.may_use(work_class, h))
            if host is not None:
                return host
        if failed_on is not None and self.may_use(work_class, failed_on):
            for tier in tiers:
                if tier in failed_on.tiers and tier.scan((failed_on,)):
                    return failed_on
        if work_class.shape.simple:
            return None
        if not work_class.shape.needs.plain:
            self._claim(work_class, now)
        return self._stretch(work_class, now)

    def _stretch(self, work_class: WorkClass, now: float) -> HostState | None:
        """An idle host that tuned itself to fewer slots gives as many as one task needs, beside reserves."""
        shape = work_class.shape
        if not self._agenda.idle_tuned:
            return None
        for host in (h for tier in work_class.open_tiers() for h in tier.tuned):
            if host.tuner is None or host.live or host.condition or not self.may_use(work_class, host):
                continue
            if host.could_hold(shape.needs, shape.lane.name):
                host.tuner.stretch(
                    shape.needs.slots + host.unused_slots - host.unused.get(shape.lane.name, 0.0)
                )
                self._conditions.refresh_host(host, now)
                if host.fits(shape.needs, shape.lane.name):
                    return host
        return None

    def may_use(self, work_class: WorkClass, host: HostState) -> bool:
        """Units kept for a task that waited too long are free to those before it, and to what fits beside it."""
        claimant = host.claim
        if claimant is None or claimant is work_class or claimant.head is None or work_class.head is None:
            return True
        if work_class.head.key < claimant.head.key:
            return True
        mine, theirs = work_class.shape, claimant.shape
        return host.fits_beside(mine.needs, mine.lane.name, theirs.needs, theirs.lane.name)

    def _claim(self, work_class: WorkClass, now: float) -> None:
        """After `aging_s` the units freed on one host are kept for a class that needs many."""
        shape = work_class.shape
        held = work_class.claim
        if work_class.oldest(self._aging_s) + self._aging_s > now:
            if held is not None:  # those that had waited so long are gone
                self.drop_claim(work_class)
            return
        tiers = work_class.open_tiers()
        if held is not None:
            is_open = any(tier in held.tiers for tier in tiers)
            if is_open and held.condition == OK and held.could_hold(shape.needs, shape.lane.name):
                return
            self.drop_claim(work_class)
        able = [h for tier in tiers if (h := tier.next_to_fit(lambda host: host.claim is None)) is not None]
        if able:
            chosen = max(able, key=lambda h: (h.share(shape.needs), -h.index))
            chosen.claim = work_class
            work_class.claim = chosen
            self.claims[chosen] = work_class

    def is_kept_from(self, work_class: WorkClass, tiers: Sequence[Tier]) -> bool:
        """Whether there is room that a class may not use, because it is kept for another."""
        return any(
            host.condition == OK
            and not self.may_use(work_class, host)
            and any(tier in host.tiers and host.fits(tier.needs, tier.lane) for tier in tiers)
            for host in self.claims
        )

    def drop_claim(self, work_class: WorkClass) -> None:
        host = work_class.claim
        assert host is not None
        host.claim = None
        work_class.claim = None
        del self.claims[host]
        self._agenda.wake_on(host)
