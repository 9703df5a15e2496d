"""What the end of an attempt's code means: a value becomes JSON, an exception becomes a verdict.

These functions run where the attempt ran (its loop, thread or process), so that a large result or a long
traceback costs the dispatcher nothing.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from dataclasses import fields
from typing import Any

import msgspec

from penstock.errors import (
    AttemptError,
    CodeMissing,
    HostError,
    HostNeedsFix,
    PermanentError,
    ThrottledError,
)
from penstock.model import Outcome, Verdict

ERROR_CHARS = 2000
LOG_CHARS = 4000
_FRAMES = 20  # of a traceback, the innermost: a runaway recursion has thousands

# Mistakes in code or input: the next try would make them again. All other exceptions may be bad luck.
_MISTAKES = (
    AssertionError,
    AttributeError,
    ImportError,
    KeyError,
    NotImplementedError,
    SyntaxError,
    TypeError,
    ValueError,
)
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_QUITTING = (SystemExit, KeyboardInterrupt, GeneratorExit)


# One is made for each attempt that is done: to set the fields of a frozen dataclass one by one takes three times as
# long as the setters of its slots do.
_verdict_of, _value_of, *_others = [getattr(Outcome, field.name).__set__ for field in fields(Outcome)]
_OTHERS = list(zip(_others, [field.default for field in fields(Outcome)[2:]], strict=True))


def success(value: Any) -> Outcome:
    """`Outcome(Verdict.DONE, value)`, the value as JSON will say it."""
    outcome = object.__new__(Outcome)
    _verdict_of(outcome, Verdict.DONE)
    _value_of(outcome, as_json(value))
    for put, default in _OTHERS:
        put(outcome, default)
    return outcome


def as_json(value: Any) -> Any:
    """The value as JSON will say it; what JSON cannot say is refused."""
    if value is None:
        return None
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except RecursionError:
        raise PermanentError("the result contains itself, or is nested too deeply for JSON") from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise PermanentError(
            f"the result, of type {type(value).__name__}, is not JSON ({error}); "
            "return dicts, lists, texts, numbers, booleans or None"
        ) from None


def failure(error: BaseException) -> Outcome:
    """What an exception that left an attempt's code means."""
    said = _spokesman(error)
    return Outcome(
        _verdict(error),
        error=_describe(said),
        retry_after_s=said.retry_after_s if isinstance(said, AttemptError) else None,
        logs=_traceback(error),
        needs_fix=isinstance(said, HostNeedsFix),
        unloaded=said.what if isinstance(said, CodeMissing) else "",
    )


def timed_out(timeout_s: float | None, remark: str = "") -> Outcome:
    after = "" if timeout_s is None else f" after {timeout_s:g} s"
    return Outcome(Verdict.TEMPORARY, error=f"timed out{after}{remark}", timed_out=True)


def stopped() -> Outcome:
    return Outcome(Verdict.CANCELLED, error="stopped")


def one_line(text: str, limit: int = ERROR_CHARS) -> str:
    return " ".join(text.split())[:limit]


def _spokesman(error: BaseException) -> BaseException:
    """Of a group (an `asyncio.TaskGroup` raises one) the exception that says most; else the error itself."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    members = [_spokesman(member) for member in error.exceptions]
    meant = [member for member in members if isinstance(member, AttemptError)]
    return (meant or members)[0]


def _verdict(error: BaseException) -> Verdict:
    if isinstance(error, BaseExceptionGroup):
        said = _spokesman(error)
        if isinstance(said, AttemptError):
            return _verdict(said)
        verdicts = {_verdict(member) for member in error.exceptions}
        return verdicts.pop() if len(verdicts) == 1 else Verdict.TEMPORARY
    if isinstance(error, AttemptError):
        if isinstance(error, ThrottledError):
            return Verdict.THROTTLED
        if isinstance(error, HostError):
            return Verdict.HOST
        return Verdict.PERMANENT if isinstance(error, PermanentError) else Verdict.TEMPORARY
    if isinstance(error, OSError):  # some, such as a refused certificate, are ValueErrors as well
        return Verdict.TEMPORARY
    return Verdict.PERMANENT if isinstance(error, _MISTAKES + _QUITTING) else Verdict.TEMPORARY


def _raised_by_us(error: BaseException) -> bool:
    """Our own code raises an AttemptError for the reader of its message; its place helps nobody."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return step is not None and step.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def _describe(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = one_line(str(error))
    except Exception:  # noqa: BLE001 - the user's own `__str__`, still part of the attempt
        text = "(its message cannot be read)"
    if isinstance(error, AttemptError) and text:
        return text  # written for the reader already
    if isinstance(error, asyncio.CancelledError) and not text:
        text = "cancelled by its own code"
    return f"{name}: {text}"[:ERROR_CHARS] if text else name


def _traceback(error: BaseException) -> str | None:
    if error.__traceback__ is None or (isinstance(error, AttemptError) and _raised_by_us(error)):
        return None
    try:
        return "".join(traceback.format_exception(error, limit=-_FRAMES))[-LOG_CHARS:]
    except Exception:  # noqa: BLE001 - the user's own `__str__` or `__repr__` once more
        return None
