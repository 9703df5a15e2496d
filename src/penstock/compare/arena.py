"""One story through one contender: real model servers on loopback, the contender in a process of its own.

The servers are the judges: what they saw, and when, is what is measured. They run here, so the contender's memory,
threads and context switches are its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.compare.contenders import CONTENDERS
from penstock.compare.judge import Figures, Raw, Span, judge
from penstock.compare.machine import Others
from penstock.compare.meter import Meter
from penstock.compare.plan import Ending, Place, Plan, Work
from penstock.compare.stories import TOKENS_PER_S, Death, Story
from penstock.compare.workloads import duration_s
from penstock.errors import PenstockError
from penstock.model import Host
from penstock.testing import ModelBehaviour, ModelServer

RETRIES = 2
PAUSE_S = 1.0  # of the story, before the second try
_MODULE = "penstock.compare.contenders.process"
_LINE_BYTES = 64 * 1024 * 1024
_START_S = 60.0
_LEAVE_S = 20.0
_PATIENCE = 3.0  # times as long as one task after the other; who is not through then hangs
_LEAST_S = 30.0
# Of the story, between the word to die and the death: the calls of this moment are under way.
_MID_CALL_S = 3.0
_MANY = 1_000_000  # spans that a server keeps


async def play(story: Story, contender: str, scale: float, rounds_per_s: float, folder: Path) -> Figures:
    """In an empty folder of its own. `rounds_per_s`: of computing, the same for all contenders."""
    async with AsyncExitStack() as stack:
        servers: dict[str, ModelServer] = {}
        if not story.cpu_bound:
            for host in story.workload.plant.hosts:
                server = ModelServer(_behaviour(story, host, scale), remember=_MANY)
                servers[host.name] = await stack.enter_async_context(server)
        urls = {name: server.url for name, server in servers.items()}
        plan = plan_of(story, scale, rounds_per_s, folder, urls)
        try:
            raw = await _race(contender, plan, story, servers)
        except ContenderBroke as broken:
            return Figures.broken(contender, str(broken))
    return judge(story, contender, scale, raw)


def _behaviour(story: Story, host: Host, scale: float) -> ModelBehaviour:
    """The first token takes as long as any other, so that n tokens take n times as long as one."""
    token_s = scale / TOKENS_PER_S
    return ModelBehaviour(slots=story.true_slots(host), first_token_s=token_s, tokens_per_s=1 / token_s)


def plan_of(story: Story, scale: float, rounds_per_s: float, folder: Path, urls: Mapping[str, str]) -> Plan:
    per_s = rounds_per_s * scale if story.cpu_bound else float(TOKENS_PER_S)
    works = tuple(
        Work(
            task.id,
            task.kind,
            task.priority,
            story.arrival_s(task) * scale,
            max(1, round(duration_s(task) * per_s)),
        )
        for task in story.workload.tasks
    )
    places = tuple(
        Place(host.name, urls.get(host.name, ""), host.slots, host.serves)
        for host in story.workload.plant.hosts
    )
    return Plan(
        cpu_bound=story.cpu_bound,
        places=places,
        works=works,
        scale=scale,
        retries=RETRIES,
        pause_s=PAUSE_S * scale,
        timeout_s=_limit_s(story, scale),
        folder=str(folder),
        host_dies=story.death is not None,
    )


def _limit_s(story: Story, scale: float) -> float:
    return max(_LEAST_S, story.work_s * scale * _PATIENCE)


# ---- the race


class ContenderBroke(PenstockError):
    """A contender ended, or did not end, in a way that leaves nothing to measure."""


async def _race(contender: str, plan: Plan, story: Story, servers: Mapping[str, ModelServer]) -> Raw:
    async with _process(contender, Path(plan.folder)) as process:
        _say(process, plan.as_json())
        await _heard(process, contender, _START_S)
        meter, others = Meter(process.pid), Others()
        with meter.watching():
            async with _dying(story.death, plan.scale, servers) as down:
                _say(process, "go")
                told = await _heard(process, contender, plan.timeout_s)
        cpu_s = told["cpu_s"] + meter.taken.cpu_s
        others_cores = others.cores(cpu_s)
        _say(process, "end")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _LEAVE_S)
    endings = tuple(Ending(**ending) for ending in told["endings"])
    if plan.cpu_bound:
        spans = _computed(plan, endings)
    else:
        spans = [span for name, server in servers.items() for span in _seen(name, server)]
    taken = meter.taken
    return Raw(
        told["began"],
        told["ended"],
        endings,
        told["noticed"],
        tuple(down),
        tuple(spans),
        taken,
        told["switches"] + taken.switches,
        cpu_s,
        others_cores,
    )


def _seen(host: str, server: ModelServer) -> list[Span]:
    return [
        Span(span.request.last_text, host, span.arrived, span.began, span.ended, span.fate)
        for span in server.spans
    ]


def _computed(plan: Plan, endings: tuple[Ending, ...]) -> list[Span]:
    place = plan.places[0].name
    answers = [ending.answer for ending in endings if isinstance(ending.answer, dict)]
    return [Span(a["task"], place, a["began"], a["began"], a["ended"], "served") for a in answers]


@asynccontextmanager
async def _dying(
    death: Death | None, scale: float, servers: Mapping[str, ModelServer]
) -> AsyncIterator[list[float]]:
    """The host dies in the middle of a call, and is back in time, whatever the contender does meanwhile.

    What it gives is filled with the moments of its end and of its return.
    """
    moments: list[float] = []
    if death is None:
        yield moments
        return
    try:
        async with asyncio.TaskGroup() as group:
            dying = group.create_task(_die(death, scale, servers[death.host], moments))
            yield moments
            dying.cancel()
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None


async def _die(
    death: Death, scale: float, server: ModelServer, moments: list[float], least_s: float = _LEAST_S
) -> None:
    patience_s = max(least_s, death.latest_s * scale)
    with contextlib.suppress(TimeoutError):  # it was given no such calls: it dies without
        await server.wait_for(
            lambda stats: stats.served >= death.after_served and stats.in_flight > 0, timeout_s=patience_s
        )
        await asyncio.sleep(_MID_CALL_S * scale)
        # On a busy machine the sleep may outlast those calls.
        await server.wait_for(lambda stats: stats.in_flight > 0, timeout_s=patience_s)
    await server.kill()
    moments.append(time.monotonic())
    await asyncio.sleep(death.back_after_s * scale)
    await server.start()
    moments.append(time.monotonic())


# ---- its process


@asynccontextmanager
async def _process(contender: str, folder: Path) -> AsyncIterator[Process]:
    """In a session of its own, which is killed whole. When we are killed, the end of its stdin ends it."""
    with (folder / "stderr.txt").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _MODULE, contender),
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
            start_new_session=True,
            limit=_LINE_BYTES,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _say(process: Process, line: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.write(line.encode() + b"\n")


async def _heard(process: Process, contender: str, limit_s: float) -> dict[str, Any]:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), limit_s)
    except TimeoutError:
        raise ContenderBroke(
            f"{CONTENDERS[contender]} was not through after {limit_s:.0f} s, and was ended"
        ) from None
    if not line:
        status = await process.wait()
        raise ContenderBroke(
            f"{CONTENDERS[contender]} ended early with status {status}; `--keep DIR` keeps what it said"
        )
    told: dict[str, Any] = json.loads(line)
    return told
