"""Forgetting ended tasks and all that only they needed, a piece at a time so that nobody waits long."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass

from penstock.scheduling.budget import day_of
from penstock.store.rows import json_text
from penstock.store.sqlite_open import QUERIES

TASKS_AT_ONCE = 5_000
EVENTS_AT_ONCE = 50_000


@dataclass(frozen=True, slots=True)
class Kept:
    """What the remaining tasks still need is from `since` on; the log to go through for the rest."""

    since: float
    first_event: int
    last_event: int


def prune_tasks(connection: sqlite3.Connection, before: float, after: int) -> tuple[int, int]:
    """Forget the next ended tasks beyond number `after`; how many, and the number reached."""
    rows = connection.execute(QUERIES["tasks_to_prune"], (after, before, TASKS_AT_ONCE)).fetchall()
    if not rows:
        return 0, after
    numbers = json_text([number for number, _, _ in rows])
    ids = json_text([id for _, id, _ in rows])
    connection.execute(QUERIES["drop_attempts"], (ids,))
    connection.execute(QUERIES["drop_moves"], (ids,))
    connection.execute(QUERIES["drop_rests"], (ids,))
    connection.execute(QUERIES["drop_priority_changes"], (ids,))
    connection.execute(QUERIES["drop_payloads"], (numbers,))
    connection.execute(QUERIES["drop_tasks"], (numbers,))
    gone = Counter(state for _, _, state in rows)
    QUERIES.many(connection, "count_ended", [(state, -count) for state, count in gone.items()])
    return len(rows), rows[-1][0]


def prune_explanations(connection: sqlite3.Connection, before: float) -> Kept:
    """Forget routes, stretches, epochs, requests and spending from before the oldest task that is left."""
    oldest, first = connection.execute(QUERIES["oldest_kept"]).fetchone()
    since = before if oldest is None else min(before, oldest)
    tasks_seen, last_event = connection.execute(QUERIES["counters"]).fetchone()
    connection.execute(QUERIES["drop_routes"], (since,))
    connection.execute(QUERIES["drop_stretches"], (since,))
    connection.execute(QUERIES["drop_epochs"], (since,))
    connection.execute(QUERIES["drop_batches"], (tasks_seen if first is None else first,))
    connection.execute(QUERIES["drop_requests"], (before,))
    connection.execute(QUERIES["drop_spending"], (day_of(before),))
    connection.execute(QUERIES["drop_imports"])
    connection.execute(QUERIES["drop_foreign_tasks"])
    return Kept(since, connection.execute(QUERIES["first_event"]).fetchone()[0], last_event)


def prune_events(connection: sqlite3.Connection, kept: Kept, after: int) -> int:
    """Forget the next events that name a task which is gone, or nobody and are old; the number reached."""
    reached = min(after + EVENTS_AT_ONCE, kept.last_event)
    connection.execute(QUERIES["drop_events"], (after + 1, reached, kept.since))
    return reached
