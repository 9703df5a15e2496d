"""A dispatcher is killed in mid-work while another process goes on submitting, and the next one takes over.

Everything here is real: processes, SIGKILL, one store on the disk. What the submitting process was told is
kept, and the store is held to it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock.client
from penstock.client import Client, Run
from penstock.compare.workloads import SIXTY, Workload, scaled, scaled_task
from penstock.demo import proofs
from penstock.demo.board import Board
from penstock.demo.figures import Check, Scene
from penstock.demo.proofs import Record
from penstock.demo.stage import Audience, Watch, all_ended, read_record, within_reason, write_config
from penstock.demo.submitter import RUN, more_tasks
from penstock.errors import PenstockError
from penstock.model import Result
from penstock.store.base import Snapshot

_ENDED_BEFORE = 20  # tasks that have ended when the dispatcher is killed
_SENT_IN_GAP = 3  # tasks that are acknowledged while there is none
_DOWN = "dispatcher-down"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the processes said and did, which the store cannot know."""

    acknowledged: tuple[str, ...]
    in_gap: tuple[str, ...]  # of them, between the kill and the next dispatcher
    exit_status: int  # of the second dispatcher


async def play_crash(folder: Path, scale: float, audience: Audience) -> Scene:
    story = scaled(SIXTY, scale)
    path = write_config(folder, story.plant)
    everything = (*story.tasks, *(scaled_task(task, scale) for task in more_tasks()))
    async with penstock.client.open(path, dispatch=False) as client:
        watch = Watch(client, Board(story.plant, everything), scale, audience)
        watch.note = "starting a dispatcher and a process that submits"
        async with watch.showing():
            seen = await within_reason(_kill_and_recover(client, watch, path, story, scale), story.name)
        acknowledged = set(seen.acknowledged)
        tasks = [task for task in everything if task.id in acknowledged]
        record = await read_record(client, story.plant, tasks, watch, scale)
        return _scene(record, seen, await client.snapshot())


# ---- what happens


async def _kill_and_recover(client: Client, watch: Watch, path: Path, story: Workload, scale: float) -> Seen:
    async with _process(path, "submitter", str(scale)) as submitter:
        async with _process(path, "worker") as first:
            await _line(first)
            run = await client.submit_many(story.tasks)
            _say(submitter, b"begin\n")
            watch.note = "a dispatcher at work, another process submitting"
            await _some_ended(run, _ENDED_BEFORE)
            first.kill()
            await first.wait()
        watch.board.down_at = time.time()
        watch.note = "the dispatcher was killed with SIGKILL; the other process goes on submitting"
        more = len(await client.tasks()) - len(story.tasks)
        sent = [await _line(submitter) for _ in range(more + _SENT_IN_GAP)]
        in_gap = sent[more:]
        async with _process(path, "worker") as second:
            await _line(second)
            watch.board.down_at = None
            watch.note = "a new dispatcher took over"
            await all_ended(run)
            sent += await _rest(submitter)
            await all_ended(Run(client, RUN, sent))
            exit_status = await _stopped(second)
    return Seen((*run.task_ids, *sent), tuple(in_gap), exit_status)


async def _some_ended(run: Run, count: int) -> None:
    async with aclosing(run.records()) as ended:
        for _ in range(count):
            await anext(ended)


@asynccontextmanager
async def _process(path: Path, module: str, *arguments: str) -> AsyncIterator[Process]:
    """One of our own modules as a process, in a session of its own; it never outlives the scene."""
    command = [sys.executable, "-P", "-m", f"penstock.demo.{module}", str(path), *arguments]
    with (path.parent / f"{module}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _line(process: Process) -> str:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        status = await process.wait()
        raise PenstockError(
            f"a process of the demo ended early with status {status}; see its log with --keep DIR"
        )
    return line.decode().strip()


def _say(process: Process, text: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(text)


async def _rest(submitter: Process) -> list[str]:
    """Let it end; what it said since."""
    assert submitter.stdin is not None
    assert submitter.stdout is not None
    submitter.stdin.close()
    said = await submitter.stdout.read()
    await submitter.wait()
    return said.decode().split()


async def _stopped(worker: Process) -> int:
    worker.terminate()
    return await worker.wait()


# ---- what it proves


def _scene(record: Record, seen: Seen, left: Snapshot) -> Scene:
    again = [event for event in record.events if event.type == "requeued"]
    died_at = min((event.at for event in again), default=0.0)
    back_at = max((event.at for event in record.events if event.type == "acquired"), default=0.0)
    waited = [r for r in record.results if r.queued_at < back_at <= (r.ended_at or 0.0)]
    told = [r for r in waited if any(wait.reason == _DOWN for wait in r.waits)]
    checks = (
        proofs.done_once(record),
        _own_results(record.results),
        Check("nothing is left queued or running", not _sum(left.running) and not _sum(left.queued)),
        Check("the kill hit running tasks, and they were run again", bool(again), f"{len(again)} tasks"),
        Check(
            "tasks were acknowledged while no dispatcher was there",
            bool(seen.in_gap) and {*seen.in_gap} <= {r.task_id for r in waited if r.queued_at > died_at},
            f"{len(seen.in_gap)} tasks",
        ),
        Check(
            f"`why` says {_DOWN} for the gap",
            bool(waited) and len(told) == len(waited),
            f"{len(told)} of {len(waited)} tasks that waited through it",
        ),
        proofs.slots_kept(record),
        proofs.explained(record),
        Check("the second dispatcher ended cleanly when told to", seen.exit_status == 0),
    )
    return Scene(
        SIXTY.name,
        SIXTY.title,
        len(record.tasks),
        record.makespan_s(),
        waits=proofs.waits(record),
        checks=checks,
        facts={
            "acknowledged": len(seen.acknowledged),
            "run_again": len(again),
            "gap_s": round((back_at - died_at) / record.scale, 2),
            "waited_through_gap": len(waited),
        },
        lines=_example(record, {str(event.task) for event in again}),
    )


def _sum(counts: Mapping[Any, int]) -> int:
    return sum(counts.values())


def _own_results(results: Iterable[Result]) -> Check:
    wrong = [r.task_id for r in results if r.value != r.task_id]
    return Check("every result is the task's own", not wrong, ", ".join(wrong[:5]))


def _example(record: Record, again: set[str]) -> tuple[str, ...]:
    """What `why` tells of one task that was run twice."""
    for result in record.results:
        if result.task_id in again:
            parts = [f"{wait.reason} {wait.seconds / record.scale:.1f} s" for wait in result.waits]
            return (f"why {result.task_id}: attempt {result.attempts}; waited " + ", then ".join(parts),)
    return ()
