"""What is told to the reader as it happens, and handlers whose errors are told so.

notice("good", "Cancelled 3 tasks.")
element.on("pick", guarded(element, picked))
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

from nicegui import Client, context
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from penstock.errors import PenstockError

Kind = Literal["good", "info", "warning", "error"]
_MOST = 4  # more would hide the page


class Notices(Element, component=Path(__file__).parent / "files" / "notices.js"):
    """The corner of a page where notices stand: a polite live region."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count()
        self._props["notices"] = []
        self.on("gone", lambda event: self._take(event.args))
        _OF_PAGES[self.client] = self

    def tell(self, kind: Kind, text: str) -> None:
        kept = self._props["notices"][-(_MOST - 1) :]
        self._props["notices"] = [*kept, {"id": next(self._numbers), "kind": kind, "text": text}]
        self.update()

    def _take(self, number: int) -> None:
        self._props["notices"] = [one for one in self._props["notices"] if one["id"] != number]
        self.update()


_OF_PAGES: WeakKeyDictionary[Client, Notices] = WeakKeyDictionary()


def notice(kind: Kind, text: str, *, client: Client | None = None) -> None:
    """In the page whose handler calls it, or in that of `client`."""
    told = _OF_PAGES.get(client or context.client)
    if told is not None:
        told.tell(kind, text)


def guarded(
    element: Element, handler: Callable[..., Any]
) -> Callable[[GenericEventArguments], Awaitable[None]]:
    """A handler, async or not, whose errors are told to the reader; it gets the event's value if it wants one."""
    wants_value = bool(inspect.signature(handler).parameters)

    async def handled(event: GenericEventArguments) -> None:
        await attempted(element.client, handler, *([event.args] if wants_value else []))

    return handled


async def attempted(client: Client, handler: Callable[..., Any], *args: Any) -> None:
    """Calls it; an error of ours is told in full, another is told and logged."""
    try:
        result = handler(*args)
        if inspect.isawaitable(result):
            await result
    except PenstockError as error:
        notice("error", str(error), client=client)
    except Exception as error:
        notice("error", f"that failed ({type(error).__name__}); the server's log says more", client=client)
        raise
