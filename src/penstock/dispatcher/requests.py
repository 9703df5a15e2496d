"""What clients may ask of the dispatcher, and what it answers: cancel, retry, pause, resume, slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.lifecycle import ENDED
from penstock.model import Plant, State, TaskRecord
from penstock.scheduling.messages import CancelAsked, Event, PauseSet, RetryAsked, SlotsSet
from penstock.scheduling.scheduler import Scheduler
from penstock.store.base import Answer, Request, Store, TaskFilter

_Handled = tuple[Answer, list[Event]]
_MOST_SLOTS = 100_000


class Desk:
    """Turns a request into events; the answer is given once they are recorded."""

    def __init__(self, store: Store, scheduler: Scheduler, plant: Plant) -> None:
        self._store = store
        self._scheduler = scheduler
        self._hosts = {h.name for h in plant.hosts}
        self._lanes = {lane.name for lane in plant.lanes}

    async def handle(self, request: Request) -> _Handled:
        args = request.args
        if request.verb == "cancel":
            return await self._each(args, self._cancel)
        if request.verb == "retry":
            return await self._each(args, self._retry)
        if request.verb in ("pause", "resume"):
            return self._pause(str(args.get("scope")), str(args.get("name", "")), request.verb == "pause")
        if request.verb == "slots":
            return self._slots(str(args.get("host")), args.get("slots"))
        return Answer(False, f"the dispatcher does not know {request.verb!r}"), []

    async def _each(self, args: Any, handle: Any) -> _Handled:
        """Do it for the tasks named, or for those of a run in the states that allow it."""
        if "run" in args:
            states = tuple(State(s) for s in args.get("states", ()))
            records = await self._store.tasks(TaskFilter(run=str(args["run"]), states=states or None))
        else:
            records = []
            for task in args.get("tasks", ()):
                record = await self._store.get(str(task))
                if record is None:
                    return Answer(False, f"there is no task {task!r}"), []
                records.append(record)
        events: list[Event] = []
        said: dict[str, str] = {}
        ok = True
        for record in records:
            good, text, event = await handle(record)
            said[record.task.id] = text
            ok = ok and good
            if event is not None:
                events.append(event)
        detail = "; ".join(f"{t}: {s}" for t, s in list(said.items())[:5])
        return Answer(ok, detail, {"tasks": said}), events

    async def _cancel(self, record: TaskRecord) -> tuple[bool, str, Event | None]:
        task = record.task.id
        if not self._scheduler.knows(task):
            return False, f"already {record.state}", None
        running = self._scheduler.waiting_reason(task) is None
        return True, "stopping" if running else "cancelled", CancelAsked(task)

    async def _retry(self, record: TaskRecord) -> tuple[bool, str, Event | None]:
        task = record.task
        if record.state is State.DONE or record.state not in ENDED or self._scheduler.knows(task.id):
            return False, f"is {record.state}: only a failed, cancelled or blocked task can be retried", None
        needed: Sequence[str] = [n for n in task.after if not self._scheduler.knows(n)]
        ended = await self._store.states(needed) if needed else {}
        return True, "queued again", RetryAsked(record, ended)

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
        return Answer(True, f"{host} has {slots} slots"), [SlotsSet(host, slots)]
