"""What a model server's refusal means for the task, its retries and the host: one table, one pure function.

status                          verdict     why
400 404 405 413 422, other 4xx  permanent   the request itself is at fault
404, of a model of the config   host        the server lacks the model that this host is configured with
401 403                         host        the host's key is at fault, not the task; others may take it
402, 429 insufficient_quota     host        no money left there; asked again much later
408 409 425                     temporary
429                             throttled   after the time it names, else a second
503 with Retry-After            throttled
503 of a Penstock that stops    host        it takes nothing more in, and nobody knows when it is back
5xx, 3xx, a model not loaded    host
200 with an `error`             temporary, or as the code in it says
200 with anything unusable      host

A host needs a fix where its key is refused (401), where it redirects, and where the only model that it is asked for
is refused (403) or not there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from penstock.model import Outcome, Verdict

ERROR_CHARS = 500
MOST_RETRY_AFTER_S = 3600.0
_LEAST_RETRY_AFTER_S = 0.05
_DEFAULT_RETRY_AFTER_S = 1.0  # a refusal without a time must not be answered by asking again at once
_QUOTA_RETRY_AFTER_S = 300.0

STOPPING = "stopping"  # the code of our own /v1 when it takes nothing more in

_TEMPORARY = frozenset({408, 409, 425})
_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_POLICY = frozenset({"content_filter", "content_policy_violation", "context_length_exceeded"})
_NO_MODEL = re.compile(r"model\b.*\b(not found|does not exist|not exist|unknown|no such)|no such model", re.I)
_NOT_LOADED = re.compile(
    r"model (has )?(been )?(crashed|unloaded)|model (is )?(not loaded|loading)|loading model|no models? loaded",
    re.I,
)
_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


@dataclass(frozen=True, slots=True)
class Said:
    """The words of an error body; `shaped` when they stand as OpenAI's do."""

    message: str
    type: str = ""
    code: str = ""
    shaped: bool = False


def said(body: bytes) -> Said:
    """What an error body says, whatever it is made of."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Said(one_line(body[: 4 * ERROR_CHARS].decode("utf-8", errors="replace")))
    if not isinstance(found, dict):
        return Said(one_line(str(found)))
    error = found.get("error", found)
    if isinstance(error, str):
        return Said(one_line(error))
    if not isinstance(error, dict):
        return Said(one_line(str(error)))
    message = error.get("message", error.get("detail"))
    text = message if isinstance(message, str) else msgspec.json.encode(error).decode()
    shaped = "error" in found and isinstance(message, str)
    return Said(one_line(text), _word(error.get("type")), _word(error.get("code")), shaped)


def classify(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    host: str,
    now: float,
    model: str | None = None,
    own_model: bool = False,
    only_model: bool = False,
    key_remedy: str = "",
) -> Outcome:
    """The outcome of an answer that is no result. `own_model`: the config, not the caller, chose the model;
    `only_model`: and gives the host no other.
    """
    words = said(body)
    if 200 <= status < 300:
        inner = int(words.code) if words.code.isdigit() and 400 <= int(words.code[:4]) < 600 else None
        if inner is None:
            return Outcome(Verdict.TEMPORARY, error=f"{host} answered with an error: {words.message}")
        status = inner
    text = f"{host} answered {status}" + (f": {words.message}" if words.message else "")
    codes = {words.code, words.type}
    if status in (401, 403) and not codes & _POLICY:
        error = f"{text}; {key_remedy}" if key_remedy else text
        return Outcome(Verdict.HOST, error=error, needs_fix=status == 401 or only_model)
    if status == 402 or (status == 429 and codes & _QUOTA):
        remedy = "pay its bill or raise its limit, or take it out of the config"
        return Outcome(Verdict.HOST, error=f"{text}; {remedy}", retry_after_s=_QUOTA_RETRY_AFTER_S)
    if status == 429 or (status == 503 and _names_a_time(headers) and words.code != STOPPING):
        after_s = retry_after_s(headers, now)
        return Outcome(
            Verdict.THROTTLED,
            error=text,
            retry_after_s=_DEFAULT_RETRY_AFTER_S if after_s is None else max(after_s, _LEAST_RETRY_AFTER_S),
        )
    return replace(
        _plain(status, words, text, host, model if own_model else None, only_model),
        retry_after_s=retry_after_s(headers, now),
    )


def _plain(
    status: int, words: Said, text: str, host: str, own_model: str | None, only_model: bool
) -> Outcome:
    if status in _TEMPORARY:
        return Outcome(Verdict.TEMPORARY, error=text)
    if 300 <= status < 400:
        remedy = f"it redirects, which is not followed: correct hosts.{host}.url"
        return Outcome(Verdict.HOST, error=f"{text}; {remedy}", needs_fix=True)
    if not 400 <= status < 500 or _NOT_LOADED.search(words.message):
        return Outcome(Verdict.HOST, error=text)
    missing = words.code == "model_not_found" or (status in (400, 404) and _NO_MODEL.search(words.message))
    if missing and own_model is not None:
        remedy = f"load {own_model} there, or correct hosts.{host}.model"
        return Outcome(Verdict.HOST, error=f"{text}; {remedy}", needs_fix=only_model)
    if status == 404 and not missing:
        text += f"; hosts.{host}.url usually ends in /v1"
    return Outcome(Verdict.PERMANENT, error=text)


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """How long the server asks us to wait, at most an hour; `now` is in epoch seconds, for dates."""
    found = _number(headers.get("retry-after-ms"))
    if found is not None:
        return _bounded(found / 1000)
    after = headers.get("retry-after")
    if after is not None:
        found = _number(after)
        if found is None:
            found = _date_in_s(after, now)
        if found is not None:
            return _bounded(found)
    waits = [
        span_s(headers.get(f"x-ratelimit-reset-{what}", ""))
        for what in ("requests", "tokens")
        if _number(headers.get(f"x-ratelimit-remaining-{what}")) == 0
    ]
    known = [wait for wait in waits if wait is not None]
    return _bounded(max(known)) if known else None


def span_s(text: str) -> float | None:
    """Seconds of "1s", "6m0s", "250ms", "1h2m" or a plain number."""
    text = text.strip()
    plain = _number(text)
    if plain is not None:
        return plain
    found = _SPAN.fullmatch(text) if text and len(text) < 40 else None
    if found is None:
        return None
    days, hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups())
    return days * 86_400 + hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def one_line(text: str, limit: int = ERROR_CHARS) -> str:
    line = " ".join(text[: 4 * limit].split())
    line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _word(value: Any) -> str:
    return str(value)[:100] if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _names_a_time(headers: Mapping[str, str]) -> bool:
    return "retry-after" in headers or "retry-after-ms" in headers


def _number(text: str | None) -> float | None:
    if text is None or len(text) > 40:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _date_in_s(text: str, now: float) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() - now
    except (TypeError, ValueError, OverflowError, IndexError, OSError):
        return None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MOST_RETRY_AFTER_S)
