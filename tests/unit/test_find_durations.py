"""Findings in how long attempts take and how they end (E2): speed, slots, cold starts, retries; and near misses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from penstock.diagnosis.finders import find
from penstock.diagnosis.finders.one_at_a_time_server import serves_one
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.speed import SpeedCurve
from penstock.diagnosis.speed_shapes import ONE, Scalability
from penstock.model import Host, Plant, Verdict
from penstock.scheduling.messages import HostChange
from tests.unit.recording_rig import Row, noisy, recording, sharing, workers
from tests.unit.yard_rig import Yard, works

SEEDS = range(4)


def named(run: Recording | Sequence[Row]) -> dict[str, Finding]:
    return {f.name: f for f in find(run if isinstance(run, Recording) else recording(run))}


def bursts(
    speed: Callable[[int], float],
    seed: int,
    spread: float = 0.2,
    slots: int = 8,
    *,
    count: int = 60,
    every: Sequence[float] = (1.5, 3.0, 5.0, 9.0),
) -> list[Row]:
    """Times of little and of much load."""
    rows = []
    for i, every_s in enumerate(every):
        for row in sharing(speed, noisy(count, 10.0, spread, seed), slots=slots, every_s=every_s):
            assert row.start is not None
            assert row.end is not None
            at = 2000.0 * i
            rows.append(
                replace(
                    row, task=f"{i}{row.task}", start=row.start + at, end=row.end + at, queued=row.queued + at
                )
            )
    return rows


# ---- contention and too many slots


@pytest.mark.parametrize("seed", SEEDS)
def test_durations_that_grow_with_company_are_contention(seed: int) -> None:
    found = named(bursts(lambda c: 1 / (1 + 0.25 * (c - 1)), seed))
    assert "contention" in found
    assert set(found) <= {"contention", "wrong-slots"}
    assert "as long with" in found["contention"].cause


@pytest.mark.parametrize("seed", SEEDS)
def test_slots_beyond_the_knee_are_too_many(seed: int) -> None:
    found = named(bursts(lambda c: min(1.0, 3 / c), seed))
    assert set(found) == {"contention", "wrong-slots"}
    assert found["wrong-slots"].remedy in ("[hosts.h] slots = 3", "[hosts.h] slots = 4")
    assert "beyond" in found["contention"].cause


@pytest.mark.parametrize("spread", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("seed", SEEDS)
def test_durations_that_vary_by_themselves_are_no_contention(seed: int, spread: float) -> None:
    assert not named(bursts(lambda _: 1.0, seed, spread))


def test_growth_that_a_mix_of_kinds_explains_is_no_contention() -> None:
    short = [
        Row(f"s{i}", 100.0 * i, 100.0 * i + 10 + i % 3, kind="short", queued=100.0 * i) for i in range(20)
    ]
    long = [
        Row(
            f"l{i}-{j}",
            3e3 + 100.0 * i,
            3e3 + 100.0 * i + 60 + (i + j) % 5,
            kind="long",
            queued=3e3 + 100.0 * i,
        )
        for i in range(10)
        for j in range(4)
    ]
    assert not named(short + long)


# ---- one-at-a-time-server


@pytest.mark.parametrize("spread", [0.05, 0.4])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_server_that_works_on_one_at_a_time_behind_many_slots(seed: int, spread: float) -> None:
    """Council: one model server running one request at a time serialises, threads do not."""
    found = named(workers(1, noisy(40, 10.0, spread, seed), slots=6))
    assert set(found) == {"one-at-a-time-server"}
    one = found["one-at-a-time-server"]
    assert one.remedy.startswith("let the server take several at once"), "which is what the gain is of"
    assert "[hosts.h] slots = 1" in one.remedy
    assert one.gain_s > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_server_that_shares_itself_fairly_is_one_at_a_time_too(seed: int) -> None:
    assert set(named(bursts(lambda c: 1 / c, seed, 0.05, slots=4))) == {"one-at-a-time-server"}


def test_of_few_that_share_a_server_most_are_known_for_it() -> None:
    """Few lone ones: that company slows is proven, and one at a time is not refuted."""
    every = (2.0, 25.0)
    runs = [named(bursts(lambda c: 1 / c, seed, 0.4, slots=4, count=8, every=every)) for seed in range(40)]
    assert sum("one-at-a-time-server" in found for found in runs) >= 38
    assert not any("contention" in found for found in runs)


def test_what_one_alone_does_is_not_told_by_many() -> None:
    """A server past its best, never seen with few: that it gets through less the more it is given is contention."""
    assert not serves_one(SpeedCurve("h", Scalability(0.63, 0.034), (8, 15), 180))
    assert serves_one(SpeedCurve("h", Scalability(0.9, 0.034), (1, 15), 180))
    assert serves_one(SpeedCurve("h", ONE, (8, 15), 180))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_server_with_two_hands_is_not_one_at_a_time(seed: int) -> None:
    found = named(workers(2, noisy(60, 10.0, 0.3, seed), slots=6))
    assert "one-at-a-time-server" not in found
    assert "contention" in found


# ---- too few slots


@pytest.mark.parametrize("seed", SEEDS)
def test_a_host_with_far_fewer_slots_than_its_like_has_too_few(seed: int) -> None:
    rows = Yard({"a": 8, "b": 1}).run(works(120, seed, spread=0.15, hosts=("a", "b")))
    found = named(rows)
    assert set(found) == {"wrong-slots"}
    assert found["wrong-slots"].remedy == "[hosts.b] slots = 8"


def test_a_full_host_and_a_slower_one_are_well() -> None:
    assert not named(Yard({"b": 1}).run(works(60, spread=0.15, hosts=("b",))))
    slower = Yard({"a": 8, "b": 1}, speed={"b": 0.5}).run(works(120, spread=0.15, hosts=("a", "b")))
    assert not named(slower)
    other = Plant((Host("a", "openai", 8, model="small"), Host("b", "openai", 1, model="large")))
    rows = Yard({"a": 8, "b": 1}).run(works(120, spread=0.15, hosts=("a", "b")))
    assert not named(recording(rows, plant=other)), "the plant tells them apart"


def test_slots_taken_away_without_need_are_too_few() -> None:
    early = Yard({"a": 6}).run(works(60, 1, spread=0.15))
    at = max(r.end or 0.0 for r in early)
    late = [
        replace(r, task=f"l{r.task}", start=(r.start or 0.0) + at, end=(r.end or 0.0) + at, queued=at)
        for r in Yard({"a": 2}).run(works(60, 2, spread=0.15))
    ]
    plant = Plant((Host("a", "python", slots=6),))
    lowered = [HostChange("a", at, "up", 2, "")]
    found = named(recording(early + late, plant=plant, changes=lowered))
    assert set(found) == {"wrong-slots"}
    assert found["wrong-slots"].remedy == "[hosts.a] slots = 6"


# ---- cold-starts


@pytest.mark.parametrize("seed", SEEDS)
def test_first_attempts_that_load_a_model_are_cold(seed: int) -> None:
    plan = [
        replace(w, seconds=w.seconds + 60) if i < 4 else w
        for i, w in enumerate(works(60, seed, hosts=("a", "b")))
    ]
    found = named(Yard({"a": 2, "b": 2}).run(plan))
    assert set(found) == {"cold-starts"}
    assert 60 * 0.7 < found["cold-starts"].gain_s < 60 * 1.5


@pytest.mark.parametrize("seed", SEEDS)
def test_attempts_after_another_model_are_cold(seed: int) -> None:
    rows, now = [], 0.0
    for i, seconds in enumerate(noisy(60, 10.0, 0.2, seed)):
        model = "ab"[i // 6 % 2]
        long = seconds + (40 if i % 6 == 0 and i else 0)
        rows.append(Row(f"t{i}", now, now + long, model=model))
        now += long
    found = named(rows)
    assert set(found) == {"cold-starts"}
    assert "after another model" in found["cold-starts"].cause


@pytest.mark.parametrize("seed", SEEDS)
def test_attempts_after_an_idle_time_are_cold(seed: int) -> None:
    rows = []
    for i, seconds in enumerate(noisy(48, 10.0, 0.2, seed)):
        at = 1000.0 * (i // 6) + 60 * (i % 6)
        rows.append(Row(f"t{i}", at, at + seconds + (45 if i % 6 == 0 else 0), queued=at))
    found = named(rows)
    assert set(found) == {"cold-starts"}
    assert "idle time" in found["cold-starts"].cause


@pytest.mark.parametrize("seed", SEEDS)
def test_another_kind_first_and_a_trend_are_not_cold(seed: int) -> None:
    other = [replace(w, seconds=90.0, kind="report") if i < 4 else w for i, w in enumerate(works(60, seed))]
    assert not named(Yard({"a": 4}).run(other))
    trend = [replace(w, seconds=w.seconds * (3 - i / 30)) for i, w in enumerate(works(60, seed))]
    assert not named(Yard({"a": 4}).run(trend))


# ---- retry-storm


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_done_in_no_time_tells_nothing_of_its_host(seed: int) -> None:
    """Starting and recording take longer than that, and nobody's model is loaded in a few milliseconds."""
    assert "one-at-a-time-server" not in named(workers(1, noisy(40, 0.002, 0.1, seed), slots=6))
    plan = [
        replace(w, seconds=(w.seconds + 60 * (i < 4)) / 1000)
        for i, w in enumerate(works(60, seed, hosts=("a", "b")))
    ]
    assert "cold-starts" not in named(Yard({"a": 2, "b": 2}).run(plan))


def retries(seed: int, tries: int, fails: int) -> list[Row]:
    rows = [replace(r, host="a") for r in Yard({"a": 4}).run(works(30, seed))]
    for i in range(12):
        for n in range(1, tries + 1):
            at = 6.0 * i + 5 * n
            bad = n <= fails
            rows.append(
                Row(
                    f"r{i:02}",
                    at,
                    at + (0.5 if bad else 10.0),
                    host="b",
                    number=n,
                    verdict=Verdict.TEMPORARY if bad else Verdict.DONE,
                    retry_at=at + 5,
                    queued=6.0 * i + 5,
                )
            )
    return rows


def test_repeats_that_fail_again_and_quickly_are_a_storm() -> None:
    found = named(retries(1, 5, 5))
    assert set(found) == {"retry-storm"}
    assert found["retry-storm"].evidence.hosts == ("b",)
    assert "breaker" in found["retry-storm"].remedy


def test_a_few_retries_that_succeed_are_no_storm() -> None:
    assert "retry-storm" not in named(retries(1, 2, 1))
