"""B1, B8, B9: hundreds of callers of one agent at once, from cold, on real containers: one container, all answered.

In the suite there are fewer of them. `PENSTOCK_SOAK=1 pytest -s tests/acceptance/test_agent_mass.py` has ten rounds
of 200 processes, then of 50 HTTP clients, 50 processes and 50 files at once, and prints the figures of each.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.containers import ContainerEngine
from tests.acceptance.mass_rig import AGENT, Mass
from tests.acceptance.serve_rig import Serve

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
COLD = (1, 10, 50, *[200] * 10) if SOAK else (40,)
MIXED = 50 if SOAK else 12
UNDER_FAULT = 60 if SOAK else 16
HOLD_S = "0.2"  # what a command takes, so that a fault finds many under way


@pytest.fixture
def mass(container_engine: ContainerEngine, tmp_path: Path) -> Iterator[Mass]:
    made = Mass(tmp_path, container_engine)
    try:
        yield made
    finally:
        made.command("agent", "rm", AGENT)
    made.nothing_is_left()


@pytest.mark.slow
@pytest.mark.parametrize("callers", COLD)
def test_b1_b8_b9_from_cold_one_container_answers_all_who_come_at_once(mass: Mass, callers: int) -> None:
    began = time.monotonic()
    said = mass.called([f"cold-{n}" for n in range(callers)])
    wall_s = time.monotonic() - began
    assert not [one for one in said if not one.is_right]
    assert mass.created() == 1

    stats = mass.stats()
    print(f"\n{callers:4} processes from cold: {wall_s:.1f} s, {_told(stats)}")
    assert (stats["calls"], stats["answered"], stats["success_rate"]) == (callers, callers, 1.0)
    assert (stats["pool"]["cold"], stats["start"]["count"]) == (1, 1)

    with mass.serve() as server:
        began = time.monotonic()
        asyncio.run(_mixed(mass, server))
        print(f"{3 * MIXED:4} mixed through serve: {time.monotonic() - began:.1f} s")
    assert mass.created() == 1
    assert len(mass.engine.left(mass.home)) == 1


async def _mixed(mass: Mass, server: Serve) -> None:
    """HTTP, processes and files, all at once."""
    by_http, by_cli, by_file = ([f"{way}-{n}" for n in range(MIXED)] for way in ("http", "cli", "file"))
    async with asyncio.TaskGroup() as group:
        files = group.create_task(asyncio.to_thread(mass.leave_requests, by_file))
        calls = group.create_task(asyncio.to_thread(mass.called, by_cli))
        asked = group.create_task(mass.asked(server, by_http))
    assert files.done()
    assert asked.result() == {word: word for word in by_http}
    assert not [one for one in calls.result() if not one.is_right]
    assert await asyncio.to_thread(mass.responses, by_file) == {word: word for word in by_file}
    assert mass.folder_errors() == []


def _told(stats: dict[str, dict[str, float]]) -> str:
    wait, start, ready = stats["lock_wait"], stats["start"], stats["ready"]
    return (
        f"success {stats['success_rate']:.0%}, lock wait p50 {wait['p50_s']:.2f} s max {wait['max_s']:.2f} s, "
        f"start {start['max_s']:.2f} s, ready {ready['max_s']:.2f} s, hit rate {stats['cache_hit_rate']:.0%}"
    )
