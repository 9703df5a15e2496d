"""Understanding a store: its present and its past are read, then thought about in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.config.own_calls import calls_through_us, run_of_calls
from penstock.diagnosis.history import History
from penstock.diagnosis.why.present import HostNow, Present
from penstock.errors import UnknownTask
from penstock.lifecycle import LIVE
from penstock.model import Plant, State, Task, TaskRecord
from penstock.scheduling.budget import day_of
from penstock.scheduling.messages import Spent
from penstock.store.base import Ahead, Store, TaskFilter

if TYPE_CHECKING:
    from penstock.diagnosis.why.answer import Why
    from penstock.diagnosis.why.prediction import Prediction
    from penstock.diagnosis.why.waiting import Waiting

MOST_SUMMED = 20_000  # tasks of a lane or host, the newest
MOST_LATELY = 2_000  # tasks of all lanes, the newest
MOST_IN_RUN = 100_000
MOST_FORESEEN = 20_000  # tasks that nobody has submitted
_MOST_ALIKE = 500  # tasks of a kind that tell of others
SILENT_BEATS = 6  # a dispatcher that has missed so many cannot write
_CLOCKS_S = 30.0  # the clocks of a dispatcher and of who asks may differ by so much
_IMAGINED = "\1"  # the run of tasks that are only thought of: nobody's own


async def present_of(
    store: Store, plant: Plant, ahead: Ahead, now: float, *, run: str | None = None
) -> Present:
    """The present, under the plant that is dispatched with; to queued tasks of `run`, where that is told."""
    from penstock.diagnosis.why.prediction import MOST_IN_LANE
    from penstock.store.status import fault_of

    snapshot = await store.snapshot(now)
    queue = await store.queue(ahead, MOST_IN_LANE)
    day = day_of(now)
    epoch = snapshot.epoch
    plant = snapshot.plant_or(plant)
    return Present(
        now=now,
        plant=plant,
        queue=queue,
        dispatched=epoch is not None and (run is None or epoch.owner.works_on(run)),
        heard_at=None if epoch is None else epoch.seen_at,
        paused=snapshot.paused,
        paused_lanes=frozenset(lane for lane, paused in snapshot.lanes_paused.items() if paused),
        hosts={
            name: HostNow(host.state, host.slots, fault_of(snapshot, name))
            for name, host in snapshot.hosts.items()
        },
        closed_gates=frozenset(name for name, (is_open, _) in snapshot.gates.items() if not is_open),
        gate_details={name: detail for name, (_, detail) in snapshot.gates.items() if detail},
        spent=[Spent(s.host, s.lane, s.day, s.usd, s.calls) for s in await store.spending(day)],
    )


async def why_task(
    store: Store, plant: Plant, record: TaskRecord, now: float, heartbeat_s: float | None = None
) -> Why:
    """`heartbeat_s`: how often whoever dispatches writes that it lives, where that is known."""
    from penstock.diagnosis.questions import question_kinds
    from penstock.diagnosis.why.answer import explain, explain_question

    task = record.task
    if record.state is State.QUEUED:
        place = task.queued_at + task.priority * plant.aging_s
        ahead = Ahead(plant.aging_s, task.lane, place, record.number, (task.id,))
    else:
        ahead = Ahead(plant.aging_s, place=-plant.aging_s)  # what waits does not matter to it
    run = task.run if record.state is State.QUEUED else None  # what runs was taken over, whosever it is
    present = await present_of(store, plant, ahead, now, run=run)  # first: of all that is read it ages most
    if heartbeat_s is None or now - (present.heard_at or now) <= SILENT_BEATS * heartbeat_s + _CLOCKS_S:
        present = replace(present, heard_at=None)
    history = await store.history(task=task.id)
    if task.kind not in question_kinds(present.plant):
        told = await asyncio.to_thread(explain, record, history, present)
    else:
        asked = await store.history(
            chosen=TaskFilter(run=task.run, since=task.queued_at, limit=MOST_IN_RUN, newest=True)
        )
        told = await asyncio.to_thread(explain_question, record, history, asked, present)
    if record.state is State.RUNNING and (since := await _stopping_since(store, record)) is not None:
        return replace(told, stopping_since=since, predicted_end=None)  # how long it takes is its own affair
    return told


async def _stopping_since(store: Store, record: TaskRecord) -> float | None:
    events = await store.events(task=record.task.id)
    told = [
        float(one.data.get("since", one.at))
        for one in events
        if one.type == "stopping" and one.attempt == record.attempts
    ]
    return told[0] if told else None  # the next dispatcher tells it again


async def calls_of(store: Store, plant: Plant, run: str, *, others: bool = False) -> History | None:
    """The calls that the attempts of a run made through Penstock itself, where they make any."""
    calls = run_of_calls(run)
    if calls == run or not any(map(calls_through_us, plant.hosts)) or not await store.states_in_run(calls):
        return None
    return await store.history(run=calls, others=others)


async def why_run(store: Store, plant: Plant, run: str, now: float, *, most: int = MOST_IN_RUN) -> Waiting:
    """Of at most so many of its tasks, the newest."""
    from penstock.diagnosis.why.helping import foreseen
    from penstock.diagnosis.why.prediction import predict_end
    from penstock.diagnosis.why.waiting import MOST_PLAYED, of_calls, of_run, with_calls

    states = await store.states_in_run(run)
    if not states:
        raise UnknownTask(f"no run {run}; `penstock tasks` lists tasks with their runs")
    live = not LIVE.isdisjoint(states)
    present = await present_of(store, plant, Ahead(plant.aging_s), now, run=run) if live else None
    chosen = TaskFilter(run=run, limit=most, newest=True)
    plays = sum(states.values()) <= MOST_PLAYED  # then it matters who else held room
    history = await store.history(chosen=chosen, others=plays)
    calls = await calls_of(store, plant, run, others=plays)

    def predict(present: Present, whatever_s: float | None) -> Prediction:
        return predict_end(present, run, whatever_s)

    def work() -> Waiting:
        ends = None
        foresee = None
        if present is not None:
            ends = predict_end(present, run)
            foresee = foreseen(present, ends, predict, "the run would end")
        summed = of_run(run, history, plant, now, ends, foresee)
        if calls is not None:
            summed = with_calls(summed, of_calls(run_of_calls(run), calls, plant, now), plant)
        return replace(summed, cut_short=sum(states.values()) > len(history.records))

    return await asyncio.to_thread(work)


async def why_lane(store: Store, plant: Plant, lane: str, since: float, now: float) -> Waiting:
    from penstock.diagnosis.why.waiting import of_lane

    chosen = TaskFilter(lane=lane, since=since, limit=MOST_SUMMED, newest=True)
    history = await store.history(chosen=chosen)
    summed = await asyncio.to_thread(of_lane, lane, history, plant, now, since)
    return replace(summed, cut_short=len(history.records) >= MOST_SUMMED)


async def why_all(
    store: Store, plant: Plant, since: float, now: float, *, most: int = MOST_LATELY
) -> Waiting:
    """Of all that lived since then, as far as it is among the newest."""
    from penstock.diagnosis.why.waiting import of_all

    history = await store.history(chosen=TaskFilter(since=since, limit=most, newest=True), others=False)
    summed = await asyncio.to_thread(of_all, history, plant, now, since)
    return replace(summed, cut_short=len(history.records) >= most)


async def why_host(store: Store, plant: Plant, host: str, since: float, now: float) -> Waiting:
    """By the plant that is dispatched with, if one is: so `status` counts, and so the tasks waited."""
    from penstock.diagnosis.why.waiting import of_host
    from penstock.store.status import status_record

    snapshot = await store.snapshot(now)
    plant = snapshot.plant_or(plant)
    chosen = TaskFilter(since=since, limit=MOST_SUMMED, newest=True)
    history = await store.history(chosen=chosen, others=False)
    summed = await asyncio.to_thread(of_host, host, history, plant, now, since)
    is_now = status_record(plant, snapshot)["hosts"].get(host)
    return replace(summed, host=is_now, cut_short=len(history.records) >= MOST_SUMMED)


async def past_of_kinds(store: Store, kinds: Iterable[str]) -> list[History]:
    """The newest tasks of these kinds that were done: what others like them will cost, and how long they take."""
    done = (State.DONE,)
    return [
        await store.history(
            chosen=TaskFilter(kind=kind, states=done, limit=_MOST_ALIKE, newest=True), others=False
        )
        for kind in sorted(kinds)
    ]


async def foresee_end(
    store: Store, plant: Plant, tasks: Sequence[Task], now: float, joined: Collection[str] = ()
) -> Prediction:
    """When the last of these tasks would end, were they submitted now, behind all that is queued.

    `joined` are ids of tasks that live already and count as theirs.
    """
    from penstock.diagnosis.why.prediction import Prediction, predict_end

    if len(tasks) > MOST_FORESEEN:
        return Prediction(now, unknown=f"over {MOST_FORESEEN} tasks are too many to be played through")
    present = await present_of(store, plant, Ahead(plant.aging_s), now, run=_IMAGINED)
    unknown = sorted({task.kind for task in tasks} - {ran.kind for ran in present.queue.ran})
    if unknown:
        return Prediction(now, unknown=f"no attempt of kind {', '.join(unknown)} has ended in this store")
    ids = {task.id: f"{_IMAGINED}{place}" for place, task in enumerate(tasks) if task.id}
    imagined = [
        TaskRecord(
            replace(
                task,
                id=f"{_IMAGINED}{place}",
                run=_IMAGINED,
                queued_at=now,
                payload=None,
                after=tuple(ids[other] for other in task.after if other in ids),
            ),
            2**62 + place,
            State.QUEUED,
        )
        for place, task in enumerate(tasks)
    ]
    queue = replace(
        present.queue,
        running=_as_theirs(present.queue.running, joined),
        queued=[*_as_theirs(present.queue.queued, joined), *imagined],
    )
    return await asyncio.to_thread(predict_end, replace(present, queue=queue), _IMAGINED)


def _as_theirs(records: Sequence[TaskRecord], joined: Collection[str]) -> list[TaskRecord]:
    return [
        replace(record, task=replace(record.task, run=_IMAGINED)) if record.task.id in joined else record
        for record in records
    ]
