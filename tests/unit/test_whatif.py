"""Figures before and after, knees, who gains, what was guessed, which durations are not to be believed (E3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.diagnosis.history import Stalled
from penstock.diagnosis.recording import Recording, recording_of
from penstock.diagnosis.simulator import Fate, Simulator
from penstock.diagnosis.waits import TAKEN_IN
from penstock.diagnosis.whatif.figures import (
    Point,
    explain,
    figures_of,
    guesses,
    knee_of,
    point_of,
    replay_error,
)
from penstock.diagnosis.whatif.frozen import frozen
from penstock.diagnosis.whatif.outside import gaps_of, outside_events
from penstock.diagnosis.whatif.replay import Replay
from penstock.model import Attempt, Host, Lane, Plant, State, Task, TaskRecord, Verdict, Wait
from penstock.scheduling.details import Detail
from penstock.scheduling.messages import (
    AllChange,
    HostChange,
    HostHealth,
    LaneChange,
    PauseSet,
    Start,
    Submitted,
)
from penstock.whatif import Asked, Plays


def plant(slots: int) -> Plant:
    return Plant((Host("h", "none", slots=slots),), (Lane("default"), Lane("red", max_running=1)))


def run(slots: int, works: Sequence[float], knee: int | None = None) -> Recording:
    """Tasks of two lanes in turn; or of one, a few of them first, on a host that shares itself beyond its knee."""
    lanes = ("default", "red") if knee is None else ("default",)
    tasks = [Task("k", id=f"t{n}", lane=lanes[n % len(lanes)]) for n in range(len(works))]

    def fate(start: Start, task: Task) -> Fate:
        return Fate(works[int(task.id[1:])])

    simulator = Simulator(plant(slots), fate, lambda host, running: min(1.0, (knee or 99) / running))
    for number, task in enumerate(tasks):
        at = 0.0 if knee is None else min(0.4 * number, 5.0)
        simulator.at(at, Submitted([replace(task, queued_at=at)]))
    assert simulator.run()
    return recording_of(simulator.history(), plant(slots), simulator.now)


def test_figures_of_a_run() -> None:
    figures = figures_of(run(2, [4.0, 2.0, 4.0, 2.0]), plant(2))
    assert figures.makespan_s == 8.0
    assert figures.ideal.seconds == 6.0
    lanes = {lane.lane: lane for lane in figures.lanes}
    assert (lanes["red"].tasks, lanes["red"].mean_s, lanes["red"].p95_s) == (2, 1.0, 2.0)
    assert lanes["red"].reasons == {"lane:red": 2.0}
    (host,) = figures.hosts
    assert (host.attempts, host.share) == (4, 12.0 / 16.0)
    assert figures.waited_s == pytest.approx(sum(lane.mean_s for lane in figures.lanes) / 2)
    assert (figures.failed, figures.left, figures.cost_usd) == (0, 0, 0)


def test_a_contended_host_gains_nothing_by_more_slots() -> None:
    """The record with eight slots tells about what fewer would have brought: four as good as nothing less."""
    works = [1.0 + n % 4 / 20 for n in range(60)]
    replay = Replay(run(8, works, knee=4), plant(8))
    points = [point_of(n, replay.under(plant(n)), replay) for n in (1, 2, 4, 8)]
    for point in points:
        assert point.makespan_s == pytest.approx(run(point.value, works, knee=4).makespan_s, rel=0.15), point


def test_the_knee_is_the_first_that_is_nearly_the_best() -> None:
    def point(value: int, makespan_s: float) -> Point:
        return Point(value, makespan_s, 0.0, 0.0, failed=0, cancelled=0, blocked=0, left=0, is_guess=False)

    points = [point(1, 100.0), point(2, 52.0), point(3, 50.5), point(4, 50.0)]
    knee = knee_of(points)
    assert knee is not None
    assert knee.value == 2
    assert knee_of([point(1, float("inf"))]) is None
    assert knee_of([]) is None


def test_a_play_can_be_left_off() -> None:
    """Whoever waits for it may not want it any more."""
    heard: list[str] = []

    def watch() -> None:
        heard.append("an end")
        if len(heard) == 2:
            raise InterruptedError

    replay = Replay(run(1, [1.0, 1.0, 1.0]), plant(1))
    with pytest.raises(InterruptedError):
        replay.under(plant(2), watch)
    assert len(heard) == 2


def test_who_gains_and_who_loses() -> None:
    before, after = run(1, [4.0, 2.0, 4.0]), run(2, [4.0, 2.0, 4.0])
    told = explain(before, after)
    assert {one.task: one.by_s for one in told.gain} == {"t1": -4.0, "t2": -4.0}
    assert not told.lose
    assert not explain(after, before).gain
    assert [one.by_s for one in explain(after, before).lose] == [4.0, 4.0]
    groups = {(g.lane, g.kind): g for g in told.groups}
    assert (groups["default", "k"].tasks, groups["default", "k"].sooner) == (2, 1)
    gained = next(one for one in told.gain if one.task == "t1")
    assert set(gained.before) == {"slots:h"}
    assert not gained.after


def test_what_is_beyond_the_record_is_said() -> None:
    record = run(2, [1.0 + n / 100 for n in range(12)])
    replay = Replay(record, plant(2))
    assert guesses(replay, replay.under(plant(2)).recording()) == []
    (more,) = guesses(replay, replay.under(plant(5)).recording())
    assert more.startswith("h never ran more than 2 at once in the record; with up to 5")
    unseen = Plant((Host("new", "none", slots=1),), plant(1).lanes)
    (new,) = guesses(replay, replay.under(unseen).recording())
    assert new == "new ran nothing in the record: it is assumed to be as fast as the others"


def test_an_error_of_the_replay_is_of_makespans() -> None:
    record = run(2, [4.0, 2.0])
    assert replay_error(record, record) == 0.0
    assert replay_error(record, replace(record, end=record.end + 1.0)) == 0.25
    going = replace(record, tasks=[replace(record.tasks[0], state=State.RUNNING)])
    assert replay_error(going, record) is None


# ---- the outside


def outside(*changes: HostChange | LaneChange | AllChange, slots: int = 2) -> list[tuple[float, object]]:
    recording = Recording("r", 0.0, 100.0, [], [], changes=changes, plant=plant(2))
    return list(outside_events(recording, plant(2), plant(slots), []))


def test_a_breaker_is_the_scheduler_s_own_and_a_health_check_is_not() -> None:
    tripped = HostChange("h", 1.0, "down", 2, "h failed 3 times in a row: boom")
    assert outside(tripped, HostChange("h", 6.0, "half-open", 2, "")) == []
    assert outside(tripped, HostChange("h", 2.0, "up", 2, "")) == [(2.0, HostHealth("h", True))]
    down = HostChange("h", 1.0, "down", 2, "no answer")
    assert outside(down, HostChange("h", 4.0, "up", 2, "")) == [
        (1.0, HostHealth("h", False, "no answer")),
        (4.0, HostHealth("h", True)),
    ]


def test_pauses_go_on_where_they_went_on() -> None:
    assert outside(LaneChange("red", 3.0, True)) == [(3.0, PauseSet("lane", "red", True))]
    assert outside(AllChange(3.0, True)) == [(3.0, PauseSet("all", "", True))]
    paused = HostChange("h", 1.0, "paused", 2, "paused"), HostChange("h", 2.0, "up", 2, "")
    assert outside(*paused) == [(1.0, PauseSet("host", "h", True)), (2.0, PauseSet("host", "h", False))]


def test_nothing_starts_while_the_store_is_away_and_a_slow_one_holds_up_nobody_else() -> None:
    waits = {
        "a": [Wait("store-down", "it is full", 1.0, 4.0)],
        "b": [
            Wait("store-down", Detail.RECORDED_FIRST.value, 2.0, 5.0),
            Wait("order", Detail.RECORDED_FIRST.value, 8.0, 9.5),
        ],
    }
    recording = Recording("r", 0.0, 9.5, [], [], waits=waits, plant=plant(2))
    pauses = [(1.0, PauseSet("all", "", True)), (5.0, PauseSet("all", "", False))]
    assert outside_events(recording, plant(2), plant(2), []) == pauses


def test_times_without_a_dispatcher_are_put_together() -> None:
    waits = {
        "a": [Wait("dispatcher-down", "", 1.0, 4.0), Wait("slots:h", "", 4.0, 6.0)],
        "b": [Wait("dispatcher-down", "", 2.0, 5.0), Wait("dispatcher-down", "", 8.0, 9.0)],
    }
    assert gaps_of(Recording("r", 0.0, 9.0, [], [], waits=waits)) == [(1.0, 5.0), (8.0, 9.0)]


# ---- durations that are not to be believed


def log(*rows: tuple[str, str, float, float]) -> Recording:
    tasks, attempts = [], []
    for number, (name, kind, start, end) in enumerate(rows, 1):
        task = Task(kind, id=name)
        tasks.append(TaskRecord(task, number, State.DONE, attempts=1, ended_at=end))
        attempts.append(Attempt(name, 1, "h", "default", start, 0, end, Verdict.DONE))
    return Recording("log", 0.0, max(row[3] for row in rows), tasks, attempts)


USUAL = [("b1", "b", 0.0, 3.0), ("b2", "b", 1.0, 5.0), ("b3", "b", 2.0, 7.0)]


def test_what_ends_with_a_stranger_and_took_too_long_was_frozen() -> None:
    held = [("a1", "a", 0.0, 40.0), ("b4", "b", 5.5, 40.0), ("b5", "b", 40.0, 44.0)]
    (one,) = frozen(log(*USUAL, *held))
    assert (one.task, one.recorded_s, one.usual_s) == ("b4", 34.5, 4.0)


@pytest.mark.parametrize(
    "rows",
    [
        [*USUAL, ("a1", "a", 0.0, 40.0), ("b4", "b", 5.5, 39.0), ("b5", "b", 40.0, 44.0)],  # it ends alone
        [*USUAL, ("a1", "a", 0.0, 40.0), ("b4", "b", 5.5, 40.0)],  # nothing starts then
        [*USUAL, ("b6", "b", 0.0, 40.0), ("b4", "b", 5.5, 40.0), ("b5", "b", 40.0, 44.0)],  # all of a kind
        [*USUAL[:2], ("a1", "a", 0.0, 40.0), ("b4", "b", 5.5, 40.0), ("c1", "c", 40.0, 44.0)],  # who knows
        [*USUAL, ("a1", "a", 0.0, 40.0), ("b4", "b", 33.0, 40.0), ("b5", "b", 40.0, 44.0)],  # as usual
    ],
    ids=["alone", "no start", "one kind", "too few", "not long"],
)
def test_nothing_is_doubted_without_a_sign(rows: list[tuple[str, str, float, float]]) -> None:
    assert frozen(log(*rows)) == []


def test_the_watchdog_s_word_counts_for_runs_of_ours() -> None:
    record = replace(
        log(*USUAL, ("b4", "b", 5.5, 40.0), ("a1", "a", 0.0, 40.0)),
        stalls=[Stalled("a1", 1, "h", 40.0, 34.0, "")],
    )
    assert [one.task for one in frozen(record)] == ["b4"]
    assert frozen(replace(record, stalls=[Stalled("a1", 1, "elsewhere", 40.0, 34.0, "")])) == []


def test_a_dispatcher_is_there_when_it_has_taken_the_first_in() -> None:
    def waits(taken_in: float) -> list[Wait]:
        return [Wait("dispatcher-down", "", 1.0, 4.0), Wait("order", TAKEN_IN, 4.0, taken_in)]

    record = Recording("r", 0.0, 9.0, [], [], waits={"a": waits(4.5), "b": waits(4.25)})
    assert gaps_of(record) == [(1.0, 4.25)]
    other = [Wait("dispatcher-down", "", 1.0, 4.0), Wait("slots:h", "", 4.0, 6.0)]
    assert gaps_of(replace(record, waits={"a": waits(4.5), "b": other})) == [(1.0, 4.0)]


def test_a_run_that_is_not_over_is_compared_with_its_own_replay() -> None:
    """Else the time that it still takes would look like what a change brings."""
    whole = run(2, [4.0, 2.0, 3.0, 5.0])
    tasks = [replace(r, state=State.RUNNING, ended_at=None) if r.task.id == "t3" else r for r in whole.tasks]
    attempts = [replace(a, ended_at=None, verdict=None) if a.task == "t3" else a for a in whole.attempts]
    answer = Plays(replace(whole, tasks=tasks, attempts=attempts)).answer(Asked())
    assert (answer.is_over, answer.as_record()["over"], answer.words) == (False, False, ("before", "after"))
    assert answer.before.as_record() == answer.after.as_record()
    assert answer.notes[0].startswith("the run is not over")
    over = Plays(whole).answer(Asked())
    assert (over.is_over, over.words) == (True, ("recorded", "replayed"))
