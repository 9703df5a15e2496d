"""What happened, told once: the dispatcher's decisions as small facts that metrics, traces and logs listen to.

    decisions ──► Story ──► facts ──┬─► metrics
                                    ├─► traces
                                    └─► log lines

Kept are the attempts that run, the tasks that were tried and wait again, and what classes wait for: nothing per
queued task. `task` finds a task among those the dispatcher keeps in memory. One that it must read first is
unknown when its start is decided; that start is told when the attempt begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from penstock.model import State, Task, TaskRecord, Verdict
from penstock.scheduling.begins import LATE_S
from penstock.scheduling.messages import (
    Adopt,
    AllChange,
    Begin,
    Decision,
    End,
    GateChange,
    HostChange,
    LaneChange,
    Move,
    Reprioritize,
    Requeue,
    Revive,
    Route,
    Spend,
    Start,
    Stop,
    WaitChange,
)
from penstock.scheduling.routes import route_key
from penstock.telemetry.stretches import EARLIER, Piece, QueueTime, Stretches

_DOWN = "dispatcher-down"
_NOBODY = "no dispatcher was running"
_BEFORE = "under an earlier dispatcher"
_MOST_MOVED = 100_000  # tasks whose way from class to class is known


# ---- facts


class Started(NamedTuple):
    """An attempt began, and with it a wait ended."""

    task: str
    attempt: int
    host: str
    lane: str
    at: float
    known: Task | None
    wait: QueueTime | None  # None where the task is not known

    def until(self, at: float) -> Started:
        """It began only then."""
        return self._replace(at=at, wait=None if self.wait is None else self.wait.until(at))


class Over(NamedTuple):
    """An attempt ended; its task may be tried again from `retry_at` on, or has ended with it."""

    task: str
    attempt: int
    host: str
    lane: str
    started_at: float
    at: float
    verdict: str
    error: str | None
    tokens: float | None
    usd: float
    retry_at: float | None
    known: Task | None


class Ended(NamedTuple):
    """A task has its one result. `wait` is there when it ended in the queue, `host` where it ran last."""

    task: str
    attempt: int
    state: State
    lane: str
    at: float
    error: str | None
    host: str | None
    ran_s: float | None  # of the attempt that it ended with
    tokens: float | None  # of all its attempts that this dispatcher saw
    usd: float
    revived_at: float | None  # when it was queued again by hand, if it was
    known: Task | None
    wait: QueueTime | None


class Stalled(NamedTuple):
    """User code keeps a loop from turning; told when it is noticed, and once more when it is over."""

    host: str
    task: str | None
    attempt: int | None
    at: float
    seconds: float
    over: bool


# Changes of conditions, adoptions, orders to stop, revivals and costs are facts as they are decided.
Fact: TypeAlias = (
    Started
    | Over
    | Ended
    | Stalled
    | Adopt
    | Stop
    | Revive
    | Reprioritize
    | Spend
    | HostChange
    | GateChange
    | LaneChange
    | AllChange
)


class Listener(Protocol):
    def told(self, facts: Sequence[Fact]) -> None: ...


# ---- the fold


class _Running:
    __slots__ = ("at", "attempt", "host", "known", "lane", "tries", "usd")

    def __init__(
        self, attempt: int, host: str, lane: str, at: float, known: Task | None, tries: _Tries | None
    ) -> None:
        self.attempt = attempt
        self.host = host
        self.lane = lane
        self.at = at
        self.known = known
        self.tries = tries
        self.usd = 0.0


class _Tries(NamedTuple):
    """Of a task that was in the queue before: since when it is again, and what its attempts used."""

    at: float
    ready: float | None  # None: it was revived, and waits for its dependencies and its time as at first
    why: str
    host: str | None = None
    tokens: float | None = None
    usd: float = 0.0
    revived_at: float | None = None


class Story:
    def __init__(
        self,
        task: Callable[[str], Task | None],
        met_at: Callable[[str], float | None] = lambda task: None,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._task = task
        self._now = now
        self._met_at = met_at  # when the last task was done that this one waits after
        self._listeners: list[Listener] = []
        self._born = 0.0
        self._last_died: float | None = None  # when the dispatcher before this one was gone
        self._running: dict[str, _Running] = {}
        self._tried: dict[str, _Tries] = {}
        self._late: dict[str, Start] = {}  # starts of tasks that have yet to be read
        self._classes: dict[int, Stretches] = {}
        self._routes: dict[str, int] = {}
        self._moves: dict[str, list[tuple[float, int]]] = {}
        self._facts: list[Fact] = []
        self._folds: dict[type, Callable[[Any], None]] = {
            Start: self._started,
            Begin: self._began,
            End: self._ended,
            Requeue: self._requeued,
            Revive: self._revived,
            WaitChange: self._waits,
            Route: self._routed,
            Move: self._moved,
            Spend: self._spent,
            Adopt: self._passed,
            Stop: self._passed,
            Reprioritize: self._passed,
            HostChange: self._passed,
            GateChange: self._passed,
            LaneChange: self._passed,
            AllChange: self._passed,
        }

    # ---- who listens

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    @property
    def is_heard(self) -> bool:
        return bool(self._listeners)

    # ---- what is told

    def took_over(
        self,
        now: float,
        last_died: float | None,
        records: Iterable[TaskRecord],
        *,
        answers_only: bool = False,
    ) -> None:
        """A dispatcher begins with these live tasks; the one before it was gone at `last_died`.

        One that only answers requests is none to them: their time in the queue goes on without anybody.
        """
        self._born = math.inf if answers_only else now
        self._last_died = last_died
        for record in records:
            task = record.task
            if record.state is State.RUNNING:
                self._running[task.id] = _Running(
                    record.attempts, record.host or "", task.lane, record.started_at or now, task, None
                )
            elif record.attempts:
                ready = record.retry_at  # None: somebody revived it
                since = now if last_died is None else last_died
                since = since if ready is None else min(ready, since)
                self._tried[task.id] = _Tries(since, ready, "between tries", record.host)

    def decided(
        self, decisions: Sequence[Decision], later: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        """What it comes to is told at once, or when `later` calls."""
        folds = self._folds
        for decision in decisions:
            fold = folds.get(type(decision))
            if fold is not None:
                fold(decision)
        if later is None:
            self._tell()
        elif self._facts:
            facts, self._facts = self._facts, []
            later(lambda: self._pass_late(facts))

    def begun(self, task_ids: Iterable[str]) -> None:
        """These attempts begin; tasks that had to be read first are known now."""
        if self._late:
            for task in task_ids:
                start = self._late.pop(task, None)
                if start is not None:
                    self._begin(start, self._task(task))
            self._tell()

    def stalled(self, fact: Stalled) -> None:
        self._facts.append(fact)
        self._tell()

    def _tell(self) -> None:
        if self._facts:
            facts, self._facts = self._facts, []
            self._pass(facts)

    def _pass_late(self, facts: list[Fact]) -> None:
        """What began has waited until now."""
        now = self._now()
        late = now - LATE_S
        if facts[0].at < late:
            facts = [f.until(now) if isinstance(f, Started) and f.at < late else f for f in facts]
        self._pass(facts)

    def _pass(self, facts: list[Fact]) -> None:
        for listener in self._listeners:
            listener.told(facts)

    # ---- decisions

    def _passed(self, decision: Any) -> None:
        self._facts.append(decision)

    def _started(self, start: Start) -> None:
        task = start.task
        known = self._task(task)
        tries = self._tried.pop(task, None) if self._tried else None
        self._running[task] = _Running(start.attempt, start.host, start.lane, start.at, known, tries)
        if known is None:
            self._late[task] = start
        else:
            self._begin(start, known)

    def _begin(self, start: Start, known: Task | None) -> None:
        running = self._running.get(start.task)
        if running is None or running.attempt != start.attempt:
            return
        running.known = known
        wait = None
        if known is not None:
            wait = self._queue_time(known, running.tries, start.at, start.work_class)
        self._facts.append(Started(start.task, start.attempt, start.host, start.lane, start.at, known, wait))

    def _began(self, begin: Begin) -> None:
        running = self._running.get(begin.task)
        if running is not None and running.attempt == begin.attempt:
            running.at = begin.at

    def _requeued(self, again: Requeue) -> None:
        running = self._running.pop(again.task, None)
        self._late.pop(again.task, None)
        if running is None:
            self._tried[again.task] = _Tries(again.at, again.retry_at, _between(again.error))
            return
        before = running.tries
        tokens = _plus(None if before is None else before.tokens, again.tokens)
        self._facts.append(
            Over(
                again.task,
                again.attempt,
                running.host,
                running.lane,
                running.at,
                again.at,
                again.verdict._value_,
                again.error,
                again.tokens,
                running.usd,
                again.retry_at,
                running.known,
            )
        )
        self._tried[again.task] = _Tries(
            again.at,
            again.retry_at,
            _between(again.error),
            running.host,
            tokens,
            running.usd + (0.0 if before is None else before.usd),
            None if before is None else before.revived_at,
        )

    def _ended(self, end: End) -> None:
        task, outcome = end.task, end.outcome
        running = self._running.pop(task, None)
        if self._late:
            self._late.pop(task, None)
        if running is None:
            self._ended_in_queue(end)
            return
        tries, tokens = running.tries, None if outcome is None else outcome.tokens
        if end.attempt:
            verdict = Verdict.HOST if outcome is None else outcome.verdict
            self._facts.append(
                Over(
                    task,
                    end.attempt,
                    running.host,
                    running.lane,
                    running.at,
                    end.at,
                    verdict._value_,
                    end.error,
                    tokens,
                    running.usd,
                    None,
                    running.known,
                )
            )
        usd = running.usd
        if tries is not None:
            tokens, usd = _plus(tries.tokens, tokens), usd + tries.usd
        self._facts.append(
            Ended(
                task,
                end.attempt,
                end.state,
                running.lane,
                end.at,
                end.error,
                running.host,
                end.at - running.at if end.attempt else None,
                tokens,
                usd,
                None if tries is None else tries.revived_at,
                running.known,
                None,
            )
        )
        if self._moves:
            self._moves.pop(task, None)

    def _ended_in_queue(self, end: End) -> None:
        task = end.task
        tries = self._tried.pop(task, None)
        known = self._task(task)
        wait = None
        if known is not None:
            key = route_key(known.kind, known.lane, known.host, known.model, known.needs)
            wait = self._queue_time(known, tries, end.at, self._routes.get(key, 0))
        self._facts.append(
            Ended(
                task,
                0,
                end.state,
                "" if known is None else known.lane,
                end.at,
                end.error,
                None if tries is None else tries.host,
                None,
                None if tries is None else tries.tokens,
                0.0 if tries is None else tries.usd,
                None if tries is None else tries.revived_at,
                known,
                wait,
            )
        )
        self._moves.pop(task, None)

    def _revived(self, revive: Revive) -> None:
        self._facts.append(revive)
        self._moves.pop(revive.task, None)
        self._tried[revive.task] = _Tries(revive.at, None, "", revived_at=revive.at)

    def _spent(self, spend: Spend) -> None:
        running = self._running.get(spend.task)
        if running is not None and running.attempt == spend.attempt:
            running.usd += spend.usd
        self._facts.append(spend)

    def _waits(self, change: WaitChange) -> None:
        self._class(change.work_class).change(change.at, change.reason, change.detail)

    def _routed(self, route: Route) -> None:
        self._routes[route.key] = route.work_class

    def _moved(self, move: Move) -> None:
        moves = self._moves.get(move.task)
        if moves is not None:
            moves.append((move.at, move.work_class))
        elif len(self._moves) < _MOST_MOVED:
            self._moves[move.task] = [(move.at, move.work_class)]

    # ---- waits

    def _class(self, work_class: int) -> Stretches:
        found = self._classes.get(work_class)
        if found is None:
            found = self._classes[work_class] = Stretches()
        return found

    def _queue_time(self, task: Task, tries: _Tries | None, end: float, work_class: int) -> QueueTime:
        start = task.queued_at if tries is None else tries.at
        before: list[Piece] = []
        if tries is not None and tries.ready is not None:
            ready = tries.ready
            if ready > start:
                before.append(Piece("scheduled", tries.why, start, min(ready, end)))
        elif task.after or task.not_before is not None:
            before, ready = self._before_ready(task, start, end)
        else:
            ready = start
        if ready < self._born:
            before += self._before_birth(max(start, ready), min(self._born, end))
        moves = self._moves.get(task.id) if self._moves else None
        if moves is None:
            homes = [(start, self._class(work_class))]
        else:
            key = route_key(task.kind, task.lane, task.host, task.model, task.needs)
            first = [] if moves[0][0] <= ready else [(start, self._class(self._routes.get(key, work_class)))]
            homes = [*first, *((at, self._class(home)) for at, home in moves)]
        return QueueTime(start, end, before, homes)

    def _before_ready(self, task: Task, start: float, end: float) -> tuple[list[Piece], float]:
        """What it waited for by itself, and until when."""
        met = start
        pieces = []
        if task.after:
            known = self._met_at(task.id)
            met = end if known is None else min(max(start, known), end)
            if met < self._born and start < self._born:  # it was met, and an earlier dispatcher knew when
                met = min(self._born, end)
                pieces.append(Piece(EARLIER, _BEFORE, start, met))
        ready = max(met, task.not_before or 0.0, start)
        if met > start and not pieces:
            pieces.append(Piece("dependency", ", ".join(task.after[:5]), start, met))
        if ready > met and end > met:
            pieces.append(Piece("scheduled", "not before its time", met, min(ready, end)))
        return pieces, ready

    def _before_birth(self, start: float, end: float) -> list[Piece]:
        """The time before this dispatcher: the one before it knew the reasons, or there was none."""
        died = self._last_died
        if end <= start:
            return []
        if died is None or died <= start:
            return [Piece(_DOWN, _NOBODY, start, end)]
        if died >= end:
            return [Piece(EARLIER, _BEFORE, start, end)]
        return [Piece(EARLIER, _BEFORE, start, died), Piece(_DOWN, _NOBODY, died, end)]


def _between(error: str | None) -> str:
    return f"between tries, after: {error}"


def _plus(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other
