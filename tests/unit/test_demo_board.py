"""The board shows what the log says, event by event."""

from __future__ import annotations

from typing import Any

from penstock.compare.workloads import LANES, SIX
from penstock.demo.board import Board
from penstock.store.base import StoredEvent


def event(
    type: str, at: float = 0.0, task: str | None = None, host: str | None = None, **data: Any
) -> StoredEvent:
    return StoredEvent(1, at, type, task, 1, host, data)


def ids(board: Board, host: str) -> list[str | None]:
    return [placed and placed.task.id for placed in board.slots[host]]


def test_a_task_goes_from_the_queue_to_a_slot_and_out() -> None:
    board = Board(SIX.plant, SIX.tasks)
    board.apply(event("submitted", 7.0, first=1, last=6))
    assert (board.began, len(board.queued)) == (7.0, 6)
    board.apply_all([event("started", task=f"coding-{n}", host="fenrir") for n in (2, 1)])
    assert ids(board, "fenrir") == ["coding-2", "coding-1", None]
    assert board.busy("fenrir") == 2
    board.apply(event("ended", task="coding-2", host="fenrir"))
    board.apply(event("started", task="coding-3", host="fenrir"))
    assert ids(board, "fenrir") == ["coding-3", "coding-1", None], "a slot is one place for one task"
    assert (board.done, len(board.queued)) == (1, 3)


def test_tasks_are_queued_as_they_arrive() -> None:
    board = Board(SIX.plant, SIX.tasks)
    board.apply(event("submitted", first=1, last=2))
    board.apply(event("submitted", first=3, last=3))
    assert list(board.queued) == [task.id for task in SIX.tasks[:3]]


def test_an_interrupted_task_is_queued_again() -> None:
    board = Board(SIX.plant, SIX.tasks)
    board.apply(event("submitted", first=1, last=6))
    board.apply(event("started", task="vision-1", host="skadi"))
    board.apply(event("requeued", task="vision-1", host="skadi"))
    assert ids(board, "skadi") == [None, None]
    assert "vision-1" in board.queued
    assert board.done == 0


def test_lanes_and_gates_are_followed() -> None:
    board = Board(LANES.plant, LANES.tasks)
    board.apply(event("submitted", first=1, last=len(LANES.tasks)))
    board.apply(event("started", task="fpf-01", host="runner"))
    board.apply(event("gate", gate="fpf-headroom", open=False))
    assert board.running() == {"fpf": 1}
    assert board.gates == {"fpf-headroom": False}
