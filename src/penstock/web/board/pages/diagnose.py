"""What went wrong in a run, with the evidence on its timeline."""

from __future__ import annotations

from penstock.web.board.frame import Visit


async def build(visit: Visit) -> None:
    del visit
