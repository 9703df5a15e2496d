"""What the answer of an agent's container means for the task, its retries and the host: one pure function.

answer                              verdict     why
200 done                            done        the handler's JSON, or its text
500 handler_failed                  permanent   the command ran and failed; its exit status and stderr are told
… with a status of temporary_exit   temporary
… killed by a signal                temporary   as for programs: most often memory ran out
500 output_too_large, 400 404 413   permanent   what was asked is at fault
504 time_over                       temporary   as every attempt whose time is up
409 cancelled                       temporary   by somebody else: nobody here wanted that
429 busy                            throttled   after the time it names, else a second
503 draining                        host        nothing was run: the adapter asks another container first
401, other 4xx and 5xx              host        the container does not do what it is for
200 with anything else              host
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from penstock.agents.calling import Reply
from penstock.model import Outcome, Verdict

LOG_CHARS = 4000
_ERROR_LINES = 3
_ERROR_CHARS = 1900
_BUSY_S = 1.0  # until a busy one is asked again, if it names no time
_PERMANENT = frozenset({"unknown_command", "bad_request", "too_large", "output_too_large"})

_encode = msgspec.json.Encoder().encode


def outcome_of(
    host: str, reply: Reply, *, timeout_s: float | None, temporary: Collection[int], plain: bool = False
) -> Outcome:
    """`temporary`: the exit statuses that are worth another try. `plain`: the agent has a protocol of its own."""
    answer = reply.answer
    if reply.status == 200:
        if isinstance(answer, dict) and answer.get("status") == "done" and "result" in answer:
            return Outcome(Verdict.DONE, answer["result"], logs=_end_of(answer.get("stderr")))
        if plain:
            return Outcome(Verdict.DONE, answer)
        return Outcome(Verdict.HOST, error=f"{host} answered 200, but not with a result")
    if plain and not reply.code:
        return _plain(host, reply)
    error = reply.error
    message = _text(error.get("message")) or f"status {reply.status}"
    logs = _end_of(error.get("stderr"))
    match reply.code:
        case "handler_failed":
            verdict = Verdict.TEMPORARY if _is_temporary(error, temporary) else Verdict.PERMANENT
            return Outcome(verdict, error=_ended(error, message), logs=logs)
        case "time_over":
            return _timed_out(timeout_s, message, logs)
        case "cancelled":
            return Outcome(Verdict.TEMPORARY, error=f"cancelled in its container: {message}", logs=logs)
        case "busy":
            after_s = _BUSY_S if reply.retry_after_s is None else reply.retry_after_s
            return Outcome(Verdict.THROTTLED, error=f"{host} is busy: {message}", retry_after_s=after_s)
        case code if code in _PERMANENT:
            return Outcome(Verdict.PERMANENT, error=message, logs=logs)
    return Outcome(Verdict.HOST, error=f"{host} answered {reply.status}: {message}", logs=logs)


def reply_of_end(told: Mapping[str, Any], stderr: str) -> Reply:
    """The last line of a stream, as the whole answer that it stands for."""
    if told.get("status") == "done":
        return Reply(200, {"result": None, "stderr": stderr, **told}, b"")
    given = told.get("error")
    error = given if isinstance(given, dict) else {}
    code = told.get("status") if told.get("status") in ("time_over", "cancelled") else "handler_failed"
    kept = {name: told[name] for name in ("exit", "signal") if name in told}
    return Reply(500, {"error": {"code": code, "stderr": stderr, **kept, **error}}, b"")


def end_line(message: str, code: str) -> bytes:
    """The last line of a stream whose own last line will not come."""
    return _encode({"type": "end", "status": "failed", "error": {"code": code, "message": message}}) + b"\n"


def _plain(host: str, reply: Reply) -> Outcome:
    """An agent that answers in words of its own: all that is known is the status."""
    said = reply.answer if isinstance(reply.answer, str) else reply.body.decode(errors="replace")
    text = f"{host} answered {reply.status}: {' '.join(said.split())[:_ERROR_CHARS]}"
    if reply.status in (429, 503):
        after_s = _BUSY_S if reply.retry_after_s is None else reply.retry_after_s
        return Outcome(Verdict.THROTTLED, error=text, retry_after_s=after_s)
    is_host = reply.status in (401, 403, 502, 504)
    return Outcome(Verdict.HOST if is_host else Verdict.PERMANENT, error=text)


def _is_temporary(error: Mapping[str, Any], temporary: Collection[int]) -> bool:
    return error.get("exit") in temporary or isinstance(error.get("signal"), int)


def _ended(error: Mapping[str, Any], message: str) -> str:
    """One line: how the handler ended, and the end of what it said about it."""
    status, number = error.get("exit"), error.get("signal")
    if isinstance(number, int):
        ended = f"killed by {_signal_name(number)}"
    elif isinstance(status, int):
        ended = f"exit status {status}"
    else:
        return message
    said = _text(error.get("stderr")) or _text(error.get("stdout"))
    lines = " | ".join([" ".join(line.split()) for line in said.splitlines() if line.strip()][-_ERROR_LINES:])
    return f"{ended}: {lines[-_ERROR_CHARS:]}" if lines else ended


def _timed_out(timeout_s: float | None, message: str, logs: str | None) -> Outcome:
    text = f"timed out after {timeout_s:g} s" if timeout_s is not None else f"timed out: {message}"
    return Outcome(Verdict.TEMPORARY, error=text, logs=logs, timed_out=True)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _text(given: object) -> str:
    return given if isinstance(given, str) else ""


def _end_of(given: object) -> str | None:
    return _text(given)[-LOG_CHARS:] or None
