"""Tasks as rows of the queue page, each with what it waits for at the moment."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from penstock.client import Client
from penstock.diagnosis.waits import Stay
from penstock.model import State, Task, TaskRecord
from penstock.scheduling.details import Detail
from penstock.scheduling.routes import route_key
from penstock.store.keys import known_as
from penstock.store.now import WaitsFor
from penstock.web.board.tables import At, Badge, Cell, Column, Lasted, Link, Row, Seconds, Soft

_ERROR_WIDTH = 120
COLUMNS = (
    Column("State"),
    Column("Priority", num=True),
    Column("Task", heads=True),
    Column("Kind"),
    Column("Waits for, or error", wide=True),
    Column("Waited", num=True),
    Column("Ran", num=True),
    Column("Lane"),
    Column("Host"),
    Column("Run"),
    Column("Queued"),
    Column("Started"),
    Column("Ended"),
)


async def rows_of(client: Client, records: Sequence[TaskRecord]) -> list[Row]:
    queued = [record.task for record in records if record.state is State.QUEUED]
    waits = await client.waits_now({_route(task) for task in queued}) if queued else {}
    needed = {name for task in queued for name in task.after}
    states = await client.states(needed) if needed else {}
    stays = await client.stays(records)
    return [_row(record, stay, waits, states) for record, stay in zip(records, stays, strict=True)]


def _row(record: TaskRecord, stay: Stay, waits: Mapping[str, WaitsFor], states: Mapping[str, State]) -> Row:
    task = record.task
    is_queued = record.state is State.QUEUED
    started_at = None if is_queued else record.started_at
    name = _name(task)
    cells: list[Cell] = [
        Badge(str(record.state)),
        task.priority,
        Link(name, f"/tasks/{quote(task.id, safe='')}", None if name == task.id else task.id),
        task.kind,
        _why(record, waits, states) if is_queued or record.is_delayed else _shortened(record.error),
        _lasted(stay.waited_s, stay.since if is_queued or record.is_delayed else None),
        None if started_at is None else _lasted(stay.ran_s, None if is_queued else stay.since),
        Link(task.lane, f"/queue?lane={quote(task.lane, safe='')}"),
        _link(record.host or task.host, "host"),
        _link(task.run, "run"),
        At(task.queued_at),
        None if started_at is None else At(started_at),
        None if record.ended_at is None else At(record.ended_at),
    ]
    return Row(cells, key=task.id, name=name)


def _lasted(before_s: float, since: float | None) -> Cell:
    return Seconds(before_s) if since is None else Lasted(since, plus_s=before_s)


def _name(task: Task) -> str:
    if task.name is not None:
        return task.name
    if task.key is not None:
        return known_as(task.key)
    return task.id if task.label is None else str(task.label)


def _why(record: TaskRecord, waits: Mapping[str, WaitsFor], states: Mapping[str, State]) -> Soft:
    task = record.task
    if record.is_delayed:
        return Soft(f"worker:{record.host}", Detail.NO_WORKER.value)
    if any(states.get(name) is not State.DONE for name in task.after):
        return Soft("dependency", "it comes after a task that is not done")
    if max(record.retry_at or 0.0, task.not_before or 0.0) > time.time():
        return Soft("scheduled", "its time has not come")
    held = waits.get(_route(task))
    return Soft("order", "others go first") if held is None else Soft(held.reason, held.detail or None)


def _route(task: Task) -> str:
    return route_key(task.kind, task.lane, task.host, task.model, task.needs)


def _link(name: str | None, what: str) -> Link | None:
    return Link(name, f"/queue?{what}={quote(name, safe='')}") if name else None


def _shortened(error: str | None) -> Soft | None:
    if error is None:
        return None
    line = " ".join(error.split())
    return Soft(line if len(line) <= _ERROR_WIDTH else line[: _ERROR_WIDTH - 1] + "…", error)
