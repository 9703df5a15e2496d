"""The warm pool, whatever happens to its containers: limits, no waste, no starvation, quiet at the end."""

from __future__ import annotations

import os
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.agents.keeper.pool import (
    PAUSE_AFTER_S,
    Decision,
    Give,
    Instance,
    Leave,
    Pause,
    Start,
    State,
    Stop,
    Wake,
    applied,
    decide,
    is_old,
    most_containers,
    most_running,
    per_container,
    room,
)
from penstock.config.agents import Pool

POOLS = st.builds(
    Pool,
    containers=st.integers(1, 4),
    concurrency=st.integers(1, 3),
    warm=st.integers(0, 2),
    idle_s=st.sampled_from([0.0, 2.0, 30.0, 600.0]),
    max_tasks=st.sampled_from([None, 1, 2, 5]),
    max_age_s=st.sampled_from([None, 60.0]),
)
EXAMPLES = 1000 if os.environ.get("PENSTOCK_SOAK") else 40
UNDER_WAY = (State.STARTING, State.WAKING, State.PAUSING, State.STOPPING)


class Containers:
    """Instances that do what the decisions say, as slowly and as badly as the test wants."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.now = 1000.0
        self.instances: dict[str, Instance] = {}
        self.waiting = 0
        self.tries_from = self.pauses_from = 0.0
        self.made = 0
        self.last = Decision()

    def decide(self) -> Decision:
        return decide(
            self.pool,
            self.instances.values(),
            self.waiting,
            self.now,
            tries_from=self.tries_from,
            pauses_from=self.pauses_from,
        )

    def step(self) -> Decision:
        """Decides and begins what was decided; each decision is checked as it is carried out."""
        self.last = self.decide()
        for action in self.last.actions:
            if isinstance(action, Start):
                assert self.now >= self.tries_from
                for _ in range(action.count):
                    self.made += 1
                    name = f"new{self.made}"
                    self.instances[name] = Instance(name, State.STARTING, self.now, self.now)
                continue
            one = self.instances[action.name]
            match action:
                case Give():
                    assert one.state is State.READY
                    assert one.healthy
                    assert room(self.pool, one) > 0
                    self.waiting -= 1
                case Pause():
                    assert one.state is State.READY
                    assert one.running == 0
                case Stop():
                    assert one.state is State.LEAVING
                    assert one.running == 0
                case Leave():
                    assert one.stays
            self.instances = applied(self.instances, action)
        again = self.decide()
        assert again.actions == (), f"{self.last} was not all: {again}"
        return self.last

    def set(self, one: Instance, **changes: object) -> None:
        self.instances[one.name] = replace(one, **changes)  # type: ignore[arg-type]

    def finish(self, one: Instance) -> None:
        """What is under way for it goes well."""
        match one.state:
            case State.STARTING | State.WAKING:
                since = one.idle_since if one.running else self.now
                self.set(one, state=State.READY, idle_since=since)
            case State.PAUSING:
                self.set(one, state=State.PAUSED)
            case State.STOPPING:
                del self.instances[one.name]

    def release(self, one: Instance) -> None:
        self.set(one, running=one.running - 1, idle_since=self.now)

    def chosen(self, data: st.DataObject, *states: State) -> Instance | None:
        able = [one for one in self.instances.values() if one.state in states]
        return data.draw(st.sampled_from(able)) if able else None


class PoolMachine(RuleBasedStateMachine):
    @initialize(pool=POOLS)
    def begin(self, pool: Pool) -> None:
        self.world = Containers(pool)
        self.world.step()

    @rule(count=st.integers(1, 6))
    def ask(self, count: int) -> None:
        self.world.waiting += count
        self.world.step()

    @precondition(lambda self: self.world.waiting)
    @rule()
    def give_up(self) -> None:
        self.world.waiting -= 1
        self.world.step()

    @rule(data=st.data())
    def end_a_call(self, data: st.DataObject) -> None:
        busy = [one for one in self.world.instances.values() if one.running]
        if busy:
            self.world.release(data.draw(st.sampled_from(busy)))
            self.world.step()

    @rule(data=st.data())
    def go_well(self, data: st.DataObject) -> None:
        if (one := self.world.chosen(data, *UNDER_WAY)) is not None:
            self.world.finish(one)
            self.world.step()

    @rule(data=st.data(), backoff_s=st.floats(0.5, 30))
    def start_fails(self, data: st.DataObject, backoff_s: float) -> None:
        if (one := self.world.chosen(data, State.STARTING)) is not None:
            del self.world.instances[one.name]
            self.world.tries_from = self.world.now + backoff_s
            self.world.step()

    @rule(data=st.data(), backoff_s=st.floats(0.5, 30))
    def waking_fails(self, data: st.DataObject, backoff_s: float) -> None:
        """Calls may be under way in one that is in doubt."""
        if (one := self.world.chosen(data, State.WAKING)) is not None:
            self.world.set(one, state=State.PAUSED)
            self.world.tries_from = self.world.now + backoff_s
            self.world.step()

    @rule(data=st.data(), backoff_s=st.floats(0.5, 30))
    def pause_fails(self, data: st.DataObject, backoff_s: float) -> None:
        if (one := self.world.chosen(data, State.PAUSING)) is not None:
            self.world.set(one, state=State.READY, idle_since=self.world.now)
            self.world.pauses_from = self.world.now + backoff_s
            self.world.step()

    @rule(data=st.data())
    def one_dies(self, data: st.DataObject) -> None:
        """Its calls fail with it."""
        if (one := self.world.chosen(data, *State)) is not None and one.state is not State.STARTING:
            del self.world.instances[one.name]
            self.world.step()

    @rule(data=st.data())
    def one_falls_ill(self, data: st.DataObject) -> None:
        if (one := self.world.chosen(data, State.READY, State.WAKING, State.PAUSED)) is not None:
            self.world.set(one, healthy=False)
            leaving = self.world.step().actions
            assert any(isinstance(action, Leave) and action.name == one.name for action in leaving)

    @rule(data=st.data())
    def one_is_doubted(self, data: st.DataObject) -> None:
        if (one := self.world.chosen(data, State.READY)) is not None:
            self.world.set(one, state=State.WAKING)
            self.world.step()

    @rule(data=st.data())
    def image_is_built_anew(self, data: st.DataObject) -> None:
        if (one := self.world.chosen(data, *State)) is not None:
            self.world.set(one, outdated=True)
            self.world.step()

    @rule(seconds=st.sampled_from([0.5, PAUSE_AFTER_S, 25.0, 61.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        """Also past `next_at`: a loop may be late."""
        self.world.now += seconds
        self.world.step()

    @precondition(lambda self: self.world.last.next_at is not None)
    @rule(share=st.floats(0.01, 0.99))
    def nothing_changes_before_next_at(self, share: float) -> None:
        at = self.world.last.next_at
        assert at is not None
        assert at > self.world.now
        between = self.world.now + (at - self.world.now) * share
        if between < at:
            self.world.now = between
            assert self.world.decide().actions == ()

    @invariant()
    def limits_hold(self) -> None:
        """B4: never more at work than `containers`, never more in all than those and the spares."""
        pool, all_of_them = self.world.pool, self.world.instances.values()
        assert len(all_of_them) <= most_containers(pool)
        assert sum(one.at_work for one in all_of_them) <= pool.containers
        assert sum(one.running for one in all_of_them) <= most_running(pool)
        for one in all_of_them:
            assert 0 <= one.running <= per_container(pool)
            assert pool.max_tasks is None or one.taken <= pool.max_tasks

    @invariant()
    def no_call_waits_beside_room(self) -> None:
        pool, all_of_them = self.world.pool, self.world.instances.values()
        if not self.world.waiting or sum(one.running for one in all_of_them) == most_running(pool):
            return
        full = sum(one.at_work for one in all_of_them) == pool.containers
        for one in all_of_them:
            if one.state is State.READY and room(pool, one):
                assert (full, one.running) == (True, 0), f"{one} has room"

    @invariant()
    def somebody_is_on_the_way_to_who_waits(self) -> None:
        world = self.world
        running = sum(one.running for one in world.instances.values())
        if world.waiting and not running and world.now >= world.tries_from:
            assert any(one.state in UNDER_WAY for one in world.instances.values())

    def teardown(self) -> None:
        """Every demand is served in the end, and then only the warm ones are left, asleep."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for _ in range(400):
            if not world.waiting and not any(one.running for one in world.instances.values()):
                break
            world.now += 31.0
            for one in list(world.instances.values()):
                world.finish(one)
            world.step()
            for one in list(world.instances.values()):
                while world.instances[one.name].running:
                    world.release(world.instances[one.name])
            world.step()
        assert world.waiting == 0
        settle(world)


def settle(world: Containers) -> None:
    """Nobody asks any more."""
    pool = replace(world.pool, max_age_s=None)  # age alone makes work for ever
    world.pool = pool
    for _ in range(60):
        world.now += 100.0
        for one in list(world.instances.values()):
            world.finish(one)
        world.step()
    states = [one.state for one in world.instances.values()]
    asleep = states.count(State.PAUSED)
    assert asleep >= pool.warm
    if pool.idle_s:  # else none goes for want of calls, and one that could not be woken stays asleep
        assert len(states) == asleep == pool.warm
        assert world.last.next_at is None  # nothing to wake up for


def held(pool: Pool, waiting: int, now: float, *instances: Instance) -> Containers:
    world = Containers(pool)
    world.now, world.waiting = now, waiting
    world.instances = {one.name: one for one in instances}
    return world


def test_a_fresh_one_does_not_go_for_idleness_while_an_old_one_will_be_replaced() -> None:
    """Else another would have to be started for it at once."""
    world = held(
        Pool(containers=4, warm=2, idle_s=600.0),
        0,
        1705.0,
        Instance("starts", State.STARTING, 1000.0, 1000.0, outdated=True),
        Instance("old", State.PAUSING, 1000.0, 1000.0, outdated=True),
        Instance("idle", State.PAUSED, 1000.0, 1000.0),
        Instance("new", State.READY, 1704.0, 1704.0),
    )
    assert world.step().actions == ()
    world.finish(world.instances["old"])
    assert world.step().actions == (Leave("old", "its image was built anew"), Stop("old"))


def test_who_is_replaced_leaves_its_place_to_another_in_the_same_decision() -> None:
    """An old one that is in doubt can take no more calls: those that wait go to the next one now."""
    world = held(
        Pool(containers=1, concurrency=3, warm=2, idle_s=30.0, max_age_s=60.0),
        7,
        1869.0,
        Instance("old", State.PAUSED, 1753.0, 1813.0, running=2, taken=3),
        Instance("one", State.READY, 1838.0, 1869.0),
        Instance("other", State.READY, 1838.0, 1869.0),
    )
    assert world.step().actions == (Leave("old", "it is too old (max_age_s)"), Give("one"))


PoolMachine.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
test_pool_machine = PoolMachine.TestCase


@given(
    pool=st.builds(
        Pool,
        containers=st.integers(1, 4),
        concurrency=st.integers(1, 3),
        warm=st.integers(0, 2),
        max_age_s=st.just(60.0),
    ),
    calls=st.integers(0, 12),
    ages=st.lists(st.sampled_from([0.0, 59.0, 60.0, 500.0]), min_size=1, max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_replacing_old_ones_leaves_room_for_the_calls(pool: Pool, calls: int, ages: list[float]) -> None:
    """Recycling never drops below what demand needs where a second container is allowed, and ends."""
    world = Containers(pool)
    for number, age_s in enumerate(ages[: pool.containers]):
        name = f"old{number}"
        world.instances[name] = Instance(name, State.READY, world.now - age_s, world.now)
    first = list(world.instances)
    world.waiting = min(calls, most_running(pool))
    for _ in range(60):
        world.step()
        held = world.waiting + sum(one.running for one in world.instances.values())
        needed = min(len(first), -(-held // pool.concurrency))
        if most_containers(pool) > 1:
            able = [one for one in world.instances.values() if one.state in (State.READY, State.PAUSED)]
            assert len(able) + sum(one.state is State.WAKING for one in world.instances.values()) >= needed
        for one in list(world.instances.values()):
            world.finish(one)
        world.step()
        for one in list(world.instances.values()):  # a call ends and the next one comes: demand stays
            if one.running and not one.stays:
                world.release(one)
                world.waiting += 1
    assert not [one for one in world.instances.values() if is_old(pool, one, world.now)]


def test_a_fresh_container_for_each_task() -> None:
    """`max_tasks = 1`: four at a time, none twice, and the next one is made while they work."""
    world = Containers(Pool(containers=4, concurrency=8, max_tasks=1))
    world.waiting = 20
    served: list[str] = []
    while world.waiting or any(one.running for one in world.instances.values()):
        served += [action.name for action in world.step().actions if isinstance(action, Give)]
        assert sum(one.running for one in world.instances.values()) <= 4
        for one in list(world.instances.values()):
            if one.running:
                world.release(one)
            else:
                world.finish(one)
    assert len(served) == len(set(served)) == 20


def test_the_one_with_the_fewest_calls_takes_the_next() -> None:
    world = Containers(Pool(containers=2, concurrency=3))
    for name in ("a", "b"):
        world.instances[name] = Instance(name, State.READY, world.now, world.now)
    given_to = []
    for _ in range(6):
        world.waiting = 1
        given_to += [action.name for action in world.step().actions if isinstance(action, Give)]
    assert sorted(given_to[:2]) == sorted(given_to[2:4]) == sorted(given_to[4:]) == ["a", "b"]


def test_a_paused_one_is_woken_and_another_started_in_its_place() -> None:
    world = Containers(Pool(containers=2, concurrency=1, warm=1))
    world.instances["a"] = Instance("a", State.PAUSED, world.now, world.now)
    world.waiting = 1
    assert world.step().actions == (Wake("a"), Start(1))


def test_calls_in_a_container_that_leaves_count() -> None:
    """`containers × concurrency` is the most that runs, also while one is replaced."""
    world = Containers(Pool(containers=1, concurrency=2, warm=1, max_tasks=2))
    for name in ("a", "b"):
        world.instances[name] = Instance(name, State.READY, world.now, world.now)
    world.waiting = 4
    world.step()
    assert sorted(one.running for one in world.instances.values()) == [0, 2]
    busy = next(one for one in world.instances.values() if one.running)
    assert busy.state is State.LEAVING
    world.release(busy)
    assert [type(action) for action in world.step().actions] == [Give]


def test_the_only_container_is_gone_before_the_next_comes() -> None:
    """With `containers = 1` and none warm there are never two, not even while one is replaced."""
    world = Containers(Pool(containers=1, max_age_s=60.0))
    world.instances["a"] = Instance("a", State.READY, world.now - 61, world.now, running=1)
    world.waiting = 1
    assert [type(action) for action in world.step().actions] == [Give, Leave]
    world.waiting = 1
    world.step()
    assert list(world.instances) == ["a"]
    world.release(world.instances["a"])
    world.release(world.instances["a"])
    world.step()
    assert world.instances["a"].state is State.STOPPING
    world.finish(world.instances["a"])
    assert world.step().actions == (Start(1),)
