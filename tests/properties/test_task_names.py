"""For any task file: run twice it is other tasks with the same names, tied to each other in the same way (E9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.intake.plans import Known, Plan, content_of, resume
from penstock.intake.taskfile import read_file
from penstock.model import State, Task
from penstock.store.ids import new_run

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,8}", fullmatch=True)


@st.composite
def files(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Entries with and without names, some with a matrix, that wait for those before them."""
    names = draw(st.lists(NAMES, max_size=6, unique_by=str.casefold))
    entries: list[dict[str, Any]] = []
    for name in names:
        entry: dict[str, Any] = {"kind": "k", "payload": draw(st.integers(0, 2))}
        if draw(st.booleans()):
            entry["id"] = name
        if known := [one["id"] for one in entries if "id" in one]:
            entry["after"] = draw(st.lists(st.sampled_from(known), max_size=3, unique=True))
        if draw(st.integers(0, 3)) == 0 and not any(name in other for other in names if other != name):
            entry |= {"payload": "{x}", "matrix": {"x": [1, 2, 3]}}
        entries.append(entry)
    return entries


def read(path: Path, run: str) -> Plan:
    file = read_file(path, run=run, now=0.0)
    tasks = file.tasks
    return Plan(run, str(path), tasks, range(len(tasks)), file.places)


def shape(tasks: list[Task], run: str) -> list[Any]:
    """All of them but the run."""
    begin = f"{run}:"
    return [(task.name, task.payload, [other.removeprefix(begin) for other in task.after]) for task in tasks]


@given(entries=files())
def test_e9_the_same_file_twice_is_other_tasks_with_the_same_names(
    tmp_path_factory: Any, entries: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("files") / "tasks.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    runs = new_run(), new_run()
    first, second = (list(read(path, run).todo) for run in runs)
    assert shape(first, runs[0]) == shape(second, runs[1])
    ids = [[task.id for task in tasks if task.id] for tasks in (first, second)]
    assert not set(ids[0]) & set(ids[1])
    assert all(len(set(some)) == len(some) for some in ids)
    assert all(other in ids[0] for task in first for other in task.after), "they wait for their own"


@given(entries=files(), data=st.data())
def test_e9_resume_takes_each_task_once(
    tmp_path_factory: Any, entries: list[dict[str, Any]], data: Any
) -> None:
    """What was done is done, what failed is tried again, what lives goes on, and nothing else is made."""
    path = tmp_path_factory.mktemp("files") / "tasks.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    run = new_run()
    states = [data.draw(st.sampled_from(list(State))) for _ in read(path, run).todo]
    known = {
        task.id or f"t{number}": Known(state, content_of(task), task.after)
        for number, (task, state) in enumerate(zip(read(path, run).todo, states, strict=True))
    }
    plan = resume(read(path, run), known)
    assert plan.resumed is not None
    again = {task.id for task in plan.resumed.again}
    live = {task.id for task in plan.resumed.live}
    assert plan.todo == []
    assert set(plan.resumed.done) == {id for id, one in known.items() if one.state is State.DONE}
    assert live == {id for id, one in known.items() if one.state in (State.QUEUED, State.RUNNING)}
    assert again == set(known) - live - set(plan.resumed.done)
