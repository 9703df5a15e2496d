"""The queries of PostgreSQL: what types their parameters have, and several of them as one statement.

A statement is a journey to the server and back. What a transaction writes without needing to know an answer is
collected, and goes there as one: each query becomes a part of a `WITH`, with its parameters counted on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from penstock.store.postgres_packing import cutting, packed
from penstock.store.queries import named_queries
from penstock.store.rows import decode, is_text

FILE = "postgres/queries.sql"
MOVES = frozenset({"move_live", "move_tasks"})  # both change tasks, and never the same ones
# Those of one table that one statement may hold: attempts that end here began in transactions before.
APART = (MOVES, frozenset({"add_attempts", "end_attempts"}))

_PARAMETER = re.compile(r"\$(\d+)")
_TYPED = re.compile(r"\$(\d+)::(\w+(?:\[\])?)")
_TABLE = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)")
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Query:
    name: str
    text: str
    types: tuple[str, ...]
    table: str  # that it writes to
    numbers: bool  # it goes on from the numbers of `heads`
    is_packed: bool  # see `postgres_packing`

    def given(self, parameters: Sequence[Any]) -> list[Any]:
        """The parameters as the driver wants them. What is no text raises UnicodeEncodeError."""
        return [_given(type, value) for type, value in zip(self.types, parameters, strict=True)]

    def columns(self, width: int, values: Sequence[Any]) -> list[Any]:
        """Rows that stand one after the other, as one array per column; None for one that is empty."""
        rows = len(values) // width
        columns: list[Any] = []
        for place, type in enumerate(self.types):
            column = values[place::width]
            if column[0] is None and column.count(None) == rows:
                columns.append(None)
            else:
                columns.append(_printable(column) if type == "text[]" else column)
        return columns


@dataclass(frozen=True, slots=True)
class Part:
    """A query that waits to be sent, and how many rows it must change where that is believed."""

    query: Query
    given: list[Any]
    rows: int
    believed: int | None = None


@cache
def query(name: str, is_packed: bool = False) -> Query:
    text = named_queries(FILE)[name]
    types = {int(place): type for place, type in _TYPED.findall(text)}
    table = _TABLE.search(text)
    in_order = tuple(types[place] for place in sorted(types))
    numbers = bool(re.search(r"\bhead\b", text))
    return Query(
        name,
        cutting(text) if is_packed else text,
        in_order,
        table[1] if table else "",
        numbers,
        is_packed,
    )


def for_rows(name: str, width: int, values: Sequence[Any]) -> tuple[Query, list[Any]]:
    """A query over many rows, which stand one after the other, and its parameters."""
    asked = query(name)
    columns = packed(asked.types, width, values)
    return (asked, asked.columns(width, values)) if columns is None else (query(name, True), columns)


def numbered(statement: str) -> str:
    """`?` for every value becomes `$1`, `$2`, …"""
    pieces = statement.split("?")
    return "".join(f"{piece}${place}" for place, piece in enumerate(pieces[:-1], 1)) + pieces[-1]


@cache
def composed(
    parts: tuple[tuple[str, bool, bool], ...], moves_mark: bool, checks_epoch: bool, notifies: bool
) -> str:
    """One statement of several: of each its name, whether it is packed, and whether it is believed.

    Its parameters: of `head` where it is there, of each part with the rows that are believed of it, the epoch, the
    mark, the notice; in this order.
    """
    pieces: list[str] = []
    checks: list[str] = []
    at = 0
    if checks_epoch or any(query(name).numbers for name, _, _ in parts):
        pieces.append(f"head AS ({query('head').text})")
        at = len(query("head").types)
    for place, (name, is_packed, is_believed) in enumerate(parts):
        text = _shifted(query(name, is_packed).text, at)
        at += len(query(name).types)
        if is_believed:
            text += "\nRETURNING 1"
            at += 1
            checks.append(_must(f"(SELECT count(*) FROM part{place}) = ${at}::bigint", name))  # noqa: S608
        pieces.append(f"part{place} AS ({text})")
    if checks_epoch:
        at += 1
        checks.append(_must(f"(SELECT epoch FROM head) = ${at}::bigint", "epoch"))  # noqa: S608
    if moves_mark:
        pieces.append(f"mark AS ({_shifted(query('move_mark').text, at)})")
        at += len(query("move_mark").types)
        checks.append(_must("EXISTS (SELECT FROM mark)", "mark"))
    if notifies:
        checks.append(f"pg_notify(${at + 1}::text, ${at + 2}::text)::text IS NOT NULL")
    return (
        f"WITH {', '.join(pieces)}\nSELECT {' AND '.join(checks) or 'true'}"
        if pieces
        else f"SELECT {checks[0]}"
    )


def _must(holds: str, what: str) -> str:
    """The function, which has to be interpreted, is called only where something does not hold."""
    return f"CASE WHEN {holds} THEN true ELSE must(false, '{what}') END"


@cache
def counted(asked: Query) -> str:
    """A query that goes on from the numbers of `heads`, by itself: its parameters come behind those of `head`."""
    head = query("head")
    return f"WITH head AS ({head.text})\n{_shifted(asked.text, len(head.types))}"


def needs_head(parts: Sequence[Part], checks_epoch: bool) -> bool:
    return checks_epoch or any(part.query.numbers for part in parts)


def _shifted(text: str, by: int) -> str:
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + by}", text)


def _given(type: str, value: Any) -> Any:
    if type == "text[]" and isinstance(value, str):
        return _printable(decode(value))
    if type == "bigint[]" and isinstance(value, str):
        return decode(value)
    if type == "text" and isinstance(value, str):
        value.encode()
        return value.replace("\0", _REPLACEMENT) if "\0" in value else value
    return value


def _printable(column: Sequence[str | None]) -> Sequence[str | None]:
    """Neither zero characters, which the database refuses, nor lone surrogates, which no text has."""
    joined = "".join(filter(None, column))
    if "\0" not in joined and is_text(joined):
        return column
    return [None if text is None else cleaned(text) for text in column]


def cleaned(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", _REPLACEMENT)
