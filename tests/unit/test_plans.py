"""What is left to do of a task file, under which run, and where in the file a refusal is told (E9)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import TaskError, TaskRefused
from penstock.intake.plans import Known, Plan, content_of, resume
from penstock.intake.taskfile import read_file
from penstock.model import State, Task


def plan_of(path: Path, run: str = "r") -> Plan:
    file = read_file(path, run=run, now=0.0)
    tasks = file.tasks
    return Plan(run, str(path), tasks, range(len(tasks)), file.places)


def jsonl(folder: Path, *entries: Mapping[str, Any]) -> Path:
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps({"kind": "k", **entry}) + "\n" for entry in entries))
    return path


def known(plan: Plan, **states: State) -> dict[str, Known]:
    """A run that was made of this plan, its tasks in these states; others are done."""
    found = {}
    for number, task in enumerate(plan.todo):
        id = task.id or f"made{number}"
        found[id] = Known(states.get(task.name or id, State.DONE), content_of(task), task.after)
    return found


def test_names_become_ids_of_the_run(tmp_path: Path) -> None:
    plan = plan_of(jsonl(tmp_path, {"id": "a"}, {"id": "b", "after": ["a", "elsewhere", "q:a"]}, {}))
    assert [(task.id, task.name, task.after) for task in plan.todo] == [
        ("r:a", "a", ()),
        ("r:b", "b", ("r:a", "elsewhere", "q:a")),
        ("", None, ()),
    ]


def test_an_entry_with_a_run_of_its_own_has_its_name_there(tmp_path: Path) -> None:
    plan = plan_of(jsonl(tmp_path, {"id": "a", "run": "other"}, {"id": "b", "after": "a"}))
    assert [(task.id, task.name, task.after) for task in plan.todo] == [
        ("other:a", "a", ()),
        ("r:b", "b", ("other:a",)),
    ]


def test_waiting_for_an_entry_with_a_matrix_is_waiting_for_its_tasks(tmp_path: Path) -> None:
    matrix = {"id": "m", "payload": "{x}", "matrix": {"x": [1, 2]}}
    plan = plan_of(jsonl(tmp_path, matrix, {"id": "b", "after": "m"}))
    assert plan.todo[2].after == ("r:m-1", "r:m-2")


@pytest.mark.parametrize("name", ["a:b", "a b", "-a", "x" * 129])
def test_what_cannot_be_a_name_is_told_with_its_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(TaskError, match=r"tasks\.jsonl:2: id: .* cannot be used: letters, digits"):
        plan_of(jsonl(tmp_path, {"id": "a"}, {"id": name}))


def test_a_name_that_is_too_long_with_its_run_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(
        TaskError, match=r"tasks\.jsonl:2: id: with the name of its run it is longer than 200"
    ):
        plan_of(jsonl(tmp_path, {"id": "a"}, {"id": "x" * 120}), run="r" * 120)


YAML = """\
defaults: {kind: k}
tasks:
  - id: a
  - payload: 1
    id: b
    after: nobody
"""
TOML = """\
[[tasks]]
kind = "k"
id = "a"

[[tasks]]
kind = "k"
id = "b"
after = "nobody"
"""


@pytest.mark.parametrize(
    ("name", "text", "id_line", "after_line"),
    [("tasks.yaml", YAML, 5, 6), ("tasks.toml", TOML, 7, 8), ("tasks.jsonl", None, 2, 2)],
)
def test_a_refusal_of_the_store_is_told_with_file_and_line(
    tmp_path: Path, name: str, text: str | None, id_line: int, after_line: int
) -> None:
    path = tmp_path / name
    if text is None:
        jsonl(tmp_path, {"id": "a"}, {"id": "b", "after": "nobody"})
    else:
        path.write_text(text)
    plan = plan_of(path)
    plan = replace(plan, todo=plan.todo[1:], numbers=plan.numbers[1:])  # the place in the file is another one
    told = str(plan.refusal(TaskRefused(0, 1, "after names 'nobody', which no task has", "after")))
    assert told.endswith(f"{name}:{after_line}: after: names 'nobody', which no task has; correct it")
    told = str(plan.refusal(TaskRefused(0, 1, "the store already has a task r:b; …", "id")))
    assert f"{name}:{id_line}: id: run 'r' has a task 'b' already; " in told
    assert told.endswith("--resume")


def test_resume_does_what_is_not_done(tmp_path: Path) -> None:
    names = ("done", "failed", "cancelled", "blocked", "queued", "running")
    path = jsonl(tmp_path, *({"id": name} for name in names))
    was = known(plan_of(path), **{name: State(name) for name in names if name != "done"})
    plan = resume(plan_of(jsonl(tmp_path, *({"id": name} for name in (*names, "new")))), was)
    assert plan.resumed is not None
    assert plan.resumed.done == ["r:done"]
    assert [task.id for task in plan.resumed.again] == ["r:failed", "r:cancelled", "r:blocked"]
    assert [task.id for task in plan.resumed.live] == ["r:queued", "r:running"]
    assert [task.id for task in plan.todo] == ["r:new"]
    assert list(plan.numbers) == [6]
    assert [task.name for task in plan.tasks] == [
        "failed",
        "cancelled",
        "blocked",
        "queued",
        "running",
        "new",
    ]


def test_tasks_without_a_name_are_known_by_what_they_are(tmp_path: Path) -> None:
    """Each is one of the run's, however often it comes; where it stands in the file says nothing."""
    one, two = {"payload": {"text": "one"}}, {"payload": {"text": "two"}}
    was = known(plan_of(jsonl(tmp_path, one, two, two)), made1=State.FAILED)
    plan = resume(plan_of(jsonl(tmp_path, {"payload": "new"}, two, two, two, {**one, "priority": 0})), was)
    assert plan.resumed is not None
    assert [task.id for task in plan.resumed.again] == ["made1"]
    assert sorted(plan.resumed.done) == ["made0", "made2"]
    assert [task.payload for task in plan.todo] == ["new", {"text": "two"}]


@pytest.mark.parametrize("state", [State.DONE, State.FAILED, State.QUEUED])
@pytest.mark.parametrize(
    "change", [{"payload": 2}, {"model": "m"}, {"timeout_s": 3}, {"needs": {"vram_gb": 1}}]
)
def test_a_task_with_a_name_that_is_another_now_is_told_with_its_line(
    tmp_path: Path, state: State, change: dict[str, Any]
) -> None:
    was = known(plan_of(jsonl(tmp_path, {}, {"id": "a", "payload": 1})), a=state)
    plan = plan_of(jsonl(tmp_path, {}, {"id": "a", "payload": 1, **change}))
    with pytest.raises(TaskError, match=r"tasks\.jsonl:2: id: 'a' is not what it was in run 'r'"):
        resume(plan, was)


def test_what_does_not_change_the_work_may_be_changed(tmp_path: Path) -> None:
    was = known(plan_of(jsonl(tmp_path, {"id": "a", "timeout_s": 3, "needs": {"b": 1, "a": 2}})))
    stored = {"timeout_s": 3.0, "needs": {"a": 2.0, "b": 1.0}}  # as the store gives it back
    plan = plan_of(jsonl(tmp_path, {"id": "a", "priority": 0, "not_before": "+5m", "key": "k", **stored}))
    assert resume(plan, was).tasks == []


def test_a_task_that_would_wait_for_another_one_now_is_refused(tmp_path: Path) -> None:
    """Of those that are to be tried again: what is queued waits for what it was told."""
    entries: list[dict[str, Any]] = [{"id": "a"}, {"id": "b"}, {"id": "c", "after": ["a"]}]
    was = known(plan_of(jsonl(tmp_path, *entries)), a=State.FAILED, b=State.FAILED, c=State.BLOCKED)
    plan = plan_of(jsonl(tmp_path, *entries[:2], {"id": "c", "after": ["b"]}))
    with pytest.raises(TaskError, match="another after"):
        resume(plan, was)
    done = {**was, "r:b": was["r:b"]._replace(state=State.DONE)}
    plan = plan_of(jsonl(tmp_path, *entries[:2], {"id": "c", "after": ["a", "b"]}))
    assert resume(plan, done).resumed is not None, "to wait for what is done is to wait for nothing"


def test_an_output_that_is_gone_is_made_again(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"id": "a", "output": "a.md"})
    plan = resume(plan_of(path), known(plan_of(path)))
    assert [task.id for task in plan.todo] == ["r:a"], "under another id in the end: its own is taken"


def test_content_is_the_same_in_every_process() -> None:
    assert content_of(Task("k", {"a": 1})).hex() == content_of(Task("k", {"a": 1}, priority=0)).hex()
    assert content_of(Task("k", {"a": 1})) != content_of(Task("k", {"a": 2}))
