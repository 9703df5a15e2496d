"""Exporting a run from a store, and taking one in."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

from penstock.errors import TaskError
from penstock.lifecycle import LIVE
from penstock.model import State
from penstock.store.admission import KEY, MAX_PAYLOAD_BYTES, Admission, Batch
from penstock.store.exchange import RunBundle, with_own_classes
from penstock.store.fold import EVENT_WIDTH, PRIORITY_CHANGE_WIDTH, event_data
from penstock.store.histories import Material
from penstock.store.rows import event_of, full_record_of, json_or_null, json_text
from penstock.store.session import Session

_PAGE = 1000


def page_of_tasks(session: Session, run: str, after: int) -> list[Any]:
    return [full_record_of(row) for row in session.rows("page_of_run", run, after, _PAGE)]


def page_of_events(session: Session, run: str, after: int) -> list[Any]:
    if not after:
        row = session.row("first_event_of_run", run)
        after = row[0] - 1 if row else 0
    return [event_of(row) for row in session.rows("events_of_run", after, run, _PAGE)]


def admitted(bundle: RunBundle, now: float, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> Batch:
    """The run's tasks, checked like any submitted ones."""
    admission = Admission([record.task for record in bundle.tasks], now, max_payload_bytes)
    while admission.advance(len(bundle.tasks), 1 << 62):
        pass
    return admission.batch()


def write_import(session: Session, bundle: RunBundle, batch: Batch, now: float) -> str:
    """Keep the run, inside the caller's transaction."""
    _refuse_known(session, bundle, batch)
    bundle, lowest = with_own_classes(bundle, session.row("lowest_class")[0])
    number, event = session.row("counters")
    log, endings = _log(bundle, number)
    session.bulk("add_batches", 2, (number + 1, event + 1))
    session.bulk("add_events", EVENT_WIDTH, log)
    known_keys = _known_keys(session, batch)
    tasks: list[tuple[Any, ...]] = []
    for row, record in zip(batch.rows, bundle.tasks, strict=True):
        ending = endings.get(record.task.id)
        tasks.append(
            (
                *row[:KEY],
                None if row[KEY] in known_keys else row[KEY],  # the key stays with the task that has it here
                *row[KEY + 1 :],
                str(record.state),
                record.attempts,
                record.tries,
                record.host_faults,
                record.retry_at,
                record.host,
                record.started_at,
                record.ended_at,
                None if ending is None else event + ending,
                record.error,
                json_or_null(record.value),
            )
        )
    session.many("import_task", tasks)
    session.many("add_payload", [(number + 1 + place, text) for place, text in batch.long_payloads.items()])
    _write_explanation(session, bundle, lowest, now)
    ended = Counter(str(record.state) for record in bundle.tasks if record.state not in LIVE)
    session.many("count_ended", list(ended.items()))
    return bundle.run


def _refuse_known(session: Session, bundle: RunBundle, batch: Batch) -> None:
    if len(set(batch.ids)) < len(batch.ids):
        raise TaskError(f"the export holds a task of run {bundle.run} twice; export the run again")
    known = session.row("known_ids", json_text(batch.ids))
    if known is not None:
        raise TaskError(
            f"the store already has task {known[0]} of run {bundle.run}; import it into another store"
        )
    if session.row("run_exists", bundle.run) is not None:
        raise TaskError(f"the store already has a run {bundle.run}; import it into another store")


def _known_keys(session: Session, batch: Batch) -> set[str]:
    keys = [row[KEY] for row in batch.rows if row[KEY] is not None]
    return {key for key, _ in session.rows("known_keys", json_text(keys))} if keys else set()


def _log(bundle: RunBundle, before: int) -> tuple[list[Any], dict[str, int]]:
    """The run's events, flat, and for each ended task the place of its ending in them, counted from 1."""
    count = len(bundle.tasks)
    span = {"run": bundle.run, "count": count, "first": before + 1, "last": before + count, "imported": True}
    last = bundle.tasks[-1].task
    log: list[Any] = [
        last.queued_at,
        "submitted",
        last.id if count == 1 else None,
        None,
        None,
        json_text(span),
    ]
    endings: dict[str, int] = {}
    for event in bundle.events:
        log += (event.at, event.type, event.task, event.attempt, event.host, event_data(event.data))
        if event.type == "ended" and event.task is not None:
            endings[event.task] = len(log) // EVENT_WIDTH
    for record in bundle.tasks:
        if record.state in LIVE:
            endings.pop(record.task.id, None)
        elif record.task.id not in endings:  # the log it came with was pruned
            data = event_data({"state": str(record.state)})
            log += (record.ended_at or last.queued_at, "ended", record.task.id, None, record.host, data)
            endings[record.task.id] = len(log) // EVENT_WIDTH
    return log, endings


def _write_explanation(session: Session, bundle: RunBundle, lowest: int, now: float) -> None:
    session.many(
        "import_attempt",
        [
            (
                a.task,
                a.number,
                a.host,
                a.lane,
                a.started_at,
                a.work_class,
                a.ended_at,
                None if a.verdict is None else str(a.verdict),
                a.error,
                a.retry_at,
            )
            for a in bundle.attempts
        ],
    )
    session.many("add_move", bundle.moves)
    session.many("add_rest", [(r.task, r.start, r.end, r.attempts) for r in bundle.rests])
    session.bulk(
        "add_priority_changes",
        PRIORITY_CHANGE_WIDTH,
        list(chain.from_iterable(bundle.priorities)),
    )
    material = Material(bundle.others, bundle.routes, bundle.stretches, bundle.epochs, bundle.conditions)
    session.many("add_import", [(bundle.run, now, lowest, json_text(material))])
    session.many(
        "add_foreign_task",
        [
            # One that was still live will never end here; for those who come after it, that is a block.
            (d.task.id, bundle.run, str(State.BLOCKED if d.state in LIVE else d.state), json_text(d))
            for d in bundle.dependencies
        ],
    )
