"""What the agent server takes for JSON, also where it must not build it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.agents import agent_server

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
_BITS = st.sampled_from(
    [
        *'[]{},:"\\ \n\t-.+',
        "0",
        "1",
        "e",
        "E",
        "true",
        "null",
        '""',
        '"a"',
        "\\u00e4",
        "\\x",
        "\x00",
        "12",
        "nul",
    ]
)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=agent_server._not_json)
    except (ValueError, RecursionError):
        return False
    return True


@given(_VALUES, st.sampled_from([None, 2]), st.booleans())
def test_what_json_writes_is_json(value: object, indent: int | None, ascii: bool) -> None:
    assert agent_server._scanned(json.dumps(value, indent=indent, ensure_ascii=ascii))


@given(st.lists(_BITS, max_size=12).map("".join))
def test_the_scan_says_what_pythons_reader_says(text: str) -> None:
    assert agent_server._scanned(text) == _is_json(text)


@given(_VALUES, st.data())
def test_the_scan_says_the_same_of_damaged_json(value: object, data: st.DataObject) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    damaged = text[:at] + data.draw(_BITS) + text[at + data.draw(st.integers(0, 2)) :]
    assert agent_server._scanned(damaged) == _is_json(damaged)


HEAVY = 50_000  # a twentieth of what the server bears: to look through its whole measure takes seconds


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("[" + "[]," * (HEAVY + 1) + "[]]", "json"),
        ("[" + "[]," * (HEAVY + 1) + "[]", "text"),
        ("[" * (HEAVY + 1), "text"),
    ],
)
def test_b4_output_of_very_many_parts_is_not_built(
    text: str, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile agent hurts only its own task: what its server would build could cost its container."""

    def built(*_: object, **__: object) -> None:
        raise AssertionError("it was built")

    assert agent_server._HEAVY_VALUES == 20 * HEAVY
    monkeypatch.setattr(agent_server, "_HEAVY_VALUES", HEAVY)
    monkeypatch.setattr(json, "loads", built)
    assert agent_server.read_result(text.encode())[0] == format
