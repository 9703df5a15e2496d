"""The words that logs use for states, events and urgency, in ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from penstock.model import PRIORITIES, State, Verdict


class Step(StrEnum):
    """What an event of a task says."""

    QUEUE = "queue"
    START = "start"
    END = "end"


class Ending(NamedTuple):
    """How far a task came, and how the attempt ended if it did."""

    state: State
    verdict: Verdict | None


_DONE = Ending(State.DONE, Verdict.DONE)
_FAILED = Ending(State.FAILED, Verdict.PERMANENT)
_TIMED_OUT = Ending(State.FAILED, Verdict.TEMPORARY)
_THROTTLED = Ending(State.FAILED, Verdict.THROTTLED)
_HOST = Ending(State.FAILED, Verdict.HOST)
_CANCELLED = Ending(State.CANCELLED, Verdict.CANCELLED)

_WORDS = {
    _DONE: "done success succeeded successful ok okay complete completed finished finish pass passed true yes y "
    "good closed end ended stop stopped exited",
    _FAILED: "failed fail failure error errored exception false no n bad crashed crash killed dead unsuccessful "
    "rejected invalid permanent",
    _TIMED_OUT: "timeout timedout expired retry retried retrying temporary",
    _THROTTLED: "throttled throttle ratelimited ratelimit",
    _HOST: "host hosterror lost unreachable",
    _CANCELLED: "cancelled canceled cancel revoked aborted abort skipped",
    Ending(State.BLOCKED, Verdict.PERMANENT): "blocked",
    Ending(State.RUNNING, None): "running started active inprogress processing executing",
    Ending(State.QUEUED, None): "queued pending waiting submitted created new scheduled received",
}
ENDINGS: Mapping[str, Ending] = {word: ending for ending, words in _WORDS.items() for word in words.split()}

_QUEUE_WORDS = frozenset(
    {
        "queue",
        "queued",
        "enqueue",
        "enqueued",
        "create",
        "created",
        "submit",
        "submitted",
        "receive",
        "received",
    }
    | {"arrive", "arrived", "arrival", "pending", "add", "added", "sent"}
)
_START_WORDS = frozenset(
    {"start", "started", "starting", "begin", "began", "begun", "launch", "launched", "dispatched", "running"}
)
_END_WORDS = frozenset(word for word, ending in ENDINGS.items() if ending.verdict is not None) - frozenset(
    {"true", "false", "yes", "no", "y", "n", "host", "good", "bad"}
)

_PRIORITY_WORDS = {
    "critical": 0, "urgent": 0, "highest": 0, "high": 1, "normal": 2, "medium": 2, "default": 2, "low": 3,
    "lowest": 4, "background": 4,
}  # fmt: skip
_NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_CODES = ("exit", "return", "rc", "code")


def read_ending(value: Any, column: str) -> Ending | None:
    """A state as a log tells it; None when the word is unknown. `column` tells exit codes from answers."""
    if isinstance(value, bool):
        return _DONE if value else _FAILED
    text = str(value).strip().lower()
    if isinstance(value, int | float) or _NUMBER.fullmatch(text):
        return _of_number(float(value), column)
    # `StatusCode.TIMED_OUT` and `timed out` are the same word.
    return ENDINGS.get(re.sub(r"[^a-z]", "", text.rpartition(".")[2]))


def _of_number(number: float, column: str) -> Ending | None:
    if 200 <= number < 600:  # of HTTP
        answers = {429: _THROTTLED, 408: _TIMED_OUT, 502: _HOST, 503: _HOST, 504: _TIMED_OUT}
        return answers.get(int(number), _DONE if number < 400 else _FAILED)
    if any(word in column.split("_") or column.startswith(word) for word in _CODES):
        return _DONE if number == 0 else _FAILED
    if column in ("success", "succeeded", "successful", "ok") and number in (0, 1):
        return _DONE if number else _FAILED
    return None


def read_step(value: Any) -> tuple[Step, Ending | None] | None:
    """What an event says; None when it says nothing of queueing, starting or ending. The last word counts."""
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(value)).lower())
    for word in reversed(words):
        if word in _START_WORDS:
            return Step.START, None
        if word in _QUEUE_WORDS:
            return Step.QUEUE, None
        if word in _END_WORDS:
            return Step.END, ENDINGS[word]
    return None


def read_priority(value: Any) -> int | None:
    """0 is the most urgent and 4 the least; None when the value is none of these."""
    if isinstance(value, bool):
        return None
    text = str(value).strip().lower()
    if text in _PRIORITY_WORDS:
        return _PRIORITY_WORDS[text]
    digit = text.removeprefix("p").removesuffix(".0")
    return next((priority for priority in PRIORITIES if digit == str(priority)), None)
