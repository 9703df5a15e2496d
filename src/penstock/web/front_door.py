"""What a call of `/v1` becomes: a task, in a lane, for the hosts that its `model` names.

Bodies pass through unchanged but for `model`. Lane, priority, run and patience of a call come from its token or
from `X-Penstock-*` headers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock.config import Config, TaskChecker
from penstock.config.call_tasks import call_task
from penstock.config.keys import ID
from penstock.config.names import Names
from penstock.config.own_calls import RUNS
from penstock.config.problems import meant
from penstock.model import PRIORITIES, OnCrash, Task
from penstock.store.ids import new_ids
from penstock.telemetry.metrics import Metrics
from penstock.trace import brought
from penstock.web.calls import CallResponse, ConnectionRelay
from penstock.web.council_answer import CouncilCalls
from penstock.web.limits import Limits
from penstock.web.recording import KeptAnswer, kept_body
from penstock.web.refusals import Refused

if TYPE_CHECKING:
    from penstock.dispatcher.loop import Dispatcher
    from penstock.web.auth import Caller, Tokens

Lead: TypeAlias = "Callable[[], Dispatcher]"

_LONGEST_PATIENCE_S = 86_400.0
_SHORTEST_PATIENCE_S = 0.05  # enough to start where there is room
_MOST_SHAPES = 10_000  # clients may ask for any name where a host takes any


class _Head(msgspec.Struct):
    """All that we must know of a body."""

    model: str | None = None
    stream: bool | None = None


_HEAD = msgspec.json.Decoder(_Head)
_PLACE = re.compile(r"at `\$\.(\w+)")  # as msgspec names the field that is wrong


class FrontDoor:
    """Lets calls in: who may, to which hosts, in which lane."""

    def __init__(self, config: Config, lead: Lead, tokens: Tokens, limits: Limits, metrics: Metrics) -> None:
        """`lead` gives the dispatcher that answers now, or refuses."""
        self._server = config.server
        self._record_bodies = config.server.record_bodies
        self._lanes = {lane.name for lane in config.plant.lanes}
        self._checks = {
            own_calls: TaskChecker(config, calls=True, own_calls=own_calls) for own_calls in (False, True)
        }
        # Shapes that some host takes.
        self._fitting: set[tuple[str, str, str | None, str | None, bool]] = set()
        self._lead = lead
        self._tokens = tokens
        self._limits = limits
        self._metrics = metrics
        self._waiting = 0
        self._payload_limit_bytes = config.payload_limit_bytes
        self.names = Names(config, config.councils.values())
        self.councils = CouncilCalls(lead, tokens, self)

    def answer(self, caller: Caller, endpoint: str, body: bytes, headers: Mapping[str, str]) -> CallResponse:
        """The answer to a call, yet to be sent. Raises Refused."""
        try:
            return self._answer(caller, endpoint, body, headers)
        except Refused as refused:
            self._metrics.count("penstock_calls_total", endpoint, str(refused.status))
            raise

    def _answer(self, caller: Caller, endpoint: str, body: bytes, headers: Mapping[str, str]) -> CallResponse:
        head = _head(body)
        asked = self.names.asked(head.model)
        if asked is None:
            raise Refused(404, "model_not_found", self.names.unknown(head.model or ""), param="model")
        if asked in self.names.councils:
            council = self.names.councils[asked]
            return self.councils.chat(caller, endpoint, head.model or asked, council, body, headers)
        task = self._task(caller, endpoint, body, head, asked, headers)
        self.admit(caller, task, len(body))
        relay = ConnectionRelay(
            endpoint,
            body,
            streamed=bool(head.stream),
            task=task,
            on_start=lambda: self.leave(caller, len(body)),
            on_answer=lambda status: self.answered(endpoint, task, status),
            kept=self.kept_answer(),
        )
        return CallResponse(
            self._lead(),
            task,
            relay,
            partial(self._tokens.when_gone, caller),
            # Others have a deadline for that; a run's calls wait longer for their turn, but not for nobody.
            self._server.down_patience_s if caller.guest is not None else None,
        )

    def leave(self, caller: Caller, size_bytes: int) -> None:
        """It waits no more."""
        self._limits.leave_call(caller, size_bytes)
        self._waits(-1)

    def _waits(self, more: int) -> None:
        self._waiting += more
        self._metrics.set("penstock_calls_waiting", self._waiting)

    def answered(self, endpoint: str, task: Task, status: int | None) -> None:
        """Its client has the first byte of an answer, or has left before."""
        self._metrics.count("penstock_calls_total", endpoint, "left" if status is None else str(status))
        if status is not None:
            took_s = max(0.0, time.time() - task.queued_at)
            self._metrics.observe("penstock_first_byte_seconds", took_s, endpoint)

    def _task(
        self,
        caller: Caller,
        endpoint: str,
        body: bytes,
        head: _Head,
        asked: str,
        headers: Mapping[str, str],
    ) -> Task:
        figures = {"endpoint": endpoint, "model": head.model, "stream": bool(head.stream), "bytes": len(body)}
        payload = {**figures, "caller": caller.name, **self.kept_of(body)}
        return self.completed(caller, call_task(endpoint, asked, payload), headers)

    def completed(
        self,
        caller: Caller,
        task: Task,
        headers: Mapping[str, str],
        lane: str | None = None,
        priority: int | None = None,
    ) -> Task:
        """The task of a call, with what its headers and its token say of it; `lane` and `priority` go first."""
        now = self._lead().now
        guest = caller.guest
        # A run waits for its calls as long as it lives: its own time limit is the bound.
        patient_s = self._server.patience_s if guest is None else _LONGEST_PATIENCE_S
        patience_s = _patience(headers.get("x-penstock-patience"), patient_s)
        asked_priority = _priority(headers.get("x-penstock-priority")) if priority is None else priority
        task = replace(
            task,
            priority=caller.priority_of(asked_priority),
            lane=self._lane(caller, headers.get("x-penstock-lane") if lane is None else lane),
            run=_run(headers.get("x-penstock-run")) if guest is None else guest.run,
            deadline=now + patience_s,
            on_crash=OnCrash.CANCEL,
            id=new_ids(1)[0],
            queued_at=now,
            trace=brought(headers.get("traceparent"), headers.get("tracestate")),
        )
        if patience_s > self._server.down_patience_s and self._lead().hosts_down(task):
            return replace(task, deadline=now + self._server.down_patience_s)
        return task

    def kept_of(self, body: bytes) -> dict[str, Any]:
        """What a task's payload holds of what its client sent."""
        return kept_body(body, self._payload_limit_bytes) if self._record_bodies else {}

    def kept_answer(self) -> KeptAnswer | None:
        """Where the answer is kept, if it is."""
        return KeptAnswer() if self._record_bodies else None

    def _lane(self, caller: Caller, wanted: str | None) -> str:
        lane = caller.lane_of(wanted)
        if lane not in self._lanes:
            hint = meant(lane, self._lanes, "lanes")
            raise Refused(
                400, "unknown_lane", f"there is no lane {lane[:80]!r}{hint}", param="X-Penstock-Lane"
            )
        return lane

    def admit(self, caller: Caller, task: Task, size_bytes: int) -> None:
        """Refused where no host takes such a task, or too much waits."""
        is_own = caller.guest is not None
        shape = task.kind, task.lane, task.model, task.host, is_own
        if shape not in self._fitting:
            like = Task(task.kind, lane=task.lane, model=task.model, host=task.host)
            if found := self._checks[is_own].problems(like):
                raise Refused(400, "unfit", "; ".join(f"{field}: {what}" for field, what in found))
            if len(self._fitting) < _MOST_SHAPES:
                self._fitting.add(shape)
        self._limits.enter_call(caller, size_bytes, lambda: self._lead().predicted_wait_s(task))
        self._waits(1)


def _head(body: bytes) -> _Head:
    try:
        return _HEAD.decode(body)
    except msgspec.ValidationError as error:
        found = _PLACE.search(str(error))
        field = None if found is None else found[1]
        raise Refused(
            400, "invalid_body", f"the body is not as expected: {error}; correct it", param=field
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "invalid_json", f"the body is not valid JSON: {error}; correct it") from None


def _run(asked: str | None) -> str:
    """A run of calls, and of nothing else: whoever may only call adds nothing to the runs of others' tasks."""
    run = asked or time.strftime("%Y-%m-%d")
    run = run if run.startswith(RUNS) else RUNS + run
    if not ID.fullmatch(run):
        raise _wrong_header("X-Penstock-Run", "letters, digits, '_', '.' and '-', at most 125")
    return run


def _patience(text: str | None, default_s: float) -> float:
    if text is None:
        return default_s
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not isfinite(seconds) or not 0 <= seconds <= _LONGEST_PATIENCE_S:
        raise _wrong_header("X-Penstock-Patience", f"seconds, 0 to {_LONGEST_PATIENCE_S:g}")
    return max(_SHORTEST_PATIENCE_S, seconds)


def _priority(text: str | None) -> int | None:
    if text is None:
        return None
    if text not in {str(priority) for priority in PRIORITIES}:
        raise _wrong_header("X-Penstock-Priority", "0 (most urgent) to 4")
    return int(text)


def _wrong_header(name: str, rule: str) -> Refused:
    return Refused(400, "invalid_header", f"{name} must be {rule}", param=name)
