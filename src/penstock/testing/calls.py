"""What a simulated model server was asked, and when: one call as its tests see it, and how many tokens its
prompt has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class ModelRequest:
    """A call as it came in. `number` counts from 0 over all calls that the server got."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @cached_property
    def endpoint(self) -> str:
        return self.path.rpartition("/v1/")[2]

    @property
    def model(self) -> str:
        model = self.body.get("model")
        return model if isinstance(model, str) else ""

    @property
    def stream(self) -> bool:
        return self.body.get("stream") is True

    @property
    def prompt(self) -> str:
        """All text of the call: of messages, prompt or input."""
        return "\n".join(self.texts)

    @cached_property
    def texts(self) -> list[str]:
        body = self.body
        if "messages" in body:
            return list(_texts_of_messages(body["messages"]))
        return texts_of_input(body.get("prompt", body.get("input")))

    @cached_property
    def prompt_tokens(self) -> int:
        return sum(map(count_tokens, self.texts))

    @property
    def last_text(self) -> str:
        """The text that is answered: the last message, or the whole prompt."""
        texts = self.texts
        return texts[-1] if texts else ""


@dataclass(frozen=True, slots=True)
class CallSpan:
    """A call that is over, as the server saw it, in seconds of `time.monotonic`."""

    request: ModelRequest
    arrived: float
    began: float | None  # when it got a slot; None: it never did
    ended: float
    fate: str  # served, refused, disconnected or aborted


def count_tokens(text: str) -> int:
    """A word is a token: simple enough for a test to count by itself."""
    return len(text.split())


def texts_of_input(given: Any) -> list[str]:
    """A prompt or an input: a text, texts, token numbers, or lists of them."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list):
        return []
    if given and all(isinstance(one, int) for one in given):
        return [" ".join(map(str, given))]
    return [text for one in given for text in texts_of_input(one)]


def _texts_of_messages(messages: Any) -> Iterator[str]:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            texts = [part.get("text") for part in content if isinstance(part, dict)]
            yield " ".join(text for text in texts if isinstance(text, str))
