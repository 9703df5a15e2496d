"""A9, A4: no run waits for ever for its own calls: random plants that pass the checks are played, with faults.

The same plants do deadlock when a check is left out, so these tests can fail.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from penstock.config import Config, TaskChecker, read_document
from penstock.config.own_calls import own_lanes
from penstock.errors import ConfigError, TaskError
from penstock.model import CHAT_CALL, Task
from tests.simulation.own_calls import Life, read_unchecked

SOAK = bool(os.environ.get("PENSTOCK_SOAK"))
BLOCKS = 8
PER_BLOCK = 2_500 if SOAK else 40
KINDS = ("prompt", "report")
LANES = ("default", "fpf", "gptr", "plain", "calls", "own")


def random_document(chance: Random) -> dict[str, Any]:
    """A plant as users may write it, good or bad."""
    hosts: dict[str, Any] = {}
    for n in range(chance.randint(1, 3)):
        host: dict[str, Any] = {"type": "openai", "url": f"http://m{n}/v1", "serves": ["chat", "work"]}
        host["slots"] = chance.choice([1, 2, 3, {"auto": True, "min": 1, "max": 4}])
        host |= {"model": chance.choice(["a", "b"])} if chance.random() < 0.7 else {}
        host |= {"rate": {"requests_per_min": chance.randint(1, 30)}} if chance.random() < 0.2 else {}
        if chance.random() < 0.2:
            host["fallback"] = {"after_s": chance.choice([0, 5, 60])}
            host["fallback"] |= (
                {"budget_usd_per_day": chance.choice([0, 0.05, 5])} if chance.random() < 0.5 else {}
            )
        host |= {"calls": False} if chance.random() < 0.1 else {}
        hosts[f"m{n}"] = host
    lanes: dict[str, Any] = {}
    for name in LANES:
        if name not in ("calls", "own") or chance.random() < 0.5:
            lanes[name] = random_lane(chance, hosts)
    for kind in KINDS[: chance.randint(1, 2)]:
        run: dict[str, Any] = {"type": "file_prompt", "serves": [kind], "slots": chance.randint(1, 6)}
        run |= {"model": chance.choice(["a", "b"])} if chance.random() < 0.5 else {}
        run |= {"calls_lane": "own"} if "own" in lanes and chance.random() < 0.5 else {}
        hosts[kind] = run
    gates = {}
    for n in range(chance.choice([0, 0, 1, 2])):
        held = chance.choice(["lanes", "kinds", "hosts"])
        kinds = [CHAT_CALL, "chat", "work", *KINDS[:1]]
        names = {"lanes": list(lanes), "kinds": kinds, "hosts": list(hosts)}[held]
        gates[f"g{n}"] = {
            "lane": chance.choice(list(lanes)),
            "max_running": chance.randint(0, 3),
            "holds": {held: [chance.choice(names)]},
        }
    document: dict[str, Any] = {
        "hosts": hosts,
        "lanes": lanes,
        "gates": gates,
        "aging_s": chance.choice([5, 300]),
    }
    if chance.random() < 0.3:
        document["prices"] = {"a": {"input": 1.0}}
    return document


def random_lane(chance: Random, hosts: dict[str, Any]) -> dict[str, Any]:
    lane: dict[str, Any] = {}
    if chance.random() < 0.5:
        lane["max_running"] = chance.randint(1, 3)
    if chance.random() < 0.15:
        lane["reserve"] = {chance.choice(list(hosts)): 1}
    if chance.random() < 0.1:
        lane["budget_usd_per_day"] = chance.choice([0, 0.05])
    return lane


def random_tasks(chance: Random, config: Config) -> list[Task]:
    lanes = [lane.name for lane in config.plant.lanes]
    tasks = []
    for n in range(chance.randint(3, 14)):
        kind = chance.choice([*KINDS, "work"]) if n else KINDS[0]
        model = chance.choice([None, None, "a", "b"])
        needs = {"slots": 2.0} if kind == "work" and chance.random() < 0.3 else None
        lane, priority = chance.choice(lanes), chance.randint(0, 4)
        tasks.append(Task(kind, id=f"t{n}", lane=lane, model=model, needs=needs, priority=priority))
    return tasks


def fitting(config: Config, tasks: list[Task]) -> list[Task]:
    checker = TaskChecker(config)
    found = []
    for task in tasks:
        try:
            checker.check(task)
        except TaskError:
            continue
        found.append(task)
    return found


def lived(
    config: Config, tasks: list[Task], seed: int, *, faults: bool, checked: bool, life: type[Life] = Life
) -> Life:
    chance = Random(seed)
    played = life(config, seed, faults=faults, checked=checked)
    for task in tasks:
        played.submit(task, chance.choice([0.0, chance.uniform(0, 60)]))
    if faults:
        for host in config.plant.hosts:
            if chance.random() < 0.3:
                played.trouble(host.name, chance.uniform(0, 60), chance.uniform(1, 600))
            if host.type == "openai" and chance.random() < 0.2:
                played.resize(host.name, 1, chance.uniform(0, 60), chance.uniform(1, 600))
        if chance.random() < 0.3:
            scope, name = chance.choice([("all", ""), ("lane", chance.choice(own_lanes(config.plant)))])
            played.pause(scope, name, chance.uniform(0, 60), chance.uniform(1, 600))
        for task in tasks:
            if chance.random() < 0.1:
                played.cancel(task.id, chance.uniform(0, 120))
    return played


def ends(seed: int) -> bool:
    """Play that plant, if it is a good one, and see that every run ends."""
    chance = Random(seed)
    try:
        config = read_document(random_document(chance))
    except ConfigError:
        return False
    tasks = fitting(config, random_tasks(chance, config))
    life = lived(config, tasks, seed, faults=seed % 3 > 0, checked=True)
    life.play()
    assert not life.stuck(), f"seed {seed}: {life.stuck()}"
    left = [task.id for task in tasks if task.kind in KINDS and task.id not in life.ended]
    assert not left, f"seed {seed}: {left} never ended"
    return bool(tasks)


@pytest.mark.parametrize("seed", [18_777, 3571])
def test_a_task_whose_lane_is_full_keeps_no_room_from_the_calls_of_what_fills_it(seed: int) -> None:
    """Of 20,000 plants these two stood still for ever."""
    assert ends(seed)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_run_ends_in_random_plants_with_faults(block: int) -> None:
    played = sum(ends(seed) for seed in range(block * PER_BLOCK, (block + 1) * PER_BLOCK))
    assert played > PER_BLOCK // 4  # most plants are good ones


@pytest.mark.parametrize("block", range(2))
def test_what_runs_is_finished_when_the_dispatcher_is_told_to_stop(block: int) -> None:
    """Nothing starts any more but the calls of what runs; afterwards nothing runs."""
    for seed in range(block * PER_BLOCK, (block + 1) * PER_BLOCK):
        chance = Random(seed)
        try:
            config = read_document(random_document(chance))
        except ConfigError:
            continue
        life = lived(config, fitting(config, random_tasks(chance, config)), seed, faults=False, checked=True)
        life.drain(chance.uniform(0, 30))
        life.play()
        assert not life.scheduler.running(), f"seed {seed}: {life.stuck()}"


def test_the_same_plants_deadlock_without_the_checks() -> None:
    """So the plants above would show a deadlock, if there were one."""
    stuck = 0
    for seed in range(PER_BLOCK * 2):
        chance = Random(seed)
        config = read_unchecked(random_document(chance))
        life = lived(config, random_tasks(chance, config), seed, faults=False, checked=False)
        life.play()
        stuck += bool(life.stuck())
    assert stuck > PER_BLOCK // 10


# ---- one check at a time

MODEL: dict[str, Any] = {"type": "openai", "url": "http://m/v1", "model": "a", "slots": 2, "serves": ["chat"]}
PROMPTS: dict[str, Any] = {"type": "file_prompt", "serves": ["prompt"], "slots": 8}


def plant(**more: Any) -> dict[str, Any]:
    return {"hosts": {"m": MODEL, "prompts": PROMPTS}, "lanes": {"fpf": {}, "calls": {}}} | more


def gate(**holds: list[str]) -> dict[str, Any]:
    return {"g": {"lane": "fpf", "max_running": 1, "holds": holds}}


CIRCLES = {
    "runs fill the lane of their calls": (plant(lanes={"calls": {"max_running": 4}}), "calls"),
    "a gate on runs holds the lane of calls": (plant(gates=gate(lanes=["calls"])), "fpf"),
    "a gate on runs holds calls by kind": (plant(gates=gate(kinds=["call/chat"])), "fpf"),
    "a gate on runs holds the model's host": (plant(gates=gate(hosts=["m"])), "fpf"),
    "reserves leave calls no slot": (plant(lanes={"fpf": {}, "vip": {"reserve": {"m": 2}}}), "fpf"),
    "the model's host is our own door": (
        plant(hosts={"m": MODEL | {"url": "http://127.0.0.1:8787/v1"}, "prompts": PROMPTS}),
        "fpf",
    ),
    "no money for any call": (
        plant(lanes={"fpf": {}, "calls": {"budget_usd_per_day": 0}}, prices={"a": {"input": 1.0}}),
        "fpf",
    ),
}


@pytest.mark.parametrize("circle", CIRCLES)
def test_each_check_keeps_a_deadlock_away(circle: str) -> None:
    document, lane = CIRCLES[circle]
    tasks = [Task("prompt", id=f"t{n}", lane=lane) for n in range(6)]
    life = lived(read_unchecked(document), tasks, 1, faults=False, checked=False)
    life.play()
    assert life.stuck(), "without the check it must deadlock, or the check is for nothing"
    try:
        left = fitting(read_document(document), tasks)
    except ConfigError:
        left = []
    assert not left


def test_a_stop_that_holds_the_calls_of_what_runs_never_ends() -> None:
    config = read_document(plant())
    tasks = [Task("prompt", id=f"t{n}", lane="fpf") for n in range(6)]
    for carries_on in (False, True):
        life = lived(config, tasks, 1, faults=False, checked=True)
        life.drain(1.0, carries_on=carries_on)
        life.play()
        assert bool(life.stuck()) is not carries_on


def test_a_host_of_runs_that_took_calls_would_wait_for_itself() -> None:
    """Its slots filled with runs, the calls of those would wait for them."""
    from dataclasses import replace

    config = read_unchecked(plant(hosts={"prompts": PROMPTS | {"model": "a", "slots": 2}}))
    for takes_calls in (True, False):
        hosts = tuple(replace(host, takes_calls=takes_calls) for host in config.plant.hosts)
        changed = replace(config, plant=replace(config.plant, hosts=hosts))
        tasks = [Task("prompt", id=f"t{n}", lane="fpf") for n in range(4)]
        life = lived(changed, tasks, 1, faults=False, checked=False)
        life.play()
        assert bool(life.stuck()) is takes_calls
