"""What of a task may be long, on its page: payload, result, and what its attempts said."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from nicegui.element import Element

from penstock.config import Config
from penstock.hosts.attempt_logs import keeps_logs
from penstock.web.board.elements import section, tag
from penstock.web.board.forms import select
from penstock.web.board.task_data import MOST_SHOWN_BYTES, beginning_of, said_at_end
from penstock.web.board.task_reading import Seen

_FILES = Path(__file__).parent / "files"


class LongText(Element, component=_FILES / "long_text.js"):
    """Its beginning, and all of it when it is asked for."""

    def __init__(self, label: str, url: str) -> None:
        super().__init__()
        for name, value in {"label": label, "url": url, "most": MOST_SHOWN_BYTES}.items():
            self._props[name] = value


class LogText(Element, component=_FILES / "attempt_log.js"):
    """What an attempt said, live while it runs."""

    def follow(self, label: str, url: str) -> None:
        if self._props.get("url") != url:
            self._props["label"] = label
            self._props["url"] = url
            self.update()


class Copy(Element, component=_FILES / "copy.js"):
    """A button that copies a text."""

    def __init__(self, text: str, what: str, label: str = "Copy") -> None:
        super().__init__()
        for name, value in {"text": text, "what": what, "label": label}.items():
            self._props[name] = value


class Whole:
    """The payload, or the result once there is one."""

    def __init__(self, title: str, url: str) -> None:
        self._part = section(title)
        with self._part:
            self._text = LongText(title, url)
        self._value: Any = None
        hide(self._part)

    async def show(self, value: Any) -> None:
        if value is None or value == self._value:
            return
        self._value = value
        told = await asyncio.to_thread(beginning_of, value)
        for name, one in {"text": told.beginning, "bytes": told.bytes, "is_cut": told.is_cut}.items():
            self._text._props[name] = one
        self._text.update()
        hide(self._part, False)


class Logs:
    """The log of one attempt: the latest that has one, unless another is chosen."""

    def __init__(self, config: Config, url: str) -> None:
        self._config = config
        self._url = url
        self._offered: list[int] = []
        self._part = section("Log")
        with self._part:
            self._bar = tag("div", class_="log-bar")
            with self._bar:
                self._choice = select("Attempt", {}, on_change=self._follow, hide_label=True)
        self._log: LogText | None = None  # it begins to read when it is made
        hide(self._part)

    def show(self, seen: Seen) -> None:
        said = said_at_end(seen.events)
        offered = [one for one in seen.attempts if one.number in said or keeps_logs(self._config, one.host)]
        numbers = [one.number for one in offered]
        if not numbers or numbers == self._offered:
            return
        hide(self._part, False)
        hide(self._bar, len(numbers) == 1)
        was_latest = not self._offered or self._choice.value == str(self._offered[-1])
        self._offered = numbers
        options = {str(one.number): f"Attempt {one.number} on {one.host}" for one in offered}
        self._choice.offer(options, str(numbers[-1]) if was_latest else None)
        self._follow()

    def _follow(self) -> None:
        number = self._choice.value
        with self._part:
            self._log = self._log or LogText()
        self._log.follow(f"Log of attempt {number}", f"{self._url}?attempt={number}")


def hide(element: Element, hidden: bool = True) -> None:
    if hidden:
        element._props["hidden"] = True
    else:
        element._props.pop("hidden", None)
    element.update()
