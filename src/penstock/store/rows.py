"""Between the words of the model and the columns of a store: how each is written and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import msgspec

from penstock.diagnosis.history import Change, Stalled
from penstock.model import Attempt, Fault, OnCrash, Plant, State, Task, TaskRecord, Verdict
from penstock.scheduling.messages import AllChange, GateChange, HostChange, LaneChange
from penstock.store.base import Epoch, HostStatus, Owner, StoredEvent, Token

STATES: Mapping[str, State] = {str(state): state for state in State}
VERDICTS: Mapping[str | None, Verdict | None] = {None: None, **{str(verdict): verdict for verdict in Verdict}}
_ON_CRASH: Mapping[str, OnCrash] = {str(choice): choice for choice in OnCrash}

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_units = msgspec.json.Decoder(dict[str, float]).decode
_decode_plant = msgspec.json.Decoder(Plant).decode

# What an encoder raises for something that is not JSON.
NOT_JSON = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

STALL = "Stall"  # the type of a note about user code that kept a loop from turning

PAYLOAD = 29  # its place in a row of `full_records`
VALUE = 28


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


# A frozen dataclass sets every field through `object.__setattr__`, and a dispatcher takes in tens of thousands
# of tasks a second. The setters of their slots do the same in half the time. A field that is added to the
# model and not here fails at import.
_make = object.__new__
_TASK_SLOTS = [getattr(Task, field.name).__set__ for field in fields(Task)]
_kind, _payload, _priority, _lane, _run, _after, _needs, _host, _model = _TASK_SLOTS[:9]
_timeout_s, _deadline, _not_before, _retries, _key, _crash, _id, _queued_at, _trace, _output = _TASK_SLOTS[9:]
_RECORD_SLOTS = [getattr(TaskRecord, field.name).__set__ for field in fields(TaskRecord)]
_task, _number, _state, _attempts, _tries, _faults, _retry_at, _ran_on = _RECORD_SLOTS[:8]
_started_at, _ended_at, _value, _error = _RECORD_SLOTS[8:]


def record_of(row: Sequence[Any], payload: Any = None, value: Any = None) -> TaskRecord:
    """A task from the columns of the `records` view."""
    task = _make(Task)
    _kind(task, row[3])
    _payload(task, payload)
    _priority(task, row[5])
    _lane(task, row[4])
    _run(task, row[2])
    _after(task, () if row[7] is None else _decode_names(row[7]))
    _needs(task, None if row[8] is None else _decode_units(row[8]))
    _host(task, row[9])
    _model(task, row[10])
    _timeout_s(task, row[11])
    _deadline(task, row[12])
    _not_before(task, row[13])
    _retries(task, row[14])
    _key(task, row[15])
    _crash(task, _ON_CRASH[row[16]])
    _id(task, row[1])
    _queued_at(task, row[6])
    _trace(task, row[26])
    _output(task, row[27])
    record = _make(TaskRecord)
    _task(record, task)
    _number(record, row[0])
    _state(record, STATES[row[17]])
    _attempts(record, row[18])
    _tries(record, row[19])
    _faults(record, row[20])
    _retry_at(record, row[21])
    _ran_on(record, row[22])
    _started_at(record, row[23])
    _ended_at(record, row[24])
    _value(record, value)
    _error(record, row[25])
    return record


def full_record_of(row: Sequence[Any]) -> TaskRecord:
    """A task with its payload and value, from the columns of the `full_records` view."""
    payload, value = row[PAYLOAD], row[VALUE]
    return record_of(
        row, None if payload is None else decode(payload), None if value is None else decode(value)
    )


def attempt_of(row: Sequence[Any]) -> Attempt:
    return Attempt(row[0], row[1], row[2], row[3], row[4], row[5], row[6], VERDICTS[row[7]], row[8], row[9])


def epoch_of(row: Sequence[Any]) -> Epoch:
    """With when it began to stop, where the row has that."""
    number, pid, machine, command, answers_only, started_at, seen_at, ended_at, plant, *rest = row
    url, only_run, *stopping = rest
    owner = Owner(pid, machine, command, answers_only=bool(answers_only), url=url, only_run=only_run)
    known = None if plant is None else _decode_plant(plant)
    return Epoch(number, owner, started_at, seen_at, ended_at, known, stopping[0] if stopping else None)


def plant_text(plant: Plant | None) -> str | None:
    """Without what belongs to the adapters: that may name secrets, and explains nothing."""
    if plant is None:
        return None
    return json_text(replace(plant, hosts=tuple(replace(host, options={}) for host in plant.hosts)))


def change_of(event: StoredEvent) -> Change:
    """A condition as the scheduler told it."""
    data = event.data
    if event.type == "host":
        fault = Fault(data["error"], data.get("needs_fix", False)) if "error" in data else None
        return HostChange(event.host or "", event.at, data["state"], data["slots"], data["detail"], fault)
    if event.type == "lane":
        return LaneChange(data["lane"], event.at, data["paused"])
    if event.type == "gate":
        return GateChange(data["gate"], event.at, data["open"], data["detail"])
    return AllChange(event.at, data["paused"])


def host_of(row: Sequence[Any]) -> tuple[str, HostStatus]:
    name, state, slots, detail, changed_at, error, needs_fix = row
    fault = None if error is None else Fault(error, bool(needs_fix))
    return name, HostStatus(state, slots, detail, changed_at, fault)


def host_data(change: HostChange) -> dict[str, Any]:
    """What the event of a host's change says beside the host and the time."""
    data: dict[str, Any] = {"state": change.state, "slots": change.slots, "detail": change.detail}
    if change.fault is not None:
        data["error"] = change.fault.error
        if change.fault.needs_fix:
            data["needs_fix"] = True
    return data


def stall_of(event: StoredEvent) -> Stalled:
    data = event.data
    return Stalled(event.task, event.attempt, data["host"], event.at, data["seconds"], data["stack"])


def event_of(row: Sequence[Any]) -> StoredEvent:
    data = row[6]
    return StoredEvent(row[0], row[1], row[2], row[3], row[4], row[5], {} if data is None else decode(data))


def condition_of(told: Change | Stalled) -> StoredEvent:
    """The event that a condition or a stall was read from."""
    match told:
        case HostChange(host, at):
            return _condition(at, "host", host_data(told), host=host)
        case LaneChange(lane, at, paused):
            return _condition(at, "lane", {"lane": lane, "paused": paused})
        case GateChange(gate, at, is_open, detail):
            return _condition(at, "gate", {"gate": gate, "open": is_open, "detail": detail})
        case AllChange(at, paused):
            return _condition(at, "all", {"paused": paused})
    data = {"host": told.host, "seconds": told.seconds, "stack": told.stack}
    return StoredEvent(0, told.at, STALL, told.task, told.attempt, None, data)


def _condition(at: float, type: str, data: Mapping[str, Any], host: str | None = None) -> StoredEvent:
    return StoredEvent(0, at, type, None, None, host, data)


def token_row(token: Token) -> tuple[Any, ...]:
    limits = (token.requests_per_min, token.max_queued)
    scopes = json_text(token.scopes)
    return (token.name, token.id, token.digest, scopes, token.lane, token.priority, *limits, token.created_at)


def token_of(row: Sequence[Any]) -> Token:
    return Token(row[0], row[1], row[2], _decode_names(row[3]), *row[4:])


def is_text(text: str) -> bool:
    """Lone surrogates are none."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
