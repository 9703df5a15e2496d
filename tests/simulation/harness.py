"""A small world around the real scheduler: a store, an engine with faults, a referee, and the truth about waits.

A failure carries the seed. `World.crash`, `stop` and `answer` are the ways in which a dispatcher ends.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import replace

from penstock.diagnosis.history import Epoch, Owner
from penstock.diagnosis.waits import Explainer
from penstock.lifecycle import ENDED
from penstock.model import Backlog, OnCrash, Outcome, Plant, State, Task, TaskRecord, TimedOutcome, Verdict
from penstock.scheduling import messages as m
from penstock.scheduling.details import Detail
from penstock.scheduling.scheduler import Scheduler
from tests.simulation.referee import Referee, Row, first_slots
from tests.simulation.truth import Truth


def in_short(records: Sequence[TaskRecord], chance: random.Random) -> tuple[list[TaskRecord], list[Backlog]]:
    """The same live tasks as a dispatcher hears of a long queue: from some place on, most without a record."""
    begin = chance.choice((0, chance.randint(0, len(records)), len(records)))
    page = chance.choice((1, 3, 1000))
    told = list(records[:begin])
    alike: dict[tuple[object, ...], list[TaskRecord]] = {}
    for i, record in enumerate(records[begin:]):
        task = record.task
        ran = record.attempts or record.tries or record.host_faults or record.retry_at is not None
        timed = task.after or task.not_before is not None or task.deadline is not None
        if ran or timed or record.state is not State.QUEUED or task.on_crash is OnCrash.CANCEL:
            told.append(record)
        else:
            asked = (
                task.kind,
                task.lane,
                task.host,
                task.model,
                str(task.needs),
                task.priority,
                task.retries,
            )
            alike.setdefault((i // page, *asked), []).append(record)
    return told, [
        Backlog(
            replace(some[0].task, id="", queued_at=0.0),
            [r.number for r in some],
            [r.task.id for r in some],
            [r.task.queued_at for r in some],
        )
        for some in alike.values()
    ]


class World:
    """The scheduler, its referee, and an engine that loses, repeats and delays outcomes."""

    def __init__(self, plant: Plant, rng: random.Random) -> None:
        self.plant = plant
        self.late_s = 0.0  # how long attempts may take to begin
        self.unheard_s = 0.0  # and their ends to be heard of
        self.switches = False  # each dispatcher has threads per kind where the last had none
        self.outliving: frozenset[str] = frozenset()  # hosts whose attempts may outlive their dispatcher
        self.survivors: set[tuple[str, int]] = set()  # attempts that the next dispatcher will find
        self.told_to_end: set[tuple[str, int]] = set()  # attempts of tasks that were cancelled
        self.adopted = 0  # how many were, in all
        self.rng = rng
        self.now = 1000.0
        self.referee = Referee(plant)
        self.scheduler = Scheduler(plant)
        self.pending: list[tuple[float, int, m.Event]] = []
        self.order = 0
        self.count = 0
        self.owner = Owner(1, "sim", "test")
        self.died_at = self.now
        self.referee.epochs.append(Epoch(1, self.owner, self.now, self.now, plant=plant))
        self.truth = Truth(self.referee)
        self.dear = {h.name for h in plant.hosts if rng.random() < 0.1}
        self.step([m.Tick()])

    def later(self, seconds: float, event: m.Event) -> None:
        self.order += 1
        heapq.heappush(self.pending, (self.now + seconds, self.order, event))

    def step(self, events: Sequence[m.Event]) -> None:
        self.count_costs(events)
        self.truth.hear(events, self.now)
        self.act(self.scheduler.apply_all(events, self.now))

    def act(self, decisions: Sequence[m.Decision]) -> None:
        """Fold in what was decided, do it, and hold it against everything that was promised."""
        referee = self.referee
        referee.now = self.now
        referee.note_ready()
        referee.fold(decisions, self.now)
        referee.note_ready()
        self.truth.follow(decisions, self.now)
        for decision in decisions:
            if isinstance(decision, m.Start):
                assert not self.truth.away, f"{decision.task} started while nothing could be recorded"
                self.launch(decision)
            elif isinstance(decision, m.Stop):
                self.told_to_end.add((decision.task, decision.attempt))
                stopped = Outcome(Verdict.CANCELLED, error="stopped")
                self.later(self.rng.uniform(0, 2), m.Finished(decision.task, decision.attempt, stopped))
        referee.check_budgets()
        self.truth.look(self.now)
        self.truth.check_now(self.scheduler, self.now)
        referee.check_order()
        running = {(t, row.attempts) for t, row in referee.running.items()}
        assert set(self.scheduler.running()) == running, "the scheduler's set of attempts drifted"

    def count_costs(self, events: Sequence[m.Event]) -> None:
        """Money is spent by what really ran, once, whatever came of it."""
        referee = self.referee
        over: set[tuple[str, int]] = set()
        for event in events:
            if not isinstance(event, m.Finished | m.PutBack) or event[:2] in over:
                continue
            row = referee.running.get(event.task)
            if row is None or row.attempts != event.attempt or row.host is None:
                continue
            over.add((event.task, event.attempt))
            usd = event.outcome.cost_usd if isinstance(event, m.Finished) else None
            if usd:
                referee.untold[event.task, event.attempt] = usd
                referee.books.add(self.now, row.host, row.task.lane, usd)

    def cost_of(self, host: str) -> float | None:
        """What an attempt costs: nothing on a free host, and on some hosts that do not look like it."""
        if host in self.dear or self.referee.books.costs_money(host):
            return self.rng.choice((None, 0.0, 0.1, 0.3, 1.0))
        return None

    def launch(self, start: m.Start) -> None:
        """An attempt's fate: done, some failure, lost until its time-out, late after it, or reported twice."""
        rng = self.rng
        duration = rng.choice((0.0, 0.1, 1.0, 3.0, rng.uniform(0, 20)))
        if self.late_s and rng.random() < 0.5:
            late_s = rng.uniform(0.0, self.late_s)
            first = rng.choice((Detail.RECORDED_FIRST, Detail.NO_WORKER))
            if first is Detail.NO_WORKER:
                self.later(rng.uniform(0.0, late_s), m.Delayed(start.task, start.attempt))
            if first is not Detail.NO_WORKER or rng.random() < 0.7:  # else it never has a worker
                self.later(late_s, m.Began(start.task, start.attempt, self.now + late_s, first))
            duration += late_s
        fate = rng.random()
        verdict = Verdict.DONE
        retry_after = None
        if fate > 0.7:
            verdict = rng.choice((Verdict.TEMPORARY, Verdict.PERMANENT, Verdict.HOST, Verdict.THROTTLED))
            retry_after = rng.choice((None, 5.0))
        tokens = rng.choice((None, 10.0, 500.0))
        outcome = Outcome(
            verdict,
            value=1,
            error=None if verdict is Verdict.DONE else "x",
            retry_after_s=retry_after,
            tokens=tokens,
            cost_usd=self.cost_of(start.host),
        )
        if self.unheard_s and rng.random() < 0.3:  # it is heard of later than it ends
            began_at = rng.choice((None, self.now + rng.uniform(0.0, duration)))
            outcome = TimedOutcome.of(outcome, began_at, self.now + duration)
            duration += rng.uniform(0.0, self.unheard_s)
        finished = m.Finished(start.task, start.attempt, outcome, rng.random())
        if 0.6 < fate <= 0.65:  # lost: the engine gives up on it, and sometimes it comes in after all
            timed_out = Outcome(Verdict.TEMPORARY, error="timed out")
            self.later(30.0, m.Finished(start.task, start.attempt, timed_out, rng.random()))
            if rng.random() < 0.5:
                self.later(31.0, finished)
            return
        self.later(duration, finished)
        if fate > 0.95:  # duplicate
            self.later(duration + rng.choice((0.0, 1.0, 40.0)), finished)

    # ---- dispatchers end, and others begin

    def crash(self, down_s: float, taking_s: float = 0.0, meanwhile: Sequence[Task] = ()) -> None:
        """kill -9: outcomes under way are gone, a new scheduler starts from the rows.

        Where attempts outlive their dispatcher, most do: the next one is given them, and hears of their ends.
        """
        running = list(self.referee.running.values())
        self.end_dispatcher(survival=0.8)
        self.stay_down(down_s, meanwhile)
        self.begin_dispatcher(taking_s)
        self.check_recovered(running)

    def stop(self, down_s: float, drain_steps: int, taking_s: float = 0.0) -> None:
        """In order: nothing starts any more, what still runs after a while is put back, the dispatcher goes."""
        self.step([m.Drain()])
        for _ in range(drain_steps):
            self.advance()
        left = self.can_survive() if self.outliving and self.rng.random() < 0.5 else set()
        running = [row for row in self.referee.running.values() if (row.task.id, row.attempts) not in left]
        block = self.switches and self.rng.random() < 0.5
        self.step([m.PutBack(row.task.id, row.attempts, block=block) for row in running])
        for row in running:  # never left running (C8)
            stopped = (
                (State.BLOCKED, State.CANCELLED) if block else (State.QUEUED, State.CANCELLED, State.FAILED)
            )
            assert row.state in stopped, f"{row.task.id} is {row.state} after a stop"
        self.end_dispatcher(survival=1.0 if left else 0.0)
        self.stay_down(down_s)
        self.begin_dispatcher(taking_s)

    def answer(self, down_s: float, taking_s: float, request: m.Event) -> None:
        """A crash, and while nobody dispatches somebody asks for something: it is answered, and nothing starts."""
        running = list(self.referee.running.values())
        self.end_dispatcher(survival=0.8)
        self.stay_down(down_s / 2)
        self.begin_dispatcher(taking_s, answering=True)
        self.check_recovered(running)
        self.step([request])
        self.leap(taking_s)
        self.step([m.Drain()])
        self.end_dispatcher(survival=1.0)  # it adopted them to answer, and leaves them
        self.stay_down(down_s / 2)
        self.begin_dispatcher(taking_s)

    def can_survive(self) -> set[tuple[str, int]]:
        """Attempts that run where they may outlive their dispatcher; calls end with it."""
        running = self.referee.running.values()
        return {
            (row.task.id, row.attempts)
            for row in running
            if row.host in self.outliving and row.task.on_crash is not OnCrash.CANCEL
        }

    def end_dispatcher(self, survival: float = 0.0) -> None:
        referee = self.referee
        referee.epochs[-1] = replace(referee.epochs[-1], ended_at=self.now)
        self.died_at = self.now
        # Arrivals are in the store; outcomes die with the process, or (rarely) arrive late at the new one.
        self.survivors = {a for a in sorted(self.can_survive()) if self.rng.random() < survival}
        lost = [
            p
            for p in self.pending
            if isinstance(p[2], m.Finished | m.Delayed | m.Began) and p[2][:2] not in self.survivors
        ]
        self.pending = [p for p in self.pending if p not in lost]
        heapq.heapify(self.pending)
        for _, _, event in lost:
            if self.rng.random() < 0.2:
                self.later(self.rng.uniform(0, 5), event)
        self.truth.gone()

    def stay_down(self, down_s: float, meanwhile: Sequence[Task] = ()) -> None:
        self.leap(down_s / 2)
        self.file(meanwhile)
        self.leap(down_s / 2)

    def begin_dispatcher(self, taking_s: float, *, answering: bool = False) -> None:
        """It begins, reads the store for a while, and then takes its first step."""
        referee = self.referee
        if self.switches:
            self.plant = referee.plant = replace(self.plant, thread_per_kind=not self.plant.thread_per_kind)
        number = len(referee.epochs) + 1
        self.scheduler = Scheduler(self.plant, first_class=1_000_000 * number)
        owner = replace(self.owner, answers_only=answering)
        referee.epochs.append(Epoch(number, owner, self.now, self.now, plant=self.plant))
        self.truth.born(self.now, answering=answering)
        self.leap(taking_s)
        self.seen()
        rows = sorted((referee.rows[t] for t in referee.live), key=lambda r: r.number)
        referee.slots = {h.name: first_slots(h) for h in self.plant.hosts}
        referee.host_state.clear()
        referee.gates.clear()
        referee.adopted.clear()
        events: list[m.Event] = [m.Drain(answering=True)] if answering else []
        events += [
            m.Spent(host, lane, day, sum(costs), len(costs))
            for (day, host, lane), costs in sorted(referee.books.take_over(self.now).items())
        ]
        if self.truth.all_paused:
            events.append(m.PauseSet("all", "", True))
        events += [m.PauseSet(scope, name, True) for scope, name in sorted(self.truth.paused)]
        adopted, self.survivors = self.survivors, set()
        self.adopted += len(adopted)
        before = [(task, attempt, referee.rows[task].started_at) for task, attempt in sorted(adopted)]
        records, queued = in_short([r.record() for r in rows], random.Random(self.now))
        events.append(m.Restored(records, self.ended(), self.died_at, adopted, queued))
        events += [m.CancelAsked(task) for task, attempt in sorted(adopted & self.told_to_end)]
        for row in rows:
            row.failed_on = None
            # Its age counts from when it was queued or due; after a restart that is all that is known.
            first = max(row.task.queued_at, row.task.not_before or 0.0)
            row.ready_at = None if row.task.after or first > self.now else first
            if row.task.after and row.attempts:
                row.ready_at = self.now  # what it waits after was met, nobody knows when
        self.step(events)
        assert referee.adopted == adopted
        for task, attempt, started_at in before:  # one unbroken attempt
            row = referee.rows[task]
            assert (row.state, row.attempts, row.started_at) == (State.RUNNING, attempt, started_at)

    def check_recovered(self, running: Sequence[Row]) -> None:
        """Promise 6."""
        for row in running:
            if (row.task.id, row.attempts) in self.referee.adopted:
                continue
            assert row.error or row.retry_at is not None
            if row.task.on_crash is OnCrash.BLOCK:
                assert row.state is State.BLOCKED, f"{row.task.id}: on_crash = block, but {row.state}"
            elif row.task.on_crash is OnCrash.CANCEL:
                assert row.state is State.CANCELLED, f"{row.task.id}: on_crash = cancel, but {row.state}"
            else:
                assert row.state in (State.QUEUED, State.RUNNING, State.FAILED)

    # ---- tasks come in

    def ended(self) -> dict[str, State]:
        return {t: r.state for t, r in self.referee.rows.items() if r.state in ENDED}

    def submit(self, tasks: Sequence[Task], late_s: float = 0.0) -> None:
        """They are in the store; after a while the dispatcher takes them in."""
        self.file(tasks)
        self.leap(late_s)
        taken = self.seen()
        self.step([m.Submitted(taken, self.ended())])

    def file(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self.count += 1
            task = replace(task, queued_at=self.now)
            self.referee.rows[task.id] = Row(task, self.count)
            self.truth.unseen.add(task.id)

    def seen(self) -> list[Task]:
        """All that was filed is taken in now."""
        referee = self.referee
        rows = [row for t, row in referee.rows.items() if t in self.truth.unseen]
        self.truth.unseen.clear()
        for row in rows:
            referee.live.add(row.task.id)
            first = max(row.task.queued_at, row.task.not_before or 0.0)
            if first <= self.now and not row.task.after:
                row.ready_at = first
        return [row.task for row in rows]

    def revive(self, tasks: Sequence[str]) -> None:
        """Somebody wants ended tasks again."""
        wanted = [self.referee.rows[t].record() for t in tasks]
        self.step([m.RetryAsked(wanted, self.ended())])

    def reprioritize(self, tasks: Sequence[str], priority: int) -> None:
        """Somebody wants live tasks sooner, or later: each has it, and nothing else about it changes."""
        before = {t: self.referee.rows[t].task for t in tasks}
        self.step([m.PriorityAsked(t, priority) for t in tasks])
        for task, was in before.items():
            assert self.referee.rows[task].task == replace(was, priority=priority)
            if self.scheduler.knows(task):
                assert self.scheduler.priority(task) == priority

    def revivable(self) -> list[str]:
        rows = self.referee.rows.values()
        states = (State.FAILED, State.CANCELLED, State.BLOCKED)
        return [r.task.id for r in rows if r.state in states and r.task.on_crash is not OnCrash.CANCEL]

    # ---- time passes

    def leap(self, seconds: float) -> None:
        """Nobody looks at anything for so long."""
        if seconds > 0:
            self.truth.look(self.now, foresee=True)
            self.now += seconds

    def advance(self) -> bool:
        """To the next thing that is due; False when nothing is."""
        due = [self.pending[0][0]] if self.pending else []
        wake = self.scheduler.next_wake()
        if wake is not None:
            due.append(wake)
        if not due:
            return False
        self.now = max(self.now, min(due))
        events: list[m.Event] = []
        while self.pending and self.pending[0][0] <= self.now:
            events.append(heapq.heappop(self.pending)[2])
        self.step(events or [m.Tick()])
        return True

    def finish(self) -> None:
        """Faults stop, everything is let go, and all that was accepted must end (promises 1 and 4)."""
        events: list[m.Event] = [m.PauseSet("all", "", False), m.StoreAway(None)]
        events += [m.PauseSet("lane", lane.name, False) for lane in self.plant.lanes]
        events += [m.PauseSet("host", h.name, False) for h in self.plant.hosts]
        events += [m.SlotsSet(h.name, h.slots) for h in self.plant.hosts]
        events += [m.HostHealth(h.name, True) for h in self.plant.hosts]
        events += [m.GateRead(g.name, 50.0) for g in self.plant.gates if g.probe]
        self.step(events)
        for _ in range(20_000):
            if not self.referee.live or not self.advance():
                break
        left = {t: self.scheduler.waiting_reason(t) for t in sorted(self.referee.live)}
        assert not left, f"never ended: {left}"
        for row in self.referee.rows.values():
            assert row.results == 1, f"{row.task.id} has {row.results} results"
        self.explain(list(self.referee.rows))

    def explain(self, tasks: Sequence[str]) -> None:
        """Every wait of these tasks so far, held against the truth."""
        self.truth.check(Explainer(self.referee.history(tasks), self.now), tasks, self.now)
