"""The front door: what it adds to a call, how much goes through, and three hosts kept full."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack

import aiohttp

from benchmarks.door import added_ms, broken_streams, call, calls_per_s, model_server, penstock
from benchmarks.frame import Bench, at_least, at_most, benchmark

LITELLM = "LiteLLM proxy"
ROUTER = "LiteLLM Router"
MANY = 4096  # slots: the server itself has no limit
SLOTS = (2, 3, 2)
CALLS, CALL_S = 200, 0.05
IDEAL_S = CALLS * CALL_S / sum(SLOTS)
STREAM = {"tokens": 40, "tokens_per_s": 20}  # two seconds each, so that all are open at once


def through(bench: Bench, at_once: int) -> float:
    with model_server(bench.folder) as url, penstock(bench.folder, [(url, MANY)]) as door:
        return asyncio.run(calls_per_s(door, bench.size(3000, 1000), at_once))


@benchmark(
    "door-idle",
    what="added to a call when idle, median",
    unit="ms",
    goal=at_most(2),
    against={LITELLM: at_most(1)},
)
def idle(bench: Bench) -> float:
    with model_server(bench.folder) as url, penstock(bench.folder, [(url, MANY)]) as door:
        return asyncio.run(added_ms(url, door, bench.size(500, 200)))


@benchmark("door-1", what="calls through the door, 1 at once", unit="calls/s")
def one(bench: Bench) -> float:
    return through(bench, 1)


@benchmark(
    "door-10", what="calls through the door, 10 at once", unit="calls/s", against={LITELLM: at_least(5)}
)
def ten(bench: Bench) -> float:
    return through(bench, 10)


@benchmark(
    "door-100", what="calls through the door, 100 at once", unit="calls/s", against={LITELLM: at_least(5)}
)
def hundred(bench: Bench) -> float:
    return through(bench, 100)


@benchmark(
    "door-1000", what="calls through the door, 1,000 at once", unit="calls/s", against={LITELLM: at_least(5)}
)
def thousand(bench: Bench) -> float:
    return through(bench, 1000)


@benchmark("door-streams", what="of 1,000 streams at once, broken", unit="streams", goal=at_most(0))
def streams(bench: Bench) -> float:
    with model_server(bench.folder, **STREAM) as url, penstock(bench.folder, [(url, MANY)]) as door:
        return asyncio.run(broken_streams(door, 1000))


@benchmark(
    "door-makespan",
    what=f"{CALLS} calls of {CALL_S * 1000:.0f} ms over slots {'/'.join(map(str, SLOTS))}, against the ideal",
    unit="×",
    against={ROUTER: at_most(1), "openai + semaphores": at_most(1)},
)
def makespan(bench: Bench) -> float:
    with ExitStack() as stack:
        hosts = [
            (stack.enter_context(model_server(bench.folder, first_token_s=CALL_S)), slots) for slots in SLOTS
        ]
        door = stack.enter_context(penstock(bench.folder, hosts))
        return asyncio.run(_all_at_once(door)) / IDEAL_S


async def _all_at_once(url: str) -> float:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for _ in range(3):
            await call(session, url)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLS):
                group.create_task(call(session, url))
        return time.perf_counter() - began
