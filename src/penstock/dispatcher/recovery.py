"""Taking over a store: what was queued is queued, what ran goes on where it can, or is run again, or blocked.

A dispatcher that works one run takes over the tasks of that run, and whatever ran: when that ended is what only the
next dispatcher can tell. All else it leaves as it is.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from penstock.config.own_calls import own_lanes
from penstock.diagnosis.history import Epoch, Owner
from penstock.dispatcher.patience import patiently
from penstock.dispatcher.payloads import MOST_TASKS, Payloads
from penstock.engine.base import Engine, Key
from penstock.hosts.python import shares_process
from penstock.model import Backlog, OnCrash, Plant, State, TaskRecord
from penstock.scheduling.budget import day_of
from penstock.scheduling.messages import (
    CancelAsked,
    Event,
    PauseSet,
    Restored,
    SlotsSet,
    Spent,
    Start,
)
from penstock.store.base import Store, TaskFilter

log = logging.getLogger("penstock.dispatcher")

_FEW = 10_000  # payloads of a long queue that are read before the first start; the others are read for theirs
_MOST_NAMED = 5  # tasks that a line names
_AT_ONCE = 1_000  # tasks whose payloads are read on the way, though nobody keeps them


@contextmanager
def unswept() -> Iterator[None]:
    """Objects are made by the million, and all of them stay: looking for garbage among them doubles the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def restore(
    store: Store,
    engine: Engine,
    payloads: Payloads,
    plant: Plant,
    before: Epoch | None,
    now: float,
    only_run: str = "",
) -> tuple[list[Event], int]:
    """The events that bring a new scheduler to where the store is, and the number of the last arrival."""
    with unswept():
        records, queued, seen = (
            await _live_in(store, payloads, only_run)
            if only_run
            else await _live(store, payloads, own_lanes(plant))
        )
    running = [r for r in records if r.state is State.RUNNING and r.task.on_crash is not OnCrash.CANCEL]
    adopted = await _adopt(engine, payloads, plant, running)  # first: what nobody awaits may end meanwhile
    needed = {n for r in records for n in r.task.after} - {r.task.id for r in records}
    for backlog in queued if needed else ():
        needed.difference_update(backlog.ids)
    ended = await store.states(needed) if needed else {}
    snapshot = await store.conditions(now)
    events: list[Event] = []
    today = day_of(now)
    for day in (today - 1, today):  # what calls cost yesterday tells what to expect of today's first
        events += [Spent(s.host, s.lane, s.day, s.usd, s.calls) for s in await store.spending(day)]
    for host in plant.hosts:  # slots that tune themselves go on where they were
        last = snapshot.hosts.get(host.name)
        if host.auto is not None and last is not None and host.auto.min < last.slots <= host.auto.max:
            events.append(SlotsSet(host.name, last.slots, "as before"))
    if snapshot.paused:
        events.append(PauseSet("all", "", True))
    events += [PauseSet("lane", lane, True) for lane, paused in snapshot.lanes_paused.items() if paused]
    held = {name for name, host in snapshot.hosts.items() if host.state == "paused"}
    known = {host.name for host in plant.hosts}  # others are not in the config any more
    events += [PauseSet("host", name, True) for name in sorted(held & known)]
    if adopted:
        them = "it" if len(adopted) == 1 else "them"
        log.warning("%s adopted: the dispatcher that began %s is gone", _were(len(adopted), "attempt"), them)
    crashed = before is not None and before.ended_at == before.seen_at
    interrupted = [r for r in running if (r.task.id, r.attempts) not in adopted]
    lost = before.owner if before is not None and crashed else None
    crashing = _run_inside(plant) if lost is not None else set()
    if crashing:
        payloads.doubt(now, crashing)
    if interrupted:
        log.warning("%s", interruption(interrupted, crashing, lost))
    elif crashing and lost is not None and records:
        log.warning("%s", _unknown_cause(lost, crashing))
    calls = sum(r.task.on_crash is OnCrash.CANCEL for r in records)
    if calls:
        log.warning(
            "%s open when the last dispatcher was lost; cancelled, their callers are gone",
            _were(calls, "call"),
        )
    # A start may have been under way to the disk: programs can be left where no task is known to have run.
    if interrupted or crashed or engine.detaches:
        killed = await engine.sweep()
        if killed:
            log.warning("%d processes that it had left behind were killed", killed)
    died_at = before.ended_at if before is not None else None
    stopped = before is not None and not crashed
    events.append(Restored(records, ended, died_at, adopted, queued, stopped))
    events += [CancelAsked(task) for task in await _cancelled(store, adopted)]
    return events, seen


async def _live(
    store: Store, payloads: Payloads, lanes: Collection[str]
) -> tuple[list[TaskRecord], list[Backlog], int]:
    """All that has not ended, and the number of the last: the first with their payloads, of the rest what it takes.

    A record of each of a million tasks would take longer to make than all that follows.
    """
    records: list[TaskRecord] = []
    queued: list[Backlog] = []
    with_payloads = _FEW if await store.is_long(MOST_TASKS) else MOST_TASKS
    while page := await store.arrivals(records[-1].number if records else 0):
        payloads.keep(page)
        records += [arrival.record for arrival in page]
        if len(records) >= with_payloads:
            break
    seen = records[-1].number if records else 0
    while page and (more := await store.queued(seen, lanes)) is not None:
        seen = more.last
        queued += more.backlogs
        for at in range(0, len(more.others), _AT_ONCE):
            records += [arrival.record for arrival in await store.fetch(more.others[at : at + _AT_ONCE])]
    return records, queued, seen


async def _live_in(store: Store, payloads: Payloads, run: str) -> tuple[list[TaskRecord], list[Backlog], int]:
    """What of a run has not ended, whatever else was running, and the number of the last task of all."""
    # First: what comes meanwhile is an arrival.
    newest = await store.bare_tasks(TaskFilter(newest=True, limit=1))
    live = await store.bare_tasks(TaskFilter(states=(State.QUEUED, State.RUNNING), run=run))
    ran = await store.bare_tasks(TaskFilter(states=(State.RUNNING,)))
    arrivals = await store.fetch([record.task.id for record in live])
    payloads.keep(arrivals)
    records = [arrival.record for arrival in arrivals]
    records += [record for record in ran if record.task.run != run]
    return records, [], newest[0].number if newest else 0


async def _adopt(
    engine: Engine, payloads: Payloads, plant: Plant, running: Sequence[TaskRecord]
) -> frozenset[Key]:
    """Those of the running attempts that go on. One whose host is not in the config any more does not."""
    hosts = {host.name for host in plant.hosts}
    starts = [
        Start(r.task.id, r.attempts, r.host, r.task.lane, 0, r.started_at or 0.0)
        for r in running
        if r.host in hosts
    ]
    if not starts or not engine.detaches:
        return frozenset()
    jobs, careful, unknown = payloads.make(starts)
    if unknown:
        for more in await payloads.fetch(unknown):
            jobs += more
    return frozenset(await engine.adopt([*jobs, *careful]))


async def _cancelled(store: Store, adopted: frozenset[Key]) -> list[str]:
    """Tasks whose attempts had been told to end because they were cancelled; whoever asked has his answer."""
    found = []
    for task, attempt in sorted(adopted):
        for event in await patiently(partial(store.events, task=task)):
            if event.type == "stopping" and event.attempt == attempt and event.data.get("why") == "cancel":
                found.append(task)
                break
    return found


def _run_inside(plant: Plant) -> set[str]:
    """The hosts whose tasks run in the process of their dispatcher, and can crash it."""
    return {host.name for host in plant.hosts if shares_process(host) and host.name not in plant.outliving}


def interruption(records: Sequence[TaskRecord], crashing: Collection[str], lost: Owner | None) -> str:
    """Which tasks were running when the last dispatcher ended, with those first that may have crashed it.

    `lost` is who that was, where it did not stop by itself; `crashing` are hosts whose tasks can do that.
    """
    suspects = [r for r in records if r.host in crashing]
    others = [r for r in records if r.host not in crashing]
    named = [_named(record) for record in (*suspects, *others)[:_MOST_NAMED]]
    more = f" and {len(records) - len(named)} more" if len(records) > len(named) else ""
    who = "stopped" if lost is None else f"was lost {_known(lost)}"
    told = f"{_were(len(records), 'task')} running when the last dispatcher {who}: {', '.join(named)}{more}"
    if not suspects:
        return told
    first = suspects[0].task.id if len(suspects) == 1 else "one of the first"
    hosts = {str(record.host) for record in suspects}
    return f"{told}; if that happens again, suspect {first}: {_contained(hosts)}"


def _unknown_cause(lost: Owner, crashing: Collection[str]) -> str:
    return (
        f"the last dispatcher was lost {_known(lost)}, and no task was recorded as running; one that had just "
        f"started may have crashed it, and is named if that happens again: {_contained(crashing)}"
    )


def _known(lost: Owner) -> str:
    return f"(process {lost.pid} on {lost.machine}, {lost.command})"


def _contained(hosts: Collection[str]) -> str:
    tables = ", ".join(f"[hosts.{name}]" for name in sorted(hosts))
    return (
        f'a Python function can crash the process that it runs in, and isolation = "process" in {tables} gives it '
        "another one"
    )


def _named(record: TaskRecord) -> str:
    then = "is blocked" if record.task.on_crash is OnCrash.BLOCK else "runs again"
    return f"{record.task.id} ({record.task.kind} on {record.host}, {then})"


def _were(count: int, what: str) -> str:
    return f"1 {what} was" if count == 1 else f"{count} {what}s were"
