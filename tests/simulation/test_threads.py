"""C8: one thread per kind keeps the same promises, and dispatchers of both sorts by turns lose nothing.

The lives are those of `test_promises`, but each dispatcher that begins is of the other sort than the last: the
referee sees that no two tasks of a kind overlap where kinds have threads, and the truth that the reasons say so.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.worlds import play

BLOCKS = 4
SOAK = bool(os.environ.get("PENSTOCK_SOAK"))
PER_BLOCK = 1250 if SOAK else 12


@pytest.mark.parametrize("block", range(BLOCKS))
def test_c8_switching_to_and_fro_keeps_every_promise(block: int) -> None:
    for seed in range(block * PER_BLOCK, (block + 1) * PER_BLOCK):
        try:
            play(seed, switches=True)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error} (replay: play({seed}, switches=True))") from error
