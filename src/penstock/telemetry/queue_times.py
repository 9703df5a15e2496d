"""How long a task was in the queue and what it waited for there, while it happens.

Kept is what classes wait for, and the ways of tasks from class to class: nothing per queued task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.model import Task
from penstock.scheduling.messages import Move, Route, WaitChange
from penstock.scheduling.routes import route_key
from penstock.telemetry.stretches import EARLIER, Piece, QueueTime, Stretches

_DOWN = "dispatcher-down"
_NOBODY = "no dispatcher was running"
_BEFORE = "under an earlier dispatcher"
_NOT_KEPT = "too many tasks have moved for it to be kept"
_MOST_MOVED = 100_000  # tasks whose way from class to class is known


class Tries(NamedTuple):
    """Of a task that was in the queue before: since when it is again, and what its attempts used."""

    at: float
    ready: float | None  # None: it was revived, and waits for its dependencies and its time as at first
    why: str
    host: str | None = None
    tokens: float | None = None
    usd: float = 0.0
    revived_at: float | None = None


class QueueTimes:
    def __init__(self, met_at: Callable[[str], float | None]) -> None:
        self.born = 0.0  # from when this dispatcher knows the reasons
        self.last_died: float | None = None  # when the dispatcher before this one was gone
        self._met_at = met_at  # when the last task was done that this one waits after
        self._classes: dict[int, Stretches] = {}
        self._routes: dict[str, int] = {}
        self._moves: dict[str, list[tuple[float, int]]] = {}

    # ---- decisions

    def waits(self, change: WaitChange) -> None:
        self._class(change.work_class).change(change.at, change.reason, change.detail)

    def routed(self, route: Route) -> None:
        self._routes[route.key] = route.work_class

    def moved(self, move: Move) -> None:
        moves = self._moves.get(move.task)
        if moves is not None:
            moves.append((move.at, move.work_class))
        elif len(self._moves) < _MOST_MOVED:
            self._moves[move.task] = [(move.at, move.work_class)]

    def forget_moves(self, task: str) -> None:
        if self._moves:
            self._moves.pop(task, None)

    # ---- what they come to

    def of(self, task: Task, tries: Tries | None, end: float, work_class: int) -> QueueTime:
        start = task.queued_at if tries is None else tries.at
        before: list[Piece] = []
        if tries is not None and tries.ready is not None:
            ready = tries.ready
            if ready > start:
                before.append(Piece("scheduled", tries.why, start, min(ready, end)))
        elif task.after or task.not_before is not None:
            before, ready = self._before_ready(task, start, end)
        else:
            ready = start
        if ready < self.born:
            before += self._before_birth(max(start, ready), min(self.born, end))
        moves = self._moves.get(task.id) if self._moves else None
        if moves is None:
            homes = [(start, self._class(work_class))]
        else:
            homes = [(at, self._class(home)) for at, home in moves]
            if moves[0][0] > ready:
                homes.insert(0, (start, self._class(self._routes.get(_key(task), work_class))))
        return QueueTime(start, end, before, homes)

    def of_last(self, task: Task, tries: Tries | None, end: float) -> QueueTime:
        """Of one that ended in the queue, so that nothing says which class it was of."""
        return self.of(task, tries, end, self._routes.get(_key(task), 0))

    def of_late(self, task: str, start: float, end: float) -> QueueTime:
        """Of one whose attempt was started, and began only at the end of it."""
        before = self._before_birth(start, min(self.born, end)) if start < self.born else []
        moves = self._moves.get(task)
        if moves is None:
            before.append(Piece(EARLIER, _NOT_KEPT, before[-1].end if before else start, end))
        return QueueTime(start, end, before, [(at, self._class(home)) for at, home in moves or ()])

    def _class(self, work_class: int) -> Stretches:
        found = self._classes.get(work_class)
        if found is None:
            found = self._classes[work_class] = Stretches()
        return found

    def _before_ready(self, task: Task, start: float, end: float) -> tuple[list[Piece], float]:
        """What it waited for by itself, and until when."""
        met = start
        pieces = []
        if task.after:
            known = self._met_at(task.id)
            met = end if known is None else min(max(start, known), end)
            if met < self.born and start < self.born:  # it was met, and an earlier dispatcher knew when
                met = min(self.born, end)
                pieces.append(Piece(EARLIER, _BEFORE, start, met))
        ready = max(met, task.not_before or 0.0, start)
        if met > start and not pieces:
            pieces.append(Piece("dependency", ", ".join(task.after[:5]), start, met))
        if ready > met and end > met:
            pieces.append(Piece("scheduled", "not before its time", met, min(ready, end)))
        return pieces, ready

    def _before_birth(self, start: float, end: float) -> list[Piece]:
        """The time before this dispatcher: the one before it knew the reasons, or there was none."""
        died = self.last_died
        if end <= start:
            return []
        if died is None or died <= start:
            return [Piece(_DOWN, _NOBODY, start, end)]
        if died >= end:
            return [Piece(EARLIER, _BEFORE, start, end)]
        return [Piece(EARLIER, _BEFORE, start, died), Piece(_DOWN, _NOBODY, died, end)]


def _key(task: Task) -> str:
    return route_key(task.kind, task.lane, task.host, task.model, task.needs)
