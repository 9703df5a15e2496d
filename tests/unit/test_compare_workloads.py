"""The workloads are what the stories say, and what is worked out of them is right."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.compare import workloads
from penstock.compare.workloads import (
    FORTY,
    LANES,
    SIX,
    SIXTY,
    WORKLOADS,
    Workload,
    duration_s,
    ideal_s,
    one_by_one_s,
    scaled,
)
from penstock.config import TaskChecker, as_document, read_document
from penstock.config.document import Config
from penstock.model import Host, Lane, Plant, Task

EVERY = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)


def test_c10_six_tasks_take_130_s_one_by_one_and_90_s_at_best() -> None:
    assert (one_by_one_s(SIX), ideal_s(SIX)) == (130, 90)
    assert {host.name: host.slots for host in SIX.plant.hosts} == {"surtr": 2, "fenrir": 3, "skadi": 2}
    assert len(SIX.tasks) == 6


def test_c10_forty_tasks_take_200_s_one_by_one_and_100_s_at_best() -> None:
    assert (one_by_one_s(FORTY), ideal_s(FORTY)) == (200, 100)
    assert Counter(task.kind for task in FORTY.tasks) == {"reasoning": 20, "vision": 20}
    assert {task.priority for task in FORTY.tasks} == {0, 1, 2, 3, 4}


def test_forty_tasks_do_not_arrive_in_order_of_priority() -> None:
    priorities = [task.priority for task in FORTY.tasks]
    assert priorities != sorted(priorities)


def test_a3_lanes_have_the_limits_of_the_report_runner() -> None:
    caps = {lane.name: lane.max_running for lane in LANES.plant.lanes}
    assert caps == {"gptr": 11, "ma": 4, "fpf": None}
    assert [(g.name, g.lane, g.max_running, g.holds_lanes) for g in LANES.plant.gates] == [
        ("fpf-headroom", "fpf", 10, ("gptr",))
    ]
    assert LANES.tasks[0].lane == "fpf", "the huge lane comes first"


@EVERY
def test_the_plant_is_a_config_and_takes_every_task(workload: Workload) -> None:
    config = read_document(as_document(Config(plant=workload.plant)))
    for task in workload.tasks:
        TaskChecker(config).check(task)


@EVERY
def test_every_task_has_an_id_of_its_own(workload: Workload) -> None:
    assert len({task.id for task in workload.tasks} - {""}) == len(workload.tasks)


@EVERY
def test_scaling_changes_seconds_and_nothing_else(workload: Workload) -> None:
    half = scaled(workload, 0.5)
    assert ideal_s(half) == pytest.approx(ideal_s(workload) / 2)
    assert half.plant.aging_s == workload.plant.aging_s / 2
    for before, after in zip(workload.tasks, half.tasks, strict=True):
        assert duration_s(after) == duration_s(before) / 2
        rest = {**after.payload, "duration_s": duration_s(before)}
        assert replace(after, payload=rest) == before


def test_results_tell_whose_they_are() -> None:
    assert all(task.payload["value"] == task.id for task in SIXTY.tasks)


def story(plant: Plant, *tasks: Task) -> Workload:
    return Workload("test", "a test", plant, tasks)


def task(kind: str, seconds: float, lane: str = "default") -> Task:
    return Task(kind, {"duration_s": seconds}, lane=lane)


@pytest.mark.parametrize(
    ("workload", "ideal"),
    [
        (story(Plant((Host("a", "x", 4),)), task("k", 9), task("k", 1)), 9),
        (story(Plant((Host("a", "x", 2),)), *[task("k", 4)] * 5), 10),
        (story(Plant((Host("a", "x", 9),), (Lane("l", max_running=2),)), *[task("k", 4, "l")] * 5), 10),
        (
            story(
                Plant((Host("a", "x", 1, serves=("k",)), Host("b", "x", 1, serves=("k", "l")))),
                *[task("k", 6)] * 2,
                *[task("l", 6)] * 2,
            ),
            12,
        ),
        (
            story(
                Plant((Host("a", "x", 5),), (Lane("mine", reserve={"a": {"slots": 3}}), Lane("rest"))),
                *[task("k", 1, "rest")] * 8,
            ),
            4,
        ),
    ],
    ids=["longest", "slots", "cap", "hosts", "reserve"],
)
def test_the_ideal_is_the_tightest_of_its_bounds(workload: Workload, ideal: float) -> None:
    assert ideal_s(workload) == ideal


def test_workloads_are_pure_data() -> None:
    tree = ast.parse(Path(workloads.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"__future__", "collections", "collections.abc", "dataclasses", "penstock.model"}
