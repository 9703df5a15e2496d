"""A call of the front door between its client and the host that answers it.

The front door makes one per call and it travels as the payload of the call's jobs. The adapter sends the answer
through it as it comes, so nothing of it is stored on the way, and a slow client slows the host's stream down.
All of it belongs to the dispatcher's loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import PermanentError

AGENT_CALL = "agent"
COUNCIL_CALL = "council"
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a host answered instead of a result. Its headers are those worth passing on."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class ClientStalled(PermanentError):
    """The client does not read its answer. Nothing more can be sent to it."""


class Relay(ABC):
    """`endpoint` is chat/completions, completions or embeddings; `body` is what the client sent, byte for byte.

    That of an agent's call is `AGENT_CALL`: it has a `payload`, which is like that of a task. So has that of a
    question, `COUNCIL_CALL`, whose answer goes nowhere through here: the hub of live events has it.
    """

    def __init__(self, endpoint: str, body: bytes, *, streamed: bool, payload: Any = None) -> None:
        self.endpoint = endpoint
        self.body = body
        self.payload = payload
        self.once: str | None = None  # a host that knows names of calls runs this one once
        self.streamed = streamed
        self.refusal: Refusal | None = None  # of the last attempt, if its host refused in words
        self.timed_out = False  # the last attempt waited for its host in vain
        self.last_error: str | None = None  # of the last attempt that another follows

    def started(self, host: str, attempt: int, at: float) -> None:  # noqa: B027 - nothing to do is fine
        """An attempt is about to begin."""

    def requeued(self, error: str | None, at: float) -> None:
        """The attempt is over, and another may follow."""
        self.last_error = error

    def record(self) -> dict[str, Any]:
        """What the task's value is to hold of the answer that was sent: nothing, unless it is to be kept."""
        return {}

    @property
    @abstractmethod
    def begun(self) -> bool:
        """Whether the client has been sent a byte: no other attempt can help from then on."""

    @abstractmethod
    async def begin(self, status: int, headers: Headers, host: str, attempt: int) -> None:
        """Send the status line and headers of the answer."""

    async def whole(self, status: int, headers: Headers, host: str, attempt: int, body: bytes) -> None:
        """Send an answer that is there already."""
        await self.begin(status, headers, host, attempt)
        await self.send(body)
        await self.end()

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Send a piece of the answer; waits while the client is slow."""

    @abstractmethod
    async def end(self) -> None:
        """The answer is complete, or as complete as it gets."""
