"""What is read of an agent's answer: the fields that the protocol has, without making anything of the rest.

A container may send ten million bytes of empty lists. To make them takes seconds in which nothing else is done by
this process, in whichever thread, so what is not needed is checked and left as it came, and what is to be made of
a result has a limit.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

MOST_PARTS = 500_000  # of a value: each of its keys, and two for each list or table; a fraction of a second
_MOST_SMALL_BYTES = 64  # a number or a word
_QUOTE = b'"'
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_Field = Raw | UnsetType


class _Error(msgspec.Struct):
    code: _Field = UNSET
    message: _Field = UNSET
    exit: _Field = UNSET
    signal: _Field = UNSET
    stderr: _Field = UNSET
    stdout: _Field = UNSET


class _Table(msgspec.Struct):
    """A whole answer, or a line of one."""

    type: _Field = UNSET
    id: _Field = UNSET
    status: _Field = UNSET
    exit: _Field = UNSET
    signal: _Field = UNSET
    http: _Field = UNSET
    format: _Field = UNSET
    data: _Field = UNSET
    base64: _Field = UNSET
    stderr: _Field = UNSET
    truncated: _Field = UNSET
    duration_s: _Field = UNSET
    waited_s: _Field = UNSET
    result: _Field = UNSET
    error: _Field = UNSET


_read_table = msgspec.json.Decoder(_Table).decode
_read_error = msgspec.json.Decoder(_Error).decode
_read_raw = msgspec.json.Decoder(Raw).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def read_table(data: bytes) -> dict[str, Any] | None:
    """The fields of a table that the protocol has, its `result` as it came. None: it is no table.

    What is no JSON is raised, as one of NOT_JSON. A field that is neither a text nor a number or a word is None.
    """
    try:
        table = _read_table(data)
    except msgspec.ValidationError:
        return None
    if not data.isascii():
        data.decode()
    told = _fields(table)
    if isinstance(table.result, Raw):
        told["result"] = table.result
    if isinstance(table.error, Raw):
        try:
            told["error"] = _fields(_read_error(table.error))
        except msgspec.ValidationError:
            told["error"] = None
    return told


def extended(data: bytes, **more: Any) -> bytes:
    """The same table with these fields in place of its own, on one line; nothing else in it is looked at."""
    try:
        table = _read_table(data)
    except NOT_JSON:
        return _encode(more)
    fields = {name: raw for name in table.__struct_fields__ if (raw := getattr(table, name)) is not UNSET}
    return _on_one_line(_encode({**fields, **more}))


def _on_one_line(data: bytes) -> bytes:
    """Between the parts of JSON an end of line is as good as a blank, and inside them there is none."""
    return data.replace(b"\r", b" ").replace(b"\n", b" ")


def check(data: bytes) -> None:
    """Raises one of NOT_JSON for what is none."""
    _read_raw(data)
    data.decode()


def _fields(table: msgspec.Struct) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name in table.__struct_fields__:
        raw = getattr(table, name)
        if raw is not UNSET and name not in ("result", "error"):
            told[name] = _small(bytes(raw))
    return told


def _small(raw: bytes) -> Any:
    if raw[:1] != _QUOTE and (len(raw) > _MOST_SMALL_BYTES or raw[:1] in b"[{"):
        return None
    return _decode(raw)


def is_text(raw: bytes) -> bool:
    return raw[:1] == _QUOTE


def parts_of(raw: bytes) -> int:
    """At most so much is to be made for a value: see MOST_PARTS. Brackets in its texts count as well."""
    if is_text(raw):
        return 0
    return 2 * (raw.count(b"[") + raw.count(b"{")) + raw.count(b'":')


def value_of(raw: bytes) -> Any:
    """Raises one of NOT_JSON."""
    return _decode(raw)
