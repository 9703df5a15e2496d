"""What the record of a store proves: limits kept, order kept, every task done once, every second explained.

Pure: from events, attempts and results as they were read, to checks. Events are replayed in the order they
were written, which also tells apart what happened within one step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.demo.figures import Check, LaneFigures
from penstock.model import Attempt, Plant, Result, State, Task, Verdict
from penstock.store.base import StoredEvent

_CLOSE_S = 1e-4  # times are kept as floats of some 1e9 seconds


@dataclass(frozen=True, slots=True)
class Record:
    """All that a store keeps of a scene. Times are real seconds; `scale` of them are one of the story."""

    plant: Plant
    tasks: Sequence[Task]
    events: Sequence[StoredEvent]
    results: Sequence[Result]
    attempts: Mapping[str, Sequence[Attempt]]
    scale: float

    @property
    def began(self) -> float:
        return min(result.queued_at for result in self.results)

    def story_s(self, at: float) -> float:
        return (at - self.began) / self.scale

    def makespan_s(self) -> float:
        return self.story_s(max(result.ended_at or 0.0 for result in self.results))


# ---- every task


def done_once(record: Record) -> Check:
    ends = Counter(event.task for event in record.events if event.type == "ended")
    wrong = [
        result.task_id
        for result in record.results
        if result.state is not State.DONE
        or ends[result.task_id] != 1
        or sum(a.verdict is Verdict.DONE for a in record.attempts[result.task_id]) != 1
    ]
    missing = {task.id for task in record.tasks} - {result.task_id for result in record.results}
    what = f"all {len(record.tasks)} tasks done, each exactly once"
    return Check(what, not wrong and not missing, _some("not so:", [*wrong, *missing]))


def explained(record: Record) -> Check:
    """The waits of a task fill its time outside of attempts, without gap or overlap."""
    wrong, total = [], 0.0
    for result in record.results:
        ended = result.ended_at or 0.0
        worked = sum((a.ended_at or ended) - a.started_at for a in record.attempts[result.task_id])
        waited = sum(wait.seconds for wait in result.waits)
        total += waited
        overlap = any(
            a.end > b.start + _CLOSE_S for a, b in zip(result.waits, result.waits[1:], strict=False)
        )
        if overlap or abs(ended - result.queued_at - worked - waited) > _CLOSE_S:
            wrong.append(result.task_id)
    detail = _some("not so:", wrong) or f"{total / record.scale:.0f} task-seconds"
    return Check("every second of waiting has exactly one reason", not wrong, detail)


def waits(record: Record, results: Iterable[Result] | None = None) -> dict[str, float]:
    """Task-seconds by reason, the longest first."""
    totals: dict[str, float] = defaultdict(float)
    for result in record.results if results is None else results:
        for wait in result.waits:
            totals[wait.reason] += wait.seconds / record.scale
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


# ---- limits


def peaks(record: Record) -> tuple[Counter[str], Counter[str]]:
    """The most that ran at once, by host and by lane."""
    hosts, lanes = Counter[str](), Counter[str]()
    for _, by_host, by_lane in _steps(record):
        hosts |= by_host
        lanes |= by_lane
    return hosts, lanes


def slots_kept(record: Record) -> Check:
    hosts, _ = peaks(record)
    shown = ", ".join(f"{host.name} {hosts[host.name]} of {host.slots}" for host in record.plant.hosts)
    ok = all(hosts[host.name] <= host.slots for host in record.plant.hosts)
    return Check("no host ever ran more than its slots", ok, f"most at once: {shown}")


def lanes_kept(record: Record) -> Check:
    _, lanes = peaks(record)
    limits = {lane.name: lane_limit(record.plant, lane.name) for lane in record.plant.lanes}
    shown = ", ".join(f"{lane} {lanes[lane]} of {limit}" for lane, limit in limits.items())
    ok = all(lanes[lane] <= limit for lane, limit in limits.items())
    return Check("no family ever ran more than its limit", ok, f"most at once: {shown}")


def lane_limit(plant: Plant, lane: str) -> int:
    """The lane's own cap, or the slots that the reserves of the others leave."""
    slots = sum(host.slots for host in plant.hosts)
    reserved = sum(
        units.get("slots", 0.0)
        for other in plant.lanes
        if other.name != lane
        for units in other.reserve.values()
    )
    caps = [one.max_running for one in plant.lanes if one.name == lane and one.max_running]
    return min([int(slots - reserved), *caps])


def gates_kept(record: Record) -> Check:
    """No start of a lane that a gate holds while the gate's own lane ran more than it may."""
    starts, breaches = 0, []
    gates = [gate for gate in record.plant.gates if gate.lane is not None and gate.max_running is not None]
    lane_of = {task.id: task.lane for task in record.tasks}
    for event, _, running in _steps(record):
        if event.type != "started":
            continue
        for gate in gates:
            if lane_of[str(event.task)] in gate.holds_lanes:
                starts += 1
                if running[str(gate.lane)] > (gate.max_running or 0):
                    breaches.append(f"{event.task} beside {running[str(gate.lane)]} of {gate.lane}")
    held = " and ".join(dict.fromkeys(lane for gate in gates for lane in gate.holds_lanes))
    rules = ", ".join(f"running({gate.lane}) <= {gate.max_running}" for gate in gates)
    what = f"{held} started only while the gate was open"
    return Check(what, not breaches, _some("not so:", breaches) or f"{rules} at each of {starts} starts")


def _steps(record: Record) -> Iterable[tuple[StoredEvent, Counter[str], Counter[str]]]:
    """Each start and end, with what runs by host and by lane right after it; the counters are not copies."""
    lane_of = {task.id: task.lane for task in record.tasks}
    where: dict[str, str] = {}
    hosts, lanes = Counter[str](), Counter[str]()
    for event in record.events:
        task = event.task
        if task is None:
            continue
        if event.type == "started":
            where[task] = str(event.host)
            hosts[where[task]] += 1
            lanes[lane_of[task]] += 1
        elif event.type in ("ended", "requeued") and task in where:
            hosts[where.pop(task)] -= 1
            lanes[lane_of[task]] -= 1
        else:
            continue
        yield event, hosts, lanes


# ---- order


def starts_by_host(record: Record) -> dict[str, list[int]]:
    """The priorities of the tasks in the order in which they started."""
    priority = {task.id: task.priority for task in record.tasks}
    found: dict[str, list[int]] = {host.name: [] for host in record.plant.hosts}
    for event in record.events:
        if event.type == "started":
            found[str(event.host)].append(priority[str(event.task)])
    return found


def in_order(record: Record) -> Check:
    """For tasks that were all queued at once: by priority, and by arrival among equals."""
    place = {task.id: (task.priority, number) for number, task in enumerate(record.tasks)}
    started: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in record.events:
        if event.type == "started":
            started[str(event.host)].append(place[str(event.task)])
    ok = all(order == sorted(order) for order in started.values())
    return Check("tasks started in order of priority, and of arrival among equals", ok)


# ---- lanes beside each other


def lane_figures(record: Record) -> tuple[LaneFigures, ...]:
    _, most = peaks(record)
    found = []
    for lane in record.plant.lanes:
        results = [result for result in record.results if result.lane == lane.name]
        starts = [record.story_s(result.started_at or 0.0) for result in results]
        found.append(
            LaneFigures(
                lane.name,
                len(results),
                min(starts),
                max(starts),
                most[lane.name],
                lane_limit(record.plant, lane.name),
                waits(record, results),
            )
        )
    return tuple(found)


def isolated(record: Record) -> Check:
    """Lanes with room of their own wait for themselves and for their gates: never for slots that others hold.

    The moment in which the dispatcher takes a new task in is not counted: it is the first wait, and nobody's.
    """
    strangers: set[str] = set()
    names = [lane.name for lane in record.plant.lanes if lane.reserve]
    for result in record.results:
        if result.lane not in names:
            continue
        own = {f"gate:{gate.name}" for gate in record.plant.gates if result.lane in gate.holds_lanes}
        own.add(f"lane:{result.lane}")
        taken_in = 1 if result.waits and result.waits[0].reason == "order" else 0
        for wait in result.waits[taken_in:]:
            if wait.reason not in own:
                strangers.add(f"{result.task_id} waited for {wait.reason}")
    what = f"{' and '.join(names)} waited for their own limit and gate only, never for slots of others"
    return Check(what, not strangers, _some("not so:", sorted(strangers)))


def _some(head: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{head} {', '.join(names[:5])}{more}" if names else ""
