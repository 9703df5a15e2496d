"""The command that takes the pictures of the board for the docs."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.board_rig import Board, Chromium
from tests.acceptance.serve_rig import PATIENCE_S
from tools import board_screenshots

ROOT = Path(__file__).parent.parent.parent
SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
SIZES = {
    "setup-light.png": (1280, 800),
    "setup-dark.png": (1280, 800),
    "setup-narrow.png": (375, 740),
}


@pytest.mark.slow
def test_a_page_is_taken_light_dark_and_narrow(
    board: Board, chromium: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pictures have the sizes that the docs want, and are not empty.

    In the suite it is the board that all tests share; PENSTOCK_SOAK=1 has the command start a plant of its own.
    """
    if SOAK:
        command(tmp_path)
    else:
        monkeypatch.setattr(board_screenshots, "_SETTLE_MS", 100)
        with chromium.used() as browser:
            board_screenshots.pictures(browser, lambda name: board.at(f"/{name}"), tmp_path, SIZES)
    sizes = {}
    for file in tmp_path.iterdir():
        data = file.read_bytes()
        assert data.startswith(b"\x89PNG")
        assert 10_000 < len(data) < 150_000, file.name
        sizes[file.name] = struct.unpack(">II", data[16:24])
    assert sizes == SIZES


def command(out: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tools.board_screenshots", "--out", str(out), "--page", "setup"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert told.returncode == 0, told.stderr
