"""Very many calls at once: none is lost, lanes do each other no harm, nothing leaks, a crash is clean (C6, A4)."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from penstock.testing import ModelBehaviour, ModelServer
from tests.acceptance.serve_rig import PATIENCE_S, Serve, host, raise_file_limit, serving, until
from tests.figures import Tell

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
CALLS = 10_000 if SOAK else 120
CROWD = 1_000 if SOAK else 120
SLOTS = 50
SOCKETS_BESIDE = 500  # files of the test and the server that are no calls
LONG_S = (20 if SOAK else 1) * PATIENCE_S
MARGIN_BYTES = 64 * 1024 * 1024
QUIET = "health_s = 0"


def body(number: int) -> dict[str, Any]:
    return {"model": "simulated", "messages": [{"role": "user", "content": f"call {number}"}]}


async def ask(session: aiohttp.ClientSession, serve: Serve, number: int, **headers: str) -> tuple[int, str]:
    async with session.post(f"{serve.url}/chat/completions", json=body(number), headers=headers) as told:
        found = await told.json()
        return told.status, found["choices"][0]["message"]["content"] if told.status == 200 else str(found)


def session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=LONG_S, sock_connect=LONG_S),
    )


@pytest.mark.slow
async def test_c6_very_many_calls_wait_and_none_is_lost(tmp_path: Path, tell: Tell) -> None:
    """Nothing starts until all wait; then each gets its own answer, and the server is as it was."""
    calls = min(CALLS, raise_file_limit() - SOCKETS_BESIDE)
    with (
        ModelServer.in_thread(ModelBehaviour(tokens=2)) as upstream,
        serving(tmp_path, host("one", upstream.url, slots=SLOTS, more=QUIET)) as serve,
    ):
        async with session() as made:
            await round_of(made, serve, upstream, calls)  # a first round, for what is made once
            await asyncio.to_thread(until, lambda: serve.figures().held == 0, lambda: "connections stay")
            before = await asyncio.to_thread(serve.figures)
            began = time.perf_counter()
            await round_of(made, serve, upstream, calls)
            took_s = time.perf_counter() - began
        after = await asyncio.to_thread(serve.settle, before, rss_bytes=MARGIN_BYTES)
    tell(f"{calls} calls waited at once, all done in {took_s:.1f} s: {before} -> {after}")


async def round_of(made: aiohttp.ClientSession, serve: Serve, upstream: ModelServer, calls: int) -> None:
    upstream.hold()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(made, serve, number)) for number in range(calls)]

        def all_wait() -> bool:
            return serve.metrics()["penstock_calls_waiting"] == calls - SLOTS

        await asyncio.to_thread(until, all_wait, lambda: f"waiting: {serve.queued()}", LONG_S)
        assert serve.running() == SLOTS
        upstream.release()
    told = [one.result() for one in asked]
    assert Counter(status for status, _ in told) == {200: calls}
    assert [text for _, text in told] == [f"call {number}" for number in range(calls)]


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["reserve = { one = 10 }", "weight = 1"], ids=["reserve", "weight"])
async def test_a4_e4_a_full_lane_does_not_hold_up_another(tmp_path: Path, kept: str) -> None:
    """C6: very many calls of one lane wait when ten of another come; the ten start within a call's time.

    Told by positions. In the time of one call every slot comes free once, so no more starts than there are slots
    may lie between the arrival of the ten and the start of their last; with a reserve, none at all.
    """
    slots, many, few = 20, CROWD, 10
    reserved = few if "reserve" in kept else 0
    lanes = f"[lanes.bulk]\n[lanes.few]\n{kept}\n"
    with (
        ModelServer.in_thread() as upstream,
        serving(tmp_path, lanes + host("one", upstream.url, slots=slots, more=QUIET)) as serve,
    ):
        upstream.hold()
        async with session() as made, asyncio.TaskGroup() as group:
            bulk = [group.create_task(lane(made, serve, "bulk", n)) for n in range(many)]
            first = slots - reserved
            await until_queued(serve, many - first)
            own = [group.create_task(lane(made, serve, "few", n)) for n in range(few)]
            await until_queued(serve, many - first + few - reserved)
            if reserved:
                await asyncio.to_thread(until, lambda: serve.running() == slots, lambda: "the ten do not run")
            upstream.release()
        assert {one.result()[0] for one in (*bulk, *own)} == {200}
    with closing(sqlite3.connect(tmp_path / "penstock.db")) as store:
        rows = store.execute(
            # In the order of the log: of those that start in one step the times are the same.
            "SELECT t.lane FROM events e JOIN tasks t ON t.id = e.task WHERE e.type = 'started' ORDER BY e.number"
        )
        order = [name for (name,) in rows]
    assert len(order) == many + few
    last = max(place for place, name in enumerate(order) if name == "few")
    between = order[first:last].count("bulk")
    assert between == 0 if reserved else between + few <= slots, (between, last)


async def until_queued(serve: Serve, wanted: int) -> None:
    def told() -> str:
        return f"{serve.queued()} wait, not {wanted}"

    await asyncio.to_thread(until, lambda: serve.queued() == wanted, told, LONG_S)


async def lane(made: aiohttp.ClientSession, serve: Serve, name: str, number: int) -> tuple[int, str]:
    return await ask(made, serve, number, **{"X-Penstock-Lane": name})


async def test_promise_6_calls_of_a_killed_server_are_cancelled_and_tasks_run_on(tmp_path: Path) -> None:
    """Nobody waits for the calls any more; a task that was acknowledged is done by the next server."""
    with ModelServer.in_thread() as upstream:
        config = host("one", upstream.url, slots=2, more=QUIET)
        upstream.hold()
        with serving(tmp_path, config, stops=False) as serve:
            async with session() as made:
                asked = [asyncio.ensure_future(ask(made, serve, n)) for n in range(6)]
                await asyncio.to_thread(until, lambda: serve.queued() == 4, lambda: f"{serve.queued()} wait")
                task = serve.command("submit", "chat", '"a task"', "--model", "simulated").strip()
                await asyncio.to_thread(until, lambda: serve.queued() == 5, lambda: f"{serve.queued()} wait")
                serve.kill()
                broken = await asyncio.gather(*asked, return_exceptions=True)
                assert all(isinstance(one, aiohttp.ClientError) for one in broken), broken
        upstream.release()
        with serving(tmp_path, config) as again:

            def states() -> Counter[str]:
                return Counter(one["state"] for one in again.tasks())

            await asyncio.to_thread(
                until, lambda: states() == {"cancelled": 6, "done": 1}, lambda: str(states())
            )
            done = next(one for one in again.tasks() if one["state"] == "done")
            assert done["task_id"] == task
