"""`top` as a program for the terminal: when its screens are read again, and the keys that all of them have.

They are read when the store's bell rings, and each second so that what runs is seen to grow older. A store that
cannot be read for a moment is said on the screen, and tried again.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from penstock.cli.top_overview import Overview
from penstock.cli.top_screens import Keys, Reads
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import Client

_LEAST_S = 0.2  # between two looks: nobody reads faster, and the store has better things to do
_MOST_S = 1.0


class Top(App[None]):
    TITLE = "Penstock"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - as its base has it
    CSS = """
    #who { height: auto; padding: 0 1; background: $panel; }
    #trouble { height: auto; padding: 0 1; color: $text-error; display: none; }
    #outages { height: auto; padding: 0 1; display: none; }
    #body { height: 1fr; }
    #left { width: 3fr; }
    #right { width: 2fr; padding: 0 1; overflow-y: auto; }
    DataTable { height: 1fr; }
    #hosts { height: auto; max-height: 40%; }
    .head { height: 1; padding: 0 1; text-style: bold; color: $text-muted; }
    .block { height: auto; padding-bottom: 1; }
    #task { padding: 0 1; height: 1fr; }
    Confirm, Ask, Keys { align: center middle; }
    .sheet { width: auto; max-width: 90%; height: auto; max-height: 90%; padding: 1 2; background: $surface;
             border: round $accent; }
    .sheet Static { width: auto; }
    .sheet Button { margin: 1 2 0 0; }
    .sheet Horizontal { height: auto; width: auto; }
    .sheet Input { width: 50; }
    .-narrow #body { layout: vertical; }
    .-narrow #left { width: 100%; height: 2fr; }
    .-narrow #right { width: 100%; height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "keys", "Keys", key_display="?"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self._looking = asyncio.Lock()  # one look at a time: an older one must not be shown last

    def on_mount(self) -> None:
        self.push_screen(Overview())
        self.run_worker(self._follow(), name="penstock top")

    def action_keys(self) -> None:
        if not isinstance(self.screen, Keys):
            self.push_screen(Keys())

    async def _follow(self) -> None:
        async with self.client.watching() as watch:
            while True:
                began = time.monotonic()
                await self.look()
                try:
                    async with asyncio.timeout(_MOST_S):
                        await watch()
                except TimeoutError:
                    continue
                await asyncio.sleep(max(0.0, began + _LEAST_S - time.monotonic()))

    async def look(self) -> None:
        """Read again what the screens show, a covered one too: it is what one comes back to."""
        async with self._looking:
            for screen in self.screen_stack:
                if isinstance(screen, Reads) and screen.is_mounted:
                    await self._look_at(screen)

    async def _look_at(self, screen: Reads) -> None:
        try:
            await screen.read(self.client)
        except PenstockError as error:
            screen.tell_trouble(str(error))
        else:
            screen.tell_trouble("")
