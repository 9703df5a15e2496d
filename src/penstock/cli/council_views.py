"""How a question is shown while it is answered: live on a terminal, section by section in a pipe, or as JSON.

Answers go to stdout. Where that is no terminal but stderr is one, the live part is shown there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from penstock.cli import render
from penstock.cli.council_live import Board
from penstock.cli.council_text import Pages
from penstock.council.recorded import Response, read_record

if TYPE_CHECKING:
    from penstock.config.councils import Council

Event = Mapping[str, Any]


class View(Protocol):
    def open(self) -> None: ...

    def hear(self, event: Event) -> None: ...

    def tick(self) -> None:
        """Time has passed."""

    def tell(self, text: str) -> None:
        """A line for people."""

    def record(self, record: Mapping[str, Any]) -> None:
        """All is over."""

    def close(self) -> None: ...


def choose(council: Council, *, as_json: bool, as_events: bool) -> View:
    if as_events:
        return EventLines()
    moves = os.environ.get("TERM") not in ("dumb", "unknown")
    if sys.stdout.isatty() and not as_json:
        console = render.console()
        pages = Pages(console)
        return Sections(pages, Board(council, console, pages.colour) if moves else None)
    board = Board(council, render.console(stderr=True)) if sys.stderr.isatty() and moves else None
    return Document(board) if as_json else Sections(Pages(), board)


class EventLines:
    """Every event as a line of JSON; the last holds the record."""

    def open(self) -> None:
        pass

    def hear(self, event: Event) -> None:
        render.emit_line(event)

    def tick(self) -> None:
        pass

    def tell(self, text: str) -> None:
        render.note(text)

    def record(self, record: Mapping[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


class _Boarded:
    """With a live part, where there is a terminal for one."""

    def __init__(self, board: Board | None) -> None:
        self._board = board

    def open(self) -> None:
        if self._board is not None:
            self._board.open()

    def hear(self, event: Event) -> None:
        if self._board is not None:
            self._board.hear(event)

    def tick(self) -> None:
        if self._board is not None:
            self._board.draw()

    def tell(self, text: str) -> None:
        if self._board is not None:
            self._board.tell(text)
        else:
            render.note(text)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
            self._board = None


class Document(_Boarded):
    """The record alone, at the end."""

    def record(self, record: Mapping[str, Any]) -> None:
        self.close()
        render.emit(record)


class Sections(_Boarded):
    """Each answer whole when it is there, then the review, the agreement and the answer of all."""

    def __init__(self, pages: Pages, board: Board | None) -> None:
        super().__init__(board)
        self._pages = pages

    def hear(self, event: Event) -> None:
        super().hear(event)
        if event.get("event") == "answer":
            self._pages.answer(msgspec.convert(event, Response))
            self._pages.flush()

    def record(self, record: Mapping[str, Any]) -> None:
        self.close()
        told = read_record(record, "the answer")
        self._pages.record(told)
        self._pages.closing(told)
        self._pages.flush()
