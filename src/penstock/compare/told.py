"""The figures of a comparison as people read them: the same columns on the terminal and on the page."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.compare.contenders import CONTENDERS
from penstock.compare.judge import Figures
from penstock.compare.match import Comparison

# A column that begins with ">" holds numbers. What each means stands in docs/how-to/compare.md.
COLUMNS = {
    "way": "Who did the work, in a process of its own",
    ">makespan": "From the start until the last answer was in hand, in seconds of the workload",
    ">to ideal": "The makespan over the least that any way could need",
    ">slot use": "Share of all slots' time that went into answers",
    ">memory": "The most resident memory at once, all its processes together",
    ">processes": "The most at once",
    ">threads": "The most at once, all its processes together",
    ">switches": "Context switches of all its processes while it ran",
    ">core": "Time of a core that all its processes used while it ran, in real seconds",
    ">passed over": "Starts of a task while a more urgent one waited that the same host could have taken",
    ">over-full": "The most calls that a host had at once beyond its slots",
    ">in server": "The most calls that waited inside a server at once, where no dispatcher sees them",
    ">done": "Tasks with their own right answer",
}
FATES = {
    "way": "Who did the work",
    ">done": "Tasks with their own right answer",
    ">failed": "Tasks that were given up",
    ">lost": "Tasks of which nothing was heard",
    ">again": "Tasks that were done, though not at the first try",
    ">in vain": "Calls that failed",
    "noticed by": "Who knew that the host was down",
}
_EACH_TASK = "each task for itself"


def columns() -> Sequence[str]:
    return tuple(COLUMNS)


def rows(comparison: Comparison) -> list[list[str]]:
    total = len(comparison.story.workload.tasks)
    return [_row(figures, total) for figures in comparison.figures]


def _row(figures: Figures, total: int) -> list[str]:
    name = CONTENDERS[figures.contender]
    if figures.error is not None:
        return [name, *("-" for _ in range(len(COLUMNS) - 1))]
    return [
        name,
        f"{figures.makespan_s:.1f} s",
        f"{figures.to_ideal:.2f} ×",
        f"{figures.slot_use * 100:.0f} %",
        f"{figures.peak_memory_mb:.0f} MB",
        str(figures.processes),
        str(figures.threads),
        f"{figures.switches:,}",
        f"{figures.cpu_s:.2f} s",
        str(figures.inversions),
        str(figures.over_full),
        str(figures.inside),
        f"{figures.done} of {total}",
    ]


def fates(comparison: Comparison) -> tuple[Sequence[str], list[list[str]]]:
    """What became of the tasks when a host died."""
    return tuple(FATES), [
        [
            CONTENDERS[f.contender],
            str(f.done),
            str(len(f.failed)),
            str(len(f.lost)),
            str(f.retried),
            str(f.failed_calls),
            f.noticed or (_EACH_TASK if f.failed_calls else "nobody"),
        ]
        for f in comparison.figures
        if f.error is None
    ]
