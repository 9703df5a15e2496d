"""How tasks come in: submitted, restored after a restart, or asked for again.

Each is let in as far as its dependencies and its times allow. What ran when its dispatcher died goes on where its
attempt outlived it; else it is run again, or blocked if it must not run twice by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.lifecycle import LIVE, step
from penstock.model import Backlog, OnCrash, State, Task, TaskRecord, Verdict
from penstock.scheduling.agenda import Agenda
from penstock.scheduling.begins import Begins
from penstock.scheduling.capacity import HostState
from penstock.scheduling.endings import INHERITED, Endings
from penstock.scheduling.messages import (
    Begin,
    Decision,
    GateChange,
    Move,
    Requeue,
    Restored,
    RetryAsked,
    Revive,
    Route,
    Submitted,
)
from penstock.scheduling.order import GONE, Entry, Shape
from penstock.scheduling.placing import Placer
from penstock.scheduling.queueing import Queueing
from penstock.scheduling.roster import Roster
from penstock.scheduling.routes import route_key
from penstock.scheduling.world import World


class Arrivals:
    def __init__(
        self,
        world: World,
        roster: Roster,
        agenda: Agenda,
        placer: Placer,
        queueing: Queueing,
        begins: Begins,
        endings: Endings,
        out: list[Decision],
    ) -> None:
        self._world = world
        self._retry = world.plant.retry
        self._aging_s = world.plant.aging_s
        self._roster = roster
        self._agenda = agenda
        self._placer = placer
        self._queueing = queueing
        self._begins = begins
        self._endings = endings
        self._out = out
        self._seq = 0

    def submitted(self, event: Submitted, now: float) -> None:
        aging_s = self._aging_s
        default_retries = self._retry.retries
        known_shape = self._world.known_shape
        tasks = self._roster.tasks
        late: list[tuple[Entry, Task]] = []
        for task in event.tasks:
            if task.id in tasks:
                continue
            shape = known_shape(task) or self._make_shape(task, now)
            self._seq += 1
            retries = default_retries if task.retries is None else task.retries
            entry = Entry(task.id, shape, task.priority, retries, self._seq)
            tasks[task.id] = entry
            if task.after or task.not_before is not None or task.deadline is not None:
                late.append((entry, task))
                continue
            queued_at = task.queued_at
            entry.key = (queued_at if 0 < queued_at <= now else now) + task.priority * aging_s
            if shape.opened or (0 < queued_at < now and len(shape.tiers) > 1):
                self._queueing.queue(entry, now)
            else:
                self._queue_at_home(entry)
        for entry, task in late:
            self._admit(entry, task, event.ended, now, task.not_before)

    def restored(self, event: Restored, now: float) -> None:
        began = self._seq  # the order of arrival is told by numbers, whatever comes in which heap
        made: list[tuple[Entry, TaskRecord]] = []
        for record in event.records:
            if record.task.id not in self._roster.tasks:
                seq = began + record.number - 1
                if seq > self._seq:
                    self._seq = seq
                entry = self._entry(record, now)
                entry.tries = record.tries
                entry.faults = record.host_faults
                made.append((entry, record))
        queued = [some for b in event.queued for some in self._entries(b, began, now)]  # before any is let in
        first = min((entries[0].seq for entries in queued), default=0)
        for entry, record in made:
            if first and entry.seq > first:
                self._queue_all(queued, now)
                first = 0
            if record.is_plain and len(entry.shape.tiers) == 1:
                task = record.task
                queued_at = task.queued_at
                entry.key = (queued_at if 0 < queued_at <= now else now) + task.priority * self._aging_s
                self._queue_at_home(entry)
            else:
                self._let_in(entry, record, event, now)
        if first:
            self._queue_all(queued, now)
        last = [entry.seq for entry, _ in made[-1:]] + [entries[-1].seq for entries in queued]
        self._seq = max(began, *last) if last else began

    def _queue_at_home(self, entry: Entry) -> None:
        """As `Queueing.queue`, of one that was never tried and whose wait opens no fallback hosts to it."""
        work_class = entry.shape.variants[0]
        work_class.push(entry)
        if work_class.head is entry or work_class.recorded == "order":
            self._agenda.wake(work_class)

    def _let_in(self, entry: Entry, record: TaskRecord, event: Restored, now: float) -> None:
        host = self._world.hosts.get(record.host or "") if record.state is State.RUNNING else None
        is_adopted = host is not None and (entry.id, entry.attempt) in event.adopted
        if record.is_delayed and not is_adopted:
            # It never began, and has waited as long as somebody was there.
            died_at = _died_at(event, now)
            self._out.append(Begin(entry.id, record.attempts, record.host or "", died_at, died_at))
        if record.task.on_crash is OnCrash.CANCEL:
            ran = record.attempts if record.state is State.RUNNING else None
            self._endings.end(
                entry, "cancel", now, None, "the connection it was asked on is gone", attempt=ran
            )
        elif record.state is State.RUNNING:
            if host is not None and is_adopted:
                self._adopt(entry, record, host, now)
            else:
                self._recover(entry, record, event, now)
        else:
            later = max(record.task.not_before or 0.0, record.retry_at or 0.0)
            self._admit(entry, record.task, event.ended, now, later or None)

    def _entries(self, backlog: Backlog, began: int, now: float) -> list[list[Entry]]:
        """Made in one go, for a million of them are what a new dispatcher waits for; in stretches in order.

        Where the clock was set back a task that came later is before those that came first.
        """
        task, tasks = backlog.task, self._roster.tasks
        shape = self._world.known_shape(task) or self._make_shape(task, now)
        retries = self._retry.retries if task.retries is None else task.retries
        priority, level_s = task.priority, task.priority * self._aging_s
        stretches: list[list[Entry]] = [[]]
        made = stretches[0]
        at, key = -1.0, 0.0
        for number, id, queued_at in zip(backlog.numbers, backlog.ids, backlog.queued_at, strict=True):
            if id in tasks:
                continue
            if queued_at != at:  # those of one submit share their key
                before, at, key = key, queued_at, (queued_at if 0 < queued_at <= now else now) + level_s
                if key < before and made:
                    made = []
                    stretches.append(made)
            tasks[id] = entry = Entry(id, shape, priority, retries, began + number)
            entry.key = key
            made.append(entry)
        return [some for some in stretches if some]

    def _queue_all(self, queued: list[list[Entry]], now: float) -> None:
        for entries in queued:
            shape = entries[0].shape
            if len(shape.tiers) > 1:  # how long each has waited says where it queues
                for entry in entries:
                    self._queueing.queue(entry, now)
            else:
                shape.variants[0].push_all(entries)
                self._agenda.wake(shape.variants[0])

    def _adopt(self, entry: Entry, record: TaskRecord, host: HostState, now: float) -> None:
        """Its attempt goes on: to the task nothing has happened."""
        self._date(entry, record.task, now)
        if record.task.after:
            self._roster.met[entry.id] = record.task.queued_at  # it never waited for them here
        self._placer.adopt(entry, host, min(record.started_at or now, now), now)
        if record.is_delayed:  # or was, when that was last told: its worker knows
            self._begins.goes_on_waiting(entry, host, now)

    def _recover(self, entry: Entry, record: TaskRecord, event: Restored, now: float) -> None:
        """It was running when its dispatcher died: again, or blocked if it must not run twice by itself."""
        died_at = _died_at(event, now)
        # Dead, or only standing still: the store cannot tell.
        was = "stopped" if event.stopped else "was lost"
        error = f"the dispatcher {was} while attempt {record.attempts} ran"
        entry.faults += 1
        if record.task.on_crash is OnCrash.BLOCK:
            self._endings.end(
                entry, "block", now, None, f"{error}; on_crash = block", attempt=record.attempts
            )
        elif entry.faults >= self._retry.host_faults:
            self._endings.end(
                entry, "fail", now, None, f"{error}, the {entry.faults}th host fault", attempt=record.attempts
            )
        else:
            self._out.append(
                Requeue(
                    entry.id,
                    record.attempts,
                    died_at,
                    died_at,
                    entry.tries,
                    entry.faults,
                    Verdict.HOST,
                    error,
                )
            )
            # What it waited after has succeeded, or it would not have run.
            self._admit(entry, record.task, {}, now, None, satisfied=True)

    def retry_asked(self, event: RetryAsked, now: float) -> None:
        made: list[tuple[Entry, Task]] = []
        for record in event.records:
            step(record.state, "retry")
            if record.task.id not in self._roster.tasks:
                entry = self._entry(record, now)
                made.append((entry, record.task))
                self._out.append(Revive(record.task.id, now))
                if len(entry.shape.variants) > 1:  # where it waited in its life before no longer counts
                    first = entry.shape.variants[0]
                    self._out.append(Move(record.task.id, now, first.id, "asked for again"))
        for entry, task in made:  # all are there before any looks for what it waits after
            self._admit(entry, task, event.ended, now, task.not_before, revived=True)

    def _entry(self, record: TaskRecord, now: float) -> Entry:
        task = record.task
        shape = self._world.known_shape(task) or self._make_shape(task, now)
        self._seq += 1
        retries = self._retry.retries if task.retries is None else task.retries
        entry = Entry(task.id, shape, task.priority, retries, self._seq)
        entry.attempt = record.attempts
        self._roster.tasks[task.id] = entry
        return entry

    def _admit(
        self,
        entry: Entry,
        task: Task,
        ended: Mapping[str, State],
        now: float,
        not_before: float | None,
        *,
        satisfied: bool = False,
        revived: bool = False,
    ) -> None:
        """Let a task in as far as its dependencies and its time allow."""
        if entry.status == GONE:
            return  # it ended in this very step with what it waits after
        self._date(entry, task, now, revived=revived)
        if not_before is not None and not_before > now:
            self._roster.not_before[entry.id] = not_before
        tasks = self._roster.tasks
        unmet: set[str] = set()
        for needed in () if satisfied else task.after:
            state = ended.get(needed, State.FAILED)
            if needed in tasks or state in LIVE:  # live and not yet here: it comes with a later page
                unmet.add(needed)
                continue
            if state is not State.DONE:
                if not any(n in tasks or ended.get(n, State.QUEUED) in LIVE for n in task.after):
                    self._roster.met[entry.id] = task.queued_at  # it never waited for them here
                self._endings.end(entry, INHERITED[state], now, None, f"dependency {needed}: {state}")
                return
        if unmet:
            self._roster.wait_after(entry, unmet)
        else:
            if task.after:
                self._roster.met[entry.id] = task.queued_at  # it never waited for them here
            self._endings.queue_or_expire(entry, now, keep_key=True)

    def _date(self, entry: Entry, task: Task, now: float, *, revived: bool = False) -> None:
        """Until when it may start, and since when it ages."""
        if task.deadline is not None:
            self._roster.expire_at(entry, task.deadline)
        # When its dependencies were met is not recorded: such a task ages anew after a restart.
        first = now if revived or task.after else max(task.queued_at, task.not_before or 0.0)
        entry.key = (first if 0 < first <= now else now) + task.priority * self._aging_s

    def _make_shape(self, task: Task, now: float) -> Shape:
        known = len(self._world.gates)
        shape = self._world.make_shape(task)
        if shape.thread is not None and len(self._world.gates) > known:  # the first task of its kind
            self._out.append(GateChange(shape.thread.name, now, True, ""))
        key = route_key(task.kind, task.lane, task.host, task.model, task.needs)
        self._out.append(Route(key, shape.variants[0].id, now, shape.name))
        return shape


def _died_at(event: Restored, now: float) -> float:
    return now if event.crashed_at is None else min(event.crashed_at, now)
