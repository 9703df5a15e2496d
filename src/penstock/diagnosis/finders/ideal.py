"""How soon a run could have ended, had a fault not been: for the gain that findings foretell.

The same tasks are dealt out once more, oldest first, each as soon as a host that can take it has room; one that
comes after others, as long after their ends as it did. What the
fault changes (durations, slots, from when on, where) is told by the finder. Priorities and reserves do not move the
end of a run by much and are left out.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from penstock.diagnosis.attempts import Sort
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.turns import Turn
from penstock.diagnosis.steps import Steps

_SOME = 3  # attempts of a sort on each of two hosts, to tell how much faster one is


class Piece(NamedTuple):
    """What is to be dealt out: work of a sort, with the seconds that it takes on the host where it was run."""

    since: float
    seconds: float
    host: str
    hosts: tuple[str, ...]  # that can take it
    lane: str
    sort: Sort
    task: str = ""
    after: tuple[str, ...] = ()  # tasks of other pieces
    lag_s: float = 0.0  # from the last of their ends until it could be started


def pieces(
    scene: Scene,
    *,
    seconds: Callable[[Turn], float | None] = lambda t: t.life.seconds if t.life is not None else None,
    since: Callable[[Turn], float] = lambda t: t.since,
    pinned: bool = True,
) -> list[Piece]:
    """Of all turns that led to an attempt; without those of which `seconds` says None."""
    found: list[Piece] = []
    ends = {life.task: life.end for life in sorted(scene.lives, key=lambda life: life.end)}
    for turn in scene.turns:
        took_s = seconds(turn) if turn.life is not None else None
        if turn.life is None or took_s is None:
            continue
        hosts = (turn.life.host,) if pinned and turn.task.host is not None else able(scene, turn)
        lane = turn.life.lane
        after = tuple(name for name in turn.task.after if name in ends) if turn.number == 1 else ()
        lag_s = max(0.0, since(turn) - max(ends[name] for name in after)) if after else 0.0
        sort = turn.life.sort
        found.append(
            Piece(since(turn), took_s, turn.life.host, hosts, lane, sort, turn.task.id, after, lag_s)
        )
    dealt = {piece.task for piece in found}
    return [
        piece._replace(after=tuple(name for name in piece.after if name in dealt)) if piece.after else piece
        for piece in found
    ]


def able(scene: Scene, turn: Turn) -> tuple[str, ...]:
    """The hosts of the run that could have taken it, wherever it was told to go."""
    task, plant = turn.task, scene.recording.plant
    own = () if turn.host is None else (turn.host,)
    if task.needs and set(task.needs) != {"slots"}:
        return own
    if plant is not None and scene.plant_hosts:
        names: Iterable[str] = (h.name for h in plant.hosts_for(task.kind, None, task.model))
    else:
        names = scene.hosts_of_sort.get((task.kind, task.model), ())
    return tuple(sorted(n for n in {*names, *own} if n in scene.by_host))


def gain_s(
    scene: Scene,
    work: Sequence[Piece],
    *,
    slots: Mapping[str, int] | None = None,
    lifted: Iterable[str] = (),
) -> float:
    """By how much sooner the run would have ended, with other slots of some hosts, or lanes without their limit."""
    rooms = {**scene.capacity, **{h: Steps.of([(scene.begin - 1, n)]) for h, n in (slots or {}).items()}}
    limits = {lane: limit for lane, limit in scene.lane_limits.items() if lane not in set(lifted)}
    return max(0.0, scene.end - _Dealer(rooms, limits, _paces(scene)).end_of(work))


def _paces(scene: Scene) -> Mapping[tuple[str, Sort], float]:
    """How long an attempt of a sort takes on a host, where enough of them tell."""
    durations: dict[tuple[str, Sort], list[float]] = defaultdict(list)
    for a in scene.lives:
        if a.is_well and a.seconds > 0:
            durations[a.host, a.sort].append(a.seconds)
    return {at: median(found) for at, found in durations.items() if len(found) >= _SOME}


class _Coming:
    """Pieces by when they come: at their time, or so long after the last of those they come after."""

    def __init__(self, work: Sequence[Piece]) -> None:
        self._left: dict[str, int] = defaultdict(int)  # pieces of a task that have not ended
        self._missing: dict[int, set[str]] = {}
        self._before: dict[str, list[int]] = defaultdict(list)
        self._pieces = sorted(work, key=lambda p: p.since)
        self._heap: list[tuple[float, int]] = []
        for place, piece in enumerate(self._pieces):
            self._left[piece.task] += 1
            if piece.after:
                self._missing[place] = set(piece.after)
                for name in self._missing[place]:
                    self._before[name].append(place)
            else:
                self._heap.append((piece.since, place))

    def moments(self) -> Iterable[float]:
        return (since for since, _ in self._heap)

    def ended(self, task: str, now: float) -> Iterable[float]:
        """When those come that this was the last to wait for."""
        self._left[task] -= 1
        if self._left[task]:
            return
        for place in self._before.pop(task, ()):
            self._missing[place].discard(task)
            if not self._missing[place]:
                since = now + self._pieces[place].lag_s
                heapq.heappush(self._heap, (since, place))
                yield since

    def by(self, now: float) -> Iterable[tuple[int, Piece]]:
        while self._heap and self._heap[0][0] <= now:
            _, place = heapq.heappop(self._heap)
            yield place, self._pieces[place]


_Queue = tuple[tuple[str, ...], str]  # hosts that can take it, lane


@dataclass(slots=True)
class _Dealer:
    rooms: Mapping[str, Steps]
    limits: Mapping[str, int]
    paces: Mapping[tuple[str, Sort], float]
    running: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    in_lane: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    queues: dict[_Queue, deque[tuple[int, Piece]]] = field(default_factory=lambda: defaultdict(deque))

    def end_of(self, work: Sequence[Piece]) -> float:
        coming = _Coming(work)
        moments = [*coming.moments(), *(at for steps in self.rooms.values() for at in steps.times)]
        heapq.heapify(moments)
        ends: list[tuple[float, str, str, str]] = []
        last = float("-inf")
        while moments:
            now = heapq.heappop(moments)
            while moments and moments[0] == now:
                heapq.heappop(moments)
            while ends and ends[0][0] <= now:
                _, host, lane, task = heapq.heappop(ends)
                self.running[host] -= 1
                self.in_lane[lane] -= 1
                for since in coming.ended(task, now):
                    heapq.heappush(moments, since)
            for place, piece in coming.by(now):
                self.queues[piece.hosts or (piece.host,), piece.lane].append((place, piece))
            for piece, host in self._started(now):
                end = now + self._seconds(piece, host)
                heapq.heappush(ends, (end, host, piece.lane, piece.task))
                heapq.heappush(moments, end)
                last = max(last, end)
        return last

    def _started(self, now: float) -> Iterable[tuple[Piece, str]]:
        free = {host: steps.at(now) - self.running[host] for host, steps in self.rooms.items()}
        while True:
            best: tuple[int, _Queue, str] | None = None
            for queue, line in self.queues.items():
                limit = self.limits.get(queue[1])
                if not line or (limit is not None and self.in_lane[queue[1]] >= limit):
                    continue
                host = max(queue[0], key=lambda h: free.get(h, 0))
                if free.get(host, 0) > 0 and (best is None or line[0][0] < best[0]):
                    best = line[0][0], queue, host
            if best is None:
                return
            _, queue, host = best
            free[host] -= 1
            self.running[host] += 1
            self.in_lane[queue[1]] += 1
            yield self.queues[queue].popleft()[1], host

    def _seconds(self, piece: Piece, host: str) -> float:
        """On another host as much longer as others of its sort take there."""
        if host == piece.host:
            return piece.seconds
        there, here = self.paces.get((host, piece.sort)), self.paces.get((piece.host, piece.sort))
        return piece.seconds * there / here if there and here else piece.seconds
