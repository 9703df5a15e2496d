"""The way before: one thread per kind, each taking its tasks one at a time in the order they came.

This is how the home-lab dispatcher worked. A host with three slots runs one task; a kind whose queue is empty
leaves its host idle; the queue is in memory and dies with the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from penstock.compare.workloads import Workload, duration_s
from penstock.model import Plant, Task


class Span(NamedTuple):
    """One task's run, in seconds of the story since all were queued."""

    task: str
    host: str
    started: float
    ended: float


def run_legacy(
    workload: Workload,
    scale: float,
    ended: Callable[[Span], None] | None = None,
    stop: threading.Event | None = None,
) -> list[Span]:
    """Do the work on real threads; the spans in the order they ended. `ended` is told each, on its thread."""
    stop = stop or threading.Event()
    queues: dict[str, SimpleQueue[Task]] = {}
    for task in workload.tasks:
        queues.setdefault(task.kind, SimpleQueue()).put(task)
    spans: list[Span] = []
    began = time.monotonic()

    def work_through(kind: str) -> None:
        host = _mapped_host(workload.plant, kind)
        while True:
            try:
                task = queues[kind].get_nowait()
            except Empty:
                return
            started = (time.monotonic() - began) / scale
            if stop.wait(duration_s(task) * scale):
                return
            span = Span(task.id, host, started, (time.monotonic() - began) / scale)
            spans.append(span)
            if ended is not None:
                ended(span)

    threads = [threading.Thread(target=work_through, args=(kind,), name=f"legacy {kind}") for kind in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(spans, key=lambda span: span.ended)


def _mapped_host(plant: Plant, kind: str) -> str:
    """A kind had one host, however many could serve it."""
    return next(host.name for host in plant.hosts if host.serves_kind(kind))
