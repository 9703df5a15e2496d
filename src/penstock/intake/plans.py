"""A task file as a plan: under which run, and what is left to do of it.

The ids of a file are names within its run. In the store a task's id is RUN:NAME, so the same file again is other
tasks. What a file's tasks come after are tasks of the same file by their names, and others by their ids.

`resume` goes on with a run instead: what is done is skipped, what failed is tried again, what is queued goes on,
and what the file has more is added. A task of the file is the run's task of the same name, or of the same content
where it has no name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from penstock.errors import TaskError, TaskRefused
from penstock.intake.taskfile import Places
from penstock.lifecycle import LIVE
from penstock.model import State, Task, id_in_run

_MOST_PROBLEMS = 20
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Plan:
    """A file's tasks: those to submit, and those there is nothing to submit of.

    `file` is where it lies, empty for one that came by a pipe. `numbers` are the places in it of those to submit.
    `joined` has, by output, the id of the task that is about to make it: some of those to submit are that one.
    """

    run: str
    file: str
    todo: Sequence[Task]
    numbers: Sequence[int]
    places: Places
    there: Sequence[Task] = ()  # whose output is there
    joined: Mapping[str, str] = field(default_factory=dict)
    resumed: Resumed | None = None

    @property
    def tasks(self) -> list[Task]:
        """All that is to end: tried again, on their way, and to submit."""
        resumed = self.resumed
        return [*(() if resumed is None else (*resumed.again, *resumed.live)), *self.todo]

    def refusal(self, refused: TaskRefused) -> TaskError:
        """Why the store takes none of them, with the place in the file."""
        number, task = self.numbers[refused.place], self.todo[refused.place]
        what = refused.problem
        if refused.field == "id":
            run = task.run or self.run
            what = (
                f"run {run!r} has a task {task.name or task.id!r} already; name another run with --run, "
                "or do what is left of that one: --resume"
            )
        elif refused.field == "after":
            what = f"{what.removeprefix('after ').replace('of this submit', 'of this file')}; correct it"
        field = f"{refused.field}: " if refused.field else ""
        return TaskError(f"{self.places.of(number, refused.field)}: {field}{what}")


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a run has of a file's tasks already."""

    done: Sequence[str]  # ids
    again: Sequence[Task]  # failed, cancelled or blocked: tried once more
    live: Sequence[Task]


class Known(NamedTuple):
    """A task of a run, as far as it must be known to find it again."""

    state: State
    content: bytes
    after: tuple[str, ...]


def without_outputs_there(plan: Plan, there: Collection[int]) -> Plan:
    """The plan without the tasks of these numbers. Waiting for one of them is waiting for nothing."""
    if not there:
        return plan
    tasks = plan.todo
    skipped = {tasks[number].id for number in there}
    numbers = [number for number in plan.numbers if number not in there]
    todo = [_without(tasks[number], skipped) for number in numbers]
    return replace(plan, todo=todo, numbers=numbers, there=[tasks[number] for number in sorted(there)])


def _without(task: Task, done: Collection[str]) -> Task:
    if not any(other in done for other in task.after):
        return task
    return replace(task, after=tuple(other for other in task.after if other not in done))


# ---- going on with a run


def content_of(task: Task) -> bytes:
    """What makes a task the work it is; not when it may start, how urgent it is and what it comes after."""
    needs = None if task.needs is None else sorted((unit, float(n)) for unit, n in task.needs.items())
    timeout_s = None if task.timeout_s is None else float(task.timeout_s)
    parts = (
        task.kind,
        task.payload,
        task.lane,
        needs,
        task.host,
        task.model,
        timeout_s,
        task.retries,
        task.output,
    )
    return blake2b(_encode(parts), digest_size=16).digest()


def resume(plan: Plan, known: Mapping[str, Known]) -> Plan:
    """The plan without what the run has: `known` are its tasks, by their ids."""
    unnamed = _Unnamed(known)
    done: list[str] = []
    again: list[Task] = []
    live: list[Task] = []
    numbers: list[int] = []
    added: list[Task] = []
    wrong: list[str] = []
    for number, task in zip(plan.numbers, plan.todo, strict=True):
        id = task.id if task.id in known else unnamed.take(task)
        if id is None:
            numbers.append(number)
            added.append(task)
            continue
        was = known[id]
        if (change := _change(plan, task, was, known)) is not None:
            if len(wrong) < _MOST_PROBLEMS:
                what = f"{task.name or id!r} is not what it was in run {plan.run!r}: another {change}"
                remedy = "give it another id, or run the whole file again without --resume"
                wrong.append(f"{plan.places.of(number, 'id')}: id: {what}; {remedy}")
        elif was.state in LIVE:
            live.append(replace(task, id=id))
        elif was.state is not State.DONE:
            again.append(replace(task, id=id))
        elif task.output is None:
            done.append(id)
        else:  # what it had made is not there any more
            numbers.append(number)
            added.append(task)
    if wrong:
        raise TaskError("\n".join(wrong))
    return replace(plan, todo=added, numbers=numbers, resumed=Resumed(done, again, live))


class _Unnamed:
    """The tasks of a run that have no names, by their content; each is one task of the file."""

    def __init__(self, known: Mapping[str, Known]) -> None:
        self._ids: defaultdict[bytes, list[str]] = defaultdict(list)
        for id, one in reversed(list(known.items())):
            if ":" not in id:
                self._ids[one.content].append(id)

    def take(self, task: Task) -> str | None:
        """Of the same content the first that is not taken."""
        if task.id or not self._ids:
            return None
        ids = self._ids.get(content_of(task))
        return ids.pop() if ids else None


def _change(plan: Plan, task: Task, was: Known, known: Mapping[str, Known]) -> str | None:
    """What of a task with a name is not as it was; a payload that was mended is another task's."""
    if not task.id:
        return None
    if content_of(task) != was.content:
        return "content"
    if was.state is State.DONE:
        return None
    begin = id_in_run(plan.run, "")
    before = {other for other in was.after if other.startswith(begin)}
    now = {other for other in task.after if other.startswith(begin)}
    waits_longer = any(other in known and known[other].state is not State.DONE for other in now - before)
    gone = {one.id for one in plan.there}
    return "after" if waits_longer or before - now - gone else None
