"""The lines that `work` and `serve` write: what started and ended, with its task, kind, host, lane and run.

12:00:01.123 started  1m7f kind=summarize host=here lane=default run=nightly attempt=1
12:00:02.345 done     1m7f kind=summarize host=here lane=default run=nightly attempt=1 ran_s=1.2
12:00:02.345 failed   1m7g kind=summarize host=here lane=default run=nightly attempt=1 ran_s=0.1 error="no file"

What is told later than it happened, after a takeover or a time without its store, says so: `at=11:59:48.120`. Lines
of JSON have the time when it happened.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from penstock.cli.render import one_line
from penstock.model import State, Verdict, name_in_run
from penstock.scheduling.messages import (
    AllChange,
    GateChange,
    HostChange,
    LaneChange,
    Reprioritize,
    Revive,
    Stop,
)
from penstock.telemetry.facts import BegunLate, Ended, Fact, Over, Started
from penstock.telemetry.logs import handled
from penstock.trace import trace_id

_OLD_S = 0.05  # what happened so long before the line above says when
_LOUD = ("failed", "blocked", "retry", "warning", "note", "stopping")  # also told when quiet


class Log:
    """Listens to the dispatcher's story; never raises, for a full disk or a closed pipe must not stop the work."""

    def __init__(self, *, as_json: bool, quiet: bool, traced: bool = False) -> None:
        self._as_json = as_json
        self._traced = traced  # every task has a trace; else those that brought one
        self._quiet = quiet
        self._last = 0.0  # the time of the last line
        self.failures = 0
        self._hosts: dict[str, HostChange] = {}  # what was last told of each

    # ---- what is told

    def told(self, facts: Sequence[Fact]) -> None:
        self._write([line for fact in facts if (line := self._line_of(fact)) is not None])

    def line(self, what: str, task: str | None = None, **fields: Any) -> None:
        if not self._quiet or what in _LOUD:
            self._last = now = time.time()
            self._write([self._formed(what, now, task, fields)])

    def warning(self, text: str) -> None:
        self.line("warning", detail=text)

    # ---- facts

    def _line_of(self, fact: Fact) -> str | None:
        match fact:
            case Started():
                return None if self._quiet else self._if_loud("started", fact, self._named(fact))
            case BegunLate():
                return self._begun_late(fact)
            case Over():
                return None if fact.retry_at is None else self._tried(fact)
            case Ended():
                return self._ended(fact)
            case Revive():
                return self._if_loud("revived", fact, {})
            case Reprioritize():
                return self._if_loud("priority", fact, {"from": fact.was, "to": fact.priority})
            case Stop():
                return self._if_loud("stop", fact, {"host": fact.host, "why": fact.why})
            case HostChange():
                return self._host(fact)
            case GateChange():
                state = {"open": fact.open, "detail": fact.detail or None}
                return self._if_loud("gate", fact, {"gate": fact.gate} | state)
            case LaneChange():
                return self._if_loud("lane", fact, {"lane": fact.lane, "paused": fact.paused})
            case AllChange():
                return self._if_loud("everything", fact, {"paused": fact.paused})
        return None

    def _host(self, fact: HostChange) -> str | None:
        """None where only its fault changed: the attempt that failed has a line of its own."""
        before, self._hosts[fact.host] = self._hosts.get(fact.host), fact
        if before is not None and before.fault != fact.fault and before[2:5] == fact[2:5]:
            return None
        text = {"state": fact.state, "slots": fact.slots, "detail": fact.detail or None}
        needs_fix = {"needs_fix": True} if fact.fault is not None and fact.fault.needs_fix else {}
        return self._if_loud("host", fact, {"host": fact.host} | needs_fix | text)

    def _begun_late(self, fact: BegunLate) -> str | None:
        waited = {"waited_s": round(fact.wait.total_s, 3), "for": fact.wait.pieces()[-1].reason}
        return self._if_loud("waited", fact, self._named(fact) | waited)

    def _tried(self, fact: Over) -> str | None:
        """The attempt is over and another follows. How long it ran is told with its task's end."""
        assert fact.retry_at is not None
        ran = {"ran_s": round(max(0.0, fact.at - fact.started_at), 3)}
        later = {"in_s": round(max(0.0, fact.retry_at - fact.at), 3)}
        what = "put-back" if fact.verdict == Verdict.CANCELLED else "retry"
        return self._if_loud(what, fact, self._named(fact) | ran | later | _error(fact.error))

    def _ended(self, fact: Ended) -> str | None:
        if fact.state in (State.FAILED, State.BLOCKED):
            self.failures += 1
        elif self._quiet:
            return None
        ran = {} if fact.ran_s is None else {"ran_s": round(max(0.0, fact.ran_s), 3)}
        return self._if_loud(str(fact.state), fact, self._named(fact) | ran | _error(fact.error))

    def _named(self, fact: Started | BegunLate | Over | Ended) -> dict[str, Any]:
        """What a line names of a task, as far as it is known."""
        task, where = fact.known, {"host": fact.host or None, "lane": fact.lane or None}
        attempt = {"attempt": fact.attempt or None}
        if task is None:
            return where | attempt
        named = {"kind": task.kind} | where | {"run": task.run or None} | attempt
        if self._traced or task.trace is not None:
            named["trace"] = f"{trace_id(task):032x}"
        return named

    def _if_loud(self, what: str, fact: Any, fields: dict[str, Any]) -> str | None:
        if self._quiet and what not in _LOUD:
            return None
        return self._formed(what, fact.at, getattr(fact, "task", None), fields)

    # ---- lines

    def _formed(self, what: str, at: float, task: str | None, fields: dict[str, Any]) -> str:
        told = {name: value for name, value in fields.items() if value is not None}
        if self._as_json:
            named = {} if task is None else {"task": task}
            return msgspec.json.encode({"at": round(at, 6), "event": what} | named | told).decode()
        if at < self._last - _OLD_S:
            told["at"] = _clock(at)
        self._last = max(at, self._last)
        detail = told.pop("detail", None)
        parts = [f"{name}={_shown(value)}" for name, value in told.items()]
        words = [
            _clock(self._last),
            f"{what:<8}",
            *([name_in_run(task, told.get("run", ""))] if task else []),
            *parts,
            *([one_line(detail)] if detail else []),
        ]
        return " ".join(words)

    def _write(self, lines: list[str]) -> None:
        if lines:
            with suppress(OSError):
                sys.stderr.write("\n".join(lines) + "\n")
                sys.stderr.flush()


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 1000):03}"


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
def telling(tell: Callable[[str], None], *, of_hosts: bool = True) -> Iterator[None]:
    """Warnings of the dispatcher and the engine (a blocked loop, a recovery) go to `tell`, a line each.

    Those of hosts that are down are left out for those who watch the hosts themselves.
    """

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not of_hosts and record.name == "penstock.dispatcher.health":
                return
            with suppress(OSError):
                tell(one_line(record.getMessage()))

    # What OpenTelemetry says of a collector that is gone we say ourselves, and once.
    with handled("opentelemetry", logging.NullHandler()), handled("penstock", Handler(logging.WARNING)):
        yield
