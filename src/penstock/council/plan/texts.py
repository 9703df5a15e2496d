"""What goes into a prompt and what comes out of one: passages, answers, and the prompts made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, str]  # {"role": …, "content": …}, as a /v1 call carries it


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document. `n` is the number it is cited by; the best passage comes first."""

    n: int
    source: str
    heading: str = ""
    text: str = ""
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a member said."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """Words for a model, and what of the material they hold."""

    messages: list[Message]
    max_tokens: int
    shown: tuple[int, ...] = ()  # `n` of the passages in it: only these can be cited
    cut: tuple[str, ...] = ()  # what did not fit, in words


@dataclass(frozen=True, slots=True)
class ReviewPrompt:
    """Words for a reviewer. `order` holds the names behind the labels A, B, C …; never the reviewer's own."""

    reviewer: str
    messages: list[Message]
    max_tokens: int
    order: tuple[str, ...]
    response_format: Mapping[str, Any] = field(default_factory=dict)
    cut: tuple[str, ...] = ()
    spare_tokens: int = 0  # left in the model's context: what a repair may quote
    code: str = ""  # of its fences
