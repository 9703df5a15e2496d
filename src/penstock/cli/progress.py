"""What `run` shows while it works: a live board on a terminal, a line a second elsewhere, or nothing."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.cli.render import console, note, one_line, seconds
from penstock.diagnosis.words import name_unwell
from penstock.lifecycle import UNWELL
from penstock.model import Host, State, TaskRecord

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from penstock.cli.host_watch import Outage
    from penstock.cli.logs import Log
    from penstock.cli.tally import LaneCount, Tally

_BAR_WIDTH = 30
_OTHER_LINES = 7  # of the board: all but its lanes and hosts
_ERROR_WIDTH = 200


class Display(Protocol):
    every_s: float | None  # how often it wants to be updated

    def open(self) -> None: ...

    def update(self, tally: Tally, now: float) -> None: ...

    def tell(self, text: str) -> None: ...

    def has_told(self, record: TaskRecord) -> bool:
        """Whether that task's failure can be read already."""

    def close(self) -> None: ...


def choose(run: str, hosts: Sequence[Host], *, quiet: bool, records_on_terminal: bool) -> Display:
    """On stderr, for stdout is for results. Results on the same screen are progress enough."""
    if quiet or records_on_terminal:
        return Silent()
    can_move = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return Board(run, hosts) if can_move else Lines()


def failure_line(record: TaskRecord) -> str:
    where = f" on {record.host}" if record.host else ""
    why = one_line(record.error or "no reason was given", _ERROR_WIDTH)
    return f"{record.state} {record.task.name or record.task.id} {record.task.kind}{where}: {why}"


class Silent:
    every_s: float | None = None

    def open(self) -> None:
        pass

    def update(self, tally: Tally, now: float) -> None:
        pass

    def tell(self, text: str) -> None:
        note(text)

    def has_told(self, record: TaskRecord) -> bool:
        return False

    def close(self) -> None:
        pass


class Logged:
    """Lines of a log instead: what a dispatcher of ours does is told there, task by task."""

    every_s: float | None = None

    def __init__(self, log: Log) -> None:
        self._log = log

    def open(self) -> None:
        pass

    def update(self, tally: Tally, now: float) -> None:
        pass

    def tell(self, text: str) -> None:
        self._log.line("note", detail=text)

    def has_told(self, record: TaskRecord) -> bool:
        return self._log.failures > 0  # it has lines of tasks at all: a dispatcher of ours runs them

    def close(self) -> None:
        pass


class Lines:
    every_s: float | None = 1.0

    def __init__(self) -> None:
        self._began = time.time()
        self._last = ""

    def open(self) -> None:
        self._began = time.time()

    def update(self, tally: Tally, now: float) -> None:
        counts = _counts(tally)
        if counts != self._last:
            self._last = counts
            sys.stderr.write(f"{seconds(now - self._began):>7}  {counts}\n")
            sys.stderr.flush()

    def tell(self, text: str) -> None:
        note(text)

    def has_told(self, record: TaskRecord) -> bool:
        return False

    def close(self) -> None:
        pass


def _counts(tally: Tally) -> str:
    unwell = name_unwell(tally.unwell)
    ended = f", {unwell}" if unwell else ""
    return f"{tally.done} of {tally.total} done{ended}, {tally.running} running, {tally.queued} queued"


class Board:
    """One bar per lane, one row per host, redrawn in place."""

    every_s: float | None = 0.2

    def __init__(self, run: str, hosts: Sequence[Host]) -> None:
        from rich.live import Live

        self._run = run
        self._hosts = hosts
        self._began = time.time()
        self._console = console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def open(self) -> None:
        self._began = time.time()
        self._live.start()

    def update(self, tally: Tally, now: float) -> None:
        self._live.update(self._drawn(tally, now), refresh=True)

    def tell(self, text: str) -> None:
        self._console.print(f"penstock: {text}", soft_wrap=True)

    def has_told(self, record: TaskRecord) -> bool:
        return False

    def close(self) -> None:
        self._live.stop()

    def _drawn(self, tally: Tally, now: float) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        left_s = tally.left_s(now)
        left = f" · about {seconds(left_s)} left" if left_s is not None and left_s >= 1 else ""
        head = f"run {self._run} · {_counts(tally)} · {seconds(now - self._began)}{left}"
        rows = max(4, self._console.height - _OTHER_LINES)
        hosts = self._host_rows(tally, now)
        lanes = tally.lanes()
        room = max(2, rows - min(len(hosts), rows // 2))
        return Group(
            Text(head, no_wrap=True, overflow="ellipsis"),
            Text(),
            _lane_table(_busiest(lanes, room), len(lanes)),
            Text(),
            _host_table(hosts[: max(2, rows - min(len(lanes), room))], len(hosts)),
        )

    def _host_rows(self, tally: Tally, now: float) -> list[tuple[str, str, str]]:
        on_hosts = tally.on_hosts()
        rows = []
        for host in sorted(self._hosts, key=lambda h: -len(on_hosts.get(h.name, ()))):
            here = on_hosts.get(host.name, [])
            what = _what_runs(here, now, tally.outages.get(host.name))
            rows.append((host.name, f"{len(here)}/{host.slots}", what))
        return rows


def _what_runs(records: Sequence[TaskRecord], now: float, outage: Outage | None) -> str:
    if outage is not None and (outage.is_down or not records):
        return f"{'down' if outage.is_down else 'failed'}: {outage.error}"
    if not records:
        return "idle"
    kinds = Counter(record.task.kind for record in records)
    text = ", ".join(kind if count == 1 else f"{kind} ×{count}" for kind, count in kinds.most_common())
    oldest = records[0]
    if oldest.started_at is None:
        return f"{text} · waits for a worker"
    return f"{text} · {oldest.task.name or oldest.task.id} for {seconds(now - oldest.started_at)}"


def _busiest(lanes: list[LaneCount], room: int) -> list[LaneCount]:
    if len(lanes) <= room:
        return lanes
    return sorted(lanes, key=lambda count: (-count.running, -count.queued, count.lane))[: room - 1]


def _lane_table(lanes: Sequence[LaneCount], total: int) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    # Failures always have their column; who was cancelled or is blocked has one where there is any.
    states = [s for s in UNWELL if s is State.FAILED or any(count.unwell[s] for count in lanes)]
    table = _table("lane", "", ">done", *(f">{state}" for state in states), ">running", ">queued")
    for count in lanes:
        bar = ProgressBar(
            total=max(1, count.total),
            completed=count.ended,
            width=_BAR_WIDTH,
            complete_style="green",
            finished_style="green",
        )
        unwell = [Text(str(n), style="red" if n else "") for n in (count.unwell[state] for state in states)]
        cells: tuple[str | Text, ...] = (str(count.done), *unwell, str(count.running), str(count.queued))
        table.add_row(Text(one_line(count.lane)), bar, *cells)
    if total > len(lanes):
        table.add_row(f"and {total - len(lanes)} more")
    return table


def _host_table(rows: Sequence[tuple[str, str, str]], total: int) -> Table:
    from rich.cells import cell_len
    from rich.text import Text

    table = _table("host", ">slots", "running")
    for place, column in enumerate(table.columns[:2]):  # an error is cut, not the name of its host
        column.min_width = max(len("slots"), *(cell_len(one_line(row[place])) for row in rows), 0)
    for row in rows:
        table.add_row(*(Text(one_line(cell), no_wrap=True, overflow="ellipsis") for cell in row))
    if total > len(rows):
        table.add_row(f"and {total - len(rows)} more")
    return table


def _table(*columns: str) -> Table:
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        made.add_column(
            column.lstrip(">"),
            justify="right" if column.startswith(">") else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    return made
