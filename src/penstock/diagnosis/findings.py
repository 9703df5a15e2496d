"""What `diagnose` can say: a named fault with its evidence, its cause, the remedy and what that would gain."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.diagnosis.steps import Span
from penstock.diagnosis.whatif.changes import Change


class Severity(StrEnum):
    """By the share of the run's time that was lost to it."""

    HIGH = "high"  # a fifth or more
    MEDIUM = "medium"  # a twentieth or more
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the fault can be seen. Seconds are those that all tasks together lost."""

    tasks: tuple[str, ...]  # the most telling first
    lost_s: float
    hosts: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()  # figures in words, one each: "3 slots, never more than 1 busy"
    spans: tuple[Span, ...] = ()  # when it was so, by the clock of the recording; of many the longest

    def as_record(self) -> dict[str, Any]:
        return {
            "tasks": list(self.tasks),
            "lost_s": round(self.lost_s, 3),
            "hosts": list(self.hosts),
            "lanes": list(self.lanes),
            "gates": list(self.gates),
            "facts": list(self.facts),
            "spans": [[round(start, 3), round(end, 3)] for start, end in self.spans],
        }


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    severity: Severity
    cause: str  # one sentence
    evidence: Evidence
    remedy: str  # a line of penstock.toml where one helps
    gain_s: float  # by how much the run would have ended sooner, about
    # The run goes on, and does not end while this is so: the gain is what it cost so far.
    is_endless: bool = False
    change: Change | None = None  # the remedy as `whatif` takes it
    is_played: bool = False  # then the gain is what `whatif` answers for it

    def as_record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "severity": str(self.severity),
            "cause": self.cause,
            "evidence": self.evidence.as_record(),
            "remedy": self.remedy,
            "gain_s": round(self.gain_s, 3),
            "endless": self.is_endless,
            "change": None if self.change is None else self.change.change_as_record(),
        }


def severity_of(gain_s: float, makespan_s: float) -> Severity:
    share = gain_s / makespan_s if makespan_s > 0 else 0.0
    return Severity.HIGH if share >= 0.2 else Severity.MEDIUM if share >= 0.05 else Severity.LOW
