"""The keeper of a warm pool on a simulated engine: whatever fails, each call ends and the pool recovers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.config.agents import Pool
from tests.simulation.pool_world import World


async def test_a_call_from_cold_starts_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(str(tmp_path), Pool(), monkeypatch)
    await world.keeper.open()
    await world.passes(100)
    assert world.states == []  # nobody asked
    for _ in range(8):
        world.call(1.0)
    await world.until(lambda: not world.calls)
    assert world.outcomes == ["done"] * 8
    assert world.states == ["running"]
    await world.passes(700)
    assert world.states == []  # idle_s
    assert world.files.read() == []
    await world.ended(asyncio.ensure_future(world.keeper.close()))


async def test_spares_are_paused_resumed_and_refilled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), Pool(containers=2, concurrency=1, warm=1), monkeypatch)
    await world.keeper.open()
    await world.passes(20)
    assert world.states == ["paused"]
    assert world.agrees()
    begun = world.clock.now()
    await world.ended(world.call(0.0))
    assert world.clock.now() - begun < world.starter.start_s  # it was not started, but woken
    await world.passes(3)
    assert world.states == ["running", "running"]  # another spare one
    await world.passes(20)
    assert world.states == ["paused", "running"]
    await world.passes(700)
    assert world.states == ["paused"]
    found = world.keeper.statistics()
    assert (found.started, found.resumed, found.ended, found.leases) == (2, 1, 1, 1)
    await world.ended(asyncio.ensure_future(world.keeper.close()))
