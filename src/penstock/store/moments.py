"""Reading this moment: whole, or from the look before and what was recorded since."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from penstock.model import State, name_in_run
from penstock.scheduling.routes import route_key
from penstock.store.base import Epoch
from penstock.store.database import Ownership
from penstock.store.keys import known_as
from penstock.store.lately import first_imported_event
from penstock.store.now import HOUR_S, MINUTE_S, Held, HeldBack, Now, QueuedKey, Running, WaitsFor
from penstock.store.ownership import last_epoch
from penstock.store.reads import snapshot_of
from penstock.store.rows import STATES, json_text, units_of
from penstock.store.session import Session

_MOST_EVENTS = 200_000  # of the past that the first look reads: a quarter of a second
_HELD_S = 2.0  # between two counts of what is held, at least
_HELD_SHARE = 0.02  # of the time may go into them
_NOBODY = WaitsFor("dispatcher-down", "", 0.0)


def read_now(session: Session, at: float, ownership: Ownership, seen: Now | None) -> Now:
    event, task = session.row("newest_numbers")
    since = None if seen is None else _since(session, seen, event)
    if seen is None or since is None:
        seen, since = None, _Since(True, False)
        queued = _counted(session, 0)
    else:
        queued = _queued_since(session, seen, since)
    running = _running(session, seen)
    snapshot = snapshot_of(session, at, ownership, _by_route(queued), _by_place(running))
    delayed = _by_place([one for one in running if one.started_at is None])
    snapshot = replace(snapshot, delayed=delayed)
    requeued = since.requeued or seen is None or seen.held.requeued
    held = _held(session, at, requeued or any(key.tied for key in queued), seen)
    ended, ended_since = _ended(session, at, event, seen)
    told = session.rows("now_conditions")
    return Now(
        at=at,
        event=event,
        task=task,
        snapshot=snapshot,
        running=running,
        queued=queued,
        held=held,
        waits=_waits(session, list(snapshot.queued), snapshot.epoch),
        ended=ended,
        ended_since=ended_since,
        lanes_since={name: since for of, name, since in told if of == "lane"},
        gates_since={name: since for of, name, since in told if of == "gate"},
        paused_since=next((since for of, _, since in told if of == "all" and snapshot.paused), None),
    )


def _key(row: Sequence[Any]) -> QueuedKey:
    kind, lane, host, model, needs, priority, tied = row[:7]
    return QueuedKey(route_key(kind, lane, host, model, units_of(needs)), lane, priority, bool(tied))


def _counted(session: Session, after: int) -> dict[QueuedKey, int]:
    counts: dict[QueuedKey, int] = {}
    for row in session.rows("now_queued", after):
        key = _key(row)  # needs in another order are another group, and the same key
        counts[key] = counts.get(key, 0) + row[7]
    return counts


class _Since(NamedTuple):
    """What has happened among other things."""

    requeued: bool
    reprioritized: bool


def _since(session: Session, seen: Now, event: int) -> _Since | None:
    """None: so much happened that a whole look is cheaper, or some of it was forgotten again."""
    if event - seen.event > _MOST_EVENTS:
        return None
    found, requeued, reprioritized = session.row("events_since", seen.event)
    # Numbers have no gaps but where events were pruned.
    return _Since(bool(requeued), bool(reprioritized)) if found == event - seen.event else None


def _queued_since(session: Session, seen: Now, since: _Since) -> dict[QueuedKey, int]:
    query = "now_queued_since_changes" if since.reprioritized else "now_queued_since"
    counts = dict(seen.queued)
    for row in session.rows(query, seen.event, seen.task):
        key = _key(row)
        counts[key] = counts.get(key, 0) + row[7]
    for key, count in _counted(session, seen.task).items():
        counts[key] = counts.get(key, 0) + count
    return {key: count for key, count in counts.items() if count}


def _running(session: Session, seen: Now | None) -> tuple[Running, ...]:
    if seen is None:
        rows = session.rows("now_running")
        known: dict[str, Running] = {}
    else:
        before = {(one.task, one.attempt): one for one in seen.running}
        ids = json_text([one.task for one in seen.running])
        still = session.rows("now_still_running", ids)
        known = {task: before[task, attempt] for task, attempt in still if (task, attempt) in before}
        rows = session.rows("now_started", seen.event)
    unnamed = [row[0] for row in rows if row[3] is None]
    labels = dict(session.rows("labels", json_text(unnamed))) if unnamed else {}
    for id, attempt, host, key, kind, lane, priority, run, started_at, needs in rows:
        label = labels.get(id)
        name = known_as(key) if key is not None else None if label is None else str(label)
        if (in_run := name_in_run(id, run)) != id:
            name = in_run
        known[id] = Running(id, attempt, host, name, kind, lane, priority, run, started_at, units_of(needs))
    return tuple(sorted(known.values(), key=lambda one: (one.started_at or inf, one.task)))


def _by_route(queued: Mapping[QueuedKey, int]) -> dict[str, int]:
    routes: dict[str, int] = {}
    for key, count in queued.items():
        routes[key.route] = routes.get(key.route, 0) + count
    return routes


def _by_place(running: Sequence[Running]) -> dict[tuple[str, str], int]:
    places: dict[tuple[str, str], int] = {}
    for one in running:
        places[one.host, one.lane] = places.get((one.host, one.lane), 0) + 1
    return places


def _held(session: Session, at: float, may_be: bool, seen: Now | None) -> Held:
    """Counted anew when something may have changed, and seldom where that takes long."""
    if seen is not None:
        held = seen.held
        if not may_be and not held.routes:
            return held
        if at < held.at + max(_HELD_S, held.cost_s / _HELD_SHARE):
            return replace(held, requeued=may_be)
    began = time.perf_counter()
    rows = session.rows("now_held", at)
    routes = {
        route_key(kind, lane, host, model, units_of(needs)): HeldBack(dependency, scheduled)
        for kind, lane, host, model, needs, dependency, scheduled in rows
    }
    return Held(routes, at, time.perf_counter() - began, requeued=any(h.scheduled for h in routes.values()))


def _ended(
    session: Session, at: float, event: int, seen: Now | None
) -> tuple[dict[tuple[int, State], int], float]:
    begin = at - HOUR_S
    if seen is not None:
        first = int(begin // MINUTE_S)
        ended = {key: count for key, count in seen.ended.items() if key[0] >= first}
        since, after = max(begin, seen.ended_since), seen.event
    else:
        ended, since, after = {}, begin, max(0, event - _MOST_EVENTS)
        oldest = session.row("event_at", after + 1)
        if after and oldest is not None:
            since = max(begin, oldest[0])
    query = "now_ended" if first_imported_event(session, begin) is None else "now_ended_here"
    for minute, state, count in session.rows(query, after, begin):
        key = minute, STATES[state]
        ended[key] = ended.get(key, 0) + count
    return ended, since


def read_waits(session: Session, routes: list[str], ownership: Ownership) -> dict[str, WaitsFor]:
    """What the tasks of these routes wait for."""
    epoch = last_epoch(session)
    if epoch is not None and (epoch.ended_at is not None or not ownership.is_taken(session)):
        epoch = None
    return _waits(session, routes, epoch)


def _waits(session: Session, routes: list[str], epoch: Epoch | None) -> dict[str, WaitsFor]:
    if epoch is None or epoch.owner.answers_only:
        return dict.fromkeys(routes, _NOBODY)
    rows = session.rows("now_waits", json_text(routes))
    owner = epoch.owner
    others = _NOBODY._replace(detail=owner.apart, since=epoch.started_at)
    untold = dict.fromkeys(routes, others) if owner.only_run else {}
    # What an earlier dispatcher told does not count; and a class that has just become empty tells of nothing.
    return untold | {
        route: WaitsFor(reason, detail, since)
        for route, reason, detail, since in rows
        if reason is not None and since >= epoch.started_at
    }
