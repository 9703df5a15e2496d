"""What happens in the browser, as elements: each class is a file in `files/` with a render function."""

from __future__ import annotations

from pathlib import Path

from nicegui.element import Element

_FILES = Path(__file__).parent / "files"


class Moment(Element, component=_FILES / "moment.js"):
    """A point in time in the reader's zone, exact on hover."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self._props["at"] = at
