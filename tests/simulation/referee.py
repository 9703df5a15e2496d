"""The referee: its own, slow and obvious account of what is running, and of what each start may not break.

It holds the scheduler to the limits and the order of the design after every step, and shares no code with it.
What is true of those that wait is kept in `truth`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.diagnosis.history import Epoch, History, Rest
from penstock.lifecycle import STEPS
from penstock.model import (
    Attempt,
    Gate,
    Host,
    Plant,
    State,
    Task,
    TaskRecord,
    Verdict,
)
from penstock.scheduling import messages as m
from tests.simulation.books import Books

NEAR = 1e-6
ONE_SLOT: dict[str, float] = {"slots": 1}


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

    def record(self) -> TaskRecord:
        return TaskRecord(
            task=self.task,
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
    host_detail: dict[str, str] = field(default_factory=dict)
    gates: dict[str, bool] = field(default_factory=dict)
    lanes_paused: dict[str, bool] = field(default_factory=dict)
    paused: bool = False
    routes: list[m.Route] = field(default_factory=list)
    moves: list[m.Move] = field(default_factory=list)
    stretches: list[m.WaitChange] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)
    priorities: list[m.Reprioritize] = field(default_factory=list)
    started: list[tuple[str, str]] = field(default_factory=list)
    adopted: set[tuple[str, int]] = field(default_factory=set)  # by the dispatcher that is there

    def __post_init__(self) -> None:
        self.hosts = {h.name: h for h in self.plant.hosts}
        self.lanes = {lane.name: lane for lane in self.plant.lanes}
        self.slots = {h.name: first_slots(h) for h in self.plant.hosts}
        self.reserving = [lane for lane in self.plant.lanes if lane.reserve]
        self.books = Books(self.plant)
        self.known_serving: dict[tuple[str | None, ...], list[Host]] = {}
        self.untold: dict[tuple[str, int], float] = {}  # costs of this step that no decision has told
        self.known_held: dict[
            tuple[str, str | None], dict[str, float]
        ] = {}  # as long as the same attempts run
        self.known_running: dict[str, int] = {}  # likewise

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
        self.others_run()
        self.attempts[d.task, d.attempt] = Attempt(d.task, d.attempt, d.host, d.lane, d.at, d.work_class)
        self.check_limits(row, self.hosts[d.host])
        self.started.append((d.task, d.host))

    def on_delay(self, d: m.Delay) -> None:
        row = self.running[d.task]
        assert (row.attempts, row.host, row.started_at) == (d.attempt, d.host, d.since)
        assert d.since <= d.at == self.now
        row.started_at = None

    def on_begin(self, d: m.Begin) -> None:
        row = self.running[d.task]
        assert (row.attempts, row.host) == (d.attempt, d.host)
        if row.started_at is None:
            assert self.attempts[d.task, d.attempt].started_at <= d.at <= self.now
        else:
            assert row.started_at == d.since < d.at <= self.now
        row.started_at = d.at
        self.attempts[d.task, d.attempt] = replace(self.attempts[d.task, d.attempt], started_at=d.at)

    def begun(self) -> list[Attempt]:
        """The attempts, without those that have yet to begin."""
        delayed = {(task, row.attempts) for task, row in self.running.items() if row.started_at is None}
        return [attempt for key, attempt in self.attempts.items() if key not in delayed]

    def on_adopt(self, d: m.Adopt) -> None:
        row = self.running[d.task]
        assert (row.attempts, row.host) == (d.attempt, d.host), f"{d.task}: another attempt was adopted"
        assert d.at == self.now
        self.adopted.add((d.task, d.attempt))

    def others_run(self) -> None:
        self.known_held.clear()
        self.known_running.clear()

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
        self.others_run()
        row.state, row.tries, row.faults, row.retry_at = State.QUEUED, d.tries, d.host_faults, d.retry_at
        row.failed_on = (
            row.host
            if d.verdict is Verdict.HOST and not (d.error or "").startswith("the dispatcher ")
            else None
        )
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
        self.others_run()
        self.live.discard(d.task)
        if d.attempt:
            self.close_attempt(d.task, d.attempt, d.at, d.outcome.verdict if d.outcome else None)

    def on_revive(self, d: m.Revive) -> None:
        row = self.rows[d.task]
        assert STEPS[row.state, "retry"] is State.QUEUED
        assert row.ended_at is not None
        self.rests.append(Rest(d.task, row.ended_at, d.at, row.attempts))
        row.state, row.tries, row.faults, row.results = State.QUEUED, 0, 0, 0
        row.retry_at = row.ended_at = row.ready_at = row.failed_on = row.error = row.value = None
        self.live.add(d.task)

    def on_reprioritize(self, d: m.Reprioritize) -> None:
        row = self.rows[d.task]
        assert d.task in self.live, f"{d.task} has ended"
        assert (row.task.priority, d.at) == (d.was, self.now)
        row.task = replace(row.task, priority=d.priority)
        self.priorities.append(d)

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
        self.moves.append(d)

    def on_waitchange(self, d: m.WaitChange) -> None:
        self.stretches.append(d)

    def on_hostchange(self, d: m.HostChange) -> None:
        self.host_state[d.host] = d.state
        self.host_detail[d.host] = d.detail
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
        if task.needs is None:
            return ONE_SLOT
        return {"slots": 1, **{k: v for k, v in task.needs.items() if k != "tokens"}}

    def capacity(self, host: Host) -> dict[str, float]:
        return {**host.units, "slots": self.slots[host.name]}

    def held(self, host: Host, lane: str | None = None) -> dict[str, float]:
        used = self.known_held.get((host.name, lane))
        if used is None:
            used = self.known_held[host.name, lane] = defaultdict(float)
            for row in self.running.values():
                if row.host == host.name and (lane is None or row.task.lane == lane):
                    for unit, amount in self.needs(row.task).items():
                        used[unit] += amount
        return used

    def kept_for_others(self, host: Host, lane: str, unit: str) -> float:
        kept = 0.0
        for other in self.reserving:
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
        found = self.known_running.get(lane)
        if found is None:
            found = self.known_running[lane] = sum(r.task.lane == lane for r in self.running.values())
        return found

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

    def thread_is_taken(self, row: Row, besides: Row) -> bool:
        """Where each kind has one thread: whether another task than `besides` is in that of this one's kind."""
        return self.plant.thread_per_kind and any(
            other.task.kind == row.task.kind and other is not besides for other in self.running.values()
        )

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
        assert not self.thread_is_taken(row, row), f"{task.id} started beside another of kind {task.kind}"
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
        """Hosts of its kind; those that can never have the units it needs do not count, unless none can."""
        asked = task.kind, task.host, task.model, task.lane, str(task.needs)
        if asked not in self.known_serving:
            hosts = [
                h
                for h in self.plant.hosts
                if h.serves_kind(task.kind)
                and (task.host is None or task.host == h.name)
                and (task.model is None or task.model == h.model)
            ]
            able = [h for h in hosts if self.has_units(h, task)]
            self.known_serving[asked] = able or hosts
        return self.known_serving[asked]

    def has_units(self, host: Host, task: Task) -> bool:
        for unit, amount in self.needs(task).items():
            others = sum(
                lane.reserve.get(host.name, {}).get(unit, 0.0)
                for lane in self.plant.lanes
                if lane.name != task.lane
            )
            if unit != "slots" and amount > host.units.get(unit, 0.0) - others + NEAR:
                return False
        return True

    def fitting_hosts(self, row: Row, slack: float = NEAR) -> list[Host]:
        """Own hosts, and the fallback hosts that are open for this task (surely so with negative slack)."""
        serving = self.serving(row.task)
        if row.task.host is not None:
            return serving
        own = [h for h in serving if h.fallback is None]
        if len(own) == len(serving) or all(self.is_down(h) for h in own) or row.failed_on is not None:
            return serving
        waited = self.now - (row.ready_at if row.ready_at is not None else self.now)
        after = [(h, h.fallback.after_s) for h in serving if h.fallback]
        return own + [h for h, after_s in after if after_s <= 0 or waited >= after_s - slack]

    def is_down(self, host: Host) -> bool:
        return self.host_state.get(host.name, "up") in ("down", "probing")

    # ---- promises 3 and 5: nothing eligible waits, and the reason given is the true one

    def ready(self, row: Row) -> bool:
        task = row.task
        if row.state is not State.QUEUED:
            return False
        if row.attempts == 0 and task.after and any(self.rows[n].state is not State.DONE for n in task.after):
            return False
        return (task.not_before is None or task.not_before <= self.now) and (
            row.retry_at is None or row.retry_at <= self.now
        )

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

    def could_hold(self, host: Host, task: Task) -> bool:
        """Whether it would fit there beside nothing; a host that tunes its slots may have more of them one day."""
        slots = self.slots[host.name] - sum(
            lane.reserve.get(host.name, {}).get("slots", 0.0)
            for lane in self.plant.lanes
            if lane.name != task.lane
        )
        return host.auto is not None or self.needs(task)["slots"] <= slots + NEAR

    def claimants(self) -> list[Row]:
        return [
            r
            for r in (self.rows[t] for t in self.live)
            if r.task.needs is not None
            and r.ready_at is not None
            and self.now - r.ready_at >= self.plant.aging_s - NEAR
            and self.needs(r.task) != ONE_SLOT
            and self.ready(r)
        ]

    def check_order(self) -> None:
        """Rule 2: of two tasks that wanted the same room the more urgent one got it."""
        if not self.started:
            return
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
                if self.thread_is_taken(other, row):
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

    # ---- what a store would tell

    def history(self, tasks: Iterable[str]) -> History:
        return History(
            records=[self.rows[t].record() for t in tasks],
            attempts=self.begun(),
            others=list(self.attempts.values()),
            dependencies={t: row.record() for t, row in self.rows.items()},
            routes=self.routes,
            moves=self.moves,
            stretches=self.stretches,
            epochs=self.epochs,
            rests=self.rests,
            priorities=self.priorities,
        )
