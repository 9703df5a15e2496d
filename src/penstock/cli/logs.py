"""The lines that `work` writes: what started and ended, named by task, kind, host and lane.

12:00:01.123 started  1m7f kind=summarize host=here lane=default attempt=1
12:00:02.345 done     1m7f kind=summarize host=here lane=default ran=1.2s
12:00:02.345 failed   1m7g kind=summarize host=here lane=default ran=0.1s error="no such file"
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import msgspec

from penstock.cli.render import one_line
from penstock.hosts.base import Job
from penstock.model import State, Task, Verdict
from penstock.scheduling.messages import (
    AllChange,
    Decision,
    End,
    GateChange,
    HostChange,
    LaneChange,
    Requeue,
    Revive,
    Stop,
)
from penstock.telemetry.logs import handled

_LOUD = ("failed", "blocked", "retry", "warning")  # also told when quiet


class _Running(NamedTuple):
    job: Job
    started_at: float


class Log:
    """Told by the dispatcher; never raises, for a full disk or a closed pipe must not stop the work."""

    def __init__(self, *, as_json: bool, quiet: bool, task: Callable[[str], Task | None]) -> None:
        self._as_json = as_json
        self._quiet = quiet
        self._task = task
        self._running: dict[str, _Running] = {}
        self.failures = 0

    # ---- what is told

    def started(self, jobs: Sequence[Job]) -> None:
        now = time.time()
        lines = []
        for job in jobs:
            self._running[job.task] = _Running(job, now)
            if not self._quiet:
                lines.append(self._formed("started", now, job.task, _named(job) | {"attempt": job.attempt}))
        self._write(lines)

    def decided(self, decisions: Sequence[Decision]) -> None:
        self._write([line for decision in decisions if (line := self._told(decision)) is not None])

    def line(self, what: str, task: str | None = None, **fields: Any) -> None:
        if not self._quiet or what in _LOUD:
            self._write([self._formed(what, time.time(), task, fields)])

    def warning(self, text: str) -> None:
        self.line("warning", detail=text)

    # ---- decisions

    def _told(self, decision: Decision) -> str | None:
        match decision:
            case End():
                return self._ended(decision)
            case Requeue():
                fields: dict[str, Any] = self._left(decision.task, decision.at)
                fields["in_s"] = round(max(0.0, decision.retry_at - decision.at), 3)
                put_back = decision.verdict is Verdict.CANCELLED
                what = "put-back" if put_back else "retry"
                return self._if_loud(what, decision, fields | _error(decision.error))
            case Revive():
                return self._if_loud("revived", decision, {})
            case Stop():
                return self._if_loud("stop", decision, {"host": decision.host, "why": decision.why})
            case HostChange():
                text = {"state": decision.state, "slots": decision.slots, "detail": decision.detail or None}
                return self._if_loud("host", decision, {"host": decision.host} | text)
            case GateChange():
                state = {"open": decision.open, "detail": decision.detail or None}
                return self._if_loud("gate", decision, {"gate": decision.gate} | state)
            case LaneChange():
                return self._if_loud("lane", decision, {"lane": decision.lane, "paused": decision.paused})
            case AllChange():
                return self._if_loud("everything", decision, {"paused": decision.paused})
        return None

    def _ended(self, decision: End) -> str | None:
        if decision.state in (State.FAILED, State.BLOCKED):
            self.failures += 1
        fields = self._left(decision.task, decision.at)
        return self._if_loud(str(decision.state), decision, fields | _error(decision.error))

    def _left(self, task: str, at: float) -> dict[str, Any]:
        """What is known of a task whose attempt is over, or that ended in the queue."""
        running = self._running.pop(task, None)
        if running is not None:
            return _named(running.job) | {"ran_s": round(max(0.0, at - running.started_at), 3)}
        known = self._task(task)
        return {} if known is None else {"kind": known.kind, "lane": known.lane}

    def _if_loud(self, what: str, decision: Any, fields: dict[str, Any]) -> str | None:
        if self._quiet and what not in _LOUD:
            return None
        return self._formed(what, decision.at, getattr(decision, "task", None), fields)

    # ---- lines

    def _formed(self, what: str, at: float, task: str | None, fields: dict[str, Any]) -> str:
        told = {name: value for name, value in fields.items() if value is not None}
        if self._as_json:
            named = {} if task is None else {"task": task}
            return msgspec.json.encode({"at": round(at, 6), "event": what} | named | told).decode()
        clock = time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 1000):03}"
        detail = told.pop("detail", None)
        parts = [f"{name}={_shown(value)}" for name, value in told.items()]
        words = [
            clock,
            f"{what:<8}",
            *([task] if task else []),
            *parts,
            *([one_line(detail)] if detail else []),
        ]
        return " ".join(words)

    def _write(self, lines: list[str]) -> None:
        if lines:
            with suppress(OSError):
                sys.stderr.write("\n".join(lines) + "\n")
                sys.stderr.flush()


def _named(job: Job) -> dict[str, Any]:
    return {"kind": job.kind, "host": job.host, "lane": job.lane}


def _error(error: str | None) -> dict[str, Any]:
    return {} if error is None else {"error": one_line(error)}


def _shown(value: Any) -> str:
    """A value of a line: bare when nothing in it could be mistaken."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    return text if text and all(c not in text for c in ' "=') else msgspec.json.encode(text).decode()


# ---- what our own code logs


@contextmanager
def telling(tell: Callable[[str], None]) -> Iterator[None]:
    """Warnings of the dispatcher and the engine (a blocked loop, a recovery) go to `tell`, a line each."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with suppress(OSError):
                tell(one_line(record.getMessage()))

    with handled("penstock", Handler(logging.WARNING)):
        yield
