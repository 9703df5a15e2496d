"""A log of another system made fit for a replay: hosts where it names none, a plant where no config gives one.

The plant that a log lets infer has the hosts it names, each with as many slots as it had attempts at once, for the
kinds it served.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from penstock.diagnosis.recording import Recording
from penstock.diagnosis.steps import Steps
from penstock.errors import UsageError
from penstock.model import DEFAULT_LANE, Attempt, Host, Lane, Plant, TaskRecord, Verdict

UNKNOWN = "unknown"  # the host of all that ran on none that is named


def playable(recording: Recording, plant: Plant | None) -> tuple[Recording, Plant]:
    """The recording and its plant, or one that stands for it. Of our own runs both are there already."""
    if not recording.attempts:
        raise UsageError(f"{recording.name}: nothing in it has run yet, so there is nothing to replay")
    if recording.is_ours and recording.plant is not None:
        return recording, _with_lanes(recording.plant, recording)
    attempts = [_named(attempt) for attempt in recording.attempts]
    recording = replace(recording, attempts=_tried_again(attempts))
    plant = plant or recording.plant or inferred_plant(recording)
    plant = _with_lanes(plant if "kind" in recording.told else _serving(plant, recording), recording)
    tasks = [_fit(record, plant) for record in recording.tasks]
    return replace(recording, tasks=tasks, plant=plant), plant


def _named(attempt: Attempt) -> Attempt:
    return attempt if attempt.host else replace(attempt, host=UNKNOWN)


def _tried_again(attempts: list[Attempt]) -> list[Attempt]:
    """A log does not tell that a task was to be tried again; that it was, tells it."""
    last = {attempt.task: attempt.number for attempt in sorted(attempts, key=lambda a: a.number)}
    return [
        a
        if a.number == last[a.task] or a.ended_at is None
        else replace(a, retry_at=a.ended_at, verdict=_worth_another(a.verdict))
        for a in attempts
    ]


def _worth_another(verdict: Verdict | None) -> Verdict:
    return verdict if verdict in (Verdict.HOST, Verdict.THROTTLED) else Verdict.TEMPORARY


def _fit(record: TaskRecord, plant: Plant) -> TaskRecord:
    """With as many tries as it had."""
    task = record.task
    if not plant.hosts_for(task.kind, task.host):
        raise UsageError(f"no host of the config serves kind {task.kind!r} of task {task.id}; add one")
    return replace(record, task=replace(task, retries=max(0, record.attempts - 1)))


def _serving(plant: Plant, recording: Recording) -> Plant:
    """Of a log that tells no kinds: its hosts serve what they ran."""
    ran = {attempt.host for attempt in recording.attempts}
    kinds = tuple(dict.fromkeys(record.task.kind for record in recording.tasks))
    hosts = (
        replace(host, serves=tuple(dict.fromkeys((*host.serves, *kinds)))) if host.name in ran else host
        for host in plant.hosts
    )
    return replace(plant, hosts=tuple(hosts))


def _with_lanes(plant: Plant, recording: Recording) -> Plant:
    """With the lanes that tasks are in, so that they can be named in a change."""
    there = {lane.name for lane in plant.lanes}
    missing = dict.fromkeys(r.task.lane for r in recording.tasks if r.task.lane not in there)
    if DEFAULT_LANE not in there:
        missing[DEFAULT_LANE] = None
    return replace(plant, lanes=(*plant.lanes, *map(Lane, missing))) if missing else plant


def inferred_plant(recording: Recording) -> Plant:
    """As far as the log tells."""
    kinds = {record.task.id: record.task.kind for record in recording.tasks}
    served: dict[str, dict[str, None]] = defaultdict(dict)
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for attempt in recording.attempts:
        served[attempt.host][kinds[attempt.task]] = None
        end = recording.end if attempt.ended_at is None else attempt.ended_at
        spans[attempt.host].append((attempt.started_at, end))
    known = {kind for of_host in served.values() for kind in of_host}
    waiting = {record.task.kind for record in recording.tasks} - known
    hosts = tuple(
        Host(
            host,
            "simulated",
            slots=max(1, Steps(spans[host]).most),
            serves=(*served[host], *sorted(waiting)),  # of kinds that never ran nobody knows where
        )
        for host in served
    )
    return Plant(hosts)
