"""Logs with a row per attempt → attempts: their days, their order, and which of them belong to one task."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from penstock.config.problems import quoted
from penstock.diagnosis.recording import COLUMNS
from penstock.errors import UsageError
from penstock.intake.logs.attempts import Gathered, Try, arrival_of, in_order
from penstock.intake.logs.cells import Cells
from penstock.intake.logs.columns import Columns
from penstock.intake.logs.rows import Row, Table
from penstock.intake.logs.times import DAY_S, Base, Days, Stamp
from penstock.model import Verdict

_ROUNDING_S = 1.0  # by which times of one row may differ that were rounded differently
_FINE_S = 0.001001  # the same of times with fractions: clocks and databases cut them differently


class _Times(NamedTuple):
    row: Row
    one: Try


def from_rows(table: Table, columns: Columns) -> Gathered:
    cells = Cells(table, columns)
    found: list[_Times] = []
    for row in table.rows:
        one = cells.filled(row)
        queued, started, ended = (cells.time(row, name) for name in ("queued", "started", "ended"))
        length_s = cells.length(row)
        if ended is None and started is not None and length_s is not None:
            ended = Stamp(started.seconds + length_s, started.base)
        elif started is None and ended is not None and length_s is not None:
            started = Stamp(ended.seconds - length_s, ended.base)
        one.queued = None if queued is None else queued.seconds
        one.started = None if started is None else started.seconds
        one.ended = None if ended is None else ended.seconds
        if started is None and (queued is None or ended is not None):
            missing = "started" if cells.has("started") else "duration"
            cells.fail(
                row, missing, "is empty; a row needs the time of its start, or only that it was queued"
            )
        one.ending = cells.ending(row)
        if ended is None and one.ending is not None and one.ending.verdict is not None:
            missing = "ended" if cells.has("ended") else "duration"
            cells.fail(row, missing, "is empty although the attempt is over; complete the row")
        found.append(_Times(row, one))
    if cells.base is Base.CLOCK and not cells.over_a_day:
        _place_days(found)
    for row, one in found:
        _check_order(row, one, cells)
    tries = [one for _, one in found]
    _number(tries, cells, table)
    told = {*columns.chosen, "started", "ended"} & {*COLUMNS}
    return Gathered(tries, cells.base or Base.RUN, _latest(tries), frozenset(told))


def _place_days(found: Sequence[_Times]) -> None:
    """Clock times that pass midnight, put on their days."""
    days = Days()
    for _, one in found:
        anchor = one.started if one.started is not None else one.queued
        assert anchor is not None
        by = days.placed(anchor) - anchor
        one.queued = None if one.queued is None else one.queued + by
        one.started = None if one.started is None else one.started + by
        one.ended = None if one.ended is None else one.ended + by
        if one.queued is not None and one.started is not None and one.queued - one.started > _ROUNDING_S:
            one.queued -= DAY_S
        if one.ended is not None and one.started is not None and one.started - one.ended > _ROUNDING_S:
            one.ended += DAY_S


def _check_order(row: Row, one: Try, cells: Cells) -> None:
    """Queued, then started, then ended; what was rounded differently may be off by a second."""
    if one.started is None:
        return
    if one.queued is not None and one.queued > one.started:
        if not _is_rounding(one.queued, one.started):
            cells.fail(row, "queued", "is later than its start; map queued and started the right way round")
        one.queued = one.started
    if one.ended is not None and one.ended < one.started:
        if not _is_rounding(one.started, one.ended):
            cells.fail(row, "ended", "is earlier than its start; map started and ended the right way round")
        one.ended = one.started


def _is_rounding(late: float, early: float) -> bool:
    """Whether the one can be before the other: only one of them is in whole seconds, or both in thousandths."""
    if late.is_integer() == early.is_integer():
        return late - early <= _FINE_S
    return late - early <= _ROUNDING_S


def _latest(tries: Sequence[Try]) -> float:
    return max(at for one in tries for at in (one.queued, one.started, one.ended) if at is not None)


def _number(tries: list[Try], cells: Cells, table: Table) -> None:
    """Which rows are attempts of the same task.

    A name that comes again is another attempt where the log numbers attempts, or says that the one before
    did not succeed; else it is another task that happens to have the same name.
    """
    if cells.has("attempt"):
        _as_numbered(tries, table)
        return
    last: dict[str, Try] = {}  # by the name in the log
    names = {one.task for one in tries}
    for one in sorted(tries, key=lambda t: (arrival_of([t]), t.line)):
        name = one.task
        before = last.get(name)
        if before is not None and _is_next(before, one):
            one.task, one.number = before.task, (before.number or 1) + 1
        else:
            one.number = 1
            if before is not None:
                one.task = _unlike(name, names)
        last[name] = one
    in_order(tries)


def _is_next(before: Try, one: Try) -> bool:
    """Whether it can be the next attempt of the same task: the log says that the one before failed."""
    if before.ended is None or before.ending is None or one.started is None or one.started < before.ended:
        return False
    return before.ending.verdict not in (None, Verdict.DONE)


def _unlike(name: str, names: set[str]) -> str:
    copy = next(f"{name}#{number}" for number in count(2) if f"{name}#{number}" not in names)
    names.add(copy)
    return copy


def _as_numbered(tries: list[Try], table: Table) -> None:
    least = min((one.number for one in tries if one.number is not None), default=1)
    lines: dict[tuple[str, int], int] = {}
    for one in tries:
        one.number = 1 if one.number is None else one.number + (1 if least == 0 else 0)
        first = lines.setdefault((one.task, one.number), one.line)
        if first != one.line:
            raise UsageError(
                f"{table.name}:{one.line}: task {quoted(one.task)} has its attempt {one.number} on line {first} "
                "already; map task to a column that is unique, or leave the numbers aside with --map attempt="
            )
    in_order(tries)
