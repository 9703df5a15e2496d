"""One trace per task, with spans that tile its time; a collector that is gone costs a warning. E7."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import StatusCode

from penstock import trace
from penstock.model import Outcome, State, Task, Verdict
from penstock.scheduling.messages import (
    Begin,
    Decision,
    Delay,
    End,
    Move,
    Requeue,
    Revive,
    Spend,
    Start,
    WaitChange,
)
from penstock.telemetry import traces as module
from penstock.telemetry.story import Story
from penstock.telemetry.traces import Traces

SECOND = 1_000_000_000
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Kept(SpanExporter):
    """A collector that takes everything, or nothing."""

    def __init__(self, result: SpanExportResult = SpanExportResult.SUCCESS) -> None:
        self.spans: list[ReadableSpan] = []
        self.result = result
        self.shut = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return self.result

    def shutdown(self) -> None:
        self.shut = True


async def spans_of(task: Task, *steps: Sequence[Any]) -> dict[str, list[ReadableSpan]]:
    """By name, of a story told in these steps."""
    collector = Kept()
    traces, story = Traces("http://127.0.0.1:1", collector), Story({task.id: task}.get)
    story.listen(traces)
    for decisions in steps:
        story.decided(decisions)
    await traces.close()
    assert collector.shut
    found: dict[str, list[ReadableSpan]] = {}
    for span in collector.spans:
        found.setdefault(span.name, []).append(span)
    return found


def times(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / SECOND, span.end_time / SECOND


TASK = Task("summarize", id="a", lane="fast", run="nightly", priority=1, queued_at=10.0)
TRIED: tuple[list[Decision], ...] = (
    [WaitChange(1, 10.0, "slots:surtr", "needs 2 slots")],
    [Start("a", 1, "surtr", "fast", 1, 12.0), WaitChange(1, 12.0, None, "")],
    [
        Spend("a", 1, "surtr", "fast", 0, 15.0, 0.5),
        Requeue("a", 1, 15.0, 16.0, 1, 0, Verdict.TEMPORARY, "no luck", 7.0),
    ],
    [Start("a", 2, "fenrir", "fast", 1, 16.0)],
    [End("a", 2, State.DONE, "finish", 20.0, Outcome(Verdict.DONE, tokens=5.0), None)],
)


async def test_waits_and_attempts_tile_the_tasks_time() -> None:
    found = await spans_of(TASK, *TRIED)
    (root,) = found["task summarize"]
    children = sorted(
        (times(span), name) for name, spans in found.items() for span in spans if span is not root
    )
    assert children == [
        ((10.0, 12.0), "wait slots:surtr"),
        ((12.0, 15.0), "attempt surtr"),
        ((15.0, 16.0), "wait scheduled"),
        ((16.0, 20.0), "attempt fenrir"),
    ]
    assert times(root) == (10.0, 20.0)
    assert root.parent is None
    everyone = [span for spans in found.values() for span in spans]
    assert {span.context.trace_id for span in everyone} == {trace.trace_id(TASK)}
    assert len({span.context.span_id for span in everyone}) == 5
    assert {span.parent.span_id for span in everyone if span.parent} == {root.context.span_id}


async def test_a_wait_for_a_worker_is_a_span_and_the_attempt_comes_after_it() -> None:
    found = await spans_of(
        TASK,
        [WaitChange(1, 10.0, "slots:surtr", "")],
        [Start("a", 1, "surtr", "fast", 1, 12.0)],
        [
            WaitChange(2, 12.0, "worker:surtr", "none yet"),
            Move("a", 12.0, 2, ""),
            Delay("a", 1, "surtr", 13.0, 12.0),
        ],
        [Move("a", 17.0, 1, ""), Begin("a", 1, "surtr", 17.0, 12.0)],
        [End("a", 1, State.DONE, "finish", 20.0, Outcome(Verdict.DONE), None)],
    )
    (root,) = found.pop("task summarize")
    children = [span for spans in found.values() for span in spans]
    assert sorted((times(span), span.name) for span in children) == [
        ((10.0, 12.0), "wait slots:surtr"),
        ((12.0, 17.0), "wait worker:surtr"),
        ((17.0, 20.0), "attempt surtr"),
    ]
    assert len({span.context.span_id for span in (root, *children)}) == 4
    (wait,) = found["wait worker:surtr"]
    told = {"penstock.wait.reason": "worker:surtr", "penstock.wait.detail": "none yet"}
    assert dict(wait.attributes or {}) == told


async def test_what_spans_tell() -> None:
    found = await spans_of(TASK, *TRIED)
    (root,), (first,), (second,) = found["task summarize"], found["attempt surtr"], found["attempt fenrir"]
    assert dict(root.attributes or {}) == {
        "penstock.task": "a",
        "penstock.kind": "summarize",
        "penstock.lane": "fast",
        "penstock.run": "nightly",
        "penstock.priority": 1,
        "penstock.state": "done",
        "penstock.host": "fenrir",
        "penstock.attempts": 2,
        "penstock.tokens": 12.0,
        "penstock.cost_usd": 0.5,
    }
    assert dict(first.attributes or {}) == {
        "penstock.host": "surtr",
        "penstock.attempt": 1,
        "penstock.verdict": "temporary",
        "penstock.tokens": 7.0,
        "penstock.cost_usd": 0.5,
    }
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "no luck")
    assert second.status.status_code is root.status.status_code is StatusCode.OK
    assert second.context.span_id == trace.attempt_context(TASK, 2).span_id, "what the host was given"
    (wait,) = found["wait slots:surtr"]
    assert dict(wait.attributes or {}) == {
        "penstock.wait.reason": "slots:surtr",
        "penstock.wait.detail": "needs 2 slots",
    }
    assert root.resource.attributes["service.name"] == "penstock"


async def test_a_task_that_brought_a_trace_is_its_callers_child() -> None:
    found = await spans_of(replace(TASK, trace=f"{PARENT} a=b"), *TRIED)
    (root,) = found["task summarize"]
    assert root.parent is not None
    assert f"{root.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert root.parent.is_remote
    assert f"{root.context.trace_id:032x}" == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert root.context.trace_state.get("a") == "b"


async def test_what_a_caller_does_not_record_is_not_recorded() -> None:
    assert await spans_of(replace(TASK, trace=PARENT[:-2] + "00"), *TRIED) == {}


async def test_a_task_that_ends_in_the_queue_has_its_wait() -> None:
    found = await spans_of(
        TASK, [End("a", 0, State.CANCELLED, "cancel", 13.0, None, "cancelled in the queue")]
    )
    assert sorted(found) == ["task summarize", "wait order"]
    assert times(found["wait order"][0]) == times(found["task summarize"][0]) == (10.0, 13.0)


async def test_a_revived_task_has_a_span_of_its_own_in_the_same_trace() -> None:
    ended = [End("a", 0, State.CANCELLED, "cancel", 13.0, None, None)]
    again = [Revive("a", 20.0), Start("a", 1, "surtr", "fast", 1, 21.0)]
    done = [End("a", 1, State.DONE, "finish", 22.0, Outcome(Verdict.DONE), None)]
    first, second = (await spans_of(TASK, ended, again, done))["task summarize"]
    assert (times(first), times(second)) == ((10.0, 13.0), (20.0, 22.0))
    assert second.context.span_id != first.context.span_id
    assert second.parent is not None
    assert second.parent.span_id == first.context.span_id


async def test_a_collector_that_is_gone_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    traces, story = Traces("http://127.0.0.1:1", Kept(SpanExportResult.FAILURE)), Story({"a": TASK}.get)
    story.listen(traces)
    with caplog.at_level(logging.WARNING, "penstock.telemetry"):
        for _ in range(3):
            for decisions in TRIED:
                story.decided(decisions)
            await asyncio.to_thread(traces._processor.force_flush)
        await traces.close()
    (line,) = [r.getMessage() for r in caplog.records if r.name == "penstock.telemetry"]
    assert "http://127.0.0.1:1" in line


async def test_a_collector_that_never_answers_does_not_keep_the_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    class Silent(Kept):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            answered.wait(60)
            return SpanExportResult.SUCCESS

    monkeypatch.setattr(module, "_CLOSE_S", 0.05)
    traces, story = Traces("http://127.0.0.1:1", Silent()), Story({"a": TASK}.get)
    story.listen(traces)
    for decisions in TRIED:
        story.decided(decisions)
    with caplog.at_level(logging.WARNING, "penstock.telemetry"):
        await traces.close()
    answered.set()
    assert "may be missing" in caplog.text


async def test_notes_are_bounded(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    class Slow(Kept):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            answered.wait(60)
            return super().export(spans)

    monkeypatch.setattr(module, "_MOST_NOTES", 100)
    monkeypatch.setattr(module, "_NOTES_AT_ONCE", 10)
    collector = Slow()
    traces, story = Traces("http://127.0.0.1:1", collector), Story({"a": TASK}.get)
    story.listen(traces)
    with caplog.at_level(logging.WARNING, "penstock.telemetry"):
        for _ in range(100):
            for decisions in TRIED:
                story.decided(decisions)
    answered.set()
    await traces.close()
    assert [r.getMessage() for r in caplog.records if r.name == "penstock.telemetry"] == [
        "traces are dropped: http://127.0.0.1:1 takes them too slowly"
    ]
    assert 0 < len(collector.spans) <= 200
