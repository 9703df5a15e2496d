"""Runs by name: the whole of it, a beginning that only one has, or the newest."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock.client
from penstock.client import Client
from penstock.errors import UnknownTask
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


async def test_a_recording_has_the_run_and_nothing_else(config: Path) -> None:
    async with penstock.client.open(config, dispatch=False) as client:
        await named(client, "nightly", "weekly")
        recording = await client.recording("weekly")
    assert [record.task.run for record in recording.tasks] == ["weekly"]
    assert recording.name == "weekly"
    assert [wait.reason for waits in recording.waits.values() for wait in waits] == ["dispatcher-down"]
