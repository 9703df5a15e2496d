"""Forgetting ended tasks and all that only they needed, a piece at a time so that nobody waits long; and leases of
the dead.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from penstock.scheduling.budget import day_of
from penstock.store.rows import json_text
from penstock.store.session import Session

TASKS_AT_ONCE = 5_000
EVENTS_AT_ONCE = 50_000
LEASES_KEPT_S = 86400.0  # who was stopped in the meantime may still renew its own


@dataclass(frozen=True, slots=True)
class Kept:
    """What the remaining tasks still need is from `since` on; the log to go through for the rest."""

    since: float
    first_event: int
    last_event: int


class Oldest(NamedTuple):
    """Of the tasks up to a number: when the oldest was queued. None: there is none."""

    queued_at: float | None
    last: int | None


def prune_tasks(session: Session, before: float, after: int) -> tuple[int, int]:
    """Forget the next ended tasks beyond number `after`; how many, and the number reached."""
    rows = session.rows("tasks_to_prune", after, before, TASKS_AT_ONCE)
    if not rows:
        return 0, after
    numbers = json_text([number for number, _, _ in rows])
    ids = json_text([id for _, id, _ in rows])
    session.run("drop_attempts", ids)
    session.run("drop_moves", ids)
    session.run("drop_rests", ids)
    session.run("drop_priority_changes", ids)
    session.run("drop_payloads", numbers)
    session.run("drop_tasks", numbers)
    gone = Counter(state for _, _, state in rows)
    session.many("count_ended", [(state, -count) for state, count in gone.items()])
    return len(rows), rows[-1][0]


def prune_leases(session: Session) -> int:
    """Forget those that expired long ago: whoever died with one left it, under a name that nobody else may take."""
    return session.run("drop_leases", session.time() - LEASES_KEPT_S)


def read_oldest(session: Session) -> Oldest:
    """Goes through all tasks that are left: not for the thread that writes."""
    return Oldest(*session.row("oldest_kept"))


def prune_explanations(session: Session, before: float, oldest: Oldest) -> Kept:
    """Forget routes, stretches, epochs, requests and spending from before the oldest task that is left."""
    # What has come since is as old as it says: a run may have been brought from elsewhere.
    came_at, first = session.row("oldest_beyond", oldest.last or 0)
    since = min(at for at in (before, oldest.queued_at, came_at) if at is not None)
    tasks_seen, last_event = session.row("counters")
    session.run("drop_routes", since)
    session.run("drop_stretches", since)
    session.run("drop_epochs", since)
    session.run("drop_batches", tasks_seen if first is None else first)
    session.run("drop_requests", before)
    session.run("drop_spending", day_of(before))
    session.run("drop_imports")
    session.run("drop_foreign_tasks")
    session.run("drop_task_files")
    return Kept(since, session.row("first_event")[0], last_event)


def prune_events(session: Session, kept: Kept, after: int) -> int:
    """Forget the next events that name a task which is gone, or nobody and are old; the number reached."""
    reached = min(after + EVENTS_AT_ONCE, kept.last_event)
    session.run("drop_events", after + 1, reached, kept.since)
    return reached
