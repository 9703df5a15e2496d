"""What `council ingest` shows while it works: a bar on a terminal, a line a second elsewhere, or nothing."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.cli.render import console, counted, note, seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.council.library.ingested import Progress

_BAR_WIDTH = 30
_RATE_OVER_S = 60.0
_LINES_SHARE = 0.1  # of the time so far, that passes between two lines
_SLOW_S = 5.0  # of waiting, before it is said what for


class Display(Protocol):
    every_s: float  # how often it wants to be updated

    def open(self, command: Callable[[str], str]) -> None: ...

    def update(self, progress: Progress, now: float) -> None: ...

    def tell(self, text: str) -> None: ...

    def close(self) -> None: ...


def choose(*, quiet: bool) -> Display:
    """On stderr, for stdout is for what was done."""
    if quiet:
        return Silent()
    can_move = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return Bar() if can_move else Lines()


class Pace:
    """How fast it goes of late, and how long the rest takes at that."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()  # when, passages, bytes of files

    def add(self, progress: Progress, now: float) -> None:
        if progress.phase != "working":
            return
        self._seen.append((now, progress.passages, progress.bytes_done))
        while len(self._seen) > 2 and now - self._seen[1][0] > _RATE_OVER_S:
            self._seen.popleft()

    def passages_per_s(self) -> float | None:
        spent = self._spent()
        return None if spent is None else (self._seen[-1][1] - self._seen[0][1]) / spent

    def left_s(self, progress: Progress) -> float | None:
        """None while that would be a guess."""
        spent = self._spent()
        done = self._seen[-1][2] - self._seen[0][2] if self._seen else 0
        if spent is None or done <= 0 or not self.passages_per_s():  # files that failed tell nothing
            return None
        return max(0, progress.bytes - progress.bytes_done) * spent / done

    def _spent(self) -> float | None:
        spent = self._seen[-1][0] - self._seen[0][0] if self._seen else 0.0
        return spent if spent >= 1 else None


def told(progress: Progress, pace: Pace) -> str:
    """All of it in a line."""
    if progress.phase == "looking":
        return "looking at the files"
    if progress.phase == "waiting":
        return "waiting for what an earlier ingest left in the queue"
    if progress.phase == "asking":
        return "asking the library what it holds"
    failed = f", {progress.failed} failed" if progress.failed else ""
    parts = [
        f"{progress.files_done} of {counted(progress.files, 'file')}{failed}",
        counted(progress.passages, "passage"),
    ]
    if rate := pace.passages_per_s():
        parts.append(f"{rate:.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
    left_s = pace.left_s(progress)
    if left_s is not None and left_s >= 1:
        parts.append(f"about {seconds(left_s)} left")
    return " · ".join(parts)


class Silent:
    every_s = 1.0

    def open(self, command: Callable[[str], str]) -> None:
        pass

    def update(self, progress: Progress, now: float) -> None:
        pass

    def tell(self, text: str) -> None:
        note(text)

    def close(self) -> None:
        pass


class _Told:
    """What both ways of showing have in common: the pace, and a word on what is waited for too long."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._began = time.time()
        self._command: Callable[[str], str] = "penstock {}".format
        self._asked_at: float | None = None
        self._has_told_why = False

    def open(self, command: Callable[[str], str]) -> None:
        self._began = time.time()
        self._command = command

    def line(self, progress: Progress, now: float) -> str:
        self._pace.add(progress, now)
        return told(progress, self._pace)

    def why(self, progress: Progress, now: float) -> str | None:
        if progress.phase != "asking" or self._has_told_why:
            return None
        self._asked_at = self._asked_at or now
        if now - self._asked_at < _SLOW_S:
            return None
        self._has_told_why = True
        asks = self._command(f"why {progress.run}") if progress.run else self._command("status")
        return f"the library has not answered yet; `{asks}` says what it waits for"


class Lines(_Told):
    every_s = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._last = ""
        self._phase = ""
        self._told_at = 0.0

    def update(self, progress: Progress, now: float) -> None:
        if (why := self.why(progress, now)) is not None:
            self.tell(why)
        line = self.line(progress, now)
        phase = progress.phase
        # A line a second is fine for a minute and too much for an hour.
        is_due = phase != self._phase or now - self._told_at >= _LINES_SHARE * (now - self._began)
        if line != self._last and is_due:
            self._last, self._phase, self._told_at = line, phase, now
            sys.stderr.write(f"{seconds(now - self._began):>7}  {line}\n")
            sys.stderr.flush()

    def tell(self, text: str) -> None:
        note(text)

    def close(self) -> None:
        pass


class Bar(_Told):
    """One line, redrawn in place."""

    every_s = 0.1

    def __init__(self) -> None:
        super().__init__()
        from rich.live import Live

        self._console = console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def open(self, command: Callable[[str], str]) -> None:
        super().open(command)
        self._live.start()

    def update(self, progress: Progress, now: float) -> None:
        if (why := self.why(progress, now)) is not None:
            self.tell(why)
        self._live.update(self._drawn(progress, now), refresh=True)

    def tell(self, text: str) -> None:
        self._console.print(f"penstock: {text}", soft_wrap=True)

    def close(self) -> None:
        self._live.stop()

    def _drawn(self, progress: Progress, now: float) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        line = Text(self.line(progress, now), no_wrap=True, overflow="ellipsis")
        row = Table.grid(padding=(0, 1))
        row.add_column(no_wrap=True)
        row.add_column(no_wrap=True, overflow="ellipsis")
        if progress.phase == "working" and progress.bytes:
            bar = ProgressBar(
                total=progress.bytes,
                completed=progress.bytes_done,
                width=_BAR_WIDTH,
                complete_style="green",
                finished_style="green",
            )
            row.add_row(bar, line)
        else:
            row.add_row(Spinner("dots"), line)
        return row
