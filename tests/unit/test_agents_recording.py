"""B9: calls of the dispatcher's agents are counted like those of commands, and written together."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.agents import figures
from penstock.agents.figures import Sums
from penstock.agents.recording import Count, Recorder, counted
from penstock.config.agents import Agent
from penstock.errors import AgentError
from penstock.hosts.agent import AgentAdapter
from penstock.model import Host
from tests.unit.agent_rig import RENDER, StubKeeper, answered, done, endpoint_of, failed, perform
from tests.unit.model_rig import Call, wire


async def made(folder: Path, *, hit: bool, event: str | None = None, answer: Any = None) -> Sums:
    """One call, and what is known of it when the recorder is closed."""
    recorder = Recorder(str(folder))
    async with counted(recorder, "reports") as count:
        trail = count.begun()
        trail.note("lease", pool=hit)
        if event is not None:
            recorder.kept(event, 0.25)
        count.leased()
        count.answered(answer)
    await recorder.close()
    return figures.read(str(folder))


async def test_a_hit_waits_for_nothing(tmp_path: Path) -> None:
    sums = await made(tmp_path, hit=True, answer={"duration_s": 0.0, "waited_s": 0.0})
    assert sums.counts == {"calls": 1, "answered": 1, "hits": 1, "pool_ready": 1}
    assert set(sums.longest) == {"overhead_s"}


@pytest.mark.parametrize(("event", "pool"), [("start", "cold"), ("resume", "resumed"), (None, "ready")])
async def test_who_waited_knows_for_what(tmp_path: Path, event: str | None, pool: str) -> None:
    sums = await made(tmp_path, hit=False, event=event)
    assert sums.counts == {"calls": 1, "answered": 1, "misses": 1, f"pool_{pool}": 1}
    assert "lock_wait_s" in sums.longest
    assert sums.longest.get("start_s") == (0.25 if event == "start" else None)


async def test_an_error_is_counted_and_a_stop_is_not(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path))

    async def failing(error: type[BaseException]) -> None:
        async with counted(recorder, "reports"):
            raise error

    with pytest.raises(AgentError):
        await failing(AgentError)
    with pytest.raises(asyncio.CancelledError):
        await failing(asyncio.CancelledError)
    await recorder.close()
    assert figures.read(str(tmp_path)).counts == {"calls": 1, "unanswered": 1}


async def test_what_counts_as_answered(tmp_path: Path) -> None:
    """B9: a command that failed was answered; one that was not begun, or whose container was lost, was not."""
    answers = [
        answered(200, done(1)),
        answered(500, failed("handler_failed", exit=3)),
        answered(503, failed("no_room")),
        answered(429, failed("busy")),  # it is asked for again: no call is over
        None,
    ]
    recorder = Recorder(str(tmp_path))

    async def act(call: Call) -> None:
        given = answers[min(len(server.calls), len(answers)) - 1]
        if given is None:
            call.reset()
        else:
            await call.send(given)

    async with wire(act) as server:
        keeper = StubKeeper(endpoint_of(server))
        host = AgentAdapter(Host("reports", "agent"), Agent("reports", "x"), keeper, keeper, recorder)
        await host.open()
        for _ in answers:
            await perform(host, RENDER)
        await host.close()
    assert figures.read(str(tmp_path)).counts == {
        "calls": 4,
        "answered": 2,
        "unanswered": 2,
        "misses": 4,
        "pool_ready": 4,
    }


async def test_lines_are_written_together_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def append(folder: str, lines: list[bytes]) -> None:
        written.append(len(lines))
        loop.call_soon_threadsafe(done.set)

    monkeypatch.setattr(figures, "append", append)
    recorder = Recorder(str(tmp_path), flush_s=0.01)
    for _ in range(100):
        async with counted(recorder, "reports") as count:
            count.ok = True
    await asyncio.wait_for(done.wait(), 10)
    await recorder.close()
    assert written == [100]


async def test_closing_waits_for_all_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for what a slow disk has kept since the second before."""
    append, slow, begun = figures.append, threading.Event(), threading.Semaphore(0)

    def slowly(folder: str, lines: list[bytes]) -> None:
        begun.release()
        if not slow.is_set():
            assert slow.wait(10)
        append(folder, lines)

    monkeypatch.setattr(figures, "append", slowly)
    recorder = Recorder(str(tmp_path), flush_s=0.001)
    for _ in range(2):
        async with counted(recorder, "reports") as count:
            count.ok = True
        await asyncio.to_thread(begun.acquire)
    async with counted(recorder, "reports") as count:
        count.ok = True
    asyncio.get_running_loop().call_later(0.01, slow.set)
    await recorder.close()
    assert figures.read(str(tmp_path)).counts["calls"] == 3


async def test_without_a_recorder_nothing_is_counted() -> None:
    count = Count(None, "reports")
    count.begun()
    count.leased()
    count.answered({})
    count.over()
