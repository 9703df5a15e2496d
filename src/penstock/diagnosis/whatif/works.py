"""How much work attempts were, by the record; and how much they would be on another host, or once more.

Work is in seconds alone on the host. On another host it is scaled by what the record tells of the two: the ratio
of the median works of the same kind and model, else of the same kind, else of all they have in common.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TypeAlias

from penstock.diagnosis.attempts import Lived, Sort, lived
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.speed import Key, SpeedCurve, alone_s, speed_of
from penstock.diagnosis.speed_fit import served_s
from penstock.diagnosis.speed_shapes import Onset, Workers
from penstock.diagnosis.steps import Steps
from penstock.model import Attempt, Host, Plant, Price, Task, Verdict

_LEAST_S = 0.001  # who was not worked on at all cannot have ended
_FEWEST = 3  # attempts of a sort on a host before their median says anything of the host

_Place: TypeAlias = tuple[Sort | str | None, str | None]  # sort, kind or anything; host or any


class Works:
    """`instead` says of some tasks how long they take alone, whatever the record says."""

    def __init__(self, recording: Recording, instead: Mapping[str, float] | None = None) -> None:
        lives = lived(recording)
        # Where no host is named, attempts that ran at once need not have run on the same one.
        curves = speed_of(recording, guess=True) if "host" in recording.told else {}
        self.curves = _playable(lives, curves)
        self._most = {host: Steps((a.start, a.end) for a in of).most for host, of in lives.items()}
        self._turns = {(a.task, a.number): turn for h in self.workers for turn, a in enumerate(lives[h])}
        self._instead = instead or {}
        self._tasks = {record.task.id: record.task for record in recording.tasks}
        self._end = recording.end
        self._alone: dict[Key, float] = {**alone_s(recording, self.curves)}
        for host, count in self.workers.items():  # in the very order in which they are played
            served = served_s(lives[host], count)
            self._alone |= {(a.task, a.number): s for a, s in zip(lives[host], served, strict=True)}
        self._typical = self._medians(recording.attempts)
        self._ratios: dict[tuple[Sort, str, str], float] = {}

    # ---- hosts

    def speed(self, host: str, running: int) -> float:
        """Of each attempt on a host where so many run."""
        curve = self.curves.get(host)
        if curve is None or isinstance(curve.shape, Workers):
            return 1.0
        return curve.speed(running)

    def most_at_once(self, host: str) -> int:
        """That the record has seen there."""
        return self._most.get(host, 0)

    @property
    def workers(self) -> dict[str, int]:
        """Of hosts that work on so many at once and let the others wait inside."""
        return {
            host: curve.shape.count for host, curve in self.curves.items() if isinstance(curve.shape, Workers)
        }

    # ---- attempts

    def of(self, attempt: Attempt) -> float:
        """Of one that ended by itself; of one that did not, the least it can have been."""
        given = self._instead.get(attempt.task)
        if given is not None:
            return given
        known = self._alone.get((attempt.task, attempt.number))
        if known is not None:
            return known
        return max(0.0, (self._end if attempt.ended_at is None else attempt.ended_at) - attempt.started_at)

    def turn(self, attempt: Attempt) -> float:
        """Its place among those that started on a host of workers at the same time."""
        return float(self._turns.get((attempt.task, attempt.number), 0))

    def moved(self, work_s: float, task: Task, source: str, target: str) -> float:
        """The same work on another host."""
        if source == target or task.id in self._instead:
            return work_s
        sort = task.kind, task.model
        key = (sort, source, target)
        if key not in self._ratios:
            self._ratios[key] = self._ratio(sort, source, target)
        return work_s * self._ratios[key]

    def typical(self, task: Task, host: str) -> float:
        """Of a task like this one on that host."""
        if task.id in self._instead:
            return self._instead[task.id]
        sort, places = (task.kind, task.model), self._typical
        for place in ((sort, host), (task.kind, host)):
            if place in places:
                return median(places[place])
        for like in (sort, task.kind):
            hosts = sorted(h for s, h in places if s == like and h is not None)
            if hosts:
                return median(
                    work * self._ratio(sort, other, host) for other in hosts for work in places[like, other]
                )
        return median(places[None, None]) if (None, None) in places else 0.0

    def _medians(self, attempts: Iterable[Attempt]) -> dict[_Place, list[float]]:
        works: dict[_Place, list[float]] = defaultdict(list)
        for attempt in attempts:
            task = self._tasks.get(attempt.task)
            ended_well = attempt.verdict in (None, Verdict.DONE) and attempt.ended_at is not None
            if task is None or not ended_well or task.id in self._instead:
                continue
            sort = task.kind, task.model
            work = self.of(attempt)
            places: tuple[_Place, ...] = ((sort, attempt.host), (task.kind, attempt.host), (None, None))
            for place in places:
                works[place].append(work)
        return dict(works)

    def _ratio(self, sort: Sort, source: str, target: str) -> float:
        """How much more work the same is on `target` than on `source`."""
        for like in (sort, sort[0]):
            there, here = self._typical.get((like, target), []), self._typical.get((like, source), [])
            if min(len(there), len(here)) >= _FEWEST and median(here) > 0:
                return median(there) / median(here)
        ratios = []
        for other, host in self._typical:
            if host == source and isinstance(other, tuple) and (other, target) in self._typical:
                there, here = self._typical[other, target], self._typical[other, source]
                if min(len(there), len(here)) >= _FEWEST and median(here) > 0:
                    ratios.append(median(there) / median(here))
        return median(ratios) if ratios else 1.0


def _playable(
    lives: Mapping[str, Sequence[Lived]], curves: Mapping[str, SpeedCurve]
) -> dict[str, SpeedCurve]:
    """Where attempts contradict that a host takes them first come first served, it shares itself, as fast."""
    playable = dict(curves)
    for host, curve in curves.items():
        shape = curve.shape
        if isinstance(shape, Workers) and min(served_s(lives[host], shape.count)) < _LEAST_S:
            playable[host] = replace(curve, shape=Onset(shape.count, 1.0))
    return playable


class Prices:
    """What attempts cost on hosts, by the record and by the hosts' prices."""

    def __init__(self, recording: Recording, plant: Plant) -> None:
        self._hosts = {host.name: host for host in plant.hosts}
        self._costs = recording.costs
        tasks = {record.task.id: record.task for record in recording.tasks}
        sums: dict[tuple[str | None, str], list[float]] = defaultdict(list)
        for attempt in recording.attempts:
            usd = recording.costs.get((attempt.task, attempt.number))
            if usd is not None and attempt.task in tasks:
                sums[tasks[attempt.task].kind, attempt.host].append(usd)
                sums[None, attempt.host].append(usd)
        self._means = {place: sum(costs) / len(costs) for place, costs in sums.items()}

    def of(self, attempt: Attempt, task: Task, host: Host) -> float | None:
        """What a recorded attempt would have cost there; None when nothing tells."""
        usd = self._costs.get((attempt.task, attempt.number))
        if attempt.host == host.name:
            return usd
        before, after = self._price(self._hosts.get(attempt.host), task), self._price(host, task)
        if usd and before is not None and after is not None and before > 0:
            return usd * after / before
        return self.typical(task, host)

    def typical(self, task: Task, host: Host) -> float | None:
        mean = self._means.get((task.kind, host.name))
        return self._means.get((None, host.name)) if mean is None else mean

    def _price(self, host: Host | None, task: Task) -> float | None:
        """Of a million tokens, half of them asked and half of them answered: the record has no counts."""
        if host is None:
            return None
        price: Price | None = next(
            (host.prices[m] for m in (task.model, host.model) if m is not None and m in host.prices), None
        )
        return None if price is None else (price.input + price.output) / 2
