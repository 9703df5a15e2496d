"""What attempts came to, as the scheduler hears of it: most have finished, some go back to the queue."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence

from penstock.hosts.base import Job
from penstock.model import OnCrash, Outcome, Task, Verdict
from penstock.scheduling.messages import CancelAsked, Event, Finished, PutBack


def events_of(
    ended: Sequence[tuple[Job, Outcome]],
    task_of: Callable[[str], Task | None],
    calls: Collection[str],
    *,
    putting_back: bool,
    blocks: bool,
) -> list[Event]:
    """`putting_back`: what was stopped goes back to the queue, or is blocked; but for calls, which are over."""
    events: list[Event] = []
    chance = random.random
    for job, outcome in ended:
        if putting_back and outcome.verdict is Verdict.CANCELLED and job.task not in calls:
            events.append(PutBack(job.task, job.attempt, outcome.tokens, outcome.cost_usd, blocks))
        elif putting_back and job.task in calls:  # nobody waits for it any more
            events += (CancelAsked(job.task), Finished(job.task, job.attempt, outcome))
        elif outcome.unbegun:
            events.append(PutBack(job.task, job.attempt, why=outcome.error))
        elif outcome.orphaned and _must_not_run_twice(task_of(job.task)):
            why = f"{outcome.error}; on_crash = block"
            events.append(PutBack(job.task, job.attempt, block=True, why=why))
        else:
            events.append(Finished(job.task, job.attempt, outcome, chance()))
    return events


def _must_not_run_twice(task: Task | None) -> bool:
    return task is not None and task.on_crash is OnCrash.BLOCK
