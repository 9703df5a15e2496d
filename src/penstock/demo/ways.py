"""A short act of the demo: `penstock compare` on six tasks, so that the other ways are seen beside Penstock."""

from __future__ import annotations

from pathlib import Path

from penstock.compare.contenders import CONTENDERS, LEGACY, OURS
from penstock.compare.judge import Figures
from penstock.compare.match import Comparison, Options, compare
from penstock.compare.stories import STORIES
from penstock.demo.figures import Check, Scene

NAME = "ways"
TITLE = "Five ways to do it"
ABOUT = (
    "The six tasks again, as real calls to model servers on loopback, each way in a process of its own. A pool as "
    "large as the slots is as fast here; `penstock compare` shows where it is not."
)
_STORY = STORIES["six"]
_MOST_SCALE = 0.011  # real seconds for one of the story: no way's own milliseconds hide what it shows


async def play_ways(folder: Path, scale: float = _MOST_SCALE) -> Scene:
    """All contenders, on the smallest of the tables. `scale` is that of the other scenes."""
    options = Options([_STORY], list(CONTENDERS), min(scale, _MOST_SCALE), folder / NAME)
    [comparison] = await compare(options, lambda story, contender: None)
    return scene_of(comparison)


def scene_of(comparison: Comparison) -> Scene:
    legacy, ours = comparison.of(LEGACY), comparison.of(OURS)
    return Scene(
        NAME,
        TITLE,
        len(comparison.story.workload.tasks),
        ours.makespan_s if ours else 0.0,
        ideal_s=comparison.story.ideal_s,
        legacy_s=legacy.makespan_s if legacy else None,
        checks=_checks(comparison),
        facts=comparison.as_record(),
        lines=tuple(_table(comparison)),
    )


def _checks(comparison: Comparison) -> tuple[Check, ...]:
    legacy, ours = comparison.of(LEGACY), comparison.of(OURS)
    broken = [figures.error for figures in comparison.figures if figures.error is not None]
    undone = [CONTENDERS[f.contender] for f in comparison.figures if not f.all_done or f.over_full]
    what = "every way did all tasks, and gave no host more than its slots"
    checks = [Check(what, comparison.ok, "; ".join(broken or undone))]
    if legacy and ours:
        checks.append(
            Check(
                "Penstock is sooner through than one thread per kind",
                ours.makespan_s < legacy.makespan_s,
                f"{ours.makespan_s:.1f} s, not {legacy.makespan_s:.1f} s",
            )
        )
    return tuple(checks)


def _table(comparison: Comparison) -> list[str]:
    head = f"{'way':<22}{'makespan':>9}{'to ideal':>10}{'memory':>9}{'threads':>9}"
    return [head, *(_line(one) for one in comparison.figures if one.error is None)]


def _line(one: Figures) -> str:
    return (
        f"{CONTENDERS[one.contender]:<22}{one.makespan_s:>7.1f} s{one.to_ideal:>8.2f} x"
        f"{one.peak_memory_mb:>6.0f} MB{one.threads:>9}"
    )
