"""Asking a council: the task that a question becomes, and what is heard of it where only its tasks are seen.

What is wrong with a question is told before it is kept, by the same rules that its attempt reads it with.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from penstock.config.council_steps import step_key, unmarked
from penstock.config.councils import Council
from penstock.council.choosing import is_record
from penstock.council.conversations import new_conversation
from penstock.council.plan.asking import read_question
from penstock.council.plan.course import partial_record
from penstock.council.plan.steps import Question, Stage, StepEnd
from penstock.errors import TaskError
from penstock.lifecycle import ENDED
from penstock.model import DEFAULT_LANE, DEFAULT_PRIORITY, State, Task, TaskRecord
from penstock.store.base import TaskFilter

FINAL = frozenset({"done", "failed", "cancelled"})
_STATES = {State.QUEUED: "queued", State.RUNNING: "started"}


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked, and how; None: as the council has it."""

    query: str
    mode: str | None = None
    members: Sequence[str] | None = None
    use_rag: bool | None = None
    conversation: str | None = None
    priority: int = DEFAULT_PRIORITY
    lane: str = DEFAULT_LANE

    def options(self) -> dict[str, Any]:
        """All but the query, as `Client.ask` takes them."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "query"}

    def payload(self) -> dict[str, Any]:
        told = {
            "query": self.query,
            "mode": self.mode,
            "members": None if self.members is None else list(self.members),
            "use_rag": self.use_rag,
            "conversation": self.conversation,
        }
        return {name: value for name, value in told.items() if value is not None}


def read_wish(council: Council, wish: Wish, id: str = "", asked_at: float = 0.0) -> Question:
    """The question, with its defaults; TaskError tells all that is wrong with it."""
    return read_question(council, wish.payload(), id, asked_at)


def question_task(council: Council, wish: Wish) -> Task:
    """The task to submit; without a conversation it begins one, so that another question can follow it."""
    if wish.conversation == "":
        raise TaskError(f"council {council.name!r}: `conversation` is empty: give its id, or leave it out")
    read_wish(council, wish)
    conversation = wish.conversation or new_conversation()
    return Task(
        kind=council.kind,
        payload={**wish.payload(), "conversation": conversation},
        priority=wish.priority,
        lane=wish.lane,
        run=conversation,
    )


def query_in(payload: Any) -> str:
    """What was asked, by the payload of a question's task."""
    return str((payload.get("query") if isinstance(payload, Mapping) else payload) or "")


# ---- what is heard of a question through its tasks alone


class Tasks(Protocol):
    async def tasks(self, chosen: TaskFilter) -> list[TaskRecord]: ...


async def so_far(tasks: Tasks, council: Council, record: TaskRecord) -> dict[str, Any] | None:
    """The record of a question that has none of its own, as far as its tasks have come.

    None where it is wrong, or ended before anything was asked.
    """
    task = record.task
    try:
        question = read_question(council, task.payload, task.id, task.queued_at)
    except TaskError:
        return None
    steps = Steps(council, question)
    is_over = record.state in ENDED
    for one in await tasks.tasks(TaskFilter(run=task.run, lane=council.calls_lane, since=task.queued_at)):
        # What was cancelled with the question did not end by itself: its part is as it was before.
        fell = one.state is State.CANCELLED and (one.ended_at or 0.0) >= (record.ended_at or 0.0)
        steps.take(replace(one, state=State.RUNNING) if is_over and fell else one)
    told = steps.record(record.ended_at or time.time())
    if not is_over:
        return told
    return _cut_short(told, record) if steps.has_begun else None


def _cut_short(told: dict[str, Any], record: TaskRecord) -> dict[str, Any]:
    """Marked as what it is: nobody works on the rest of it."""
    for one in told["responses"]:
        if one["state"] == "asked":
            one |= {"state": str(State.CANCELLED), "error": "cancelled with the question"}
    return {**told, "unfinished": record.error or str(record.state)}


class Steps:
    """The steps of a question as the store tells of them: answers are seen whole, when their tasks have ended."""

    def __init__(self, council: Council, question: Question) -> None:
        self._council = council
        self._question = question
        self._asked: dict[str, float] = {}
        self._ended: dict[str, StepEnd] = {}
        self._states: dict[str, str] = {}
        self._tasks: dict[str, str] = {}  # step -> its latest task
        self._before: set[str] = set()  # tasks that another was asked for instead of

    def events(self, record: TaskRecord) -> list[dict[str, Any]]:
        """What is new of a task; nothing where it is no step of the question."""
        step = step_of(self._question.id, record)
        if step is None or record.task.id in self._before:
            return []
        state = _STATES.get(record.state, "ended")
        if self._states.get(record.task.id) == state:
            return []
        self._states[record.task.id] = state
        self.take(record)
        place = place_of(step)
        if state != "ended":
            return [{"event": "step", "at": record.started_at, "state": state, **place}]
        at = self._ended[step].ended_at
        told: list[dict[str, Any]] = [{"event": "step", "at": at, "state": "ended", **place}]
        if place["stage"] == Stage.MEMBERS:
            told += [
                {"event": "answer", "at": at, "step": step, **one}
                for one in self.record(at)["responses"]
                if one["name"] == place["name"]
            ]
        return told

    def take(self, record: TaskRecord) -> None:
        """A task as it is, if it is a step of the question. They come in the order in which they were asked for."""
        step = step_of(self._question.id, record)
        if step is None or record.task.id in self._before:
            return
        if (before := self._tasks.get(step)) is not None and before != record.task.id:
            self._before.add(before)
        self._tasks[step] = record.task.id
        self._asked[step] = record.task.queued_at
        self._ended.pop(step, None)  # it was asked for again
        if record.state not in _STATES:
            self._ended[step] = StepEnd(
                state=record.state,
                queued_at=record.task.queued_at,
                ended_at=record.ended_at or record.task.queued_at,
                started_at=record.started_at,
                value=record.value,
                error=record.error,
                host=record.host,
                attempts=record.attempts,
            )

    @property
    def has_begun(self) -> bool:
        return bool(self._asked)

    def record(self, now: float) -> dict[str, Any]:
        """As far as the question has come."""
        return partial_record(self._council, self._question, self._asked, self._ended, now)


def step_of(question: str, record: TaskRecord) -> str | None:
    """The step of a question that a task is."""
    prefix = step_key(question, "")
    key = record.task.key or ""
    return unmarked(key.removeprefix(prefix)) if key.startswith(prefix) else None


def place_of(step: str) -> dict[str, Any]:
    first, _, rest = step.partition("/")
    stage = Stage.MEMBERS if first == "member" else Stage(first)
    named = stage in (Stage.MEMBERS, Stage.REVIEW, Stage.SYNTHESIS)
    return {"step": step, "name": rest.partition("/")[0] if named else None, "stage": str(stage)}


def final_event(record: TaskRecord) -> dict[str, Any]:
    """How a question ended: with its record, where there is one."""
    name = {State.DONE: "done", State.CANCELLED: "cancelled"}.get(record.state, "failed")
    told = record.value if is_record(record.value) else None
    return {"event": name, "at": record.ended_at, "error": record.error, "record": told}
