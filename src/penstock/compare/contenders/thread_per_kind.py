"""The legacy way: a thread for each kind takes its tasks one at a time, the most urgent first.

A kind has one host, however many could serve it; another is tried when a call fails.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import PriorityQueue
from typing import Any

from penstock.compare.contenders.calls import CallFailed, ask
from penstock.compare.contenders.computing import compute_work
from penstock.compare.plan import Ending, Plan, Report, Runner, Work

_END = 99  # behind every priority


@contextmanager
def opened(plan: Plan) -> Iterator[Runner]:
    yield lambda: _run(plan)


def _run(plan: Plan) -> Report:
    began = time.monotonic()
    queues: dict[str, PriorityQueue[tuple[int, int, Work | None]]] = {
        work.kind: PriorityQueue() for work in plan.works
    }
    endings: list[Ending] = []
    threads = [
        threading.Thread(target=_work_through, args=(plan, queue, endings)) for queue in queues.values()
    ]
    for thread in threads:
        thread.start()
    number = 0
    for at_s, works in plan.arrivals():
        time.sleep(max(0.0, began + at_s - time.monotonic()))
        for work in works:
            number += 1
            queues[work.kind].put((work.priority, number, work))
    for queue in queues.values():
        queue.put((_END, 0, None))
    for thread in threads:
        thread.join()
    return Report(tuple(endings))


def _work_through(
    plan: Plan, queue: PriorityQueue[tuple[int, int, Work | None]], endings: list[Ending]
) -> None:
    while (work := queue.get()[2]) is not None:
        endings.append(_tried(plan, work))


def _tried(plan: Plan, work: Work) -> Ending:
    places = plan.places_for(work.kind)
    error = ""
    for number in range(1, plan.retries + 2):
        place = places[(number - 1) % len(places)]
        try:
            answer: Any = compute_work(work) if plan.cpu_bound else ask(place, work, plan.timeout_s)
            return Ending(work.id, answer, tries=number)
        except CallFailed as failed:
            error = str(failed)
        if len(places) == 1 and number <= plan.retries:
            time.sleep(plan.pause_before_s(number))
    return Ending(work.id, error=error, tries=plan.retries + 1)
