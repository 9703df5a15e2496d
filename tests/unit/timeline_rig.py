"""Recordings made by hand and by the thousand, for whoever draws them."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Sequence

from penstock.diagnosis.recording import Recording
from penstock.model import Attempt, Host, Plant, State, Task, TaskRecord, Verdict, Wait

BEGIN = 1_800_000_000.0


def wait(reason: str, start: float, end: float, detail: str = "") -> Wait:
    return Wait(reason, detail, BEGIN + start, BEGIN + end)


def attempt(
    task: str,
    number: int,
    host: str,
    start: float,
    end: float | None,
    verdict: Verdict | None = Verdict.DONE,
    error: str | None = None,
) -> Attempt:
    return Attempt(
        task,
        number,
        host,
        "default",
        BEGIN + start,
        1,
        None if end is None else BEGIN + end,
        None if end is None else verdict,
        error,
    )


def record(task: Task, number: int, state: State, start: float | None, end: float | None) -> TaskRecord:
    return TaskRecord(
        task,
        number,
        state,
        started_at=None if start is None else BEGIN + start,
        ended_at=None if end is None else BEGIN + end,
    )


def recording(
    tasks: Sequence[TaskRecord],
    attempts: Iterable[Attempt],
    waits: dict[str, Sequence[Wait]],
    *,
    end: float,
    hosts: Sequence[Host] | None = (Host("surtr", "simulated", slots=2), Host("fenrir", "simulated")),
) -> Recording:
    return Recording(
        name="nightly",
        begin=min(one.task.queued_at for one in tasks),
        end=BEGIN + end,
        tasks=tasks,
        attempts=sorted(attempts, key=lambda one: one.started_at),
        waits=waits,
        plant=None if hosts is None else Plant(hosts=tuple(hosts)),
    )


def task(id: str, kind: str = "summarize", *, queued: float = 0.0, lane: str = "default") -> Task:
    return Task(kind, id=id, run="nightly", lane=lane, queued_at=BEGIN + queued)


def small() -> Recording:
    """A task that ran at once, one that was tried twice, one that still waits."""
    return recording(
        [
            record(task("first"), 1, State.DONE, 0, 10),
            record(task("second", "translate", lane="fast"), 2, State.DONE, 16, 20),
            record(task("third", queued=5), 3, State.QUEUED, None, None),
        ],
        [
            attempt("first", 1, "surtr", 0, 10),
            attempt("second", 1, "fenrir", 8, 12, Verdict.TEMPORARY, "server error 500"),
            attempt("second", 2, "surtr", 16, 20),
        ],
        {
            "first": [],
            "second": [wait("slots:fenrir", 0, 8, "held by lane default ×1"), wait("scheduled", 12, 16)],
            "third": [wait("gate:vram", 5, 25, "2 GB free, at least 3")],
        },
        end=25,
    )


def huge(count: int, seed: int = 1, hosts: int = 12, slots: int = 8) -> Recording:
    """First come, first served over many slots, with failures, gates, and now and then a very slow one."""
    chance = random.Random(seed)
    names = [f"host-{place:02}" for place in range(hosts)]
    free = [(0.0, place, name) for place, name in enumerate(name for name in names for _ in range(slots))]
    heapq.heapify(free)
    records: list[TaskRecord] = []
    attempts: list[Attempt] = []
    waits: dict[str, Sequence[Wait]] = {}
    end = 0.0
    for number in range(count):
        id = f"1m7f{number:06}"
        queued = number * 0.01
        told: list[Wait] = []
        at, tries = queued, 0
        while True:
            ready, place, host = heapq.heappop(free)
            start = max(at, ready)
            middle = at + (start - at) * 0.3
            if start > at:
                told.append(wait("slots:" + host, at, middle, f"held by lane lane-{number % 3} ×{slots}"))
                told.append(wait("gate:headroom" if number % 5 == 0 else "order", middle, start))
            slow = 20.0 if chance.random() < 0.002 else 1.0
            stop = start + chance.uniform(0.5, 1.5) * slow
            heapq.heappush(free, (stop, place, host))
            tries += 1
            bad = chance.random() < 0.03 and tries < 3
            verdict = Verdict.TEMPORARY if bad else Verdict.DONE
            attempts.append(
                attempt(id, tries, host, start, stop, verdict, "server error 500" if bad else None)
            )
            at = stop
            if not bad:
                break
        end = max(end, at)
        one = task(id, f"kind-{number % 7}", queued=queued, lane=f"lane-{number % 3}")
        records.append(record(one, number + 1, State.DONE, start, at))
        waits[id] = told
    plant = [Host(name, "simulated", slots=slots) for name in names]
    return recording(records, attempts, waits, end=end, hosts=plant)
