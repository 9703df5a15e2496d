"""A long queue that is told in short comes to the same as a record of every task."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Fallback, Host, Lane, Outcome, Plant, State, Task, TaskRecord, Verdict
from penstock.scheduling import messages as m
from penstock.scheduling.scheduler import Scheduler
from tests.simulation.harness import in_short

NOW = 1000.0
PLANT = Plant(
    (
        Host("a", "none", 1, serves=("x", "y")),
        Host("b", "none", 1, serves=("y", "z"), fallback=Fallback(40.0)),
    ),
    (Lane("default"), Lane("slow", max_running=1)),
    aging_s=30.0,
)


def lived(event: m.Restored) -> tuple[list[m.Decision], list[m.Decision], dict[str, str | None]]:
    """What is decided at once, in which order all are started one after the other, and what each waited for."""
    scheduler = Scheduler(PLANT)
    first = scheduler.apply(event, NOW)
    known = [r.task.id for r in event.records] + [id for b in event.queued for id in b.ids]
    waits = {task: scheduler.waiting_reason(task) for task in known}
    starts = [d for d in first if isinstance(d, m.Start)]
    running, now = list(starts), NOW
    while running:
        start, now = running.pop(0), now + 1
        then = scheduler.apply(m.Finished(start.task, start.attempt, Outcome(Verdict.DONE)), now)
        begun = [d for d in then if isinstance(d, m.Start)]
        starts += begun
        running += begun
    return sorted(map(_unnumbered, first), key=repr), [_unnumbered(start) for start in starts], waits


def _unnumbered(decision: m.Decision) -> m.Decision:
    """Classes are numbered as they come up."""
    if isinstance(decision, m.Start | m.Route | m.Move | m.WaitChange):
        return decision._replace(work_class=0)
    return decision


@given(
    st.lists(
        st.tuples(
            st.sampled_from("xyz"),
            st.integers(0, 4),
            st.sampled_from(("default", "slow")),
            st.sampled_from((-100.0, -50.0, -50.0, -10.0, 0.0, 5.0)),
            st.integers(0, 4),
        ),
        max_size=25,
    ),
    st.integers(0, 1_000_000),
)
def test_a_queue_in_short_is_the_same_queue(given: list[tuple[str, int, str, float, int]], seed: int) -> None:
    records = []
    for i, (kind, priority, lane, ago_s, sort) in enumerate(given):
        after = (f"t{(i * 7) % len(given):02d}",) if sort == 1 and i * 7 % len(given) != i else ()
        task = Task(kind, priority=priority, lane=lane, id=f"t{i:02d}", queued_at=NOW + ago_s, after=after)
        ran = {"attempts": 1, "tries": 1, "retry_at": NOW - 1} if sort == 0 else {}
        records.append(TaskRecord(task, 3 * i + 5, State.QUEUED, **ran))  # type: ignore[arg-type]
    told, queued = in_short(records, random.Random(seed))
    assert lived(m.Restored(told, queued=queued)) == lived(m.Restored(records))
