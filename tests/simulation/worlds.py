"""Random plants, tasks and faults, all from one seed."""

from __future__ import annotations

import random
from dataclasses import replace

from penstock.model import (
    AutoSlots,
    BreakerRule,
    Fallback,
    Gate,
    Host,
    Lane,
    OnCrash,
    Plant,
    Price,
    Rate,
    RetryRule,
    Task,
)
from penstock.scheduling import messages as m
from tests.simulation.harness import World

KINDS = ("a", "b", "c")
WITHOUT_CALLS = (OnCrash.RETRY, OnCrash.RETRY, OnCrash.BLOCK)  # a call waits after nothing


def random_host(rng: random.Random, i: int) -> Host:
    slots = rng.randint(1, 4)
    auto = AutoSlots(rng.randint(1, slots), slots + rng.randint(0, 4)) if rng.random() < 0.3 else None
    return Host(
        f"h{i}",
        "simulated",
        slots=slots,
        auto=auto,
        units={"vram": rng.choice((8.0, 24.0))} if rng.random() < 0.5 else {},
        serves=("*",) if i == 0 else tuple(rng.sample(KINDS, rng.randint(1, 3))),
        model=rng.choice((None, "m1", "m2")),
        rate=Rate(rng.choice((None, 6.0)), rng.choice((None, 800.0))) if rng.random() < 0.2 else None,
        fallback=Fallback(rng.choice((0.0, 5.0, 20.0)), rng.choice((None, 0.2, 1.0, 5.0)))
        if i and rng.random() < 0.35
        else None,
        prices={"m1": Price(1.0, 1.0)} if rng.random() < 0.15 else {},
        breaker=BreakerRule(rng.randint(1, 3), rng.choice((1.0, 5.0)), 20.0),
    )


def random_plant(rng: random.Random) -> Plant:
    hosts = [random_host(rng, i) for i in range(rng.randint(1, 6))]
    lanes = [Lane("default")]
    for name in ("x", "y", "z")[: rng.randint(0, 3)]:
        reserve = {}
        if rng.random() < 0.3:
            host = rng.choice(hosts)
            taken = sum(lane.reserve.get(host.name, {}).get("slots", 0) for lane in lanes)
            if (host.auto.min if host.auto else host.slots) - taken > 1:
                reserve = {host.name: {"slots": 1.0}}
        lanes.append(
            Lane(
                name,
                max_running=rng.choice((None, 1, 2, 4)),
                reserve=reserve,
                weight=rng.choice((1.0, 2.0, 0.5)),
                budget_usd_per_day=rng.choice((None, None, 0.1, 2.0)),
            )
        )
    names = [lane.name for lane in lanes]
    gates = []
    if rng.random() < 0.5:
        gates.append(
            Gate(
                "room",
                lane=rng.choice(names),
                max_running=rng.randint(0, 3),
                holds_lanes=(rng.choice(names),),
            )
        )
    if rng.random() < 0.5:
        held = rng.choice(hosts).name
        gates.append(
            Gate(
                "probe",
                probe="psutil:cpu_percent",
                max=90.0,
                on_error=rng.choice(("open", "closed")),
                holds_hosts=(held,) if rng.random() < 0.5 else (),
                holds_kinds=("b",),
            )
        )
    return Plant(
        tuple(hosts),
        tuple(lanes),
        tuple(gates),
        aging_s=rng.choice((5.0, 20.0, 100.0)),
        retry=RetryRule(retries=rng.randint(0, 3), base_s=1.0, max_s=8.0, host_faults=rng.randint(2, 8)),
    )


def random_tasks(world: World, rng: random.Random, n: int) -> list[Task]:
    tasks: list[Task] = []
    known = list(world.referee.rows)
    for i in range(n):
        kind = rng.choice(KINDS)
        needs: dict[str, float] | None = None
        biggest = max(world.plant.hosts[0].slots, 1)
        if rng.random() < 0.2:
            reserved = sum(
                lane.reserve.get(world.plant.hosts[0].name, {}).get("slots", 0) for lane in world.plant.lanes
            )
            needs = {"slots": max(1, int(rng.randint(1, biggest) - reserved))}
            if world.plant.hosts[0].units and rng.random() < 0.5:
                needs["vram"] = rng.choice((2.0, 8.0))
        elif rng.random() < 0.1:
            needs = {"tokens": 100.0}
        ids = [t.id for t in tasks] + known
        after = tuple(rng.sample(ids, min(len(ids), rng.randint(1, 2)))) if rng.random() < 0.15 else ()
        tasks.append(
            Task(
                kind,
                priority=rng.randint(0, 4),
                lane=rng.choice([lane.name for lane in world.plant.lanes]),
                after=after,
                needs=needs,
                host="h0" if rng.random() < 0.1 else None,
                deadline=world.now + rng.uniform(0, 60) if rng.random() < 0.1 else None,
                not_before=world.now + rng.uniform(0, 15) if rng.random() < 0.1 else None,
                retries=rng.choice((None, 0, 1)),
                on_crash=rng.choice(WITHOUT_CALLS if after else (*WITHOUT_CALLS, OnCrash.CANCEL)),
                id=f"t{world.count + i}",
            )
        )
    return tasks


def fault(world: World, rng: random.Random) -> None:
    """One thing that goes wrong, or that somebody does."""
    host = rng.choice(world.plant.hosts)
    lane = rng.choice(world.plant.lanes).name
    what = rng.choice(
        (
            "death",
            "slots",
            "gate",
            "pause",
            "cancel",
            "clock",
            "back",
            "end",
            "revive",
            "put-back",
            "priority",
            "why",
        )
    )
    if what == "death":
        world.step([m.HostHealth(host.name, False, "it died")])
        world.later(rng.uniform(0, 20), m.HostHealth(host.name, True))
    elif what == "slots":
        world.step([m.SlotsSet(host.name, rng.randint(1, 6))])
    elif what == "gate":
        for gate in world.plant.gates:
            if gate.probe:
                value = rng.choice((None, 10.0, 95.0))
                world.step([m.GateRead(gate.name, value, "" if value is not None else "no answer")])
    elif what == "pause":
        scope, name = rng.choice((("all", ""), ("host", host.name), ("lane", lane)))
        world.step([m.PauseSet(scope, name, True)])
        world.later(rng.uniform(0, 10), m.PauseSet(scope, name, False))
    elif what == "cancel":
        live = sorted(world.referee.live)
        if live:
            world.step([m.CancelAsked(rng.choice(live))])
    elif what == "clock":
        world.leap(rng.choice((0.5, 60.0, 4000.0, 86_400.0)))
        world.step([m.Tick()])
    elif what == "back":
        # The clock is set back: the scheduler must hold on to the time it knows.
        world.truth.hear([m.Tick()], world.now)
        world.act(world.scheduler.apply(m.Tick(), world.now - 3600))
    elif what == "end":
        end_dispatcher(world, rng)
    elif what == "revive":
        gone = world.revivable()
        world.revive(rng.sample(gone, min(len(gone), rng.choice((1, 3, 20)))))
    elif what == "priority":
        live = sorted(world.referee.live)
        world.reprioritize(rng.sample(live, min(len(live), rng.choice((1, 3, 20)))), rng.randint(0, 4))
    elif what == "why":
        world.explain([*world.referee.live, *world.truth.unseen])  # the others are asked for at the end
    elif world.referee.running:
        task = rng.choice(sorted(world.referee.running))
        world.step([m.PutBack(task, world.referee.running[task].attempts)])


def end_dispatcher(world: World, rng: random.Random) -> None:
    """It dies, stops in order, or dies and a request is answered before the next one begins."""
    down_s, taking_s = rng.choice((0.001, 3.0, 30.0)), rng.choice((0.0, 0.4))
    how = rng.random()
    if how < 0.6:
        world.crash(down_s, taking_s, random_tasks(world, rng, rng.choice((0, 0, 2))))
    elif how < 0.85:
        world.stop(down_s, rng.choice((0, 2, 5)), taking_s)
    else:
        live = sorted(world.referee.live) or [""]
        lane = rng.choice(world.plant.lanes).name
        world.answer(
            down_s,
            taking_s,
            rng.choice(
                (
                    m.CancelAsked(rng.choice(live)),
                    m.PriorityAsked(rng.choice(live), rng.randint(0, 4)),
                    m.PauseSet("lane", lane, False),
                    m.Tick(),
                )
            ),
        )


def play(
    seed: int,
    steps: int = 60,
    *,
    switches: bool = False,
    outlives: bool = False,
    away: float = 0.0,
    late_s: float = 0.0,
) -> World:
    """One whole life of a random world; with `switches` its dispatchers are by turns those of threads.

    With `outlives` attempts on some of its hosts may outlive their dispatcher. `away` is how often its store is;
    then attempts may begin late, and their ends be heard of late. With `late_s` they may only begin late.
    """
    rng = random.Random(seed)
    plant = random_plant(rng)
    if switches:
        plant = replace(plant, thread_per_kind=rng.random() < 0.7)
    world = World(plant, rng)
    world.switches = switches
    world.late_s = late_s or 40 * away
    world.unheard_s = 40 * away
    if outlives:
        world.outliving = frozenset(h.name for h in plant.hosts if rng.random() < 0.8)
    for _ in range(steps):
        chance = rng.random()
        if away and rng.random() < away:
            noticed_s = rng.choice((0.0, rng.uniform(0, 2)))
            world.step([m.StoreAway("full", max(world.truth.born_at, world.now - noticed_s))])
            world.later(rng.uniform(0, 20), m.StoreAway(None))
        if chance < 0.25:
            taking_s = rng.choice((0.0, 0.0, 0.3))
            world.submit(random_tasks(world, rng, rng.choice((1, 1, 3, 12))), taking_s)
        elif chance < 0.4:
            (end_dispatcher if outlives and chance < 0.3 else fault)(world, rng)
        elif not world.advance():
            world.submit(random_tasks(world, rng, 2))
    world.finish()
    return world
