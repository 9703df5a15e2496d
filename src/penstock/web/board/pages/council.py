"""Ask a council, and watch it answer."""

from __future__ import annotations

from penstock.web.board.frame import Visit


async def build(visit: Visit) -> None:
    del visit
