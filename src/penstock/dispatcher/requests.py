"""What clients may ask of the dispatcher, and what it answers: cancel, retry, priority, pause, and others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from penstock.config.council_steps import StepOf, step_of
from penstock.config.own_calls import own_lanes
from penstock.dispatcher.patience import patiently
from penstock.lifecycle import ENDED
from penstock.model import PRIORITIES, OnCrash, Plant, State, Task, TaskRecord
from penstock.scheduling.messages import (
    CancelAsked,
    Event,
    PauseSet,
    PriorityAsked,
    Restored,
    RetryAsked,
    SlotsSet,
)
from penstock.scheduling.scheduler import Scheduler
from penstock.store.base import Answer, Request, Store, TaskFilter

Handled: TypeAlias = tuple[Answer, list[Event]]
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
        self._plant = plant
        self._on_tokens = on_tokens
        self._states_of = states_of
        self._scheduler = scheduler
        self._hosts = {h.name for h in plant.hosts}
        self._auto = {h.name: h.auto for h in plant.hosts}
        self._lanes = {lane.name for lane in plant.lanes}
        self._own_lanes = own_lanes(plant)

    def take_over(self, restored: Restored) -> Restored:
        """What the scheduler begins with, of what the store has."""
        return restored

    async def handle(self, request: Request) -> Handled:
        args = request.args
        if request.verb in ("cancel", "retry", "priority"):
            records = await self._named(args)
            return (records, []) if isinstance(records, Answer) else await self.change(request, records)
        if request.verb in ("pause", "resume"):
            return self._pause(str(args.get("scope")), str(args.get("name", "")), request.verb == "pause")
        if request.verb == "slots":
            return self._slots(str(args.get("host")), args.get("slots"))
        if request.verb == "tokens":
            if self._on_tokens is not None:
                await patiently(
                    self._on_tokens
                )  # whoever is refused from now on is refused before this is answered
            return Answer(True, "read again"), []
        return Answer(False, f"the dispatcher does not know {request.verb!r}"), []

    async def change(self, request: Request, records: Sequence[TaskRecord]) -> Handled:
        """What is asked about these tasks."""
        args = request.args
        if request.verb == "cancel":
            return self._cancel(records)
        if request.verb == "priority":
            return self._priority(records, args.get("priority"), of_a_run="run" in args)
        return await self._retry(records, of_a_run="run" in args)

    async def _named(self, args: Mapping[str, Any]) -> list[TaskRecord] | Answer:
        """The tasks named, or those of a run in the states that allow it."""
        if "run" in args:
            states = tuple(State(s) for s in args.get("states", ()))
            chosen = TaskFilter(run=str(args["run"]), states=states or None)
            return await patiently(lambda: self._store.tasks(chosen))
        asked = [str(task) for task in args.get("tasks", ())]
        found = {one.record.task.id: one.record for one in await self._store.fetch(asked)}
        for task in asked:
            if task not in found:
                return Answer(False, f"there is no task {task!r}")
        return [found[task] for task in asked]

    def _cancel(self, records: Sequence[TaskRecord]) -> Handled:
        said: dict[str, str] = {}
        changed: list[str] = []
        for record in records:
            task = record.task.id
            if not self._scheduler.knows(task):
                said[task] = f"is already {record.state}"
                continue
            said[task] = "stopping" if self._scheduler.waiting_reason(task) is None else "cancelled"
            changed.append(task)
        answer = answer_about(said, changed, all_done=len(changed) == len(records))
        return answer, [CancelAsked(task) for task in changed]

    def _priority(self, records: Sequence[TaskRecord], asked: Any, *, of_a_run: bool) -> Handled:
        """Any live task may be moved, also a step of a question or a call: it is its place in the order alone."""
        if isinstance(asked, bool) or not isinstance(asked, int) or asked not in PRIORITIES:
            return Answer(False, f"priority is {asked!r}; it must be a whole number from 0 to 4"), []
        said: dict[str, str] = {}
        changed: list[str] = []
        fits = 0
        for record in records:
            task = record.task.id
            was = self._scheduler.priority(task)
            if was is None:
                said[task] = f"is already {record.state}"
                fits += of_a_run  # it ended while the run was read
            elif was == asked:
                said[task] = f"has priority {asked} already"
                fits += 1
            else:
                runs = self._scheduler.waiting_reason(task) is None
                later = ", from its next attempt on" if runs else ""
                said[task] = f"has priority {asked} instead of {was}{later}"
                changed.append(task)
        answer = answer_about(said, changed, all_done=len(changed) + fits == len(records))
        return answer, [PriorityAsked(task, asked) for task in changed]

    async def _retry(self, records: Sequence[TaskRecord], *, of_a_run: bool) -> Handled:
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
        changed = [record.task.id for record in wanted]
        answer = answer_about(said, changed, all_done=len(wanted) + left == len(records))
        if not wanted:
            return answer, []
        return answer, [RetryAsked(wanted, await self._states_of({n for r in wanted for n in r.task.after}))]

    def _step_of(self, task: Task) -> StepOf | None:
        """Of a question; by itself it would be paid for, and nobody would read its answer."""
        return step_of(task.key) if task.lane in self._own_lanes else None

    def _pause(self, scope: str, name: str, paused: bool) -> Handled:
        known = {"host": self._hosts, "lane": self._lanes, "all": {""}}.get(scope)
        if known is None or name not in known:
            return Answer(False, f"there is no {scope} {name!r}; known: {', '.join(sorted(known or ()))}"), []
        return Answer(True, "paused" if paused else "resumed"), [PauseSet(scope, name, paused)]

    def _slots(self, host: str, slots: Any) -> Handled:
        if host not in self._hosts:
            return Answer(False, f"there is no host {host!r}; known: {', '.join(sorted(self._hosts))}"), []
        if not isinstance(slots, int) or isinstance(slots, bool) or not 1 <= slots <= _MOST_SLOTS:
            return Answer(False, f"slots must be a whole number from 1 to {_MOST_SLOTS}"), []
        auto = self._auto.get(host)
        if auto is not None and not auto.min <= slots <= auto.max:
            told = f"the slots of {host} tune themselves between {auto.min} and {auto.max}"
            return Answer(False, f"{told}; choose from these, or change its config"), []
        return Answer(True, f"{host} has {slots} slots"), [SlotsSet(host, slots)]


def answer_about(said: Mapping[str, str], changed: Sequence[str], *, all_done: bool) -> Answer:
    detail = "; ".join(f"{task}: {text}" for task, text in list(said.items())[:5])
    return Answer(all_done, detail, {"tasks": dict(said), "changed": list(changed)})
