"""What a predicted start depends on: closed gates, pauses, hosts that are down, what is not known (E1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.diagnosis.history import Queue, Ran
from penstock.diagnosis.why.durations import Durations, Lengths, quantile
from penstock.diagnosis.why.prediction import (
    NEVER,
    NO_DURATIONS,
    foreseen,
    predict_end,
    predict_end_of_attempt,
    predict_start,
)
from penstock.diagnosis.why.present import HostNow, Present
from penstock.model import Fallback, Gate, Host, Lane, Plant, Rate, State, Task, TaskRecord, Verdict
from penstock.scheduling.budget import day_of
from penstock.scheduling.messages import Spent

NOW = 1_700_000_000.0
PLANT = Plant(
    (Host("a", "none", 2), Host("b", "none", 1, serves=("rare",))),
    (Lane("default"), Lane("few", max_running=1)),
    gates=(Gate("vram", probe="p", min=3.0, holds_kinds=("k",)), Gate("odd", probe="p", max=5.0)),
)


def ran(
    seconds: float, *, kind: str = "k", host: str = "a", verdict: Verdict = Verdict.DONE, ago: float = 100.0
) -> Ran:
    return Ran(host, kind, None, "default", 1, NOW - ago - 1, NOW - ago, NOW - ago + seconds, verdict)


RAN = [ran(10.0, ago=100.0 + 20 * n) for n in range(10)]


def queued(count: int, **fields: Any) -> list[TaskRecord]:
    return [
        TaskRecord(
            Task(**{"kind": "k", "id": f"q{n}", "queued_at": NOW - 5.0, **fields}), n + 10, State.QUEUED
        )
        for n in range(count)
    ]


def running(*ages: float, host: str = "a") -> list[TaskRecord]:
    return [
        TaskRecord(
            Task("k", id=f"r{n}", queued_at=NOW - 60.0), n, State.RUNNING, 1, host=host, started_at=NOW - age
        )
        for n, age in enumerate(ages)
    ]


def present(
    waiting: Sequence[TaskRecord],
    runs: Sequence[TaskRecord] = (),
    *,
    past: Sequence[Ran] = RAN,
    left_out: Mapping[str, int] | None = None,
    ended: Mapping[str, tuple[State, float]] | None = None,
    plant: Plant = PLANT,
    **fields: Any,
) -> Present:
    return Present(NOW, plant, Queue(runs, waiting, left_out or {}, ended or {}, past), **fields)


def test_what_runs_is_counted_with_the_time_it_has_left() -> None:
    waiting = queued(3)
    now = present(waiting, running(4.0, 7.0))
    assert [predict_start(now, one).seconds for one in waiting] == [3.0, 6.0, 13.0]


def test_what_runs_longer_than_any_is_thought_to_end_within_as_long_again() -> None:
    waiting = queued(1)
    told = predict_start(present(waiting, running(40.0, 40.0)), waiting[0])
    assert told.least_s is not None
    assert told.most_s is not None
    assert 0 <= told.least_s < told.most_s <= 40.0


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({"closed_gates": frozenset({"vram"})}, "gate vram opens"),
        ({"paused": True}, "what is paused is resumed"),
        ({"paused_lanes": frozenset({"default"})}, "what is paused is resumed"),
        ({"hosts": {"a": HostNow("paused", 2)}}, "what is paused is resumed"),
        ({"hosts": {"a": HostNow("down", 2)}}, "a is healthy again"),
        ({"dispatched": False}, "a dispatcher runs"),
    ],
    ids=str,
)
def test_what_must_happen_first_is_told_with_the_time_after_it(held: Mapping[str, Any], words: str) -> None:
    """E1: nobody knows when; how long after it is known."""
    waiting = queued(3)
    told = predict_start(present(waiting, **held), waiting[2])
    assert (told.provided, told.seconds, told.unknown) == ((words,), 10.0, "")
    record = told.as_record()
    assert (record["at"], record["in_s"], record["provided"]) == (None, 10.0, [words])


def test_several_things_may_have_to_happen() -> None:
    waiting = queued(1)
    now = present(waiting, closed_gates=frozenset({"vram"}), paused=True, hosts={"a": HostNow("down", 2)})
    told = predict_start(now, waiting[0])
    assert set(told.provided) == {"what is paused is resumed", "gate vram opens", "a is healthy again"}
    assert told.seconds == 0.0


def test_what_a_needed_task_waits_for_must_happen_too() -> None:
    first = queued(1)[0]
    second = TaskRecord(Task("rare", id="after", after=("q0",), queued_at=NOW - 1), 20, State.QUEUED)
    told = predict_start(present([first, second], closed_gates=frozenset({"vram"})), second)
    assert (told.provided, told.seconds) == (("gate vram opens",), 10.0)


def test_interrupted_work_is_done_again_before() -> None:
    """Promise 6: what ran when its dispatcher died starts anew, in its old place."""
    waiting = queued(1)
    told = predict_start(present(waiting, running(4.0, 7.0), dispatched=False), waiting[0])
    assert (told.provided, told.seconds) == (("a dispatcher runs",), 10.0)


def test_without_durations_nothing_is_foretold() -> None:
    waiting = queued(3)
    told = predict_start(present(waiting, past=[]), waiting[2])
    assert (told.seconds, told.unknown) == (None, NO_DURATIONS)
    assert told.as_record()["in_s"] is None
    runs = running(1.0)
    assert predict_end_of_attempt(present([], runs, past=[]), runs[0]).unknown == NO_DURATIONS


def test_what_depends_on_no_duration_is_foretold_without_any() -> None:
    """E1: before anything has ended, a start is known where it is the same whatever anything takes."""
    later = queued(1, not_before=NOW + 600.0)
    told = predict_start(present(later, running(1.0), past=[]), later[0])
    assert (told.seconds, told.least_s, told.most_s, told.unknown) == (600.0, 600.0, 600.0, "")
    assert (told.samples, told.attempts) == (1, 0)
    full = predict_start(present(later, running(1.0, 2.0), past=[]), later[0])
    assert (full.seconds, full.unknown) == (None, NO_DURATIONS), "both slots may still be held by then"
    first = queued(2)
    nobody = present(first, dispatched=False, past=[])
    assert predict_start(nobody, first[1]).seconds == 0.0
    assert predict_start(nobody, first[1]).provided == ("a dispatcher runs",)
    gated = present(first, running(1.0), closed_gates=frozenset({"vram"}), past=[])
    told = predict_start(gated, first[0])
    assert (told.provided, told.seconds) == (("gate vram opens",), 0.0)
    assert predict_start(gated, first[1]).unknown == NO_DURATIONS
    run = queued(1, run="r")
    assert predict_end(present(run, past=[]), "r").unknown == NO_DURATIONS


def test_an_earlier_start_that_is_possible_is_not_denied() -> None:
    """E1: a fallback host opens in 30 s, but what runs may end before that: nobody knows."""
    plant = replace(
        PLANT, hosts=(Host("a", "none", 1), Host("c", "none", 1, fallback=Fallback(35.0))), gates=()
    )
    waiting = queued(1)
    told = predict_start(present(waiting, running(1.0), past=[], plant=plant), waiting[0])
    assert (told.seconds, told.unknown) == (None, NO_DURATIONS)


def test_what_no_host_can_do_is_told() -> None:
    waiting = queued(1, needs={"slots": 5.0})
    told = predict_start(present(waiting), waiting[0])
    assert told.unknown == "no host that serves it has as many units as it needs"
    nobody = queued(1, kind="unheard")
    plant = replace(PLANT, hosts=(Host("b", "none", 1, serves=("rare",)),))
    assert predict_start(present(nobody, plant=plant), nobody[0]).unknown == "no host serves it"


def test_a_task_that_will_not_start() -> None:
    """E1: what it comes after fails, as all its like did; or is not there."""
    first = queued(1)[0]
    second = TaskRecord(Task("rare", id="after", after=("q0",), queued_at=NOW - 1), 20, State.QUEUED)
    failing = [ran(10.0, verdict=Verdict.PERMANENT, ago=100.0 + n) for n in range(6)]
    assert predict_start(present([first, second], past=failing), second).unknown == NEVER
    missing = present([second], ended={"q0": (State.RUNNING, 0.0)})
    assert predict_start(missing, second).unknown == "a task it comes after is not in the queue"


def test_time_alone_ends_some_waits() -> None:
    """E1: a time not before, a backoff, a rate, and a budget of the day."""
    later = queued(1, not_before=NOW + 30.0)
    assert predict_start(present(later), later[0]).seconds == 30.0
    again = [replace(queued(1)[0], retry_at=NOW + 12.0, attempts=1, tries=1)]
    assert predict_start(present(again), again[0]).seconds == 12.0
    cloud = Host("a", "none", 2, fallback=Fallback(0.0, 1.0))
    spent = [Spent("a", "default", day_of(NOW), 2.0, 3)]
    waiting = queued(1)
    told = predict_start(present(waiting, plant=replace(PLANT, hosts=(cloud,)), spent=spent), waiting[0])
    assert told.seconds == (day_of(NOW) + 1) * 86_400 - NOW
    nobody = present(waiting, plant=replace(PLANT, hosts=(cloud,)), spent=spent, dispatched=False)
    told = predict_start(nobody, waiting[0])
    money = "it is 00:00 UTC, when a new day's money is there"
    assert (told.provided, told.seconds) == (("a dispatcher runs", money), 0.0), "midnight waits for nobody"
    rated = Host("a", "none", 2, rate=Rate(requests_per_min=2.0))
    lately = [ran(1.0, ago=20.0), ran(1.0, ago=10.0)]
    told = predict_start(present(waiting, plant=replace(PLANT, hosts=(rated,)), past=lately), waiting[0])
    assert told.seconds == pytest.approx(40.0, abs=1.0), "two began in the last minute, the older 20 s ago"


def test_slots_are_those_of_now() -> None:
    waiting = queued(3)
    told = predict_start(present(waiting, hosts={"a": HostNow("up", 1)}), waiting[2])
    assert told.seconds == 20.0
    fewer = present(waiting, running(4.0, 7.0), hosts={"a": HostNow("up", 1)})
    assert predict_start(fewer, waiting[0]).seconds == 6.0, "the second slot is gone when its task ends"


def test_a_queue_too_long_to_play_goes_on_as_it_began() -> None:
    """E1: of 10,000 ahead only the first are played; that is told."""
    waiting = queued(100)
    asked = TaskRecord(Task("k", id="last", queued_at=NOW), 100_000, State.QUEUED)
    told = predict_start(present(waiting, left_out={"default": 9_900}), asked)
    assert told.cut_short
    assert told.seconds == pytest.approx(490.0 * 100, rel=0.01)


def test_a_run_ends_when_its_last_task_does() -> None:
    waiting = queued(5, run="mine")
    told = predict_end(present(waiting, running(4.0)), "mine")
    assert told.seconds == 30.0, "at 10 and 20 on one slot; on the other from 6 on"
    assert predict_end(present(waiting), "other").unknown == "none of its tasks lives"


def test_the_rest_of_an_attempt() -> None:
    runs = running(4.0)
    past = [ran(float(s), ago=100.0 + s) for s in range(1, 11)]
    told = predict_end_of_attempt(present([], runs, past=past), runs[0])
    assert told.seconds is not None
    assert 2.0 <= told.seconds <= 5.0, "of those that took more than 4 s, half took up to 7 or 8"
    assert told.least_s is not None
    assert told.most_s is not None
    assert 0.0 <= told.least_s <= 1.0
    assert 5.0 <= told.most_s <= 10.0, "ten do not tell how long the longest can be"


# ---- durations


def test_durations_of_the_nearest_kind_are_taken() -> None:
    past = [ran(1.0) for _ in range(5)] + [ran(3.0, host="b") for _ in range(2)] + [ran(9.0, kind="x")]
    known = Durations(past)

    def mean_s(host: str, kind: str) -> float:
        lengths = known.of(host, Task(kind))
        assert lengths is not None
        return round(lengths.mean_s, 3)

    assert mean_s("a", "k") == 1.0
    assert mean_s("b", "k") == round(11 / 7, 3), "two there are few: that kind anywhere"
    assert mean_s("a", "x") == 9.0
    assert mean_s("a", "unheard") == round(14 / 6, 3), "anything there"
    assert mean_s("c", "unheard") == round(20 / 8, 3)
    assert Durations([ran(1.0, verdict=Verdict.HOST)]).of("a", Task("k")) is None


def test_levels_go_from_the_shortest_to_the_longest() -> None:
    lengths = Lengths([ran(float(s)) for s in (1, 2, 3, 4)])
    drawn = [lengths.draw((step + 0.5) / 32).seconds for step in range(32)]
    assert drawn == sorted(drawn)
    assert sum(drawn) / len(drawn) == pytest.approx(2.5), "the mean stays what was recorded"
    assert drawn[0] < 1.0 < 4.0 < drawn[-1], "there are shorter and longer ones than were recorded"
    assert lengths.draw(0.0, elapsed_s=2.5).seconds == min(one for one in drawn if one > 2.5)
    assert lengths.draw(0.5, elapsed_s=80.0).seconds == 120.0
    assert lengths.draw(0.5, scale=2.0).seconds == 2 * lengths.draw(0.5).seconds
    same = Lengths([ran(5.0) for _ in range(4)])
    assert (same.spread, same.doubt, same.draw(0.7).seconds) == (0.0, 0.0, 5.0)


def test_few_attempts_leave_more_doubt() -> None:
    """E1: the mean of what differs much, and of which little is known, may be far off."""
    known = [Lengths([ran(s) for s in (1.0, 2.0, 9.0) * times]).doubt for times in (1, 3, 30)]
    assert known == sorted(known, reverse=True)
    assert known[0] > 5 * known[2]
    assert Lengths([ran(s) for s in (3.0, 4.0, 5.0)]).doubt < known[0] / 3


def test_a_range_is_as_wide_as_it_says() -> None:
    """E1: of n even draws the tenth and the nine tenths are those of one more draw, not of the n."""
    for count in (9, 16, 32):
        times = [(rank + 1) / (count + 1) for rank in range(count)]
        assert [foreseen(times, level) for level in (0.1, 0.5, 0.9)] == pytest.approx([0.1, 0.5, 0.9])
    assert [foreseen([1.0, 2.0], level) for level in (0.1, 0.5, 0.9)] == [1.0, 1.5, 2.0]
    assert foreseen([3.0], 0.1) == 3.0


def test_quantiles_lie_between() -> None:
    assert [quantile([0.0, 10.0], level) for level in (0.0, 0.1, 1.0)] == [0.0, 1.0, 10.0]
    assert quantile([3.0], 0.9) == 3.0
