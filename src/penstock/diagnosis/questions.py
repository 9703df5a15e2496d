"""Questions of councils among the tasks of a run: which they are, and what is left of a recording without them.

A question holds its slot only to wait for its steps, which are tasks of the same run. It is no work of its own: it
loads no host, is no bound of the ideal, and is not played again. Its steps are, and one that came when others had
ended would come when those end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.config.council_steps import step_of
from penstock.config.councils import COUNCIL_TYPE
from penstock.diagnosis.recording import Recording
from penstock.model import Attempt, Plant, Task, TaskRecord


def asking_hosts(plant: Plant | None) -> frozenset[str]:
    """The hosts of questions."""
    return frozenset(host.name for host in plant.hosts if host.type == COUNCIL_TYPE) if plant else frozenset()


def question_kinds(plant: Plant | None) -> frozenset[str]:
    return (
        frozenset(kind for host in plant.hosts if host.type == COUNCIL_TYPE for kind in host.serves)
        if plant
        else frozenset()
    )


def is_step(task: Task) -> bool:
    return step_of(task.key) is not None


def without_questions(records: Iterable[TaskRecord], plant: Plant | None) -> list[TaskRecord]:
    kinds = question_kinds(plant)
    return [record for record in records if record.task.kind not in kinds]


def without_asking(attempts: Iterable[Attempt], plant: Plant | None) -> list[Attempt]:
    hosts = asking_hosts(plant)
    return [attempt for attempt in attempts if attempt.host not in hosts]


def work_of(recording: Recording) -> Recording:
    """The recording without its questions, from the first of their steps to the last."""
    plant = recording.plant
    if not asking_hosts(plant):
        return recording
    tasks = without_questions(recording.tasks, plant)
    if len(tasks) == len(recording.tasks):
        return replace(recording, others=without_asking(recording.others, plant))
    left = {record.task.id for record in tasks}
    ends = [recording.end if record.ended_at is None else record.ended_at for record in tasks]
    return replace(
        recording,
        begin=min((record.task.queued_at for record in tasks), default=recording.begin),
        end=max(ends, default=recording.begin),
        tasks=tasks,
        attempts=[attempt for attempt in recording.attempts if attempt.task in left],
        others=without_asking(recording.others, plant),
        waits={task: waits for task, waits in recording.waits.items() if task in left},
        costs={key: usd for key, usd in recording.costs.items() if key[0] in left},
    )
