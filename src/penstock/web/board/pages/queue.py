"""Tasks, searched and filtered by the store, and what can be done with a selection."""

from __future__ import annotations

from penstock.web.board.frame import Visit


async def build(visit: Visit) -> None:
    del visit
