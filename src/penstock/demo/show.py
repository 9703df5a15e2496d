"""What the demo tells people after each scene and at the end. What moves is in live.py and plain.py."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.compare.workloads import LANES
from penstock.demo.figures import Check, LaneFigures, Scene
from penstock.demo.stage import CONFIG

_INDENT = "   "
_TOP_REASONS = 3
_WORTH_TELLING_S = 0.5


class Screen(Console):
    """A console that says so when nobody reads it any more, instead of ending the process."""

    def on_broken_pipe(self) -> None:
        raise  # it is called while the BrokenPipeError is being handled


class Show:
    """The words of a scene; what moves between `begin` and `end` is for others to add."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def begin(self, number: int, title: str, about: str) -> None:
        self.introduce(f"{number}. {title}", about)

    def introduce(self, title: str, about: str) -> None:
        self.console.print()
        self.console.print(Text(title, "bold"))
        self.say(about)

    def end(self, scene: Scene) -> None:
        for host, priorities in scene.starts.items():
            self.say(f"priorities in order of start on {host}: {_grouped(priorities)}")
        if scene.lanes:
            self._figures(_lane_table(scene.lanes))
        for check in scene.checks:
            self._check(check)
        for line in scene.lines:
            self.say(line)

    def summary(self, scenes: Sequence[Scene]) -> None:
        self.console.print()
        self.console.print(Text("What it came to, in seconds of the story", "bold"))
        self._figures(_summary_table(scenes))
        self.console.print(Text("What tasks waited for most, in task-seconds", "bold"))
        for scene in scenes:
            self.say(f"{scene.title}: {_most(scene.waits) or 'nothing'}")

    def verdict(self, scenes: Sequence[Scene], kept: Path | None, page: Path) -> None:
        self.console.print()
        failed = [check for scene in scenes for check in scene.checks if not check.ok]
        total = sum(len(scene.checks) for scene in scenes)
        verdict = f"{len(failed)} of {total} checks FAILED:" if failed else f"All {total} checks hold."
        self.console.print(Text(verdict, "bold red" if failed else "bold green"))
        for check in failed:
            self._check(check)
        self.console.print(Text(f"The third scene as a timeline, for your browser: {page}"), soft_wrap=True)
        self.console.print(Text(f"Next: {_next_step(kept)}"), soft_wrap=True)

    def close(self) -> None:
        """Leave the screen as it should be left, wherever the demo stands."""

    def say(self, words: str) -> None:
        self.console.print(Text(self._wrapped(words, _INDENT)))

    def _figures(self, table: Table) -> None:
        self.console.print(Padding(table, (0, 0, 0, len(_INDENT)), expand=False))

    def _check(self, check: Check) -> None:
        words = check.what if not check.detail else f"{check.what}: {check.detail}"
        mark = "ok " if check.ok else "NO "
        told = Text(self._wrapped(words, _INDENT + mark, _INDENT + " " * len(mark)))
        told.stylize("green" if check.ok else "bold red", len(_INDENT), len(_INDENT + mark))
        self.console.print(told)

    def _wrapped(self, words: str, first: str, rest: str | None = None) -> str:
        return textwrap.fill(
            words,
            max(40, self.console.width),
            initial_indent=first,
            subsequent_indent=first if rest is None else rest,
            break_on_hyphens=False,
        )


def _grouped(priorities: Sequence[int]) -> str:
    """0 0 1 1 → "00 11": a break wherever the number changes."""
    shown = ""
    for before, priority in zip([None, *priorities], priorities, strict=False):
        shown += f"{'' if before in (None, priority) else ' '}{priority}"
    return shown


def _most(waits: Mapping[str, float], separator: str = ", ") -> str:
    told = [f"{reason} {seconds:.0f}" for reason, seconds in waits.items() if seconds >= _WORTH_TELLING_S]
    return separator.join(told[:_TOP_REASONS])


def _plain_table(first: str, *others: str) -> Table:
    """Figures under their heads; the first column is words."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="default")
    table.add_column(first, no_wrap=True)
    for head in others:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _lane_table(lanes: Sequence[LaneFigures]) -> Table:
    table = _plain_table("family", "tasks", "first start", "last start", "at once")
    table.add_column("waited for, task-seconds")
    for lane in lanes:
        table.add_row(
            lane.lane,
            str(lane.tasks),
            f"{lane.first_start_s:.1f} s",
            f"{lane.last_start_s:.1f} s",
            f"{lane.peak} of {lane.limit}",
            _most(lane.waits, "\n"),
        )
    return table


def _summary_table(scenes: Sequence[Scene]) -> Table:
    table = _plain_table("scene", "tasks", "legacy", "Penstock", "ideal", "to ideal")
    for scene in scenes:
        table.add_row(
            scene.title,
            str(scene.tasks),
            _seconds(scene.legacy_s),
            _seconds(scene.penstock_s),
            _seconds(scene.ideal_s),
            "-" if scene.ratio is None else f"{scene.ratio:.3f} x",
        )
    return table


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"


def _next_step(kept: Path | None) -> str:
    if kept is None:
        return "`penstock demo --keep DIR` keeps the stores; docs/quickstart.md leads to hosts of your own."
    return f"penstock why gptr-22 --config {shlex.quote(str(kept / LANES.name / CONFIG))}"
