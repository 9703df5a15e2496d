"""Beside the front door: LiteLLM's proxy and Router, `openai` with semaphores, and the server called directly.

LiteLLM runs with one worker, as ours does, without a database, without telemetry, and with its retries off.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.door import (
    BODY,
    MODEL,
    added_ms,
    broken_streams,
    calls_per_s,
    free_port,
    model_server,
    process,
    ready,
)
from benchmarks.frame import Bench, CannotRun, reference
from benchmarks.ours_door import CALL_S, CALLS, IDEAL_S, LITELLM, ROUTER, SLOTS, STREAM

DIRECT = "directly"
SEMAPHORES = "openai + semaphores"
_QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    "LITELLM_TELEMETRY": "False",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # it listens on loopback only
}

_CONFIG = """
model_list:
  - model_name: {model}
    litellm_params: {{model: openai/{model}, api_base: "{url}", api_key: none}}
litellm_settings: {{telemetry: false, num_retries: 0, set_verbose: false}}
general_settings: {{disable_spend_logs: true}}
"""


@contextmanager
def litellm_proxy(folder: Path, url: str) -> Iterator[str]:
    program = Path(__file__).parents[1] / ".venv-litellm-proxy" / "bin" / "litellm"
    if not program.exists():
        raise CannotRun("litellm[proxy] is not installed (make bench installs it)")
    (folder / "litellm.yaml").write_text(_CONFIG.format(model=MODEL, url=url))
    port = free_port()
    argv = [str(program), "--config", "litellm.yaml", "--host", "127.0.0.1", "--port", str(port)]
    with process(argv, folder, **_QUIET):
        yield ready(f"http://127.0.0.1:{port}/v1")


@reference("door-idle", LITELLM, what="added to a call when idle, median", unit="ms")
def litellm_idle(bench: Bench) -> float:
    with model_server(bench.folder) as url, litellm_proxy(bench.folder, url) as door:
        return asyncio.run(added_ms(url, door, bench.size(500, 200)))


def _throughput(at_once: int) -> None:
    what = f"calls through the door, {at_once:,} at once"

    @reference(f"door-{at_once}", LITELLM, what=what, unit="calls/s")
    def through_litellm(bench: Bench) -> float:
        with model_server(bench.folder) as url, litellm_proxy(bench.folder, url) as door:
            return asyncio.run(calls_per_s(door, bench.size(1500, 500), at_once))

    @reference(f"door-{at_once}", DIRECT, what=what, unit="calls/s")
    def directly(bench: Bench) -> float:
        with model_server(bench.folder) as url:
            return asyncio.run(calls_per_s(url, bench.size(5000, 2000), at_once))


for _at_once in (1, 10, 100, 1000):
    _throughput(_at_once)


@reference("door-streams", LITELLM, what="of 1,000 streams at once, broken", unit="streams")
def litellm_streams(bench: Bench) -> float:
    with model_server(bench.folder, **STREAM) as url, litellm_proxy(bench.folder, url) as door:
        return asyncio.run(broken_streams(door, 1000))


# ---- three hosts


def _over_hosts(bench: Bench, run: Callable[[list[str]], Awaitable[float]]) -> float:
    with ExitStack() as stack:
        urls = [stack.enter_context(model_server(bench.folder, first_token_s=CALL_S)) for _ in SLOTS]
        return asyncio.run(_awaited(run(urls))) / IDEAL_S


async def _awaited(run: Awaitable[float]) -> float:
    return await run


@reference("door-makespan", ROUTER, what="200 calls over three hosts", unit="×")
def router(bench: Bench) -> float:
    """It refuses what is over a host's limit instead of keeping it, so a semaphore stands before it."""
    os.environ |= _QUIET
    return _over_hosts(bench, _with_router)


async def _with_router(urls: list[str]) -> float:
    import litellm

    litellm.telemetry = False
    hosts: Any = [
        {
            "model_name": MODEL,
            "litellm_params": {
                "model": f"openai/{MODEL}",
                "api_base": url,
                "api_key": "none",
                "max_parallel_requests": slots,
            },
        }
        for url, slots in zip(urls, SLOTS, strict=True)
    ]
    router = litellm.Router(
        model_list=hosts, routing_strategy="least-busy", num_retries=100, retry_after=0, allowed_fails=10**6
    )
    room = asyncio.Semaphore(sum(SLOTS))

    async def call() -> None:
        async with room:
            await router.acompletion(model=MODEL, messages=BODY["messages"])

    return await _timed(call)


@reference("door-makespan", SEMAPHORES, what="200 calls over three hosts", unit="×")
def semaphores(bench: Bench) -> float:
    """What people write first: calls dealt out in turn, a semaphore per host."""
    return _over_hosts(bench, _with_semaphores)


async def _with_semaphores(urls: list[str]) -> float:
    from openai import AsyncOpenAI

    clients = [AsyncOpenAI(base_url=url, api_key="none", max_retries=0) for url in urls]
    rooms = [asyncio.Semaphore(slots) for slots in SLOTS]
    turns = cycle(range(len(urls)))

    async def call() -> None:
        host = next(islice(turns, 1))
        async with rooms[host]:
            await clients[host].chat.completions.create(**BODY)  # type: ignore[call-overload]

    return await _timed(call)


async def _timed(call: Callable[[], Awaitable[None]]) -> float:
    for _ in range(3):
        await call()
    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(CALLS)))
    return time.perf_counter() - began
