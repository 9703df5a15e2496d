"""Work that computes, in plain Python: it holds the interpreter's lock from the first round to the last."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from penstock.compare.plan import Work

_ROUNDS = 100_000


def compute(task: str, rounds: int) -> dict[str, Any]:
    """When it ran is part of the answer: no server sees it."""
    began = time.monotonic()
    number = 7
    for turn in range(rounds):
        number = (number * 31 + turn) % 1_000_003
    ended = time.monotonic()
    return {"task": task, "process": os.getpid(), "began": began, "ended": ended, "number": number}


def compute_work(work: Work) -> dict[str, Any]:
    return compute(work.id, work.amount)


def compute_payload(payload: Mapping[str, Any]) -> dict[str, Any]:
    """As a `python` host calls it."""
    return compute(payload["task"], payload["rounds"])


def rounds_per_s() -> float:
    """How fast a core of this machine is at it, by the best of a few tries, not counting who else uses it."""
    return _ROUNDS / min(_core_s() for _ in range(5))


def _core_s() -> float:
    before = time.thread_time()
    compute("", _ROUNDS)
    return max(time.thread_time() - before, 1e-6)
