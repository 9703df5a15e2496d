"""Agents in containers: which run, how they do, and calling them."""

from __future__ import annotations

from penstock.web.board.frame import Visit


async def build(visit: Visit) -> None:
    del visit
