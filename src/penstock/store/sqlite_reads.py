"""What is read from a SQLite store in one go: each function takes a connection and gives back our words."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.model import TaskRecord
from penstock.scheduling.budget import day_of
from penstock.scheduling.routes import route_key
from penstock.store.base import Arrival, Epoch, HostStatus, Snapshot, Spending, StoredEvent, TaskFilter
from penstock.store.rows import STATES, event_of, full_record_of, json_text, record_of, units_of
from penstock.store.sqlite_open import QUERIES
from penstock.store.sqlite_owner import OwnerLock, last_epoch
from penstock.store.sqlite_search import conditions_of, read_searched


def read_task(connection: sqlite3.Connection, task_id: str) -> TaskRecord | None:
    row = connection.execute(QUERIES["task"], (task_id,)).fetchone()
    return None if row is None else full_record_of(row)


def read_tasks(connection: sqlite3.Connection, chosen: TaskFilter) -> list[TaskRecord]:
    if chosen.search or chosen.aging_s is not None:
        return read_searched(connection, chosen, full=True)
    query, parameters = _filtered(chosen)
    return [full_record_of(row) for row in connection.execute(query, parameters)]


def read_bare_tasks(connection: sqlite3.Connection, chosen: TaskFilter) -> list[TaskRecord]:
    """Without payload and value; none that was imported, unless its run is chosen."""
    own = ["run NOT IN (SELECT run FROM imports)"] if chosen.run is None else []
    query, parameters = _filtered(chosen, "records", own)
    return [record_of(row) for row in connection.execute(query, parameters)]


def _filtered(
    chosen: TaskFilter, view: str = "full_records", also: Sequence[str] = ()
) -> tuple[str, list[Any]]:
    """Put together, because any of its conditions may be left out."""
    conditions, parameters = conditions_of(chosen, also)
    if chosen.after is not None:
        conditions.append("number < ?" if chosen.newest else "number > ?")
        parameters.append(chosen.after)
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    order = "DESC" if chosen.newest else "ASC"
    limit = -1 if chosen.limit is None else chosen.limit
    # Only the texts above are put in; every value goes in as a parameter.
    return f"SELECT * FROM {view} {where}ORDER BY number {order} LIMIT ?", [*parameters, limit]  # noqa: S608


def read_events(
    connection: sqlite3.Connection, after: int, task: str | None, limit: int
) -> list[StoredEvent]:
    rows: Sequence[Any]
    if task is None:
        rows = connection.execute(QUERIES["events_after"], (after, limit)).fetchall()
    else:
        begin = connection.execute(QUERIES["events_begin"], (task,)).fetchone()
        since = max(after, begin[0] - 1) if begin else after
        rows = connection.execute(QUERIES["events_of_task"], (since, task, limit)).fetchall()
    return [event_of(row) for row in rows]


def read_ended(connection: sqlite3.Connection, run: str, after: int) -> list[tuple[int, TaskRecord]]:
    return [
        (row[0], full_record_of(row[1:])) for row in connection.execute(QUERIES["ended_in_run"], (run, after))
    ]


def read_arrivals(connection: sqlite3.Connection, after: int, limit: int) -> list[Arrival]:
    rows = connection.execute(QUERIES["arrivals"], (after, limit))
    return [Arrival(record_of(row), row[-1] or b"null") for row in rows]


def read_again(connection: sqlite3.Connection, ids: Sequence[str]) -> list[Arrival]:
    rows = connection.execute(QUERIES["fetch"], (json_text(list(ids)),))
    return [Arrival(record_of(row), row[-1] or b"null") for row in rows]


def read_spending(connection: sqlite3.Connection, day: int) -> list[Spending]:
    return [Spending(*row) for row in connection.execute(QUERIES["spending"], (day,))]


def read_snapshot(connection: sqlite3.Connection, at: float, owner_lock: OwnerLock) -> Snapshot:
    queued: dict[str, int] = {}
    running: dict[tuple[str, str], int] = {}
    for state, kind, lane, host, model, needs, ran_on, count in connection.execute(QUERIES["live_counts"]):
        if state == "queued":
            key = route_key(kind, lane, host, model, units_of(needs))
            queued[key] = queued.get(key, 0) + count
        else:
            running[ran_on, lane] = running.get((ran_on, lane), 0) + count
    return snapshot_of(connection, at, owner_lock, queued, running)


def read_owner(connection: sqlite3.Connection, owner_lock: OwnerLock) -> Epoch | None:
    epoch = last_epoch(connection)
    alive = epoch is not None and epoch.ended_at is None and owner_lock.is_taken()
    return epoch if alive else None


def snapshot_of(
    connection: sqlite3.Connection,
    at: float,
    owner_lock: OwnerLock,
    queued: Mapping[str, int],
    running: Mapping[tuple[str, str], int],
) -> Snapshot:
    """With the conditions as last recorded."""
    paused = connection.execute(QUERIES["everything"]).fetchone()
    return Snapshot(
        at=at,
        queued=queued,
        running=running,
        ended={STATES[state]: count for state, count in connection.execute(QUERIES["tally"])},
        hosts={name: HostStatus(*rest) for name, *rest in connection.execute(QUERIES["hosts"])},
        lanes_paused={lane: bool(paused) for lane, paused in connection.execute(QUERIES["lanes"])},
        gates={
            gate: (bool(is_open), detail) for gate, is_open, detail in connection.execute(QUERIES["gates"])
        },
        paused=bool(paused and paused[0]),
        epoch=read_owner(connection, owner_lock),
        spent={(s.host, s.lane): s.usd for s in read_spending(connection, day_of(at))},
    )
