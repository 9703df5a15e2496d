"""One task on a screen of its own: what `show` and `why` tell of it, as it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from penstock.cli import render
from penstock.cli.details import (
    ATTEMPT_COLUMNS,
    WAIT_COLUMNS,
    attempt_rows,
    fields_of,
    lines_of,
    nodes_of,
    wait_rows,
)
from penstock.cli.top_screens import Confirm, Reads
from penstock.cli.why import in_short
from penstock.lifecycle import ENDED

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.diagnosis.why.answer import Why
    from penstock.model import TaskRecord

_MOST_LINES = 200  # of a payload or a value; `show` prints all
PRIORITIES = "01234"


class TaskScreen(Reads):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.pop_screen", "Back", key_display="Esc"),
        Binding("c", "cancel", "Cancel"),
        Binding("r", "retry", "Retry"),
        Binding("0", "priority(0)", "Priority", key_display="0-4"),
        *(Binding(digit, f"priority({digit})", show=False) for digit in PRIORITIES[1:]),
    ]

    def __init__(self, task_id: str) -> None:
        super().__init__()
        self._task_id = task_id

    def compose(self) -> ComposeResult:
        yield Static(id="who")
        yield Static(id="trouble")
        with VerticalScroll(id="task"):
            yield Static(id="about")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#task").focus()  # so that the arrows scroll it
        self.run_worker(self.app.look(), name="penstock look")  # type: ignore[attr-defined] # not at the next ring

    async def read(self, client: Client) -> None:
        short, whole = await read_task(client, self._task_id)
        if not self.is_attached:
            return  # somebody went back meanwhile
        self.query_one("#who", Static).update(short)
        self.query_one("#about", Static).update(whole)

    def action_cancel(self) -> None:
        def answered(said: str | None) -> None:
            if said == "yes":
                self.ask(self.client.cancel(self._task_id), "cancelled")

        self.app.push_screen(Confirm(f"Cancel task {self._task_id}?", "Cancel it"), answered)

    def action_retry(self) -> None:
        self.ask(self.client.retry(self._task_id), "queued again")

    def action_priority(self, priority: int) -> None:
        asked = self.client.set_priority(self._task_id, priority=priority)
        self.ask(asked, f"priority {priority}")


async def read_task(client: Client, task_id: str) -> tuple[Text, RenderableType]:
    """How it stands in a line, and all of it."""
    record = await client.get(task_id)
    attempts = await client.attempts(task_id)
    nodes = nodes_of(await client.events(task=task_id))
    why = await client.why(task_id)
    return Text(in_short(why)), _about(record, attempt_rows(attempts, nodes), why)


def _about(record: TaskRecord, attempts: list[tuple[str, ...]], why: Why) -> RenderableType:
    """Everything in the order in which one asks for it."""
    parts: list[RenderableType] = [_fields(record)]
    if why.parts:
        waits = [part.wait for part in why.parts]
        parts += ["", render.table(WAIT_COLUMNS, wait_rows(waits), flexible="detail", fold=True)]
    if attempts:
        parts += ["", render.table(ATTEMPT_COLUMNS, attempts, flexible="error", fold=True)]
    if record.error is not None:
        parts += ["", Text("error", "bold"), Text(render.one_line(record.error))]
    parts += _block("payload", record.task.payload)
    if record.state in ENDED:
        parts += _block("value", record.value)
    return Group(*parts)


def _fields(record: TaskRecord) -> RenderableType:
    fields = fields_of(record, traced=False)
    width = max(len(name) for name, _ in fields)
    told = Text()
    for name, text in fields:
        told.append(f"{name:<{width}}  ", "bold")
        told.append(render.one_line(text) + "\n")
    told.rstrip()
    return told


def _block(name: str, value: object) -> list[RenderableType]:
    if value is None:
        return []
    lines = lines_of(value)
    more = len(lines) - _MOST_LINES
    cut = [f"and {more} more lines; `penstock show` prints them"] if more > 0 else []
    return ["", Text(name, "bold"), Text("\n".join([*lines[:_MOST_LINES], *cut]))]
