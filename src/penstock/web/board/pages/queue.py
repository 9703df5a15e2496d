"""Tasks, searched and filtered by the store, and what can be done with a selection.

What is asked for stands in the address, so that it can be shared and the browser's back works. Pages are read from
the store, never counted off: the next begins beyond the last number of this one.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from nicegui.element import Element

from penstock.model import PRIORITIES
from penstock.store.base import TaskCount, TaskPage
from penstock.web.board.buttons import button
from penstock.web.board.elements import empty, hide, say, tag
from penstock.web.board.forms import field, select
from penstock.web.board.frame import Visit
from penstock.web.board.notices import guarded
from penstock.web.board.queue_actions import Actions
from penstock.web.board.queue_asked import NEXT, ORDERS, STATES, Asked
from penstock.web.board.queue_rows import COLUMNS, rows_of
from penstock.web.board.tables import table
from penstock.web.board.words import urgency

_FILES = Path(__file__).parent.parent / "files"
_PAGES = {"": ("Newer", "Older"), NEXT: ("Sooner", "Later")}
_COUNT_S = 3.0  # a count may cost more than a page


class Address(Element, component=_FILES / "queue_address.js"):
    """The part of the page's address behind the question mark, and going back to an earlier one."""

    def __init__(self, query: str) -> None:
        super().__init__()
        self._props["query"] = query

    def go(self, query: str) -> None:
        if self._props["query"] != query:
            self._props["query"] = query
            self.update()


class RowKeys(Element, component=_FILES / "queue_keys.js"):
    """j and k, or the arrows, go from row to row; space selects."""


async def build(visit: Visit) -> None:
    page = QueuePage(visit)
    await page.refresh()
    visit.follow(page.refresh, least_s=0.5)


class QueuePage:
    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._asked = Asked.of(visit.request.url.query)
        self._count = TaskCount(0, is_exact=True)
        self._counted: tuple[Asked, float] | None = None
        self._before: list[str] = []  # where the pages before this one began
        self._next: int | None = None
        self._address = Address(self._asked.query)
        self._address.on("went", guarded(self._address, self._went))
        RowKeys()
        self._build_filters()
        self._told = tag("p", "", class_="queue-count soft")
        self._aloud = tag("p", "", class_="unseen", role="status")
        self._spoken_of: Asked | None = None
        self._actions = Actions(visit, self._acted)
        on_select = self._actions.choose if self._actions.is_shown else None
        self._table = table("Tasks", COLUMNS, hide_caption=True, on_select=on_select)
        self._table.classes("queue-table")
        with tag("div", class_="queue-pages") as self._pages:
            self._newer = button("← Newer", self._go_newer)
            self._older = button("Older →", self._go_older)
        self._nothing = tag("div")

    def _build_filters(self) -> None:
        asked, plant = self._asked, self._visit.desk.config.plant
        with tag("div", class_="queue-filters", role="search", aria_label="Tasks"):
            self._fields = {
                "q": field(
                    "Search",
                    asked.q,
                    kind="search",
                    on_input=self._narrow,
                    placeholder="Id, key, run; or kind, error",
                    maxlength="200",
                ),
                "state": select("State", STATES, asked.state, on_change=self._narrow),
                "kind": field("Kind", asked.kind, on_change=self._narrow, placeholder="any"),
                "lane": select(
                    "Lane",
                    _any([lane.name for lane in plant.lanes], asked.lane),
                    asked.lane,
                    on_change=self._narrow,
                ),
                "host": select(
                    "Host",
                    _any([host.name for host in plant.hosts], asked.host),
                    asked.host,
                    on_change=self._narrow,
                ),
                "run": field("Run", asked.run, on_change=self._narrow, placeholder="any"),
                "priority": select(
                    "Priority",
                    {"": "any"} | {str(one): urgency(one) for one in PRIORITIES},
                    asked.priority,
                    on_change=self._narrow,
                ),
                "order": select("Order", ORDERS, asked.order, on_change=self._narrow),
            }
            self._clear = button("Clear filters", self._clear_filters, kind="quiet")

    # ---- what is asked for

    async def _narrow(self) -> None:
        given = {name: one.value.strip() for name, one in self._fields.items()}
        await self._go(self._asked.changed(given))
        self._show_asked()

    async def _clear_filters(self) -> None:
        await self._go(Asked())
        self._show_asked()

    async def _went(self, query: str) -> None:
        self._before.clear()
        await self._go(Asked.of(query))
        self._show_asked()

    def _show_asked(self) -> None:
        for name, one in self._fields.items():
            one.value = getattr(self._asked, name)

    async def _go_older(self) -> None:
        if self._next is not None:
            self._before.append(self._asked.after)
            await self._go(replace(self._asked, after=str(self._next)), turned=True)

    async def _go_newer(self) -> None:
        after = self._before.pop() if self._before else ""
        await self._go(replace(self._asked, after=after), turned=True)

    async def _go(self, asked: Asked, *, turned: bool = False) -> None:
        if asked == self._asked:
            return
        if not turned:
            self._before.clear()
        self._asked = asked
        self._address.go(asked.query)
        self._table.select([])
        self._actions.choose([])
        await self.refresh()

    async def _acted(self) -> None:
        self._counted = None
        self._table.select([])
        self._actions.choose([])
        await self.refresh()

    # ---- what is shown

    async def refresh(self) -> None:
        asked, client = self._asked, self._visit.desk.client
        chosen = asked.filter(client.config.plant.aging_s)
        page = await client.page(chosen)
        rows = await rows_of(client, page.records)
        of_all = replace(asked, after="")
        now = time.monotonic()
        if self._counted is None or self._counted[0] != of_all or now - self._counted[1] > _COUNT_S:
            count = await client.count(replace(chosen, after=None))
            if asked != self._asked:
                return
            self._count, self._counted = count, (of_all, now)
        if asked != self._asked:
            return  # somebody asked for something else meanwhile
        self._next = page.next
        self._table.show(rows)
        self._actions.matching(of_all, self._count)
        self._tell(page)

    def _tell(self, page: TaskPage) -> None:
        count = self._count
        is_one = str(count) == "1"
        fits = f"match{'es' if is_one else ''}" if self._asked.narrows else "in all"
        text = f"{count} {'task' if is_one else 'tasks'} {fits}"
        if not count.is_exact and not count.tasks:
            text = "Looking for tasks that match"
        if page.next is not None and len(page.records) < 1:
            text += (
                f"; none among those looked through so far, “{_PAGES[self._asked.order][1]}” looks further"
            )
        self._say(text)
        self._visit.title(f"{count} {fits} · Queue")
        before, beyond = _PAGES[self._asked.order]
        self._newer.say(f"← {before}")
        self._older.say(f"{beyond} →")
        self._newer.enable(None if self._asked.after else "This is the first page.")
        self._older.enable(None if page.next is not None else "This is the last page.")
        self._clear.enable(None if self._asked.narrows else "There are no filters.")
        is_empty = not page.records and page.next is None
        for one in (self._table, self._pages, *self._actions.shown):
            hide(one, is_empty)
        self._nothing.clear()
        if is_empty:
            with self._nothing:
                self._say_nothing()

    def _say(self, text: str) -> None:
        """Aloud only what answers a question: on a plant at work the number changes all the time."""
        say(self._told, text)
        if self._spoken_of != self._asked:
            self._spoken_of = self._asked
            say(self._aloud, text)

    def _say_nothing(self) -> None:
        if self._asked.narrows:
            empty("No task fits", "Ask for less, or clear the filters.")
            with tag("p", class_="queue-clear"):
                button("Clear all filters", self._clear_filters)
        else:
            empty(
                "The queue is empty",
                "Submit a task, and it appears here.",
                'penstock submit KIND \'{"text": "…"}\'',
            )


def _any(names: list[str], also: str) -> dict[str, str]:
    """With one that the config does not have, but the address."""
    return {"": "any"} | {name: name for name in (*names, *([also] if also else []))}
