"""Why a task waited: its queue time cut into stretches, each with exactly one reason.

Reasons are recorded once per class of tasks; here they are cut to size for one task. The stretches of a task
tile its queue time: from when it was queued to its first start, and from each failed attempt to the next.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from math import inf
from typing import NamedTuple

from penstock.diagnosis.history import History, Owner
from penstock.diagnosis.steps import Span, joined
from penstock.diagnosis.why.holders import Holder, Holders, held_by
from penstock.model import Attempt, Result, State, TaskRecord, Wait
from penstock.scheduling.begins import BEGAN
from penstock.scheduling.routes import route_key

REASONS = (
    "dependency",
    "scheduled",
    "paused",
    "store-down",
    "gate:NAME",
    "lane:NAME",
    "host-down",
    "rate:HOST",
    "slots:HOSTS",
    "worker:HOST",
    "order",
    "dispatcher-down",
)

TAKEN_IN = "the dispatcher was taking it in"
_NOBODY = "no dispatcher was running"
_NOT_BEFORE = "not before its time"

_Piece = tuple[str, str, float, float]  # reason, detail, from, to


class _Span(NamedTuple):
    """A stretch in the queue of one reason, or of those of a class."""

    start: float
    end: float
    reason: str
    detail: str = ""
    work_class: int | None = None


class Stay(NamedTuple):
    """How long a task was in the queue and how long it ran, in all attempts; at rest it was in neither."""

    waited_s: float
    ran_s: float
    since: float | None  # when the wait or the attempt that goes on began; it counts in neither figure


class Explainer:
    """Reads a history once; then explains any of its tasks."""

    def __init__(self, history: History, now: float) -> None:
        self._now = now
        self._history = history
        self._attempts: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in sorted(history.attempts, key=lambda a: a.number):
            self._attempts[attempt.task].append(attempt)
        self._routes: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for route in history.routes:
            self._routes[route.key].append((route.at, route.work_class))
        self._moves: dict[str, list[tuple[float, int]]] = defaultdict(list)
        self._late: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
        for move in history.moves:
            moves = self._moves[move.task]
            if move.why == BEGAN and moves:
                self._late[move.task].append((moves[-1][0], move.at, moves[-1][1]))
            moves.append((move.at, move.work_class))
        self._changes: dict[int, list[tuple[float, str | None, str]]] = defaultdict(list)
        for change in history.stretches:
            self._changes[change.work_class].append((change.at, change.reason, change.detail))
        self._times = {key: [c[0] for c in changes] for key, changes in self._changes.items()}
        self._rests = defaultdict(list)
        for rest in history.rests:
            self._rests[rest.task].append(rest)
        self._alive = _dispatching(history, now)
        self._homes: dict[tuple[str, float], list[tuple[float, int]]] = {}  # by route and dispatcher
        self._totals: dict[int, _Totals] = {}
        self._gate_lanes = {
            gate.name: gate.lane
            for epoch in history.epochs
            if epoch.plant is not None
            for gate in epoch.plant.gates
            if gate.lane is not None
        }

    def waits(self, record: TaskRecord) -> tuple[Wait, ...]:
        pieces: list[_Piece] = []
        for span in self._spans(record):
            if span.work_class is None:
                pieces.append((span.reason, span.detail, span.start, span.end))
            else:
                pieces += self._changes_between(span.work_class, span.start, span.end)
        return tuple(
            Wait(r, self._detail(r, d, a, b, record.task.run), a, b) for r, d, a, b in _joined(pieces)
        )

    def seconds(self, record: TaskRecord, since: float = -inf) -> dict[str, float]:
        """How long it waited for each reason since then: the sums of `waits`, without cutting every stretch."""
        waited: dict[str, float] = {}
        for span in self._spans(record):
            start = max(span.start, since)
            if span.end <= start:
                continue
            if span.work_class is None:
                waited[span.reason] = waited.get(span.reason, 0.0) + span.end - start
            else:
                self._totals_of(span.work_class).add(waited, start, span.end)
        return waited

    def when(
        self, records: Iterable[TaskRecord], counts: Callable[[str], bool], since: float = -inf
    ) -> list[Span]:
        """The times since then in which any of these waited for one of the reasons that count."""
        spans: list[Span] = []
        of_class: dict[int, list[Span]] = defaultdict(list)
        for record in records:
            for span in self._spans(record):
                cut = max(span.start, since), span.end
                if cut[1] > cut[0] and span.work_class is not None:
                    of_class[span.work_class].append(cut)
                elif cut[1] > cut[0] and counts(span.reason):
                    spans.append(cut)
        for work_class, queued in of_class.items():
            for start, end in joined(queued):
                pieces = self._changes_between(work_class, start, end)
                spans += [(at, until) for reason, _, at, until in pieces if counts(reason)]
        return joined(spans)

    def last(self, record: TaskRecord) -> tuple[str, str] | None:
        """What it waited for at last, and the detail; None if it did not wait."""
        span = None
        for span in self._spans(record):  # noqa: B007 - the last one is asked for
            pass
        if span is None or span.work_class is None:
            return None if span is None else (span.reason, span.detail)
        changes = self._changes.get(span.work_class, [])
        place = bisect_left(self._times.get(span.work_class, []), span.end) - 1
        _, reason, detail = changes[place] if place >= 0 else (0.0, None, "")
        return (reason, detail) if reason else ("order", TAKEN_IN)

    def result(self, record: TaskRecord) -> Result:
        task = record.task
        return Result(
            task_id=task.id,
            run=task.run,
            kind=task.kind,
            lane=task.lane,
            priority=task.priority,
            state=record.state,
            host=record.host,
            attempts=record.attempts,
            queued_at=task.queued_at,
            started_at=record.started_at,
            ended_at=record.ended_at,
            value=record.value,
            error=record.error,
            waits=self.waits(record),
            output=task.output,
            label=task.label,
        )

    def stay(self, record: TaskRecord) -> Stay:
        """Of a history that has no more than the task's attempts and rests, too."""
        queued = [(start, end) for start, end, _, _ in self._less_rests(record)]
        ran = [
            (one.started_at, record.ended_at if one.ended_at is None else one.ended_at)
            for one in self._attempts[record.task.id]
        ]
        since = None
        if record.state is State.QUEUED or record.is_delayed:
            since = queued.pop()[0] if queued and queued[-1][1] >= self._now else self._now
        elif record.state is State.RUNNING:
            since = record.started_at
        return Stay(
            sum(end - start for start, end in queued),
            sum(max(0.0, end - start) for start, end in ran if end is not None),
            since,
        )

    def _queue_times(self, record: TaskRecord) -> Iterator[tuple[float, float, float, str]]:
        """Stretches in the queue: from, to, when dependencies and the clock let it be ready, and why then."""
        end_of_all = self._now if record.ended_at is None else record.ended_at
        start = record.task.queued_at
        ready = self._first_ready(record)
        why = _NOT_BEFORE
        for attempt in self._attempts[record.task.id]:
            yield start, attempt.started_at, ready, why
            if attempt.ended_at is None:
                return
            start = attempt.ended_at
            ready = start if attempt.retry_at is None else attempt.retry_at
            why = f"between tries, after: {attempt.error}"
        if record.state is State.QUEUED or end_of_all > start:
            yield start, end_of_all, ready, why

    def _spans(self, record: TaskRecord) -> Iterator[_Span]:
        for start, end, ready, why in self._less_rests(record):
            yield from self._before_ready(record, start, min(ready, end), why)
            yield from self._ready(record, max(start, ready), end)

    def _less_rests(self, record: TaskRecord) -> Iterator[tuple[float, float, float, str]]:
        """The same without the times at rest. After one it waits for its dependencies and its time, as at first."""
        rests = self._rests[record.task.id]
        for tried, (start, end, ready, why) in enumerate(self._queue_times(record)):
            for rest in rests:
                # Of a rest and an attempt that took no time only the number tells which came first.
                elsewhere = rest.end <= start or rest.start >= end
                if elsewhere if rest.attempts is None else rest.attempts != tried:
                    continue
                if rest.start > start:
                    yield start, rest.start, ready, why
                start, ready, why = rest.end, max(rest.end, self._first_ready(record)), _NOT_BEFORE
            if end > start:
                yield start, end, ready, why

    def _first_ready(self, record: TaskRecord) -> float:
        task = record.task
        return max(self._met(record), task.not_before or 0.0, task.queued_at)

    def _met(self, record: TaskRecord) -> float:
        """When the last task it waits after had ended."""
        met = 0.0
        for needed in record.task.after:
            other = self._history.dependencies.get(needed)
            if other is not None:
                met = max(met, self._now if other.ended_at is None else other.ended_at)
        return met

    def _before_ready(self, record: TaskRecord, start: float, ready: float, why: str) -> Iterator[_Span]:
        met = min(max(start, self._met(record)), ready)
        if met > start:
            yield _Span(start, met, "dependency", ", ".join(record.task.after[:5]))
        if ready > met:
            yield _Span(met, ready, "scheduled", why)

    def _ready(self, record: TaskRecord, start: float, end: float) -> Iterator[_Span]:
        """Cut from the class's reasons; where no dispatcher lived, that is the reason."""
        at = start
        for born, died, owner in self._alive:
            if died <= at:
                continue
            if born >= end:
                break
            if born > at:
                yield _Span(at, born, "dispatcher-down", _NOBODY)
                at = born
            until = min(died, end)
            if owner.works_on(record.task.run):
                yield from self._in_class(record, at, until, born)
            else:
                yield _Span(at, until, "dispatcher-down", owner.apart)
            at = until
        if at < end:
            yield _Span(at, end, "dispatcher-down", _NOBODY)

    def _in_class(self, record: TaskRecord, start: float, end: float, born: float) -> Iterator[_Span]:
        task = record.task
        key = route_key(task.kind, task.lane, task.host, task.model, task.needs)
        # A dispatcher says anew where tasks wait; what the one before it said last no longer holds.
        # It may say a route twice, and it is the same; what it said of this very task counts for more.
        # Its class may have waited before: what held that held a task that was yet to be taken in.
        homes = self._homes.get((key, born))
        if homes is None:
            told = [work_class for at, work_class in self._routes.get(key, ()) if at >= born]
            homes = self._homes[key, born] = [(born, work_class) for work_class in told[:1]]
        if moves := self._moves.get(task.id):
            # One that had its slot waited on for the same, whoever dispatched meanwhile.
            late = (
                (born, home) for since, began, home in self._late.get(task.id, ()) if since < born < began
            )
            homes = sorted([*homes, *late, *(h for h in moves if h[0] >= born)], key=lambda h: h[0])
        elif homes:  # as nearly all are
            yield _Span(start, end, "order", work_class=homes[0][1])
            return
        times = [h[0] for h in homes]
        at = start
        while at < end:
            i = bisect_right(times, at) - 1
            until = min(end, times[i + 1]) if i + 1 < len(times) else end
            if i < 0:
                yield _Span(at, until, "order", TAKEN_IN)
            else:
                yield _Span(at, until, "order", work_class=homes[i][1])
            at = until

    def _changes_between(self, work_class: int, start: float, end: float) -> Iterator[_Piece]:
        changes = self._changes.get(work_class, [])
        times = self._times.get(work_class, [])
        i = bisect_right(times, start) - 1
        at = start
        while at < end:
            until = min(end, times[i + 1]) if i + 1 < len(times) else end
            _, reason, detail = changes[i] if i >= 0 else (0.0, None, "")
            if until > at:
                yield (reason or "order"), (detail if reason else TAKEN_IN), at, until
            at = until
            i += 1

    def _totals_of(self, work_class: int) -> _Totals:
        totals = self._totals.get(work_class)
        if totals is None:
            changes = [(at, reason or "order") for at, reason, _ in self._changes.get(work_class, ())]
            totals = self._totals[work_class] = _Totals(changes)
        return totals

    @cached_property
    def _holders(self) -> Holders:
        return Holders(self._history.others, self._now)

    def holders(self, reason: str, start: float, end: float) -> tuple[Holder, ...]:
        """Who held what was waited for, where tasks did: slots, a lane's places, a gate that counts a lane's."""
        name, _, target = reason.partition(":")
        if name == "slots":
            return self._holders.on(target.split(","), start, end)
        lane = target if name == "lane" else self._gate_lanes.get(target) if name == "gate" else None
        return () if lane is None else self._holders.of(lane, start, end)

    def _detail(self, reason: str, detail: str, start: float, end: float, run: str) -> str:
        if reason.partition(":")[0] not in ("slots", "lane"):
            return detail
        held = held_by(self.holders(reason, start, end), run)
        return "; ".join(part for part in (held, detail) if part)


class _Totals:
    """How long each reason of a class has held up to any time, so that a stretch of any length costs the same."""

    def __init__(self, changes: Sequence[tuple[float, str]]) -> None:
        # Of each reason: when it began to hold, for how long it had held before, and when that time was over.
        self._held: dict[str, tuple[list[float], list[float], list[float]]] = {}
        self._first = changes[0][0] if changes else inf
        self._start: tuple[float, list[float]] | None = None  # many tasks came, or were restored, together
        for place, (at, reason) in enumerate(changes):
            begins, before_s, ends = self._held.setdefault(reason, ([], [], []))
            before_s.append(before_s[-1] + (ends[-1] - begins[-1]) if begins else 0.0)
            begins.append(at)
            ends.append(changes[place + 1][0] if place + 1 < len(changes) else inf)

    def add(self, waited: dict[str, float], start: float, end: float) -> None:
        if start < self._first:  # nothing was said yet: it was being taken in
            waited["order"] = waited.get("order", 0.0) + min(self._first, end) - start
        if self._start is None or self._start[0] != start:
            self._start = start, [_upto(held, start) for held in self._held.values()]
        for (reason, held), before_s in zip(self._held.items(), self._start[1], strict=True):
            seconds = _upto(held, end) - before_s
            if seconds > 0:
                waited[reason] = waited.get(reason, 0.0) + seconds


def _upto(held: tuple[list[float], list[float], list[float]], at: float) -> float:
    begins, before_s, ends = held
    place = bisect_right(begins, at) - 1
    return 0.0 if place < 0 else before_s[place] + (min(at, ends[place]) - begins[place])


def _dispatching(history: History, now: float) -> list[tuple[float, float, Owner]]:
    """When somebody dispatched. One that only answered a request started nothing: to tasks nobody was there."""
    lives = [
        (e.started_at, now if e.ended_at is None else e.ended_at, e.owner)
        for e in history.epochs
        if not e.owner.answers_only
    ]
    return sorted(lives, key=lambda life: life[:2])


def _joined(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    last: _Piece | None = None
    for piece in pieces:
        if piece[3] <= piece[2]:
            continue
        if last is not None and last[:2] == piece[:2] and last[3] == piece[2]:
            last = (*last[:3], piece[3])
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last
