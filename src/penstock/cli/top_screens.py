"""What the screens of `top` have in common, and the sheets that lie over them: a question, a number, the keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen, Screen
from textual.widgets import Button, Input, Static

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.store.base import Answer

KEYS = """\
Tab, Shift+Tab   next table, the one before
Up, Down         a row
Enter            open the task of a row
Escape           back

c                cancel a task
r                retry a failed, cancelled or blocked task
0-4              set a task's priority; 0 is the most urgent
p                pause, resume: in the hosts that host, else all
/                find a task by its id, or by the beginning of it
f                queued, running or ended tasks

?                this
q                quit"""


class Reads(Screen[None]):
    """A screen that shows what the store says."""

    @property
    def client(self) -> Client:
        client: Client = self.app.client  # type: ignore[attr-defined] # every screen is one of `top`'s
        return client

    @abstractmethod
    async def read(self, client: Client) -> None: ...

    def tell_trouble(self, text: str) -> None:
        if not self.is_attached:
            return
        line = self.query_one("#trouble", Static)
        line.display = bool(text)
        if text:
            line.update(plain(f"{text}; trying again"))

    def ask(self, asked: Coroutine[Any, Any, Answer], done: str) -> None:
        """Have the dispatcher do it, and say what became of it."""

        async def told() -> None:
            try:
                answer = await asked
            except PenstockError as error:
                self.notify(str(error), severity="error", markup=False)
                return
            severity = "information" if answer.ok else "warning"
            self.notify(answer.detail or done, severity=severity, markup=False)  # type: ignore[arg-type]

        self.run_worker(told(), name="penstock asked")


def plain(text: str) -> Any:
    """A text of anybody's: nothing in it is markup."""
    from rich.text import Text

    return Text(text)


class _Sheet(ModalScreen[str | None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back")]


class Confirm(_Sheet):
    """Gives "yes", or nothing."""

    def __init__(self, question: str, verb: str) -> None:
        super().__init__()
        self._question, self._verb = question, verb

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(plain(self._question))
            with Horizontal():
                yield Button(self._verb, variant="error", id="yes")
                yield Button("Leave it", id="no")

    def on_mount(self) -> None:
        self.query_one("#no", Button).focus()  # what Enter does must not be what cannot be undone

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss("yes" if event.button.id == "yes" else None)


class Ask(_Sheet):
    """Gives what was typed, or nothing."""

    def __init__(self, question: str, example: str) -> None:
        super().__init__()
        self._question, self._example = question, example

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(plain(self._question))
            yield Input(placeholder=self._example)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


class Keys(_Sheet):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,q,enter", "dismiss", "Back")]

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(plain(KEYS))
