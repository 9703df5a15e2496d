"""D1: no question waits for ever for what it asks: random plants with councils that pass the checks are played.

They are the plants of `test_own_calls.py`, with a council among their hosts: members of any kind, a library that
may ask a model for embeddings, lanes, gates and reserves as chance has them. Without the checks they do deadlock.
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from penstock.config import Config, read_document
from penstock.config.called import speakers
from penstock.config.councils import COUNCIL_TYPE, LIBRARY, LIBRARY_TYPE
from penstock.config.own_calls import calls_lane
from penstock.errors import ConfigError
from penstock.model import EMBEDDING_CALL, Task
from tests.simulation.own_calls import Life, Run, read_unchecked
from tests.simulation.test_own_calls import MODEL, PROMPTS, fitting, lived, random_document

SOAK = bool(os.environ.get("PENSTOCK_SOAK"))
BLOCKS = 4
PER_BLOCK = 2_500 if SOAK else 40
QUESTION = "council-sages"


class QuestionLife(Life):
    """A question asks its members and the library, a few at a time; the library asks for embeddings."""

    def _call(self, run: Run) -> None:
        if run.host.type not in (COUNCIL_TYPE, LIBRARY_TYPE):
            super()._call(run)
            return
        step = self._step(run)
        if self._checked and self._fits.problems(step):
            return  # it has failed at once: the question goes on without
        self._number += 1
        step = replace(step, priority=run.task.priority, id=f"c{self._number}")
        run.open.add(step.id)
        self._callers[step.id] = run.task.id
        self.submit(step)

    def _step(self, run: Run) -> Task:
        lane = calls_lane(run.host)
        if run.host.type == LIBRARY_TYPE:
            retrievals = [council.retrieval for council in self._config.councils.values()]
            model = next(one.embeddings for one in retrievals if one is not None and one.embeddings)
            return Task(EMBEDDING_CALL, lane=lane, model=self._names.asked(model) or model)
        council = self._config.councils[run.host.options["council"]]
        asked = self._chance.choice([None, *speakers(council)])
        if asked is None:
            return Task(LIBRARY, lane=lane)
        meant = None if asked.model is None else self._names.asked(asked.model) or asked.model
        return Task(asked.kind, lane=lane, host=asked.host, model=meant)


def with_council(document: dict[str, Any], chance: Random) -> dict[str, Any]:
    """With members of every kind that the plant has, also of those that no member may be of."""
    kinds = [{"kind": "chat", "model": chance.choice(["a", "b"])}, {"kind": "chat"}, {"kind": "work"}]
    kinds += [{"kind": kind} for kind in ("prompt", "report") if kind in document["hosts"]]
    council: dict[str, Any] = {
        "members": [{"name": f"M{n}", **chance.choice(kinds)} for n in range(chance.randint(1, 4))],
        "slots": chance.randint(1, 6),
    }
    if chance.random() < 0.5:
        embeddings = {"embeddings": chance.choice(["a", "b"])} if chance.random() < 0.7 else {}
        council["retrieval"] = {"collection": "texts", **embeddings}
    if "own" in document["lanes"] and chance.random() < 0.4:
        council["calls_lane"] = "own"
    return document | {"councils": {"sages": council}}


def random_tasks(chance: Random, config: Config) -> list[Task]:
    lanes = [lane.name for lane in config.plant.lanes]
    tasks = []
    for n in range(chance.randint(3, 12)):
        kind = chance.choice([QUESTION, QUESTION, "work", "prompt", LIBRARY]) if n else QUESTION
        tasks.append(Task(kind, id=f"t{n}", lane=chance.choice(lanes), priority=chance.randint(0, 4)))
    return tasks


def document_of(seed: int) -> tuple[dict[str, Any], Random]:
    chance = Random(seed)
    return with_council(random_document(chance), chance), chance


def life_of(config: Config, tasks: list[Task], seed: int, *, faults: bool, checked: bool) -> Life:
    return lived(config, tasks, seed, faults=faults, checked=checked, life=QuestionLife)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_d1_every_question_ends_in_random_plants_with_faults(block: int) -> None:
    played = 0
    for seed in range(block * PER_BLOCK, (block + 1) * PER_BLOCK):
        document, chance = document_of(seed)
        try:
            config = read_document(document)
        except ConfigError:
            continue
        if seed % 4 == 0:  # one thread per kind: one question at a time
            config = replace(config, plant=replace(config.plant, thread_per_kind=True))
        tasks = fitting(config, random_tasks(chance, config))
        life = life_of(config, tasks, seed, faults=seed % 3 > 0, checked=True)
        life.play()
        assert not life.stuck(), f"seed {seed}: {life.stuck()}"
        left = [task.id for task in tasks if task.kind == QUESTION and task.id not in life.ended]
        assert not left, f"seed {seed}: {left} never ended"
        played += any(task.kind == QUESTION for task in tasks)
    assert played > PER_BLOCK // 10


def test_a_question_that_runs_is_finished_when_the_dispatcher_is_told_to_stop() -> None:
    for seed in range(PER_BLOCK):
        document, chance = document_of(seed)
        try:
            config = read_document(document)
        except ConfigError:
            continue
        tasks = fitting(config, random_tasks(chance, config))
        life = life_of(config, tasks, seed, faults=False, checked=True)
        life.drain(chance.uniform(0, 30))
        life.play()
        assert not life.scheduler.running(), f"seed {seed}: {life.stuck()}"


def test_the_same_plants_deadlock_without_the_checks() -> None:
    stuck = 0
    for seed in range(PER_BLOCK * 2):
        document, chance = document_of(seed)
        config = read_unchecked(document)
        life = life_of(config, random_tasks(chance, config), seed, faults=False, checked=False)
        life.play()
        stuck += bool(life.stuck())
    assert stuck > PER_BLOCK // 10


# ---- one check at a time


def plant(*, member: dict[str, Any] | None = None, council: dict[str, Any] | None = None, **more: Any) -> Any:
    made = {"members": [{"name": "A", **(member or {"kind": "chat"})}], "slots": 8, **(council or {})}
    return {"hosts": {"m": MODEL}, "lanes": {"talk": {}}, "councils": {"sages": made}} | more


def gate(lane: str, most: int = 0, **holds: list[str]) -> dict[str, Any]:
    return {"g": {"lane": lane, "max_running": most, "holds": holds}}


CODE: dict[str, Any] = {"type": "simulated", "slots": 2, "serves": ["code"]}
EMBEDS = {"retrieval": {"collection": "texts", "embeddings": "a"}}
CIRCLES: dict[str, Any] = {
    "questions fill the lane of their steps": (plant(lanes={"calls": {"max_running": 2}}), "calls"),
    "a gate on questions holds the lane of steps": (plant(gates=gate("talk", lanes=["calls"])), "talk"),
    "a gate on questions holds a member's kind": (
        plant(
            member={"kind": "code"},
            hosts={"m": MODEL, "c": CODE},
            gates=gate("talk", kinds=["code"]),
        ),
        "talk",
    ),
    "a gate on questions holds a member's host": (plant(gates=gate("talk", hosts=["m"])), "talk"),
    "a gate on questions holds the library": (plant(gates=gate("talk", kinds=[LIBRARY])), "talk"),
    "reserves leave a member no slot": (plant(lanes={"talk": {}, "vip": {"reserve": {"m": 2}}}), "talk"),
    "a member is of a kind of runs": (
        plant(
            member={"kind": "prompt"},
            hosts={"m": MODEL, "prompts": PROMPTS | {"slots": 4}},
            lanes={"talk": {}, "calls": {"max_running": 2}},
        ),
        "talk",
    ),
    "a gate on the lane of steps holds embeddings": (
        plant(council=EMBEDS, gates=gate("calls", kinds=["call/embedding"])),
        "talk",
    ),
    "a gate on the lane of steps holds the host of embeddings": (
        plant(council=EMBEDS, gates=gate("calls", hosts=["m"])),
        "talk",
    ),
}


@pytest.mark.parametrize("circle", CIRCLES)
def test_d1_each_check_keeps_a_deadlock_away(circle: str) -> None:
    document, lane = CIRCLES[circle]
    stuck = 0
    for seed in range(8):
        tasks = [Task(QUESTION, id=f"t{n}", lane=lane) for n in range(8)]
        life = life_of(read_unchecked(document), tasks, seed, faults=False, checked=False)
        life.play()
        stuck += bool(life.stuck())
    assert stuck, "without the check it must deadlock, or the check is for nothing"
    try:
        left = fitting(read_document(document), tasks)
    except ConfigError:
        left = []
    assert not left


def test_the_same_council_without_circles_ends() -> None:
    """So it is the circles above that are refused, not the plant."""
    for more in ({}, {"council": EMBEDS}, {"gates": gate("calls", 2, lanes=["talk"])}):
        config = read_document(plant(**more))
        tasks = [Task(QUESTION, id=f"t{n}", lane="talk") for n in range(8)]
        assert len(fitting(config, tasks)) == 8
        life = life_of(config, tasks, 1, faults=False, checked=True)
        life.play()
        assert not life.stuck()
        assert set(life.ended) >= {task.id for task in tasks}
