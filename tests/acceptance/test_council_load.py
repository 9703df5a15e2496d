"""D7, D9 on a real `serve`: rapid fire leaves nothing behind, and code that computes holds nobody up."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.testing import ModelServer
from tests.acceptance.council_rig import Asker, asking, council, hosts, models
from tests.acceptance.serve_rig import Figures, Serve, serving, until
from tests.figures import Tell

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
# The last 64 that are over are remembered for their followers: a long run begins with as many.
FIRST, MORE, CROWD = (50, 30, 20) if SOAK else (4, 6, 8)
ROUNDS = 5 if SOAK else 1  # of what is measured
MARGIN_BYTES = 16 * 1024 * 1024
NAMES = ("a", "b", "c")


def all_answered(ends: list[dict[str, Any]]) -> None:
    for end in ends:
        assert end["event"] == "done", end
        assert end["record"]["success_count"] == len(NAMES), end
        assert end["record"]["synthesis"]["method"] == "synthesis", end
        assert end["record"]["agreement"]["measured"], end


async def fire(asker: Asker, in_a_row: int) -> None:
    all_answered([await asker.ask() for _ in range(in_a_row)])
    all_answered(await asker.crowd(CROWD))


@pytest.mark.slow
async def test_d7_rapid_fire_leaves_nothing_behind(tmp_path: Path, tell: Tell) -> None:
    """Questions in a row, then many at once, again and again: memory, tasks, threads, processes, sockets and files
    are what they were after the first of them."""
    with ModelServer.in_thread(models(*NAMES, "chair", tokens_per_s=500)) as upstream:
        config = hosts(**dict.fromkeys((*NAMES, "chair"), upstream.url)) + council(NAMES)
        with serving(tmp_path, config) as serve:
            async with asking(serve) as asker:
                await fire(asker, FIRST)
                first = await asyncio.to_thread(idle, serve)
                before = with_whole_pool(first)
                children = processes(serve)
                for _ in range(ROUNDS):
                    await fire(asker, MORE)
            after = await asyncio.to_thread(serve.settle, before, rss_bytes=MARGIN_BYTES)
            assert processes(serve) == children, "the one process of the library"
            assert len(children) == 1
            states = {task["state"] for task in serve.tasks("--limit", "10000")}
    assert states == {"done"}
    asked = FIRST + CROWD + ROUNDS * (MORE + CROWD)
    tell(f"{asked} questions, {ROUNDS * CROWD} of them {CROWD} at once: {first} -> {after}")


def with_whole_pool(figures: Figures) -> Figures:
    """Connections to model servers are kept, one for each call that ran at the same time and one for their health;
    by chance not all of them were needed so far."""
    most = max(figures.held, (CROWD + 1) * (len(NAMES) + 1))
    return figures._replace(held=most, fds=figures.fds + most - figures.held)


def idle(serve: Serve) -> Figures:
    """Once nothing runs, and those who asked are gone."""
    mine = os.getpid()

    def is_idle() -> bool:
        own = psutil.Process(mine).net_connections("tcp")
        held = [
            one for one in own if one.raddr and one.raddr.port == serve.port and one.status == "ESTABLISHED"
        ]
        return not held and serve.running() == serve.queued() == 0

    until(is_idle, lambda: str(serve.figures()))
    return serve.figures()


def processes(serve: Serve) -> set[int]:
    return {child.pid for child in psutil.Process(serve.pid).children(recursive=True)}


SPINNING = """
import os


def compute(payload):
    open("begun", "w").close()
    turns = 0
    while not os.path.exists("enough"):
        turns += sum(n * n for n in range(1000)) % 7 + 1
    return f"{turns > 0} and computed by {os.getpid()}"
"""


async def test_d9_a_member_that_computes_holds_nobody_up(tmp_path: Path) -> None:
    """A member is code in a process of its own, which spins until it is told to stop: meanwhile the others answer,
    and whole questions are asked and answered; then its answer is there with theirs."""
    (tmp_path / "thinking.py").write_text(SPINNING)
    code = '[hosts.code]\ntype = "python"\ncall = "thinking:compute"\nisolation = "process"\n'
    code += 'serves = ["compute"]\n'
    member = '[[councils.sages.members]]\nname = "CODE"\nkind = "compute"\n'
    with ModelServer.in_thread(models("a", "b", "chair")) as upstream:
        config = (
            code + hosts(**dict.fromkeys(("a", "b", "chair"), upstream.url)) + council(("a", "b")) + member
        )
        with serving(tmp_path, config) as serve:
            async with asking(serve) as asker, asyncio.TaskGroup() as group:
                whole = group.create_task(asker.ask())
                begun = tmp_path / "begun"
                await asyncio.to_thread(until, begun.exists, lambda: "the code was not asked")
                beside = [await asker.ask(members=["A", "B"]) for _ in range(3)]
                assert not whole.done()
                stalls = {n: v for n, v in serve.metrics().items() if n.startswith("penstock_stalls_total")}
                (tmp_path / "enough").touch()
                end = await whole
            own = serve.pid
    assert [one["event"] for one in beside] == ["done"] * 3
    assert not any(stalls.values()), stalls
    answers = {one["name"]: one["answer"] for one in end["record"]["responses"]}
    assert list(answers) == ["A", "B", "CODE"]
    assert all(answers.values()), end["record"]["responses"]
    assert answers["CODE"].startswith("True and computed by ")
    assert not answers["CODE"].endswith(f" {own}")
    assert end["record"]["synthesis"]["method"] == "synthesis"
