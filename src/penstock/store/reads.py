"""What is read from a store in one go: each function takes a session and gives back our words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.model import Backlog, Task, TaskRecord
from penstock.scheduling.budget import day_of
from penstock.scheduling.routes import route_key
from penstock.store.base import (
    Arrival,
    Epoch,
    Queued,
    Request,
    Snapshot,
    Spending,
    StoredEvent,
    TaskFilter,
)
from penstock.store.database import Ownership
from penstock.store.ownership import last_epoch
from penstock.store.rows import (
    STATES,
    decode,
    event_of,
    full_record_of,
    host_of,
    json_text,
    record_of,
    units_of,
)
from penstock.store.search import conditions_of, read_searched
from penstock.store.session import Session


def read_task(session: Session, task_id: str) -> TaskRecord | None:
    row = session.row("task", task_id)
    return None if row is None else full_record_of(row)


def read_tasks(session: Session, chosen: TaskFilter) -> list[TaskRecord]:
    if chosen.search or chosen.aging_s is not None:
        return read_searched(session, chosen, full=True)
    query, parameters = _filtered(chosen)
    return [full_record_of(row) for row in session.select(query, parameters)]


def read_bare_tasks(session: Session, chosen: TaskFilter) -> list[TaskRecord]:
    """Without payload and value; none that was imported, unless its run is chosen."""
    own = ["run NOT IN (SELECT run FROM imports)"] if chosen.run is None else []
    query, parameters = _filtered(chosen, "records", own)
    return [record_of(row) for row in session.select(query, parameters)]


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
    limit = "" if chosen.limit is None else " LIMIT ?"
    if chosen.limit is not None:
        parameters.append(chosen.limit)
    # Only the texts above are put in; every value goes in as a parameter.
    return f"SELECT * FROM {view} {where}ORDER BY number {order}{limit}", parameters  # noqa: S608


def read_events(session: Session, after: int, task: str | None, limit: int) -> list[StoredEvent]:
    rows: Sequence[Any]
    if task is None:
        rows = session.rows("events_after", after, limit)
    else:
        begin = session.row("events_begin", task)
        since = max(after, begin[0] - 1) if begin else after
        rows = session.rows("events_of_task", since, task, limit)
    return [event_of(row) for row in rows]


def read_ended(session: Session, run: str, after: int) -> list[tuple[int, TaskRecord]]:
    return [(row[0], full_record_of(row[1:])) for row in session.rows("ended_in_run", run, after)]


def read_arrivals(session: Session, after: int, limit: int) -> list[Arrival]:
    rows = session.rows("arrivals", after, limit)
    return [Arrival(record_of(row), row[-1] or b"null") for row in rows]


def read_requests(session: Session) -> list[Request]:
    return [Request(verb, decode(args), number) for number, verb, args in session.rows("open_requests")]


def read_incoming(session: Session, after: int, limit: int) -> tuple[list[Request], list[Arrival]]:
    """Mostly nobody asks for anything, and then one query is all."""
    arrivals = arrived(session.rows("incoming", after, limit))
    if arrivals is None:
        return read_requests(session), read_arrivals(session, after, limit)
    return [], arrivals


def arrived(rows: Sequence[Any]) -> list[Arrival] | None:
    """Of the rows of `incoming`; None when there are requests as well."""
    if rows[0][-2]:
        return None
    if rows[0][0] is None:  # nothing arrived
        return []
    return [Arrival(record_of(row), row[-1] or b"null") for row in rows]


def read_again(session: Session, ids: Sequence[str]) -> list[Arrival]:
    rows = session.rows("fetch", json_text(list(ids)))
    return [Arrival(record_of(row), row[-1] or b"null") for row in rows]


def read_queued(session: Session, after: int, lanes: Collection[str], limit: int) -> Queued | None:
    """In one pass over the rows, and with nothing made for each: there may be a million."""
    rows = session.rows("queued", json_text(list(lanes)), after, limit)
    if not rows:
        return None
    others: list[str] = []
    alike: dict[tuple[Any, ...], tuple[list[int], list[str], list[float]]] = {}
    for row in rows:
        if not row[3]:
            others.append(row[1])
            continue
        asked = row[4:]
        found = alike.get(asked)
        if found is None:
            found = alike[asked] = [], [], []
        found[0].append(row[0])
        found[1].append(row[1])
        found[2].append(row[2])
    backlogs = []
    for (kind, lane, host, model, needs, priority, retries), told in alike.items():
        units = units_of(needs)
        task = Task(kind, None, priority, lane, needs=units, host=host, model=model, retries=retries)
        backlogs.append(Backlog(task, *told))
    return Queued(rows[-1][0], backlogs, others)


def read_spending(session: Session, day: int) -> list[Spending]:
    return [Spending(*row) for row in session.rows("spending", day)]


def read_snapshot(session: Session, at: float, ownership: Ownership) -> Snapshot:
    queued: dict[str, int] = {}
    running: dict[tuple[str, str], int] = {}
    delayed: dict[tuple[str, str], int] = {}
    for state, kind, lane, host, model, needs, ran_on, is_delayed, count in session.rows("live_counts"):
        if state == "queued":
            key = route_key(kind, lane, host, model, units_of(needs))
            queued[key] = queued.get(key, 0) + count
        else:
            running[ran_on, lane] = running.get((ran_on, lane), 0) + count
            if is_delayed:
                delayed[ran_on, lane] = delayed.get((ran_on, lane), 0) + count
    return replace(snapshot_of(session, at, ownership, queued, running), delayed=delayed)


def read_conditions(session: Session, at: float, ownership: Ownership) -> Snapshot:
    return snapshot_of(session, at, ownership, {}, {})


def read_owner(session: Session, ownership: Ownership) -> Epoch | None:
    epoch = last_epoch(session)
    alive = epoch is not None and epoch.ended_at is None and ownership.is_taken(session)
    return epoch if alive else None


def snapshot_of(
    session: Session,
    at: float,
    ownership: Ownership,
    queued: Mapping[str, int],
    running: Mapping[tuple[str, str], int],
) -> Snapshot:
    """With the conditions as last recorded."""
    paused = session.row("everything")
    return Snapshot(
        at=at,
        queued=queued,
        running=running,
        ended={STATES[state]: count for state, count in session.rows("tally")},
        hosts=dict(map(host_of, session.rows("hosts"))),
        lanes_paused={lane: bool(paused) for lane, paused in session.rows("lanes")},
        gates={gate: (bool(is_open), detail) for gate, is_open, detail in session.rows("gates")},
        paused=bool(paused and paused[0]),
        epoch=read_owner(session, ownership),
        spent={(s.host, s.lane): s.usd for s in read_spending(session, day_of(at))},
    )
