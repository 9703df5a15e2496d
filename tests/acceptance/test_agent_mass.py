"""B1, B8, B9: hundreds of callers of one agent at once, from cold, on real containers: one container, all answered.

In the suite there are fewer of them. `PENSTOCK_SOAK=1 pytest -s tests/acceptance/test_agent_mass.py` has ten rounds
of 200 processes, then of 50 HTTP clients, 50 processes and 50 files at once, and prints the figures of each.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from tests.acceptance.containers import ContainerEngine
from tests.acceptance.mass_rig import AGENT, CONCURRENCY, Mass, Said
from tests.acceptance.serve_rig import Serve, until
from tests.figures import Tell

pytestmark = pytest.mark.slow
SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
IN_TURN, AT_ONCE = "in turn", "at once"
COLD = [(20, IN_TURN), (10, AT_ONCE), (50, AT_ONCE), *[(200, AT_ONCE)] * 10] if SOAK else [(12, AT_ONCE)]
MIXED = 50 if SOAK else 8
UNDER_FAULT = 60 if SOAK else 8
HOLD_S = "1"  # what a command takes, so that a fault finds many under way


@pytest.fixture
def mass(container_engine: ContainerEngine, tmp_path: Path) -> Iterator[Mass]:
    made = Mass(tmp_path, container_engine)
    try:
        yield made
    finally:
        made.command("agent", "rm", AGENT)
    made.nothing_is_left()


@pytest.mark.parametrize(("callers", "how"), COLD)
def test_b1_b8_b9_from_cold_one_container_answers_all_who_come(
    mass: Mass, callers: int, how: str, tell: Tell
) -> None:
    words = [f"cold-{n}" for n in range(callers)]
    began = time.monotonic()
    said = mass.called(words) if how == AT_ONCE else [one for word in words for one in mass.called([word])]
    wall_s = time.monotonic() - began
    assert not [one for one in said if not one.is_right]
    assert mass.created() == 1

    stats = mass.stats()
    tell(f"{callers} processes {how} from cold: {wall_s:.1f} s, {_told(stats)}")
    assert (stats["calls"], stats["answered"], stats["success_rate"]) == (callers, callers, 1.0)
    assert (stats["pool"]["cold"], stats["start"]["count"]) == (1, 1)

    with mass.serve() as server:
        began = time.monotonic()
        asyncio.run(_mixed(mass, server))
        wall_s = time.monotonic() - began
    stats, calls = mass.stats(), callers + 3 * MIXED
    tell(f"{3 * MIXED} mixed through serve: {wall_s:.1f} s, of all calls so far: {_told(stats)}")
    assert (stats["calls"], stats["answered"], stats["pool"]["cold"]) == (calls, calls, 1)
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


# ---- a fault in the middle of it

Way = Literal["direct", "served"]


@contextmanager
def _way(mass: Mass, way: Way) -> Iterator[None]:
    if way == "direct":
        yield
        return
    with mass.serve():
        yield


def _under(mass: Mass, fault: Callable[[], object]) -> list[Said]:
    """Calls of which some are answered, some run and some wait when the fault comes."""
    words = [f"word-{n}" for n in range(UNDER_FAULT)]
    with mass.calls(words, "wait", HOLD_S) as calls:
        until(lambda: calls.begun() > CONCURRENCY, lambda: f"{calls.begun()} have begun")
        fault()
        said = calls.said()
    print(f"\n{_summed(said)}")
    assert not [one for one in said if not one.is_clear]
    return said


def _summed(said: list[Said]) -> str:
    return "; ".join(
        f"{count} {told}"
        for told, count in Counter(one.stderr.partition(": ")[2].strip() or "right" for one in said).items()
    )


@pytest.mark.parametrize("way", ["direct", "served"])
def test_b3_a_container_killed_under_load_costs_its_own_calls_alone(mass: Mass, way: Way) -> None:
    """Those that were in it end with an error of their own, those that were not get another one."""
    with _way(mass, way):
        said = _under(mass, mass.kill_container)
        assert any(one.is_right for one in said)
        [after] = mass.called(["after"])
        assert after.is_right
    assert mass.created() == 2
    assert len(mass.engine.left(mass.home)) == 1


@pytest.mark.parametrize("way", ["direct", "served"])
def test_b6_an_agent_restarted_under_load_loses_no_call(mass: Mass, way: Way) -> None:
    """What runs is finished in the old container; all who come meanwhile get the next one."""
    with _way(mass, way):
        said = _under(mass, lambda: mass.command("agent", "restart", AGENT))
        assert not [one for one in said if not one.is_right]
    assert mass.created() == 2
    assert len(mass.engine.left(mass.home)) == 1


@pytest.mark.parametrize("way", ["direct", "served"])
def test_b3_an_engine_that_is_restarted_under_load_is_not_noticed_by_those_who_have_a_container(
    container_engine: ContainerEngine, tmp_path: Path, way: Way
) -> None:
    with container_engine.another_service() as service:
        mass = Mass(tmp_path, container_engine, service.url)

        def restart() -> None:
            service.kill()
            service.start()

        with _way(mass, way):
            said = _under(mass, restart)
            assert not [one for one in said if not one.is_right]
            [after] = mass.called(["after"])
            assert after.is_right
        assert mass.created() == 1
        mass.command("agent", "rm", AGENT)
        mass.nothing_is_left()


def test_b3_an_engine_that_dies_while_all_wait_for_a_container_is_one_error_for_each(
    container_engine: ContainerEngine, tmp_path: Path
) -> None:
    with container_engine.another_service() as service:
        mass = Mass(tmp_path, container_engine, service.url)
        note = mass.agents_dir / AGENT / "start.json"
        with mass.calls([f"word-{n}" for n in range(UNDER_FAULT)]) as calls:
            until(note.exists, lambda: "nobody has begun to start it")
            service.kill()
            said = calls.said()
        print(f"\n{_summed(said)}")
        assert not [one for one in said if not one.is_clear]
        service.start()
        [after] = mass.called(["after"])
        assert after.is_right
        assert len(mass.engine.left(mass.home)) == 1
        mass.command("agent", "rm", AGENT)
        mass.nothing_is_left()
