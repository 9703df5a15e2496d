"""A run that is watched: interrupts at any moment, and options that only who dispatches can heed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import penstock
from penstock.cli.following import follow
from penstock.cli.host_watch import HostWatch
from penstock.cli.progress import Lines
from penstock.cli.session import Interrupts, Settings, opened
from penstock.cli.work import _RunWorker
from penstock.client import Client
from penstock.config import Config, parse
from penstock.model import State, Task, TaskRecord
from penstock.wiring import Dispatching, open_store
from tests.conformance.store_rig import ME, T0, start


class Pressed(Interrupts):
    """Two at once as soon as somebody hears them."""

    def open(self) -> None:
        self._numbers = ()  # type: ignore[assignment]

    def tell(self, hear: Callable[[int], None]) -> None:
        self.hear = hear
        hear(signal.SIGTERM)
        hear(signal.SIGTERM)

    def close(self) -> None:
        pass


def config(folder: Path) -> Config:
    text = '[hosts.here]\ntype = "simulated"\nserves = ["count"]\nduration_s = 0.0\n'
    return parse(text, folder / "penstock.toml")


async def watched(client: Client) -> tuple[bool, list[str], Pressed]:
    run = await client.submit_many([Task("count")])
    told: list[str] = []
    pressed = Pressed()

    async def nothing(_: Sequence[TaskRecord]) -> None:
        pass

    ended = await follow(
        client,
        run,
        pressed,
        nothing,
        told.append,
        HostWatch(client, {run.task_ids[0]: Task("count")}, told.append, 0.0),
    )
    return ended, told, pressed


async def test_two_quick_interrupts_of_who_only_watches(tmp_path: Path) -> None:
    """Nothing of ours runs: nothing is put back, so nothing is said; a late third one finds nobody."""
    async with penstock.open(config(tmp_path), dispatch=False) as client:
        ended, told, pressed = await watched(client)
        pressed.hear(signal.SIGINT)
        assert (ended, told) == (False, [])
        assert [record.state for record in await client.tasks()] == [State.QUEUED]


async def test_two_quick_interrupts_of_who_dispatches(tmp_path: Path) -> None:
    async with penstock.open(config(tmp_path)) as client:
        _, told, pressed = await watched(client)
        pressed.hear(signal.SIGINT)
        assert told == [
            "finishing what runs, starting nothing more; Ctrl-C again puts it back",
            "putting back what runs",
        ]
        assert not client.dispatches


async def test_what_another_process_runs_is_told_as_running_to_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with penstock.open(config(tmp_path), dispatch=False) as client:
        other = open_store(config(tmp_path))
        await other.open()
        await other.acquire(ME, T0)
        run = await client.submit_many([Task("count", id="a"), Task("count", id="b")])
        await other.record([start("a")])
        worker = _RunWorker(client, run, [Task("count")] * 2, Lines(), [], 0.0)
        assert not await worker.work(Pressed())
        await other.close()
    assert capsys.readouterr().err.splitlines()[-1].endswith("0 of 2 done, 1 running, 1 queued")


async def test_options_of_dispatching_that_have_no_effect_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with penstock.open(config(tmp_path)) as dispatching:
        owner = (await dispatching.snapshot()).epoch
        assert owner is not None
        async with opened(config(tmp_path), dispatching=Dispatching()):
            assert caplog.messages == []
        async with opened(config(tmp_path), dispatching=Dispatching("threads", "block")):
            who = f"process {owner.owner.pid} ({owner.owner.command})"
            assert caplog.messages == [
                f"{who} dispatches; --dispatcher threads --on-stop block has no effect"
            ]


async def test_options_of_dispatching_that_have_an_effect_are_not_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(config(tmp_path), dispatching=Dispatching("threads")) as client:
        assert client.dispatches
    assert caplog.messages == []


def test_a_command_to_type_next_opens_the_same_config() -> None:
    assert Settings().command("work --drain") == "penstock work --drain"
    given = Settings(Path("a b.toml"), ["hosts.x.slots=4", "aging_s=1"])
    assert (
        given.command("work --drain")
        == "penstock -c 'a b.toml' --set hosts.x.slots=4 --set aging_s=1 work --drain"
    )
