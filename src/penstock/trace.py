"""W3C trace context: what a task brings of its caller's trace, and the ids of its own spans.

A context is kept as one text, the `traceparent` and, after a blank, the `tracestate` if there is one. Ids that
nobody brought follow from the task alone, so that every process that has the task can name them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from penstock.model import Task

MAX_STATE = 512  # characters of a tracestate; a longer one may be left out
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_SAMPLED = 1


class Context(NamedTuple):
    trace_id: int
    span_id: int
    flags: int
    state: str = ""

    @property
    def sampled(self) -> bool:
        """Whether its caller records the trace; if not, nobody does."""
        return bool(self.flags & _SAMPLED)

    def text(self) -> str:
        """As it is kept and passed on."""
        parent = f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"
        return f"{parent} {self.state}" if self.state else parent


def context_of(text: str) -> Context | None:
    """What a text says; None when it is no trace context."""
    parent, _, state = text.partition(" ")
    found = _PARENT.fullmatch(parent)
    # Version 00 has no more than its four fields; a later one may have.
    if found is None or (found[4] is not None and parent.startswith("00-")):
        return None
    trace_id, span_id = int(found[1], 16), int(found[2], 16)
    if not trace_id or not span_id or (state and not _STATE.fullmatch(state)):
        return None
    return Context(trace_id, span_id, int(found[3], 16), state)


def brought(parent: str | None, state: str | None = None) -> str | None:
    """What a task keeps of its caller's headers: nothing where they are wrong, as the standard has it."""
    if parent is None:
        return None
    state = (state or "").strip(" \t")
    if len(state) > MAX_STATE or not _STATE.fullmatch(state):
        state = ""
    context = context_of(f"{parent.strip()} {state}" if state else parent.strip())
    return None if context is None else context.text()


def of_environment(environment: Mapping[str, str]) -> str | None:
    """What a program was given by whoever started it."""
    return brought(environment.get("TRACEPARENT"), environment.get("TRACESTATE"))


def passed_on(text: str) -> dict[str, str]:
    """The headers of a context."""
    parent, _, state = text.partition(" ")
    return {"traceparent": parent, "tracestate": state} if state else {"traceparent": parent}


# ---- ids of a task's own spans


def caller_of(task: Task) -> Context | None:
    return None if task.trace is None else context_of(task.trace)


def trace_id(task: Task) -> int:
    caller = caller_of(task)
    return _id(task, "", 16) if caller is None else caller.trace_id


def span_id(task: Task, what: str) -> int:
    """`what` tells the spans of a task apart."""
    return _id(task, what, 8)


def attempt_context(task: Task, attempt: int) -> Context:
    """What an attempt passes on: its own span in the task's trace."""
    caller = caller_of(task)
    own = span_id(task, attempt_name(attempt))
    if caller is None:
        return Context(_id(task, "", 16), own, _SAMPLED)
    return Context(caller.trace_id, own, caller.flags, caller.state)


def attempt_name(attempt: int) -> str:
    return f"attempt/{attempt}"


def _id(task: Task, what: str, size: int) -> int:
    # Ids of tasks may be chosen, and so be the same in two stores: the time tells them apart.
    text = f"{task.id} {task.queued_at!r} {what}"
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "big") or 1
