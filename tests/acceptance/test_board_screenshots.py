"""The command that takes the pictures of the board for the docs."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.serve_rig import PATIENCE_S

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_a_page_is_taken_light_dark_and_narrow(tmp_path: Path) -> None:
    """Of a plant that it starts itself; the pictures have the sizes that the docs want, and are not empty."""
    told = subprocess.run(
        [sys.executable, "-m", "tools.board_screenshots", "--out", str(tmp_path), "--page", "setup"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    sizes = {}
    for file in tmp_path.iterdir():
        data = file.read_bytes()
        assert data.startswith(b"\x89PNG")
        assert 10_000 < len(data) < 150_000, file.name
        sizes[file.name] = struct.unpack(">II", data[16:24])
    assert sizes == {
        "setup-light.png": (1280, 800),
        "setup-dark.png": (1280, 800),
        "setup-narrow.png": (375, 740),
    }
