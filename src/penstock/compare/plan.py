"""What a contender is given and what it gives back, as plain data over a pipe.

Nothing but the standard library is imported here: what a contender weighs is to be its own weight.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Place:
    """A host: a model server at `url`, or the cores of this machine."""

    name: str
    url: str
    slots: int
    serves: tuple[str, ...]

    def takes(self, kind: str) -> bool:
        return "*" in self.serves or kind in self.serves


@dataclass(frozen=True, slots=True)
class Work:
    """A task: a call that asks for `amount` tokens, or so many rounds of computing."""

    id: str
    kind: str
    priority: int
    arrives_s: float  # real seconds after the start
    amount: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Times are real seconds; one of the story lasts `scale` of them."""

    cpu_bound: bool
    places: tuple[Place, ...]
    works: tuple[Work, ...]
    scale: float
    retries: int  # after the first try, and each pause is twice the one before
    pause_s: float
    timeout_s: float  # for one call
    folder: str  # for a contender that keeps files
    host_dies: bool

    def arrivals(self) -> Iterator[tuple[float, list[Work]]]:
        """When, and what arrives then: the most urgent first, as every way can sort what it knows."""
        ordered = sorted(self.works, key=lambda work: (work.arrives_s, work.priority))
        for at_s, group in groupby(ordered, key=lambda work: work.arrives_s):
            yield at_s, list(group)

    def places_for(self, kind: str) -> list[Place]:
        return [place for place in self.places if place.takes(kind)]

    def pause_before_s(self, tries: int) -> float:
        """How long before the next try, after so many."""
        return self.pause_s * (1 << (tries - 1))

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Plan:
        data: dict[str, Any] = json.loads(text)
        data["places"] = tuple(
            Place(**{**place, "serves": tuple(place["serves"])}) for place in data["places"]
        )
        data["works"] = tuple(Work(**work) for work in data["works"])
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Ending:
    """What a contender says of a task: its answer, or why it has none."""

    task: str
    answer: Any = None
    error: str | None = None
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Report:
    endings: tuple[Ending, ...]
    noticed: str = ""  # who noticed that a host was down, where somebody did


# Opened before the start, so that nobody is timed while it loads its parts; then called once.
Runner: TypeAlias = Callable[[], Report]
Opened: TypeAlias = AbstractContextManager[Runner]
