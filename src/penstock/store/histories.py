"""Reading what explains the waits of some tasks.

A run that was imported has its explanation with it: routes, stretches and epochs of where it ran. Ours count
for it only from the moment it came here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

import msgspec

from penstock.diagnosis.history import Epoch, History, Rest
from penstock.errors import UnknownTask
from penstock.lifecycle import LIVE
from penstock.model import Attempt, TaskRecord
from penstock.scheduling.messages import Move, Reprioritize, Route, WaitChange
from penstock.scheduling.routes import route_key
from penstock.store.base import StoredEvent, TaskFilter
from penstock.store.reads import read_bare_tasks
from penstock.store.rows import (
    STALL,
    attempt_of,
    change_of,
    epoch_of,
    event_of,
    json_text,
    record_of,
    stall_of,
)
from penstock.store.session import Session


@dataclass(frozen=True, slots=True)
class Material:
    """What explains waits and belongs to no single task."""

    others: Sequence[Attempt] = field(default_factory=list)
    routes: Sequence[Route] = field(default_factory=list)
    stretches: Sequence[WaitChange] = field(default_factory=list)
    epochs: Sequence[Epoch] = field(default_factory=list)
    conditions: Sequence[StoredEvent] = field(default_factory=list)  # of hosts, lanes, gates; stalls


@dataclass(frozen=True, slots=True)
class _Time:
    """What is to be told of it."""

    begin: float
    end: float
    others: bool  # also the attempts of all other tasks


class Wanted(NamedTuple):
    """Which tasks: one of these is named."""

    task: str | None = None
    run: str | None = None
    chosen: TaskFilter | None = None
    ids: Sequence[str] | None = None


def read_history(session: Session, wanted: Wanted, others: bool = True) -> History:
    records = _wanted(session, wanted)
    if not records:
        return History([], [], [], {}, [], [], [], [])
    ids = json_text([record.task.id for record in records])
    attempts = [attempt_of(row) for row in session.rows("attempts_of_tasks", ids)]
    moves = [Move(*row) for row in session.rows("moves_of_tasks", ids)]
    begin = min(record.task.queued_at for record in records)
    end = max(inf if record.state in LIVE else record.ended_at or inf for record in records)
    classes = {attempt.work_class for attempt in attempts} | {move.work_class for move in moves}
    material = _material(session, records, classes, _Time(begin, end, others))
    return History(
        records=records,
        attempts=attempts,
        others=material.others,
        dependencies=_dependencies(session, records),
        routes=material.routes,
        moves=moves,
        stretches=material.stretches,
        epochs=material.epochs,
        rests=[Rest(*row) for row in session.rows("rests_of_tasks", ids)],
        priorities=[Reprioritize(*row) for row in session.rows("priority_changes_of_tasks", ids)],
        changes=[change_of(event) for event in material.conditions if event.type != STALL],
        stalls=[stall_of(event) for event in material.conditions if event.type == STALL],
        costs={(task, attempt): usd for task, attempt, usd in session.rows("costs_of_tasks", ids)},
    )


def read_stays(session: Session, ids: Sequence[str]) -> History:
    named = (json_text(list(ids)),)
    return History(
        [],
        [attempt_of(row) for row in session.rows("attempts_of_tasks", *named)],
        *([], {}, [], [], [], []),
        rests=[Rest(*row) for row in session.rows("rests_of_tasks", *named)],
    )


def _wanted(session: Session, wanted: Wanted) -> list[TaskRecord]:
    if wanted.chosen is not None:
        return read_bare_tasks(session, wanted.chosen)
    if wanted.ids is not None:
        rows = session.rows("own_records_of_ids", json_text(list(wanted.ids)))
        return [record_of(row) for row in rows]
    return _named(session, wanted.task, wanted.run)


def _named(session: Session, task: str | None, run: str | None) -> list[TaskRecord]:
    if task is not None:
        rows = session.rows("record_of_task", task)
        if not rows:
            raise UnknownTask(f"no task {task}; `penstock tasks` lists them")
    else:
        rows = session.rows("records_of_run", run)
        if not rows:
            raise UnknownTask(f"no run {run}; `penstock tasks` lists tasks with their runs")
    return [record_of(row) for row in rows]


def _material(session: Session, records: Sequence[TaskRecord], classes: set[int], time: _Time) -> Material:
    keys = {
        route_key(task.kind, task.lane, task.host, task.model, task.needs)
        for task in (record.task for record in records)
    }
    imported = session.row("import_of_run", records[0].task.run)
    if imported is None:
        return _local_material(session, keys, classes, time)
    imported_at, text = imported
    brought = msgspec.json.decode(text, type=Material)
    own = session.rows("imported_attempts", records[0].task.run)
    brought = replace(brought, others=_in_order([*brought.others, *map(attempt_of, own)]))
    if time.end < imported_at:  # all of it happened elsewhere
        return brought
    here = _local_material(session, keys, classes, replace(time, begin=imported_at))
    return Material(
        others=_in_order([*brought.others, *here.others]),
        routes=[*brought.routes, *(r._replace(at=max(r.at, imported_at)) for r in here.routes)],
        stretches=[*brought.stretches, *(s._replace(at=max(s.at, imported_at)) for s in here.stretches)],
        epochs=[
            *brought.epochs,
            *(replace(e, started_at=max(e.started_at, imported_at)) for e in here.epochs),
        ],
        conditions=[*brought.conditions, *(replace(c, at=max(c.at, imported_at)) for c in here.conditions)],
    )


def _local_material(session: Session, keys: Iterable[str], classes: set[int], time: _Time) -> Material:
    begin, end = time.begin, time.end

    def rows(query: str, *parameters: Any) -> list[Any]:
        return session.rows(query, *parameters)

    routes = [Route(*row) for row in rows("routes_between", json_text(sorted(keys)), begin, end)]
    classes = classes | {route.work_class for route in routes}
    stretches = rows("stretches_between", json_text(sorted(classes)), begin, end)
    return Material(
        others=[attempt_of(row) for row in rows("attempts_between", begin, end)] if time.others else [],
        routes=routes,
        stretches=[WaitChange(*row) for row in stretches],
        epochs=[epoch_of(row) for row in rows("epochs_between", begin, end)],
        conditions=[event_of(row) for row in rows("conditions_between", begin, end)],
    )


def _in_order(attempts: Iterable[Attempt]) -> list[Attempt]:
    return sorted(attempts, key=lambda a: (a.started_at, a.task, a.number))


def _dependencies(session: Session, records: Sequence[TaskRecord]) -> dict[str, TaskRecord]:
    wanted = {name for record in records for name in record.task.after}
    if not wanted:
        return {}
    found = {record.task.id: record for record in records if record.task.id in wanted}
    rows = session.rows("records_of_ids", json_text(sorted(wanted - found.keys())))
    found.update({record.task.id: record for record in map(record_of, rows)})
    missing = wanted - found.keys()
    if missing:
        foreign = session.rows("foreign_tasks", records[0].task.run, json_text(sorted(missing)))
        for (text,) in foreign:
            record = msgspec.json.decode(text, type=TaskRecord)
            found[record.task.id] = record
    return found
