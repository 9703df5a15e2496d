"""How right the findings are: what was found of what is there, and what was said that is not so."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.corpus.generate import FAULTS, HEALTHY, Labelled, generate
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.recording import Recording

SEEDS = 50
GOAL = 0.95
PARTS = 32  # so that no core waits long for another

Find = Callable[[Recording], Sequence[Finding]]


@dataclass(slots=True)
class Tally:
    """Of one name: in how many runs it is, was found, was rightly and was wrongly said."""

    name: str
    runs: int = 0
    found: int = 0
    right: int = 0
    wrong: int = 0
    gains: list[float] = field(default_factory=list)  # predicted ÷ true, where the run's end is what was lost
    missed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def recall(self) -> float:
        return self.found / self.runs if self.runs else 1.0

    @property
    def precision(self) -> float:
        said = self.right + self.wrong
        return self.right / said if said else 1.0

    @property
    def gain(self) -> float | None:
        return statistics.median(self.gains) if self.gains else None


@dataclass(slots=True)
class Score:
    by_name: dict[str, Tally]
    healthy: int = 0
    blamed: int = 0  # healthy runs of which anything was said

    @property
    def overall(self) -> Tally:
        everything = Tally("overall")
        for tally in self.by_name.values():
            everything.runs += tally.runs
            everything.found += tally.found
            everything.right += tally.right
            everything.wrong += tally.wrong
            everything.gains += tally.gains
        return everything

    @property
    def least(self) -> float:
        """The worst of all precisions and recalls, each finding's and overall."""
        tallies = [*self.by_name.values(), self.overall]
        return min(min(t.precision, t.recall) for t in tallies)

    def add(self, run: Labelled, findings: Sequence[Finding]) -> None:
        said = {finding.name: finding for finding in reversed(findings)}
        where = f"{run.name} {run.seed}"
        if run.label is None:
            self.healthy += 1
            self.blamed += bool(said)
        else:
            tally = self.by_name[run.label]
            tally.runs += 1
            if run.label in said:
                tally.found += 1
                if run.costs_makespan:
                    tally.gains.append(said[run.label].gain_s / run.gain_s)
            else:
                tally.missed.append(where)
        for name in said:
            tally = self.by_name.setdefault(name, Tally(name))
            if name == run.label or name in run.acceptable:
                tally.right += 1
            else:
                tally.wrong += 1
                tally.errors.append(where)

    def merge(self, other: Score) -> None:
        self.healthy += other.healthy
        self.blamed += other.blamed
        for name, theirs in other.by_name.items():
            mine = self.by_name.setdefault(name, Tally(name))
            mine.runs += theirs.runs
            mine.found += theirs.found
            mine.right += theirs.right
            mine.wrong += theirs.wrong
            mine.gains += theirs.gains
            mine.missed = sorted([*mine.missed, *theirs.missed])
            mine.errors = sorted([*mine.errors, *theirs.errors])

    def as_record(self) -> dict[str, Any]:
        return {
            "healthy": {"runs": self.healthy, "blamed": self.blamed},
            "findings": [
                {
                    "name": t.name,
                    "runs": t.runs,
                    "found": t.found,
                    "recall": round(t.recall, 4),
                    "right": t.right,
                    "wrong": t.wrong,
                    "precision": round(t.precision, 4),
                    "gain_ratio": None if t.gain is None else round(t.gain, 3),
                    "missed": t.missed,
                    "errors": t.errors,
                }
                for t in [*self.by_name.values(), self.overall]
            ],
        }

    def as_text(self) -> str:
        head = (
            "finding",
            "runs",
            "found",
            "recall",
            "said",
            "wrong",
            "precision",
            "gain ÷ true",
            "goal met?",
        )
        lines: list[tuple[str, ...]] = [head]
        for t in [*self.by_name.values(), self.overall]:
            met = "yes" if min(t.recall, t.precision) >= GOAL else "NO"
            gain = "" if t.gain is None else f"{t.gain:.2f}"
            figures = (t.runs, t.found, f"{t.recall:.3f}", t.right + t.wrong, t.wrong, f"{t.precision:.3f}")
            lines.append((t.name, *map(str, figures), gain, met))
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        told = [
            "  ".join(
                c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        told.append(f"healthy runs with any finding: {self.blamed} of {self.healthy}")
        return "\n".join(told)


def runs(names: Iterable[str] = (), seeds: int = SEEDS, first: int = 0) -> Iterable[tuple[str, int]]:
    """Every fault with so many seeds, and as many healthy runs in all; or only what is named."""
    chosen = list(names)
    for name in chosen or FAULTS:
        for seed in range(first, first + seeds):
            yield name, seed
    if not chosen:
        healthy = list(HEALTHY)
        for i in range(len(FAULTS) * seeds):
            yield healthy[i % len(healthy)], first + i // len(healthy)


def score(find: Find, names: Iterable[str] = (), seeds: int = SEEDS, first: int = 0) -> Score:
    """On all cores: `find` must be a function that other processes can import."""
    wanted = list(runs(names, seeds, first))
    parts = [wanted[i::PARTS] for i in range(PARTS)]
    result = Score({name: Tally(name) for name in FAULTS})
    with ProcessPoolExecutor() as pool:
        for part in pool.map(partial(score_part, find), parts):
            result.merge(part)
    return result


def score_part(find: Find, wanted: Iterable[tuple[str, int]]) -> Score:
    result = Score({name: Tally(name) for name in FAULTS})
    for name, seed in wanted:
        run = generate(name, seed)
        result.add(run, find(run.recording))
    return result
