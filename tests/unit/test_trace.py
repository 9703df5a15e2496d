"""W3C trace context: what is accepted, kept and passed on; ids that follow from the task. E7."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock import trace
from penstock.config import TaskChecker
from penstock.model import Task

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
TASK = Task("k", id="a", queued_at=12.5)


def test_what_is_brought_is_kept_and_passed_on() -> None:
    assert trace.brought(PARENT) == PARENT
    kept = trace.brought(f" {PARENT} ", "congo=t61rcWkgMzE,rojo=00f0")
    assert kept == f"{PARENT} congo=t61rcWkgMzE,rojo=00f0"
    assert trace.passed_on(kept) == {"traceparent": PARENT, "tracestate": "congo=t61rcWkgMzE,rojo=00f0"}
    assert trace.passed_on(PARENT) == {"traceparent": PARENT}


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "garbage",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01\nX: y",
    ],
)
def test_what_is_no_context_is_not_kept(parent: str) -> None:
    """As the standard has it: a wrong header begins a trace of its own, and is no error."""
    assert trace.brought(parent, "a=b") is None


def test_a_later_version_may_have_more() -> None:
    assert trace.brought(f"01-{TRACE}-{SPAN}-01-what-comes-later") == PARENT


@pytest.mark.parametrize("state", ["", "  ", "ünicode", "a=b\r\nX: y", "x" * 513])
def test_a_state_that_cannot_be_sent_is_left_out(state: str) -> None:
    assert trace.brought(PARENT, state) == PARENT


def test_the_environment_has_it_in_capitals() -> None:
    assert trace.of_environment({"TRACEPARENT": PARENT, "TRACESTATE": "a=b"}) == f"{PARENT} a=b"
    assert trace.of_environment({"traceparent": PARENT}) is None


def test_ids_follow_from_the_task() -> None:
    assert trace.trace_id(TASK) == trace.trace_id(replace(TASK, lane="other"))
    assert trace.trace_id(TASK) != trace.trace_id(replace(TASK, id="b"))
    assert trace.trace_id(TASK) != trace.trace_id(replace(TASK, queued_at=13.5)), "another store's a"
    first, second = trace.attempt_context(TASK, 1), trace.attempt_context(TASK, 2)
    assert first.trace_id == second.trace_id == trace.trace_id(TASK)
    assert first.span_id != second.span_id
    assert first.sampled


def test_an_attempt_is_in_its_callers_trace() -> None:
    mine = replace(TASK, trace=f"00-{TRACE}-{SPAN}-00 a=b")
    context = trace.attempt_context(mine, 1)
    assert context.text() == f"00-{TRACE}-{context.span_id:016x}-00 a=b"
    assert context.span_id != int(SPAN, 16)
    assert not context.sampled


def test_a_task_with_a_wrong_trace_is_refused() -> None:
    """Promise 7"""
    checker = TaskChecker()
    assert not checker.problems(replace(TASK, trace=PARENT))
    assert not checker.problems(TASK)
    for wrong in ("garbage", 7):
        ((field, what),) = checker.problems(replace(TASK, trace=wrong))  # type: ignore[arg-type]
        assert field == "trace"
        assert "traceparent" in what
