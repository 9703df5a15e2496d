"""Bare Ray doing the same: actors that take one call after the other, as our workers do, and plain tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks import ray as shared
from benchmarks.frame import Bench, reference


class Plain:
    def work(self, payload: Any) -> Any:
        return shared.work(payload)


def joined() -> Any:
    import ray

    ray.init(address=shared.address(), log_to_driver=False, configure_logging=False)
    return ray


def kept_busy(ray: Any, begin: Sequence[Callable[[], Any]], count: int) -> float:
    """Seconds for so many calls, each of these one at a time."""
    began = time.perf_counter()
    under_way = {one(): one for one in begin}
    begun = len(begin)
    while under_way:
        (ready,), _ = ray.wait(list(under_way), num_returns=1)
        ray.get(ready)
        one = under_way.pop(ready)
        if begun < count:
            begun += 1
            under_way[one()] = one
    return time.perf_counter() - began


def with_actors(at_once: int, count: int) -> float:
    ray = joined()
    actors: list[Any] = [
        ray.remote(Plain).options(num_cpus=0, max_restarts=0, scheduling_strategy="SPREAD").remote()
        for _ in range(at_once)
    ]
    begin = [partial(actor.work.remote, shared.PAYLOAD) for actor in actors]
    kept_busy(ray, begin, shared.WARM * at_once)
    return kept_busy(ray, begin, count) / count * 1e6


def with_tasks(at_once: int, count: int) -> float:
    ray = joined()
    work: Any = ray.remote(shared.work).options(max_retries=0)
    begin = [lambda: work.remote(shared.PAYLOAD)] * at_once
    kept_busy(ray, begin, shared.WARM * at_once)
    return kept_busy(ray, begin, count) / count * 1e6


@reference("ray-alone", "ray actors", what="bare Ray: calls of an actor, one at a time", unit="µs")
def actor_alone(bench: Bench) -> float:
    return with_actors(1, bench.size(2000, 300))


@reference("ray-alone", "ray tasks", what="bare Ray: tasks, one at a time", unit="µs")
def task_alone(bench: Bench) -> float:
    return with_tasks(1, bench.size(2000, 300))


@reference(
    "ray-busy", "ray actors", what=f"bare Ray: {shared.SLOTS} actors, a call at a time each", unit="µs"
)
def actors_busy(bench: Bench) -> float:
    return with_actors(shared.SLOTS, bench.size(8000, 1200))


@reference("ray-busy", "ray tasks", what=f"bare Ray: {shared.SLOTS} tasks at a time", unit="µs")
def tasks_busy(bench: Bench) -> float:
    return with_tasks(shared.SLOTS, bench.size(8000, 1200))
