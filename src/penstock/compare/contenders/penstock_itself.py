"""Penstock: a config and a store on the disk, the dispatcher, the hosts that speak OpenAI's API or run Python."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock
from penstock.client import Client
from penstock.compare.contenders.calls import body
from penstock.compare.plan import Ending, Opened, Place, Plan, Report, Runner, Work
from penstock.model import Result, Task

_LOOK_S = 5.0  # of the story, between two looks at a host that is down
_LEAST_S = 0.05
_AGING_S = 300.0
_BREAKER_RESET_S, _BREAKER_MOST_S = 5.0, 60.0


def opened(plan: Plan) -> Opened:
    return opened_with(plan, "async")


@contextmanager
def opened_with(plan: Plan, dispatcher: str) -> Iterator[Runner]:
    # With one thread per kind there are those threads and no processes.
    path = write_config(plan, "process" if dispatcher == "async" else "thread")
    with asyncio.Runner() as runner:
        door = penstock.open(path, dispatcher=dispatcher)
        client = runner.run(door.__aenter__())
        try:
            if plan.cpu_bound:
                runner.run(_warm_up(client, plan))
            yield lambda: runner.run(_work_through(client, plan))
        finally:
            runner.run(door.__aexit__(None, None, None))


async def _warm_up(client: Client, plan: Plan) -> None:
    """The worker processes of a host are started by its first tasks."""
    works = [
        Work(f"warm-up-{place.name}-{number}", plan.works[0].kind, 2, 0.0, 1)
        for place in plan.places
        for number in range(place.slots)
    ]
    await (await client.submit_many([_task(plan, work) for work in works])).wait()


async def _work_through(client: Client, plan: Plan) -> Report:
    began = time.monotonic()
    runs = []
    for at_s, works in plan.arrivals():
        await asyncio.sleep(max(0.0, began + at_s - time.monotonic()))
        runs.append(await client.submit_many([_task(plan, work) for work in works]))
    results = [result for run in runs for result in await run.wait()]
    return Report(tuple(map(_ending, results)), _noticed(results, plan))


def _task(plan: Plan, work: Work) -> Task:
    if plan.cpu_bound:
        payload: dict[str, Any] = {"task": work.id, "rounds": work.amount}
    else:
        payload = body(work)
    return Task(work.kind, payload, id=work.id, priority=work.priority)


def _ending(result: Result) -> Ending:
    answer = result.value
    if isinstance(answer, dict) and "text" in answer:
        answer = str(answer["text"]).split()[0]
    return Ending(result.task_id, answer, None if result.ok else result.error, result.attempts)


def _noticed(results: list[Result], plan: Plan) -> str:
    """What the waits of the tasks say of a host that was down."""
    down = [wait for result in results for wait in result.waits if wait.reason == "host-down"]
    if not down:
        return ""
    waiting = sum(any(wait.reason == "host-down" for wait in result.waits) for result in results)
    seconds = (max(wait.end for wait in down) - min(wait.start for wait in down)) / plan.scale
    return f"the dispatcher: {waiting} tasks waited for host-down, {seconds:.0f} s"


# ---- the config


def write_config(plan: Plan, isolation: str = "process") -> Path:
    """As somebody would write it, with its seconds as short as those of the story."""
    lines = [
        'store = "penstock.db"',
        f"aging_s = {_AGING_S * plan.scale}",
        f"retry = {{ retries = {plan.retries}, base_s = {plan.pause_s}, max_s = {plan.pause_s * 60} }}",
    ]
    for place in plan.places:
        lines += ["", f"[hosts.{place.name}]", *_host_lines(plan, place, isolation)]
    path = Path(plan.folder) / "penstock.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _host_lines(plan: Plan, place: Place, isolation: str) -> Iterator[str]:
    if plan.cpu_bound:
        yield 'type = "python"'
        yield 'call = "penstock.compare.contenders.computing:compute_payload"'
        yield f"isolation = {json.dumps(isolation)}"
    else:
        yield 'type = "openai"'
        yield f"url = {json.dumps(place.url)}"
        yield 'model = "simulated"'
        if plan.host_dies:
            yield f"health_s = {max(_LEAST_S, _LOOK_S * plan.scale)}"
            reset_s = _BREAKER_RESET_S * plan.scale
            yield f"breaker = {{ reset_s = {reset_s}, max_reset_s = {_BREAKER_MOST_S * plan.scale} }}"
    yield f"slots = {place.slots}"
    yield f"serves = {json.dumps(list(place.serves))}"
