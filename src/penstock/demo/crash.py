"""A dispatcher is killed in mid-work while another process goes on submitting, and the next one takes over.

Everything here is real: processes, SIGKILL, one store on the disk. What the submitting process was told is kept, and
the store is held to it.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import penstock.client
from penstock.client import Client, Run
from penstock.compare.workloads import SIXTY, Workload, scaled
from penstock.demo import proofs
from penstock.demo.board import Board
from penstock.demo.figures import Check, Scene
from penstock.demo.proofs import Record
from penstock.demo.stage import Audience, Watch, read_record, within_reason, write_config
from penstock.demo.submitter import RUN, more_tasks
from penstock.errors import PenstockError
from penstock.lifecycle import ENDED
from penstock.model import Result
from penstock.store.base import Snapshot, StoredEvent

_ENDED_BEFORE = 20  # tasks that have ended when the dispatcher is killed
_SENT_IN_GAP = 3  # tasks that are acknowledged while there is none
_DOWN = "dispatcher-down"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the processes said and did, which the store cannot know."""

    acknowledged: tuple[str, ...]
    in_gap: int  # of them, while no dispatcher was there
    exit_status: int  # of the second dispatcher


async def play_crash(folder: Path, scale: float, audience: Audience) -> Scene:
    story = scaled(SIXTY, scale)
    path = write_config(folder, story.plant)
    everything = (*story.tasks, *more_tasks())
    async with penstock.client.open(path, dispatch=False) as client:
        watch = Watch(client, Board(story.plant, everything), scale, audience)
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
            async with aclosing(run.records()) as ended:
                for _ in range(_ENDED_BEFORE):
                    await anext(ended)
            first.kill()
            await first.wait()
        watch.note = "the dispatcher was killed with SIGKILL; the other process goes on submitting"
        more = len(await client.tasks()) - len(story.tasks)
        sent = [await _line(submitter) for _ in range(more + _SENT_IN_GAP)]
        async with _process(path, "worker") as second:
            await _line(second)
            watch.note = "a new dispatcher took over"
            await _all_ended(run)
            sent += await _rest(submitter)
            await _all_ended(Run(client, RUN, sent))
            exit_status = await _stopped(second)
    return Seen((*run.task_ids, *sent), len(sent[more:][:_SENT_IN_GAP]), exit_status)


async def _all_ended(run: Run) -> None:
    async for _ in run.records():
        pass


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
        raise PenstockError(f"a process of the demo ended early with status {status}; see its log with --keep DIR")
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
    again = [e for e in record.events if e.type == "requeued"]
    died_at = min((e.at for e in again), default=0.0)
    back_at = max((e.at for e in record.events if e.type == "acquired"), default=0.0)
    waiting = _waiting_at(record.events, back_at)
    explained = [r for r in record.results if r.task_id in waiting and _down_s(r)]
    checks = (
        proofs.done_once(record),
        _own_results(record.results),
        Check("nothing is left queued or running", not left.running and not left.queued),
        Check("it was killed in mid-work, and what ran was run again", bool(again), f"{len(again)} tasks"),
        Check(
            f"tasks were acknowledged while no dispatcher was there: {seen.in_gap}", seen.in_gap > 0
        ),
        Check(
            f"`why` says {_DOWN} for the gap",
            bool(waiting) and len(explained) == len(waiting),
            f"{len(explained)} of {len(waiting)} tasks that waited through it",
        ),
        proofs.slots_kept(record),
        proofs.explained(record),
        Check("the second dispatcher drained and ended when asked to", seen.exit_status == 0),
    )
    gap_s = (back_at - died_at) / record.scale
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
            "gap_s": round(gap_s, 2),
            "waited_through_gap": len(waiting),
        },
        lines=_example(record, explained, [str(e.task) for e in again]),
    )


def _own_results(results: Iterable[Result]) -> Check:
    wrong = [r.task_id for r in results if r.value != r.task_id]
    return Check("every result is the task's own", not wrong, ", ".join(wrong[:5]))


def _waiting_at(events: Iterable[StoredEvent], at: float) -> set[str]:
    """Tasks that waited when the second dispatcher came."""
    raise NotImplementedError


def _down_s(result: Result) -> float:
    return sum(wait.seconds for wait in result.waits if wait.reason == _DOWN)


def _example(record: Record, explained: list[Result], again: list[str]) -> tuple[str, ...]:
    raise NotImplementedError
