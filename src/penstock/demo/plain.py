"""The demo on something that is no terminal: a line now and then, and nothing that moves."""

from __future__ import annotations

from rich.console import Console

from penstock.demo.board import Board
from penstock.demo.figures import Scene
from penstock.demo.show import Show
from penstock.demo.stage import Legacy

_LINE_EVERY_S = 20.0


class PlainShow(Show):
    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._next_s = 0.0
        self._note = ""

    def begin(self, number: int, title: str, about: str) -> None:
        super().begin(number, title, about)
        self._next_s = 0.0
        self._note = ""

    def frame(self, board: Board, story_s: float, legacy: Legacy | None, note: str) -> None:
        if board.began is None or (story_s < self._next_s and note == self._note):
            return
        self._next_s = story_s - story_s % _LINE_EVERY_S + _LINE_EVERY_S
        if note != self._note:
            self._note = note
            self.say(note)
        hosts = "  ".join(f"{host} {board.busy(host)}/{len(slots)}" for host, slots in board.slots.items())
        line = f"t {story_s:3.0f} s  {hosts}  queued {len(board.queued)}  done {board.done}"
        if legacy is not None:
            line += f"  (legacy: {len(legacy.spans)} done)"
        self.say(line)


class NoShow:
    """For those who want the figures only."""

    def begin(self, number: int, title: str, about: str) -> None:
        pass

    def frame(self, board: Board, story_s: float, legacy: Legacy | None, note: str) -> None:
        pass

    def end(self, scene: Scene) -> None:
        pass
