"""The trace that code of this process is in, by OpenTelemetry's own API, where somebody uses it.

A task that is submitted inside a span belongs to that span's trace; what a callable does belongs to its attempt's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.trace import brought, passed_on


def current() -> str | None:
    """The context of the span that the caller is in; None where nobody has one."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:  # nobody in this process can have begun a span
        return None
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    return brought(parent, context.trace_state.to_header())


@contextmanager
def within(trace: str | None) -> Iterator[None]:
    """What is done here belongs to that trace, for those who ask OpenTelemetry's API."""
    if trace is None:
        yield
        return
    try:
        from opentelemetry import context as api
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:  # then nobody asks
        yield
        return
    token = api.attach(TraceContextTextMapPropagator().extract(passed_on(trace)))
    try:
        yield
    finally:
        api.detach(token)
