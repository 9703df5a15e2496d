"""Hosts partitioned over several schedulers, as docs/scale.md plans it: what holds for one holds for all."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from benchmarks.partitioned import Figures, Partitioned, model_plant, partitions, shares, workload
from penstock.scheduling.messages import Event, Start

HOSTS, TASKS = 12, 500


class Watched(Partitioned):
    """Every limit of the whole plant is looked at after every step of any partition."""

    started: Counter[str]

    def _step(self, part: int, event: Event) -> None:
        super()._step(part, event)
        running = [pair for p in self.partitions for pair in p.running.items()]
        lanes = Counter(self.tasks[task].lane for task, _ in running)
        for lane in self.plant.lanes:
            assert lane.max_running is None or lanes[lane.name] <= lane.max_running, (
                f"{lane.name} is over its limit"
            )
        on = Counter(host for _, host in running)
        talk = Counter(host for task, host in running if self.tasks[task].lane == "talk")
        kept = self.plant.lanes[-1].reserve
        for host in self.plant.hosts:
            unused = max(0, len(kept.get(host.name, ())) - talk[host.name])
            assert on[host.name] + unused <= host.slots, f"{host.name} is over-full"
        assert all(self.home[task] == i for i, p in enumerate(self.partitions) for task in p.running)

    def _started(self, part: int, start: Start) -> None:
        self.started[start.task] += 1
        super()._started(part, start)


def play(parts: int, steal_s: float | None, level_s: float | None = None, *, seed: int = 1) -> Figures:
    plant = model_plant(HOSTS)
    world = Watched(plant, parts, steal_s=steal_s, level_s=level_s, by_kind=bool(seed % 2), seed=seed)
    world.started = Counter()
    for when, tasks in workload(TASKS, HOSTS, seed):
        world.at(when, tasks)
    for host in random.Random(seed).sample(plant.hosts, 2):
        world.health(5.0, host.name, up=False)
        world.health(25.0, host.name, up=True)
    figures = world.run()
    assert world.started == dict.fromkeys(world.tasks, 1), "a task was lost, or started twice"
    assert len(world.tasks) == TASKS
    assert not any(p.scheduler.live or any(p.queued) for p in world.partitions)
    return figures


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("steal_s", "level_s"), [(None, None), (0.05, None), (0.05, 0.25)])
@pytest.mark.parametrize("parts", [2, 3])
def test_limits_hold_over_all_partitions_and_no_task_is_lost(
    parts: int, steal_s: float | None, level_s: float | None, seed: int
) -> None:
    assert play(parts, steal_s, level_s, seed=seed).starts == TASKS


def test_one_partition_is_the_scheduler_alone() -> None:
    figures = play(1, 0.05, 0.25)
    assert (figures.inversions, figures.lost_s, figures.stolen) == (0, 0.0, 0)


def test_taking_work_from_others_loses_little_of_what_is_lost_apart() -> None:
    apart = sum(play(4, None, seed=seed).lost_s for seed in range(4))
    taking = sum(play(4, 0.05, seed=seed).lost_s for seed in range(4))
    assert apart > 0
    assert taking < apart / 4


def test_shares_are_whole_and_add_up() -> None:
    assert shares(10, [4, 4, 4]) == [4, 3, 3]
    assert shares(1, [4, 4, 4]) == [1, 0, 0]
    assert shares(7, [1, 6]) == [1, 6]
    plant = model_plant(HOSTS)
    dealt = partitions(plant, 5)
    assert sorted(h.name for p in dealt for h in p.hosts) == sorted(h.name for h in plant.hosts)
    for lane in plant.lanes:
        mine = [one for p in dealt for one in p.lanes if one.name == lane.name]
        assert {h: u for one in mine for h, u in one.reserve.items()} == lane.reserve
        if lane.max_running is not None:
            assert sum(one.max_running or 0 for one in mine) == lane.max_running
