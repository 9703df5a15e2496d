"""What values and exceptions mean, wherever an attempt ran."""

from __future__ import annotations

import datetime
import ssl
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.engine.outcomes import as_json, failure, success, timed_out
from penstock.errors import (
    AttemptError,
    HostError,
    PermanentError,
    TemporaryError,
    ThrottledError,
)
from penstock.model import Outcome, Verdict
from tests.conformance.engine_rig import Rig, python_host
from tests.conformance.host_functions import Unpicklable, Unreadable


@dataclass
class Point:
    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**80, 2**80),
        (float("nan"), None),
        ((1, {2}), [1, [2]]),
        ({1: "a"}, {"1": "a"}),
        (Point(1, 2), {"x": 1, "y": 2}),
        (datetime.date(2026, 1, 2), "2026-01-02"),
    ],
)
def test_values_become_json(value: Any, expected: Any) -> None:
    assert success(value) == Outcome(Verdict.DONE, expected)


@pytest.mark.parametrize("value", [object(), print, {(1, 2): 3}, "\ud800", ValueError, 1j])
def test_what_json_cannot_say_is_refused_with_its_type(value: Any) -> None:
    with pytest.raises(PermanentError, match=type(value).__name__):
        as_json(value)


@pytest.mark.parametrize(
    ("error", "verdict", "text"),
    [
        (TemporaryError("later"), Verdict.TEMPORARY, "later"),
        (AttemptError(), Verdict.TEMPORARY, "AttemptError"),
        (PermanentError("never"), Verdict.PERMANENT, "never"),
        (HostError("ill"), Verdict.HOST, "ill"),
        (ThrottledError("less"), Verdict.THROTTLED, "less"),
        (ValueError("a\n  b"), Verdict.PERMANENT, "ValueError: a b"),
        (KeyError("k"), Verdict.PERMANENT, "KeyError: 'k'"),
        (TypeError(), Verdict.PERMANENT, "TypeError"),
        (NotImplementedError("x"), Verdict.PERMANENT, "NotImplementedError: x"),
        (SystemExit(3), Verdict.PERMANENT, "SystemExit: 3"),
        (KeyboardInterrupt(), Verdict.PERMANENT, "KeyboardInterrupt"),
        (RuntimeError("x"), Verdict.TEMPORARY, "RuntimeError: x"),
        (TimeoutError(), Verdict.TEMPORARY, "TimeoutError"),
        (ConnectionResetError("x"), Verdict.TEMPORARY, "ConnectionResetError: x"),
        (ssl.SSLCertVerificationError("x"), Verdict.TEMPORARY, "SSLCertVerificationError: ('x',)"),
        (MemoryError(), Verdict.TEMPORARY, "MemoryError"),
        (RecursionError("x"), Verdict.TEMPORARY, "RecursionError: x"),
        (Unreadable(), Verdict.TEMPORARY, "Unreadable: (its message cannot be read)"),
        (Unpicklable(1, 2), Verdict.TEMPORARY, "Unpicklable: 1 and 2"),
        (ExceptionGroup("g", [ValueError("x")]), Verdict.PERMANENT, "ValueError: x"),
        (ExceptionGroup("g", [ValueError("x"), OSError("y")]), Verdict.TEMPORARY, "ValueError: x"),
        (ExceptionGroup("g", [ValueError("x"), HostError("ill")]), Verdict.HOST, "ill"),
        (ExceptionGroup("g", [ExceptionGroup("h", [PermanentError("no")])]), Verdict.PERMANENT, "no"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_exceptions_become_verdicts(error: BaseException, verdict: Verdict, text: str) -> None:
    outcome = failure(error)
    assert (outcome.verdict, outcome.error) == (verdict, text)


def test_retry_after_is_kept() -> None:
    assert failure(ThrottledError("x", retry_after_s=9.0)).retry_after_s == 9.0
    group = ExceptionGroup("g", [ThrottledError("x", retry_after_s=8.0)])
    assert failure(group).retry_after_s == 8.0


def test_texts_are_cut() -> None:
    def deep(depth: int) -> None:
        if depth:
            deep(depth - 1)
        raise RuntimeError("long " * 10_000)

    with pytest.raises(RuntimeError) as caught:
        deep(100)
    outcome = failure(caught.value)
    assert outcome.error is not None
    assert outcome.logs is not None
    assert len(outcome.error) == 2000
    assert len(outcome.logs) == 4000


def test_logs_are_the_traceback_of_user_code_only() -> None:
    with pytest.raises(PermanentError) as refused:
        as_json(object())
    assert failure(refused.value).logs is None
    with pytest.raises(ValueError, match="mine") as caught:
        raise ValueError("mine")
    assert (failure(caught.value).logs or "").endswith("ValueError: mine\n")


def test_timed_out() -> None:
    assert timed_out(2.5).error == "timed out after 2.5 s"


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_exceptions_mean_the_same_wherever_they_are_raised(isolation: str) -> None:
    expected = {
        "temporary": (Verdict.TEMPORARY, "try again", 7.0),
        "throttled": (Verdict.THROTTLED, "too much", 3.0),
        "mistake": (Verdict.PERMANENT, "ValueError: a bad value", None),
        "luck": (Verdict.TEMPORARY, "ConnectionResetError: gone", None),
        "memory": (Verdict.TEMPORARY, "MemoryError: no room", None),
        "exit": (Verdict.PERMANENT, "SystemExit: 3", None),
        "interrupt": (Verdict.PERMANENT, "KeyboardInterrupt", None),
        "unpicklable": (Verdict.TEMPORARY, "Unpicklable: 1 and 2", None),
        "unreadable": (Verdict.TEMPORARY, "Unreadable: (its message cannot be read)", None),
        "group": (Verdict.HOST, "the host is ill", None),
    }
    hosts = [python_host(name, name, 1, isolation=isolation) for name in ("sync", "on_loop")]
    async with Rig(*hosts) as rig:
        for host in hosts:
            for what, meaning in expected.items():
                outcome = await rig.outcome_of(host.name, {"act": "raise", "what": what})
                assert (outcome.verdict, outcome.error, outcome.retry_after_s) == meaning
                assert "in raises" in (outcome.logs or "")
            recursion = await rig.outcome_of(host.name, {"act": "recurse"})
            assert recursion.verdict is Verdict.TEMPORARY
            assert (recursion.error or "").startswith("RecursionError")


def test_what_is_heavy_is_loaded_only_where_it_is_used() -> None:
    script = (
        "import sys, penstock.hosts.command, penstock.hosts.python, penstock.hosts.simulated, "
        "penstock.engine.local\n"
        "print(*[name for name in ('pebble', 'psutil', 'multiprocessing') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.split() == []
