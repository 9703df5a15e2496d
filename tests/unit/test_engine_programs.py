"""What frames a program: made before it starts, heard while it runs, cleared away however it ended (A9)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.clock import ManualClock
from penstock.errors import HostError
from penstock.hosts.base import Health, Job, Program
from penstock.hosts.command import CommandAdapter
from penstock.model import Host, Outcome, Verdict
from tests.conformance import host_program
from tests.conformance.engine_rig import Rig, command_host
from tests.conformance.host_phone import Phone


class Framed:
    """An adapter whose programs live in a folder that is there as long as they are."""

    def __init__(self, folder: Path, *, argv: tuple[str, ...] = (), inherits: bool = True) -> None:
        self.folder = folder
        self.heard: list[bytes] = []
        self.threads: set[str] = set()
        self.refuse: HostError | None = None
        self.making: Callable[[], None] = lambda: None
        self._argv = argv or (sys.executable, "-I", host_program.__file__)
        self._inherits = inherits

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def check(self) -> Health:
        return Health(True)

    def work(self, job: Job) -> Program:
        return Program(
            self._argv,
            lambda status, out, err: Outcome(Verdict.DONE, out.decode()),
            stdin=json.dumps(job.payload).encode(),
            cwd=str(self.folder),
            inherits=self._inherits,
            before=self._before,
            heard=self.heard.append,
            after=self._after,
        )

    def _before(self) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.threads.add(threading.current_thread().name)
        self.making()
        self.folder.mkdir()

    def _after(self) -> None:
        if self.folder.exists():
            self.folder.rmdir()


def rigged(adapter: Framed, **fields: Any) -> Rig:
    rig = Rig(command_host("unused"), **fields)
    rig.adapters["framed"] = adapter
    return rig


async def test_a_program_is_framed_and_heard(tmp_path: Path) -> None:
    adapter = Framed(tmp_path / "own")
    async with rigged(adapter) as rig:
        outcome = await rig.outcome_of("framed", {"act": "return", "value": 1, "stderr": "said\n"})
        assert outcome.verdict is Verdict.DONE
        assert not adapter.folder.exists()  # gone before the end is told
    assert b"".join(adapter.heard) == b"said\n"
    assert all(name.startswith("penstock chore") for name in adapter.threads)


def test_a_program_may_end_before_it_is_given_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's workers have uvloop, which closes the pipes of such a program before it tells that it has begun."""
    monkeypatch.setattr(asyncio, "new_event_loop", uvloop.new_event_loop)

    async def results() -> list[Outcome]:
        async with Rig(command_host("true", argv=["true"])) as rig:
            return [await rig.outcome_of("true", {"number": number}) for number in range(30)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        outcomes = runner.run(results())
    assert {(outcome.verdict, outcome.error) for outcome in outcomes} == {(Verdict.DONE, None)}


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_program_that_is_stopped_is_cleared_away(tmp_path: Path, deaf: bool) -> None:
    adapter = Framed(tmp_path / "own")
    async with Phone() as phone, rigged(adapter) as rig:
        rig.start("framed", {"act": "meet", "port": phone.port, "deaf": deaf})
        caller = await phone.caller("")
        assert adapter.folder.exists()
        rig.engine.stop("t", 1)
        await caller.hung_up()
        assert (await rig.outcome()).verdict is Verdict.CANCELLED
        assert not adapter.folder.exists()


async def test_a_program_whose_time_is_up_is_cleared_away(tmp_path: Path) -> None:
    adapter, clock = Framed(tmp_path / "own"), ManualClock()
    async with Phone() as phone, rigged(adapter, clock=clock) as rig:
        rig.start("framed", {"act": "meet", "port": phone.port}, timeout_s=5.0)
        await phone.caller("")
        await rig.settle()
        clock.advance(6.0)
        assert (await rig.outcome()).timed_out
        assert not adapter.folder.exists()


async def test_a_stop_while_the_folder_is_made_leaves_none(tmp_path: Path) -> None:
    adapter = Framed(tmp_path / "own")
    begun, go_on = threading.Event(), threading.Event()

    def make_slowly() -> None:
        begun.set()
        go_on.wait()

    adapter.making = make_slowly
    async with rigged(adapter) as rig:
        rig.start("framed", {"act": "return"})
        await asyncio.to_thread(begun.wait)
        rig.engine.stop("t", 1)
        await rig.settle()
        go_on.set()
        assert (await rig.outcome()).verdict is Verdict.CANCELLED
        assert not adapter.folder.exists()


async def test_a_program_that_cannot_start_is_cleared_away(tmp_path: Path) -> None:
    adapter = Framed(tmp_path / "own", argv=("/no/such/program",))
    async with rigged(adapter) as rig:
        assert (await rig.outcome_of("framed", {})).verdict is Verdict.HOST
        assert not adapter.folder.exists()


async def test_what_cannot_be_made_ends_the_attempt(tmp_path: Path) -> None:
    adapter = Framed(tmp_path / "own")
    adapter.refuse = HostError("no room")
    async with rigged(adapter) as rig:
        outcome = await rig.outcome_of("framed", {"act": "return"})
        assert (outcome.verdict, outcome.error) == (Verdict.HOST, "no room")


async def test_closing_the_engine_clears_away(tmp_path: Path) -> None:
    adapter = Framed(tmp_path / "own")
    async with Phone() as phone, rigged(adapter) as rig:
        rig.start("framed", {"act": "meet", "port": phone.port})
        await phone.caller("")
    assert not adapter.folder.exists()


async def test_an_environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 8: what the dispatcher knows is not told to those who did not ask."""
    monkeypatch.setenv("A_SECRET", "x")
    ask = {"act": "environment", "variable": "A_SECRET"}
    for inherits, expected in ((True, '"x"'), (False, "null")):
        async with rigged(Framed(tmp_path / "own", inherits=inherits)) as rig:
            value = (await rig.outcome_of("framed", ask)).value
            assert f'"value": {expected}' in value
    assert os.environ["A_SECRET"] == "x"


def test_a_plain_program_has_no_frame() -> None:
    host = Host("tool", "command", options={"argv": ["prog"]})
    work = CommandAdapter(host).work(Job("t", 1, "k", None, "tool", "default"))
    assert (work.before, work.heard, work.after, work.inherits) == (None, None, None, True)
