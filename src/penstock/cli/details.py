"""All there is about one task, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.answers import answer_in
from penstock.cli.render import moment, one_line, percent, print_table, say, seconds, text_of
from penstock.model import Attempt, Result, TaskRecord, Wait
from penstock.scheduling.budget import usd
from penstock.store.base import StoredEvent
from penstock.trace import trace_id

_MOST_EVENTS = 50
_LOGS = "logs"  # of an event: what its attempt wrote, over many lines
_DETAIL_WIDTH = 120  # of a wait; an error is told whole where it belongs
ATTEMPT_COLUMNS = (">attempt", "host", "started", ">ran", "verdict", "error")
WAIT_COLUMNS = ("waited for", ">time", ">share", "from", "detail")


def print_details(
    record: TaskRecord,
    result: Result,
    attempts: Sequence[Attempt],
    events: Sequence[StoredEvent],
    *,
    traced: bool,
    log: Path | None = None,
) -> None:
    """With `traced` every task has a trace, also one that brought none."""
    fields = fields_of(record, traced)
    if log is not None:
        fields.append(("log", str(log)))
    cost_usd = cost_of(events)
    if cost_usd is not None:
        fields.append(("cost", f"{usd(cost_usd)} USD"))
    width = max(len(name) for name, _ in fields)
    for name, text in fields:
        say(f"{name:<{width}}  {one_line(text)}")
    _block("payload", record.task.payload)
    if record.error is not None:
        say(f"\nerror\n  {one_line(record.error)}")
    if not isinstance(record.value, str):
        _block("answer", answer_in(record.value))
    _block("value", record.value)
    if attempts:
        say()
        print_attempts(attempts, nodes_of(events))
    for event in events:
        if event.data.get(_LOGS):
            _block(f"logs of attempt {event.attempt}", event.data[_LOGS])
    if result.waits:
        say()
        print_waits(result.waits)
    if events:
        say()
        _print_events(events, record.task.queued_at)


def fields_of(record: TaskRecord, traced: bool) -> list[tuple[str, str]]:
    task = record.task
    fields = [
        ("task", task.id),
        ("state", str(record.state)),
        ("run", task.run),
        ("kind", task.kind),
        ("lane", task.lane),
        ("priority", str(task.priority)),
        ("host", record.host or (f"only {task.host}" if task.host else "")),
        ("model", task.model or ""),
        ("after", ", ".join(task.after)),
        ("needs", ", ".join(f"{unit}={amount:g}" for unit, amount in (task.needs or {}).items())),
        ("queued", moment(task.queued_at)),
        ("started", moment(record.started_at)),
        ("ended", moment(record.ended_at)),
        ("not before", moment(task.not_before)),
        ("deadline", moment(task.deadline)),
        ("next try", moment(record.retry_at)),
        ("time-out", "" if task.timeout_s is None else seconds(task.timeout_s)),
        ("retries", "" if task.retries is None else str(task.retries)),
        ("key", task.key or ""),
        ("output", one_line(task.output or "")),
        ("on crash", "" if task.on_crash == "retry" else str(task.on_crash)),
        ("trace", f"{trace_id(task):032x}" if traced or task.trace is not None else ""),
    ]
    return [(name, text) for name, text in fields if text]


def cost_of(events: Sequence[StoredEvent]) -> float | None:
    """What a task's attempts cost, all of them: a failed one is paid for too."""
    spent = [event.data["usd"] for event in events if event.type == "spent"]
    return round(sum(spent), 6) if spent else None


def _block(name: str, value: Any) -> None:
    if value is not None:
        say(f"\n{name}\n  " + "\n  ".join(lines_of(value)))


def lines_of(value: Any) -> list[str]:
    """A payload or a value for people: text as it is, anything else as JSON over several lines."""
    text = (
        value
        if isinstance(value, str)
        else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    )
    return [one_line(line) if not line.isprintable() else line for line in text.splitlines()]


def nodes_of(events: Sequence[StoredEvent]) -> dict[int, str]:
    """On which machine of a cluster each attempt ran, once it is over."""
    return {one.attempt: one.data["node"] for one in events if one.attempt is not None and "node" in one.data}


def print_attempts(attempts: Sequence[Attempt], nodes: Mapping[int, str]) -> None:
    print_table(ATTEMPT_COLUMNS, attempt_rows(attempts, nodes), flexible="error")


def attempt_rows(attempts: Sequence[Attempt], nodes: Mapping[int, str]) -> list[tuple[str, ...]]:
    return [
        (
            str(attempt.number),
            f"{attempt.host} on {nodes[attempt.number]}" if attempt.number in nodes else attempt.host,
            moment(attempt.started_at),
            "" if attempt.ended_at is None else seconds(attempt.ended_at - attempt.started_at),
            "running" if attempt.ended_at is None else str(attempt.verdict or "interrupted"),
            one_line(attempt.error or ""),
        )
        for attempt in attempts
    ]


def print_waits(waits: Sequence[Wait]) -> None:
    print_table(WAIT_COLUMNS, wait_rows(waits), flexible="detail", fold=True)


def wait_rows(waits: Sequence[Wait]) -> list[tuple[str, ...]]:
    total = sum(wait.seconds for wait in waits)
    return [
        (
            wait.reason,
            seconds(wait.seconds),
            percent(wait.seconds / total) if total else "",
            moment(wait.start),
            one_line(wait.detail, _DETAIL_WIDTH),
        )
        for wait in waits
    ]


def _print_events(events: Sequence[StoredEvent], queued_at: float) -> None:
    rows = [
        (
            f"+{seconds(event.at - queued_at)}",
            event.type,
            "" if event.attempt is None else str(event.attempt),
            event.host or "",
            ", ".join(f"{name}={text_of(value)}" for name, value in event.data.items() if name != _LOGS),
        )
        for event in events[:_MOST_EVENTS]
    ]
    print_table((">when", "event", ">attempt", "host", "data"), rows, flexible="data")
    if len(events) > _MOST_EVENTS:
        say(f"and {len(events) - _MOST_EVENTS} more events")
