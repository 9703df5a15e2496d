"""Which column of a log tells what: by its name, in the words of many systems, or as the user maps it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.config.problems import meant, quoted
from penstock.errors import UsageError
from penstock.intake.logs.times import UNITS

# What can be told, and under which names; an earlier name wins over a later one.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "started": (
        "started", "started_at", "start", "start_time", "start_at", "start_timestamp", "start_date", "started_on",
        "starttime", "time_started", "started_time", "launched", "launched_at", "launch", "launch_time", "begin",
        "began", "began_at", "begin_time", "begin_at", "dispatched", "dispatched_at", "run_start",
        "execution_start", "first_seen",
    ),
    "ended": (
        "ended", "ended_at", "end", "end_time", "end_at", "end_timestamp", "end_date", "endtime", "time_ended",
        "ended_time", "finished", "finished_at", "finish", "finish_time", "completed", "completed_at", "complete",
        "completion", "completion_time", "complete_time", "completed_on", "stopped", "stopped_at", "stop",
        "stop_time", "done_at", "run_end", "execution_end", "date_done", "last_seen",
    ),
    "duration": (
        "duration", "elapsed", "elapsed_time", "took", "runtime", "run_time", "seconds", "response_time", "latency",
    ),
    "queued": (
        "queued", "queued_at", "queued_time", "queued_dttm", "enqueued", "enqueued_at", "enqueue_time", "submitted",
        "submitted_at", "submit", "submit_time", "created", "created_at", "create_time", "created_time",
        "creation_time", "arrived", "arrived_at", "arrival", "arrival_time", "sent", "sent_at", "received",
        "received_at",
        "requested", "requested_at", "request_time", "date_created",
    ),
    "task": (
        "task", "task_id", "id", "uuid", "task_uuid", "job", "job_id", "jobid", "request_id", "call_id",
        "work_id", "item", "item_id", "task_name", "job_name", "issue", "key", "run_id", "name",
    ),
    "kind": (
        "kind", "type", "task_type", "task_kind", "job_type", "queue", "queue_name", "function", "func",
        "function_name", "category", "operation", "op",
    ),
    "host": (
        "host", "hostname", "host_name", "worker", "worker_id", "worker_name", "server", "server_name", "node",
        "node_name", "node_id", "machine", "device", "gpu", "backend", "endpoint", "instance", "agent",
        "executor", "runner", "base_url", "url",
    ),
    "lane": ("lane", "family", "group", "pool", "tenant", "team", "partition", "task_group"),
    "model": ("model", "model_name", "model_id", "llm", "llm_model"),
    "priority": ("priority", "prio", "urgency", "task_priority"),
    "after": ("after", "depends_on", "depends", "dependencies", "deps", "parents", "parent", "parent_id"),
    "state": (
        "state", "status", "outcome", "result", "success", "succeeded", "successful", "ok", "final_state",
        "task_state", "exit_code", "exit_status", "exitcode", "returncode", "return_code", "rc", "http_status",
        "status_code",
    ),
    "attempt": ("attempt", "attempt_number", "attempt_no", "try", "try_number", "retry", "retry_number"),
    "error": ("error", "error_message", "exception", "exc", "failure", "failure_reason", "err", "reason"),
    "cost": ("cost", "cost_usd", "usd", "price", "price_usd", "total_cost"),
    "event": ("event", "event_type", "event_name", "action", "phase", "transition", "what"),
    "time": ("time", "timestamp", "ts", "at", "datetime", "date_time", "event_time", "when", "asctime"),
}  # fmt: skip

# What a name may end with and still be the same column; numbers in it count in that unit.
_ENDS = (*UNITS, "s", "sec", "secs", "seconds", "ts", "utc")

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BETWEEN = re.compile(r"[^a-z0-9µ]+")


def plain_name(column: str) -> str:
    """`Start Time (ms)`, `startTime-ms` and `start_time_ms` are the same column."""
    return _BETWEEN.sub("_", _HUMPS.sub("_", column).lower()).strip("_")


def bare_name(column: str) -> str:
    """The same without its unit: `start_time` of `start_time_ms`."""
    name = plain_name(column)
    stem, _, end = name.rpartition("_")
    return stem if stem and end in _ENDS else name


@dataclass(frozen=True, slots=True)
class Columns:
    """What each column of a log is read as."""

    chosen: Mapping[str, str]  # field -> column
    ignored: tuple[str, ...]

    def __contains__(self, field: object) -> bool:
        return field in self.chosen


def read_maps(pairs: Sequence[str]) -> dict[str, str]:
    """`started=launch_ts` → which column tells when a task started; an empty column: none does."""
    maps: dict[str, str] = {}
    for pair in pairs:
        field, equals, column = pair.partition("=")
        field = field.strip()
        if not equals:
            raise UsageError(f"--map: {quoted(pair)} must be FIELD=COLUMN, such as --map started=launch_ts")
        if field not in ALIASES:
            raise UsageError(f"--map: there is no field {quoted(field)}{meant(field, ALIASES, 'fields')}")
        if field in maps:
            raise UsageError(f"--map: {field} is mapped twice; keep one")
        maps[field] = column.strip()
    return maps


def choose_columns(there: Sequence[str], maps: Mapping[str, str], name: str) -> Columns:
    """The maps first, then the names; a column tells one thing only."""
    chosen: dict[str, str] = {}
    for field, column in maps.items():
        if column:
            chosen[field] = _found(column, there, field, name)
    taken = set(chosen.values())
    by_name = {bare_name(column): column for column in reversed(there)}
    by_name |= {plain_name(column): column for column in reversed(there)}
    # A nested value may be named by its own name alone, where that is not ambiguous.
    inner: dict[str, list[str]] = {}
    for column in there:
        if "." in column:
            inner.setdefault(bare_name(column.rpartition(".")[2]), []).append(column)
    for field, aliases in ALIASES.items():
        if field in maps:
            continue
        for alias in aliases:
            column = by_name.get(alias) or (inner[alias][0] if len(inner.get(alias, ())) == 1 else "")
            if column and column not in taken:
                chosen[field] = column
                taken.add(column)
                break
    return Columns(chosen, tuple(column for column in there if column not in taken))


def _found(column: str, there: Sequence[str], field: str, name: str) -> str:
    if column in there:
        return column
    same = [one for one in there if plain_name(one) == plain_name(column)]
    if len(same) == 1:
        return same[0]
    raise UsageError(f"--map {field}: {name} has no column {quoted(column)}{meant(column, there, 'columns')}")
