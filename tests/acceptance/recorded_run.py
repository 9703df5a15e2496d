"""A recorded run in the board's plant, with a fault in it, and what the commands say of it.

A lane runs its tasks one at a time, beside three free slots.
"""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from penstock.cli.app import main
from tests.acceptance.board_rig import Board

RUN = "serial-pages"
KEY = "lanes.pages.max_running"
_FILE = Path(__file__).parent / "recorded" / f"{RUN}.jsonl"


def command(board: Board, *arguments: str) -> str:
    """What a command prints. In a thread of its own: in that of the test the browser's loop is running."""

    def run() -> str:
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with redirect_stdout(printed):
            status = main(["--config", str(board.serve.folder / "penstock.toml"), *arguments])
        printed.seek(0)
        said = printed.read()
        assert status == 0, said
        return said

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


def record(board: Board, *arguments: str) -> Any:
    return json.loads(command(board, *arguments, "--json"))


def take_in(board: Board) -> str:
    """Once in a session is enough."""
    if not board.get(f"/api/tasks?run={RUN}&limit=1")["tasks"]:
        command(board, "import", str(_FILE))
    return RUN
