"""Writing decisions: the fold of a whole transaction, checked against where each task really stands."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain

from penstock.errors import StoreError
from penstock.scheduling.messages import Decision, End, Requeue, Revive, Start
from penstock.store.fold import (
    ATTEMPT_END_WIDTH,
    ATTEMPT_WIDTH,
    EVENT_WIDTH,
    RAN_ON,
    RUNNING,
    STATE,
    TASK_WIDTH,
    Fold,
    Standing,
)
from penstock.store.rows import json_text
from penstock.store.sqlite_open import QUERIES

_STEPS = (Start, End, Requeue, Revive)


class Recorder:
    """Writes decisions for one dispatcher and remembers where its attempts run, for their later events."""

    def __init__(self) -> None:
        self._hosts: dict[str, str] = {}
        self._written: Fold | None = None

    def write(self, connection: sqlite3.Connection, parts: Sequence[Sequence[Decision]]) -> float:
        """Write these decisions in order, inside the caller's transaction; the time of the last of them."""
        fold = Fold(hosts=self._hosts)
        for decisions in parts:
            fold.add(decisions)
        connection.execute("SAVEPOINT moves")
        if fold.must_know or not _moved(connection, fold):
            # Rare: a revival, or a task that is not where its dispatcher believes.
            connection.execute("ROLLBACK TO moves")
            fold = Fold(_standings(connection, parts), self._hosts)
            for decisions in parts:
                fold.add(decisions)
            if not _moved(connection, fold):
                raise StoreError("a task moved while the store was writing it; this is a defect of Penstock")
        connection.execute("RELEASE moves")
        _write_rest(connection, fold)
        self._written = fold
        return fold.last_at

    def committed(self) -> None:
        """What was written last is durable now."""
        fold = self._written
        if fold is None:
            return
        self._written = None
        hosts = self._hosts
        for task, row in fold.tasks.items():
            if row[STATE] == RUNNING:
                hosts[task] = row[RAN_ON]
            else:
                hosts.pop(task, None)


def _moved(connection: sqlite3.Connection, fold: Fold) -> bool:
    if not fold.tasks:
        return True
    values = list(chain.from_iterable(fold.tasks.values()))
    return QUERIES.bulk(connection, "move_tasks", TASK_WIDTH, values) == len(fold.tasks)


def _standings(connection: sqlite3.Connection, parts: Sequence[Sequence[Decision]]) -> dict[str, Standing]:
    tasks = {decision.task for decisions in parts for decision in decisions if isinstance(decision, _STEPS)}
    rows = connection.execute(QUERIES["standing"], (json_text(list(tasks)),))
    return {task: (state, attempts, ended_at) for task, state, attempts, ended_at in rows}


def _write_rest(connection: sqlite3.Connection, fold: Fold) -> None:
    if fold.attempts:
        QUERIES.bulk(connection, "add_attempts", ATTEMPT_WIDTH, list(chain.from_iterable(fold.attempts)))
    if fold.attempt_ends:
        QUERIES.bulk(connection, "end_attempts", ATTEMPT_END_WIDTH, fold.attempt_ends)
    QUERIES.bulk(connection, "add_events", EVENT_WIDTH, fold.events)
    for query, rows in (
        ("count_ended", list(fold.ended.items())),
        ("add_route", fold.routes),
        ("add_move", fold.moves),
        ("add_rest", fold.rests),
        ("add_stretch", fold.stretches),
        ("set_host", fold.host_changes),
        ("set_lane", fold.lane_changes),
        ("set_gate", fold.gate_changes),
        ("set_everything", fold.all_changes),
    ):
        if rows:
            QUERIES.many(connection, query, rows)
