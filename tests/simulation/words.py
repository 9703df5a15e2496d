"""What a wait's detail says, held against what happened: who held the slots, what is kept, what is paused."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.model import Attempt, Task, Wait

if TYPE_CHECKING:
    from tests.simulation.truth import Piece

_HELD = re.compile(r"lane (\S+) ×([0-9.e+-]+)")
_KEPT = re.compile(r"([0-9.e+-]+) kept for lane ([^\s;]+)")
_SEEN = 0.05  # fewer slots than this, on average, are not worth a word
_MOST = 4


def check_words(
    attempts: Mapping[str, Sequence[Attempt]], task: Task, wait: Wait, pieces: Sequence[Piece]
) -> None:
    name = wait.reason.partition(":")[0]
    if name == "dependency":
        named = wait.detail.split(", ")
        assert set(named) <= set(task.after), f"{task.id}: {wait}, but it waits after {task.after}"
    elif name == "paused":
        for piece in pieces:
            assert wait.detail in piece.answer.paused, (
                f"{task.id}: {wait}, but from {piece.start} to {piece.end}: {sorted(piece.answer.paused)}"
            )
    elif name == "slots":
        _check_holders(attempts, task, wait)
        _check_kept(task, wait, pieces)


def _check_holders(attempts: Mapping[str, Sequence[Attempt]], task: Task, wait: Wait) -> None:
    """On average over the wait, to three digits; the four lanes that held most."""
    hosts = wait.reason.partition(":")[2].split(",")
    held: dict[str, float] = defaultdict(float)
    for attempt in (a for host in hosts for a in attempts.get(host, ())):
        end = wait.end if attempt.ended_at is None else min(attempt.ended_at, wait.end)
        if end > wait.start and attempt.started_at < wait.end:
            held[attempt.lane] += (end - max(attempt.started_at, wait.start)) / wait.seconds
    part = next((p for p in wait.detail.split("; ") if p.startswith("held by ")), "")
    told = {lane: float(n) for lane, n in _HELD.findall(part)}
    for lane, n in told.items():
        assert abs(n - held[lane]) <= 0.006 * held[lane] + 1e-6, (
            f"{task.id}: {wait}, but lane {lane} held {held[lane]}"
        )
    worth = [lane for lane, n in held.items() if n > _SEEN + 1e-6]
    assert len(told) >= min(len(worth), _MOST), f"{task.id}: {wait}, but {dict(held)} held them"
    least = min(told.values(), default=0.0)
    for lane in worth:
        assert lane in told or held[lane] <= least * 1.01, f"{task.id}: {wait}, lane {lane} is left out"


def _check_kept(task: Task, wait: Wait, pieces: Sequence[Piece]) -> None:
    """Slots that look free and are another lane's, at every moment of the wait."""
    told = {lane: float(n) for n, lane in _KEPT.findall(wait.detail)}
    for piece in pieces:
        assert piece.answer.kept is None or told == dict(piece.answer.kept), (
            f"{task.id}: {wait}, but from {piece.start} to {piece.end} kept: {piece.answer.kept}"
        )
