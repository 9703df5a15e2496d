"""What clients may ask of the dispatcher, and what it answers: cancel, retry, pause, resume, slots, tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from penstock.config.council_steps import StepOf, step_of
from penstock.config.own_calls import own_lanes
from penstock.lifecycle import ENDED
from penstock.model import OnCrash, Plant, State, Task, TaskRecord
from penstock.scheduling.messages import CancelAsked, Event, PauseSet, RetryAsked, SlotsSet
from penstock.scheduling.scheduler import Scheduler
from penstock.store.base import Answer, Request, Store, TaskFilter

_Handled = tuple[Answer, list[Event]]
OnTokens: TypeAlias = Callable[[], Awaitable[None]]
StatesOf: TypeAlias = Callable[[Collection[str]], Awaitable[Mapping[str, State]]]
_MOST_SLOTS = 100_000


class Desk:
    """Turns a request into events; the answer is given once they are recorded."""

    def __init__(
        self,
        store: Store,
        scheduler: Scheduler,
        plant: Plant,
        states_of: StatesOf,
        on_tokens: OnTokens | None = None,
    ) -> None:
        self._store = store
        self._on_tokens = on_tokens
        self._states_of = states_of
        self._scheduler = scheduler
        self._hosts = {h.name for h in plant.hosts}
        self._auto = {h.name: h.auto for h in plant.hosts}
        self._lanes = {lane.name for lane in plant.lanes}
        self._own_lanes = own_lanes(plant)

    async def handle(self, request: Request) -> _Handled:
        args = request.args
        if request.verb in ("cancel", "retry"):
            records = await self._named(args)
            if isinstance(records, Answer):
                return records, []
            if request.verb == "cancel":
                return self._cancel(records)
            return await self._retry(records, of_a_run="run" in args)
        if request.verb in ("pause", "resume"):
            return self._pause(str(args.get("scope")), str(args.get("name", "")), request.verb == "pause")
        if request.verb == "slots":
            return self._slots(str(args.get("host")), args.get("slots"))
        if request.verb == "tokens":
            if self._on_tokens is not None:
                await self._on_tokens()  # whoever is refused from now on is refused before this is answered
            return Answer(True, "read again"), []
        return Answer(False, f"the dispatcher does not know {request.verb!r}"), []

    async def _named(self, args: Mapping[str, Any]) -> list[TaskRecord] | Answer:
        """The tasks named, or those of a run in the states that allow it."""
        if "run" in args:
            states = tuple(State(s) for s in args.get("states", ()))
            return await self._store.tasks(TaskFilter(run=str(args["run"]), states=states or None))
        records = []
        for task in args.get("tasks", ()):
            record = await self._store.get(str(task))
            if record is None:
                return Answer(False, f"there is no task {task!r}")
            records.append(record)
        return records

    def _cancel(self, records: Sequence[TaskRecord]) -> _Handled:
        said: dict[str, str] = {}
        events: list[Event] = []
        for record in records:
            task = record.task.id
            if not self._scheduler.knows(task):
                said[task] = f"is already {record.state}"
                continue
            said[task] = "stopping" if self._scheduler.waiting_reason(task) is None else "cancelled"
            events.append(CancelAsked(task))
        return _answer(said, all_done=len(events) == len(records)), events

    async def _retry(self, records: Sequence[TaskRecord], *, of_a_run: bool) -> _Handled:
        said: dict[str, str] = {}
        wanted: list[TaskRecord] = []
        left = 0  # steps of questions, which nobody named
        for record in records:
            task = record.task.id
            if (step := self._step_of(record.task)) is not None:
                said[task] = (
                    f"is a step of question {step.question}: retry that one, it asks for what it needs"
                )
                left += of_a_run
                continue
            if record.state is State.DONE or record.state not in ENDED or self._scheduler.knows(task):
                said[task] = f"is {record.state}: only a failed, cancelled or blocked task can be retried"
                continue
            if record.task.on_crash is OnCrash.CANCEL:
                said[task] = "was a call of the front door: whoever made it must make it again"
                continue
            said[task] = "queued again"
            wanted.append(record)
        answer = _answer(said, all_done=len(wanted) + left == len(records))
        if not wanted:
            return answer, []
        return answer, [RetryAsked(wanted, await self._states_of({n for r in wanted for n in r.task.after}))]

    def _step_of(self, task: Task) -> StepOf | None:
        """Of a question; by itself it would be paid for, and nobody would read its answer."""
        return step_of(task.key) if task.lane in self._own_lanes else None

    def _pause(self, scope: str, name: str, paused: bool) -> _Handled:
        known = {"host": self._hosts, "lane": self._lanes, "all": {""}}.get(scope)
        if known is None or name not in known:
            return Answer(False, f"there is no {scope} {name!r}; known: {', '.join(sorted(known or ()))}"), []
        return Answer(True, "paused" if paused else "resumed"), [PauseSet(scope, name, paused)]

    def _slots(self, host: str, slots: Any) -> _Handled:
        if host not in self._hosts:
            return Answer(False, f"there is no host {host!r}; known: {', '.join(sorted(self._hosts))}"), []
        if not isinstance(slots, int) or isinstance(slots, bool) or not 1 <= slots <= _MOST_SLOTS:
            return Answer(False, f"slots must be a whole number from 1 to {_MOST_SLOTS}"), []
        auto = self._auto.get(host)
        if auto is not None and not auto.min <= slots <= auto.max:
            told = f"the slots of {host} tune themselves between {auto.min} and {auto.max}"
            return Answer(False, f"{told}; choose from these, or change its config"), []
        return Answer(True, f"{host} has {slots} slots"), [SlotsSet(host, slots)]


def _answer(said: Mapping[str, str], *, all_done: bool) -> Answer:
    detail = "; ".join(f"{task}: {text}" for task, text in list(said.items())[:5])
    return Answer(all_done, detail, {"tasks": dict(said)})
