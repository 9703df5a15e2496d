"""Work to be done, as data: hosts, lanes, gates and tasks that last a known time, in seconds of their story.

Whoever plays a workload chooses how many real seconds a second of the story lasts (`scaled`). What can be
known without playing it is worked out here: the least time that any dispatcher needs, and what one thread per
kind needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.model import Gate, Host, Lane, Plant, Task


@dataclass(frozen=True, slots=True)
class Workload:
    """Every task has an id and lasts the `duration_s` of its payload; all are queued at the same moment."""

    name: str
    title: str
    plant: Plant
    tasks: tuple[Task, ...]


def duration_s(task: Task) -> float:
    return float(task.payload["duration_s"])


def scaled(workload: Workload, scale: float) -> Workload:
    """The same story with seconds that last `scale` real ones."""
    plant = replace(workload.plant, aging_s=workload.plant.aging_s * scale)
    return replace(workload, plant=plant, tasks=tuple(scaled_task(task, scale) for task in workload.tasks))


def scaled_task(task: Task, scale: float) -> Task:
    return replace(task, payload={**task.payload, "duration_s": duration_s(task) * scale})


# ---- what can be known beforehand


def ideal_s(workload: Workload) -> float:
    """No dispatcher can be faster: the longest task, and the work of any group over the room it may have.

    Gates are left out, and that tasks cannot be split: the true optimum may be later than this, never sooner.
    """
    longest = max(map(duration_s, workload.tasks))
    return max([longest, *_lane_bounds(workload), *_room_bounds(workload)])


def _lane_bounds(workload: Workload) -> list[float]:
    work: dict[str, float] = defaultdict(float)
    for task in workload.tasks:
        work[task.lane] += duration_s(task)
    return [work[lane.name] / lane.max_running for lane in workload.plant.lanes if lane.max_running]


def _room_bounds(workload: Workload) -> list[float]:
    """Tasks that can go nowhere but to some hosts, over the slots there; also for each lane by itself."""
    homes = {task.kind: _homes(workload.plant, task.kind) for task in workload.tasks}
    bounds = []
    for hosts in set(homes.values()):
        confined = [task for task in workload.tasks if homes[task.kind] <= hosts]
        slots = sum(host.slots for host in workload.plant.hosts if host.name in hosts)
        bounds.append(sum(map(duration_s, confined)) / slots)
        for lane in {task.lane for task in confined}:
            room = slots - _reserved(workload.plant, hosts, lane)
            bounds.append(sum(duration_s(task) for task in confined if task.lane == lane) / room)
    return bounds


def _homes(plant: Plant, kind: str) -> frozenset[str]:
    return frozenset(host.name for host in plant.hosts if host.serves_kind(kind))


def _reserved(plant: Plant, hosts: frozenset[str], lane: str) -> float:
    """Slots that other lanes keep for themselves, whether they use them or not."""
    return sum(
        units.get("slots", 0.0)
        for other in plant.lanes
        if other.name != lane
        for host, units in other.reserve.items()
        if host in hosts
    )


def one_by_one_s(workload: Workload) -> float:
    """What one thread per kind, one task at a time each, cannot undercut."""
    work: dict[str, float] = defaultdict(float)
    for task in workload.tasks:
        work[task.kind] += duration_s(task)
    return max(work.values())


# ---- the stories


def _host(name: str, slots: int, *serves: str) -> Host:
    return Host(name, "simulated", slots=slots, serves=serves)


def _task(id: str, kind: str, duration_s: float, priority: int = 2, lane: str = "default") -> Task:
    return Task(kind, {"duration_s": duration_s}, id=id, priority=priority, lane=lane)


HOME_LAB = (_host("surtr", 2, "reasoning"), _host("fenrir", 3, "coding"), _host("skadi", 2, "vision"))


def _six() -> Workload:
    return Workload(
        "six",
        "Six tasks, seven slots",
        Plant(HOME_LAB),
        (
            _task("reasoning-1", "reasoning", 90),
            _task("reasoning-2", "reasoning", 40),
            *(_task(f"coding-{n}", "coding", 30) for n in (1, 2, 3)),
            _task("vision-1", "vision", 60),
        ),
    )


def _forty() -> Workload:
    """The least urgent come first, so that the order of arrival is the wrong one."""
    return Workload(
        "forty",
        "Forty tasks, five priorities",
        Plant((_host("surtr", 2, "reasoning"), _host("skadi", 2, "vision"))),
        tuple(
            _task(f"{kind}-{n:02}", kind, 10, priority=4 - (n - 1) % 5)
            for n in range(1, 21)
            for kind in ("reasoning", "vision")
        ),
    )


def _fifty() -> Workload:
    """A morning's queue of issues: fifty of all kinds, one after the other as they were written."""
    kinds = ("reasoning", "coding", "coding", "vision", "coding")
    seconds = {"reasoning": 60.0, "coding": 30.0, "vision": 20.0}
    return Workload(
        "fifty",
        "Fifty tasks in the queue",
        Plant(HOME_LAB),
        tuple(
            _task(f"{kind}-{n:02}", kind, seconds[kind], priority=n % 5)
            for n, kind in ((n, kinds[n % 5]) for n in range(1, 51))
        ),
    )


def _report_lanes() -> Workload:
    """The report runner: fpf is huge and slow and arrives first, gptr and ma have their room all the same.

    Ten tasks of fpf last to the end. The others fill its remaining seven slots until the queue of fpf is
    empty; only then do no more than ten of them run, and the gate lets the rest of gptr start. Their first
    durations differ, so that they never end together and open the gate for a moment.
    """
    first = (7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0)
    fpf = [120.0] * 10 + [*first] + [10.0] * 49
    return Workload(
        "lanes",
        "Three families of work",
        Plant(
            hosts=(_host("runner", 32, "research_report", "multi_agent", "file_prompt"),),
            lanes=(
                Lane("gptr", max_running=11, reserve={"runner": {"slots": 11}}, weight=2),
                Lane("ma", max_running=4, reserve={"runner": {"slots": 4}}),
                Lane("fpf"),
            ),
            gates=(Gate("fpf-headroom", lane="fpf", max_running=10, holds_lanes=("gptr",)),),
        ),
        (
            *(_task(f"fpf-{n:02}", "file_prompt", last, lane="fpf") for n, last in enumerate(fpf, 1)),
            *(_task(f"gptr-{n:02}", "research_report", 30, lane="gptr") for n in range(1, 23)),
            *(_task(f"ma-{n}", "multi_agent", 25, lane="ma") for n in range(1, 9)),
        ),
    )


def _sixty() -> Workload:
    """Short tasks of all kinds, for whoever wants to interrupt them; each returns its own id."""
    kinds = ("reasoning", "coding", "vision")
    return Workload(
        "crash",
        "A crash in mid-work",
        Plant(HOME_LAB),
        tuple(
            Task(kind, {"duration_s": 3.0 + n * 7 % 6, "value": f"{kind}-{n:02}"}, id=f"{kind}-{n:02}")
            for n in range(1, 21)
            for kind in kinds
        ),
    )


SIX = _six()
FORTY = _forty()
FIFTY = _fifty()
LANES = _report_lanes()
SIXTY = _sixty()
WORKLOADS: Mapping[str, Workload] = {w.name: w for w in (SIX, FORTY, LANES, SIXTY)}
