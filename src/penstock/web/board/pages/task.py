"""All about one task, and what can be done with it."""

from __future__ import annotations

from penstock.web.board.frame import Visit


async def build(visit: Visit) -> None:
    del visit
