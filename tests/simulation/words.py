"""What a wait's detail says, held against what happened: who held the slots, what is kept, what is paused."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.model import Attempt, Task, Wait

if TYPE_CHECKING:
    from penstock.diagnosis.waits import Explainer
    from penstock.diagnosis.why.holders import Holder
    from tests.simulation.truth import Piece

_KEPT = re.compile(r"([0-9.e+-]+) kept for lane ([^\s;]+)")
NEAR = 1e-6
SEEN = 0.05  # fewer slots than this, on average, are not worth a word


def check_words(
    attempts: Mapping[str, Sequence[Attempt]],
    task: Task,
    wait: Wait,
    pieces: Sequence[Piece],
    explainer: Explainer,
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
        _check_holders(attempts, task, wait, explainer.holders(wait.reason, wait.start, wait.end))
        _check_kept(task, wait, pieces)


def _check_holders(
    attempts: Mapping[str, Sequence[Attempt]], task: Task, wait: Wait, told: Sequence[Holder]
) -> None:
    """How many tasks of each lane held the hosts, how many at once, and which, where they are named."""
    held: dict[str, float] = defaultdict(float)
    there: dict[str, list[str]] = defaultdict(list)
    for attempt in (a for host in wait.reason.partition(":")[2].split(",") for a in attempts.get(host, ())):
        end = wait.end if attempt.ended_at is None else min(attempt.ended_at, wait.end)
        seconds = end - max(attempt.started_at, wait.start)
        if seconds > 0:
            held[attempt.lane] += seconds / wait.seconds
            there[attempt.lane].append(attempt.task)
    for holder in told:
        lane = holder.lane
        assert abs(holder.average - held[lane]) <= NEAR, (
            f"{task.id}: {wait}, but lane {lane} held {held[lane]}"
        )
        assert holder.number == len(there[lane]), (
            f"{task.id}: {wait}, but {there[lane]} of lane {lane} held it"
        )
        assert not holder.tasks or sorted(holder.tasks) == sorted(there[lane]), f"{task.id}: {wait}"
    missing = [lane for lane, n in held.items() if n > SEEN + NEAR and lane not in {h.lane for h in told}]
    assert not missing, f"{task.id}: {wait}, but lanes {missing} held slots too"


def _check_kept(task: Task, wait: Wait, pieces: Sequence[Piece]) -> None:
    """Slots that look free and are another lane's, at every moment of the wait."""
    told = {lane: float(n) for n, lane in _KEPT.findall(wait.detail)}
    for piece in pieces:
        assert piece.answer.kept is None or told == dict(piece.answer.kept), (
            f"{task.id}: {wait}, but from {piece.start} to {piece.end} kept: {piece.answer.kept}"
        )
