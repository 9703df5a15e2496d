"""Fixtures that any acceptance test may use: this run's container engine, and the board with a browser."""

from __future__ import annotations

from tests.acceptance.board_rig import board, browser, chromium, page, watch_page
from tests.acceptance.containers import container_engine

__all__ = ["board", "browser", "chromium", "container_engine", "page", "watch_page"]
