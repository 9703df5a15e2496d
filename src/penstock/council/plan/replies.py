"""What a member's task came to: a text that can be used, or a failure in words.

A model's value is a table with its text, and code of a python host may return the bare text. That a task is
done does not make an answer: a refusal, an empty text and a value without any text are failures that say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.council.plan.objects import spoken
from penstock.council.plan.steps import StepEnd
from penstock.model import State

MAX_ERROR_CHARS = 500
MAX_ANSWER_CHARS = 200_000  # what code returned may be of any size; a record is kept for long

_LENGTH = frozenset({"length", "max_tokens"})
_FILTERED = "content_filter"
_KINDS = {dict: "a table", list: "a list", bool: "true or false", int: "a number", float: "a number"}


@dataclass(frozen=True, slots=True)
class Reply:
    """`problem` is None where there is a usable text; `notes` tell what is cut of it."""

    text: str = ""
    problem: str | None = None
    notes: tuple[str, ...] = ()
    model: str | None = None


def read_reply(end: StepEnd, max_tokens: int) -> Reply:
    """Of a step that has ended, however."""
    if not end.is_done:
        return Reply(problem=failure_of(end))
    return _of_value(end.value, max_tokens)


def failure_of(end: StepEnd) -> str:
    """The words of a step that is not done; never empty."""
    words = one_line(end.error or "")
    match end.state:
        case State.CANCELLED:
            return words if words.startswith("cancelled") else f"cancelled: {words}" if words else "cancelled"
        case State.BLOCKED:
            return f"blocked: {words}" if words else "blocked, for a reason that was not told"
    return words or "failed, for a reason that was not told"


def one_line(text: str, most: int = MAX_ERROR_CHARS) -> str:
    words = " ".join(text[: 4 * most].split())
    return words if len(words) <= most else words[: most - 1] + "…"


def _of_value(value: Any, max_tokens: int) -> Reply:
    if isinstance(value, str):
        return _of_text(value, None, None, max_tokens)
    if not isinstance(value, Mapping):
        return Reply(problem=f"its value is no text but {_kind_of(value)}")
    model = value.get("model")
    model = model if isinstance(model, str) else None
    refusal, text, finish = value.get("refusal"), value.get("text"), value.get("finish_reason")
    if refusal:
        said = one_line(refusal if isinstance(refusal, str) else str(refusal))
        return Reply(problem=f"refused to answer: {said}", model=model)
    if text is not None and not isinstance(text, str):
        return Reply(problem=f"its value's `text` is no text but {_kind_of(text)}", model=model)
    if text is None and "text" not in value:
        return Reply(problem="its value has no `text`", model=model)
    return _of_text(text or "", finish if isinstance(finish, str) else None, model, max_tokens)


def _of_text(text: str, finish: str | None, model: str | None, max_tokens: int) -> Reply:
    thoughtful, text = text.strip(), spoken(text).strip()
    if not text:
        why = ": nothing but thinking" if thoughtful else ""
        if finish in _LENGTH:
            why = f": all of max_tokens ({max_tokens}) went elsewhere, such as into reasoning"
        elif finish == _FILTERED:
            why = ": the server's content filter took it"
        return Reply(problem=f"an empty answer{why}", model=model)
    notes = []
    if finish in _LENGTH:
        notes.append(f"the answer breaks off: it reached max_tokens ({max_tokens})")
    elif finish == _FILTERED:
        notes.append("the answer breaks off: the server's content filter ended it")
    if len(text) > MAX_ANSWER_CHARS:
        text = text[:MAX_ANSWER_CHARS]
        notes.append(f"the answer is cut after {MAX_ANSWER_CHARS} characters")
    return Reply(text, None, tuple(notes), model)


def _kind_of(value: Any) -> str:
    return "nothing" if value is None else _KINDS.get(type(value), f"a {type(value).__name__}")
