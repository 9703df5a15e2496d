"""The tasks of a recording as they can be lived again: when they came, and what became of each of their attempts.

A task that had ended and was asked for again lives twice: its second life is a task of its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from penstock.diagnosis.recording import Recording
from penstock.diagnosis.waits import TAKEN_IN
from penstock.diagnosis.whatif.works import Works
from penstock.lifecycle import ENDED
from penstock.model import Attempt, Host, Outcome, Plant, RetryRule, State, Task, TaskRecord, Verdict, Wait
from penstock.scheduling.messages import HostChange, Reprioritize
from penstock.scheduling.retry import backoff_s

OTHER = "other~"  # before the id of an attempt of another run
_INHERITED = re.compile(r"dependency (\S+): ")


@dataclass(frozen=True, slots=True)
class Try:
    """An attempt that ended by itself."""

    attempt: Attempt
    work_s: float  # on its own host
    outcome: Outcome
    chance: float


@dataclass(frozen=True, slots=True)
class Life:
    task: Task
    at: float  # when the dispatcher had it
    tries: tuple[Try, ...]
    least_s: float = 0.0  # work that was done without coming to an end
    cancel_at: float | None = None
    priorities: tuple[tuple[float, int], ...] = ()  # those it was given while it lived, by time
    is_own: bool = True  # of the run


def lives_of(recording: Recording, plant: Plant, works: Works) -> list[Life]:
    """In order of arrival. `plant` is the one it was recorded with."""
    reader = _Reader(recording, plant, works)
    lives = [life for record in recording.tasks for life in reader.lives(record)]
    lives += reader.others()
    return sorted(lives, key=lambda life: life.at)  # stable: those that came together stay in their order


class _Reader:
    def __init__(self, recording: Recording, plant: Plant, works: Works) -> None:
        self._recording = recording
        self._retry = plant.retry
        self._hosts = {host.name: host for host in plant.hosts}
        self._gates = plant.gates
        self._works = works
        self._known = {record.task.id for record in recording.tasks}
        self._attempts: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in sorted(recording.attempts, key=lambda a: a.number):
            self._attempts[attempt.task].append(attempt)
        self._refused_until = _refused_until(recording)
        self._priorities: dict[str, list[Reprioritize]] = defaultdict(list)
        for change in recording.priorities:
            self._priorities[change.task].append(change)

    # ---- of the run

    def lives(self, record: TaskRecord) -> Iterable[Life]:
        waits = self._recording.waits.get(record.task.id, ())
        if self._waits_for_strangers(record, waits):
            return
        parts = _parts(self._attempts[record.task.id])
        task = self._told(record, waits)
        at = _taken_in(task, waits)
        changes = self._priorities.get(record.task.id, [])
        for number, attempts in enumerate(parts, 1):
            is_last = number == len(parts)
            until = inf if is_last else attempts[-1].ended_at or at
            now = [c for c in changes if c.at <= until]
            changes = changes[len(now) :]
            first = now[0].was if now else changes[0].was if changes else record.task.priority
            life = self._life(replace(task, priority=first), at, attempts, record if is_last else None)
            yield replace(life, priorities=tuple((c.at, c.priority) for c in now))
            if not is_last:
                died_at = attempts[-1].ended_at or at
                at = next((w.start for w in waits if w.start >= died_at), parts[number][0].started_at)
                name = f"{record.task.id}~{number + 1}"
                task = replace(record.task, id=name, queued_at=at, after=(), not_before=None)

    def _life(self, task: Task, at: float, attempts: Sequence[Attempt], record: TaskRecord | None) -> Life:
        """`record` is that of its last life."""
        whole = [a for a in attempts if _ended_by_itself(a)]
        cut = [a for a in attempts if not _ended_by_itself(a) and not _is_interrupted(a)]
        cancel_at = cut[-1].ended_at if cut else None
        if record is not None:
            cancel_at = self._cancelled_at(record)
        return Life(
            task,
            at,
            tuple(self._tries(task, whole, record)),
            max((self._works.of(a) for a in cut), default=0.0),
            cancel_at,
        )

    def _told(self, record: TaskRecord, waits: Sequence[Wait]) -> Task:
        """The task, with what it waited after outside the run as the time before which it could not start."""
        task = record.task
        if all(needed in self._known for needed in task.after):
            return task
        met = max((wait.end for wait in waits if wait.reason == "dependency"), default=0.0)
        own = tuple(needed for needed in task.after if needed in self._known)
        return replace(task, after=own, not_before=max(met, task.not_before or 0.0) or None)

    def _waits_for_strangers(self, record: TaskRecord, waits: Sequence[Wait]) -> bool:
        """Who knows when tasks of other runs end that have not: it cannot be played."""
        if record.state is not State.QUEUED or not waits or waits[-1].reason != "dependency":
            return False
        return any(needed not in self._known for needed in record.task.after)

    def _cancelled_at(self, record: TaskRecord) -> float | None:
        """When it was stopped from outside; what follows from other tasks of the run does so again."""
        inherited = _INHERITED.match(record.error or "")
        if inherited is not None:
            return None if inherited[1] in self._known else record.ended_at
        return record.ended_at if record.state in (State.CANCELLED, State.BLOCKED) else None

    def _tries(self, task: Task, attempts: Sequence[Attempt], record: TaskRecord | None) -> Iterable[Try]:
        failures = {Verdict.TEMPORARY: 0, Verdict.HOST: 0}
        for attempt in attempts:
            verdict = attempt.verdict or _verdict_of(record)
            ended_at = attempt.ended_at or 0.0
            chance, after_s = 0.5, None
            if verdict in failures:
                failures[verdict] += 1
                delay_s = 0.0 if attempt.retry_at is None else attempt.retry_at - ended_at
                chance, after_s = _backoff(self._retry, failures[verdict], delay_s)
            elif verdict is Verdict.THROTTLED:
                until = self._refused_until.get((attempt.host, ended_at))
                after_s = None if until is None else until - ended_at
            timed_out = (attempt.error or "").startswith("timed out after")
            outcome = Outcome(verdict, error=attempt.error, retry_after_s=after_s, timed_out=timed_out)
            # The clock ends it again, and it cannot be told how much work was left.
            work_s = inf if timed_out and task.timeout_s is not None else self._works.of(attempt)
            yield Try(attempt, work_s, outcome, chance)

    # ---- of other runs

    def others(self) -> Iterable[Life]:
        """Attempts that held slots: tasks of their lane for that host, more urgent than any."""
        for attempt in self._recording.others:
            host = self._hosts.get(attempt.host)
            if host is None:
                continue
            task = Task(
                self._served(host),
                priority=0,
                lane=attempt.lane,
                host=host.name,
                id=f"{OTHER}{attempt.task}~{attempt.number}",
                queued_at=1.0,  # long ago: nobody in the run has waited as long
                retries=0,
            )
            outcome = Outcome(Verdict.DONE)
            if attempt.verdict not in (None, Verdict.DONE):  # its own next try is another of these tasks
                blamed = attempt.verdict is Verdict.HOST
                outcome = Outcome(Verdict.PERMANENT, error=attempt.error, host_fault=blamed)
            one = Try(attempt, self._works.of(attempt), outcome, 0.5)
            yield Life(task, attempt.started_at, (one,), is_own=False)

    def _served(self, host: Host) -> str:
        """A kind that the host takes and no gate holds; the record does not tell that of other runs."""
        if "*" in host.serves:
            return OTHER
        held = {kind for gate in self._gates for kind in gate.holds_kinds}
        return next((kind for kind in host.serves if kind not in held), host.serves[0])


# ---- reading what was recorded


def _parts(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Attempts by life: one that ended the task is the last of its life."""
    parts: list[list[Attempt]] = [[]]
    for attempt in attempts:
        before = parts[-1][-1] if parts[-1] else None
        if before is not None and before.ended_at is not None and before.retry_at is None:
            parts.append([])
        parts[-1].append(attempt)
    return parts


def _taken_in(task: Task, waits: Sequence[Wait]) -> float:
    """When the dispatcher began to see it."""
    at = task.queued_at
    for wait in waits:
        if wait.start != at:
            break
        if wait.reason == "order" and wait.detail == TAKEN_IN:
            return wait.end
        if wait.reason != "dispatcher-down":
            break
        at = wait.end
    return task.queued_at


# "died": as it was told before there were standbys.
_INTERRUPTED = tuple(f"the dispatcher {was} while attempt" for was in ("was lost", "stopped", "died"))


def _is_interrupted(attempt: Attempt) -> bool:
    """Its dispatcher died or stopped; the task was not at fault and lost nothing but time."""
    error = attempt.error or ""
    return error.startswith(_INTERRUPTED) or (
        attempt.verdict is Verdict.CANCELLED and attempt.retry_at is not None
    )


def _ended_by_itself(attempt: Attempt) -> bool:
    return (
        attempt.ended_at is not None
        and attempt.verdict is not Verdict.CANCELLED
        and not _is_interrupted(attempt)
    )


def _verdict_of(record: TaskRecord | None) -> Verdict:
    """Of an attempt of which only its task's end is known."""
    good = record is None or record.state is State.DONE or record.state not in ENDED
    return Verdict.DONE if good else Verdict.PERMANENT


def _backoff(rule: RetryRule, failures: int, delay_s: float) -> tuple[float, float | None]:
    """The chance that gave this delay, or what the host asked for where none could have."""
    if delay_s <= 0:
        return 0.5, None
    least, most = backoff_s(rule, failures, 0.0, None), backoff_s(rule, failures, 1.0, None)
    if delay_s > most:
        return 0.5, delay_s
    return max(0.0, (delay_s - least) / (most - least)), None


def _refused_until(recording: Recording) -> Mapping[tuple[str, float], float]:
    """(host, when it said "too much") -> until when it was left alone."""
    until: dict[tuple[str, float], float] = {}
    since: dict[str, float] = {}
    for change in recording.changes:
        if not isinstance(change, HostChange):
            continue
        if change.state == "rate-limited":
            since.setdefault(change.host, change.at)
        elif change.host in since:
            until[change.host, since.pop(change.host)] = change.at
    return until
