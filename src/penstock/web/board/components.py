"""What happens in the browser, as elements: each class is a file in `files/` with a render function."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from nicegui.element import Element

_FILES = Path(__file__).parent / "files"


class Moment(Element, component=_FILES / "moment.js"):
    """A point in time in the reader's zone, exact on hover."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self._props["at"] = at


class Elapsed(Element, component=_FILES / "elapsed.js"):
    """How long something has taken; ticks until it has an end."""

    def __init__(self, since: float, until: float | None = None) -> None:
        super().__init__()
        self._props["since"] = since
        self._props["until"] = until

    def end(self, until: float) -> None:
        self._props["until"] = until
        self.update()


class LiveTitle(Element, component=_FILES / "live_title.js"):
    """The tab's title, as it changes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._props["text"] = text

    def say(self, text: str) -> None:
        if self._props["text"] != text:
            self._props["text"] = text
            self.update()


class ClockSetter(Element, component=_FILES / "clock_setter.js"):
    """Lets elapsed times go by the server's clock."""

    def __init__(self) -> None:
        super().__init__()
        self._props["at"] = time.time()


class ThemeSwitch(Element, component=_FILES / "theme_switch.js"):
    """Colours as the system has them, light, or dark."""


class Connection(Element, component=_FILES / "connection.js"):
    """Whether what the page shows is live."""


class Menu(Element, component=_FILES / "menu.js"):
    """Keeps the page that is shown in sight in the menu."""


class KeysButton(Element, component=_FILES / "keys_button.js"):
    """Shows the keys."""


class Keys(Element, component=_FILES / "keys.js"):
    """Keys for the whole board."""

    def __init__(self, pages: Sequence[tuple[str, str, str]]) -> None:
        super().__init__()
        self._props["pages"] = [dict(zip(("key", "title", "href"), page, strict=True)) for page in pages]
