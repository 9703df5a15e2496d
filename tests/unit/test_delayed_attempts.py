"""E1: an attempt that has its slot and no worker yet waits for one, and everybody is told so while it does."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from penstock.cli import top_text
from penstock.cli.why import in_short
from penstock.diagnosis.recording import recording_of
from penstock.diagnosis.timeline.bars import Sort, timeline_of
from penstock.diagnosis.waits import Explainer
from penstock.model import State, Task
from penstock.store.outlook import why_task
from penstock.store.status import status_record
from penstock.web.board.picture import Places, picture_of
from tests.unit.test_dispatcher_adoption import PATIENCE_S, Cluster, Stage, configured, staged


async def heard(stage: Stage, task: str, event: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await stage.dispatcher._steps.settled()
    assert event in await stage.told(task)


async def test_what_waits_for_a_worker_says_so_as_it_does(tmp_path: Path) -> None:
    config, cluster = configured(tmp_path), Cluster(is_full=True)
    async with staged(config, cluster) as stage:
        store, plant = stage.store, config.plant
        await stage.submit(Task("k", id="a"), Task("k", id="b", run="r"))
        await cluster.until(lambda: len(cluster.started) == 2)
        stage.engine.delay()
        await heard(stage, "b", "delayed")
        assert stage.dispatcher.statistics.waiting == {"worker": 2}

        record = await store.get("b")
        assert record is not None
        assert (record.state, record.host, record.started_at) == (State.RUNNING, "far", None)
        why = await why_task(store, plant, record, time.time())
        assert why.parts[-1].wait.reason == "worker:far"
        assert why.ran_s is None
        assert "hosts.far.ray" in str(why.remedy)
        assert [(one.what, one.name) for one in why.blocked_by] == [("host", "far")]
        assert in_short(why).startswith("b has its slot on far and waits for a worker; it has waited ")

        status = status_record(plant, await store.snapshot(time.time()))
        assert (status["hosts"]["far"]["active"], status["hosts"]["far"]["delayed"]) == (2, 2)
        assert status["hosts"]["far"]["detail"] == "2 of 2 waiting for a worker of the cluster"
        now = await store.now(time.time())
        top = top_text.told(plant, now)
        assert top["waits_for"] == {"worker:far": 2}
        assert top_text.who(top).plain.startswith("0 queued, 0 running, 2 waiting for a worker")
        assert [cells[5].plain for _, cells in top_text.running_rows(top, now.at)] == ["no worker yet"] * 2
        picture = picture_of(config, now, Places(), None)
        assert (picture["totals"]["running"], picture["reasons"]) == (0, {"worker:far": 2})
        assert [slot[6] for slot in picture["slots"].values()] == [None, None]
        (bar,) = timeline_of(recording_of(await store.history(run="r"), plant, time.time())).bars
        assert {piece.sort for piece in bar.pieces} == {Sort.WAITING}
        assert bar.pieces[-1].what == "worker:far"
        (stay,) = [Explainer(await store.history(task="b"), time.time()).stay(record)]
        assert (stay.ran_s, stay.since) == (0.0, record.task.queued_at)

        began_at = time.time()
        stage.engine.has_room(began_at)
        await heard(stage, "b", "began")
        now = await store.now(time.time(), now)
        assert [one.started_at for one in now.running] == [began_at, began_at]
        assert now.reasons() == {}
        for task in "ab":
            cluster.end(task)
        await cluster.until(lambda: not cluster.jobs)
        record = await store.get("b")
        assert record is not None
        assert record.started_at == began_at
        await stage.waits_tile("b")


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_takeover_goes_on_with_what_had_no_worker(tmp_path: Path, is_there: bool) -> None:
    """It has begun meanwhile, or nobody has it: then it is tried again, and never ran before."""
    config, cluster = configured(tmp_path), Cluster(is_full=True)
    async with staged(config, cluster) as stage:
        await stage.submit(Task("k", id="a"))
        await cluster.until(lambda: cluster.started)
        stage.engine.delay()
        await heard(stage, "a", "delayed")
        waiting = dict(stage.engine._waiting)
    cluster.is_full = False
    if is_there:
        cluster.jobs |= waiting
    async with staged(config, cluster) as stage:
        if is_there:
            stage.engine.tell_begun(("a", 1), began_at := time.time())
            await heard(stage, "a", "began")
        else:
            await cluster.until(lambda: ("a", 2) in cluster.jobs)
        cluster.end("a", attempt=1 if is_there else 2)
        await cluster.until(lambda: not cluster.jobs)
        first = (await stage.store.attempts("a"))[0]
        if is_there:
            assert first.started_at == began_at
            await stage.waits_tile("a")
        else:
            assert first.started_at == first.ended_at
