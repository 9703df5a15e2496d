"""Tasks with outputs, submitted again and again: what is being made is joined, what has ended is made anew.

The key of such a task is its output and the last task that ended with it. While one lives nothing more has ended,
so whoever submits the same file meanwhile, from any process, has the same key and gets the task that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from penstock.model import Task
from penstock.store.base import Store
from penstock.store.ids import new_ids

_LONGEST = 300  # of an output that stands in a key as it is


async def joining(store: Store, tasks: Sequence[Task]) -> list[Task]:
    """The tasks, those with an output under a key of their own and, where theirs is taken, under another id."""
    outputs = [task.output for task in tasks if task.output is not None and task.key is None]
    if not outputs:
        return list(tasks)
    last = await store.ended_of_outputs(outputs)
    taken = list(await store.states(task.id for task in tasks if task.id and task.output is not None))
    ids = dict(zip(taken, new_ids(len(taken)), strict=True))
    return [_joining(task, last, ids) for task in tasks]


def _joining(task: Task, last: dict[str, str], ids: dict[str, str]) -> Task:
    key = task.key
    if task.output is not None and key is None:
        key = _key(task.output, last.get(task.output))
    after = task.after if not ids else tuple(ids.get(other, other) for other in task.after)
    return replace(task, key=key, id=ids.get(task.id, task.id), after=after)


def _key(output: str, last: str | None) -> str:
    name = output if len(output) <= _LONGEST else sha256(output.encode()).hexdigest()
    return f"output {name}" if last is None else f"output {name} after {last}"
