"""Parts of the Council page that live in the browser: the form to ask with, and a question as it is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nicegui.element import Element

_FILES = Path(__file__).parent / "files"


class Told(Element):
    """One that is told more as it comes."""

    def tell(self, **props: Any) -> None:
        if any(self._props.get(name) != value for name, value in props.items()):
            self._props.update(props)
            self.update()


class AskForm(Told, component=_FILES / "council_ask.js"):
    """Says `ask` and `estimate` with the body of a question, and `afresh` when it is to follow none."""

    def __init__(self, council: Mapping[str, Any]) -> None:
        super().__init__()
        self._props["council"] = dict(council)

    def count(self, name: str) -> None:
        """Once more: what the browser does each time that such a number grows."""
        self.tell(**{name: self._props.get(name, 0) + 1})


class Question(Told, component=_FILES / "council_question.js"):
    """Follows a question by itself. Says `cancel`, `follow`, and `over` when there is no more to come."""

    def __init__(self, *, members: Sequence[Mapping[str, Any]], **told: Any) -> None:
        super().__init__()
        self._props |= {"members": list(members), **told}
