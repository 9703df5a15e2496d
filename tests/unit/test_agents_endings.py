"""What ends in the middle leaves nothing half made, and says in one line what is wrong (B4)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.agents import by_hand
from penstock.agents.endpoints import EndpointFile
from penstock.agents.quick.direct_call import Asked
from penstock.agents.quick.quick_call import Unfinished
from penstock.agents.starts import stopping
from penstock.agents.starts.start_lock import FileStartLock
from penstock.agents.starts.starting import Starter
from penstock.agents.trail import Trail
from penstock.cli import agent_call, agent_session
from penstock.cli.agent_tables import print_logs
from penstock.config import Config
from penstock.config.agents import Agent
from penstock.errors import EngineUnreachable, UsageError
from penstock.wiring import read_config
from tests.simulation.agent_engine import EngineOf, Machine

AGENT = Agent("reports", "here", command=("serve",))


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    machine = Machine()
    yield machine
    await machine.close()


# ---- signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_b4_who_is_told_to_end_cleans_up_as_after_an_interrupt(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cleaned_up: list[bool] = []

    async def making() -> int:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(cleaned_up.append, True)
        return 0

    monkeypatch.setattr(agent_call, "_finish", lambda left, settings: asyncio.run(making()))
    left = Unfinished(Asked("reports", "render"), Trail("reports"))
    before = signal.signal(number, signal.SIG_DFL)  # the suite may run under `nohup`
    try:
        assert agent_call.finish(left) == 128 + number
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert cleaned_up == [True]
    assert capfd.readouterr().err == "penstock: interrupted\n"


def test_also_where_nobody_heeds_ctrl_c() -> None:
    """A shell starts what runs in the background like this."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), agent_session.ended_as_interrupted() as heard:
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGTERM]


def test_a_signal_that_somebody_ignores_stays_ignored() -> None:
    """As `nohup` has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with agent_session.ended_as_interrupted() as heard:
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert heard == []


# ---- stopping


async def test_b4_an_engine_that_fails_while_an_agent_is_stopped_is_one_error(
    machine: Machine, tmp_path: Path
) -> None:
    """Of several containers; those that could be stopped are."""
    failed: list[str] = []

    def on_step(name: str) -> None:
        if name == "before remove" and not failed:
            failed.append(name)
            raise EngineUnreachable("the engine went away; start it")

    await Starter(EngineOf(machine, str(tmp_path))).start_more(AGENT, 3)
    engine = EngineOf(machine, str(tmp_path), on_step)
    with pytest.raises(EngineUnreachable, match="start it"):
        await stopping.stop(engine, AGENT.name, FileStartLock, now=True)
    assert len(machine.running()) == 1
    assert await stopping.stop(engine, AGENT.name, FileStartLock, now=True) == 1
    assert machine.running() == []


# ---- logs


class Logging(EngineOf):
    """One whose containers have written a line each, and end."""

    async def logs(self, id: str, tail: int | None = None, follow: bool = False) -> AsyncIterator[str]:
        yield f"line of {id}\n"


async def test_logs_that_are_followed_say_why_they_end(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "penstock.toml").write_text('[agents.reports]\nimage = "here"\ncommand = ["serve"]\n')
    config = read_config(tmp_path / "penstock.toml", {})
    engine = Logging(machine, agent_session.agents_dir(config))
    starter = Starter(engine)

    @asynccontextmanager
    async def opened(_: Config) -> AsyncIterator[by_hand.Session]:
        yield by_hand.Session(engine, starter, FileStartLock)

    monkeypatch.setattr(agent_session, "opened", opened)
    with pytest.raises(UsageError, match="no container, and what those before wrote went with them"):
        await print_logs(config, "reports", None, follow=True, as_json=False)
    endpoint = await starter.endpoint(AGENT, Trail("reports"))
    assert await print_logs(config, "reports", None, follow=True, as_json=False) == 0
    out, err = capsys.readouterr()
    assert out == f"line of {endpoint.container}\n"
    assert err == (
        "penstock: agent logs: reports: its container has ended; `penstock agent logs reports -f` follows those "
        "that come after\n"
    )


# ---- drafts


async def test_b4_drafts_of_killed_writers_go_with_the_next_start(machine: Machine, tmp_path: Path) -> None:
    agents = tmp_path / "agents"
    folder = agents / AGENT.name
    folder.mkdir(parents=True)
    drafts = [agents / "serving.json.12", agents / "agent_server-ab.py.7", folder / "config.json.9"]
    others = [agents / "serving.json", folder / "config.json", agents / "notes.txt.12"]
    for path in [*drafts, *others]:
        path.write_text("{}")
        os.utime(path, (0, 0))
    (folder / "config.json.10").write_text("somebody writes it just now")
    agent = replace(AGENT, env={"A": "1"})
    await Starter(EngineOf(machine, str(agents))).endpoint(agent, Trail(agent.name))
    assert not [path for path in drafts if path.exists()]
    assert all(path.exists() for path in [*others, folder / "config.json.10"])
    assert len(EndpointFile(str(agents), AGENT.name).read()) == 1
