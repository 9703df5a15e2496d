"""What a conversation is: the questions of one run that all name it. Nobody sees turns of one he did not name.

A question's payload names its conversation, and the run of its task has that name: what merely lies in the same run
is no turn of it. Runs of `/v1` are none, for they hold what everybody asked in a day; chats bring their earlier
turns along. Whoever knows the name of a conversation may follow it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from penstock.council.plan.asking import MAX_TURNS, conversation_problem
from penstock.council.plan.steps import Turn
from penstock.model import State, Task, TaskRecord
from penstock.store.base import TaskFilter
from penstock.store.ids import new_ids

Tasks: TypeAlias = Callable[[TaskFilter], Awaitable[list[TaskRecord]]]  # of a store or a client

_LOOKED_AT = 4 * MAX_TURNS  # the latest of a conversation; some may have been asked later
_PAGE, _MOST_PAGES = 50, 20  # questions that are looked at for one to follow


def new_conversation() -> str:
    return f"c-{new_ids(1)[0]}"


def conversation_of(task: Task) -> str | None:
    """The one that a question's task belongs to."""
    name = task.payload.get("conversation") if isinstance(task.payload, Mapping) else None
    if not isinstance(name, str) or name != task.run or not name:
        return None
    return name if conversation_problem(name) is None else None


async def turns_before(tasks: Tasks, kind: str, conversation: str, at: float) -> list[Turn]:
    """What was answered in a conversation by then, oldest first."""
    if not conversation or conversation_problem(conversation) is not None:
        return []
    wanted = TaskFilter((State.DONE,), conversation, kind, newest=True, limit=_LOOKED_AT)
    turns = [
        turn
        for record in await tasks(wanted)
        if conversation_of(record.task) == conversation
        and record.ended_at is not None
        and record.ended_at <= at
        and (turn := turn_of(record)) is not None
    ]
    return turns[:MAX_TURNS][::-1]


async def newest_answered(tasks: Tasks, kind: str) -> TaskRecord | None:
    """The question to go on from: the latest of a conversation that has an answer."""
    after = None
    for _ in range(_MOST_PAGES):
        page = await tasks(TaskFilter((State.DONE,), kind=kind, limit=_PAGE, after=after, newest=True))
        for record in page:
            if conversation_of(record.task) is not None and turn_of(record) is not None:
                return record
            after = record.number
        if len(page) < _PAGE:
            break
    return None


def turn_of(record: TaskRecord) -> Turn | None:
    """Of a question that is done, where somebody has summed up."""
    told: Any = record.value
    if not isinstance(told, Mapping):
        return None
    query, synthesis = told.get("query"), told.get("synthesis")
    text = synthesis.get("text") if isinstance(synthesis, Mapping) else None
    if not isinstance(query, str) or not isinstance(text, str) or not text:
        return None
    return Turn(query, text)
