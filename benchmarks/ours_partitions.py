"""What is lost, and what is won, when hosts are partitioned over several dispatchers (docs/scale.md).

The same seeded workloads on the same hosts by one scheduler, and by several with and without taking work from each
other. Everything but the cost per decision is in simulated time, so it is the same on every machine.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from benchmarks.frame import Bench, at_most, benchmark
from benchmarks.ours_scale import told
from benchmarks.partitioned import Figures, Partitioned, model_plant, workload

LEVEL_S = 0.25  # how often tasks of more urgent levels change places
STEAL_S = 0.05  # from free room to a task taken from elsewhere: a query and a compare-and-set, twice
SLOTS = 4


class Way(NamedTuple):
    name: str
    parts: int
    steal_s: float | None
    level_s: float | None = None
    by_kind: bool = False


WAYS = (
    Way("one", 1, None),
    Way("2, apart", 2, None),
    Way("2, taking", 2, STEAL_S),
    Way("2, taking and levelling", 2, STEAL_S, LEVEL_S),
    Way("4, apart", 4, None),
    Way("4, taking", 4, STEAL_S),
    Way("4, taking after 1 s", 4, 1.0),
    Way("4, taking and levelling", 4, STEAL_S, LEVEL_S),
    Way("4 by sort, apart", 4, None, by_kind=True),
    Way("4 by sort, taking and levelling", 4, STEAL_S, LEVEL_S, by_kind=True),
    Way("8, apart", 8, None),
    Way("8, taking", 8, STEAL_S),
    Way("8, taking and levelling", 8, STEAL_S, LEVEL_S),
)


def played(way: Way, hosts: int, count: int, seed: int) -> Figures:
    """A tenth of the hosts die for a while in the middle: what was given to them must find others."""
    plant = model_plant(hosts)
    world = Partitioned(
        plant, way.parts, steal_s=way.steal_s, level_s=way.level_s, by_kind=way.by_kind, seed=seed
    )
    arrivals = workload(count, hosts, seed)
    for when, tasks in arrivals:
        world.at(when, tasks)
    middle = arrivals[-1][0] / 2
    for host in random.Random(seed).sample(plant.hosts, hosts // 10):
        world.health(middle, host.name, up=False)
        world.health(middle + 30.0, host.name, up=True)
    figures = world.run()
    assert figures.starts == count, f"{figures.starts} of {count} started"
    return figures


@benchmark(
    "partitions",
    what="4 dispatchers that take work from each other: slot time lost beside work that fits",
    unit="%",
    goal=at_most(1),
    once=True,
    timeout_s=1800.0,
)
def partitions(bench: Bench) -> float:
    hosts, count, seeds = bench.size(96, 48), bench.size(10_000, 4_000), range(bench.size(2, 1))
    lines = []
    lost = {}
    for way in WAYS:
        runs = [played(way, hosts, count, seed) for seed in seeds]
        whole_s = sum(r.ended_at for r in runs) * hosts * SLOTS
        lost[way.name] = sum(r.lost_s for r in runs) / whole_s * 100
        busiest = max(max(r.steps_s) for r in runs)
        rate = count / busiest
        mean = [
            sum(r.wait_s(share, p) for r in runs) / len(runs)
            for share, p in ((0.5, None), (0.99, None), (0.99, 0))
        ]
        lines.append(
            (
                way.name,
                f"{sum(map(sum, (r.used for r in runs))) / sum(len(r.used) for r in runs) * 100:.1f}",
                *(f"{wait:.2f}" for wait in mean),
                f"{sum(r.inversions for r in runs) / sum(r.starts for r in runs) * 100:.2f}",
                f"{lost[way.name]:.2f}",
                f"{sum(r.stolen for r in runs) / sum(r.starts for r in runs) * 100:.1f}",
                f"{sum(sum(r.steps_s) for r in runs) / sum(r.steps for r in runs) * 1e6:.1f}",
                f"{rate:,.0f}",
            )
        )
    head = (
        "dispatchers",
        "used %",
        "wait 50 %",
        "99 %",
        "urgent 99 %",
        "inverted %",
        "lost %",
        "moved %",
        "µs a step",
        "tasks/s",
    )
    bench.notes.append(told(head, lines))
    return lost["4, taking and levelling"]
