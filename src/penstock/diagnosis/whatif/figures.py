"""What a change of the plant would bring: figures of a run before and after, a sweep, who gains and who loses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite
from typing import Any, NamedTuple

from penstock.diagnosis.attempts import lived
from penstock.diagnosis.questions import asking_hosts
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.steps import Steps
from penstock.diagnosis.summary import Bound, bound_of
from penstock.diagnosis.whatif.replay import Played, Replay
from penstock.diagnosis.words import count_unwell
from penstock.lifecycle import ENDED
from penstock.model import Attempt, Host, Plant, TaskRecord
from penstock.scheduling.messages import HostChange

KNEE = 0.05  # the knee is the least value whose makespan is within this of the best
_MOST = 5  # tasks that are named on either side
UNTOLD = "not told"  # why tasks waited in a log of another system


class LaneWaits(NamedTuple):
    """How long the tasks of a lane waited before they started, and for what, all together."""

    lane: str
    tasks: int
    mean_s: float
    p95_s: float
    reasons: Mapping[str, float]  # the largest first


class HostBusy(NamedTuple):
    host: str
    slots: int  # the most, where they tune themselves
    attempts: int
    share: float  # of its slots over the whole time, held by the run


@dataclass(frozen=True, slots=True)
class Figures:
    makespan_s: float  # infinite when some tasks never end
    ideal: Bound
    lanes: tuple[LaneWaits, ...]
    hosts: tuple[HostBusy, ...]
    cost_usd: float
    failed: int
    cancelled: int
    blocked: int
    left: int  # tasks that do not end

    @property
    def waited_s(self) -> float:
        """By a task, on average."""
        tasks = sum(lane.tasks for lane in self.lanes)
        return sum(lane.mean_s * lane.tasks for lane in self.lanes) / tasks if tasks else 0.0

    def as_record(self) -> dict[str, Any]:
        return {
            "makespan_s": _rounded(self.makespan_s),
            "ideal_s": _rounded(self.ideal.seconds),
            "ideal_because": self.ideal.because,
            "waited_mean_s": _rounded(self.waited_s),
            "cost_usd": round(self.cost_usd, 6),
            "failed": self.failed,
            "cancelled": self.cancelled,
            "blocked": self.blocked,
            "left": self.left,
            "lanes": {
                lane.lane: {
                    "tasks": lane.tasks,
                    "mean_s": _rounded(lane.mean_s),
                    "p95_s": _rounded(lane.p95_s),
                    "reasons": {reason: _rounded(s) for reason, s in lane.reasons.items()},
                }
                for lane in self.lanes
            },
            "hosts": {
                host.host: {"slots": host.slots, "attempts": host.attempts, "share": round(host.share, 4)}
                for host in self.hosts
            },
        }


def _rounded(seconds: float) -> float | None:
    """JSON has no word for what never ends."""
    return round(seconds, 3) if isfinite(seconds) else None


def figures_of(recording: Recording, plant: Plant) -> Figures:
    left = sum(record.state not in ENDED for record in recording.tasks)
    span = recording.makespan_s
    busy: dict[str, float] = defaultdict(float)
    count: dict[str, int] = defaultdict(int)
    slots_of = {record.task.id: _slots(record) for record in recording.tasks}
    for attempt in recording.attempts:
        count[attempt.host] += 1
        busy[attempt.host] += slots_of.get(attempt.task, 1.0) * _seconds(attempt, recording.end)
    hosts = []
    asking = asking_hosts(plant)
    for host in (one for one in plant.hosts if one.name not in asking):
        most, slot_s = _slots_over(recording, host)
        hosts.append(HostBusy(host.name, most, count[host.name], busy[host.name] / slot_s if slot_s else 0.0))
    return Figures(
        makespan_s=inf if left else span,
        ideal=bound_of(recording, plant),
        lanes=_lanes(recording),
        hosts=tuple(hosts),
        cost_usd=sum(recording.costs.values()),
        left=left,
        **count_unwell(recording.tasks),
    )


def _slots_over(recording: Recording, host: Host) -> tuple[int, float]:
    """The most slots a host had, and all of them times how long it had them."""
    if host.auto is None:
        return host.slots, host.slots * max(0.0, recording.makespan_s)
    at, slots, most, slot_s = recording.begin, host.slots, 0, 0.0
    for change in recording.changes:
        if not isinstance(change, HostChange) or change.host != host.name or change.at >= recording.end:
            continue
        if change.at > at:
            slot_s += slots * (change.at - at)
            at, most = change.at, max(most, slots)
        slots = change.slots
    return max(most, slots), slot_s + slots * max(0.0, recording.end - at)


def _slots(record: TaskRecord) -> float:
    needs = record.task.needs
    return 1.0 if needs is None else needs.get("slots", 1.0)


def _seconds(attempt: Attempt, end: float) -> float:
    return max(0.0, (end if attempt.ended_at is None else attempt.ended_at) - attempt.started_at)


def _lanes(recording: Recording) -> tuple[LaneWaits, ...]:
    reasons = _reasons(recording)
    waited: dict[str, list[float]] = defaultdict(list)
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for record in recording.tasks:
        own = reasons[record.task.id]
        waited[record.task.lane].append(sum(own.values()))
        for reason, seconds in own.items():
            sums[record.task.lane][reason] += seconds
    return tuple(
        LaneWaits(
            lane,
            len(seconds),
            sum(seconds) / len(seconds),
            sorted(seconds)[ceil(0.95 * len(seconds)) - 1],
            dict(sorted(sums[lane].items(), key=lambda item: (-item[1], item[0]))),
        )
        for lane, seconds in sorted(waited.items())
    )


def _reasons(recording: Recording) -> Mapping[str, Mapping[str, float]]:
    """How long each task waited for what. Of a log only that it waited is known."""
    found: dict[str, dict[str, float]] = {r.task.id: defaultdict(float) for r in recording.tasks}
    for task, waits in recording.waits.items():
        for wait in waits:
            found[task][wait.reason] += wait.seconds
    if recording.waits:
        return found
    first: dict[str, float] = {}
    for attempt in recording.attempts:
        first[attempt.task] = min(attempt.started_at, first.get(attempt.task, inf))
    for record in recording.tasks:
        waited = first.get(record.task.id, recording.end) - record.task.queued_at
        if waited > 0:
            found[record.task.id][UNTOLD] = waited
    return found


# ---- how well the replay is the run


def replay_error(recorded: Recording, replayed: Recording) -> float | None:
    """By how much the makespans differ; None for a run that goes on."""
    if recorded.makespan_s <= 0 or any(record.state not in ENDED for record in recorded.tasks):
        return None
    return abs(replayed.makespan_s - recorded.makespan_s) / recorded.makespan_s


def guesses(replay: Replay, recording: Recording) -> list[str]:
    """Where a replay went beyond what the record has seen, in words."""
    if "host" not in recording.told:
        return ["the log names no hosts: that attempts slow each other down is not accounted for"]
    said = []
    lives = lived(recording)
    for host in recording.plant.hosts if recording.plant else ():
        most = Steps((a.start, a.end) for a in lives.get(host.name, ())).most
        seen = replay.works.most_at_once(host.name)
        curve = replay.works.curves.get(host.name)
        if not most:
            continue
        if curve is None:
            said.append(f"{host.name} ran nothing in the record: it is assumed to be as fast as the others")
        elif most > seen:
            how = "to slow down further, as it did so far" if curve.slows else "not to slow down"
            said.append(
                f"{host.name} never ran more than {seen} at once in the record; "
                f"with up to {most} it is assumed {how}"
            )
        elif most < seen and not curve.is_known:
            said.append(
                f"the record does not tell whether {host.name} is faster with fewer than {seen} at once; "
                "it is assumed not to be"
            )
    return said


# ---- sweeps


class Point(NamedTuple):
    value: Any
    makespan_s: float  # infinite when some tasks never end
    waited_s: float  # by a task, on average
    cost_usd: float
    failed: int
    cancelled: int
    blocked: int
    left: int
    is_guess: bool  # a host runs more at once than the record has seen

    def as_record(self) -> dict[str, Any]:
        record = self._asdict()
        return record | {"makespan_s": _rounded(self.makespan_s), "waited_s": _rounded(self.waited_s)}


def point_of(value: Any, played: Played, replay: Replay) -> Point:
    records = played.records
    seen = replay.works.most_at_once
    return Point(
        value,
        played.makespan_s,
        played.waited_s,
        played.cost_usd,
        left=sum(r.state not in ENDED for r in records),
        is_guess=any(most > seen(host) for host, most in played.most_at_once().items()),
        **count_unwell(records),
    )


def knee_of(points: Sequence[Point]) -> Point | None:
    """The first value, in the order of the sweep, whose makespan is within 5 % of the best.

    None when that is the last of them, since what comes after it may be better still; and on a flat line, which has
    no knee.
    """
    enough = _enough(points)
    return None if is_still_falling(points) or is_flat(points) else enough


def is_still_falling(points: Sequence[Point]) -> bool:
    """Whether only the last value is near the best."""
    return len(points) > 1 and _enough(points) is points[-1]


def is_flat(points: Sequence[Point]) -> bool:
    """Whether no value makes a difference worth naming."""
    return _enough(points) is not None and max(p.makespan_s for p in points) <= _near(points)


def _near(points: Sequence[Point]) -> float:
    """What is as good as the best."""
    return min((point.makespan_s for point in points), default=inf) * (1 + KNEE)


def _enough(points: Sequence[Point]) -> Point | None:
    near_s = _near(points)
    return next((p for p in points if p.makespan_s <= near_s), None) if isfinite(near_s) else None


# ---- who gains and who loses


class Moved(NamedTuple):
    """A task that ends sooner (below 0) or later, and what it waited for."""

    task: str
    lane: str
    kind: str
    by_s: float
    before: Mapping[str, float]  # reason -> seconds
    after: Mapping[str, float]

    def as_record(self) -> dict[str, Any]:
        return {
            "task_id": self.task,
            "lane": self.lane,
            "kind": self.kind,
            "by_s": round(self.by_s, 3),
            "before": {reason: round(s, 3) for reason, s in self.before.items()},
            "after": {reason: round(s, 3) for reason, s in self.after.items()},
        }


class Group(NamedTuple):
    lane: str
    kind: str
    tasks: int
    sooner: int
    later: int
    by_s: float  # of a task, on average

    def as_record(self) -> dict[str, Any]:
        return {**self._asdict(), "by_s": round(self.by_s, 3)}


@dataclass(frozen=True, slots=True)
class Explanation:
    groups: tuple[Group, ...]  # by lane and kind, those that gain most first
    gain: tuple[Moved, ...]
    lose: tuple[Moved, ...]

    def as_record(self) -> dict[str, Any]:
        return {
            "groups": [group.as_record() for group in self.groups],
            "gain": [moved.as_record() for moved in self.gain],
            "lose": [moved.as_record() for moved in self.lose],
        }


def explain(before: Recording, after: Recording, most: int = _MOST) -> Explanation:
    """Tasks that end in both, the most moved first; less than a millisecond is no move."""
    ends = {r.task.id: r.ended_at for r in before.tasks}
    was, is_ = _reasons(before), _reasons(after)
    moved = [
        Moved(
            record.task.id,
            record.task.lane,
            record.task.kind,
            record.ended_at - end,
            was[record.task.id],
            is_[record.task.id],
        )
        for record in after.tasks
        if record.ended_at is not None and (end := ends.get(record.task.id)) is not None
    ]
    by_group: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in moved:
        by_group[one.lane, one.kind].append(one.by_s)
    groups = [
        Group(*key, len(of), sum(s < -0.001 for s in of), sum(s > 0.001 for s in of), sum(of) / len(of))
        for key, of in by_group.items()
    ]
    moved.sort(key=lambda one: (one.by_s, one.task))
    return Explanation(
        tuple(sorted(groups, key=lambda group: (group.by_s, group.lane, group.kind))),
        tuple(one for one in moved[:most] if one.by_s < -0.001),
        tuple(one for one in reversed(moved[-most:]) if one.by_s > 0.001),
    )
