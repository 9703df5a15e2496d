"""A scene of the demo as a timeline to explore, in seconds of the story."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import penstock.client
from penstock.compare.workloads import LANES
from penstock.demo.stage import CONFIG
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.timeline.bars import timeline_of
from penstock.diagnosis.timeline.page import page
from penstock.model import Attempt, TaskRecord

NAME = "penstock-demo.html"


async def timeline_page(folder: Path, scale: float) -> str:
    """The scene of the three families: it has the most to explain."""
    async with penstock.client.open(folder / LANES.name / CONFIG, dispatch=False) as client:
        recording = await client.recording(await client.run_named("last"))
    return page(timeline_of(replace(stretched(recording, 1 / scale), name=LANES.title)))


def stretched(recording: Recording, factor: float) -> Recording:
    """The same run, each second as long as so many: a story's seconds were shortened, the page shows them whole."""
    begin = recording.begin

    def told(at: float) -> float:
        return begin + (at - begin) * factor

    def maybe(at: float | None) -> float | None:
        return None if at is None else told(at)

    def task(record: TaskRecord) -> TaskRecord:
        return replace(
            record,
            task=replace(record.task, queued_at=told(record.task.queued_at)),
            started_at=maybe(record.started_at),
            ended_at=maybe(record.ended_at),
            retry_at=maybe(record.retry_at),
        )

    def attempt(one: Attempt) -> Attempt:
        return replace(
            one, started_at=told(one.started_at), ended_at=maybe(one.ended_at), retry_at=maybe(one.retry_at)
        )

    return replace(
        recording,
        end=told(recording.end),
        tasks=[task(record) for record in recording.tasks],
        attempts=[attempt(one) for one in recording.attempts],
        others=[attempt(one) for one in recording.others],
        waits={
            id: [replace(wait, start=told(wait.start), end=told(wait.end)) for wait in waits]
            for id, waits in recording.waits.items()
        },
        changes=[change._replace(at=told(change.at)) for change in recording.changes],
        stalls=[
            replace(stall, at=told(stall.at), seconds=stall.seconds * factor) for stall in recording.stalls
        ],
    )
