"""A small world around the real scheduler: a store, an engine with faults, and a referee.

The referee keeps its own, slow and obvious account of what is running and waiting, and holds the scheduler to
the promises of the design after every step. It shares no code with the scheduler. A failure carries the seed.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from penstock.diagnosis.history import Epoch, History, Owner
from penstock.diagnosis.waits import Explainer
from penstock.lifecycle import ENDED, STEPS
from penstock.model import (
    Attempt,
    Gate,
    Host,
    OnCrash,
    Outcome,
    Plant,
    State,
    Task,
    TaskRecord,
    Verdict,
)
from penstock.scheduling import messages as m
from penstock.scheduling.scheduler import Scheduler
from tests.simulation.books import Books

NEAR = 1e-6


def first_slots(host: Host) -> int:
    return host.slots if host.auto is None else max(host.auto.min, min(host.slots, host.auto.max))


@dataclass
class Row:
    """What the referee knows of a task."""

    task: Task
    number: int
    state: State = State.QUEUED
    attempts: int = 0
    tries: int = 0
    faults: int = 0
    retry_at: float | None = None
    host: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    error: str | None = None
    value: Any = None
    results: int = 0
    ready_at: float | None = None  # first time it could have started
    failed_on: str | None = None
    moved: bool = False

    def record(self) -> TaskRecord:
        return TaskRecord(
            task=replace(self.task, payload=None),
            number=self.number,
            state=self.state,
            attempts=self.attempts,
            tries=self.tries,
            host_faults=self.faults,
            retry_at=self.retry_at,
            host=self.host,
            started_at=self.started_at,
            ended_at=self.ended_at,
            value=self.value,
            error=self.error,
        )


@dataclass
class Referee:
    """Folds decisions into rows and checks them one by one."""

    plant: Plant
    now: float = 0.0
    rows: dict[str, Row] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    running: dict[str, Row] = field(default_factory=dict)
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    host_state: dict[str, str] = field(default_factory=dict)
    gates: dict[str, bool] = field(default_factory=dict)
    lanes_paused: dict[str, bool] = field(default_factory=dict)
    paused: bool = False
    routes: list[m.Route] = field(default_factory=list)
    moves: list[m.Move] = field(default_factory=list)
    stretches: list[m.WaitChange] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    started: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hosts = {h.name: h for h in self.plant.hosts}
        self.lanes = {lane.name: lane for lane in self.plant.lanes}
        self.slots = {h.name: first_slots(h) for h in self.plant.hosts}
        self.books = Books(self.plant)
        self.untold: dict[tuple[str, int], float] = {}  # costs of this step that no decision has told

    # ---- the books

    def fold(self, decisions: Sequence[m.Decision], now: float) -> None:
        self.now = now
        self.started = []
        for d in decisions:
            getattr(self, f"on_{type(d).__name__.lower()}")(d)

    def on_start(self, d: m.Start) -> None:
        row = self.rows[d.task]
        assert row.state is State.QUEUED, f"{d.task} started while {row.state}"
        assert d.attempt == row.attempts + 1, f"{d.task}: attempt {d.attempt} after {row.attempts}"
        if row.ready_at is None:
            row.ready_at = d.at
        self.check_eligible(row, self.hosts[d.host])
        row.state, row.attempts, row.host = State.RUNNING, d.attempt, d.host
        row.started_at = d.at
        self.running[d.task] = row
        self.attempts[d.task, d.attempt] = Attempt(d.task, d.attempt, d.host, d.lane, d.at, d.work_class)
        self.check_limits(row, self.hosts[d.host])
        self.started.append((d.task, d.host))

    def close_attempt(self, task: str, number: int, at: float, verdict: Verdict | None, **more: Any) -> None:
        attempt = self.attempts[task, number]
        assert attempt.ended_at is None, f"{task}/{number} ended twice"
        self.attempts[task, number] = replace(
            attempt, ended_at=max(at, attempt.started_at), verdict=verdict, **more
        )

    def on_requeue(self, d: m.Requeue) -> None:
        row = self.rows[d.task]
        assert row.state is State.RUNNING
        assert d.attempt == row.attempts
        del self.running[d.task]
        row.state, row.tries, row.faults, row.retry_at = State.QUEUED, d.tries, d.host_faults, d.retry_at
        row.failed_on = row.host if d.verdict is Verdict.HOST and "died" not in (d.error or "") else None
        row.host = None
        self.close_attempt(d.task, d.attempt, d.at, d.verdict, error=d.error, retry_at=d.retry_at)

    def on_end(self, d: m.End) -> None:
        row = self.rows[d.task]
        before = State.RUNNING if d.attempt else State.QUEUED
        assert row.state is before, f"{d.task} ended from {row.state}"
        assert STEPS[before, d.step] is d.state
        row.state, row.ended_at, row.error = d.state, d.at, d.error
        row.value = d.outcome.value if d.outcome else None
        row.results += 1
        self.running.pop(d.task, None)
        self.live.discard(d.task)
        if d.attempt:
            self.close_attempt(d.task, d.attempt, d.at, d.outcome.verdict if d.outcome else None)

    def on_revive(self, d: m.Revive) -> None:
        raise AssertionError("nobody asked")

    def on_stop(self, d: m.Stop) -> None:
        assert self.running[d.task].attempts == d.attempt

    def on_refuse(self, d: m.Refuse) -> None:
        row = self.rows.get(d.task)
        assert row is None or row.state is not State.RUNNING or row.attempts != d.attempt, (
            "a live result was refused"
        )

    def on_route(self, d: m.Route) -> None:
        self.routes.append(d)

    def on_move(self, d: m.Move) -> None:
        self.rows[d.task].moved = True
        self.moves.append(d)

    def on_waitchange(self, d: m.WaitChange) -> None:
        self.stretches.append(d)

    def on_hostchange(self, d: m.HostChange) -> None:
        self.host_state[d.host] = d.state
        self.slots[d.host] = d.slots
        auto = self.hosts[d.host].auto
        if auto is not None:
            assert auto.min <= d.slots <= auto.max, f"{d.host} tuned itself to {d.slots}, out of its bounds"

    def on_lanechange(self, d: m.LaneChange) -> None:
        self.lanes_paused[d.lane] = d.paused

    def on_gatechange(self, d: m.GateChange) -> None:
        self.gates[d.gate] = d.open

    def on_allchange(self, d: m.AllChange) -> None:
        self.paused = d.paused

    def on_spend(self, d: m.Spend) -> None:
        row = self.running[d.task]
        assert self.untold.pop((d.task, d.attempt)) == d.usd
        assert (d.host, d.lane, d.day) == (row.host, row.task.lane, math.floor(d.at / 86_400))

    # ---- promise 2: limits

    def needs(self, task: Task) -> dict[str, float]:
        return {"slots": 1, **{k: v for k, v in (task.needs or {}).items() if k != "tokens"}}

    def capacity(self, host: Host) -> dict[str, float]:
        return {**host.units, "slots": self.slots[host.name]}

    def held(self, host: Host, lane: str | None = None) -> dict[str, float]:
        used: dict[str, float] = defaultdict(float)
        for row in self.running.values():
            if row.host == host.name and (lane is None or row.task.lane == lane):
                for unit, amount in self.needs(row.task).items():
                    used[unit] += amount
        return used

    def kept_for_others(self, host: Host, lane: str, unit: str) -> float:
        kept = 0.0
        for other in self.plant.lanes:
            reserve = other.reserve.get(host.name, {}).get(unit, 0.0)
            if other.name != lane and reserve:
                kept += max(0.0, reserve - self.held(host, other.name)[unit])
        return kept

    def check_limits(self, row: Row, host: Host) -> None:
        used = self.held(host)
        for unit, amount in self.needs(row.task).items():
            kept = self.kept_for_others(host, row.task.lane, unit)
            total = self.capacity(host).get(unit, 0.0)
            assert used[unit] + kept <= total + NEAR, (
                f"{host.name} over-full: {unit} {used[unit]}+{kept} > {total}"
            )
            assert amount <= total + NEAR
        lane = self.lanes.get(row.task.lane)
        if lane is not None and lane.max_running is not None:
            assert self.lane_running(lane.name) <= lane.max_running, f"lane {lane.name} over its limit"

    def lane_running(self, lane: str) -> int:
        return sum(r.task.lane == lane for r in self.running.values())

    def gate_open(self, gate: Gate) -> bool:
        if gate.lane is not None:
            assert gate.max_running is not None
            return self.lane_running(gate.lane) <= gate.max_running
        return self.gates.get(gate.name, gate.on_error == "open")

    def closed_gates(self, task: Task) -> list[Gate]:
        return [
            g
            for g in self.plant.gates
            if (task.lane in g.holds_lanes or task.kind in g.holds_kinds) and not self.gate_open(g)
        ]

    # ---- money: nothing starts on a spent budget, and a budget is closed only when it is spent

    def running_on(self, budget: str) -> int:
        """Attempts on a host's or a lane's account; those on hosts that cost nothing are on no lane's."""
        lane = budget.removeprefix("budget:lane:")
        if lane == budget:
            return sum(r.host == budget.removeprefix("budget:") for r in self.running.values())
        return sum(
            r.task.lane == lane and self.books.costs_money(r.host or "") for r in self.running.values()
        )

    def left(self, budget: str) -> float:
        return self.books.left(budget, self.running_on(budget), self.now)

    def lane_is_out(self, lane: str) -> bool:
        return not self.gates.get(f"budget:lane:{lane}", True)

    def check_money(self, row: Row, host: Host) -> None:
        on = [f"budget:{host.name}"]
        if self.books.costs_money(host.name):
            on.append(f"budget:lane:{row.task.lane}")
        for budget in on:
            if budget in self.books.budgets():
                left = self.left(budget)
                assert left > -NEAR, f"{row.task.id} started with {left:g} USD left of {budget}"

    def check_budgets(self) -> None:
        assert not self.untold, f"nobody told the costs {self.untold}"
        for budget in self.books.budgets():
            left = self.left(budget)
            if abs(left) > NEAR:  # else too close to call
                is_open = self.gates.get(budget, True)
                assert is_open == (left > 0), f"{budget} is {'open' if is_open else 'closed'}: {left:g} left"

    def check_eligible(self, row: Row, host: Host) -> None:
        """Rule 1, as far as a start can break it."""
        task = row.task
        held = self.paused or self.lanes_paused.get(task.lane)
        assert not held, f"{task.id} started while paused"
        assert not self.closed_gates(task), f"{task.id} started through a closed gate"
        assert not [g for g in self.plant.gates if host.name in g.holds_hosts and not self.gate_open(g)]
        assert self.host_state.get(host.name, "up") in ("up", "half-open"), (
            f"{host.name} is not fit to start on"
        )
        for needed in task.after:
            assert self.rows[needed].state is State.DONE, f"{task.id} started before {needed}"
        for at in (task.not_before, row.retry_at):
            assert at is None or at <= self.now + NEAR, f"{task.id} started before its time"
        assert task.deadline is None or task.deadline > self.now - NEAR, (
            f"{task.id} started after its deadline"
        )
        assert host in self.fitting_hosts(row), f"{host.name} may not take {task.id}"
        self.check_money(row, host)

    def serving(self, task: Task) -> list[Host]:
        return [
            h
            for h in self.plant.hosts
            if h.serves_kind(task.kind)
            and (task.host is None or task.host == h.name)
            and (task.model is None or task.model == h.model)
        ]

    def fitting_hosts(self, row: Row, slack: float = NEAR) -> list[Host]:
        """Own hosts, and the fallback hosts that are open for this task (surely so with negative slack)."""
        serving = self.serving(row.task)
        if row.task.host is not None:
            return serving
        own = [h for h in serving if h.fallback is None]
        if all(self.is_down(h) for h in own) or row.failed_on is not None:
            return serving
        waited = self.now - (row.ready_at if row.ready_at is not None else self.now)
        return own + [h for h in serving if h.fallback and waited >= h.fallback.after_s - slack]

    def is_down(self, host: Host) -> bool:
        return self.host_state.get(host.name, "up") in ("down", "probing")

    # ---- promises 3 and 5: nothing eligible waits, and the reason given is the true one

    def ready(self, row: Row) -> bool:
        task = row.task
        if row.state is not State.QUEUED:
            return False
        if any(self.rows[n].state is not State.DONE for n in task.after) and row.attempts == 0:
            return False
        return all(at is None or at <= self.now for at in (task.not_before, row.retry_at))

    def fits(self, row: Row, host: Host) -> bool:
        used = self.held(host)
        return all(
            amount + used[unit] + self.kept_for_others(host, row.task.lane, unit)
            <= self.capacity(host).get(unit, 0.0) + NEAR
            for unit, amount in self.needs(row.task).items()
        )

    def key(self, row: Row) -> float:
        assert row.ready_at is not None
        return row.ready_at + row.task.priority * self.plant.aging_s

    def note_ready(self) -> None:
        for task in self.live:
            row = self.rows[task]
            if row.ready_at is None and self.ready(row):
                row.ready_at = self.now

    def claimants(self) -> list[Row]:
        return [
            r
            for r in (self.rows[t] for t in self.live)
            if self.ready(r)
            and r.ready_at is not None
            and self.now - r.ready_at >= self.plant.aging_s - NEAR
            and self.needs(r.task) != {"slots": 1}
        ]

    def check_waiting(self, scheduler: Scheduler) -> None:
        claimants = self.claimants()
        seen: set[tuple[Any, ...]] = set()
        for task in sorted(self.live):
            row = self.rows[task]
            if row.state is not State.QUEUED:
                continue
            reason = scheduler.waiting_reason(task)
            assert reason is not None, f"{task} waits for nothing"
            if not self.ready(row):
                assert reason in ("dependency", "scheduled"), f"{task}: {reason} before it was ready"
                unmet = any(self.rows[n].state is not State.DONE for n in row.task.after) and not row.attempts
                assert reason == ("dependency" if unmet else "scheduled")
                continue
            t = row.task
            alike = (t.kind, t.lane, t.host, t.model, str(t.needs), row.moved, row.failed_on, reason)
            if alike not in seen:  # one of each is enough: they share the answer
                seen.add(alike)
                self.check_reason(row, reason, claimants)

    def check_reason(self, row: Row, reason: str, claimants: list[Row]) -> None:
        task = row.task
        name = reason.partition(":")[0]
        if self.paused or self.lanes_paused.get(task.lane):
            assert name == "paused", f"{task.id}: {reason}, but it is paused"
            return
        if closed := self.closed_gates(task):
            assert reason in {f"gate:{g.name}" for g in closed}, f"{task.id}: {reason}, but a gate is closed"
            return
        lane = self.lanes.get(task.lane)
        full = (
            lane is not None
            and lane.max_running is not None
            and self.lane_running(lane.name) >= lane.max_running
        )
        hosts = self.fitting_hosts(row)
        if hosts != self.fitting_hosts(row, -NEAR):
            return  # a fallback opens within a millionth of a second: too close to call
        barred = [h for h in hosts if self.lane_is_out(task.lane) and self.books.costs_money(h.name)]
        hosts = [h for h in hosts if h not in barred]
        states = {h.name: self.host_state.get(h.name, "up") for h in hosts}
        able = [h for h in hosts if states[h.name] in ("up", "half-open")]
        if states and all(s in ("paused", "gated") for s in states.values()):
            assert name in ("paused", "gate"), f"{task.id}: {reason}, but its hosts are held"
            return
        if barred and not states:
            assert reason == f"gate:budget:lane:{task.lane}", (
                f"{task.id}: {reason}, but its lane is out of money"
            )
            return
        if full:
            assert reason == f"lane:{task.lane}", f"{task.id}: {reason}, but its lane is full"
            return
        room = [h for h in able if self.fits(row, h)]
        for host in room:
            kept = any(host in self.serving(c.task) and c is not row for c in claimants)
            assert kept, f"{task.id} waits ({reason}) beside room on {host.name}"
        if room:
            return
        if able:
            assert name in ("slots", "order"), f"{task.id}: {reason}, but hosts are up and full"
        elif any(s == "rate-limited" for s in states.values()):
            assert name == "rate", f"{task.id}: {reason}, but hosts are rate-limited"
        elif barred:
            assert reason == f"gate:budget:lane:{task.lane}", (
                f"{task.id}: {reason}, but its lane is out of money"
            )
        elif task.host is None and any(h.fallback and states[h.name] == "gated" for h in hosts):
            assert name == "gate", f"{task.id}: {reason}, but a gate keeps it from a fallback host"
        elif any(s in ("down", "probing") for s in states.values()) or not states:
            assert name == "host-down", f"{task.id}: {reason}, but all hosts are down"

    def check_order(self) -> None:
        """Rule 2: of two tasks that wanted the same room the more urgent one got it."""
        claimed = bool(self.claimants())
        for task, host_name in self.started:
            row, host = self.rows[task], self.hosts[host_name]
            if claimed or any(host_name in lane.reserve for lane in self.plant.lanes) or row.ready_at is None:
                continue
            for other in (self.rows[t] for t in self.live):
                if (
                    not self.ready(other)
                    or other.ready_at is None
                    or host not in self.fitting_hosts(other, -NEAR)
                ):
                    continue
                lane = self.lanes.get(other.task.lane)
                if lane and lane.max_running is not None and self.lane_running(lane.name) >= lane.max_running:
                    continue
                if self.closed_gates(other.task) or self.lanes_paused.get(other.task.lane):
                    continue
                mine, theirs = self.needs(row.task), self.needs(other.task)
                if any(amount > mine.get(unit, 0.0) for unit, amount in theirs.items()):
                    continue
                if other.failed_on == host_name:
                    continue
                if self.lane_is_out(other.task.lane) and self.books.costs_money(host_name):
                    continue
                assert self.level(other) >= self.level(row), (
                    f"{task} went before the more urgent {other.task.id}"
                )
                if other.task.lane == row.task.lane:
                    assert self.key(other) >= self.key(row) - NEAR, (
                        f"{task} overtook {other.task.id} in its lane"
                    )

    def level(self, row: Row) -> int:
        return math.ceil((self.key(row) - self.now) / self.plant.aging_s - NEAR)

    # ---- promise 5: the waits tile the queue time

    def check_waits(self, tasks: Iterable[str]) -> None:
        history = History(
            records=[self.rows[t].record() for t in tasks],
            attempts=list(self.attempts.values()),
            others=list(self.attempts.values()),
            dependencies={t: row.record() for t, row in self.rows.items()},
            routes=self.routes,
            moves=self.moves,
            stretches=self.stretches,
            epochs=self.epochs,
        )
        explainer = Explainer(history, self.now)
        for record in history.records:
            waits = explainer.waits(record)
            spans = self.queue_spans(record)
            tiles = [(w.start, w.end) for w in waits]
            for (_, end), (start, _) in pairwise(tiles):
                assert start >= end, f"{record.task.id}: waits overlap"
            merged = _merge(tiles)
            assert merged == _merge(spans), f"{record.task.id}: waits {merged} do not tile {_merge(spans)}"
            assert all(w.reason for w in waits)

    def queue_spans(self, record: TaskRecord) -> list[tuple[float, float]]:
        spans = []
        at = record.task.queued_at
        for number in range(1, record.attempts + 1):
            attempt = self.attempts[record.task.id, number]
            spans.append((at, attempt.started_at))
            if attempt.ended_at is None:
                return spans
            at = attempt.ended_at
        spans.append((at, self.now if record.ended_at is None else record.ended_at))
        return spans


def _merge(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(s for s in spans if s[1] > s[0]):
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


class World:
    """The scheduler, its referee, and an engine that loses, repeats and delays outcomes."""

    def __init__(self, plant: Plant, rng: random.Random) -> None:
        self.plant = plant
        self.rng = rng
        self.now = 1000.0
        self.referee = Referee(plant)
        self.scheduler = Scheduler(plant)
        self.pending: list[tuple[float, int, m.Event]] = []
        self.order = 0
        self.count = 0
        self.owner = Owner(1, "sim", "test")
        self.referee.epochs.append(Epoch(1, self.owner, self.now, self.now))
        self.outcome_for: dict[tuple[str, int], Outcome] = {}
        self.dear = {h.name for h in plant.hosts if rng.random() < 0.1}
        self.step([m.Tick()])

    def later(self, seconds: float, event: m.Event) -> None:
        self.order += 1
        heapq.heappush(self.pending, (self.now + seconds, self.order, event))

    def step(self, events: Sequence[m.Event]) -> None:
        self.count_costs(events)
        decisions = self.scheduler.apply_all(events, self.now)
        referee = self.referee
        referee.now = self.now
        referee.note_ready()
        referee.fold(decisions, self.now)
        referee.note_ready()
        for decision in decisions:
            if isinstance(decision, m.Start):
                self.launch(decision)
            elif isinstance(decision, m.Stop):
                stopped = Outcome(Verdict.CANCELLED, error="stopped")
                self.later(self.rng.uniform(0, 2), m.Finished(decision.task, decision.attempt, stopped))
        referee.check_budgets()
        referee.check_waiting(self.scheduler)
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

    def crash(self, down_s: float) -> None:
        """kill -9: outcomes under way are gone, a new scheduler starts from the rows."""
        referee = self.referee
        died_at = self.now
        referee.epochs[-1] = replace(referee.epochs[-1], ended_at=died_at)
        self.now += down_s
        events = [e for _, _, e in self.pending]
        # Arrivals are in the store; outcomes die with the process, or (rarely) arrive late at the new one.
        late = [e for e in events if isinstance(e, m.Finished) and self.rng.random() < 0.2]
        self.pending = [p for p in self.pending if not isinstance(p[2], m.Finished)]
        for event in late:
            self.later(self.rng.uniform(0, 5), event)
        running = list(referee.running.values())
        self.scheduler = Scheduler(self.plant, first_class=1_000_000 * (len(referee.epochs) + 1))
        referee.epochs.append(Epoch(len(referee.epochs) + 1, self.owner, self.now, self.now))
        rows = sorted((referee.rows[t] for t in referee.live), key=lambda r: r.number)
        ended = {t: r.state for t, r in referee.rows.items() if r.state in ENDED}
        referee.slots = {h.name: first_slots(h) for h in self.plant.hosts}
        referee.host_state.clear()
        referee.gates.clear()
        events_in: list[m.Event] = [
            m.Spent(host, lane, day, sum(costs), len(costs))
            for (day, host, lane), costs in sorted(referee.books.take_over(self.now).items())
        ]
        events_in += [m.Restored([r.record() for r in rows], ended, died_at)]
        events_in += [m.PauseSet("lane", lane, p) for lane, p in referee.lanes_paused.items()]
        events_in.append(m.PauseSet("all", "", referee.paused))
        for row in rows:
            row.failed_on = None
            # Its age counts from when it was queued or due; after a restart that is all that is known.
            first = max(row.task.queued_at, row.task.not_before or 0.0)
            row.ready_at = None if row.task.after or first > self.now else first
            if row.task.after and row.attempts:
                row.ready_at = self.now  # what it waits after was met, nobody knows when
        self.step(events_in)
        for row in running:  # promise 6
            assert row.error or row.retry_at is not None
            if row.task.on_crash is OnCrash.BLOCK:
                assert row.state is State.BLOCKED, f"{row.task.id}: on_crash = block, but {row.state}"
            else:
                assert row.state in (State.QUEUED, State.RUNNING, State.FAILED)

    def submit(self, tasks: list[Task]) -> None:
        kept = []
        for task in tasks:
            self.count += 1
            task = replace(task, queued_at=self.now)
            self.referee.rows[task.id] = Row(task, self.count)
            self.referee.live.add(task.id)
            kept.append(task)
        ended = {t: r.state for t, r in self.referee.rows.items() if r.state in ENDED}
        self.step([m.Submitted(kept, ended)])

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
        events: list[m.Event] = [m.PauseSet("all", "", False)]
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
        self.referee.check_waits(self.referee.rows)
