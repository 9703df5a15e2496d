"""Buttons that work for a while, and dialogs that ask first.

button("Retry", retry, kind="main")
button("Cancel", cancel, kind="danger", confirm="Cancel 3 tasks? What they have done so far is lost.")
with dialog("Change priority") as asked:
    ...
button("Change priority…", asked.open)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from nicegui.element import Element

from penstock.web.board.elements import prose, tag
from penstock.web.board.notices import attempted

Look = Literal["plain", "main", "danger", "quiet"]


class Dialog(Element, component=Path(__file__).parent / "files" / "dialog.js"):
    """A native modal dialog. It is closed at first; Escape closes it too, and `on_close` hears of either."""

    def __init__(self, title: str, *, wide: bool = False, on_close: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self._props["title"] = title
        self._props["wide"] = wide
        self._props["open"] = False
        self._on_close = on_close
        self.on("close", self._closed)

    def open(self) -> None:
        self._props["open"] = True
        self.update()

    def close(self) -> None:
        self._props["open"] = False
        self.update()

    async def _closed(self) -> None:
        if self._props["open"]:
            self._props["open"] = False
            self.update()
        if self._on_close is not None:
            await attempted(self.client, self._on_close)


def dialog(title: str, *, wide: bool = False, on_close: Callable[[], Any] | None = None) -> Dialog:
    return Dialog(title, wide=wide, on_close=on_close)


class Button(Element):
    """A native button. While its handler works it is busy, and further presses do nothing."""

    def __init__(self, label: str, on_click: Callable[[], Any], kind: Look, confirm: str | None) -> None:
        super().__init__("button")
        self._label = self._text = label
        self._handler = on_click
        self._busy = False
        self._why_not: str | None = None
        self._asked: Dialog | None = None
        self._confirm = confirm
        self._props["type"] = "button"
        self.classes(f"button {kind}")
        self.on("click", self._pressed, args=[])

    def say(self, label: str) -> None:
        if label != self._label:
            self._label = label
            self._tell()

    def enable(self, why_not: str | None = None) -> None:
        """With a reason it cannot be pressed, and the reason stands on hover; without, it can. Not `disabled`: the
        focus would be lost with it, and whoever comes by keyboard would not learn the reason."""
        self._why_not = why_not
        if why_not is None:
            self._props.pop("title", None)
        else:
            self._props["title"] = why_not
        self._tell()

    async def _pressed(self) -> None:
        if self._busy or self._why_not is not None:
            return
        if self._confirm is None:
            await self._work()
        else:
            self._ask(self._confirm)

    async def _work(self) -> None:
        self._busy = True
        self._props["aria-busy"] = "true"
        self._tell()
        try:
            await attempted(self.client, self._handler)
        finally:
            self._busy = False
            if not self.is_deleted:
                del self._props["aria-busy"]
                self._tell()

    def _tell(self) -> None:
        self._text = f"{self._label.removesuffix('…')}…" if self._busy else self._label
        if self._busy or self._why_not is not None:
            self._props["aria-disabled"] = "true"
        else:
            self._props.pop("aria-disabled", None)
        self.update()

    def _ask(self, question: str) -> None:
        if self._asked is None:
            with self.client.content, dialog(self._label.removesuffix("…")) as self._asked:
                prose("p", question)
                with tag("div", class_="actions"):
                    button("No, go back", self._asked.close)
                    button(self._label.removesuffix("…"), self._agreed, kind="danger")
        self._asked.open()

    async def _agreed(self) -> None:
        if self._asked is not None:
            self._asked.close()
        await self._work()

    def _handle_delete(self) -> None:
        if self._asked is not None and not self._asked.is_deleted:
            with suppress(ValueError):  # the whole page goes, and its content has let go of it already
                self._asked.delete()
        super()._handle_delete()


def button(
    label: str,
    on_click: Callable[[], Any],
    kind: Look = "plain",
    confirm: str | None = None,
    **attributes: Any,
) -> Button:
    """`on_click` may be async; a `PenstockError` from it becomes a notice. `confirm` is asked first."""
    made = Button(label, on_click, kind, confirm)
    for attribute, value in attributes.items():
        if value is not None:
            made._props[attribute.rstrip("_").replace("_", "-")] = value
    return made
