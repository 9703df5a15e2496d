"""Turns: each time that a task stood in line, could have been started, and then was. For every finder.

A turn begins when nothing but room was missing any more: queued, its dependencies done, its time come, its retry
due. Of our own runs the waits tell; of a foreign log what it says of queueing does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.diagnosis.attempts import Lived
from penstock.diagnosis.recording import Recording
from penstock.model import Task, TaskRecord, Wait
from penstock.scheduling.details import Detail

# Reasons that mean: it could have run, had there been room for it.
_ELIGIBLE = ("slots", "order", "lane")
_GIVEN = (Detail.READ_FIRST, Detail.RECORDED_FIRST)  # said of who had its room already
_ROUNDING_S = 1e-3
_SOME = 3
_NEARLY_ALL = 0.8


@dataclass(frozen=True, slots=True)
class Turn:
    """Ends with the start of `life`; or, of a task that was never started, with the recording (`life` is None)."""

    task: Task
    place: int  # in the order of arrival
    since: float
    start: float
    host: str | None  # that took it; else the one it must go to, if any
    life: Lived | None
    number: int  # of the attempt

    @property
    def wait_s(self) -> float:
        return self.start - self.since


def turns_of(recording: Recording, lives: Mapping[tuple[str, int], Lived], *, presumed: bool) -> list[Turn]:
    """In order of start. Presumed: all were in line from the beginning."""
    tries: dict[str, list[Lived]] = defaultdict(list)
    for life in lives.values():
        tries[life.task].append(life)
    ends = {r.task.id: r.ended_at for r in recording.tasks}
    reader = _Reader(recording, ends, recording.begin if presumed else None)
    turns: list[Turn] = []
    for place, record in enumerate(recording.tasks):
        turns += reader.turns(place, record, sorted(tries[record.task.id], key=lambda a: a.number))
    return sorted(turns, key=lambda t: (t.start, t.place, t.number))


class _Reader:
    def __init__(
        self, recording: Recording, ends: Mapping[str, float | None], queued_at: float | None
    ) -> None:
        self._recording = recording
        self._queued_at = queued_at  # of all, where nothing is told but it can be told all the same
        self._ends = ends
        self._retries = {(a.task, a.number): a.retry_at for a in recording.attempts}

    def turns(self, place: int, record: TaskRecord, tries: Sequence[Lived]) -> Iterator[Turn]:
        task, end = record.task, self._recording.end
        waits = self._recording.waits.get(task.id, ())
        before: Lived | None = None
        for life in tries:
            since = self._from(task, before, waits, life.start)
            yield Turn(task, place, since, life.start, life.host, life, life.number)
            before = life
        if record.ended_at is None and (before is None or before.has_ended):
            since = self._from(task, before, waits, end)
            if since < end:
                number = before.number + 1 if before is not None else 1
                yield Turn(task, place, since, end, task.host, None, number)

    def _from(self, task: Task, before: Lived | None, waits: Sequence[Wait], start: float) -> float:
        if self._recording.is_ours:
            return _eligible(waits, start)
        return start if self._is_gated(task) else min(self._since(task, before), start)

    def _is_gated(self, task: Task) -> bool:
        """Without waits nothing tells when its gate was open."""
        plant = self._recording.plant
        return plant is not None and any(
            task.lane in g.holds_lanes or task.kind in g.holds_kinds or (task.host in g.holds_hosts)
            for g in plant.gates
        )

    def _since(self, task: Task, before: Lived | None) -> float:
        """From when on a task could be started; infinitely late where that is not known."""
        if before is not None:
            retry_at = self._retries.get((before.task, before.number))
            return float("inf") if retry_at is None else max(retry_at, before.end)
        queued_at = task.queued_at if self._queued_at is None else self._queued_at
        since = max(queued_at, task.not_before or queued_at)
        for needed in task.after:
            if needed in self._ends:
                ended = self._ends[needed]
                since = float("inf") if ended is None else max(since, ended)
        return since


def _eligible(waits: Sequence[Wait], start: float) -> float:
    """Since when, before a start, only room was missing."""
    begin = start
    for wait in reversed(waits):
        if wait.start >= start:
            continue
        # What was given a slot, and waited for its worker or the store, missed no room.
        for_room = wait.reason.partition(":")[0] in _ELIGIBLE and Detail.of(wait.detail) not in _GIVEN
        if min(wait.end, start) < begin - _ROUNDING_S or not for_room:
            break
        begin = wait.start
    return begin


def is_backlog(lives: Sequence[Lived], near_s: float) -> bool:
    """Whether nearly every start follows an end at once."""
    ends = sorted(a.end for a in lives if a.has_ended)
    first = min((a.start for a in lives), default=0.0)
    later = sorted(a.start for a in lives if a.start > first + near_s)
    followed, last = 0, float("-inf")
    for start in later:
        i = bisect_right(ends, start + near_s / 2)
        # Several that are let go at an end start one after the other.
        if (i > 0 and start - ends[i - 1] <= near_s) or start - last <= near_s:
            followed, last = followed + 1, start
    return len(later) >= _SOME and followed >= _NEARLY_ALL * len(later)
