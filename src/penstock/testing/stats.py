"""What a simulated model server counts, and waiting until a count is reached, from any thread or loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(slots=True)
class ServerStats:
    """Counts since the start. Every call that was received ends as exactly one of served, refused,
    disconnected or aborted."""

    received: int = 0  # calls: chat, completions, embeddings
    in_flight: int = 0  # hold a slot
    queued: int = 0  # wait for one
    most_in_flight: int = 0
    most_queued: int = 0
    served: int = 0  # answered to the end, also where the answer was meant to be nonsense
    refused: int = 0  # answered with an error status
    disconnected: int = 0  # the client left
    aborted: int = 0  # the server left: a fault, it was stopped, or a script raised
    prompt_tokens: int = 0
    completion_tokens: int = 0
    endpoints: Counter[str] = field(default_factory=Counter)  # all requests by path
    statuses: Counter[int] = field(default_factory=Counter)  # all answers by status

    def as_record(self) -> dict[str, Any]:
        """The counts as plain data."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        statuses = {str(status): count for status, count in sorted(self.statuses.items())}
        return counts | {"endpoints": dict(sorted(self.endpoints.items())), "statuses": statuses}


_COUNTS = tuple(name for name in ServerStats.__slots__ if name not in ("endpoints", "statuses"))

Condition: TypeAlias = Callable[[ServerStats], bool]


class Watch:
    """Tells waiters when what they wait for is true. Used on the server's loop only, but for the futures."""

    def __init__(self, stats: ServerStats) -> None:
        self._stats = stats
        self._waiting: list[tuple[Condition, Future[None]]] = []

    def add(self, condition: Condition, done: Future[None]) -> None:
        self._waiting.append((condition, done))
        self.changed()

    def changed(self) -> None:
        if not self._waiting:
            return
        left = []
        for condition, done in self._waiting:
            if done.done():
                continue  # the waiter gave up
            if condition(self._stats):
                done.set_result(None)
            else:
                left.append((condition, done))
        self._waiting = left
