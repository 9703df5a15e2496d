"""Attempts as lives on hosts: from, to, of what sort, how they ended. For whatever measures a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.diagnosis.recording import Recording
from penstock.model import Attempt, Task, Verdict

Sort: TypeAlias = tuple[str, str | None]  # kind, model: what is comparable

_CLOCKS_S = (60.0, 1.0)  # of logs that write no finer than minutes, or seconds
_SOME = 6  # times that must agree before a coarse clock is believed
_FINEST_S = 0.001


@dataclass(frozen=True, slots=True)
class Lived:
    """An attempt that began within the recording, or before it. One that still runs ends with the recording."""

    task: str
    number: int
    host: str
    lane: str
    sort: Sort
    start: float
    end: float
    verdict: Verdict | None
    has_ended: bool
    is_own: bool  # of the run, not of another beside it

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def is_well(self) -> bool:
        """It ended by itself, and nothing says that it failed."""
        return self.has_ended and self.verdict in (None, Verdict.DONE)

    @property
    def has_failed(self) -> bool:
        return self.verdict in (Verdict.TEMPORARY, Verdict.PERMANENT, Verdict.HOST, Verdict.THROTTLED)


def lived(recording: Recording) -> Mapping[str, Sequence[Lived]]:
    """By host, by start; of the run and of others at the same time."""
    tasks = {record.task.id: record.task for record in recording.tasks}
    hosts: dict[str, list[Lived]] = defaultdict(list)
    for attempts, is_own in ((recording.attempts, True), (recording.others, False)):
        for attempt in attempts:
            hosts[attempt.host].append(_life(attempt, tasks.get(attempt.task), recording.end, is_own))
    for lives in hosts.values():
        lives.sort(key=lambda a: (a.start, a.end, a.task, a.number))
    return dict(hosts)


def _life(attempt: Attempt, task: Task | None, end_of_all: float, is_own: bool) -> Lived:
    end = end_of_all if attempt.ended_at is None else attempt.ended_at
    return Lived(
        task=attempt.task,
        number=attempt.number,
        host=attempt.host,
        lane=attempt.lane,
        sort=(task.kind, task.model) if task is not None else ("", None),
        start=attempt.started_at,
        end=max(end, attempt.started_at),
        verdict=attempt.verdict,
        has_ended=attempt.ended_at is not None,
        is_own=is_own,
    )


def resolution_s(recording: Recording) -> float:
    """How finely times were written down: a log in whole seconds cannot tell less than a second apart."""
    times = [a.started_at for a in recording.attempts]
    times += [a.ended_at for a in recording.attempts if a.ended_at is not None]
    if len(times) < _SOME or recording.is_ours:
        return _FINEST_S
    first = min(times)
    for clock in _CLOCKS_S:
        if all((time - first) % clock == 0 for time in times):
            return clock
    return _FINEST_S
