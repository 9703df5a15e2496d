"""The promises where hosts are many: what a tier keeps sorted for the sake of thousands is used from the first."""

from __future__ import annotations

import os

import pytest

from penstock.scheduling import tiers
from tests.simulation.worlds import play

LIVES = 2000 if os.environ.get("PENSTOCK_SOAK") else 20


@pytest.mark.parametrize("block", range(2))
def test_promises_hold_where_hosts_are_kept_sorted(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_SMALL_TIER", 0)
    for seed in range(10_000 + block * LIVES, 10_000 + (block + 1) * LIVES):
        try:
            play(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
