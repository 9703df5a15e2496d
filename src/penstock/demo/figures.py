"""What a scene of the demo came to, measured from its store, in seconds of the story."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must hold, whether it did, and the figures that say so."""

    what: str
    ok: bool
    detail: str = ""

    def as_record(self) -> dict[str, Any]:
        return {"what": self.what, "ok": self.ok, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """How one lane fared beside the others."""

    lane: str
    tasks: int
    first_start_s: float
    last_start_s: float
    peak: int
    limit: int
    waits: Mapping[str, float]

    def as_record(self) -> dict[str, Any]:
        return {
            "tasks": self.tasks,
            "first_start_s": round(self.first_start_s, 2),
            "last_start_s": round(self.last_start_s, 2),
            "peak": self.peak,
            "limit": self.limit,
            "waits": rounded(self.waits),
        }


@dataclass(frozen=True, slots=True)
class Scene:
    name: str
    title: str
    tasks: int
    penstock_s: float
    ideal_s: float | None = None
    legacy_s: float | None = None
    waits: Mapping[str, float] = field(default_factory=dict)  # reason -> task-seconds
    checks: tuple[Check, ...] = ()
    lanes: tuple[LaneFigures, ...] = ()
    starts: Mapping[str, Sequence[int]] = field(default_factory=dict)  # host -> priorities in order of start
    facts: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()  # told to people only

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def ratio(self) -> float | None:
        """How much longer than the ideal."""
        return None if self.ideal_s is None else self.penstock_s / self.ideal_s

    def as_record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "tasks": self.tasks,
            "legacy_s": _or_none(self.legacy_s),
            "penstock_s": round(self.penstock_s, 2),
            "ideal_s": _or_none(self.ideal_s),
            "ratio_to_ideal": _or_none(self.ratio, 4),
            "waits": rounded(self.waits),
            "starts": {host: list(priorities) for host, priorities in self.starts.items()},
            "lanes": {lane.lane: lane.as_record() for lane in self.lanes},
            "facts": dict(self.facts),
            "checks": [check.as_record() for check in self.checks],
        }


def rounded(waits: Mapping[str, float]) -> dict[str, float]:
    return {reason: round(seconds, 2) for reason, seconds in waits.items()}


def _or_none(number: float | None, digits: int = 2) -> float | None:
    return None if number is None else round(number, digits)
