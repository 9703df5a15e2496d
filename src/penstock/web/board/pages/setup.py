"""Hosts and how they are, the config with its errors, tokens."""

from __future__ import annotations

from penstock.web.board.frame import Visit


async def build(visit: Visit) -> None:
    del visit
