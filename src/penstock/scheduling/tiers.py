"""Hosts among which tasks of a class may choose: who has room, who has the most, and how many are well.

What a class asks of a tier must not cost a look at every host: a plant may have thousands. So a tier keeps its
hosts by condition, a large one also by free share, and sums up what they keep for lanes.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from penstock.scheduling.capacity import DOWN, OK, HostState, Needs
from penstock.scheduling.order import WorkClass

_SMALL_TIER = 4  # up to here looking at every host is cheaper than keeping them sorted
_MOST_NAMES = 8
_NEAR = 1e-9  # what is kept is summed up from fractions
_CONDITIONS = 5
_Promise = tuple[float, int, HostState]  # a share, negative; the place in the config; the host


def _index(host: HostState) -> int:
    return host.index


class Tier:
    """All own hosts of a class, or fallback hosts that open together.

    A large tier keeps its hosts in a heap by free share. An entry is a promise that the share was that high;
    shares fall silently (the top is corrected when it is looked at) and every rise is offered anew.
    """

    __slots__ = (
        "_by_condition",
        "_heap",
        "_kept",
        "_rising",
        "after_s",
        "conditions",
        "full_reason",
        "hosts",
        "keeps",
        "lane",
        "needs",
        "simple",
        "small",
        "tuned",
        "waiting",
    )

    def __init__(self, hosts: Iterable[HostState], needs: Needs, lane: str, after_s: float | None) -> None:
        self.hosts = tuple(hosts)  # as in the config
        self.needs = needs
        self.lane = lane
        self.after_s = after_s  # None for own hosts
        self.simple = needs.plain and not any(h.reserves for h in self.hosts)
        self.small = len(self.hosts) <= _SMALL_TIER
        self.tuned = tuple(h for h in self.hosts if h.tuner is not None)
        self.waiting: dict[WorkClass, None] = {}
        self.conditions = [0] * _CONDITIONS  # how many hosts are in each condition
        self.full_reason: str | None = None  # what a class waits for when these hosts are well and full
        self._by_condition: list[list[HostState]] = [[] for _ in range(_CONDITIONS)]
        self.keeps = 0.0  # slots of its well hosts that are free, and other lanes'
        self._kept: dict[str, float] = {}  # the same by lane
        self._heap: list[_Promise] = []  # hosts with room
        self._rising: list[_Promise] = []  # also those without, where a task may need many units
        for host in self.hosts:
            self.conditions[host.condition] += 1
            self._by_condition[host.condition].append(host)
            self._keep_all(host, 0.0 if host.condition else 1.0)
            self.offer(host)
            host.tiers.append(self)
            if not self.small:
                host.large_tiers.append(self)

    # ---- room

    def offer(self, host: HostState) -> None:
        """A host's share rose, or the host came back."""
        if self.small or host.condition:
            return
        if not self.needs.plain:
            self._rising = self._promised(self._rising, host, self._could_hold)
        if self._fits(host):
            self._heap = self._promised(self._heap, host, self._fits)

    def _promised(
        self, heap: list[_Promise], host: HostState, belongs: Callable[[HostState], bool]
    ) -> list[_Promise]:
        """The heap with one more promise; made anew when most of it is outdated."""
        if len(heap) > 4 * len(self.hosts):
            heap = [(-h.share(self.needs), h.index, h) for h in self.hosts if not h.condition and belongs(h)]
            heapq.heapify(heap)
        else:
            heapq.heappush(heap, (-host.share(self.needs), host.index, host))
        return heap

    def best(self) -> HostState | None:
        """The host with room and the most free share, first in the config among equals."""
        if self.small:
            if not self.needs.plain:
                return self.scan(self.hosts)
            chosen: HostState | None = None
            most = 0.0
            for host in self.hosts:
                free = host.free
                if free < 1 or host.condition:
                    continue
                if host.unused and free - host.unused_slots + host.unused.get(self.lane, 0.0) < 1:
                    continue
                share = free / host.slots
                if share > most:
                    chosen, most = host, share
            return chosen
        return self._top(self._heap, self._fits)

    def best_of(self, allowed: Callable[[HostState], bool]) -> HostState | None:
        """As `best`, among those that are allowed; few are not."""
        if self.small:
            return self.scan(h for h in self.hosts if allowed(h))
        return self._first(self._heap, self._fits, allowed)

    def next_to_fit(self, allowed: Callable[[HostState], bool]) -> HostState | None:
        """The host with the most free share that could hold it if it were empty, among those that are allowed."""
        if self.small or self.needs.plain:
            able = (h for h in self.hosts if h.condition == OK and self._could_hold(h) and allowed(h))
            return max(able, key=lambda h: (h.share(self.needs), -h.index), default=None)
        return self._first(self._rising, self._could_hold, allowed)

    def _first(
        self,
        heap: list[_Promise],
        belongs: Callable[[HostState], bool],
        allowed: Callable[[HostState], bool],
    ) -> HostState | None:
        aside: dict[HostState, None] = {}
        while (host := self._top(heap, belongs)) is not None and not allowed(host):
            heapq.heappop(heap)
            aside[host] = None
        for other in aside:
            heapq.heappush(heap, (-other.share(self.needs), other.index, other))
        return host

    def _top(self, heap: list[_Promise], belongs: Callable[[HostState], bool]) -> HostState | None:
        while heap:
            promised, index, host = heap[0]
            if host.condition or not belongs(host):
                heapq.heappop(heap)
                continue
            share = host.share(self.needs)
            if share < -promised:
                heapq.heapreplace(heap, (-share, index, host))
            elif share > -promised:
                heapq.heappop(heap)  # it was offered again with more
            else:
                return host
        return None

    def scan(self, hosts: Iterable[HostState]) -> HostState | None:
        """As `best`, by looking at each of these."""
        chosen: HostState | None = None
        most = -1.0
        for host in hosts:
            if host.condition or not self._fits(host):
                continue
            share = host.share(self.needs)
            if share > most:
                chosen, most = host, share
        return chosen

    def _fits(self, host: HostState) -> bool:
        return host.free >= 1 if self.simple else host.fits(self.needs, self.lane)

    def _could_hold(self, host: HostState) -> bool:
        return host.could_hold(self.needs, self.lane)

    # ---- conditions

    def changed(self, host: HostState, before: int) -> None:
        """A host's condition is not what it was."""
        now = host.condition
        self.conditions[before] -= 1
        self.conditions[now] += 1
        others = self._by_condition[before]
        del others[bisect_left(others, host.index, key=_index)]
        insort(self._by_condition[now], host, key=_index)
        self.full_reason = None
        if before == OK:
            self._keep_all(host, -1.0)
        elif now == OK:
            self._keep_all(host, 1.0)
        self.offer(host)

    @property
    def healthy(self) -> bool:
        return self.conditions[DOWN] < len(self.hosts)

    def first(self, condition: int) -> HostState:
        """In the config, of the hosts in a condition; there is one."""
        return self._by_condition[condition][0]

    def names(self, condition: int) -> str:
        """The hosts in a condition, for a reason's text; a long list is cut."""
        return cut_names(self._by_condition[condition])

    def name_full(self) -> str:
        """Say so, once for every change of a host's condition."""
        self.full_reason = f"slots:{self.names(OK)}"
        return self.full_reason

    # ---- reserves

    def keep(self, lane: str, slots: float) -> None:
        """A well host keeps so many slots more for a lane, or fewer."""
        if lane != self.lane:
            self._kept[lane] = self._kept.get(lane, 0.0) + slots
            self.keeps += slots

    def _keep_all(self, host: HostState, times: float) -> None:
        for lane, slots in host.unused.items():
            self.keep(lane, times * slots)

    def kept(self) -> list[tuple[str, float]]:
        """Slots that look free to the lane of this tier and are another's, by whose they are."""
        return [(lane, slots) for lane, slots in self._kept.items() if slots > _NEAR]


def cut_names(hosts: list[HostState], between: str = ",") -> str:
    """Their names; of a long list the first, and how many more there are."""
    more = len(hosts) - _MOST_NAMES
    names = [h.name for h in hosts[:_MOST_NAMES]]
    return between.join(names if more <= 0 else [*names, f"+{more}"])
