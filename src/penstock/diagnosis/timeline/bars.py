"""The timeline of a run: one bar per task, cut into pieces that tile its life, and what lay underneath.

A piece is a wait with its reason, an attempt with its host and verdict, or a rest: the time in which an ended
task was in no queue, because somebody revived it only later. A log of another system tells no reasons: between
being queued and starting its tasks wait for "".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from penstock.config.council_steps import called
from penstock.diagnosis.history import Stalled
from penstock.diagnosis.questions import asking_hosts, question_kinds
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.timeline.outliers import far_beyond
from penstock.lifecycle import UNWELL
from penstock.model import HOST_TRIED, Attempt, TaskRecord, Wait
from penstock.scheduling.messages import HostChange

INTERRUPTED = "interrupted"  # an attempt that ended without a verdict: its dispatcher died, or put it back
UNDER_WAY = "running"
NO_HOST = "host not told"  # of a log that names none
# Verdicts of attempts that a picture marks.
FAILED = ("temporary", "permanent", "host", "throttled", INTERRUPTED)


class Sort(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    RESTING = "resting"


class Piece(NamedTuple):
    sort: Sort
    start: float
    end: float
    what: str = ""  # the reason of a wait, the host of an attempt
    detail: str = ""  # of a wait; an attempt's error
    attempt: int = 0
    verdict: str = ""

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Bar:
    """A task from when it was queued to its end, or to the end of what is recorded."""

    record: TaskRecord
    pieces: tuple[Piece, ...]
    outliers: tuple[str, ...] = ()  # in words: what of it is far beyond its kind's others
    cost_usd: float | None = None
    is_question: bool = False  # it only waited for its steps, which have bars of their own

    @property
    def name(self) -> str:
        """A step of a question by its member."""
        return called(self.record.task)

    @property
    def start(self) -> float:
        return self.pieces[0].start if self.pieces else self.record.task.queued_at

    @property
    def end(self) -> float:
        return self.pieces[-1].end if self.pieces else self.record.task.queued_at

    @property
    def waited_s(self) -> float:
        return sum(piece.seconds for piece in self.pieces if piece.sort is Sort.WAITING)

    @property
    def ran_s(self) -> float:
        return sum(piece.seconds for piece in self.pieces if piece.sort is Sort.RUNNING)


Steps: TypeAlias = tuple[tuple[float, float], ...]  # from this time on, this many


@dataclass(frozen=True, slots=True)
class HostUse:
    """Slots of a host over time. `available` is empty where nobody told how many there were."""

    host: str
    used: Steps  # by this run
    others: Steps  # by other runs
    available: Steps
    peak: float  # the most that were used at once, by all


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What of all there is a timeline shows, where that is not a whole run."""

    total: int  # tasks that there are
    more: bool = False  # than were counted
    begin: float | None = None  # of the stretch of time that was asked for
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    run: str
    begin: float
    end: float
    bars: tuple[Bar, ...]  # in order of arrival
    hosts: tuple[HostUse, ...]
    queue: Steps  # tasks that waited
    reasons: Mapping[str, float]  # what was waited for -> seconds of all tasks, the largest first
    stalls: tuple[Stalled, ...] = ()
    asking: tuple[str, ...] = ()  # hosts of questions: nothing loads them
    excerpt: Excerpt | None = None

    @property
    def host_names(self) -> tuple[str, ...]:
        """All that need a look."""
        return (*(use.host for use in self.hosts), *self.asking)

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def is_live(self) -> bool:
        return any(bar.record.ended_at is None for bar in self.bars)

    @property
    def outliers(self) -> tuple[Bar, ...]:
        """What took longest from the queue to its end first."""
        return tuple(sorted((b for b in self.bars if b.outliers), key=lambda bar: bar.start - bar.end))


def timeline_of(recording: Recording) -> Timeline:
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in recording.attempts:
        attempts[attempt.task].append(attempt)
    bars = [_bar(recording, record, attempts[record.task.id]) for record in recording.tasks]
    begin = min((bar.start for bar in bars), default=recording.begin)
    end = max((bar.end for bar in bars), default=recording.end)
    questions = question_kinds(recording.plant)
    bars = (
        [replace(bar, is_question=bar.record.task.kind in questions) for bar in bars] if questions else bars
    )
    asking = asking_hosts(recording.plant)
    bars = list(_with_outliers(bars, end - begin))
    waits = [p for bar in bars for p in bar.pieces if p.sort is Sort.WAITING]
    return Timeline(
        run=recording.name,
        begin=begin,
        end=end,
        bars=tuple(bars),
        hosts=tuple(use for use in _host_uses(recording, bars, begin, end) if use.host not in asking),
        queue=_steps([(p.start, p.end, 1.0) for p in waits], begin, end),
        reasons=_reasons(waits),
        stalls=tuple(recording.stalls),
        asking=tuple(sorted(asking)) if any(bar.is_question for bar in bars) else (),
    )


# ---- bars


def _bar(recording: Recording, record: TaskRecord, attempts: Sequence[Attempt]) -> Bar:
    waits = recording.waits.get(record.task.id)
    told = [_attempt_piece(attempt, recording.end) for attempt in attempts]
    told += [piece for wait in waits or () for piece in _cut(wait, attempts)]
    told.sort(key=lambda piece: (piece.start, piece.end, piece.attempt))
    start = min([record.task.queued_at, *(piece.start for piece in told[:1])])
    end = recording.end if record.ended_at is None else record.ended_at
    # Where waits are known they tile the time in the queue, so a gap is none; in a foreign log it is a wait.
    between = Sort.WAITING if waits is None else Sort.RESTING
    costs = [recording.costs[key] for a in attempts if (key := (a.task, a.number)) in recording.costs]
    pieces = tuple(_tiled(told, start, max(start, end), between))
    return Bar(record, pieces, cost_usd=sum(costs) if costs else None)


def _cut(wait: Wait, attempts: Sequence[Attempt]) -> Iterator[Piece]:
    """A wait, in parts where an attempt that took no time stands in it: the reason before and after is the same."""
    start = wait.start
    for at in (a.started_at for a in attempts if wait.start < a.started_at < wait.end):
        yield Piece(Sort.WAITING, start, at, wait.reason, wait.detail)
        start = at
    yield Piece(Sort.WAITING, start, wait.end, wait.reason, wait.detail)


def _attempt_piece(attempt: Attempt, now: float) -> Piece:
    if attempt.ended_at is None:
        end, verdict = max(now, attempt.started_at), UNDER_WAY
    else:
        end, verdict = attempt.ended_at, str(attempt.verdict or INTERRUPTED)
    start = min(attempt.started_at, end)
    return Piece(
        Sort.RUNNING, start, end, attempt.host or NO_HOST, attempt.error or "", attempt.number, verdict
    )


def _tiled(pieces: Iterable[Piece], start: float, end: float, between: Sort) -> Iterator[Piece]:
    """Without gaps or overlaps. An attempt stays, however short; where two overlap, the first one counts."""
    at = start
    for piece in pieces:
        if piece.start > at:
            yield Piece(between, at, piece.start)
            at = piece.start
        if piece.end > at or piece.sort is Sort.RUNNING:
            until = max(at, piece.end)
            yield piece if piece.start == at else piece._replace(start=at, end=until)
            at = until
    if end > at:
        yield Piece(between, at, end)


def _with_outliers(bars: Sequence[Bar], makespan_s: float) -> Iterator[Bar]:
    begun = [any(piece.sort is Sort.RUNNING for piece in bar.pieces) for bar in bars]
    ran = far_beyond(
        ((bar.record.task.kind, bar.ran_s if ran else None) for bar, ran in zip(bars, begun, strict=True)),
        makespan_s,
    )
    waited = far_beyond(((bar.record.task.kind, bar.waited_s) for bar in bars), makespan_s)
    for bar, ran_usual_s, waited_usual_s in zip(bars, ran, waited, strict=True):
        words = []
        if ran_usual_s is not None:
            words.append(f"ran {bar.ran_s:.3g} s; half of its kind ran at most {ran_usual_s:.3g} s")
        if waited_usual_s is not None:
            words.append(
                f"waited {bar.waited_s:.3g} s; half of its kind waited at most {waited_usual_s:.3g} s"
            )
        yield replace(bar, outliers=tuple(words)) if words else bar


# ---- underneath


def _reasons(waits: Iterable[Piece]) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    for wait in waits:
        seconds[wait.what] += wait.seconds
    return dict(sorted(seconds.items(), key=lambda item: (-item[1], item[0])))


def _host_uses(recording: Recording, bars: Sequence[Bar], begin: float, end: float) -> Iterator[HostUse]:
    own: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for bar in bars:
        needs = bar.record.task.needs
        slots = 1.0 if needs is None else needs.get("slots", 1.0)
        for piece in bar.pieces:
            if piece.sort is Sort.RUNNING:
                own[piece.what].append((piece.start, piece.end, slots))
    others: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for attempt in recording.others:
        until = end if attempt.ended_at is None else attempt.ended_at
        others[attempt.host or NO_HOST].append((attempt.started_at, until, 1.0))
    known = [] if recording.plant is None else [host.name for host in recording.plant.hosts]
    for host in dict.fromkeys([*known, *sorted(own), *sorted(others)]):
        together = _steps([*own[host], *others[host]], begin, end)
        yield HostUse(
            host,
            used=_steps(own[host], begin, end),
            others=_steps(others[host], begin, end),
            available=_available(recording, host, begin, end),
            peak=max((value for _, value in together), default=0.0),
        )


def _available(recording: Recording, host: str, begin: float, end: float) -> Steps:
    if recording.plant is None:
        return ()
    first = next((h.slots for h in recording.plant.hosts if h.name == host), None)
    steps: list[tuple[float, float]] = [] if first is None else [(begin, float(first))]
    for change in recording.changes:
        if isinstance(change, HostChange) and change.host == host and change.at < end:
            room = change.slots if change.state == "up" else min(1, change.slots)
            free = room if change.state == "up" or change.state in HOST_TRIED else 0
            steps.append((max(begin, change.at), float(free)))
    return _joined(steps)


def _steps(spans: Iterable[tuple[float, float, float]], begin: float, end: float) -> Steps:
    """How many there were at any time, of spans with an amount each."""
    changes: dict[float, float] = defaultdict(float)
    for start, stop, amount in spans:
        start, stop = max(start, begin), min(stop, end)
        if stop > start:
            changes[start] += amount
            changes[stop] -= amount
    at = 0.0
    steps = [(begin, 0.0)]
    for time in sorted(changes):
        at += changes[time]
        steps.append((time, round(at, 6)))  # sums of fractions of slots come back to zero
    return _joined(steps)


def _joined(steps: Iterable[tuple[float, float]]) -> Steps:
    """Of several at one time the last counts; one that changes nothing is left out."""
    joined: list[tuple[float, float]] = []
    for time, value in steps:
        if joined and joined[-1][0] == time:
            joined.pop()
        if not joined or joined[-1][1] != value:
            joined.append((time, value))
    return tuple(joined)


# ---- as data


def attempt_record(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "host": attempt.host,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "verdict": None if attempt.verdict is None else str(attempt.verdict),
        "error": attempt.error,
        "retry_at": attempt.retry_at,
    }


def task_entry(record: TaskRecord, waits: Iterable[Wait], attempts: Iterable[Attempt]) -> dict[str, Any]:
    """A task of a timeline, for programs: without its value."""
    told = {"number": record.number, **record.as_record()}
    del told["value"]
    return {
        **told,
        "waits": [wait.as_record() for wait in waits],
        "attempt_records": [attempt_record(attempt) for attempt in attempts],
    }


def timeline_record(timeline: Timeline, recording: Recording) -> dict[str, Any]:
    """All of it. The part that the HTTP API tells in pages has the same form there."""
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in recording.attempts:
        attempts[attempt.task].append(attempt)
    tasks = [
        {
            **task_entry(bar.record, _waits(bar), attempts[bar.record.task.id]),
            "outliers": list(bar.outliers),
            "cost_usd": bar.cost_usd,
        }
        for bar in timeline.bars
    ]
    return {
        "run": timeline.run,
        "tasks": tasks,
        "next": None,
        "begin": timeline.begin,
        "end": timeline.end,
        "hosts": [
            {
                "host": use.host,
                "peak": use.peak,
                "used": use.used,
                "others": use.others,
                "slots": use.available,
            }
            for use in timeline.hosts
        ],
        "queue": timeline.queue,
        "waited_s": dict(timeline.reasons),
    }


def _waits(bar: Bar) -> Iterator[Wait]:
    for piece in bar.pieces:
        if piece.sort is Sort.WAITING:
            yield Wait(piece.what, piece.detail, piece.start, piece.end)


def went_wrong(bar: Bar) -> bool:
    return bar.record.state in UNWELL
