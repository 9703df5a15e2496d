"""C8: the dispatcher with one thread per kind, on a real store: whatever a user does works on its tasks as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

import penstock
from penstock import Result, State, Task
from penstock.client import Client
from penstock.errors import UsageError
from penstock.store.base import TaskFilter

CONFIG = """
[hosts.h]
type = "simulated"
slots = 8
"""
SHORT = {"duration_s": 0.02}
LONG = {"duration_s": 600}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG)
    return path


@asynccontextmanager
async def dispatching(config: Path, **words: str) -> AsyncIterator[Client]:
    """Leaves without waiting for what runs long, also when the test has failed."""
    async with penstock.open(config, **words) as client:  # type: ignore[arg-type]
        try:
            yield client
        finally:
            await client.stop_dispatching(put_back=True)


def spans(results: Sequence[Result], kind: str) -> list[tuple[float, float]]:
    return sorted((r.started_at or 0.0, r.ended_at or 0.0) for r in results if r.kind == kind)


async def until_running(client: Client, *tasks: str) -> None:
    async with client.watching() as watch:
        while {r.task.id for r in await client.tasks(TaskFilter(states=(State.RUNNING,)))} != set(tasks):
            await watch()


async def test_c8_a_kind_runs_one_at_a_time_and_kinds_run_beside_each_other(config: Path) -> None:
    async with dispatching(config, dispatcher="threads") as p:
        run = await p.submit_many([Task(kind, SHORT) for kind in ("coding", "general") for _ in range(5)])
        results = await run.wait()
    assert {r.state for r in results} == {State.DONE}
    coding, general = spans(results, "coding"), spans(results, "general")
    for one in (coding, general):
        assert all(before[1] <= after[0] for before, after in pairwise(one)), "two of a kind overlap"
    assert coding[0][0] < general[-1][1]
    assert general[0][0] < coding[-1][1]
    held = [wait for r in results for wait in r.waits if wait.reason == "gate:thread:coding"]
    assert {wait.detail for wait in held} == {"the thread of kind coding is busy"}
    for result in results:
        assert result.waits[0].start == result.queued_at
        assert result.waits[-1].end == result.started_at
        assert all(a.end == b.start for a, b in pairwise(result.waits))


async def test_c8_why_names_the_task_that_the_thread_runs(config: Path) -> None:
    async with dispatching(config, dispatcher="threads") as p:
        first = await p.submit(Task("coding", LONG))
        second = await p.submit(Task("coding", LONG))
        other = await p.submit(Task("general", LONG))
        await until_running(p, first, other)
        why = await p.why(second)
        snapshot = await p.snapshot()
        assert why.parts[-1].wait.reason == "gate:thread:coding"
        assert [b.name for b in why.blocked_by if b.what == "task"] == [first]
        assert snapshot.epoch is not None
        assert snapshot.epoch.owner.command == "a client --dispatcher threads"
        # What waits and what runs can be cancelled, retried and paused as with the other dispatcher.
        assert (await p.cancel(second)).ok
        assert (await p.get(second)).state is State.CANCELLED
        assert (await p.cancel(first)).ok
        assert (await p.wait(first)).state is State.CANCELLED
        assert (await p.retry(second)).ok
        await until_running(p, second, other)
        assert (await p.pause("lane", "default")).ok
        assert (await p.retry(first)).ok
        assert (await p.cancel(second, other)).ok
        await asyncio.gather(p.wait(second), p.wait(other))
        assert (await p.why(first)).parts[-1].wait.reason == "paused"


@pytest.mark.parametrize("dispatcher", ["async", "threads"])
@pytest.mark.parametrize("on_stop", ["requeue", "block"])
async def test_c8_on_stop_what_ran_is_put_back_or_blocked(
    config: Path, dispatcher: str, on_stop: str
) -> None:
    """Never left running; what had not begun stays queued."""
    async with dispatching(config, dispatcher=dispatcher, on_stop=on_stop) as p:
        both = [Task("coding", LONG, id="ran"), Task("coding", SHORT, after=("ran",))]
        ran, after = (await p.submit_many(both)).task_ids  # a dispatcher that knows the one knows the other
        await until_running(p, ran)
        queued = await p.submit(Task("coding", {"duration_s": 0}, not_before=2e9))
        await p.stop_dispatching(put_back=True)
        states = [(await p.get(task)).state for task in (ran, after, queued)]
        error = (await p.get(ran)).error
    if on_stop == "requeue":
        assert states == [State.QUEUED, State.QUEUED, State.QUEUED]
    else:
        assert states == [State.BLOCKED, State.BLOCKED, State.QUEUED]
        assert error == "the dispatcher stopped while attempt 1 ran; on_stop = block"
        async with penstock.open(config, dispatch=False) as p:
            assert (await p.retry(ran)).ok
            assert (await p.get(ran)).state is State.QUEUED


async def test_c8_what_a_cancel_met_first_is_cancelled_not_blocked(config: Path) -> None:
    async with dispatching(config, on_stop="block") as p:
        ran = await p.submit(Task("coding", LONG))
        await until_running(p, ran)
        await asyncio.gather(p.cancel(ran), p.stop_dispatching(put_back=True))
        assert (await p.get(ran)).state in (State.CANCELLED, State.BLOCKED)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"dispatcher": "thread"}, "dispatcher: there is no 'thread'; choose from async, threads"),
        ({"on_stop": "kill"}, "on_stop: there is no 'kill'; choose from requeue, block"),
    ],
)
async def test_promise_7_another_word_is_refused(config: Path, words: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        async with penstock.open(config, **words):  # type: ignore[arg-type]
            pass
    assert not config.with_name("penstock.db").exists()


async def test_to_be_asked_twice_to_finish_is_no_haste(config: Path) -> None:
    """D7: whoever leaves by two ways puts nothing of others back."""
    async with dispatching(config) as p:
        ran = await p.submit(Task("coding", {"duration_s": 0.3}))
        await until_running(p, ran)
        await asyncio.gather(p.stop_dispatching(), p.stop_dispatching())
        assert (await p.get(ran)).state is State.DONE
