"""The curve by which a host slows down, found again from what hosts with known curves did. Serves E2 and E3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.diagnosis.speed import SpeedCurve, alone_s, speed_of
from penstock.diagnosis.speed_shapes import Scalability, Workers
from penstock.diagnosis.steps import Steps
from penstock.model import Verdict
from tests.unit.recording_rig import Row, noisy, recording, sharing, workers


def batching(c: int) -> float:
    return 1 / (1 + (c - 1) / 4)


def scalability(c: int) -> float:
    return 1 / (1 + 0.1 * (c - 1) + 0.05 * c * (c - 1))


def knee_of_3(c: int) -> float:
    return min(1.0, 3 / c)


def thrashing(c: int) -> float:
    return min(1.0, (2 / c) ** 2)


def varied(truth: Callable[[int], float], spread: float = 0.1, seed: int = 1) -> list[Row]:
    """Four times of different load, one after the other."""
    return [
        replace(row, task=f"{i}{row.task}", start=row.start + 1e5 * i, end=row.end + 1e5 * i)
        for i, every_s in enumerate((2.0, 3.5, 6.0, 9.0))
        for row in sharing(truth, noisy(80, 10.0, spread, seed), slots=8, every_s=every_s)
        if row.start is not None and row.end is not None
    ]


def curve(rows: list[Row]) -> SpeedCurve:
    return speed_of(recording(rows))["h"]


@pytest.mark.parametrize("truth", [batching, scalability, knee_of_3, thrashing])
@pytest.mark.parametrize("seed", range(4))
def test_a_curve_is_found_again_through_noise(truth: Callable[[int], float], seed: int) -> None:
    """E3: arrivals at intervals, so that few and many run at once; works differ by half."""
    found = curve(varied(truth, 0.25, seed))
    assert found.is_known
    assert found.slows
    low, high = found.observed
    for c in range(1, high + 1):
        assert found.speed(c) == pytest.approx(truth(c), rel=0.2), f"{c} at once: {found}"
    assert low <= 2
    assert found.speed(1) == 1.0


@pytest.mark.parametrize("spread", [0.0, 0.2, 0.6])
@pytest.mark.parametrize("every_s", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("count", [3, 12, 60, 300])
def test_a_host_that_does_not_slow_down_is_flat(spread: float, every_s: float, count: int) -> None:
    found = curve(sharing(lambda _: 1.0, noisy(count, 10.0, spread), slots=6, every_s=every_s))
    assert not found.slows
    assert found.knee is None
    assert found.speed(5) == 1.0


def test_flat_is_knowledge_only_where_loads_differed() -> None:
    works = noisy(200, 10.0, 0.2)
    assert curve(sharing(lambda _: 1.0, works, slots=6, every_s=3.0)).is_known
    full = curve(sharing(lambda _: 1.0, works, slots=6))
    assert not full.is_known, "it was full but for its last seconds"
    assert not curve(sharing(lambda _: 1.0, works[:4], slots=4, every_s=3.0)).is_known


@pytest.mark.parametrize("spread", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("count", [1, 2])
def test_a_server_that_queues_inside_is_told_from_one_that_shares(spread: float, count: int) -> None:
    """Council: one model server running one request at a time behind six slots."""
    rows = workers(count, noisy(60, 10.0, spread), slots=6)
    found = curve(rows)
    assert found.shape == Workers(count)
    assert found.knee == count
    assert found.speed(6) == pytest.approx(count / 6)
    works = alone_s(recording(rows), {"h": found})
    truth = noisy(60, 10.0, spread)
    assert sum(works.values()) == pytest.approx(sum(truth))
    alike = [works[row.task, 1] == pytest.approx(work) for row, work in zip(rows, truth, strict=True)]
    assert sum(alike) >= 50, "of those that started in one moment the order is a guess"


def test_work_alone_is_found_again() -> None:
    works = noisy(40, 10.0, 0.3)
    rows = sharing(batching, works, slots=5, every_s=2.0)
    truth = {"h": SpeedCurve("h", Scalability(0.25, 0.0))}
    assert [alone_s(recording(rows), truth)[row.task, 1] for row in rows] == pytest.approx(works)
    plain = alone_s(recording(rows), {})
    assert [plain[row.task, 1] for row in rows] == pytest.approx(
        [(r.end or 0) - (r.start or 0) for r in rows]
    )


def test_a_mix_of_kinds_is_no_slow_down() -> None:
    """Long ones come when much runs: that says nothing of the host."""
    short = [Row(f"s{i}", 100.0 * i, 100.0 * i + 10 + i % 3, kind="short") for i in range(20)]
    long = [
        Row(f"l{i}-{j}", 5000.0 + 100 * i, 5000.0 + 100 * i + 60 + (i + j) % 5, kind="long")
        for i in range(10)
        for j in range(4)
    ]
    assert not curve(short + long).slows
    assert curve([replace(row, kind="k") for row in short + long]).slows


def test_failures_and_what_still_runs_load_a_host_but_are_not_compared() -> None:
    rows = varied(batching)
    failed = [replace(r, verdict=Verdict.TEMPORARY) if i % 4 == 0 else r for i, r in enumerate(rows)]
    running = [replace(r, end=None, verdict=None) if i >= 318 else r for i, r in enumerate(failed)]
    found = curve(running)
    assert found.samples == sum(1 for r in running if r.verdict is Verdict.DONE)
    assert found.speed(5) == pytest.approx(batching(5), rel=0.2)


def test_attempts_of_other_runs_count_for_the_load() -> None:
    rows = varied(batching)
    own = recording(rows[::2])
    others = recording(rows[1::2]).attempts
    beside = speed_of(replace(own, others=others))["h"]
    assert beside.speed(5) == pytest.approx(batching(5), rel=0.2)
    assert beside.observed[1] > speed_of(own)["h"].observed[1]


def test_nothing_and_zero_durations_are_borne() -> None:
    assert speed_of(recording([])) == {}
    empty = curve([Row(f"t{i}", 1.0, 1.0) for i in range(20)])
    assert (empty.is_known, empty.knee, empty.speed(3)) == (False, None, 1.0)
    assert speed_of(recording([Row("t", 1.0, None)], end=5.0))["h"].samples == 0


def test_many_hosts_and_loads_have_curves_of_their_own() -> None:
    slow = [replace(row, host="slow") for row in varied(batching)]
    fast = [replace(row, task=f"f{row.task}", host="fast") for row in varied(lambda _: 1.0)]
    curves = speed_of(recording(slow + fast))
    assert curves["slow"].slows
    assert not curves["fast"].slows


# ---- steps


def test_steps_count_what_overlaps() -> None:
    steps = Steps([(0.0, 4.0), (2.0, 6.0), (4.0, 8.0), (9.0, 9.0)])
    assert [steps.at(t) for t in (-1.0, 0.0, 2.0, 4.0, 7.0, 8.0)] == [0, 1, 2, 2, 1, 0]
    assert [steps.before(t) for t in (0.0, 2.0, 4.0, 8.0)] == [0, 1, 2, 1]
    assert steps.most == 2
    assert steps.area(1.0, 7.0) == pytest.approx(3 + 4 + 2 + 1 - 0.0 - 0.0)
    assert steps.mean(-2.0, 2.0) == pytest.approx(0.5)
    assert list(steps.pieces(-1.0, 3.0)) == [(-1.0, 0.0, 0), (0.0, 2.0, 1), (2.0, 3.0, 2)]
    assert list(steps.pieces(7.0, 10.0)) == [(7.0, 8.0, 1), (8.0, 10.0, 0)]
