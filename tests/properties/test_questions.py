"""D1, D9: whatever goes wrong with the models, every question ends, with its record, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock import wiring
from penstock.lifecycle import ENDED
from penstock.model import State
from penstock.store.base import TaskFilter
from penstock.testing import Fault, ModelServer
from penstock.testing.calls import ModelRequest
from tests.unit.question_rig import models, staged

SOAK = bool(os.environ.get("PENSTOCK_SOAK"))
SEEDS = range(60 if SOAK else 3)
QUESTIONS = 12 if SOAK else 8
MODES = ("quick", "council", "thorough")


def luck(chance: Random, bad: float) -> Any:
    """Of each call: an answer, or any fault that a server may have."""

    def fault(request: ModelRequest) -> Fault | None:
        if chance.random() > bad:
            return None
        return chance.choice(
            [
                Fault.hang(),
                Fault.hang(after_chunks=2),
                Fault.disconnect(),
                Fault.disconnect(after_chunks=2),
                Fault.cut(),
                Fault.refuse(400),
                Fault.refuse(429, retry_after_s=0.01),
                Fault.refuse(500),
                Fault.refuse(503),
            ]
        )

    return fault


def council_of(chance: Random) -> str:
    lines = [f"min_answers = {chance.randint(1, 3)}"]
    if chance.random() < 0.5:
        lines.append(f"patience_s = {chance.choice([0.05, 0.2])}")
    if chance.random() < 0.5:
        lines.append('retrieval = { collection = "texts" }')
    if chance.random() < 0.3:
        lines.append(f"limits = {{ council = {{ time_s = {chance.choice([0.1, 0.4])} }} }}")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", SEEDS)
async def test_d1_questions_end_under_any_faults_and_leave_nothing_behind(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(wiring._ADAPTERS, "library", "tests.unit.question_rig:quick_library")
    chance = Random(seed)
    council = council_of(chance)
    behaviour = models(faults=luck(chance, chance.choice([0.1, 0.3, 0.6])))
    async with ModelServer(behaviour) as server:
        async with staged(tmp_path, server, council, down_patience_s=0.2, member_s=0.4) as stage:
            asked = []
            for n in range(QUESTIONS):
                payload = {"query": f"Question {n}?", "mode": chance.choice(MODES)}
                asked.append(await stage.ask(payload, run=chance.choice(["one", "two", ""])))
            for question in chance.sample(asked, 3):
                await stage.cancel(question)
            await server.wait_for(lambda stats: stats.received >= chance.randint(1, QUESTIONS))
        # Its dispatcher was stopped in the middle: the next one goes on.
        async with staged(tmp_path, server, council, down_patience_s=0.2, member_s=0.4) as stage:
            ended = [await stage.ended(question) for question in asked]
            for question in asked:
                await stage.rest(question)
            await stage.store.record([])
            left = [r for r in await stage.store.tasks(TaskFilter()) if r.state not in ENDED]
            assert not left, left
            inner = stage.dispatcher._inner
            assert inner is not None
            assert not inner._watched
            assert not inner._own
            assert not inner._unwanted
            assert not inner._texts
            assert stage.dispatcher.live.statistics()["followers"] == 0
    for record in ended:
        if record.state is State.CANCELLED:
            continue
        assert record.state in (State.DONE, State.FAILED)
        assert record.value is not None, record.error
        standings = {one["state"] for one in record.value["responses"]}
        assert standings <= {"answered", "failed", "cancelled", "not_asked"}, standings
        answered = sum(one["success"] for one in record.value["responses"])
        assert record.value["success_count"] == answered
        assert (record.state is State.DONE) == (answered > 0)
        if answered == 1:
            assert record.value["synthesis"]["method"] == "single"


async def test_rapid_fire_leaves_nothing_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D9: many in a row and many at once: the same tasks, listeners and events as before."""
    monkeypatch.setitem(wiring._ADAPTERS, "library", "tests.unit.question_rig:quick_library")
    with ModelServer.in_thread(models()) as server:
        async with staged(tmp_path, server) as stage:
            await stage.ended(await stage.ask())
            before = len(asyncio.all_tasks())
            for _ in range(5):
                await stage.ended(await stage.ask())
            for question in [await stage.ask() for _ in range(20)]:
                assert (await stage.ended(question)).state is State.DONE
            inner = stage.dispatcher._inner
            assert inner is not None
            assert (len(inner._watched), len(inner._own), len(inner._unwanted)) == (0, 0, 0)
            assert stage.dispatcher.live.statistics()["ended"] <= 64
            assert len(asyncio.all_tasks()) <= before
