"""Logs with a row per event → attempts: a start and its end, and when the task was queued."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from penstock.config.problems import quoted
from penstock.diagnosis.recording import COLUMNS
from penstock.errors import UsageError
from penstock.intake.logs.attempts import UNTOLD_KIND, Gathered, Try, arrival_of, in_order
from penstock.intake.logs.cells import Cells
from penstock.intake.logs.columns import Columns
from penstock.intake.logs.rows import Row, Table
from penstock.intake.logs.times import Base, Days
from penstock.intake.logs.words import Ending, Step, read_step
from penstock.model import DEFAULT_LANE, DEFAULT_PRIORITY, State


@dataclass(slots=True)
class _Story:
    """The events of one task so far."""

    queued: float | None = None
    queued_line: int = 0
    first: Try | None = None  # what the event told that queued it
    open: list[Try] = field(default_factory=list)
    started_line: int = 0
    count: int = 0


def from_events(table: Table, columns: Columns) -> Gathered:
    """Two rows or three per attempt: when it was queued, started, ended."""
    cells = Cells(table, columns)
    stories: dict[str, _Story] = defaultdict(_Story)
    tries: list[Try] = []
    unread: dict[str, int] = defaultdict(int)
    moments = _moments(table, cells)
    for row, at in moments:
        value = cells.raw(row, "event")
        step = None if value is None or isinstance(value, list | dict) else read_step(value)
        if step is None:
            unread[quoted("" if value is None else value)] += 1
            continue
        one = cells.filled(row)
        if not one.named:
            cells.fail(row, "task", "is empty; an event must say whose it is")
        key = one.task if one.number is None else f"{one.task}\0{one.number}"
        story = stories[key]
        if step[0] is Step.QUEUE:
            story.queued, story.queued_line, story.first = at, row.line, one
        elif step[0] is Step.START:
            _begin(story, one, at, row, cells)
            tries.append(one)
        else:
            _finish(story, one, at, row, step[1], cells)
    tries += [_waiting(story) for story in stories.values() if not story.count and story.first is not None]
    if not tries:
        raise UsageError(
            f"{table.name}: no event says that a task started; map event to the column that does, with "
            "--map event=COLUMN"
        )
    _share_numbers(tries)
    notes = [f"events left aside: {', '.join(sorted(unread)[:6])} ({sum(unread.values())})"] if unread else []
    return Gathered(tries, cells.base or Base.RUN, moments[-1][1], _told(tries, columns), notes)


def _told(tries: list[Try], columns: Columns) -> frozenset[str]:
    told = {*columns.chosen, "started", "ended", "attempt"} & {*COLUMNS}
    if any(one.queued is not None for one in tries):
        told.add("queued")
    if any(one.ending is not None and one.ending.state is not State.DONE for one in tries):
        told.add("state")
    return frozenset(told)


def _moments(table: Table, cells: Cells) -> list[tuple[Row, float]]:
    """The rows in the order of time; of the same moment, in the order of the log."""
    read: list[tuple[Row, float]] = []
    for row in table.rows:
        stamp = cells.time(row, "time")
        if stamp is None:
            cells.fail(row, "time", "is empty; an event needs its time")
        read.append((row, stamp.seconds))
    if cells.base is Base.CLOCK and not cells.over_a_day:
        days = Days()
        read = [(row, days.placed(at)) for row, at in read]
    return sorted(read, key=lambda pair: pair[1])


def _begin(story: _Story, one: Try, at: float, row: Row, cells: Cells) -> None:
    if story.open:
        before = story.started_line
        cells.fail(
            row, "event", f"task {quoted(one.task)} starts again before its start of line {before} has ended"
        )
    told = story.first
    if told is not None and not story.count:  # what only the event before told
        one.kind = told.kind if one.kind == UNTOLD_KIND else one.kind
        one.lane = told.lane if one.lane == DEFAULT_LANE else one.lane
        one.model = one.model or told.model
        one.priority = told.priority if one.priority == DEFAULT_PRIORITY else one.priority
        one.after = one.after or told.after
    one.queued = story.queued
    one.started = at
    one.line = story.queued_line or row.line
    story.started_line = row.line
    story.open.append(one)
    story.count += 1


def _finish(story: _Story, told: Try, at: float, row: Row, ending: Ending | None, cells: Cells) -> None:
    if not story.open:
        cells.fail(
            row,
            "event",
            f"task {quoted(told.task)} ends and never started; is the beginning of the log cut off?",
        )
    one = story.open.pop(0)
    one.ended = at
    one.ending = cells.ending(row) or ending
    one.host = one.host or told.host
    one.error = told.error or one.error
    one.model = one.model or told.model
    one.cost_usd = told.cost_usd if told.cost_usd is not None else one.cost_usd


def _waiting(story: _Story) -> Try:
    """A task that was queued and has not started."""
    assert story.first is not None
    return replace(story.first, queued=story.queued, line=story.queued_line)


def _share_numbers(tries: list[Try]) -> None:
    """Attempts of a task in the order in which they started; its first word of being queued counts for all."""
    tries.sort(key=lambda one: (one.task, one.number or 0, arrival_of([one]), one.line))
    last = ""
    number = 0
    for one in tries:
        number = number + 1 if one.task == last else 1
        last, one.number = one.task, number
    in_order(tries)
