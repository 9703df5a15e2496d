"""Container agents: what a call adds, how soon one answers, how full four are kept, and 200 callers from cold.

Both sides of a comparison are measured in turn within one measurement, on the same containers: what a machine does
beside it hits both. Where nothing but time is compared, the notes below the table have the two times.
"""

from __future__ import annotations

import asyncio
import sys
import time

from benchmarks.agents import (
    Agents,
    Place,
    Spent,
    agents,
    call,
    engine,
    high,
    in_turn,
    kept_full,
    many,
    middle,
    program,
    spent,
    spread,
    straight,
    through,
    told,
)
from benchmarks.frame import Bench, CannotRun, at_most, benchmark
from tests.acceptance.containers import PYTHON_IMAGE
from tests.acceptance.mass_rig import Mass
from tests.acceptance.serve_rig import raise_file_limit

CONTAINERS, WORK_S = 4, 0.1
MASS = 200
# The cheapest there is: what is measured is the way to it.
HANDLERS = 'handlers = { nothing = ["true"], wait = ["sleep"] }'
ONE = f"""
[agents.one]
image = "{PYTHON_IMAGE}"
{HANDLERS}
"""
FOUR = f"""
[server]
max_queued = 10000

[agents.four]
image = "{PYTHON_IMAGE}"
containers = {CONTAINERS}
concurrency = 1
{HANDLERS}
"""
# What one writes who knows where the container is, in place of `penstock agent call`.
BARE = """
import http.client, json, sys
connection = http.client.HTTPConnection(sys.argv[1])
body = json.dumps({"command": sys.argv[3], "params": sys.argv[4:]})
headers = {"Authorization": "Bearer " + sys.argv[2], "Content-Type": "application/json"}
connection.request("POST", "/task", body, headers)
answer = json.loads(connection.getresponse().read())
print(answer["result"])
sys.exit(answer["exit"])
"""


# ---- what a warm call adds


@benchmark(
    "agents-serve", what="added to a warm call of an agent by serve, median", unit="ms", goal=at_most(2)
)
def added(bench: Bench) -> float:
    with agents(bench.folder, ONE) as rig, rig.serve() as address:
        door = through(address, "one")
        straight_s, through_s = asyncio.run(_in_turn(rig, door, bench.size(1000, 300)))
    bench.notes.extend([told("straight to the container", straight_s), told("through serve", through_s)])
    bench.notes.append(f"added at p95: {(high(through_s) - high(straight_s)) * 1000:.2f} ms")
    return (middle(through_s) - middle(straight_s)) * 1000


async def _in_turn(rig: Agents, door: Place, count: int) -> list[list[float]]:
    async with many() as session:
        await call(session, door, "nothing")
    [endpoint] = rig.endpoints("one")
    return await in_turn([straight(endpoint), door], count, "nothing")


@benchmark(
    "agents-cli",
    what="a warm `agent call`, process and all, against a bare `python -c` request",
    unit="×",
    goal=at_most(1.3),
)
def by_command(bench: Bench) -> float:
    with agents(bench.folder, ONE) as rig:
        return _processes(bench, rig)


@benchmark("agents-cli-serve", what="the same through serve", unit="×", goal=at_most(1.3))
def by_command_through_serve(bench: Bench) -> float:
    with agents(bench.folder, ONE) as rig, rig.serve():
        return _processes(bench, rig)


def _processes(bench: Bench, rig: Agents) -> float:
    ours = [program(), "agent", "call", "one", "nothing"]
    rig.command(*ours[1:])
    [endpoint] = rig.endpoints("one")
    bare = [sys.executable, "-c", BARE, endpoint.address, endpoint.key, "nothing"]
    sides = {"penstock agent call": ours, "python -c": bare}
    taken: dict[str, list[Spent]] = {name: [] for name in sides}
    for _ in range(bench.size(100, 40)):
        for name, argv in sides.items():
            taken[name].append(spent(argv, rig.folder, rig.environ))
    walls = {name: [one.wall_s for one in all_of] for name, all_of in taken.items()}
    for name, all_of in taken.items():
        cpu_ms = middle([one.cpu_s for one in all_of]) * 1000
        bench.notes.append(f"{told(name, walls[name])}, processor {cpu_ms:.1f} ms")
    return middle(walls["penstock agent call"]) / middle(walls["python -c"])


# ---- from a call to its answer


def _pools(bench: Bench) -> str:
    """One agent for each time: its first call is the one that finds it cold, or paused."""
    tables = [
        f'[agents.{state}{n}]\nimage = "{PYTHON_IMAGE}"\nwarm = {warm}\n{HANDLERS}\n'
        for n in range(bench.size(5, 3))
        for state, warm in (("cold", 0), ("paused", 1))
    ]
    return "\n".join(tables)


def _first_answers(bench: Bench, state: str) -> list[float]:
    with agents(bench.folder, _pools(bench)) as rig, rig.serve() as address:
        names = [f"{state}{n}" for n in range(bench.size(5, 3))]
        return [asyncio.run(_first_answer(rig, address, name)) for name in names]


async def _first_answer(rig: Agents, address: str, name: str) -> float:
    for other in range(3):
        rig.wait_for(f"paused{other}", 1, "paused")  # nothing is being started meanwhile
    async with many() as session:
        return await call(session, through(address, name), "nothing")


@benchmark("agents-cold", what="from a call to its answer by serve: no container yet, median", unit="ms")
def cold(bench: Bench) -> float:
    return middle(_first_answers(bench, "cold")) * 1000


@benchmark("agents-paused", what="the same: a paused one is resumed", unit="ms")
def paused(bench: Bench) -> float:
    return middle(_first_answers(bench, "paused")) * 1000


@benchmark("agents-warm", what="the same: one is ready", unit="ms")
def warm(bench: Bench) -> float:
    with agents(bench.folder, ONE) as rig, rig.serve() as address:
        [times_s] = asyncio.run(in_turn([through(address, "one")], bench.size(500, 200), "nothing"))
    return middle(times_s) * 1000


# ---- many


@benchmark(
    "agents-makespan",
    what=f"calls of {WORK_S * 1000:.0f} ms through {CONTAINERS} containers, against the same spread evenly by hand",
    unit="×",
    goal=at_most(1.05),
    once=True,
)
def makespan(bench: Bench) -> float:
    """With as many callers as keep the slots full."""
    return _makespan(bench, CONTAINERS * 4)


@benchmark("agents-burst", what="the same, all calls at once", unit="×", once=True)
def burst(bench: Bench) -> float:
    return _makespan(bench, bench.size(1000, 200))


def _makespan(bench: Bench, callers: int) -> float:
    raise_file_limit()
    count = bench.size(1000, 200)
    with agents(bench.folder, FOUR) as rig, rig.serve() as address:
        door = through(address, "four")
        first = CONTAINERS * 3
        asyncio.run(kept_full(door, first, first, "wait", "1"))  # until all of them are there
        endpoints = rig.wait_for("four", CONTAINERS, "ready")
        if len(endpoints) != CONTAINERS:
            raise CannotRun(f"{len(endpoints)} containers in place of {CONTAINERS}")
        by_hand_s = asyncio.run(spread([straight(one) for one in endpoints], count, "wait", str(WORK_S)))
        ours_s = asyncio.run(kept_full(door, count, callers, "wait", str(WORK_S)))
    ideal_s = count * WORK_S / CONTAINERS
    notes = [
        f"{count:,} calls through serve, {callers:,} at a time: {ours_s:.2f} s",
        f"spread evenly by a bare client: {by_hand_s:.2f} s",
        f"{count:,} × {WORK_S:g} s ÷ {CONTAINERS}: {ideal_s:.2f} s, so serve takes {ours_s / ideal_s:.3f}×",
    ]
    bench.notes.extend(notes)
    return ours_s / by_hand_s


@benchmark(
    "agents-mass",
    what=f"{MASS} `agent call` processes at once on an agent without a container",
    unit="s",
    once=True,
)
def mass(bench: Bench) -> float:
    with engine(bench.folder) as found:
        rig = Mass(bench.folder, found)
        began = time.perf_counter()
        said = rig.called([f"word-{n}" for n in range(MASS)])
        wall_s = time.perf_counter() - began
        right = sum(one.is_right for one in said)
        stats, created = rig.stats(), rig.created()
    if right != MASS or created != 1:
        raise CannotRun(f"{right} of {MASS} right answers, {created} containers")
    wait, start = stats["lock_wait"], stats["start"]
    bench.notes.append(
        f"one container, {right} right answers, success {stats['success_rate']:.0%}; "
        f"lock wait p50 {wait['p50_s']:.2f} s p95 {wait['p95_s']:.2f} s max {wait['max_s']:.2f} s; "
        f"start {start['max_s']:.2f} s; cache hits {stats['cache_hit_rate']:.0%}"
    )
    return wall_s
