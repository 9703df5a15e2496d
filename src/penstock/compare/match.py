"""All chosen stories through all chosen contenders, one after the other, and what came of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.compare.arena import play
from penstock.compare.contenders import CONTENDERS, LEGACY, OURS
from penstock.compare.contenders.computing import rounds_per_s
from penstock.compare.judge import Figures
from penstock.compare.lessons import CLOSE, lessons
from penstock.compare.machine import Machine, seen
from penstock.compare.stories import Story

_IDEAL_LASTS_S = 1.5  # real seconds, unless a scale is given


@dataclass(frozen=True, slots=True)
class Options:
    stories: Sequence[Story]
    contenders: Sequence[str]
    scale: float | None  # real seconds that one of a story lasts; None: as suits each
    folder: Path


@dataclass(frozen=True, slots=True)
class Comparison:
    """One story, and what each contender made of it."""

    story: Story
    scale: float
    figures: tuple[Figures, ...]
    machine: Machine = field(default_factory=seen)

    def of(self, contender: str) -> Figures | None:
        return next((f for f in self.figures if f.contender == contender and f.error is None), None)

    @property
    def ok(self) -> bool:
        """Nobody broke; everybody did everything, but for those whose host died and who are not ours.

        A host that was to die and did not has proved nothing.
        """
        must = [f for f in self.figures if self.story.death is None or f.contender == OURS]
        return (
            all(f.error is None for f in self.figures)
            and all(f.all_done and not f.over_full for f in must)
            and not self.spared
        )

    @property
    def spared(self) -> list[Figures]:
        """Those whose host was to die, and who were through before."""
        return [f for f in self.figures if self.story.death is not None and f.error is None and not f.down]

    @property
    def shows(self) -> str:
        """What this run showed of what the story is there to show."""
        return lessons(self.story, self.figures, self.machine)

    @property
    def verdict(self) -> str:
        """Who was as good as the best, and by how much the others were not; in words, from the figures."""
        through = [f for f in self.figures if f.all_done]
        sentences = []
        if through:
            best = min(f.makespan_s for f in through)
            near = [CONTENDERS[f.contender] for f in through if f.makespan_s <= best * CLOSE]
            far = [f for f in through if f.makespan_s > best * CLOSE]
            sentences.append(f"All done soonest: {_listed(near)}.")
            if far:
                told = [f"{CONTENDERS[f.contender]} ({f.makespan_s / best:.2f} × as long)" for f in far]
                sentences.append(f"Later: {_listed(told)}.")
        passed = [f"{CONTENDERS[f.contender]} {f.inversions}" for f in self.figures if f.inversions]
        if passed:
            sentences.append(f"Starts that passed a more urgent task: {_listed(passed)}.")
        short = [f for f in self.figures if f.error is None and not f.all_done]
        if short:
            told = [f"{CONTENDERS[f.contender]} {len(f.failed) + len(f.lost)}" for f in short]
            sentences.append(f"Not done: {_listed(told)} of {len(self.story.workload.tasks)} tasks.")
        if self.story.death is not None and self.spared:
            told = [CONTENDERS[f.contender] for f in self.spared]
            sentences.append(
                f"{self.story.death.host} did not die before they were through: {_listed(told)}."
            )
        broken = [f"{CONTENDERS[f.contender]} ({f.error})" for f in self.figures if f.error is not None]
        if broken:
            sentences.append(f"Broken: {_listed(broken)}.")
        return " ".join(sentences)

    @property
    def claimed(self) -> str:
        """C10's own figures beside ours, where it has some and both ways ran."""
        legacy, ours = self.of(LEGACY), self.of(OURS)
        if self.story.claim is None or legacy is None or ours is None:
            return ""
        before, after = self.story.claim
        return (
            f"The home lab's table: {before:g} s → {after:g} s, {before / after:.2f} ×. "
            f"Here: {legacy.makespan_s:.0f} s → {ours.makespan_s:.0f} s, "
            f"{legacy.makespan_s / ours.makespan_s:.2f} ×."
        )

    def as_record(self) -> dict[str, Any]:
        story = self.story
        return {
            "name": story.name,
            "title": story.workload.title,
            "tasks": len(story.workload.tasks),
            "ideal_s": story.ideal_s,
            "second_lasts_s": self.scale,
            "shows": self.shows,
            "verdict": self.verdict,
            "claimed": self.claimed,
            "ok": self.ok,
            "contenders": [figures.as_record() for figures in self.figures],
        }


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)


def scale_of(story: Story, given: float | None) -> float:
    return given if given is not None else min(1.0, _IDEAL_LASTS_S / story.ideal_s)


async def compare(options: Options, begins: Callable[[Story, str], None]) -> list[Comparison]:
    """`begins` is told what is played next."""
    per_s = rounds_per_s() if any(story.cpu_bound for story in options.stories) else 0.0
    found = []
    machine = seen()
    for story in options.stories:
        scale = scale_of(story, options.scale)
        figures = []
        for contender in options.contenders:
            begins(story, contender)
            folder = options.folder / story.name / contender
            folder.mkdir(parents=True)
            figures.append(await play(story, contender, scale, per_s, folder))
        found.append(Comparison(story, scale, tuple(figures), machine))
    return found
