"""Several panels in one place, of which one is shown.

parts = tabs("Parts of the task", ["Payload", "Result"])
with parts.panel("Payload"):
    code_block(payload)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nicegui.element import Element
from nicegui.slot import Slot

from penstock.web.board.notices import attempted


class Tabs(Element, component=Path(__file__).parent / "files" / "tabs.js"):
    def __init__(self, label: str, names: Sequence[str], chosen: str | None) -> None:
        super().__init__()
        self.names = list(names)
        self._props["label"] = label
        self._props["names"] = self.names
        self._props["chosen"] = 0 if chosen is None else self.names.index(chosen)
        self._props["turn"] = 0
        for place in range(len(self.names)):
            self.add_slot(f"panel{place}")

    def panel(self, name: str) -> Slot:
        return self.slots[f"panel{self.names.index(name)}"]

    def choose(self, name: str) -> None:
        self._props["chosen"] = self.names.index(name)
        self._props["turn"] += 1
        self.update()

    def rename(self, name: str, shown: str) -> None:
        """Other words on a tab, such as a count; `panel` still knows it by its name."""
        told = list(self._props["names"])
        told[self.names.index(name)] = shown
        self._props["names"] = told
        self.update()


def tabs(
    label: str,
    names: Sequence[str],
    *,
    chosen: str | None = None,
    on_change: Callable[[str], Any] | None = None,
) -> Tabs:
    made = Tabs(label, names, chosen)

    async def changed(event: Any) -> None:
        made._props["chosen"] = event.args
        if on_change is not None:
            await attempted(made.client, on_change, made.names[event.args])

    made.on("change", changed)
    return made
