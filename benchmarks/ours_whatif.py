"""How well `whatif` predicts: real runs on simulated model servers, over real sockets, with slots changed (E3).

Each case is run and recorded with one config, the makespan under another is predicted from that record alone, and
the same tasks are then really run with the other config. The servers share their speed in different ways, queue
inside beyond what they work on at once, differ from each other, and serve lanes with limits and priorities.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import penstock
from benchmarks.frame import Bench, at_most, benchmark
from penstock.config import Config
from penstock.config.plants import changed_plant
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.whatif.inferred import playable
from penstock.diagnosis.whatif.replay import Replay
from penstock.testing import ModelBehaviour, ModelServer
from penstock.wiring import read_config

AT_ONCE = 4  # cases that are run at the same time: more would measure this machine instead


@dataclass(frozen=True)
class Case:
    """Tasks on servers, with these slots and then those."""

    name: str
    servers: Mapping[str, ModelBehaviour]  # host -> how it behaves
    slots: Mapping[str, int]
    change: Mapping[str, str]  # keys -> values, as `--set` takes them
    make: Callable[[random.Random], Sequence[penstock.Task]]
    more: str = ""  # of the config: lanes


def behaviour(**more: object) -> ModelBehaviour:
    return ModelBehaviour(first_token_s=0.03, tokens_per_s=100.0, jitter=0.05, **more)  # type: ignore[arg-type]


def task(chance: random.Random, kind: str = "chat", **more: object) -> penstock.Task:
    tokens = chance.randint(18, 28)
    return penstock.Task(kind, {"prompt": "tell me", "max_tokens": tokens}, **more)  # type: ignore[arg-type]


def alike(count: int) -> Callable[[random.Random], list[penstock.Task]]:
    return lambda chance: [task(chance) for _ in range(count)]


def in_waves(count: int) -> Callable[[random.Random], list[penstock.Task]]:
    """A few at a time first, then all the others: as seldom as the load of a server is the same all day."""

    def make(chance: random.Random) -> list[penstock.Task]:
        now = time.time()
        times = [now + 0.11 * n if n < 14 else now + 1.6 for n in range(count)]
        return [task(chance, not_before=at) for at in times]

    return make


def urgent_ones(chance: random.Random) -> list[penstock.Task]:
    return [task(chance, priority=chance.randint(0, 4)) for _ in range(50)]


def in_lanes(chance: random.Random) -> list[penstock.Task]:
    return [task(chance, lane=("batch", "batch", "talk")[n % 3]) for n in range(48)]


def two_kinds(chance: random.Random) -> list[penstock.Task]:
    return [task(chance, kind=("code", "chat")[n % 2]) for n in range(56)]


def in_chains(chance: random.Random) -> list[penstock.Task]:
    made: list[penstock.Task] = []
    for number in range(45):
        after = (made[-3].id,) if number % 9 >= 3 else ()
        made.append(task(chance, id=f"link-{number}", after=after))
    return made


CASES = (
    Case("more slots, none in the way", {"a": behaviour()}, {"a": 2}, {"hosts.a.slots": "4"}, alike(32)),
    Case("fewer slots, none in the way", {"a": behaviour()}, {"a": 6}, {"hosts.a.slots": "3"}, alike(45)),
    Case(
        "a server with a knee at 3",
        {"a": behaviour(knee=3)},
        {"a": 6},
        {"hosts.a.slots": "3"},
        in_waves(40),
    ),
    Case(
        "a server that does less with more",
        {"a": behaviour(knee=3, slowdown="thrashing")},
        {"a": 5},
        {"hosts.a.slots": "3"},
        in_waves(40),
    ),
    Case(
        "a server that batches",
        {"a": behaviour(knee=6, slowdown="batching")},
        {"a": 8},
        {"hosts.a.slots": "4"},
        in_waves(48),
    ),
    Case(
        "a server that works on two and queues the rest",
        {"a": behaviour(slots=2)},
        {"a": 6},
        {"hosts.a.slots": "3"},
        alike(28),
    ),
    Case(
        "a server that works on one at a time",
        {"a": behaviour(slots=1)},
        {"a": 4},
        {"hosts.a.slots": "2"},
        alike(16),
    ),
    Case(
        "two servers, one of them twice as fast",
        {"a": behaviour(), "b": ModelBehaviour(first_token_s=0.015, tokens_per_s=200.0, jitter=0.05)},
        {"a": 2, "b": 2},
        {"hosts.a.slots": "1", "hosts.b.slots": "4"},
        two_kinds,
    ),
    Case(
        "lanes with limits",
        {"a": behaviour(knee=8, slowdown="batching")},
        {"a": 6},
        {"hosts.a.slots": "8", "lanes.batch.max_running": "5"},
        in_lanes,
        more="[lanes.batch]\nmax_running = 2\n[lanes.talk]\nweight = 2\n",
    ),
    Case(
        "priorities on two servers",
        {"a": behaviour(), "b": behaviour(slots=2)},
        {"a": 3, "b": 4},
        {"hosts.a.slots": "5", "hosts.b.slots": "2"},
        urgent_ones,
    ),
    Case("chains", {"a": behaviour()}, {"a": 2}, {"hosts.a.slots": "5"}, in_chains),
)


def config(case: Case, urls: Mapping[str, str], store: Path) -> str:
    hosts = "".join(
        f'[hosts.{name}]\ntype = "openai"\nurl = "{urls[name]}"\nmodel = "simulated"\nslots = {slots}\n'
        for name, slots in case.slots.items()
    )
    return f'store = "{store}"\n{hosts}{case.more}'


def written(path: Path, text: str) -> Config:
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return read_config(path)


async def run(case: Case, folder: Path, seed: str, change: Mapping[str, str]) -> Recording:
    """Really, on servers of its own."""
    path = folder / "penstock.toml"
    async with AsyncExitStack() as stack:
        urls = {
            name: (await stack.enter_async_context(ModelServer(behaves))).url
            for name, behaves in case.servers.items()
        }
        settings = written(path, config(case, urls, folder / "penstock.db")).with_settings(change)
        client = await stack.enter_async_context(penstock.open(settings))
        tasks = case.make(random.Random(seed))
        submitted = await client.submit_many(tasks)
        await submitted.wait()
        return await client.recording(submitted.name)


async def off(case: Case, folder: Path, seed: str) -> float:
    """By how much the prediction was wrong, as a share of what really came."""
    recording, plant = playable(await run(case, folder / "before", seed, {}), None)
    predicted_s = Replay(recording, plant).under(changed_plant(plant, case.change)).makespan_s
    real = await run(case, folder / "after", seed, case.change)
    error = abs(predicted_s - real.makespan_s) / real.makespan_s
    print(
        f"{case.name}: {recording.makespan_s:.2f} s, predicted {predicted_s:.2f} s, "
        f"really {real.makespan_s:.2f} s, off {error * 100:.1f} %",
        file=sys.stderr,
    )
    return error


async def all_off(bench: Bench) -> list[float]:
    room = asyncio.Semaphore(AT_ONCE)
    cases = CASES[::2] if bench.quick else CASES

    async def one(number: int, case: Case) -> float:
        async with room:
            return await off(case, bench.folder / str(number), bench.folder.name)

    return list(await asyncio.gather(*(one(number, case) for number, case in enumerate(cases))))


@benchmark(
    "whatif",
    what=f"makespan of real runs under changed slots, predicted: off by, median of {len(CASES)} cases",
    unit="%",
    goal=at_most(5),
)
def whatif(bench: Bench) -> float:
    return statistics.median(asyncio.run(all_off(bench))) * 100
