"""Columns of many rows on their way to PostgreSQL: one text each, which the server cuts apart.

The driver looks at every element of an array by itself: for texts that takes it ten times as long as joining them,
and a store that records thousands of steps a second spends most of its time there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from penstock.store.rows import is_text

_BETWEEN = "\x1f"
_NONE = "\x1e"
_FEW = 16  # rows that are not worth it
_ARRAY = re.compile(r"\$(\d+)::(text|bigint)\[\]")
_CUT = r"string_to_array($\1::text, E'\\x1f', E'\\x1e')::\2[]"


def cutting(statement: str) -> str:
    """A statement that takes arrays, as one that takes packed columns."""
    return _ARRAY.sub(_CUT, statement)


def packed(types: Sequence[str], width: int, values: Sequence[Any]) -> list[Any] | None:
    """Rows that stand one after the other, as one parameter per column; None for those that are to go as arrays."""
    rows = len(values) // width
    if rows < _FEW:
        return None
    columns: list[Any] = []
    for place, type in enumerate(types):
        column = values[place::width]
        nulls = column.count(None)
        if nulls == rows:
            columns.append(None)
        elif type == "text[]":
            text = _BETWEEN.join([_NONE if one is None else one for one in column] if nulls else column)
            if text.count(_BETWEEN) >= rows or text.count(_NONE) > nulls or "\0" in text or not is_text(text):
                return None
            columns.append(text)
        elif type == "bigint[]":
            columns.append(_numbers(column, nulls, rows))
        else:
            columns.append(column)
    return columns


def _numbers(column: Sequence[int | None], nulls: int, rows: int) -> str:
    first = column[0]
    if column.count(first) == rows:
        return (f"{first:d}{_BETWEEN}" * rows)[:-1]
    if nulls:
        return _BETWEEN.join([_NONE if one is None else f"{one:d}" for one in column])
    return _BETWEEN.join(map(int.__repr__, column))
