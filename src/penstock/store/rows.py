"""Between the words of the model and the columns of a store: how each is written and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.model import Attempt, OnCrash, State, Task, TaskRecord, Verdict
from penstock.store.base import Epoch, Owner, StoredEvent

STATES: Mapping[str, State] = {str(state): state for state in State}
VERDICTS: Mapping[str | None, Verdict | None] = {None: None, **{str(verdict): verdict for verdict in Verdict}}
_ON_CRASH: Mapping[str, OnCrash] = {str(choice): choice for choice in OnCrash}

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_units = msgspec.json.Decoder(dict[str, float]).decode

# What an encoder raises for something that is not JSON.
NOT_JSON = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

PAYLOAD = 27  # its place in a row of `full_records`
VALUE = 26


def json_text(value: Any) -> str:
    return encode(value).decode()


def json_or_null(value: Any) -> str | None:
    return None if value is None else encode(value).decode()


def names_text(names: Sequence[str]) -> str | None:
    return encode(names).decode() if names else None


def units_text(needs: Mapping[str, float] | None) -> str | None:
    """Sorted, so that equal needs are equal texts and can be grouped by the database."""
    return None if needs is None else encode(dict(sorted(needs.items()))).decode()


def units_of(text: str | None) -> dict[str, float] | None:
    return None if text is None else _decode_units(text)


def record_of(row: Sequence[Any], payload: Any = None, value: Any = None) -> TaskRecord:
    """A task from the columns of the `records` view."""
    task = Task(
        row[3],
        payload,
        row[5],
        row[4],
        row[2],
        () if row[7] is None else _decode_names(row[7]),
        None if row[8] is None else _decode_units(row[8]),
        row[9],
        row[10],
        row[11],
        row[12],
        row[13],
        row[14],
        row[15],
        _ON_CRASH[row[16]],
        row[1],
        row[6],
    )
    return TaskRecord(
        task,
        row[0],
        STATES[row[17]],
        row[18],
        row[19],
        row[20],
        row[21],
        row[22],
        row[23],
        row[24],
        value,
        row[25],
    )


def full_record_of(row: Sequence[Any]) -> TaskRecord:
    """A task with its payload and value, from the columns of the `full_records` view."""
    payload, value = row[PAYLOAD], row[VALUE]
    return record_of(
        row, None if payload is None else decode(payload), None if value is None else decode(value)
    )


def attempt_of(row: Sequence[Any]) -> Attempt:
    return Attempt(row[0], row[1], row[2], row[3], row[4], row[5], row[6], VERDICTS[row[7]], row[8], row[9])


def epoch_of(row: Sequence[Any]) -> Epoch:
    return Epoch(row[0], Owner(row[1], row[2], row[3]), row[4], row[5], row[6])


def event_of(row: Sequence[Any]) -> StoredEvent:
    data = row[6]
    return StoredEvent(row[0], row[1], row[2], row[3], row[4], row[5], {} if data is None else decode(data))
