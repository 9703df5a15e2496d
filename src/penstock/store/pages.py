"""Tasks a page at a time: what a store gives back of many, however many it has.

What an index finds is found at once. For the rest a store looks through its tasks for a short while and gives what
it has seen: `next` says where to go on, also when the page is not full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.model import TaskRecord

MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class TaskPage:
    records: Sequence[TaskRecord]
    next: int | None  # `after` of the next page; None: there is nothing more


@dataclass(frozen=True, slots=True)
class TaskCount:
    """How many tasks fit. When it is not exact there are at least so many: it is not worth the time to know."""

    tasks: int
    is_exact: bool

    def __str__(self) -> str:
        return f"{self.tasks:,}" if self.is_exact else f"{self.tasks:,}+"
