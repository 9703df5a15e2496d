"""The story tells the same waits as the store's history, while they happen. E1, E7."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.diagnosis.history import History
from penstock.diagnosis.waits import Explainer
from penstock.model import State, Task, Wait
from penstock.scheduling import messages as m
from penstock.scheduling.scheduler import Scheduler
from penstock.telemetry.facts import BegunLate, Ended, Fact, Over, Started
from penstock.telemetry.story import Story
from penstock.telemetry.stretches import EARLIER, QueueTime
from tests.simulation import harness, worlds
from tests.simulation.truth import merged

SEEDS = range(80) if os.environ.get("PENSTOCK_SOAK") else range(0, 80, 2)


class Heard:
    """Everything that stories of one world told."""

    def __init__(self) -> None:
        self.world: harness.World | None = None
        self.waits: dict[str, list[Wait]] = defaultdict(list)
        self.seconds: dict[str, list[tuple[float, float]]] = defaultdict(
            list
        )  # what reasons add up to; the whole
        self.attempts: dict[str, list[Over]] = defaultdict(list)
        self.ended: dict[str, Ended] = {}
        self.revived: set[str] = set()
        self.interrupted: set[str] = set()  # tried, revived or without a worker when a dispatcher died

    def task(self, task: str) -> Task | None:
        assert self.world is not None
        return self.world.referee.rows[task].task

    def told(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, Started | BegunLate | Ended) and fact.wait is not None:
                self._waited(fact.task, fact.wait)
            if isinstance(fact, Over):
                self.attempts[fact.task].append(fact)
            elif isinstance(fact, m.Revive):
                self.ended.pop(fact.task)
                self.revived.add(fact.task)
            elif isinstance(fact, Ended):
                assert fact.task not in self.ended
                self.ended[fact.task] = fact

    def _waited(self, task: str, wait: QueueTime) -> None:
        pieces = wait.pieces()
        self.waits[task] += pieces
        self.seconds[task].append((sum(wait.seconds().values()), wait.total_s))
        by_word: dict[str, float] = defaultdict(float)
        for piece in pieces:
            by_word[piece.reason.partition(":")[0]] += piece.seconds
        told = {word: s for word, s in wait.seconds().items() if s > 1e-6}
        if any("in turn" in piece.detail for piece in pieces):  # too many to be told one by one
            return
        assert told == pytest.approx({word: s for word, s in by_word.items() if s > 1e-6}, abs=1e-5)


class ToldScheduler(Scheduler):
    """A scheduler whose decisions are told as a story, from its first event on."""

    heard: Heard

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._story = Story(self.heard.task, self.met_at)
        self._story.listen(self.heard)

    def apply_all(self, events: Iterable[m.Event], now: float) -> list[m.Decision]:
        events = list(events)
        for event in events:
            if isinstance(event, m.Restored):
                assert self.heard.world is not None
                epoch = self.heard.world.referee.epochs[-1]
                self._story.took_over(
                    epoch.started_at,
                    event.crashed_at,
                    event.records,
                    answers_only=epoch.owner.answers_only,
                )
                self.heard.interrupted |= {r.task.id for r in event.records if r.is_delayed}
                queued = [r for r in event.records if r.state is State.QUEUED]
                self.heard.interrupted |= {r.task.id for r in queued if r.attempts}
                in_short = {id for backlog in event.queued for id in backlog.ids}
                self.heard.interrupted |= {*(r.task.id for r in queued), *in_short} & self.heard.revived
        decisions = super().apply_all(events, now)
        self._story.decided(decisions)
        return decisions


class ToldWorld(harness.World):
    def __init__(self, plant: Any, rng: random.Random) -> None:
        ToldScheduler.heard.world = self
        super().__init__(plant, rng)


def explained(world: harness.World) -> dict[str, tuple[Wait, ...]]:
    referee = world.referee
    history = History(
        records=[row.record() for row in referee.rows.values()],
        attempts=referee.begun(),
        others=(),
        dependencies={task: row.record() for task, row in referee.rows.items()},
        routes=referee.routes,
        moves=referee.moves,
        stretches=referee.stretches,
        epochs=referee.epochs,
        rests=referee.rests,
    )
    explainer = Explainer(history, world.now)
    return {record.task.id: explainer.waits(record) for record in history.records}


def plain(waits: Iterable[Wait]) -> list[Wait]:
    """Waits on both sides of an attempt that took no time are one."""
    found: list[Wait] = []
    for wait in waits:
        last = found[-1] if found else None
        if last is not None and (last.reason, last.detail, last.end) == (
            wait.reason,
            wait.detail,
            wait.start,
        ):
            found[-1] = replace(last, end=wait.end)
        else:
            found.append(wait)
    return found


@pytest.mark.parametrize(
    ("seed", "outlives", "late_s"),
    [
        *((seed, seed >= 60, 0.0) for seed in SEEDS),
        *((seed, False, 8.0) for seed in SEEDS if seed < 40),
    ],
)
def test_the_story_tells_the_waits_that_the_history_explains(
    seed: int, outlives: bool, late_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = ToldScheduler.heard = Heard()
    monkeypatch.setattr(harness, "Scheduler", ToldScheduler)
    monkeypatch.setattr(worlds, "World", ToldWorld)
    world = worlds.play(seed, outlives=outlives, late_s=late_s)
    truth = explained(world)
    assert heard.ended.keys() == truth.keys()
    for task, waits in truth.items():
        for total, whole in heard.seconds[task]:
            assert total == pytest.approx(whole, abs=1e-5)
        row = world.referee.rows[task]
        attempts = heard.attempts[task]
        assert [over.attempt for over in attempts] == list(range(1, row.attempts + 1))
        # The history knows when such a dependency ended last, and not that it had ended before.
        again = {"dependency"} if heard.revived & set(row.task.after) else set()
        if len(world.referee.epochs) == 1 and not again:
            if not any("in turn" in told.detail for told in heard.waits[task]):
                assert plain(heard.waits[task]) == plain(waits), task
            continue
        for told in heard.waits[task]:
            if told.reason != EARLIER:
                reasons = {w.reason for w in waits if w.start < told.end - 1e-6 and w.end > told.start + 1e-6}
                assert reasons <= {told.reason} | again, (task, told)
        if task not in heard.interrupted:
            tiles = [(w.start, w.end) for w in heard.waits[task]]
            assert merged(tiles) == merged((w.start, w.end) for w in waits)
