"""What went wrong in a run, with the evidence on its timeline."""

from __future__ import annotations

from nicegui.element import Element

from penstock.web.board.analysis_routes import MOST_LOG_BYTES
from penstock.web.board.chosen_run import choose_run
from penstock.web.board.frame import FILES, Visit


class Findings(Element, component=FILES / "diagnosis.js"):
    """The findings of a run beside its timeline, and of a log that somebody gives it."""

    def __init__(self, run: str, csrf: str) -> None:
        super().__init__()
        self._props["run"] = run
        self._props["csrf"] = csrf
        self._props["most_bytes"] = MOST_LOG_BYTES


async def build(visit: Visit) -> None:
    run = await choose_run(visit, "/diagnose", "to see what held it up")
    if run:
        visit.title(f"Diagnose {run}")
    Findings(run, visit.viewer.csrf)
