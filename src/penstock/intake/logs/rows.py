"""A log's text → rows with their lines: CSV in its dialects, JSONL, a JSON array."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from penstock.config.problems import file_shown, kind_of
from penstock.errors import UsageError
from penstock.intake.documents import json_error
from penstock.intake.logs.columns import ALIASES, bare_name
from penstock.intake.logs.times import read_time

MAX_LOG_BYTES = 256 * 1024**2
MAX_LINE_BYTES = 1024**2
MAX_ROWS = 1_000_000
MAX_COLUMNS = 256
STDIN = "-"
_MAX_DEPTH = 4

_DELIMITERS = ",;\t|"
_PROBED_ROWS = 20
_NAMES = frozenset(alias for aliases in ALIASES.values() for alias in aliases)
_BLANK = b" \t\r\n"


class Row(NamedTuple):
    line: int
    cells: Mapping[str, Any]  # column -> text, or a JSON value


@dataclass(frozen=True, slots=True)
class Table:
    """All rows of a log. `headed` is False for CSV without a header, whose columns are called 1, 2, 3."""

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    headed: bool = True


class Text(NamedTuple):
    """A log as it lies there, and as its reader would call it."""

    name: str
    stem: str
    suffix: str
    data: bytes


def read_text(path: Path | str) -> Text:
    """A file, or standard input for `-`, whole and within bounds."""
    if str(path) == STDIN:
        return Text("<stdin>", "stdin", "", _bounded(sys.stdin.buffer.read(MAX_LOG_BYTES + 1), "<stdin>"))
    path = Path(path)
    name = file_shown(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_LOG_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{name}: there is no such file; correct the name") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return Text(name, path.stem, path.suffix.lower(), _bounded(data, name))


def given_text(name: str, data: bytes) -> Text:
    """A log that somebody sends, by the name it has there."""
    path = Path(name or "log")
    return Text(path.name, path.stem, path.suffix.lower(), _bounded(data, path.name))


def _bounded(data: bytes, name: str) -> bytes:
    if len(data) > MAX_LOG_BYTES:
        raise UsageError(f"{name}: is over {MAX_LOG_BYTES // 1024**2} MiB; give a part of it")
    return data.removeprefix(b"\xef\xbb\xbf")


def read_table(text: Text) -> Table:
    """The rows, by the look of the text; a file's ending decides where it is known."""
    first = text.data.lstrip(_BLANK)[:1]
    if not first:
        raise UsageError(f"{text.name}: is empty; a log has a row per attempt")
    if text.suffix not in (".csv", ".tsv"):
        if first == b"[":
            return _json_array(text)
        if first == b"{" or text.suffix in (".jsonl", ".ndjson"):
            return _json_lines(text)
    return _csv_table(text)


def _decoded(text: Text) -> str:
    try:
        return text.data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = text.data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{text.name}:{line}: is not UTF-8 text; save the log as UTF-8") from None


def _checked(rows: list[Row], name: str) -> list[Row]:
    if not rows:
        raise UsageError(f"{name}: has no rows; a log has a row per attempt")
    return rows


def _too_many(name: str, line: int) -> UsageError:
    return UsageError(f"{name}:{line}: is row {MAX_ROWS + 1}; at most {MAX_ROWS} are read, give a part of it")


# ---- JSON


def _json_lines(text: Text) -> Table:
    rows: list[Row] = []
    columns: dict[str, None] = {}
    start, number = 0, 0
    while start < len(text.data):
        number += 1
        end = text.data.find(b"\n", start)
        line = text.data[start : len(text.data) if end < 0 else end]
        start = len(text.data) if end < 0 else end + 1
        if len(line) > MAX_LINE_BYTES:
            raise UsageError(
                f"{text.name}:{number}: is over {MAX_LINE_BYTES // 1024**2} MiB; shorten the line"
            )
        if not line.strip(_BLANK):
            continue
        if len(rows) == MAX_ROWS:
            raise _too_many(text.name, number)
        rows.append(_json_row(_json_value(line, text.name, number), text.name, number, columns))
    return Table(text.name, tuple(columns), _checked(rows, text.name))


def _json_value(line: bytes, name: str, number: int) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        what = json_error(str(error), line)[1]
    except UnicodeDecodeError:
        what = "is not UTF-8 text; save the log as UTF-8"
    except RecursionError:
        what = "is nested too deeply; flatten it"
    raise UsageError(f"{name}:{number}: {what}")


def _json_array(text: Text) -> Table:
    try:
        entries = msgspec.json.decode(text.data, type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        line, what = json_error(str(error), text.data)
        raise UsageError(f"{text.name}:{line}: {what}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{text.name}: is not UTF-8 text; save the log as UTF-8") from None
    except RecursionError:
        raise UsageError(f"{text.name}: is nested too deeply; flatten it") from None
    rows: list[Row] = []
    columns: dict[str, None] = {}
    at, line = 0, 1
    for entry in entries:
        raw = bytes(entry)
        begins = text.data.index(raw, at)  # as it stands there, so it is found
        line += text.data.count(b"\n", at, begins)
        at = begins
        if len(rows) == MAX_ROWS:
            raise _too_many(text.name, line)
        rows.append(_json_row(_json_value(raw, text.name, line), text.name, line, columns))
        at += len(raw)
        line += raw.count(b"\n")
    return Table(text.name, tuple(columns), _checked(rows, text.name))


def _json_row(entry: Any, name: str, line: int, columns: dict[str, None]) -> Row:
    if not isinstance(entry, dict):
        raise UsageError(f"{name}:{line}: must be an object with a row's values, not {kind_of(entry)}")
    cells = dict(_flat(entry))
    columns.update(dict.fromkeys(cells))
    if len(columns) > MAX_COLUMNS:
        raise UsageError(f"{name}:{line}: brings more than {MAX_COLUMNS} columns; keep those that matter")
    return Row(line, cells)


def _flat(entry: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Nested objects as columns named like their way: timing.started."""
    for key, value in entry.items():
        if isinstance(value, dict) and depth < _MAX_DEPTH:
            yield from _flat(value, f"{prefix}{key}.", depth + 1)
        else:
            yield f"{prefix}{key}", value


# ---- CSV


def _csv_table(text: Text) -> Table:
    decoded = _decoded(text)
    long = next((n for n, line in enumerate(decoded.split("\n"), 1) if len(line) > MAX_LINE_BYTES), None)
    if long is not None:
        raise UsageError(f"{text.name}:{long}: is over {MAX_LINE_BYTES // 1024**2} MiB; shorten the line")
    records = _records(decoded, "\t" if text.suffix == ".tsv" else _delimiter(decoded), text.name)
    first = next(records, None)
    if first is None:
        raise UsageError(f"{text.name}: has no rows; a log has a row per attempt")
    headed = _is_header(first[1])
    columns = _header(first[1]) if headed else tuple(str(n) for n in range(1, len(first[1]) + 1))
    if len(columns) > MAX_COLUMNS:
        raise UsageError(
            f"{text.name}:{first[0]}: has {len(columns)} columns; at most {MAX_COLUMNS} are read"
        )
    rows = [] if headed else [_csv_row(*first, columns, text.name)]
    for line, cells in records:
        if len(rows) == MAX_ROWS:
            raise _too_many(text.name, line)
        rows.append(_csv_row(line, cells, columns, text.name))
    return Table(text.name, columns, _checked(rows, text.name), headed)


def _records(text: str, delimiter: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Each record with the line it begins on; blank lines are none."""
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True
    )
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UsageError(f"{name}:{line}: is not CSV: {error}; mend the quotes of this row") from None
        if any(cell.strip() for cell in cells):
            yield line, [cell.strip() for cell in cells]


def _delimiter(text: str) -> str:
    """The sign that cuts the first rows alike, into names that are known, into the most columns."""

    def fitness(delimiter: str) -> tuple[bool, int, int, int]:
        widths, known = [], 0
        try:
            for _, cells in _records(text[: 64 * 1024], delimiter, ""):
                known = known or sum(bare_name(cell) in _NAMES for cell in cells)
                widths.append(len(cells))
                if len(widths) == _PROBED_ROWS:
                    break
        except UsageError:  # a quote that another sign would have ended, or the cut of the probe
            pass
        even = len(widths) > 1 and len(set(widths[:-1] or widths)) == 1
        return widths != [] and widths[0] > 1, known, even, widths[0] if widths else 0

    return max(_DELIMITERS, key=fitness)


def _is_header(cells: Sequence[str]) -> bool:
    """Names, not values: no cell is a time or a number."""
    return not any(read_time(cell) is not None for cell in cells)


def _header(cells: Sequence[str]) -> tuple[str, ...]:
    names: list[str] = []
    for number, cell in enumerate(cells, 1):
        name = (cell.lstrip("# ") if number == 1 else cell) or f"column {number}"
        copies = sum(one == name or one.startswith(f"{name} (") for one in names)
        names.append(f"{name} ({copies + 1})" if name in names else name)
    return tuple(names)


def _csv_row(line: int, cells: list[str], columns: Sequence[str], name: str) -> Row:
    while len(cells) > len(columns) and not cells[-1]:
        cells.pop()
    if len(cells) != len(columns):
        fix = "quote what holds the delimiter" if len(cells) > len(columns) else "complete the row"
        raise UsageError(
            f"{name}:{line}: has {len(cells)} fields where the first row has {len(columns)}; {fix}"
        )
    return Row(line, dict(zip(columns, cells, strict=True)))
