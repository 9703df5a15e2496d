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
from typing import Any

from penstock.model import State, Task, TaskRecord, Verdict
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
from penstock.telemetry.facts import BegunLate, Ended, Fact, Listener, Over, Stalled, Started
from penstock.telemetry.queue_times import QueueTimes, Tries


class _Running:
    __slots__ = ("at", "attempt", "host", "known", "lane", "tries", "usd")

    def __init__(
        self, attempt: int, host: str, lane: str, at: float, known: Task | None, tries: Tries | None
    ) -> None:
        self.attempt = attempt
        self.host = host
        self.lane = lane
        self.at = at
        self.known = known
        self.tries = tries
        self.usd = 0.0


class Story:
    def __init__(
        self,
        task: Callable[[str], Task | None],
        met_at: Callable[[str], float | None] = lambda task: None,
    ) -> None:
        self._task = task
        self._listeners: list[Listener] = []
        self._queue_times = QueueTimes(met_at)
        self._running: dict[str, _Running] = {}
        self._tried: dict[str, Tries] = {}
        self._late: dict[str, Start] = {}  # starts of tasks that have yet to be read
        self._facts: list[Fact] = []
        self._folds: dict[type, Callable[[Any], None]] = {
            Start: self._started,
            Begin: self._began,
            End: self._ended,
            Requeue: self._requeued,
            Revive: self._revived,
            WaitChange: self._queue_times.waits,
            Route: self._queue_times.routed,
            Move: self._queue_times.moved,
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
        self._queue_times.born = math.inf if answers_only else now
        self._queue_times.last_died = last_died
        for record in records:
            task = record.task
            if record.state is State.RUNNING:
                # One that had not begun has waited on, and when for its worker only the earlier one could tell.
                began_at = record.started_at or last_died or now
                self._running[task.id] = _Running(
                    record.attempts, record.host or "", task.lane, began_at, task, None
                )
            elif record.attempts:
                ready = record.retry_at  # None: somebody revived it
                since = now if last_died is None else last_died
                since = since if ready is None else min(ready, since)
                self._tried[task.id] = Tries(since, ready, "between tries", record.host)

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
            later(lambda: self._pass(facts))

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
            wait = self._queue_times.of(known, running.tries, start.at, start.work_class)
        self._facts.append(Started(start.task, start.attempt, start.host, start.lane, start.at, known, wait))

    def _began(self, begin: Begin) -> None:
        running = self._running.get(begin.task)
        if running is None or running.attempt != begin.attempt:
            return
        if begin.at > running.at:
            wait = self._queue_times.of_late(begin.task, running.at, begin.at)
            self._facts.append(
                BegunLate(*begin[:3], running.lane, begin.at, running.known, wait)  # task, attempt, host
            )
        running.at = begin.at

    def _requeued(self, again: Requeue) -> None:
        running = self._running.pop(again.task, None)
        self._late.pop(again.task, None)
        if running is None:
            self._tried[again.task] = Tries(again.at, again.retry_at, _between(again.error))
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
        self._tried[again.task] = Tries(
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
        self._queue_times.forget_moves(task)

    def _ended_in_queue(self, end: End) -> None:
        task = end.task
        tries = self._tried.pop(task, None)
        known = self._task(task)
        wait = None
        if known is not None:
            wait = self._queue_times.of_last(known, tries, end.at)
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
        self._queue_times.forget_moves(task)

    def _revived(self, revive: Revive) -> None:
        self._facts.append(revive)
        self._queue_times.forget_moves(revive.task)
        self._tried[revive.task] = Tries(revive.at, None, "", revived_at=revive.at)

    def _spent(self, spend: Spend) -> None:
        running = self._running.get(spend.task)
        if running is not None and running.attempt == spend.attempt:
            running.usd += spend.usd
        self._facts.append(spend)


def _between(error: str | None) -> str:
    return f"between tries, after: {error}"


def _plus(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other
