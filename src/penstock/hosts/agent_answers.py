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

Of what a container says, only the value of a task may hold what `pass_env` gave it: errors and logs do not.
"""

from __future__ import annotations

import signal
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec

from penstock.agents.calls import wary_json
from penstock.agents.calls.calling import Reply
from penstock.model import Outcome, Verdict

LOG_CHARS = 4000
_ERROR_LINES = 3
_ERROR_CHARS = 1900
_BUSY_S = 1.0  # until a busy one is asked again, if it names no time
_PERMANENT = frozenset({"unknown_command", "bad_request", "too_large", "output_too_large"})

# Nothing of a command was run, so that a call may be brought elsewhere.
_RAN_NOTHING = frozenset({"draining", "no_room", "cannot_start", "unauthorized", "forbidden", "too_slow"})
_END_FIELDS = ("id", "exit", "truncated", "duration_s", "waited_s")

Hide: TypeAlias = Callable[[str], str]
_encode = msgspec.json.Encoder().encode


def outcome_of(
    host: str,
    reply: Reply,
    *,
    timeout_s: float | None,
    temporary: Collection[int],
    plain: bool = False,
    hide: Hide = str,
) -> Outcome:
    """`temporary`: the exit statuses that are worth another try. `plain`: the agent has a protocol of its own.

    A value is as it came, in `msgspec.Raw`, unless it is a text that is no JSON: `made` makes something of it.
    """
    answer = reply.answer
    if reply.status == 200:
        if _is_result(answer):
            return Outcome(Verdict.DONE, answer["result"], logs=_end_of(answer.get("stderr"), hide))
        if plain:
            return Outcome(Verdict.DONE, answer if isinstance(answer, str) else msgspec.Raw(reply.body))
        return Outcome(Verdict.HOST, error=f"{host} answered 200, but not with a result")
    if plain and not reply.code:
        return _plain(host, reply, hide)
    error = {name: hide(told) if isinstance(told, str) else told for name, told in reply.error.items()}
    message = _text(error.get("message")) or f"status {reply.status}"
    logs = _end_of(error.get("stderr"), str)
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


def made(host: str, outcome: Outcome) -> Outcome:
    """With the value that was done; too many parts of one would hold up everybody who reads it."""
    raw = outcome.value
    if not isinstance(raw, msgspec.Raw):
        return outcome
    data = bytes(raw)
    if wary_json.parts_of(data) > wary_json.MOST_PARTS:
        text = f"{host} answered with too many lists, tables and keys; print less, or write a file"
        return replace(outcome, verdict=Verdict.PERMANENT, value=None, error=text)
    try:
        return replace(outcome, value=wary_json.value_of(data))
    except wary_json.NOT_JSON as error:
        text = f"{host} answered with a result that cannot be kept: {error}"
        return replace(outcome, verdict=Verdict.PERMANENT, value=None, error=text)


def ran_nothing(reply: Reply) -> bool:
    """Whether the container says so: nothing of what was asked for was begun."""
    return reply.status == 401 or reply.code in _RAN_NOTHING


def not_again(outcome: Outcome) -> Outcome:
    """Of a call whose command may have run: who waits for it is told, and decides."""
    if outcome.verdict is not Verdict.HOST:
        return outcome
    may_have = "" if "may have run" in (outcome.error or "") else "; the command may have run"
    return replace(told_already(outcome), error=f"{outcome.error}{may_have}")


def told_already(outcome: Outcome) -> Outcome:
    """The client has read how it ended: nobody tries again."""
    return replace(
        outcome,
        verdict=Verdict.PERMANENT,
        retry_after_s=None,
        host_fault=outcome.verdict is Verdict.HOST,
    )


def _is_result(answer: Any) -> bool:
    return isinstance(answer, dict) and answer.get("status") == "done" and "result" in answer


def lines_of(reply: Reply) -> bytes:
    """An answer in one piece that is done, as the lines of a stream: for who asked for those."""
    answer = reply.answer if _is_result(reply.answer) else {}
    told = [_output(answer["result"], answer.get("format")) if answer else _text_line(reply.body)]
    if stderr := _text(answer.get("stderr")):
        told.append({"type": "stderr", "data": stderr})
    kept = {name: answer[name] for name in _END_FIELDS if answer.get(name) is not None}
    told.append({"type": "end", "status": "done", "exit": 0, "http": reply.status, **kept})
    return b"".join(_encode(line) + b"\n" for line in told)


def _output(result: msgspec.Raw, form: object) -> dict[str, Any]:
    """What the command wrote: its text, or its JSON on a line."""
    if wary_json.is_text(bytes(result)) and form != "json":
        return {"type": "stdout", "base64" if form == "base64" else "data": result}
    return {"type": "stdout", "data": f"{bytes(result).decode()}\n"}


def _text_line(body: bytes) -> dict[str, Any]:
    try:
        return {"type": "stdout", "data": body.decode()}
    except UnicodeDecodeError:
        return {"type": "stdout", "base64": b64encode(body).decode()}


def last_line(status: int, body: bytes) -> bytes:
    """The last line of a stream for an answer in one piece that tells of a failure."""
    return wary_json.extended(body, type="end", http=status) + b"\n"


def reply_of_end(told: Mapping[str, Any], stderr: str) -> Reply:
    """The last line of a stream, as the whole answer that it stands for."""
    if told.get("status") == "done":
        return Reply(200, {"result": None, **told, "stderr": stderr}, b"")
    given = told.get("error")
    error = given if isinstance(given, dict) else {}
    code = told.get("status") if told.get("status") in ("time_over", "cancelled") else "handler_failed"
    kept = {name: told[name] for name in ("exit", "signal") if name in told}
    return Reply(500, {"error": {"code": code, "stderr": stderr, **kept, **error}}, b"")


def end_line(message: str, code: str) -> bytes:
    """The last line of a stream whose own last line will not come."""
    return _encode({"type": "end", "status": "failed", "error": {"code": code, "message": message}}) + b"\n"


def _plain(host: str, reply: Reply, hide: Hide) -> Outcome:
    """An agent that answers in words of its own: all that is known is the status."""
    said = hide(reply.answer if isinstance(reply.answer, str) else reply.body.decode(errors="replace"))
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
        if number == signal.SIGKILL:
            ended += ", as the kernel does when memory is short"
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


def _end_of(given: object, hide: Hide) -> str | None:
    """Hidden before it is cut: the end of a secret is one as well."""
    return hide(_text(given))[-LOG_CHARS:] or None
