"""A run as it was diagnosed, in the words that every place shows it in: the terminal, the board, JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from penstock.config.council_steps import called
from penstock.diagnosis.finders import FINDERS, find, unheard
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.timeline.axis import seconds
from penstock.diagnosis.words import count_unwell, percent
from penstock.model import Task

_MOST_TASKS = 6
_MOST_REASONS = 3


class Untold(NamedTuple):
    """What a log should have told."""

    without: str  # what cannot be seen without it
    remedy: str  # how it can be told


WANTED: Mapping[str, Untold] = {
    "queued": Untold(
        "when tasks were queued, so waits are hardly seen", "name the column with --map queued=COLUMN"
    ),
    "host": Untold(
        "on which host tasks ran, so hosts are not told apart", "name the column with --map host=COLUMN"
    ),
    "state": Untold("how tasks ended, so failures are not seen", "name the column with --map state=COLUMN"),
    "slots": Untold(
        "how many tasks its hosts may run at once, so that they could have run more is hardly seen",
        "tell it with --slots HOST=N, or a config that has its hosts",
    ),
}


@dataclass(frozen=True)
class Diagnosis:
    recording: Recording
    findings: Sequence[Finding]  # the greatest gain first

    @classmethod
    def of(cls, recording: Recording, told: Callable[[str], None] = unheard) -> Diagnosis:
        """`told` hears what is looked for, and may raise to leave it off."""
        return cls(recording, find(recording, told))

    @property
    def unwell(self) -> dict[str, int]:
        return count_unwell(self.recording.tasks)

    @property
    def untold(self) -> list[str]:
        told = {*self.recording.told, *(("slots",) if self.recording.plant is not None else ())}
        if "host" not in told:
            told.add("slots")  # there is no host to tell them of
        return [column for column in WANTED if column not in told]

    @property
    def notes(self) -> list[str]:
        """What the log does not tell, in words."""
        return [
            f"the log does not tell {WANTED[column].without}; {WANTED[column].remedy}"
            for column in self.untold
        ]

    def gain(self, finding: Finding) -> str:
        if finding.is_endless:
            return f"the run does not end while this is so; it cost {seconds(finding.gain_s)} so far"
        if finding.gain_s > 0:
            return f"the run would end about {seconds(finding.gain_s)} sooner"
        return "the run would take as long with its remedy" if finding.is_played else ""

    def evidence(self, finding: Finding) -> list[str]:
        """In words, one fact each."""
        evidence = finding.evidence
        parts = []
        if evidence.lost_s > 0:
            parts.append(f"{seconds(evidence.lost_s)} lost by all tasks together")
        parts += evidence.facts
        if evidence.tasks:
            parts.append(f"tasks: {_some([self.names.get(task, task) for task in evidence.tasks])}")
        return parts

    @property
    def waited(self) -> str:
        """What tasks of a run of ours waited for most."""
        spent: dict[str, float] = defaultdict(float)
        for waits in self.recording.waits.values():
            for wait in waits:
                spent[wait.reason] += wait.seconds
        total = sum(spent.values())
        most = sorted(spent.items(), key=lambda item: (-item[1], item[0]))[:_MOST_REASONS]
        return ", ".join(f"{reason} {percent(s / total)}" for reason, s in most if s > 0) if total else ""

    def as_record(self) -> dict[str, Any]:
        return {
            "run": self.recording.name,
            "tasks": len(self.recording.tasks),
            **self.unwell,
            "begin": round(self.recording.begin, 3),
            "makespan_s": round(self.recording.makespan_s, 3),
            "findings": [finding.as_record() for finding in self.findings],
            "looked_for": list(FINDERS),
            "untold": self.untold,
            "slots_from": self.recording.slots_from,
        }

    @cached_property
    def names(self) -> Mapping[str, str]:
        return {record.task.id: _name(record.task) for record in self.recording.tasks}


def _name(task: Task) -> str:
    """Of a step of a question also who was asked."""
    name = called(task)
    return name if name in (task.id, task.name) else f"{name} {task.id}"


def _some(names: Sequence[str]) -> str:
    some = ", ".join(names[:_MOST_TASKS])
    return some if len(names) <= _MOST_TASKS else f"{some}, … ({len(names)})"
