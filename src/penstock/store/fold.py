"""Decisions, folded: however often a task moved within one transaction, its row is written once.

A `Fold` takes decisions in order and ends with the rows a store has to write: one per task, one per attempt,
one event per decision. It presumes that tasks stand where the dispatcher believes; the store checks that
while it writes, and when one does not, folds again with the true standings. Then the decisions that lost
become `refused` events, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.model import Outcome
from penstock.scheduling.messages import (
    Adopt,
    AllChange,
    Begin,
    Decision,
    Delay,
    End,
    GateChange,
    HostChange,
    LaneChange,
    Move,
    Refuse,
    Reprioritize,
    Requeue,
    Revive,
    Route,
    Spend,
    Start,
    Stop,
    WaitChange,
)
from penstock.store.rows import NOT_JSON, encode, host_data, json_text

# Places in the row of a task: which one, from where it must come, and how it ends up.
TASK, WAS, LEAST, MOST, STATE, ATTEMPTS, TRIES, HOST_FAULTS, RETRY_AT, RAN_ON, STARTED_AT = range(11)
ENDED_AT, ENDED_EVENT, ERROR, VALUE = range(11, 15)
TASK_WIDTH = 15
LIVE_WIDTH = ENDED_AT  # what changes while a task is live comes first
ATTEMPT_WIDTH = 10  # task, number, host, lane, started_at, work_class, ended_at, verdict, error, retry_at
ATTEMPT_END_WIDTH = 6  # task, number, ended_at, verdict, error, retry_at
EVENT_WIDTH = 6  # at, type, task, attempt, host, data
PRIORITY_CHANGE_WIDTH = 4  # task, at, was, priority

QUEUED = "queued"
RUNNING = "running"
_ANY = 1 << 31

Standing = tuple[str, int, float | None]  # state, attempts, ended_at


class Fold:
    """The rows that some decisions come to. `known` are the true standings; `hosts` where attempts run."""

    def __init__(
        self, known: Mapping[str, Standing] | None = None, hosts: Mapping[str, str] | None = None
    ) -> None:
        self._known = known
        self._hosts = hosts or {}
        self.tasks: dict[str, list[Any]] = {}
        self.attempts: list[list[Any]] = []
        self.attempt_ends: list[Any] = []  # flat
        self.begins: dict[tuple[str, int], float | None] = {}  # when attempts began late; None: not yet
        self.events: list[Any] = []  # flat
        self.routes: list[tuple[Any, ...]] = []
        self.moves: list[tuple[Any, ...]] = []
        self.rests: list[tuple[Any, ...]] = []
        self.priorities: dict[str, int] = {}  # of tasks that have others than before
        self.priority_changes: list[tuple[Any, ...]] = []
        self.presumed_live: set[str] = set()  # on belief, before any of these decisions
        self.stretches: list[tuple[Any, ...]] = []
        self.host_changes: list[tuple[Any, ...]] = []
        self.lane_changes: list[tuple[Any, ...]] = []
        self.gate_changes: list[tuple[Any, ...]] = []
        self.all_changes: list[tuple[Any, ...]] = []
        self.spending: dict[tuple[int, str, str], tuple[float, int]] = {}  # day, host, lane -> usd, calls
        self.ended: dict[str, int] = {}  # state -> how many more tasks ended so
        self.must_know: set[str] = set()  # tasks that cannot be folded on belief
        self.last_at = 0.0
        self._open: dict[str, list[Any]] = {}  # task -> the row of its attempt, when that began here
        self._start_data: dict[tuple[str, int], str] = {}
        self._end_data: dict[tuple[str, str], str] = {}

    def add(self, decisions: Sequence[Decision]) -> None:
        last_at = self.last_at
        for decision in decisions:
            kind = type(decision)
            if kind is Start:
                self._start(decision)  # type: ignore[arg-type]
            elif kind is End:
                self._end(decision)  # type: ignore[arg-type]
            else:
                _OTHERS[kind](self, decision)
            at = decision.at
            if at > last_at:
                last_at = at
        self.last_at = last_at

    # ---- steps of a task

    def _start(self, decision: Start) -> None:
        task, attempt, host, lane, work_class, at = decision
        row = self.tasks.get(task)
        if row is None:
            if self._known is not None and not self._stands(task, QUEUED, 0, attempt - 1):
                return self._lost(decision)
            row = [
                task,
                QUEUED,
                0,
                attempt - 1,
                RUNNING,
                attempt,
                None,
                None,
                None,
                host,
                at,
                None,
                None,
                None,
                None,
            ]
            self.tasks[task] = row
        elif row[STATE] != QUEUED or (row[ATTEMPTS] or 0) >= attempt:
            return self._lost(decision)
        else:
            row[STATE] = RUNNING
            row[ATTEMPTS] = attempt
            row[RETRY_AT] = None
            row[RAN_ON] = host
            row[STARTED_AT] = at
        begun = [task, attempt, host, lane, at, work_class, None, None, None, None]
        self._open[task] = begun
        self.attempts.append(begun)
        data = self._start_data.get((lane, work_class))
        if data is None:
            data = self._start_data[lane, work_class] = json_text({"lane": lane, "class": work_class})
        self.events += (at, "started", task, attempt, host, data)
        return None

    def _end(self, decision: End) -> None:
        task, attempt, state, step, at, outcome, error, _ = decision
        row = self._row(decision)
        if row is None:
            return self._lost(decision)
        value, error = _kept_value(outcome, error)
        ending = state._value_
        row[STATE] = ending
        row[RETRY_AT] = None
        row[ENDED_AT] = at
        row[ENDED_EVENT] = len(self.events) // EVENT_WIDTH + 1
        row[ERROR] = error
        row[VALUE] = value
        self.ended[ending] = self.ended.get(ending, 0) + 1
        if attempt:
            verdict = None if outcome is None else outcome.verdict._value_
            self._end_attempt(task, attempt, at, verdict, error, None)
        if error is None and (outcome is None or _is_bare(outcome)):
            data = self._end_data.get((ending, step))
            if data is None:
                data = self._end_data[ending, step] = json_text({"state": ending, "step": step})
        else:
            data = _end_details(ending, step, outcome, error)
        host = self._host(task, row) if attempt else None
        self.events += (at, "ended", task, attempt or None, host, data)
        return None

    def _requeue(self, decision: Requeue) -> None:
        row = self._row(decision)
        if row is None:
            return self._lost(decision)
        task, attempt, at, retry_at, tries, host_faults, verdict, error, tokens, node = decision
        row[STATE] = QUEUED
        row[TRIES] = tries
        row[HOST_FAULTS] = host_faults
        row[RETRY_AT] = retry_at
        self._end_attempt(task, attempt, at, verdict._value_, error, retry_at)
        data = {"verdict": verdict, "retry_at": retry_at, "error": error}
        if tokens is not None:
            data["tokens"] = tokens
        if node is not None:
            data["node"] = node
        self._event(at, "requeued", task, attempt, self._host(task, row), data)
        return None

    def _revive(self, decision: Revive) -> None:
        task, at = decision
        row = self.tasks.get(task)
        if row is None:
            if self._known is None:  # which count it leaves has to be looked up
                self.must_know.add(task)
                return None
            standing = self._known.get(task)
            if standing is None or standing[0] in (QUEUED, RUNNING):
                return self._lost(decision)
            was, attempts, ended_at = standing
            row = [task, was, attempts, attempts, was, attempts, *[None] * 9]
            row[ENDED_AT] = ended_at
            self.tasks[task] = row
        elif row[STATE] in (QUEUED, RUNNING):
            return self._lost(decision)
        elif row[ATTEMPTS] is None:  # it may start again, and its next attempt has to have a new number
            self.must_know.add(task)
        self.ended[row[STATE]] = self.ended.get(row[STATE], 0) - 1
        self.rests.append((task, row[ENDED_AT], at, row[ATTEMPTS]))
        row[STATE] = QUEUED
        row[TRIES] = row[HOST_FAULTS] = 0
        row[RETRY_AT] = row[ENDED_AT] = row[ENDED_EVENT] = row[ERROR] = row[VALUE] = None
        self._event(at, "revived", task, None, None, None)
        return None

    def _reprioritize(self, decision: Reprioritize) -> None:
        task, at, was, priority = decision
        row = self.tasks.get(task)
        if row is not None:
            is_live = row[STATE] in (QUEUED, RUNNING)
        elif self._known is not None:
            standing = self._known.get(task)
            is_live = standing is not None and standing[0] in (QUEUED, RUNNING)
        else:
            self.presumed_live.add(task)
            is_live = True
        if not is_live:
            return self._lost(decision)
        self.priorities[task] = priority
        self.priority_changes.append((task, at, was, priority))
        self._event(at, "reprioritized", task, None, None, {"from": was, "to": priority})
        return None

    def _row(self, decision: End | Requeue) -> list[Any] | None:
        """The task's row for a step that leaves an attempt, or the queue when `attempt` is 0."""
        task, attempt = decision[0], decision[1]
        row = self.tasks.get(task)
        was = RUNNING if attempt else QUEUED
        if row is None:
            least, most = (attempt, attempt) if attempt else (0, _ANY)
            if self._known is not None and not self._stands(task, was, least, most):
                return None
            # How often a queued task was tried is not told; on belief it stays as it is.
            attempts = attempt or (None if self._known is None else self._known[task][1])
            row = [task, was, least, most, was, attempts, *[None] * 9]
            self.tasks[task] = row
            return row
        if row[STATE] != was or (attempt and row[ATTEMPTS] != attempt):
            return None
        return row

    def _stands(self, task: str, state: str, least: int, most: int) -> bool:
        assert self._known is not None
        standing = self._known.get(task)
        return standing is not None and standing[0] == state and least <= standing[1] <= most

    def _end_attempt(
        self,
        task: str,
        attempt: int,
        at: float,
        verdict: str | None,
        error: str | None,
        retry_at: float | None,
    ) -> None:
        begun = self._open.get(task)
        if begun is not None and begun[1] == attempt:
            begun[6:] = (at, verdict, error, retry_at)
        else:
            self.attempt_ends += (task, attempt, at, verdict, error, retry_at)

    def _host(self, task: str, row: list[Any]) -> str | None:
        return row[RAN_ON] or self._hosts.get(task)

    def _lost(self, decision: Start | End | Requeue | Revive | Reprioritize) -> None:
        """The task has moved on without this dispatcher: its decision is on record and changes nothing."""
        task = decision.task
        row = self.tasks.get(task)
        standing = (self._known or {}).get(task)
        stands = row[STATE] if row is not None else standing[0] if standing else "unknown"
        attempt = getattr(decision, "attempt", None)
        step = type(decision).__name__.lower()
        self._event(
            decision.at, "refused", task, attempt, None, {"why": f"{step} of a task that is {stands}"}
        )

    # ---- the rest is written down as it comes

    def _adopt(self, decision: Adopt) -> None:
        task, attempt, host, at = decision
        self._event(at, "adopted", task, attempt, host, None)

    def _delay(self, decision: Delay) -> None:
        task, attempt, host, at, since = decision
        self.begins[task, attempt] = None
        self._event(at, "delayed", task, attempt, host, {"since": since})

    def _begin(self, decision: Begin) -> None:
        task, attempt, host, at, since = decision
        begun = self._open.get(task)
        if begun is not None and begun[1] == attempt:
            begun[4] = self.tasks[task][STARTED_AT] = at
            self.begins.pop((task, attempt), None)
        else:
            self.begins[task, attempt] = at
        self._event(at, "began", task, attempt, host, {"since": since})

    def _stop(self, decision: Stop) -> None:
        task, attempt, host, at, why = decision
        self._event(at, "stopping", task, attempt, host, {"why": why})

    def _refuse(self, decision: Refuse) -> None:
        task, attempt, at, why = decision
        self._event(at, "refused", task, attempt, None, {"why": why})

    def _route(self, decision: Route) -> None:
        key, work_class, at, name = decision
        self.routes.append((key, at, work_class, name))
        self._event(at, "routed", None, None, None, {"key": key, "class": work_class, "name": name})

    def _move(self, decision: Move) -> None:
        task, at, work_class, why = decision
        self.moves.append((task, at, work_class, why))
        self._event(at, "moved", task, None, None, {"class": work_class, "why": why})

    def _wait_change(self, decision: WaitChange) -> None:
        work_class, at, reason, detail = decision
        self.stretches.append((work_class, at, reason, detail))
        self._event(
            at, "waiting", None, None, None, {"class": work_class, "reason": reason, "detail": detail}
        )

    def _host_change(self, decision: HostChange) -> None:
        host, at, state, slots, detail, fault = decision
        error, needs_fix = fault or (None, False)
        self.host_changes.append((host, state, slots, detail, at, error, int(needs_fix)))
        self._event(at, "host", None, None, host, host_data(decision))

    def _lane_change(self, decision: LaneChange) -> None:
        lane, at, paused = decision
        self.lane_changes.append((lane, int(paused), at))
        self._event(at, "lane", None, None, None, {"lane": lane, "paused": paused})

    def _gate_change(self, decision: GateChange) -> None:
        gate, at, is_open, detail = decision
        self.gate_changes.append((gate, int(is_open), detail, at))
        self._event(at, "gate", None, None, None, {"gate": gate, "open": is_open, "detail": detail})

    def _all_change(self, decision: AllChange) -> None:
        at, paused = decision
        self.all_changes.append((int(paused), at))
        self._event(at, "all", None, None, None, {"paused": paused})

    def _spend(self, decision: Spend) -> None:
        task, attempt, host, lane, day, at, usd = decision
        spent, calls = self.spending.get((day, host, lane), (0.0, 0))
        self.spending[day, host, lane] = spent + usd, calls + 1
        self._event(at, "spent", task, attempt, host, {"lane": lane, "day": day, "usd": usd})

    def _event(
        self, at: float, type: str, task: str | None, attempt: int | None, host: str | None, data: Any
    ) -> None:
        self.events += (at, type, task, attempt, host, None if data is None else event_data(data))


_OTHERS: Mapping[type[Decision], Callable[[Fold, Any], None]] = {
    Adopt: Fold._adopt,
    Delay: Fold._delay,
    Begin: Fold._begin,
    Requeue: Fold._requeue,
    Revive: Fold._revive,
    Reprioritize: Fold._reprioritize,
    Stop: Fold._stop,
    Refuse: Fold._refuse,
    Route: Fold._route,
    Move: Fold._move,
    WaitChange: Fold._wait_change,
    HostChange: Fold._host_change,
    LaneChange: Fold._lane_change,
    GateChange: Fold._gate_change,
    AllChange: Fold._all_change,
    Spend: Fold._spend,
}


def event_data(data: Any) -> str:
    """Event data as JSON. What cannot be written is replaced, for an event must not stop the log."""
    try:
        return json_text(data)
    except NOT_JSON:
        return json_text(
            {name: repr(value).encode("ascii", "replace").decode() for name, value in data.items()}
        )


def _kept_value(outcome: Outcome | None, error: str | None) -> tuple[str | None, str | None]:
    if outcome is None or outcome.value is None:
        return None, error
    try:
        return encode(outcome.value).decode(), error
    except NOT_JSON as problem:
        return None, f"its value is not JSON and could not be kept ({problem})" + (
            f"; {error}" if error else ""
        )


def _is_bare(outcome: Outcome) -> bool:
    return (
        outcome.tokens is None and outcome.cost_usd is None and outcome.logs is None and outcome.node is None
    )


def _end_details(state: str, step: str, outcome: Outcome | None, error: str | None) -> str:
    details: dict[str, Any] = {"state": state, "step": step}
    if error is not None:
        details["error"] = error
    if outcome is not None:
        for name in ("tokens", "cost_usd", "logs", "node"):
            told = getattr(outcome, name)
            if told is not None:
                details[name] = told
    return event_data(details)
