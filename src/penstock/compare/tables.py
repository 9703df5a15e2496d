"""The home-lab's tables in simulated time: one thread per kind beside Penstock's scheduler, to the exact second.

Nothing waits here: both are played in the seconds of the story, Penstock through its real scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.compare.workloads import Workload, duration_s, ideal_s, one_by_one_s
from penstock.diagnosis.simulator import Fate, Simulator
from penstock.model import State, Task
from penstock.scheduling.messages import Start, Submitted


@dataclass(frozen=True, slots=True)
class Line:
    """How long a workload takes in one way and in the other, and at the least."""

    workload: Workload
    one_thread_per_kind_s: float
    penstock_s: float
    ideal_s: float


def line_of(workload: Workload) -> Line:
    return Line(workload, one_by_one_s(workload), simulated_s(workload), ideal_s(workload))


def simulated_s(workload: Workload) -> float:
    """From when all are queued until the last has ended, under the real scheduler."""
    simulator = Simulator(workload.plant, _fate)
    simulator.at(0.0, Submitted(workload.tasks))
    simulator.run()
    records = list(simulator.records)
    unfinished = [record.task.id for record in records if record.state is not State.DONE]
    if unfinished:
        raise ValueError(f"{workload.name}: {', '.join(unfinished[:5])} cannot be done in this plant")
    return max(record.ended_at or 0.0 for record in records)


def _fate(start: Start, task: Task) -> Fate:
    return Fate(duration_s(task))
