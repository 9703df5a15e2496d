"""What holds waits against the truth can fail: every way of telling a wrong reason is found out (E1, promise 5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.diagnosis import waits
from penstock.diagnosis.history import Owner
from penstock.diagnosis.waits import Explainer
from penstock.diagnosis.why.holders import Holders
from penstock.model import TaskRecord
from penstock.scheduling import messages as m
from penstock.scheduling.agenda import Agenda
from penstock.scheduling.placing import Placer
from penstock.scheduling.scheduler import Scheduler
from penstock.scheduling.tiers import Tier
from tests.simulation.worlds import play

SEEDS = 120  # in which each of them is found, most in the first few

Break = Callable[[pytest.MonkeyPatch], None]


# ---- wrong cuts


def no_dependencies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Explainer, "_met", lambda self, record: 0.0)


def a_gap_before_it_is_due(patch: pytest.MonkeyPatch) -> None:
    def nothing(*args: Any) -> Iterator[Any]:
        return iter(())

    patch.setattr(Explainer, "_before_ready", nothing)


def no_rests(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Explainer, "_less_rests", Explainer._queue_times)


def ready_at_once_after_a_rest(patch: pytest.MonkeyPatch) -> None:
    cut = Explainer._less_rests

    def wrong(self: Explainer, record: TaskRecord) -> Iterator[tuple[float, float, float, str]]:
        ends = {rest.end for rest in self._rests[record.task.id]}
        for start, end, ready, why in cut(self, record):
            yield start, end, (start if start in ends else ready), why

    patch.setattr(Explainer, "_less_rests", wrong)


def no_moves(patch: pytest.MonkeyPatch) -> None:
    told = Explainer.__init__

    def wrong(self: Explainer, *args: Any) -> None:
        told(self, *args)
        self._moves = defaultdict(list)

    patch.setattr(Explainer, "__init__", wrong)


def always_a_dispatcher(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waits, "_dispatching", lambda history, now: [(0.0, now, Owner(1, "here", "always"))])


def answering_is_dispatching(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        waits,
        "_dispatching",
        lambda history, now: [
            (e.started_at, e.ended_at or now, replace(e.owner, answers_only=False)) for e in history.epochs
        ],
    )


def other_holders(patch: pytest.MonkeyPatch) -> None:
    on = Holders.on
    patch.setattr(Holders, "on", lambda self, hosts, start, end: on(self, ["h0"], start, end))


# ---- wrong records


def unrecorded(word: str) -> Break:
    def wrong(patch: pytest.MonkeyPatch) -> None:
        apply_all = Scheduler.apply_all

        def forgetful(self: Scheduler, events: Any, now: float) -> list[m.Decision]:
            told = apply_all(self, events, now)
            return [d for d in told if not (type(d) is m.WaitChange and (d.reason or "").startswith(word))]

        patch.setattr(Scheduler, "apply_all", forgetful)

    wrong.__name__ = f"{word} is not recorded"
    return wrong


def details_only_with_reasons(patch: pytest.MonkeyPatch) -> None:
    """A lane that is still paused when everything is resumed; what others keep, as it was at first."""
    apply_all = Scheduler.apply_all
    last: dict[int, str | None] = {}

    def forgetful(self: Scheduler, events: Any, now: float) -> list[m.Decision]:
        kept = []
        for d in apply_all(self, events, now):
            if type(d) is m.WaitChange:
                if last.get(d.work_class, "") == d.reason:
                    continue
                last[d.work_class] = d.reason
            kept.append(d)
        return kept

    patch.setattr(Scheduler, "apply_all", forgetful)


def all_hosts_named(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tier, "names", lambda self, condition: ",".join(h.name for h in self.hosts))


def reserves_unnoticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Placer, "_notice_reserves", lambda self: self._agenda.moved_reserves.clear())


def taken_room_unnoticed(patch: pytest.MonkeyPatch) -> None:
    wake_on = Agenda.wake_on

    def wrong(self: Agenda, host: Any, reason: str | None = None) -> None:
        if reason is None:
            wake_on(self, host)

    patch.setattr(Agenda, "wake_on", wrong)


@pytest.mark.parametrize(
    "broken",
    [
        no_dependencies,
        a_gap_before_it_is_due,
        no_rests,
        ready_at_once_after_a_rest,
        no_moves,
        always_a_dispatcher,
        answering_is_dispatching,
        other_holders,
        unrecorded("lane:"),
        unrecorded("gate:"),
        unrecorded("rate:"),
        unrecorded("host-down"),
        details_only_with_reasons,
        all_hosts_named,
        reserves_unnoticed,
        taken_room_unnoticed,
    ],
    ids=lambda broken: broken.__name__,
)
def test_a_wrong_reason_is_found_out(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    for seed in range(SEEDS):
        try:
            play(seed)
        except AssertionError:
            return
    pytest.fail(f"nothing was found in {SEEDS} lives")
