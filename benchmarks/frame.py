"""How benchmarks are declared, run and shown: one topic at a time, its contestants in alternation, medians.

A *topic* is one question ("how fast is a full queue drained?"). Its contestants are ours, the peers, and the
limit of the machine. Every measurement runs in a process of its own with a fresh folder, so that none pays
for another's memory, threads or cache.

    @benchmark("drain", what="drain of a full queue, durable", unit="tasks/s",
               goal=at_least(15_000), against={"huey": at_least(5)})
    def ours(bench: Bench) -> float: ...

    @reference("drain", "huey", what=..., unit="tasks/s")
    def huey_drain(bench: Bench) -> float: ...
"""

from __future__ import annotations

import json
import os
import stat
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

OURS = "penstock"


class CannotRun(Exception):
    """This contestant cannot run here; the message says why."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a measurement is given: its own empty folder, and whether the answer may be rough.

    What it notes is shown below the table.
    """

    folder: Path
    quick: bool = False
    notes: list[str] = field(default_factory=list)

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full


Measure: TypeAlias = Callable[[Bench], float]
# What all contestants share, such as a server, in a folder: variables of their environment that say where it is.
Around: TypeAlias = Callable[[Path], AbstractContextManager[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a figure, or on the ratio of ours to a reference."""

    bound: float
    at_least: bool

    def met(self, figure: float) -> bool:
        return figure >= self.bound if self.at_least else figure <= self.bound

    def told(self, suffix: str = "") -> str:
        return f"{'≥' if self.at_least else '≤'} {number(self.bound)}{suffix}"


def at_least(bound: float) -> Goal:
    return Goal(bound, at_least=True)


def at_most(bound: float) -> Goal:
    return Goal(bound, at_least=False)


@dataclass(slots=True)
class Topic:
    """One question, and who answers it. `goal` is on our figure, `against` on ours ÷ theirs.

    What is the same every time is measured once.
    """

    name: str
    what: str
    unit: str
    goal: Goal | None = None
    against: Mapping[str, Goal] = field(default_factory=dict)
    contestants: dict[str, Measure] = field(default_factory=dict)
    once: bool = False
    timeout_s: float = 600.0
    around: Around | None = None


TOPICS: dict[str, Topic] = {}


def _topic(name: str, what: str, unit: str) -> Topic:
    topic = TOPICS.setdefault(name, Topic(name, what, unit))
    if topic.unit != unit:
        raise ValueError(f"{name}: one contestant measures {topic.unit}, another {unit}")
    return topic


def benchmark(
    name: str,
    *,
    what: str,
    unit: str,
    goal: Goal | None = None,
    against: Mapping[str, Goal] | None = None,
    once: bool = False,
    timeout_s: float = 600.0,
    around: Around | None = None,
) -> Callable[[Measure], Measure]:
    """Ours. Its words describe the topic, whoever was registered first."""

    def register(measure: Measure) -> Measure:
        topic = _topic(name, what, unit)
        topic.what, topic.goal, topic.against, topic.once = what, goal, dict(against or {}), once
        topic.timeout_s, topic.around = timeout_s, around
        topic.contestants[OURS] = measure
        return measure

    return register


def reference(name: str, who: str, *, what: str, unit: str) -> Callable[[Measure], Measure]:
    """A peer, or the limit of the machine."""

    def register(measure: Measure) -> Measure:
        _topic(name, what, unit).contestants[who] = measure
        return measure

    return register


# ---- running


@dataclass(frozen=True, slots=True)
class Figures:
    """What one contestant reached, once per round; or why it cannot run."""

    topic: str
    who: str
    figures: tuple[float, ...] = ()
    cannot: str = ""
    notes: str = ""  # of the last round

    @property
    def median(self) -> float | None:
        return statistics.median(self.figures) if self.figures else None


def run_topic(
    topic: Topic, *, rounds: int, quick: bool, folder: Path, tell: Callable[[str], None]
) -> list[Figures]:
    """Every contestant once, then every one again: a slow spell of the machine hits them all."""
    reached: dict[str, list[float]] = {who: [] for who in topic.contestants}
    cannot: dict[str, str] = {}
    notes: dict[str, str] = {}
    rounds = 1 if topic.once else rounds
    try:
        with topic.around(folder) if topic.around else nullcontext({}) as shared:
            for turn in range(rounds):
                for who in topic.contestants:
                    if who in cannot:
                        continue
                    tell(f"{topic.name}: {who}, {turn + 1} of {rounds}")
                    try:
                        figure, notes[who] = measure_apart(
                            topic, who, quick=quick, folder=folder, shared=shared
                        )
                        reached[who].append(figure)
                    except CannotRun as reason:
                        cannot[who] = str(reason)
    except CannotRun as reason:  # what all of them need
        cannot = dict.fromkeys(topic.contestants, str(reason))
    return [
        Figures(topic.name, who, tuple(reached[who]), cannot.get(who, ""), notes.get(who, ""))
        for who in topic.contestants
    ]


def measure_apart(
    topic: Topic, who: str, *, quick: bool, folder: Path, shared: Mapping[str, str]
) -> tuple[float, str]:
    """One measurement in a process of its own, which ends with this one: its figure and its notes."""
    command = [sys.executable, "-m", "benchmarks", "--one", topic.name, who, "--folder", str(folder)]
    theirs, held = os.pipe()
    try:
        ended = subprocess.run(
            command + (["--quick"] if quick else []),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=topic.timeout_s,
            check=False,
            env={**os.environ, **shared},
        )
    except subprocess.TimeoutExpired:
        raise CannotRun(f"took over {topic.timeout_s:.0f} s") from None
    finally:
        os.close(theirs)
        os.close(held)
    try:
        answer = json.loads(ended.stdout.splitlines()[-1])
        if "cannot" in answer:
            raise CannotRun(answer["cannot"])
        return float(answer["figure"]), str(answer["notes"])
    except (IndexError, KeyError, TypeError, ValueError):
        last = ended.stderr.strip().splitlines()[-1:] or [f"exit status {ended.returncode}"]
        raise CannotRun(f"failed: {last[0]}") from None


def measure_here(topic: str, who: str, *, quick: bool, folder: Path) -> None:
    """The other side of `measure_apart`: prints the figure as the last line."""
    end_with_parent()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=folder, ignore_cleanup_errors=True) as own:
        try:
            bench = Bench(Path(own), quick)
            figure = TOPICS[topic].contestants[who](bench)
            answer: dict[str, object] = {"figure": figure, "notes": "\n".join(bench.notes)}
        except CannotRun as reason:
            answer = {"cannot": str(reason)}
        print(json.dumps(answer), flush=True)


def end_with_parent() -> None:
    """End this process once nobody holds the other end of its standard input, where that is a pipe."""
    if not stat.S_ISFIFO(os.fstat(0).st_mode):
        return

    def watch() -> None:
        while os.read(0, 1024):
            continue
        os._exit(1)

    threading.Thread(target=watch, name="ends with its parent", daemon=True).start()


# ---- showing


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a figure, what it is beside, and whether the goal is met."""

    what: str
    figure: str
    unit: str
    beside: str = ""
    ratio: str = ""
    goal: str = ""
    met: str = ""

    def cells(self) -> tuple[str, ...]:
        return (self.what, self.figure, self.unit, self.beside, self.ratio, self.goal, self.met)


HEAD = Row("what", "figure", "unit", "peer/limit", "ratio", "goal", "met?")


def rows(topic: Topic, reached: Iterable[Figures]) -> list[Row]:
    """Our figure with its goal, then once per reference with the ratio ours ÷ theirs.

    Where there is no figure of ours, the references stand alone.
    """
    by_who = {figures.who: figures for figures in reached}
    ours = by_who.pop(OURS, None)
    if ours is None:
        return [_alone(topic, figures) for figures in by_who.values()]
    if ours.median is None:
        failed = Row(topic.what, "cannot run", topic.unit, ours.cannot, met=yes(False))
        return [failed, *(_alone(topic, figures) for figures in by_who.values())]
    table = [_beside(topic, ours.median, figures) for figures in by_who.values()]
    if topic.goal is not None or not table:
        goal, met = (topic.goal.told(), yes(topic.goal.met(ours.median))) if topic.goal else ("", "")
        table.insert(0, Row(topic.what, number(ours.median), topic.unit, goal=goal, met=met))
    return table


def _beside(topic: Topic, ours: float, theirs: Figures) -> Row:
    goal = topic.against.get(theirs.who)
    told = goal.told("×") if goal else ""
    row = Row(topic.what, number(ours), topic.unit, f"{theirs.who}: {theirs.cannot}", goal=told)
    if theirs.median is None:
        return row
    if not theirs.median:  # nothing broken, for one: no ratio can be told
        return replace(row, beside=f"{theirs.who} {number(theirs.median)}")
    share = ours / theirs.median
    met = yes(goal.met(share)) if goal else ""
    return replace(row, beside=f"{theirs.who} {number(theirs.median)}", ratio=f"{share:.2f}×", met=met)


def _alone(topic: Topic, figures: Figures) -> Row:
    what = f"{topic.what}: {figures.who}"
    if figures.median is None:
        return Row(what, "cannot run", topic.unit, figures.cannot)
    return Row(what, number(figures.median), topic.unit)


def yes(met: bool) -> str:
    return "yes" if met else "NO"


def number(figure: float) -> str:
    """Three digits that count, and no more."""
    if figure == 0:
        return "0"
    if abs(figure) >= 1000:
        return f"{figure:,.0f}"
    return f"{figure:.3g}"


def as_text(table: Sequence[Row]) -> str:
    lines = [row.cells() for row in (HEAD, *table)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    right = {1, 4}  # figures and ratios
    told = [
        "  ".join(
            c.rjust(w) if i in right else c.ljust(w)
            for i, (c, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    told.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(line.rstrip() for line in told)
