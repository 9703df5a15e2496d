"""A property of recording: how decisions are grouped into transactions makes no difference to what is kept.

One decision per transaction is the plain way, without any folding; every other grouping must come to the same.
The decisions are any at all, also such as no sane dispatcher would make.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Outcome, State, Task, Verdict
from penstock.scheduling.messages import Decision, End, Reprioritize, Requeue, Revive, Start
from penstock.store.base import TaskFilter
from penstock.store.sqlite import SQLiteStore
from tests.conformance.store_rig import T0, opened

TASKS = ("a", "b")
ENDED = (State.DONE, State.FAILED, State.CANCELLED, State.BLOCKED)

# A task, a kind of step, and how far the number of its attempt is off.
Step = tuple[str, str, int]
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(TASKS),
        st.sampled_from(("start", "requeue", "end", "end in queue", "revive", "reprioritize")),
        st.sampled_from((0, 0, 0, 0, -1, 1)),
    ),
    max_size=16,
)


def decided(steps: Sequence[Step]) -> list[Decision]:
    """Mostly what a dispatcher would decide: attempts count up, and only some are off."""
    made: list[Decision] = []
    attempts = dict.fromkeys(TASKS, 0)
    for n, (task, step, off) in enumerate(steps):
        at = T0 + n
        attempt = max(1, attempts[task] + off + (step == "start"))
        if step == "start":
            made.append(Start(task, attempt, f"h{attempt}", "default", attempt, at))
            attempts[task] = attempt
        elif step == "requeue":
            made.append(Requeue(task, attempt, at, at + 1, n, 1, Verdict.TEMPORARY, "x"))
        elif step == "end":
            made.append(End(task, attempt, ENDED[n % 4], "s", at, Outcome(Verdict.DONE, [n]), None))
        elif step == "end in queue":
            made.append(End(task, 0, ENDED[n % 4], "s", at, None, "e"))
        elif step == "reprioritize":
            made.append(Reprioritize(task, at, 2, n % 5))
        else:
            made.append(Revive(task, at))
    return made


async def kept(groups: Sequence[Sequence[Decision]]) -> list[Any]:
    async with opened(SQLiteStore(":memory:")) as store:
        await store.submit([Task("count", id=id, run="r", queued_at=T0) for id in TASKS])
        for group in groups:
            await store.record(group)
        return [
            await store.tasks(TaskFilter()),
            [await store.attempts(id) for id in TASKS],
            await store.events(),
            await store.ended_in_run("r", 0),
            (await store.snapshot(T0)).ended,
            (await store.history(run="r")).rests,
            (await store.history(run="r")).priorities,
        ]


@settings(max_examples=60, deadline=None)
@given(steps.map(decided), st.lists(st.integers(1, 6), max_size=14))
def test_promise_1_grouping_makes_no_difference(all_of_them: list[Decision], sizes: list[int]) -> None:
    groups: list[list[Decision]] = []
    rest = all_of_them
    for size in sizes:
        groups.append(rest[:size])
        rest = rest[size:]
    groups.append(rest)
    assert asyncio.run(kept(groups)) == asyncio.run(kept([[decision] for decision in all_of_them]))


@settings(max_examples=60, deadline=None)
@given(steps.map(decided))
def test_promise_1_the_counts_are_those_of_the_tasks(all_of_them: list[Decision]) -> None:
    records, _, events, ended_in_run, counts, _, changes = asyncio.run(kept([all_of_them]))
    ended = [record for record in records if record.state in ENDED]
    assert counts == {state: n for state in ENDED if (n := sum(r.state is state for r in ended))}
    assert {record.task.id for _, record in ended_in_run} == {record.task.id for record in ended}
    assert len(events) == 1 + len(all_of_them)
    assert len(changes) == sum(event.type == "reprioritized" for event in events)
    last = {change.task: change.priority for change in changes}
    assert all(record.task.priority == last.get(record.task.id, 2) for record in records)
    numbers = {event.number: event for event in events}
    assert all(numbers[n].task == record.task.id and numbers[n].type == "ended" for n, record in ended_in_run)
    assert all((record.ended_at is None) == (record.state not in ENDED) for record in records)
