"""Columns that travel as one text: whatever is in them comes out again, or they travel as arrays."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.store.postgres_packing import cutting, packed

TEXTS = st.text(st.sampled_from('ab,{}"\\\0\x1e\x1f\ud800é'), max_size=4)
ROWS = st.integers(14, 20)


def cut(column: str) -> list[str | None]:
    """As the server does it."""
    return [None if part == "\x1e" else part for part in column.split("\x1f")]


@given(st.data())
def test_what_is_packed_is_cut_into_the_same_rows(data: st.DataObject) -> None:
    rows = data.draw(ROWS)
    texts = data.draw(st.lists(st.none() | TEXTS, min_size=rows, max_size=rows))
    numbers = data.draw(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=rows, max_size=rows))
    times = data.draw(st.lists(st.none() | st.floats(), min_size=rows, max_size=rows))
    values: list[Any] = [value for row in zip(texts, numbers, times, strict=True) for value in row]
    columns = packed(("text[]", "bigint[]", "float8[]"), 3, values)
    strange = any(text and set(text) & set("\0\x1e\x1f\ud800") for text in texts)
    assert (columns is None) == (strange or rows < 16)
    if columns is None:
        return
    told: tuple[list[Any], list[Any]] = (texts, numbers)
    for column, sent in zip(told, columns[:2], strict=True):
        if sent is None:
            assert not any(value is not None for value in column)
        else:
            assert cut(sent) == [None if value is None else str(value) for value in column]
    assert columns[2] in (None, times)


def test_the_same_number_everywhere_is_packed_too() -> None:
    columns = packed(("bigint[]",), 1, [7] * 16)
    assert columns is not None
    assert cut(columns[0]) == ["7"] * 16


def test_a_statement_cuts_texts_and_whole_numbers_and_takes_times_as_they_are() -> None:
    cuts = "string_to_array(${}::text, E'\\x1f', E'\\x1e')::{}[]"
    texts, numbers = cuts.format(1, "text"), cuts.format(2, "bigint")
    asked = "unnest($1::text[], $2::bigint[], $3::float8[]) WHERE $4::text = ''"
    assert cutting(asked) == f"unnest({texts}, {numbers}, $3::float8[]) WHERE $4::text = ''"
