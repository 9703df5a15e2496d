"""Reading what lives now, and what ran of late: what a predicted start is made of."""

from __future__ import annotations

from collections import defaultdict
from heapq import nsmallest
from typing import Any

from penstock.diagnosis.history import Queue, Ran
from penstock.model import State, TaskRecord
from penstock.store.base import Ahead
from penstock.store.rows import STATES, VERDICTS, json_text, record_of
from penstock.store.session import Session

_MOST_RAN = 5_000


def read_queue(session: Session, ahead: Ahead, most: int) -> Queue:
    def rows(query: str, *parameters: Any) -> list[Any]:
        return session.rows(query, *parameters)

    running = [record_of(row) for row in rows("running_records")]
    chosen, left_out = _first(rows("queued_keys", ahead.aging_s, ahead.place + ahead.aging_s), ahead, most)
    queued: dict[str, TaskRecord] = {}
    for row in rows("records_of_numbers", json_text(chosen)):
        record = record_of(row)
        queued[record.task.id] = record
    for row in rows("needed_records", json_text(list(ahead.needed)), most):
        record = record_of(row)
        if record.state is State.QUEUED:
            queued[record.task.id] = record
    live = queued.keys() | {record.task.id for record in running}
    after = {name for record in queued.values() for name in record.task.after} - live
    return Queue(
        running=running,
        queued=sorted(queued.values(), key=lambda record: record.number),
        left_out=left_out,
        ended={id: (STATES[state], at) for id, state, at in rows("endings", json_text(sorted(after)))},
        ran=[Ran._make((*row[:8], VERDICTS[row[8]])) for row in rows("recent_attempts", _MOST_RAN)],
    )


def _first(places: list[tuple[str, float, int]], ahead: Ahead, most: int) -> tuple[list[int], dict[str, int]]:
    """The numbers of each lane's first tasks, and how many more there are."""
    by_lane: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for lane, place, number in places:
        if lane != ahead.lane or (place, number) <= (ahead.place, ahead.number):
            by_lane[lane].append((place, number))
    chosen: list[int] = []
    left_out: dict[str, int] = {}
    for lane, found in by_lane.items():
        if len(found) > most:
            left_out[lane] = len(found) - most
            found = nsmallest(most, found)
        chosen += [number for _, number in found]
    return chosen, left_out
