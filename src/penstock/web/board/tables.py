"""Tables from data: cells are text or numbers, or say what else they are, or are built by a function.

table(
    "Attempts",
    [Column("Task", heads=True), Column("Took", num=True, sortable=True), "Host", Column("", unseen=True)],
    [[Link("a1", "/tasks/a1"), Lasted(since, until), Link("gpu", "/queue?host=gpu"), lambda: button("Retry", f)]],
)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nicegui.element import Element

from penstock.web.board.elements import BASE
from penstock.web.board.looks import look_of
from penstock.web.board.notices import attempted


@dataclass(frozen=True, slots=True)
class Link:
    text: str
    path: str  # below /board
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Badge:
    state: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class At:
    at: float


@dataclass(frozen=True, slots=True)
class Lasted:
    """It ticks until there is an end; `plus_s` is what had been before."""

    since: float
    until: float | None = None
    plus_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Seconds:
    seconds: float


@dataclass(frozen=True, slots=True)
class Code:
    text: str
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Soft:
    text: str
    title: str | None = None


Cell = str | int | float | Link | Badge | At | Lasted | Seconds | Code | Soft | Callable[[], Any] | None


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    key: str = ""  # what `on_sort` is told; the title if empty
    num: bool = False  # figures, to the right
    sortable: bool = False
    wide: bool = False  # takes the room that is left, and wraps
    heads: bool = False  # names its row
    unseen: bool = False  # the title is only read aloud


@dataclass(frozen=True, slots=True)
class Row:
    cells: Sequence[Cell]
    key: str = ""  # of a selection; its place if empty
    name: str = ""  # read aloud beside its checkbox; the key if empty
    look: str = ""  # a class for the row


class Table(Element, component=Path(__file__).parent / "files" / "table.js"):
    """A table in a box of its own that scrolls sideways where it must."""

    def __init__(self, caption: str, columns: Sequence[Column]) -> None:
        super().__init__()
        self._props["caption"] = caption
        self._props["columns"] = [
            {
                "title": column.title,
                "key": column.key or column.title,
                "num": column.num,
                "sortable": column.sortable,
                "wide": column.wide,
                "heads": column.heads,
                "unseen": column.unseen,
            }
            for column in columns
        ]
        self._props["turn"] = 0
        self.selected: list[str] = []

    def show(self, rows: Sequence[Row | Sequence[Cell]], *, caption: str | None = None) -> None:
        """Other rows. What is selected stays selected while it is shown."""
        self._drop_slots()
        self._props["rows"] = [
            self._row(place, row if isinstance(row, Row) else Row(row)) for place, row in enumerate(rows)
        ]
        keys = {row["key"] for row in self._props["rows"]}
        self.selected = [key for key in self.selected if key in keys]
        if caption is not None:
            self._props["caption"] = caption
        self.update()

    def select(self, keys: Sequence[str]) -> None:
        self.selected = list(keys)
        self._props["selected"] = self.selected
        self._props["turn"] += 1
        self.update()

    def _drop_slots(self) -> None:
        for name in [name for name in self.slots if name != "default"]:
            slot = self.slots.pop(name)
            for child in list(slot):
                self.client.remove_elements(child.descendants(include_self=True))

    def _row(self, place: int, row: Row) -> dict[str, Any]:
        cells = [self._cell(f"r{place}c{at}", cell) for at, cell in enumerate(row.cells)]
        key = row.key or str(place)
        return {"key": key, "name": row.name or key, "look": row.look, "cells": cells}

    def _cell(self, slot: str, cell: Cell) -> Any:
        if callable(cell):
            with self.add_slot(slot):
                cell()
            return {"is": "slot"}
        match cell:
            case Link(text, path, title):
                return {"is": "link", "text": text, "href": BASE + path, "title": title}
            case Badge(state, text):
                look, sign = look_of(state)
                return {"is": "badge", "text": text or state, "look": look, "sign": sign}
            case At(at):
                return {"is": "moment", "at": at}
            case Lasted(since, until, plus_s):
                return {"is": "elapsed", "since": since, "until": until, "plus": plus_s}
            case Seconds(seconds):
                return {"is": "seconds", "seconds": seconds}
            case Code(text, title) | Soft(text, title):
                return {"is": type(cell).__name__.lower(), "text": text, "title": title}
        return cell


def table(
    caption: str,
    columns: Sequence[Column | str],
    rows: Sequence[Row | Sequence[Cell]] = (),
    *,
    hide_caption: bool = False,
    tall: bool = False,
    sorted_by: tuple[str, bool] | None = None,
    on_sort: Callable[[str, bool], Any] | None = None,
    on_select: Callable[[list[str]], Any] | None = None,
) -> Table:
    """`sorted_by` and `on_sort` are of a column's key and whether it falls; with `on_sort` the rows are shown as
    they come, without they are sorted in the browser. With `on_select` rows have checkboxes; it gets their keys.
    `tall` lets it be as high as its rows are; else it has a height of its own and its head stays in sight."""
    made = Table(caption, [Column(one) if isinstance(one, str) else one for one in columns])
    made._props["hide_caption"] = hide_caption
    made._props["tall"] = tall
    made._props["sorted"] = list(sorted_by) if sorted_by else None
    made._props["sorts_here"] = on_sort is None
    made._props["selectable"] = on_select is not None
    if on_sort is not None:
        made.on("sort", lambda event: attempted(made.client, on_sort, *event.args))
    if on_select is not None:

        async def chosen(event: Any) -> None:
            made.selected = list(event.args)
            await attempted(made.client, on_select, made.selected)

        made.on("select", chosen)
    made.show(rows)
    return made
