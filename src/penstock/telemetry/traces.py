"""One OpenTelemetry trace per task: a span from queued to ended, and in it one for each wait and each attempt.

    task summarize ├─────────────────────────────────────────┤
      wait slots:surtr ├────┤
      attempt surtr         ├─────────┤
      wait scheduled                  ├──┤
      attempt surtr                      ├───────────────────┤

A listener of the story. The loop only notes what happened; the SDK's own thread makes spans of it and sends them
over OTLP. The notes between the two are bounded: a collector that is slow or gone costs traces, never time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from penstock import trace
from penstock.model import State, Task, Wait
from penstock.telemetry.facts import BegunLate, Ended, Fact, Over, Started
from penstock.version import __version__

_MOST_NOTES = 65_536  # that wait to be sent
_NOTES_AT_ONCE = 512
_CLOSE_S = 2.0  # at the end, for a collector that takes nothing
_TASK = "task"
_FAILED = (State.FAILED, State.BLOCKED)
_UNSET, _OK = Status(StatusCode.UNSET), Status(StatusCode.OK)

log = logging.getLogger("penstock.telemetry")


def _address(endpoint: str) -> str:
    """Fit for a log line: a password or a token in it is nobody's business."""
    try:
        url = urlsplit(endpoint)
        host, port = url.hostname, url.port
    except ValueError:
        return "the collector"
    return f"{url.scheme}://{host}" + ("" if port is None else f":{port}") if host else "the collector"


class _Waited(NamedTuple):
    task: Task
    name: str  # tells this queue time of the task from others
    pieces: Sequence[Wait]


class _Note:
    """What the batch processor takes for an ended span; spans are made of it when it is sent."""

    __slots__ = ("fact",)
    context = SpanContext(1, 1, False, TraceFlags(TraceFlags.SAMPLED))

    def __init__(self, fact: _Waited | Over | Ended) -> None:
        self.fact = fact


class Traces:
    """`endpoint` is the collector's address; without one the standard variables say it."""

    def __init__(self, endpoint: str | None, exporter: SpanExporter | None = None) -> None:
        self.endpoint = endpoint or _environments() or ""
        url = None if endpoint is None else endpoint.rstrip("/") + "/v1/traces"
        self._shown = _address(self.endpoint)
        self._sender = _Sender(exporter or OTLPSpanExporter(endpoint=url), self._shown)
        self._processor = BatchSpanProcessor(
            self._sender, max_queue_size=_MOST_NOTES, max_export_batch_size=_NOTES_AT_ONCE
        )
        self._noted = 0  # but for those that were dropped
        self._is_behind = False

    def told(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, Started):
                if fact.wait is not None:
                    self._waited(fact.known, trace.attempt_name(fact.attempt), fact.wait.pieces())
            elif isinstance(fact, BegunLate):
                # It may be late more than once.
                name = f"{trace.attempt_name(fact.attempt)}/{fact.wait.start!r}"
                self._waited(fact.known, name, fact.wait.pieces())
            elif isinstance(fact, Over | Ended):
                if isinstance(fact, Ended) and fact.wait is not None:
                    self._waited(fact.known, f"end/{fact.revived_at or ''}", fact.wait.pieces())
                if fact.known is not None and _is_recorded(fact.known):
                    self._note(fact)

    def _waited(self, task: Task | None, name: str, pieces: Sequence[Wait]) -> None:
        if task is not None and pieces and _is_recorded(task):
            self._note(_Waited(task, name, pieces))

    def _note(self, fact: _Waited | Over | Ended) -> None:
        waiting = self._noted - self._sender.taken
        if waiting >= _MOST_NOTES:  # the processor lets the oldest go
            if not self._is_behind:
                log.warning("traces are dropped: %s takes them too slowly", self._shown)
            self._is_behind = True
        else:
            self._noted += 1
            self._is_behind = self._is_behind and waiting > _MOST_NOTES // 2
        self._processor.on_end(_Note(fact))  # type: ignore[arg-type] # of a span it looks at the context alone

    async def close(self) -> None:
        """Send what is left, as long as the collector takes some of it every few seconds."""
        loop = asyncio.get_running_loop()
        closed = asyncio.Event()

        def close() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            with suppress(RuntimeError):  # nobody waited so long: the loop is closed
                loop.call_soon_threadsafe(closed.set)

        # A thread of its own: one of a pool would keep the process from ending while the collector is silent.
        threading.Thread(target=close, name="penstock traces", daemon=True).start()
        sent = -1
        while not closed.is_set() and self._sender.sent > sent:
            sent = self._sender.sent
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await closed.wait()
        if not closed.is_set():
            log.warning("traces of the last tasks may be missing: %s does not take them", self._shown)
            self._sender.shutdown()


def _environments() -> str | None:
    """The collector's address by the standard variables, in their order."""
    for name in ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        if address := os.environ.get(name):
            return address
    return None


def _is_recorded(task: Task) -> bool:
    """Not where the caller has its trace, and does not record it."""
    if task.trace is None:
        return True
    caller = trace.caller_of(task)
    return caller is None or caller.sampled


# ---- in the SDK's thread


class _Sender(SpanExporter):
    """Makes spans of notes and hands them to the exporter; tells once when that fails."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._resource = _resource()
        self._failing = False
        self._is_shut = False
        self.taken = 0  # notes that came so far
        self.sent = 0  # those of them that were sent

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        self.taken += len(spans)
        made = [span for note in spans for span in _spans(note.fact, self._resource)]
        result = self._exporter.export(made)
        failed = result is not SpanExportResult.SUCCESS
        self.sent += 0 if failed else len(spans)
        if failed and not self._failing and not self._is_shut:
            log.warning("traces cannot be sent to %s; is the collector running?", self._endpoint)
        self._failing = failed
        return result

    def shutdown(self) -> None:
        if not self._is_shut:
            self._is_shut = True
            self._exporter.shutdown()


def _resource() -> Resource:
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    name = {} if named else {"service.name": "penstock"}
    return Resource.create({"service.version": __version__, **name})


_SCOPE = InstrumentationScope("penstock", __version__)


def _spans(fact: _Waited | Over | Ended, resource: Resource) -> Iterator[ReadableSpan]:
    if isinstance(fact, _Waited):
        for number, piece in enumerate(fact.pieces):
            yield _wait_span(fact, number, piece, resource)
    elif isinstance(fact, Over):
        yield _attempt_span(fact, resource)
    else:
        yield _task_span(fact, resource)


def _wait_span(waited: _Waited, number: int, piece: Wait, resource: Resource) -> ReadableSpan:
    task = waited.task
    return ReadableSpan(
        f"wait {piece.reason}",
        _context(task, f"wait/{waited.name}/{number}"),
        _context(task, _TASK),
        resource,
        _given({"penstock.wait.reason": piece.reason, "penstock.wait.detail": piece.detail or None}),
        status=_UNSET,
        start_time=_nanoseconds(piece.start),
        end_time=_nanoseconds(piece.end),
        instrumentation_scope=_SCOPE,
    )


def _attempt_span(over: Over, resource: Resource) -> ReadableSpan:
    task = over.known
    assert task is not None
    return ReadableSpan(
        f"attempt {over.host}",
        _context(task, trace.attempt_name(over.attempt)),
        _context(task, _TASK),
        resource,
        _given(
            {
                "penstock.host": over.host,
                "penstock.attempt": over.attempt,
                "penstock.verdict": over.verdict,
                "penstock.tokens": over.tokens,
                "penstock.cost_usd": over.usd or None,
            }
        ),
        kind=SpanKind.CLIENT,
        status=_OK if over.verdict == "done" else Status(StatusCode.ERROR, over.error),
        start_time=_nanoseconds(over.started_at),
        end_time=_nanoseconds(max(over.started_at, over.at)),
        instrumentation_scope=_SCOPE,
    )


def _task_span(ended: Ended, resource: Resource) -> ReadableSpan:
    task = ended.known
    assert task is not None
    again = ended.revived_at
    begun = task.queued_at if again is None else again
    return ReadableSpan(
        f"task {task.kind}",
        _context(task, _TASK if again is None else f"{_TASK}/{again!r}"),
        _caller(task) if again is None else _context(task, _TASK),
        resource,
        _given(
            {
                "penstock.task": task.id,
                "penstock.kind": task.kind,
                "penstock.lane": task.lane,
                "penstock.run": task.run,
                "penstock.priority": task.priority,
                "penstock.state": ended.state.value,
                "penstock.host": ended.host,
                "penstock.attempts": ended.attempt or None,
                "penstock.tokens": ended.tokens,
                "penstock.cost_usd": ended.usd or None,
            }
        ),
        kind=SpanKind.CONSUMER,
        status=Status(StatusCode.ERROR, ended.error) if ended.state in _FAILED else _OK,
        start_time=_nanoseconds(begun),
        end_time=_nanoseconds(max(begun, ended.at)),
        instrumentation_scope=_SCOPE,
    )


def _context(task: Task, what: str) -> SpanContext:
    caller = trace.caller_of(task)
    state = None if caller is None or not caller.state else TraceState.from_header([caller.state])
    sampled = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(trace.trace_id(task), trace.span_id(task, what), False, sampled, state)


def _caller(task: Task) -> SpanContext | None:
    caller = trace.caller_of(task)
    if caller is None:
        return None
    return SpanContext(caller.trace_id, caller.span_id, True, TraceFlags(caller.flags))


def _given(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _nanoseconds(seconds: float) -> int:
    # To the microsecond: a float has no more, and neighbours must meet.
    return round(seconds * 1e6) * 1000
