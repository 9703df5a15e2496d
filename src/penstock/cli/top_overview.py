"""The first screen of `top`: hosts and their slots, tasks, lanes, gates, what the queue waits for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import DataTable, Footer, Static

from penstock.cli import top_text
from penstock.cli.top_screens import Ask, Confirm, Reads
from penstock.cli.top_task import PRIORITIES, TaskScreen
from penstock.errors import PenstockError
from penstock.model import State
from penstock.store.base import TaskFilter

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.model import TaskRecord
    from penstock.store.now import Now

_ENDED = (State.DONE, State.FAILED, State.CANCELLED, State.BLOCKED)
_LISTS = ("running", "queued", "ended")
_MOST_ROWS = 200  # of tasks: what nobody scrolls through is not read
_MOST_SORTED = 1000
_HOUR_S = 3600.0


class Rows(DataTable[Text]):
    """A table that is filled again and again: the cursor stays with its row, wherever that has gone."""

    def __init__(self, columns: Sequence[str], id: str) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._columns = columns
        self._order: list[str] = []

    def on_mount(self) -> None:
        self.set_columns(self._columns)

    def set_columns(self, columns: Sequence[str]) -> None:
        self.clear(columns=True)
        self._order = []
        for name in columns:
            self.add_column(name, key=name)
        self._columns = columns

    def fill(self, rows: Sequence[tuple[str, Sequence[Text]]]) -> None:
        """Each row has a key that stays its own."""
        keys = [key for key, _ in rows]
        if keys == self._order:
            for key, cells in rows:
                for name, cell in zip(self._columns, cells, strict=True):
                    if self.get_cell(key, name) != cell:
                        self.update_cell(key, name, cell, update_width=True)
            return
        chosen, place = self.chosen, self.cursor_row
        self.clear()
        for key, cells in rows:
            self.add_row(*cells, key=key)
        self._order = keys
        if keys:
            place = keys.index(chosen) if chosen in keys else min(place, len(keys) - 1)
            self.move_cursor(row=place)

    @property
    def chosen(self) -> str | None:
        """The key of the row under the cursor."""
        return self._order[self.cursor_row] if 0 <= self.cursor_row < len(self._order) else None


async def _next(client: Client) -> Sequence[TaskRecord]:
    """Those that are to start next, the first of them first."""
    chosen = TaskFilter((State.QUEUED,), limit=_MOST_ROWS, aging_s=client.config.plant.aging_s)
    return (await client.page(chosen)).records


async def _last(client: Client) -> list[TaskRecord]:
    """Those that ended last, of the newest that ended within the hour."""
    chosen = TaskFilter(_ENDED, limit=_MOST_SORTED, newest=True, since=time.time() - _HOUR_S)
    found = await client.tasks(chosen)
    return sorted(found, key=lambda one: one.ended_at or 0.0, reverse=True)[:_MOST_ROWS]


class Overview(Reads):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open"),
        Binding("f", "list", "List"),
        Binding("slash", "find", "Find", key_display="/"),
        Binding("p", "pause", "Pause"),
        Binding("c", "cancel", "Cancel"),
        Binding("r", "retry", "Retry"),
        Binding("0", "priority(0)", "Priority", key_display="0-4"),
        *(Binding(digit, f"priority({digit})", show=False) for digit in PRIORITIES[1:]),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._list = _LISTS[0]
        self._now: Now | None = None
        self._record: dict[str, Any] | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="who")
        yield Static(id="trouble")
        yield Static(id="outages")
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield Static("hosts", classes="head")
                yield Rows(top_text.HOST_COLUMNS, "hosts")
                yield Static("running", classes="head", id="list")
                yield Rows(top_text.TASK_COLUMNS[self._list], "tasks")
            with VerticalScroll(id="right"):
                for name in ("lanes", "gates", "queue", "waits", "ended"):
                    yield Static(id=name, classes="block")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#tasks").focus()

    # ---- showing

    async def read(self, client: Client) -> None:
        self._now = await client.now(self._now)
        standbys = await client.standbys()
        if not self.is_attached:
            return
        record = top_text.told(client.config.plant, self._now, standbys)
        self._record = record
        self.query_one("#who", Static).update(top_text.who(record))
        self._hosts.fill(top_text.host_rows(record))
        for name, made in (
            ("outages", top_text.outages(record)),
            ("lanes", top_text.lanes(record)),
            ("gates", top_text.gates(record)),
            ("queue", top_text.priorities(record)),
            ("waits", top_text.waits(record)),
            ("ended", top_text.ended(record)),
        ):
            shown = self.query_one(f"#{name}", Static)
            shown.display = made is not None
            if made is not None:
                shown.update(Group(*made))
        await self._read_tasks(client, record)

    async def _read_tasks(self, client: Client, record: dict[str, Any]) -> None:
        shown = self._list
        if shown == "running":
            rows = top_text.running_rows(record, time.time())
        else:
            found = await (_next(client) if shown == "queued" else _last(client))
            stays, now = await client.stays(found), time.time()
            rows = [
                (one.task.id, top_text.task_cells(shown, one, stay, now))
                for one, stay in zip(found, stays, strict=True)
            ]
        if shown != self._list or not self.is_attached:
            return  # another was asked for meanwhile, and is being read
        self.query_one("#list", Static).update(self._heading(len(rows)))
        self._tasks.fill(rows)

    def _heading(self, rows: int) -> Text:
        order = ", next to start first" if self._list == "queued" else ""
        of = f"{order}, the first {_MOST_ROWS}" if rows == _MOST_ROWS else order
        return Text.assemble(f"{self._list}{of}", ("  f shows the others", "not bold dim"))

    # ---- acting

    @property
    def _hosts(self) -> Rows:
        return self.query_one("#hosts", Rows)

    @property
    def _tasks(self) -> Rows:
        return self.query_one("#tasks", Rows)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter, or a click on the row under the cursor."""
        if event.data_table is self._tasks and event.row_key.value is not None:
            self.app.push_screen(TaskScreen(event.row_key.value))

    def action_open(self) -> None:
        if (task := self._tasks.chosen) is not None:
            self.app.push_screen(TaskScreen(task))

    def action_list(self) -> None:
        self._list = _LISTS[(_LISTS.index(self._list) + 1) % len(_LISTS)]
        self._tasks.set_columns(top_text.TASK_COLUMNS[self._list])
        self.run_worker(self.app.look(), name="penstock look")  # type: ignore[attr-defined]

    def action_find(self) -> None:
        def named(said: str | None) -> None:
            if said is not None:
                self.run_worker(self._open_named(said), name="penstock find")

        self.app.push_screen(Ask("Which task? Its id, or the beginning of it.", "1m7f"), named)

    async def _open_named(self, name: str) -> None:
        try:
            record = await self.client.get(name)
        except PenstockError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self.app.push_screen(TaskScreen(record.task.id))

    def action_pause(self) -> None:
        """Of the host under the cursor where that table has the focus, else of everything."""
        if self._record is None:
            return
        name = self._hosts.chosen if self._hosts.has_focus else None
        scope = "all" if name is None else "host"
        paused = top_text.is_paused(self._record, name)
        if paused:
            self.ask(self.client.resume(scope, name or ""), "resumed")
        elif name is not None:
            self.ask(self.client.pause(scope, name), "paused")
        else:
            self.app.push_screen(
                Confirm("Start nothing more, on any host?", "Pause everything"), self._pause_all
            )

    def _pause_all(self, said: str | None) -> None:
        if said == "yes":
            self.ask(self.client.pause(), "paused")

    def action_cancel(self) -> None:
        task = self._tasks.chosen
        if task is None:
            return
        if self._list == "ended":
            self.notify(f"{task} has ended already", severity="warning", markup=False)
            return

        def answered(said: str | None) -> None:
            if said == "yes":
                self.ask(self.client.cancel(task), "cancelled")

        self.app.push_screen(Confirm(f"Cancel task {task}?", "Cancel it"), answered)

    def action_retry(self) -> None:
        if (task := self._tasks.chosen) is not None:
            self.ask(self.client.retry(task), "queued again")

    def action_priority(self, priority: int) -> None:
        if (task := self._tasks.chosen) is not None:
            asked = self.client.set_priority(task, priority=priority)
            self.ask(asked, f"priority {priority}")
