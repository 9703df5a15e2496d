"""What other slots and limits would have brought a run: sliders, before beside after, and the curve."""

from __future__ import annotations

from nicegui.element import Element

from penstock.web.board.chosen_run import choose_run
from penstock.web.board.frame import FILES, Visit


class WhatIf(Element, component=FILES / "whatif.js"):
    """The knobs of a run's plant, and what turning them would have brought."""

    def __init__(self, run: str) -> None:
        super().__init__()
        self._props["run"] = run


async def build(visit: Visit) -> None:
    run = await choose_run(visit, "/whatif", "to ask what other slots would have brought")
    if run:
        visit.title(f"What if {run}")
        WhatIf(run)
