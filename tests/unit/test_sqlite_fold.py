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
from penstock.scheduling.messages import Decision, End, Requeue, Revive, Start
from penstock.store.base import TaskFilter
from penstock.store.sqlite import SQLiteStore
from tests.conformance.store_rig import T0, opened

TASKS = ("a", "b")
ENDED = (State.DONE, State.FAILED, State.CANCELLED, State.BLOCKED)

ids = st.sampled_from(TASKS)
attempts = st.integers(1, 3)
starts = st.builds(lambda task, n: Start(task, n, f"h{n}", "default", n, T0), ids, attempts)
requeues = st.builds(
    lambda task, n: Requeue(task, n, T0 + 1, T0 + 2, n, 1, Verdict.TEMPORARY, "x"), ids, attempts
)
ends = st.builds(
    lambda task, n, state: End(task, n, state, "s", T0 + 3, Outcome(Verdict.DONE, [n]) if n else None, None),
    ids,
    st.integers(0, 3),
    st.sampled_from(ENDED),
)
revivals = st.builds(lambda task: Revive(task, T0 + 4), ids)
decisions: st.SearchStrategy[list[Decision]] = st.lists(
    st.one_of(starts, requeues, ends, revivals), max_size=14
)


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
        ]


@settings(max_examples=60, deadline=None)
@given(decisions, st.lists(st.integers(1, 6), max_size=14))
def test_promise_1_grouping_makes_no_difference(all_of_them: list[Decision], sizes: list[int]) -> None:
    groups: list[list[Decision]] = []
    rest = all_of_them
    for size in sizes:
        groups.append(rest[:size])
        rest = rest[size:]
    groups.append(rest)
    assert asyncio.run(kept(groups)) == asyncio.run(kept([[decision] for decision in all_of_them]))


@settings(max_examples=60, deadline=None)
@given(decisions)
def test_promise_1_the_counts_are_those_of_the_tasks(all_of_them: list[Decision]) -> None:
    records, _, events, ended_in_run, counts, _ = asyncio.run(kept([all_of_them]))
    ended = [record for record in records if record.state in ENDED]
    assert counts == {state: n for state in ENDED if (n := sum(r.state is state for r in ended))}
    assert {record.task.id for _, record in ended_in_run} == {record.task.id for record in ended}
    assert len(events) == 1 + len(all_of_them)
    numbers = {event.number: event for event in events}
    assert all(numbers[n].task == record.task.id and numbers[n].type == "ended" for n, record in ended_in_run)
    assert all((record.ended_at is None) == (record.state not in ENDED) for record in records)
