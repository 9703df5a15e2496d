"""Writing decisions: the fold of a whole transaction, checked against where each task really stands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from penstock.errors import StoreError
from penstock.lifecycle import LIVE
from penstock.scheduling.messages import Decision, End, Reprioritize, Requeue, Revive, Start
from penstock.store.fold import (
    ATTEMPT_END_WIDTH,
    ATTEMPT_WIDTH,
    ENDED_AT,
    EVENT_WIDTH,
    LIVE_WIDTH,
    PRIORITY_CHANGE_WIDTH,
    RAN_ON,
    RUNNING,
    STATE,
    TASK_WIDTH,
    WAS,
    Fold,
    Standing,
)
from penstock.store.rows import json_text
from penstock.store.session import Session

_STEPS = (Start, End, Requeue, Revive, Reprioritize)


class Recorder:
    """Writes decisions for one dispatcher and remembers where its attempts run, for their later events."""

    def __init__(self) -> None:
        self._hosts: dict[str, str] = {}
        self._written: list[Fold] = []

    def write(self, session: Session, parts: Sequence[Sequence[Decision]]) -> float:
        """Write these decisions in order, inside the caller's transaction; the time of the last of them."""
        fold = Fold(hosts=self._hosts)
        for decisions in parts:
            fold.add(decisions)
        with session.savepoint() as undo:
            if fold.must_know or not _moved(session, fold):
                # Rare: a revival, or a task that is not where its dispatcher believes.
                undo()
                fold = Fold(_standings(session, parts), self._hosts)
                for decisions in parts:
                    fold.add(decisions)
                if not _moved(session, fold):
                    raise StoreError(
                        "a task moved while the store was writing it; this is a defect of Penstock"
                    )
        _write_rest(session, fold)
        self._written.append(fold)
        return fold.last_at

    def finish(self, committed: bool) -> None:
        """The caller's transaction is over; what it wrote is durable, or gone."""
        hosts = self._hosts
        for fold in self._written if committed else ():
            for task, row in fold.tasks.items():
                if row[STATE] == RUNNING:
                    hosts[task] = row[RAN_ON]
                else:
                    hosts.pop(task, None)
        self._written.clear()


def _moved(session: Session, fold: Fold) -> bool:
    """Write where the tasks end up; whether all of them came from where they were believed to be."""
    if fold.presumed_live:  # before anything is moved: what ends with these decisions lived until then
        ids = json_text(list(fold.presumed_live))
        if session.row("count_live", ids)[0] != len(fold.presumed_live):
            return False
    live: list[Any] = []
    ended: list[Any] = []
    for row in fold.tasks.values():
        # What a live task keeps empty need not be written, and leaves the indexes alone.
        if row[ENDED_AT] is None and row[WAS] in LIVE:
            live += row[:LIVE_WIDTH]
        else:
            ended += row
    moved = session.bulk("move_live", LIVE_WIDTH, live)
    moved += session.bulk("move_tasks", TASK_WIDTH, ended)
    return moved == len(fold.tasks)


def _standings(session: Session, parts: Sequence[Sequence[Decision]]) -> dict[str, Standing]:
    tasks = {decision.task for decisions in parts for decision in decisions if isinstance(decision, _STEPS)}
    rows = session.rows("standing", json_text(list(tasks)))
    return {task: (state, attempts, ended_at) for task, state, attempts, ended_at in rows}


def _write_rest(session: Session, fold: Fold) -> None:
    if fold.attempts:
        session.bulk("add_attempts", ATTEMPT_WIDTH, list(chain.from_iterable(fold.attempts)))
    if fold.attempt_ends:
        session.bulk("end_attempts", ATTEMPT_END_WIDTH, fold.attempt_ends)
    if fold.begins:
        begins = [(*which, at) for which, at in fold.begins.items()]
        session.many("begin_tasks", begins)
        session.many("begin_attempts", [begin for begin in begins if begin[2] is not None])
    if fold.priorities:
        changed = list(chain.from_iterable(fold.priorities.items()))
        session.bulk("set_priorities", 2, changed)
        changes = list(chain.from_iterable(fold.priority_changes))
        session.bulk("add_priority_changes", PRIORITY_CHANGE_WIDTH, changes)
    session.bulk("add_events", EVENT_WIDTH, fold.events)
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
        ("add_spending", [(*which, *costs) for which, costs in fold.spending.items()]),
    ):
        if rows:
            session.many(query, rows)
