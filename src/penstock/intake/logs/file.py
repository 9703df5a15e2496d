"""A start/end log of any system → a recording: what timeline, diagnosis and what-if read.

A row is an attempt, or an event of one. All of the log is read, or one error tells the first row that is wrong,
with its line, its column and the remedy. Exports of our own runs give the whole recording, waits included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.config.problems import quoted
from penstock.diagnosis.recording import Recording
from penstock.errors import UsageError
from penstock.intake.documents import no_collecting
from penstock.intake.exportfile import is_export, read_export
from penstock.intake.logs.attempts import Gathered
from penstock.intake.logs.columns import Columns, choose_columns, plain_name, read_maps
from penstock.intake.logs.events import from_events
from penstock.intake.logs.hosts import Source, in_plant, with_slots
from penstock.intake.logs.rows import Row, Table, Text, read_table, read_text
from penstock.intake.logs.rowwise import from_rows
from penstock.intake.logs.times import Base, read_time
from penstock.intake.logs.words import Step, read_ending, read_step
from penstock.model import Plant

_MOST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log as it was understood."""

    recording: Recording
    columns: Mapping[str, str]  # what was read, and from which column; empty for an export
    notes: tuple[str, ...]  # what was left aside, for people


def read_log(
    path: Path | str,
    *,
    maps: Sequence[str] = (),
    plant: Plant | None = None,
    slots: Mapping[str, int] | None = None,
    source: Source = Source(),  # noqa: B008 - frozen
) -> LogFile:
    """Read a file, or standard input for `-`.

    `maps` are the user's FIELD=COLUMN; `plant` is that of a config, used where the log names its hosts or
    lanes; `source` says which config that is; `slots` are those of hosts that no config tells.
    """
    return understood(read_text(path), maps=maps, plant=plant, slots=slots, source=source)


def understood(
    text: Text,
    *,
    maps: Sequence[str] = (),
    plant: Plant | None = None,
    slots: Mapping[str, int] | None = None,
    source: Source = Source(),  # noqa: B008 - frozen
) -> LogFile:
    """The same of a text that was read already."""
    wanted = read_maps(maps)
    if is_export(text):
        return LogFile(with_slots(read_export(text, plant), slots or {}), {}, ())
    with no_collecting():
        table = read_table(text)
        chosen = wanted if table.headed else _by_place(table, wanted)
        columns = choose_columns(table.columns, chosen, table.name)
        gathered = _gathered(table, columns)
        recording = gathered.recording(text.stem)
    recording, said = in_plant(recording, plant, source)
    return LogFile(with_slots(recording, slots or {}), columns.chosen, (*_notes(columns, gathered), *said))


def _gathered(table: Table, columns: Columns) -> Gathered:
    if "started" in columns or {"ended", "duration"} <= columns.chosen.keys():
        if "ended" not in columns and "duration" not in columns:
            raise _no_column(table, "when an attempt ended, or how long it took", "ended")
        return from_rows(table, columns)
    events = columns if "event" in columns else _events_elsewhere(table, columns)
    if events is None:
        raise _no_column(table, "when an attempt started", "started", "time" in columns)
    if "time" not in events:
        raise _no_column(table, "when an event happened", "time")
    if "task" not in events:
        raise _no_column(table, "whose event it is", "task")
    return from_events(table, events)


def _events_elsewhere(table: Table, columns: Columns) -> Columns | None:
    """A log of changes of state has its events there; that of Celery calls them types."""
    if "time" not in columns:
        return None
    for field in ("state", "kind"):
        column = columns.chosen.get(field)
        if column is None or (field == "kind" and plain_name(column) != "type"):
            continue
        steps = [read_step(row.cells.get(column, "")) for row in table.rows]
        if any(step is not None and step[0] is Step.START for step in steps):
            chosen = {one: of for one, of in columns.chosen.items() if one != field}
            return Columns({**chosen, "event": column}, columns.ignored)
    return None


def _no_column(table: Table, what: str, field: str, may_be_events: bool = False) -> UsageError:
    some = ", ".join(quoted(column)[1:-1] for column in table.columns[:_MOST_SHOWN])
    more = f", … ({len(table.columns)})" if len(table.columns) > _MOST_SHOWN else ""
    event = ", or the one of events with --map event=COLUMN" if may_be_events else ""
    return UsageError(
        f"{table.name}: no column tells {what}; name it with --map {field}=COLUMN{event}; columns: {some}{more}"
    )


# ---- CSV without a header


def _by_place(table: Table, wanted: Mapping[str, str]) -> dict[str, str]:
    """What the columns are, by what is in them: times in the order queued, started, ended; ids; states."""
    free = [column for column in table.columns if column not in wanted.values()]
    of_times = [column for column in free if _is_all(table.rows, column, _is_time)]
    if len(of_times) > 2 and _is_numbering(table.rows, of_times[0]):
        of_times = of_times[1:]
    guessed: dict[str, str] = {}
    if not {"started", "ended", "duration", "time", "event"} & wanted.keys():
        if len(of_times) not in (2, 3):
            raise UsageError(
                f"{table.name}: has no header and {len(of_times)} columns of times; say which is which, such as "
                "--map started=2 --map ended=3"
            )
        names = ("queued", "started", "ended")[-len(of_times) :]
        guessed.update(zip(names, of_times, strict=True))
    rest = [column for column in free if column not in guessed.values()]
    states = [column for column in rest if _is_all(table.rows, column, _is_state)]
    if states and "state" not in wanted:
        guessed["state"] = states[0]
    ids = [column for column in rest if column not in states and _is_distinct(table.rows, column)]
    if ids and "task" not in wanted:
        guessed["task"] = ids[0]
    return {**{field: column for field, column in guessed.items() if field not in wanted}, **wanted}


def _is_all(rows: Sequence[Row], column: str, test: Callable[[str], bool]) -> bool:
    values = [row.cells[column] for row in rows if row.cells[column] != ""]
    return bool(values) and all(map(test, values))


def _is_time(value: str) -> bool:
    return read_time(value) is not None


def _is_state(value: str) -> bool:
    return read_ending(value, "") is not None


def _is_distinct(rows: Sequence[Row], column: str) -> bool:
    return len({row.cells[column] for row in rows}) == len(rows)


def _is_numbering(rows: Sequence[Row], column: str) -> bool:
    """Small whole numbers, each once: the tasks' numbers, not times."""
    values = [row.cells[column] for row in rows]
    return _is_distinct(rows, column) and all(len(v) < 9 and v.isdecimal() for v in values)


# ---- notes


def _notes(columns: Columns, gathered: Gathered) -> tuple[str, ...]:
    notes = []
    if columns.ignored:
        some = ", ".join(quoted(column)[1:-1] for column in columns.ignored[:_MOST_SHOWN])
        more = f", … ({len(columns.ignored)})" if len(columns.ignored) > _MOST_SHOWN else ""
        notes.append(f"columns left aside: {some}{more}")
    if gathered.base is Base.NAIVE:
        notes.append(
            "its times have no zone; they are taken for those of one zone without a change of clocks"
        )
    return (*notes, *gathered.notes)
