"""What ran when, and what waiting was for: of a run, or of the last hour."""

from __future__ import annotations

from penstock.web.board.frame import Visit


async def build(visit: Visit) -> None:
    del visit
