"""Hypothesis drives the scheduler through any events; referee and truth of the simulation judge (promises 1-6)."""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from penstock.model import OnCrash, Task
from penstock.scheduling import messages as m
from tests.simulation.harness import World
from tests.simulation.worlds import KINDS, random_plant

SOAK = bool(os.environ.get("PENSTOCK_SOAK"))


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def build(self, seed: int) -> None:
        rng = random.Random(seed)
        self.world = World(random_plant(rng), rng)

    @rule(
        kind=st.sampled_from(KINDS),
        priority=st.integers(0, 4),
        lane=st.integers(0, 3),
        count=st.integers(1, 6),
        slots=st.sampled_from((None, None, 1, 2)),
        later=st.sampled_from((None, None, 3.0)),
        deadline=st.sampled_from((None, None, 10.0)),
        waits=st.booleans(),
        block=st.booleans(),
    )
    def submit(
        self,
        kind: str,
        priority: int,
        lane: int,
        count: int,
        slots: int | None,
        later: float | None,
        deadline: float | None,
        waits: bool,
        block: bool,
    ) -> None:
        world = self.world
        lanes = world.plant.lanes
        first = world.plant.hosts[0]
        kept = sum(x.reserve.get(first.name, {}).get("slots", 0) for x in lanes)
        known = sorted(world.referee.rows)[:1] if waits else []
        world.submit(
            [
                Task(
                    kind,
                    priority=priority,
                    lane=lanes[lane % len(lanes)].name,
                    needs={"slots": max(1, min(slots, first.slots - kept))} if slots else None,
                    after=tuple(known),
                    not_before=None if later is None else world.now + later,
                    deadline=None if deadline is None else world.now + deadline,
                    on_crash=OnCrash.BLOCK if block else OnCrash.RETRY,
                    id=f"t{world.count + i}",
                )
                for i in range(count)
            ]
        )

    @rule(steps=st.integers(1, 5))
    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.world.advance()

    @rule(host=st.integers(0, 5), up=st.booleans())
    def health(self, host: int, up: bool) -> None:
        hosts = self.world.plant.hosts
        self.world.step([m.HostHealth(hosts[host % len(hosts)].name, up, "as told")])

    @rule(host=st.integers(0, 5), slots=st.integers(1, 6))
    def slots(self, host: int, slots: int) -> None:
        hosts = self.world.plant.hosts
        self.world.step([m.SlotsSet(hosts[host % len(hosts)].name, slots)])

    @rule(scope=st.sampled_from(("all", "host", "lane")), which=st.integers(0, 5), paused=st.booleans())
    def pause(self, scope: str, which: int, paused: bool) -> None:
        plant = self.world.plant
        names = {"all": ("",), "host": [h.name for h in plant.hosts], "lane": [x.name for x in plant.lanes]}[
            scope
        ]
        self.world.step([m.PauseSet(scope, names[which % len(names)], paused)])

    @rule(value=st.sampled_from((None, 10.0, 95.0)))
    def probe(self, value: float | None) -> None:
        for gate in self.world.plant.gates:
            if gate.probe:
                self.world.step([m.GateRead(gate.name, value, "" if value is not None else "no answer")])

    @precondition(lambda self: self.world.referee.live)
    @rule(which=st.integers(0, 1000))
    def cancel(self, which: int) -> None:
        live = sorted(self.world.referee.live)
        self.world.step([m.CancelAsked(live[which % len(live)])])

    @precondition(lambda self: self.world.referee.live)
    @rule(which=st.integers(0, 1000), count=st.integers(1, 9), priority=st.integers(0, 4))
    def reprioritize(self, which: int, count: int, priority: int) -> None:
        live = sorted(self.world.referee.live)
        first = which % len(live)
        self.world.reprioritize(live[first : first + count], priority)

    @precondition(lambda self: self.world.referee.running)
    @rule(which=st.integers(0, 1000))
    def put_back(self, which: int) -> None:
        running = sorted(self.world.referee.running.items())
        task, row = running[which % len(running)]
        self.world.step([m.PutBack(task, row.attempts)])

    @rule(seconds=st.sampled_from((0.001, 2.0)), taking=st.sampled_from((0.0, 0.5)))
    def crash(self, seconds: float, taking: float) -> None:
        self.world.crash(seconds, taking)

    @rule(hosts=st.integers(0, 63))
    def run_elsewhere(self, hosts: int) -> None:
        """From now on attempts on some hosts may outlive their dispatcher."""
        names = [host.name for host in self.world.plant.hosts]
        self.world.outliving = frozenset(name for bit, name in enumerate(names) if hosts >> bit & 1)

    @rule(seconds=st.sampled_from((0.001, 2.0)), steps=st.integers(0, 3))
    def stop(self, seconds: float, steps: int) -> None:
        self.world.stop(seconds, steps)

    @rule(taking=st.sampled_from((0.0, 0.5)))
    def answer(self, taking: float) -> None:
        self.world.answer(2.0, taking, m.Tick())

    @precondition(lambda self: self.world.revivable())
    @rule(which=st.integers(0, 1000), count=st.integers(1, 9))
    def revive(self, which: int, count: int) -> None:
        gone = self.world.revivable()
        first = which % len(gone)
        self.world.revive(gone[first : first + count])

    @rule()
    def why(self) -> None:
        self.world.explain(list(self.world.referee.rows))

    @rule(seconds=st.sampled_from((0.5, 30.0, 5000.0, 86_400.0)))
    def leap(self, seconds: float) -> None:
        self.world.leap(seconds)
        self.world.step([m.Tick()])

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=2_000 if SOAK else 60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
