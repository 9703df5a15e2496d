"""C10: the home-lab's tables, one thread per kind beside Penstock.

In simulated time the figures are exact and the same on every machine. In real time the six tasks are done by real
threads and by the real dispatcher on a real disk, with seconds that last a fiftieth.
"""

from __future__ import annotations

import asyncio
import time

import penstock
from benchmarks.frame import Bench, Goal, at_most, benchmark, reference
from penstock.compare.legacy import run_legacy
from penstock.compare.tables import simulated_s
from penstock.compare.workloads import FIFTY, FORTY, SIX, Workload, one_by_one_s, scaled
from penstock.demo.stage import write_config

THREADS = "one thread per kind"
SCALE = 1 / 50

# (topic, workload, what the home-lab's own table says, or what can be reached at best)
TABLES = (
    ("tables-6", SIX, at_most(90)),
    ("tables-40", FORTY, at_most(100)),
    ("tables-50", FIFTY, at_most(300)),
)


def _table(topic: str, workload: Workload, goal: Goal) -> None:
    what = f"{len(workload.tasks)} tasks of the home lab, simulated"
    benchmark(topic, what=what, unit="s", goal=goal)(lambda bench: simulated_s(workload))
    reference(topic, THREADS, what=what, unit="s")(lambda bench: one_by_one_s(workload))


for _topic, _workload, _goal in TABLES:
    _table(_topic, _workload, _goal)

_REAL = "6 tasks of the home lab, in real time ×50"


@benchmark("tables-real", what=_REAL, unit="s", goal=at_most(90 * 1.05))
def six_in_real_time(bench: Bench) -> float:
    """From the submission to the last result, in seconds of the story."""
    story = scaled(SIX, SCALE)
    path = write_config(bench.folder / "real", story.plant)

    async def go() -> float:
        async with penstock.open(path) as p:
            warm_up = await p.submit_many([penstock.Task("vision", {"duration_s": 0.0})])
            async for result in warm_up.results():
                assert result.ok, result.error
            began = time.perf_counter()
            run = await p.submit_many(story.tasks)
            async for result in run.results():
                assert result.ok, result.error
            return time.perf_counter() - began

    return asyncio.run(go()) / SCALE


@reference("tables-real", THREADS, what=_REAL, unit="s")
def six_on_threads(bench: Bench) -> float:
    return max(span.ended for span in run_legacy(SIX, SCALE))
