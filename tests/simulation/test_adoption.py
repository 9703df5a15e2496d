"""Attempts that outlive their dispatcher: promises 1 to 6 hold where the next one goes on with some of what ran.

The lives are those of `test_promises`, on hosts most of whose attempts survive a crash, or an orderly stop.
An adopted attempt is the same attempt, holds its room from the first step on, and ends its task once; to those that
wait, it is in the way like any other. By turns dispatchers have one thread per kind, so that one may be given two
attempts that it would never have started side by side.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.worlds import play

BLOCKS = 6
SOAK = bool(os.environ.get("PENSTOCK_SOAK"))
PER_BLOCK = 1250 if SOAK else 12


@pytest.mark.parametrize("block", range(BLOCKS))
def test_what_outlives_its_dispatcher_is_adopted_and_every_promise_holds(block: int) -> None:
    adopted = 0
    for seed in range(block * PER_BLOCK, (block + 1) * PER_BLOCK):
        switches = seed % 3 == 2
        try:
            adopted += play(seed, switches=switches, outlives=True).adopted
        except AssertionError as error:
            told = f"play({seed}, switches={switches}, outlives=True)"
            raise AssertionError(f"seed {seed}: {error} (replay: {told})") from error
    assert adopted > PER_BLOCK // 2, "hardly anything outlived its dispatcher"
