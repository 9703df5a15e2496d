"""Finding tasks among very many: by an index, or by looking through them a stretch at a time.

A search is for names first: ids, keys and runs that begin with the text, which their indexes tell. Only where there
is none, all tasks are looked through for kinds that begin with it, and for keys and errors that contain it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.lifecycle import LIVE, UNWELL
from penstock.model import State, TaskRecord
from penstock.store.base import TaskFilter
from penstock.store.next_up import numbers_next
from penstock.store.pages import TaskCount, TaskPage
from penstock.store.rows import full_record_of, json_text, record_of
from penstock.store.session import Session

PATIENCE_S = 0.06  # for looking through tasks, before what was found is given back
_FIRST_STRETCH = 10_000  # numbers; the next are longer as long as that goes fast
_MOST_NAMED = 50_000  # tasks that an index finds by name; more are found by looking, for they are everywhere
_SOME = 500  # of these at a time
_END = "\U0010ffff"
_NONE = "1 = 0"  # fits no task
_UNWELL = frozenset(UNWELL)
_ISSUE = "beads:"  # before the name that an issue of Beads is known by


@dataclass(frozen=True, slots=True)
class _Where:
    """Conditions on the columns of a task, and the index that makes them short work."""

    conditions: list[str]
    parameters: list[Any]
    index: str = ""


def conditions_of(chosen: TaskFilter, also: Sequence[str] = ()) -> tuple[list[str], list[Any]]:
    """All that narrows but the search and the page, as SQL; every value is a parameter."""
    conditions: list[str] = [*also]
    parameters: list[Any] = []

    def narrow(condition: str, *values: Any) -> None:
        conditions.append(condition)
        parameters.extend(values)

    if chosen.states is not None:
        if chosen.run is None and LIVE.issuperset(chosen.states):
            narrow("ended_at IS NULL")  # word for word what the index of live tasks says
        elif chosen.run is None and _UNWELL.issuperset(chosen.states):
            narrow("ended_at IS NOT NULL AND state <> 'done'")  # and that of those that came to no good end
        narrow(_in("state", chosen.states), *map(str, chosen.states))
    for column, value in (("run", chosen.run), ("kind", chosen.kind), ("lane", chosen.lane)):
        if value is not None:
            narrow(f"{column} = ?", value)
    if chosen.host is not None:
        narrow("coalesce(ran_on, host) = ?", chosen.host)
    if chosen.priorities is not None:
        narrow(_in("priority", chosen.priorities), *chosen.priorities)
    if chosen.since is not None:
        narrow("(ended_at IS NULL OR ended_at >= ?)", chosen.since)
    return conditions, parameters


def _in(column: str, values: Sequence[Any]) -> str:
    return f"{column} IN ({','.join('?' * len(values))})" if values else _NONE


def read_page(
    session: Session, chosen: TaskFilter, full: bool = False, patience_s: float = PATIENCE_S
) -> TaskPage:
    """The next tasks that fit, as many as are asked for or as can be found soon."""
    limit = 100 if chosen.limit is None else chosen.limit
    if chosen.aging_s is not None:
        return _next_page(session, chosen, limit, full, patience_s)
    found: list[int] = []
    reached: int | None = None
    for numbers, looked_to in _batches(session, chosen, patience_s, limit):
        reached = looked_to
        found += numbers
        if len(found) >= limit:
            return TaskPage(_records(session, found[:limit], chosen.newest, full), found[limit - 1])
    return TaskPage(_records(session, found, chosen.newest, full), reached)


def _next_page(session: Session, chosen: TaskFilter, limit: int, full: bool, patience_s: float) -> TaskPage:
    assert chosen.aging_s is not None
    where = _Where(*conditions_of(chosen))
    if chosen.search:
        named = _named(session, chosen.search)
        if named:
            where = _also(where, session.among("number"), [json_text(named)])
        else:
            where = _searched(session, where, chosen.search, is_named=named is None)
    told = (where.conditions, where.parameters)
    found, reached = numbers_next(session, told, chosen.aging_s, chosen.after, limit, patience_s)
    records = {record.number: record for record in _records(session, found, False, full)}
    return TaskPage([records[number] for number in found if number in records], reached)


def count_tasks(session: Session, chosen: TaskFilter, most: int, patience_s: float = PATIENCE_S) -> TaskCount:
    """How many fit, as far as that can be told soon; beyond `most` nobody counts."""
    states = chosen.states if chosen.aging_s is None else (State.QUEUED,)
    chosen = replace(chosen, after=None, limit=None, states=states)
    counted = 0
    reached: int | None = None
    for numbers, looked_to in _batches(session, chosen, patience_s, most + 1):
        reached = looked_to
        counted += len(numbers)
        if counted > most:
            return TaskCount(most, is_exact=False)
    return TaskCount(counted, is_exact=reached is None)


def read_searched(session: Session, chosen: TaskFilter, full: bool) -> list[TaskRecord]:
    """All that fit, or the first of them, however long that takes."""
    left = chosen.limit
    records: list[TaskRecord] = []
    while left is None or left > 0:
        page = read_page(session, replace(chosen, limit=min(left or _SOME, _SOME)), full)
        records += page.records
        if page.next is None:
            break
        left = None if left is None else left - len(page.records)
        chosen = replace(chosen, after=page.next)
    return records


# ---- numbers of tasks, in order


def _batches(
    session: Session, chosen: TaskFilter, patience_s: float, most: int
) -> Iterator[tuple[list[int], int | None]]:
    """Numbers that fit, with how far was looked: None at the end."""
    where = _Where(*conditions_of(chosen), _index(chosen))
    text = chosen.search
    if not text:
        yield from _looked(session, where, chosen, patience_s, most)
        return
    named = _named(session, text)
    if named:
        yield from _of_these(session, where, chosen, named, most)
        return
    where = _searched(session, where, text, is_named=named is None)
    yield from _looked(session, where, chosen, patience_s, most)


def _searched(session: Session, where: _Where, text: str, is_named: bool) -> _Where:
    """By the beginnings of names where there are very many such; else by what kinds, keys and errors say."""
    if is_named:
        by_name = "(id BETWEEN ? AND ? OR key BETWEEN ? AND ? OR key BETWEEN ? AND ? OR run BETWEEN ? AND ?)"
        begins = (text, text, _ISSUE + text, text)
        return _also(where, by_name, [end for one in begins for end in (one, one + _END)])
    if "\0" in text:
        return _also(where, _NONE, [])  # no key or error has one, and LIKE would end there
    words = f"(kind BETWEEN ? AND ? OR {session.like('key')} OR {session.like('error')})"
    return _also(where, words, [text, text + _END, _contains(text), _contains(text)])


def _named(session: Session, text: str) -> list[int] | None:
    """Numbers of tasks whose id, key, issue or run begins so; None when they are too many to be told apart so."""
    numbers: set[int] = set()
    for query, begin in (
        ("numbers_by_id", text),
        ("numbers_by_key", text),
        ("numbers_by_key", _ISSUE + text),
        ("numbers_by_run", text),
    ):
        found = session.rows(query, begin, begin + _END, _MOST_NAMED + 1)
        if len(found) > _MOST_NAMED:
            return None
        numbers.update(number for (number,) in found)
    return sorted(numbers)


def _of_these(
    session: Session,
    where: _Where,
    chosen: TaskFilter,
    numbers: list[int],
    most: int,
) -> Iterator[tuple[list[int], int | None]]:
    """Those of the numbers that fit, in the order asked for."""
    after = chosen.after
    if chosen.newest:
        numbers = [n for n in reversed(numbers) if after is None or n < after]
    else:
        numbers = [n for n in numbers if after is None or n > after]
    query = _select(session, replace(where, index=""), session.among("number"), chosen.newest)
    for begin in range(0, len(numbers), _SOME):
        some = numbers[begin : begin + _SOME]
        rows = session.select(query, [*where.parameters, json_text(some), most])
        reached = some[-1] if begin + _SOME < len(numbers) else None
        yield [number for (number,) in rows], reached


def _looked(
    session: Session,
    where: _Where,
    chosen: TaskFilter,
    patience_s: float,
    most: int,
) -> Iterator[tuple[list[int], int | None]]:
    """Stretch by stretch of the numbers, until the patience is at its end."""
    begun = time.perf_counter()
    first, last = session.row("bounds")
    query = _select(session, where, "number BETWEEN ? AND ?", chosen.newest)
    stretch = _FIRST_STRETCH
    after = chosen.after
    if chosen.newest:
        at = last if after is None else min(last, after - 1)
    else:
        at = first if after is None else max(first, after + 1)
    while first <= at <= last:
        low, high = (max(first, at - stretch + 1), at) if chosen.newest else (at, min(last, at + stretch - 1))
        asked_at = time.perf_counter()
        rows = session.select(query, [*where.parameters, low, high, most])
        at = low - 1 if chosen.newest else high + 1
        is_over = not first <= at <= last
        # Where to go on: pages are asked for beyond a number that was looked at.
        yield [number for (number,) in rows], None if is_over else (low if chosen.newest else high)
        now = time.perf_counter()
        if now - begun > patience_s:
            return
        if now - asked_at < patience_s / 8:
            stretch *= 2


def _select(session: Session, where: _Where, which: str, newest: bool) -> str:
    conditions = " AND ".join([*where.conditions, which])
    by = session.indexed_by(where.index) if where.index else ""
    # Only texts of this module are put in; every value goes in as a parameter.
    return f"SELECT number FROM tasks{by} WHERE {conditions} ORDER BY number {'DESC' if newest else 'ASC'} LIMIT ?"  # noqa: S608


def _also(where: _Where, condition: str, parameters: list[Any]) -> _Where:
    return replace(
        where, conditions=[*where.conditions, condition], parameters=[*where.parameters, *parameters]
    )


def _index(chosen: TaskFilter) -> str:
    """The one that leaves least to look at."""
    if chosen.run is not None:
        return "tasks_run"
    if chosen.states is not None and LIVE.issuperset(chosen.states):
        return "tasks_live"
    if chosen.states is not None and _UNWELL.issuperset(chosen.states):
        return "tasks_unwell"
    return ""


def _contains(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def _records(session: Session, numbers: list[int], newest: bool, full: bool) -> list[TaskRecord]:
    if not numbers:
        return []
    query = "full_records_of_numbers" if full else "records_of_numbers"
    rows = session.rows(query, json_text(numbers))
    made = [full_record_of(row) if full else record_of(row) for row in rows]
    return sorted(made, key=lambda record: record.number, reverse=newest)
