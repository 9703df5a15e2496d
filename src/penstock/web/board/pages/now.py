"""What runs where, what waits, and why: live."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from nicegui.element import Element

from penstock.web.board.frame import FILES, Visit
from penstock.web.board.toolkit import BASE, guarded

LIVE = f"{BASE}/live/now"


class NowBoard(Element, component=Path(FILES) / "now.js"):
    """The plant this moment: it follows the event stream by itself, and says what somebody wants done."""

    def __init__(self, *, may_act: bool) -> None:
        super().__init__()
        self._props["may-act"] = may_act
        self._props["live"] = LIVE


async def build(visit: Visit) -> None:
    board = NowBoard(may_act=visit.viewer.may("admin"))

    async def act(wanted: dict[str, Any]) -> None:
        """What was asked for is seen in the picture, when it has been done; what was refused is told."""
        scope, name = str(wanted["scope"]), str(wanted["name"])
        what = "Everything" if scope == "all" else f"{scope.capitalize()} {name}"
        if wanted["do"] == "slots":
            slots = int(wanted["slots"])
            await visit.desk.api.post(
                visit.viewer, f"/api/hosts/{quote(name, safe='')}/slots", {"slots": slots}
            )
            visit.notice("good", f"{what} has {slots} {'slot' if slots == 1 else 'slots'}.")
        else:
            verb = "pause" if wanted["do"] == "pause" else "resume"
            await visit.desk.api.post(visit.viewer, f"/api/{verb}", {"scope": scope, "name": name})
            visit.notice("good", f"{what} is {'paused' if verb == 'pause' else 'resumed'}.")

    board.on("act", guarded(board, act))
