"""Queued tasks in the order in which they are to start, a page at a time.

A task's place is when it was queued, later by `aging_s` for each priority. Within a priority an index has that
order, so the queues of all priorities are read from their heads and merged: a page costs the same at any length.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Any, NamedTuple

from penstock.model import PRIORITIES
from penstock.store.session import Session

_FIRST_READ = 100  # of a priority; the next are longer
_MOST_READ = 5_000
_LOOKED = 200  # between two looks at the clock


class _Head(NamedTuple):
    """Sorts by place, then by arrival."""

    place: float
    number: int
    fits: bool


def numbers_next(
    session: Session,
    where: tuple[Sequence[str], Sequence[Any]],
    aging_s: float,
    after: int | None,
    limit: int,
    patience_s: float,
) -> tuple[list[int], int | None]:
    """Those that fit, in order, and how far was looked where there may be more."""
    begun = time.perf_counter()
    begin = _place_of(session, after)
    found: list[int] = []
    heads = [_queue(session, where, aging_s, priority, begin) for priority in PRIORITIES]
    for looked, head in enumerate(merge(*heads), start=1):
        if head.fits:
            found.append(head.number)
        is_late = looked % _LOOKED == 0 and time.perf_counter() - begun > patience_s
        if len(found) >= limit or is_late:
            return found, head.number
    return found, None


def _place_of(session: Session, after: int | None) -> tuple[int, float, int] | None:
    """Priority, time and number of the task that the page begins beyond; None: the first page."""
    if after is None:
        return None
    row = session.row("place_of_task", after)
    return None if row is None else (row[0], row[1], after)


def _queue(
    session: Session,
    where: tuple[Sequence[str], Sequence[Any]],
    aging_s: float,
    priority: int,
    begin: tuple[int, float, int] | None,
) -> Iterator[_Head]:
    conditions, parameters = where
    fits = " AND ".join(["state = 'queued'", *conditions])
    # Only texts of this package are put in; every value goes in as a parameter.
    query = (
        f"SELECT number, queued_at, {fits} FROM tasks{session.indexed_by('tasks_next')} "  # noqa: S608
        "WHERE ended_at IS NULL AND priority = ? AND queued_at >= ? AND (queued_at > ? OR number > ?) "
        "ORDER BY queued_at, number LIMIT ?"
    )
    at, number = (0.0, -1) if begin is None else (begin[1] + (begin[0] - priority) * aging_s, begin[2])
    most = _FIRST_READ
    while True:
        rows = session.select(query, [*parameters, priority, at, at, number, most])
        for number, at, is_fit in rows:
            yield _Head(at + priority * aging_s, number, bool(is_fit))
        if len(rows) < most:
            return
        most = min(most * 2, _MOST_READ)
