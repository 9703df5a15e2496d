"""Promises 1 to 6 hold at every step of hundreds of random lives with injected faults (A2-A5, C1, C2, C7, E1).

Every life ends with every wait of every task held against the truth about it, second by second (see `truth`).
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.worlds import play

BLOCKS = 20
SOAK = bool(os.environ.get("PENSTOCK_SOAK"))
PER_BLOCK = 2500 if SOAK else 10  # 200 lives in `make test`, 50,000 in `make soak`


@pytest.mark.parametrize("block", range(BLOCKS))
def test_promises_hold_in_random_worlds(block: int) -> None:
    for seed in range(block * PER_BLOCK, (block + 1) * PER_BLOCK):
        try:
            play(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error} (replay: play({seed}))") from error


def test_promises_hold_where_the_store_is_away_now_and_then() -> None:
    """What ends meanwhile has ended then; what waits waits for the store, unless it is paused."""
    for seed in range(500 if SOAK else 20):
        try:
            play(seed, away=0.15)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error} (replay: play({seed}, away=0.15))") from error
