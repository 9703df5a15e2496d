"""The demo on a terminal: hosts as rows of slots with the task in each, lanes, and the queue by priority."""

from __future__ import annotations

import time
from collections import Counter

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from penstock.compare.workloads import duration_s
from penstock.demo.board import Board, Placed
from penstock.demo.figures import Scene
from penstock.demo.show import Show
from penstock.demo.stage import Legacy
from penstock.model import PRIORITIES, Lane, Task

_COLOURS = ("cyan", "magenta", "yellow", "green", "blue")
_LABEL = 9  # columns before each row
_BORDERS = 4
_WORDS_FROM = 10  # columns of a slot from which it can name its task
_BAR = 8  # the most blocks for one priority


class LiveShow(Show):
    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live: Live | None = None

    def frame(self, board: Board, story_s: float, legacy: Legacy | None, note: str) -> None:
        if self._live is None:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._picture(board, story_s, legacy, note), refresh=True)

    def end(self, scene: Scene) -> None:
        self.close()
        super().end(scene)

    def close(self) -> None:
        """Give the terminal back as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _picture(self, board: Board, story_s: float, legacy: Legacy | None, note: str) -> Panel:
        width = self.console.width - _BORDERS
        colours = _colours(board)
        rows = [_host_row(host, board, width, colours) for host in board.slots]
        rows += [_lane_row(lane, board, colours) for lane in board.plant.lanes]
        rows.append(_queue_row(board))
        if legacy is not None:
            rows.append(_legacy_row(legacy))
        if note:
            rows.append(Text(note, "bold"))
        return Panel(Group(*rows), title=f"t = {story_s:.0f} s", title_align="right", border_style="dim")


def _family(task: Task, board: Board) -> str:
    """What a task's colour stands for: its lane where there are lanes, else its kind."""
    return task.lane if board.plant.lanes else task.kind


def _colours(board: Board) -> dict[str, str]:
    names = [lane.name for lane in board.plant.lanes] or [
        k for host in board.plant.hosts for k in host.serves
    ]
    return {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(dict.fromkeys(names))}


def _host_row(host: str, board: Board, width: int, colours: dict[str, str]) -> Text:
    slots = board.slots[host]
    cell = max(1, (width - _LABEL) // len(slots))
    row = Text(f"{host[: _LABEL - 1]:<{_LABEL}}", no_wrap=True, overflow="crop")
    for placed in slots:
        colour = "" if placed is None else colours[_family(placed.task, board)]
        words = _slot_words(placed, board, cell) if cell >= _WORDS_FROM else _slot_letter(placed, board, cell)
        row.append(words, "dim" if board.down_at else colour or "dim")
    return row


def _slot_words(placed: Placed | None, board: Board, cell: int) -> str:
    """The task and how far it is; a slot that is free is a dot."""
    if placed is None:
        return f"{'.':<{cell}}"
    name = f"p{placed.task.priority} {placed.task.id}" if board.prioritised else placed.task.id
    name = name[: cell - 1]
    room = cell - len(name) - 2
    if room < 4:
        return f"{name:<{cell}}"
    share = min(1.0, ((board.down_at or time.time()) - placed.started_at) / duration_s(placed.task))
    full = round(share * room)
    return f"{name} {'━' * full}{'╌' * (room - full)} "


def _slot_letter(placed: Placed | None, board: Board, cell: int) -> str:
    return f"{'.' if placed is None else _family(placed.task, board)[0]:<{cell}}"


def _lane_row(lane: Lane, board: Board, colours: dict[str, str]) -> Text:
    queued = Counter(task.lane for task in board.queued.values())
    limit = "" if lane.max_running is None else f" of {lane.max_running}"
    row = Text(f"{lane.name:<{_LABEL}}", colours[lane.name], no_wrap=True, overflow="ellipsis")
    row.append(f"running {board.running()[lane.name]:>2}{limit:<6} queued {queued[lane.name]:>2}", "default")
    for gate in board.plant.gates:
        if lane.name in gate.holds_lanes:
            state = "open" if board.gates[gate.name] else "CLOSED"
            row.append(f"   gate {gate.name} {state}", "default" if board.gates[gate.name] else "red")
    return row


def _queue_row(board: Board) -> Text:
    """How many wait, by priority where there are several."""
    counts = Counter(task.priority for task in board.queued.values())
    row = Text(f"{'queue':<{_LABEL}}", no_wrap=True, overflow="ellipsis")
    if not board.prioritised:
        return row.append(f"{counts.total():>2} waiting, {board.done} done")
    for priority in PRIORITIES:
        blocks = "■" * min(_BAR, counts[priority])
        row.append(f"p{priority} ").append(f"{blocks:<{_BAR}} ", "bold")
    return row.append(f"{board.done} done")


def _legacy_row(legacy: Legacy) -> Text:
    """The other way: which thread has which task."""
    done = {span.task for span in legacy.spans}
    now: dict[str, str] = {}
    for task in legacy.workload.tasks:
        if task.id not in done:
            now.setdefault(task.kind, task.id)
    row = Text(f"{'legacy':<{_LABEL}}", "dim", no_wrap=True, overflow="ellipsis")
    row.append(f"{len(done):>2} of {len(legacy.workload.tasks)} done; ")
    return row.append(f"its threads: {', '.join(now.values())}" if now else "through")
