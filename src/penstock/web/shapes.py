"""What comes out of the HTTP API, for the OpenAPI document: each answer's fields, and the one shape of errors."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass  # these know their schema; it is asked for by every route


@dataclass
class ErrorDetail:
    message: str
    type: str
    remedy: str = ""


@dataclass
class ErrorRecord:
    error: ErrorDetail


_SCHEMAS = "#/components/schemas/"
_ERRORS = {
    400: "The body is not JSON.",
    401: "There is no token, or it is not known.",
    403: "The token has not the scope, or the host or origin is refused.",
    404: "There is no such thing.",
    405: "This method is not possible here.",
    408: "The rest of the body did not come.",
    409: "It cannot be done in the state that it is in.",
    413: "The body is too long.",
    415: "The body must be application/json.",
    422: "The request is wrong: the message says where.",
    429: "Too many requests, or too much waits; `Retry-After` says when to try again.",
    502: "No container, or no host, could do it.",
    503: "The server is stopping, or its store cannot be used now.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals that a route documents.

    They name the shape that `error_schemas` tells: of a model the framework would prepare to write each of them,
    and there are hundreds.
    """
    return {
        status: {
            "description": _ERRORS[status],
            "content": {"application/json": {"schema": {"$ref": f"{_SCHEMAS}ErrorRecord"}}},
        }
        for status in statuses
    }


def error_schemas() -> dict[str, Any]:
    """For the document: what refusals look like."""
    schema = TypeAdapter(ErrorRecord).json_schema(ref_template=f"{_SCHEMAS}{{model}}")
    return {**schema.pop("$defs"), ErrorRecord.__name__: schema}


# ---- /health


@dataclass
class HealthCheck:
    state: Literal["ok", "degraded", "failing"]
    detail: str


@dataclass
class HealthRecord:
    """Beyond the status: only for those who may read."""

    status: Literal["ok", "degraded", "failing"]
    role: Literal["leader", "standby", "none"] | None = None
    reasons: list[str] | None = None
    store: HealthCheck | None = None
    dispatcher: HealthCheck | None = None
    hosts: HealthCheck | None = None
    councils: HealthCheck | None = None  # where there are any


@dataclass
class LiveRecord:
    status: Literal["ok"]


# ---- tasks and runs

StateName = Literal["queued", "running", "done", "failed", "cancelled", "blocked"]


@dataclass
class TaskFields:
    number: int
    task_id: str
    name: str | None
    run: str
    kind: str
    lane: str
    priority: int
    state: StateName
    host: str | None
    attempts: int
    queued_at: float
    started_at: float | None
    ended_at: float | None
    error: str | None
    output: str | None


@dataclass
class WaitRecord:
    reason: str
    detail: str
    to: float


@dataclass
class AttemptRecord:
    number: int
    host: str
    started_at: float
    ended_at: float | None
    verdict: str | None
    error: str | None
    retry_at: float | None


@dataclass
class TaskPage:
    """`value` is in a task only when values were asked for. `next` is null when there is no more."""

    tasks: list[TaskFields]
    next: int | None


@dataclass
class TaskDetail(TaskFields):
    value: Any
    payload: Any
    waits: list[WaitRecord]
    attempt_records: list[AttemptRecord]


@dataclass
class TimelineTask(TaskFields):
    waits: list[WaitRecord]
    attempt_records: list[AttemptRecord]


@dataclass
class Timeline:
    run: str
    tasks: list[TimelineTask]
    next: int | None


@dataclass
class Submitted:
    run: str
    task_ids: list[str]


@dataclass
class Changed:
    task_id: str
    said: str


@dataclass
class HolderRecord:
    lane: str
    count: int
    average: float
    tasks: list[str]


@dataclass
class ExplainedWait:
    """A stretch of queue time, and who held what was waited for; no names where they were many."""

    reason: str
    detail: str
    to: float
    seconds: float
    share: float
    holders: list[HolderRecord]


@dataclass
class BlockerRecord:
    what: str
    name: str
    detail: str


@dataclass
class PredictionRecord:
    """Times of day are null when something that is `provided` must happen first; seconds then count from that."""

    at: float | None
    earliest: float | None
    latest: float | None
    in_s: float | None
    earliest_in_s: float | None
    latest_in_s: float | None
    provided: list[str]
    unknown: str | None
    samples: int
    attempts: int
    cut_short: bool


@dataclass
class TypicalRecord:
    seconds: float
    least_s: float
    most_s: float
    count: int


@dataclass
class HostDownRecord:
    since: float
    detail: str


@dataclass
class RemedyRecord:
    """What would help. `set`, `unset` and `dispatcher` are what `penstock whatif` answers with `gain_s`."""

    text: str
    gain_s: float | None
    gain: str | None
    set: dict[str, str]
    unset: list[str]
    dispatcher: str | None


@dataclass
class Why:
    task_id: str
    run: str
    kind: str
    lane: str
    priority: int
    state: StateName
    interrupted: bool
    stopping_since: float | None
    host_down: HostDownRecord | None
    undispatched_since: float | None
    silent_since: float | None
    host: str | None
    attempts: int
    queued_at: float
    started_at: float | None
    ended_at: float | None
    waited_s: float
    waits: list[ExplainedWait]
    blocked_by: list[BlockerRecord]
    starts_when: str | None
    remedy: RemedyRecord | None
    in_vain: list[str]
    predicted_start: PredictionRecord | None
    predicted_end: PredictionRecord | None
    typical_wait: TypicalRecord | None
    typical_run: TypicalRecord | None


@dataclass
class ReasonRecord:
    reason: str
    seconds: float
    share: float
    tasks: int
    lanes: dict[str, float]


@dataclass
class LongWaitRecord:
    task_id: str
    state: StateName
    lane: str
    waited_s: float
    reason: str


@dataclass
class RunWhy:
    """Of many tasks together. `slots` and `wanted_s` are a host's, and null here."""

    scope: Literal["run"]
    name: str
    since: float
    until: float
    tasks: int
    states: dict[StateName, int]
    waited_s: float
    busy_s: float
    slots: int | None
    wanted_s: float | None
    reasons: list[ReasonRecord]
    longest: list[LongWaitRecord]
    remedy: RemedyRecord | None
    in_vain: list[str]
    predicted_end: PredictionRecord | None
    cut_short: bool


@dataclass
class RunRecord:
    run: str
    tasks: int
    live: int
    states: dict[StateName, int]


# ---- events


@dataclass
class EventRecord:
    number: int
    at: float
    type: str
    task: str | None
    attempt: int | None
    host: str | None
    data: dict[str, Any]


@dataclass
class EventPage:
    events: list[EventRecord]
    next: int | None


# ---- the plant


@dataclass
class DispatcherRecord:
    pid: int
    machine: str
    command: str
    since: float
    url: str | None  # where it serves, if it does


@dataclass
class LeaderRecord(DispatcherRecord):
    stopping_since: float | None  # from when on it finishes what runs, and starts nothing more
    only_run: str | None  # the one run that it works on, where it leaves all else queued


@dataclass
class Status:
    """As `penstock status --json` tells it."""

    hosts: dict[str, HostRecord]
    lanes: dict[str, LaneRecord]
    gates: dict[str, GateRecord]
    queue_depth: int
    interrupted: int  # tasks that ran when the last dispatcher was lost
    dispatcher: LeaderRecord | None
    standbys: list[DispatcherRecord]


@dataclass
class HostRecord:
    active: int
    available_slots: int
    delayed: int  # of the active ones, those that have yet to begin: they wait for a worker of a cluster
    slots: int
    queued: int  # tasks and calls that could run here; each of them also on other hosts that fit
    state: str
    takes: str  # in words: the kinds it serves, the models it answers calls for
    detail: str  # for people
    error: str | None  # what it failed with last, until an attempt or a check succeeds
    needs_fix: bool  # it stays down until somebody changes something; `error` says what
    spent_usd_today: float | None = None  # left out, with the budget, where there is neither
    budget_usd_per_day: float | None = None


@dataclass
class Hosts:
    hosts: dict[str, HostRecord]


@dataclass
class LaneRecord:
    running: int
    delayed: int  # of the running ones, those that have yet to begin: they wait for a worker of a cluster
    queued: int
    max_running: int | None
    paused: bool
    spent_usd_today: float | None = None  # left out, with the budget, where there is neither
    budget_usd_per_day: float | None = None


@dataclass
class Lanes:
    lanes: dict[str, LaneRecord]


@dataclass
class GateRecord:
    open: bool
    detail: str


@dataclass
class Gates:
    gates: dict[str, GateRecord]


@dataclass
class Pause:
    scope: Literal["all", "host", "lane"]
    name: str
    paused: bool


@dataclass
class Slots:
    host: str
    slots: int


# ---- bodies that come in: read by our own code, so described by hand


def body_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def object_of(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    made = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": list(required)} if required else made


_TIME = {
    "description": "Seconds since the epoch, an ISO time, or +30m.",
    "oneOf": [{"type": "number"}, {"type": "string"}],
}
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"}
_ID = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"}
_TASK_ID = {
    "type": "string",
    "pattern": _ID["pattern"][:-1] + "(:[A-Za-z0-9][A-Za-z0-9_.-]{0,127})?$",
    "maxLength": 200,
}
_TASK = object_of(
    {
        "kind": _NAME,
        "payload": {},
        "priority": {"type": "integer", "minimum": 0, "maximum": 4},
        "lane": _NAME,
        "run": _ID,
        "after": {"oneOf": [_TASK_ID, {"type": "array", "items": _TASK_ID}]},
        "needs": {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}},
        "host": _NAME,
        "model": {"type": "string", "minLength": 1, "maxLength": 256},
        "timeout_s": {"type": "number", "exclusiveMinimum": 0},
        "deadline": _TIME,
        "not_before": _TIME,
        "retries": {"type": "integer", "minimum": 0},
        "key": {"type": "string", "minLength": 1, "maxLength": 512},
        "on_crash": {"type": "string", "enum": ["retry", "block", "cancel"]},
        "output": {"type": "string", "minLength": 1, "maxLength": 1024},
        "id": _TASK_ID,
        "matrix": {"type": "object", "minProperties": 1},
    },
    "kind",
)
_TASKS = object_of(
    {"tasks": {"type": "array", "items": _TASK, "minItems": 1, "maxItems": 10_000}, "run": _ID}, "tasks"
)
TASKS_BODY = body_of({"oneOf": [_TASK, _TASKS]})
PAUSE_BODY = body_of(
    object_of({"scope": {"type": "string", "enum": ["all", "host", "lane"]}, "name": {"type": "string"}})
)
SLOTS_BODY = body_of(
    object_of({"slots": {"type": "integer", "minimum": 1, "maximum": 100_000}}, "slots"),
)
