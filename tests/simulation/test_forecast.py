"""The predicted wait of a queued call comes true: what a `Retry-After` is made of (E5)."""

from __future__ import annotations

import random

import pytest

from penstock.model import Host, Lane, Outcome, Plant, Rate, Task
from penstock.scheduling import messages as m
from tests.simulation.servers import Load, Workers


def noisy(rng: random.Random) -> float:
    return rng.uniform(0.7, 1.3)


def check(load: Load, chosen: list[str], mean_s: float) -> None:
    """Each wait is foreseen within a fifth, or within one call's duration."""
    asked_at = load.now
    foreseen = {task: load.scheduler.predicted_wait_s(task, load.now) for task in chosen}
    while not all(task in load.started for task in chosen):
        assert load.step(asked_at + 10_000)
    for task, wait_s in foreseen.items():
        assert wait_s is not None
        waited = load.started[task] - asked_at
        assert abs(wait_s - waited) <= max(0.2 * waited, mean_s), (
            f"{task}: {wait_s} foreseen, {waited} waited"
        )


@pytest.mark.parametrize("slots", [1, 2, 7])
@pytest.mark.parametrize("noise", [False, True])
def test_the_wait_in_a_queue_of_equal_tasks_is_foreseen(slots: int, noise: bool) -> None:
    """E5: first come, first served, on one host."""
    load = Load(
        Plant((Host("h", "none", slots),), (Lane("default"),)),
        {"h": Workers(slots)},
        noisy if noise else lambda rng: 1.0,
        per_s=1e-9,
    )
    load.submit(slots * 20)
    load.run_until(10.0)
    tasks = load.submit(120)
    check(load, tasks[::7], 1.0)


def test_the_wait_on_hosts_of_different_speed_is_foreseen() -> None:
    """E5: each host counts with its own mean."""
    plant = Plant((Host("fast", "none", 4), Host("slow", "none", 2)), (Lane("default"),))

    class Slow(Workers):
        def begin(self, call: str, work_s: float, now: float) -> Outcome | None:
            return super().begin(call, work_s * 4, now)

    load = Load(plant, {"fast": Workers(4), "slow": Slow(2)}, noisy, per_s=1e-9)
    load.submit(30)
    load.run_until(10.0)
    check(load, load.submit(150)[::9], 4.0)


def test_a_small_lane_beside_a_long_queue_is_told_its_own_wait() -> None:
    """E5: lanes share; a lane of ten is not told the wait of the lane of a thousand."""
    plant = Plant((Host("h", "none", 4),), (Lane("default"), Lane("small")))
    load = Load(plant, {"h": Workers(4)}, noisy, per_s=1e-9)
    load.submit(1000)
    load.run_until(10.0)
    load.lanes = ("small",)
    wait_s = load.scheduler.predicted_wait_s(Task("k", lane="small"), load.now)
    assert wait_s is not None
    assert wait_s <= 1.3
    check(load, load.submit(10), 1.0)
    load.lanes = ("default",)
    check(load, load.submit(1), 1.0)


def test_more_urgent_work_is_ahead_and_less_urgent_work_is_not() -> None:
    """E5: the wait depends on the task's own place in the order."""
    load = Load(
        Plant((Host("h", "none", 2),), (Lane("default"),)), {"h": Workers(2)}, lambda rng: 1.0, per_s=1e-9
    )
    load.submit(50)
    load.run_until(4.0)
    waits = [load.scheduler.predicted_wait_s(Task("k", priority=p), load.now) for p in (0, 2, 4)]
    assert waits[0] == pytest.approx(1.0, abs=1.0)
    assert waits[1] == waits[2] == pytest.approx(22.0, abs=1.5)
    check(load, load.submit(3, priority=0), 1.0)


def test_a_full_lane_makes_its_own_wait_and_leaves_room_to_others() -> None:
    """E5: a lane's limit counts for its tasks, and bounds what they take from others."""
    plant = Plant((Host("h", "none", 8),), (Lane("default"), Lane("two", max_running=2)))
    load = Load(plant, {"h": Workers(8)}, noisy, per_s=1e-9, lanes=("two",))
    load.submit(60, priority=0)
    load.run_until(5.0)
    check(load, load.submit(20, priority=0)[::5], 1.0)
    load.submit(40, priority=0)
    wait_s = load.scheduler.predicted_wait_s(Task("k", priority=3), load.now)
    assert wait_s == 0.0
    load.lanes = ("default",)
    check(load, load.submit(60, priority=3)[::9], 1.0)


def test_nothing_is_foretold_where_nothing_is_known() -> None:
    """E5: no mean yet, a pause, a dead host, an unmet dependency, a task that is not there: None."""
    load = Load(
        Plant((Host("h", "none", 1),), (Lane("default"),)), {"h": Workers(1)}, lambda rng: 1.0, per_s=1e-9
    )
    s = load.scheduler
    first, second = load.submit(2)
    assert s.predicted_wait_s(second, load.now) is None
    assert s.predicted_wait_s(first, load.now) == 0.0
    load.run_until(1.5)
    assert s.statistics().hosts["h"].mean_s == 1.0
    third, later = load.submit(1)[0], Task("k", id="later", not_before=50.0)
    load.tell([m.Submitted([later, Task("k", id="after", after=(third,))])])
    assert s.predicted_wait_s(third, load.now) == pytest.approx(0.5)
    assert s.predicted_wait_s("later", load.now) == pytest.approx(48.5)
    assert s.predicted_wait_s("after", load.now) is None
    assert s.predicted_wait_s("nobody", load.now) is None
    assert s.predicted_wait_s(Task("k", host="elsewhere"), load.now) is None
    known = set(s.statistics().lanes)
    assert s.predicted_wait_s(Task("never", lane="never"), load.now) is not None
    assert set(s.statistics().lanes) == known  # asking changes nothing
    for held in (m.PauseSet("all", "", True), m.PauseSet("lane", "default", True), m.HostHealth("h", False)):
        load.tell([held])
        assert s.predicted_wait_s(third, load.now) is None
        load.tell(
            [
                m.PauseSet("all", "", False),
                m.PauseSet("lane", "default", False),
                m.HostHealth("h", True),
            ]
        )
    assert s.predicted_wait_s(third, load.now) == pytest.approx(0.5)


def test_a_reserve_and_a_rate_are_part_of_the_wait() -> None:
    """E5: slots kept for another lane are not counted, a host's rate is."""
    plant = Plant((Host("h", "none", 4),), (Lane("default"), Lane("kept", reserve={"h": {"slots": 2.0}})))
    load = Load(plant, {"h": Workers(4)}, noisy, per_s=1e-9)
    load.submit(20)
    load.run_until(5.0)
    assert load.scheduler.predicted_wait_s(Task("k", lane="kept"), load.now) == 0.0
    check(load, load.submit(40)[::6], 1.0)
    rated = Host("h", "none", 8, rate=Rate(requests_per_min=30.0))
    load = Load(Plant((rated,), (Lane("default"),)), {"h": Workers(8)}, lambda rng: 1.0, per_s=1e-9)
    load.submit(30)
    load.run_until(5.0)
    told = load.scheduler.predicted_wait_s(load.submit(1)[0], load.now)
    assert told is not None
    assert told >= 55.0


def test_queued_tasks_are_counted_without_looking_at_each() -> None:
    """E5: discarded tasks and tasks that came back are counted about right."""
    load = Load(
        Plant((Host("h", "none", 2),), (Lane("default"),)), {"h": Workers(2)}, lambda rng: 1.0, per_s=1e-9
    )
    tasks = load.submit(200)
    load.run_until(4.0)
    load.tell([m.CancelAsked(task) for task in tasks[20:120]])
    last = load.submit(1)
    check(load, last, 1.0)
