"""Runs by name: the whole of it, a beginning that only one has, or the newest."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock.client
from penstock.client import Client, runs
from penstock.errors import StoreError, UnknownTask
from penstock.model import Task

CONFIG = """
store = "penstock.db"

[hosts.small]
type = "simulated"
"""


async def named(client: Client, *runs: str) -> None:
    for run in runs:
        await client.submit_many([Task("count")], run=run)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG)
    return path


async def test_a_run_is_found_by_name_beginning_or_as_the_last(config: Path) -> None:
    async with penstock.client.open(config, dispatch=False) as client:
        await named(client, "nightly", "nightly-2", "weekly")
        assert await client.run_named("nightly") == "nightly", "a whole name is never a beginning"
        assert await client.run_named("nightly-") == "nightly-2"
        assert await client.run_named("we") == "weekly"
        assert await client.run_named("last") == "weekly"
        await named(client, "last", "later")
        assert await client.run_named("last") == "last", "a run may be called so"


async def test_a_name_of_none_or_of_several_is_refused_in_one_line(config: Path) -> None:
    async with penstock.client.open(config, dispatch=False) as client:
        with pytest.raises(UnknownTask, match="there is no run 'last'"):
            await client.run_named("last")
        await named(client, "nightly-1", "nightly-2")
        with pytest.raises(UnknownTask, match="could be nightly-1, nightly-2; give more"):
            await client.run_named("night")
        for name in ("", "%", "day"):
            with pytest.raises(UnknownTask, match="there is no run"):
                await client.run_named(name)


async def test_a_task_that_is_run_again_between_two_looks_is_not_gone(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_LOOK_S", -1.0)
    async with penstock.client.open(config, dispatch=False) as client:
        run = await client.submit_many([Task("count")], run="nightly")

        async def none_live(run: str) -> int:
            return 0  # as it was before somebody had it run again

        monkeypatch.setattr(client._store, "live_in_run", none_live)
        endings = run.endings()
        assert await endings.take() == []
        assert endings.left == 1
        endings.add(["never-submitted"])
        with pytest.raises(
            StoreError, match=r"1 of the tasks .* not there any more, never-submitted among them"
        ):
            await endings.take()


async def test_a_recording_has_the_run_and_nothing_else(config: Path) -> None:
    async with penstock.client.open(config, dispatch=False) as client:
        await named(client, "nightly", "weekly")
        recording = await client.recording("weekly")
    assert [record.task.run for record in recording.tasks] == ["weekly"]
    assert recording.name == "weekly"
    assert [wait.reason for waits in recording.waits.values() for wait in waits] == ["dispatcher-down"]
