"""The scenes of the demo in their order, and the figures that come of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from penstock.compare.workloads import FORTY, LANES, SIX, SIXTY, Workload, ideal_s
from penstock.demo import proofs
from penstock.demo.crash import play_crash
from penstock.demo.figures import Check, Scene
from penstock.demo.proofs import Record
from penstock.demo.stage import Audience, Legacy, perform
from penstock.errors import UsageError

_LONG_AGO = 0.2  # one thread per kind takes so long over the reports that its seconds must be shorter

ABOUT = {
    SIX.name: (
        "surtr has 2 slots, fenrir 3, skadi 2, each for one kind of task. The legacy way has one thread per "
        "kind, and each runs one task at a time. Penstock fills every slot that a task fits."
    ),
    FORTY.name: (
        "20 + 20 tasks of 10 s on two hosts with 2 slots each, all queued at once, the least urgent first. "
        "Priority holds to the very start of a task."
    ),
    LANES.name: (
        "66 tasks of fpf, some of them very slow, then 22 of gptr and 8 of ma, all queued at once for one "
        "host. gptr runs at most 11, ma 4, and both have room reserved. A gate holds gptr while more than "
        "10 of fpf run."
    ),
    SIXTY.name: (
        "The dispatcher is a process of its own here, and another process keeps submitting. In mid-work the "
        "dispatcher gets kill -9. Then a new one is started."
    ),
}


@dataclass(frozen=True, slots=True)
class Options:
    folder: Path
    scale: float  # real seconds that one of the story lasts


class View(Audience, Protocol):
    def begin(self, number: int, title: str, about: str) -> None: ...

    def end(self, scene: Scene) -> None: ...


async def play(options: Options, view: View) -> list[Scene]:
    """Every scene, measured and checked."""
    try:
        return await _play(options, view)
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    """What went wrong, out of the task groups it came through."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _play(options: Options, view: View) -> list[Scene]:
    for name in ABOUT:
        if (options.folder / name).exists():
            raise UsageError(f"{options.folder} holds a demo already; name a new folder")
    six = await _race(1, SIX, options, view)
    forty = await _race(2, FORTY, options, view)
    legacy = Legacy(LANES, options.scale * _LONG_AGO)
    async with asyncio.TaskGroup() as group:  # its threads are still at it in the next scene
        group.create_task(legacy.run())
        lanes = await _lanes(3, options, view)
        view.begin(4, SIXTY.title, ABOUT[SIXTY.name])
        crash = await play_crash(options.folder / SIXTY.name, options.scale, view)
        view.end(crash)
    return [six, forty, _against(lanes, legacy), crash]


async def _race(number: int, workload: Workload, options: Options, view: View) -> Scene:
    """Penstock and one thread per kind at the same work, side by side."""
    view.begin(number, workload.title, ABOUT[workload.name])
    legacy = Legacy(workload, options.scale)
    folder = options.folder / workload.name
    record = await perform(workload, folder, options.scale, view, legacy)
    scene = _scene(workload, record, proofs.in_order(record))
    if len({task.priority for task in workload.tasks}) > 1:
        scene = replace(scene, starts=proofs.starts_by_host(record))
    scene = _against(scene, legacy)
    view.end(scene)
    return scene


async def _lanes(number: int, options: Options, view: View) -> Scene:
    view.begin(number, LANES.title, ABOUT[LANES.name])
    folder = options.folder / LANES.name
    record = await perform(LANES, folder, options.scale, view)
    checks = (proofs.lanes_kept(record), proofs.gates_kept(record), proofs.isolated(record))
    scene = replace(_scene(LANES, record, *checks), lanes=proofs.lane_figures(record))
    view.end(scene)
    return scene


def _scene(workload: Workload, record: Record, *more: Check) -> Scene:
    return Scene(
        workload.name,
        workload.title,
        len(workload.tasks),
        record.makespan_s(),
        ideal_s=ideal_s(workload),
        waits=proofs.waits(record),
        checks=(proofs.done_once(record), proofs.slots_kept(record), *more, proofs.explained(record)),
    )


def _against(scene: Scene, legacy: Legacy) -> Scene:
    """The scene with what the other way took, once it is through."""
    legacy_s = max(span.ended for span in legacy.spans)
    check = Check(
        "sooner through than one thread per kind",
        scene.penstock_s < legacy_s,
        f"{scene.penstock_s:.1f} s, not {legacy_s:.1f} s",
    )
    return replace(scene, legacy_s=legacy_s, checks=(*scene.checks, check))
