"""Findings about who goes first (E2, C2): starvation and priority inversion, and what only looks like them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from penstock.diagnosis.finders import find
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.recording import Recording
from penstock.model import Host, Lane, Plant
from tests.unit.recording_rig import Row, recording
from tests.unit.yard_rig import Habit, Starts, Work, Yard, works

SEEDS = range(5)


def named(run: Recording | Sequence[Row]) -> dict[str, Finding]:
    return {f.name: f for f in find(run if isinstance(run, Recording) else recording(run))}


def by(first: Callable[[Work], float]) -> Habit:
    """Whoever comes first by some order, on whatever has room."""

    def habit(
        now: float, line: Sequence[Work], free: Mapping[str, int], running: Mapping[str, str]
    ) -> Starts:
        left = dict(free)
        for work in sorted(line, key=first):
            host = next((h for h in work.hosts if left[h] > 0), None)
            if host is not None:
                left[host] -= 1
                yield work, host

    return habit


def coming(planned: Sequence[Work], per_s: float, seed: int) -> list[Work]:
    chance, now, come = random.Random(seed), 0.0, []
    for work in planned:
        now += chance.expovariate(per_s)
        come.append(replace(work, queued=now))
    return come


def with_priorities(planned: Sequence[Work], seed: int) -> list[Work]:
    chance = random.Random(seed)
    return [replace(w, priority=chance.randrange(5)) for w in planned]


def two_lanes(seed: int) -> list[Work]:
    slow = [replace(w, queued=60.0) for w in works(8, seed, prefix="s", lane="slow")]
    return slow + coming(works(150, seed, prefix="f", lane="fast"), 0.33, seed)


# ---- starvation


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lane_that_only_gets_what_others_leave_starves(seed: int) -> None:
    found = named(Yard({"a": 3}, by(lambda w: w.lane == "slow")).run(two_lanes(seed)))
    assert set(found) == {"starvation"}
    assert found["starvation"].evidence.lanes == ("slow",)
    assert "reserve" in found["starvation"].remedy


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_to_come_first_to_go_starves_the_others(seed: int) -> None:
    found = named(Yard({"a": 2}, by(lambda w: -w.queued)).run(coming(works(150, seed), 0.21, seed)))
    assert set(found) <= {"starvation"}
    full = coming(works(200, seed), 0.25, seed)
    assert set(named(Yard({"a": 2}, by(lambda w: -w.queued)).run(full))) == {"starvation"}


@pytest.mark.parametrize("seed", SEEDS)
def test_first_come_first_served_under_load_starves_nobody(seed: int) -> None:
    assert not named(Yard({"a": 3}, by(lambda w: w.queued)).run(two_lanes(seed)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lane_with_a_long_queue_of_its_own_is_not_starved(seed: int) -> None:
    """Another lane's few tasks start at once because it has a share of its own."""
    night = works(80, seed, prefix="n", lane="night")
    day = coming(works(60, seed, prefix="d", lane="day"), 0.1, seed)
    turn: dict[str, int] = {"night": 0, "day": 0}

    def shares(
        now: float, line: Sequence[Work], free: Mapping[str, int], running: Mapping[str, str]
    ) -> Starts:
        left, rest = free["a"], list(line)
        while left and rest:
            work = min(rest, key=lambda w: (turn[w.lane], w.queued))
            turn[work.lane] += 1
            rest.remove(work)
            left -= 1
            yield work, "a"

    assert "starvation" not in named(Yard({"a": 3}, shares).run(night + day))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_preference_that_age_makes_up_for_is_not_starvation(seed: int) -> None:
    planned = coming(with_priorities(works(150, seed), seed), 0.3, seed)
    rows = Yard({"a": 3}, by(lambda w: w.queued + 30.0 * w.priority)).run(planned)
    plant = Plant((Host("a", "python", slots=3),), (Lane("default"),), aging_s=30.0)
    assert not named(recording(rows, plant=plant))


def held_back(limit: int) -> Habit:
    """Kind and lane slow run so many at a time; all else as there is room."""

    def habit(
        now: float, line: Sequence[Work], free: Mapping[str, int], running: Mapping[str, str]
    ) -> Starts:
        left, slow = dict(free), sum(name.startswith("s") for name in running)
        for work in line:
            host = max(work.hosts, key=lambda h: left[h])
            if left[host] < 1 or (work.kind == "slow" and slow >= limit):
                continue
            slow += work.kind == "slow"
            left[host] -= 1
            yield work, host

    return habit


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lane_at_its_own_limit_is_not_starved(seed: int) -> None:
    hosts = ("a", "b")
    slow = works(25, seed, prefix="s", lane="slow", kind="slow", hosts=hosts)
    fast = coming(works(150, seed, prefix="f", lane="fast", hosts=hosts), 0.5, seed)
    rows = Yard({"a": 4, "b": 4}, held_back(1)).run(slow + fast)
    plant = Plant(
        (Host("a", "python", slots=4), Host("b", "python", slots=4)),
        (Lane("slow", max_running=1), Lane("fast")),
    )
    assert "starvation" not in named(recording(rows, plant=plant))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_kind_that_is_run_one_by_one_is_serial_and_its_tasks_are_not_starved(seed: int) -> None:
    slow = coming(works(30, seed, prefix="s", kind="slow"), 1.0, seed)
    fast = coming(works(120, seed, prefix="f", kind="fast"), 0.7, seed)
    rows = Yard({"a": 10}, held_back(1)).run(slow + fast)
    found = named(recording(rows, plant=Plant((Host("a", "python", slots=10),))))
    assert "serial-starts" in found
    assert "starvation" not in found


# ---- priority-inversion


@pytest.mark.parametrize("seed", SEEDS)
def test_less_urgent_ones_that_go_first_are_an_inversion(seed: int) -> None:
    """C2: priorities hold to the very start of a task."""
    planned = coming(with_priorities(works(120, seed), seed), 0.35, seed)
    found = named(Yard({"a": 3}, by(lambda w: -w.priority)).run(planned))
    assert "priority-inversion" in found
    assert set(found) <= {"priority-inversion", "starvation"}
    assert "(priority" in found["priority-inversion"].cause


@pytest.mark.parametrize("seed", SEEDS)
def test_priorities_that_hold_and_older_ones_that_go_first_are_none(seed: int) -> None:
    planned = with_priorities(works(80, seed), seed)
    assert not named(Yard({"a": 3}).run(planned))
    first_come = coming(planned, 0.35, seed)
    assert not named(Yard({"a": 3}, by(lambda w: w.queued)).run(first_come))


def test_a_more_urgent_one_whose_lane_is_full_is_not_passed_over() -> None:
    rows = [Row(f"u{i}", 10.0 * i, 10.0 * i + 10, lane="urgent", priority=0) for i in range(12)]
    rows += [Row(f"l{i}", 5.0 * i, 5.0 * i + 5, lane="late", priority=4) for i in range(24)]
    lanes = (Lane("urgent", max_running=1), Lane("late"))
    plant = Plant((Host("h", "python", slots=2),), lanes)
    assert "priority-inversion" not in named(recording(rows, plant=plant))
    assert "priority-inversion" in named(recording(rows, plant=replace(plant, lanes=())))


def test_a_reserve_is_no_inversion() -> None:
    rows = [Row(f"u{i}", 10.0 * i, 10.0 * i + 10, lane="urgent", priority=0) for i in range(12)]
    rows += [Row(f"l{i}", 5.0 * i, 5.0 * i + 5, lane="late", priority=4) for i in range(24)]
    kept = (Lane("urgent"), Lane("late", reserve={"h": {"slots": 1.0}}))
    plant = Plant((Host("h", "python", slots=2),), kept)
    assert "priority-inversion" not in named(recording(rows, plant=plant))
