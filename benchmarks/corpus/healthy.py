"""Runs with nothing wrong, though not tame: a good dispatcher, and whatever else makes tasks wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

from benchmarks.corpus.dispatchers import Dispatcher
from benchmarks.corpus.recorder import Setup
from benchmarks.corpus.workloads import (
    HOSTS,
    KINDS,
    LANES,
    Case,
    Chance,
    duration,
    size,
    task_id,
    times,
    typical,
)
from benchmarks.corpus.world import GateRule, LaneRule, Place, Story, Work

STYLES = ("at-once", "steady", "bursts")


def _case(setup: Setup, needs: Sequence[str] = (), idle: float = 0.02, backoff_s: float = 1.0) -> Case:
    def keeps_busy(story: Story, twin: Story) -> bool:
        return story.idle_s <= idle * story.makespan_s

    good = Dispatcher(aging_s=setup.aging_s, backoff_s=backoff_s)
    return Case(setup, good, setup, good, needs=frozenset(needs), is_there=keeps_busy)


def _alike(rng: Random, count: tuple[int, int] = (1, 4), slots: tuple[int, int] = (1, 8)) -> list[Place]:
    """Hosts that serve the same and take the same."""
    n = rng.randint(*slots)
    return [Place(h, n) for h in rng.sample(HOSTS, rng.randint(*count))]


def _works(
    rng: Random,
    places: Sequence[Place],
    n: int,
    typical_s: float,
    kinds: Sequence[str] = KINDS[:1],
    style: str = "",
    load: tuple[float, float] = (0.6, 1.4),
    spread: tuple[float, float] = (0.1, 0.8),
) -> list[Work]:
    slower = {k: rng.uniform(0.3, 3.0) for k in kinds}
    per_s = sum(p.slots * p.speed for p in places) / typical_s * rng.uniform(*load)
    wide = rng.uniform(*spread)
    works = []
    for i, at in enumerate(times(rng, n, per_s, style or rng.choice(STYLES))):
        kind = rng.choice(kinds)
        works.append(Work(task_id(i), kind, duration(rng, typical_s * slower[kind], wide), at))
    return works


def noisy(rng: Chance, ours: bool) -> Case:
    """Durations that vary tenfold by themselves."""
    places = _alike(rng)
    works = _works(rng, places, size(rng, 8, 2000), typical(rng), spread=(0.6, 1.2))
    return _case(Setup(works, places))


def mixed_kinds(rng: Chance, ours: bool) -> Case:
    """Kinds of very different length, on hosts that serve them all."""
    places = _alike(rng, (1, 3), (2, 8))
    works = _works(rng, places, size(rng, 8, 1000), typical(rng), rng.sample(KINDS, rng.randint(2, 5)))
    return _case(Setup(works, places), ("kind",))


def own_hosts(rng: Chance, ours: bool) -> Case:
    """Every kind has hosts of its own, and one of them has more to do than the others."""
    kinds = rng.sample(KINDS, rng.randint(2, 4))
    names = rng.sample(HOSTS, len(kinds))
    places = [
        Place(h, rng.randint(1, 6), serves=(k,), speed=rng.uniform(0.4, 2.0))
        for h, k in zip(names, kinds, strict=True)
    ]
    works = _works(rng, places, size(rng, 8, 1000), typical(rng), kinds)
    return _case(Setup(works, places), ("kind", "host"))


def priorities(rng: Chance, ours: bool) -> Case:
    """The urgent go first; who waits long enough goes first too."""
    places, typical_s = _alike(rng, (1, 3), (1, 6)), typical(rng)
    n = size(rng, 20, 600)
    works = [replace(w, priority=rng.choice((0, 1, 2, 2, 3, 4))) for w in _works(rng, places, n, typical_s)]
    busy_s = n * typical_s / sum(p.slots for p in places)
    aging_s = max(2.0 * typical_s, busy_s * rng.uniform(0.02, 0.05))
    return _case(Setup(works, places, aging_s=aging_s), ("priority",))


def lane_limits(rng: Chance, ours: bool) -> Case:
    """A lane at its limit, while the others use all that is left."""
    places = _alike(rng, (1, 3), (3, 8))
    slots = sum(p.slots for p in places)
    limited, other = rng.sample(LANES, 2)
    n, share = size(rng, 30, 800), rng.uniform(0.05, 0.2)
    works = [
        replace(w, lane=limited if rng.random() < share and i < 0.7 * n else other)
        for i, w in enumerate(_works(rng, places, n, typical(rng), style="at-once"))
    ]
    lanes = {limited: LaneRule(max_running=max(1, round(slots * rng.uniform(0.3, 0.6)))), other: LaneRule()}
    return _case(Setup(works, places, lanes), ("lane",))


def reserve(rng: Chance, ours: bool) -> Case:
    """A slot kept for a lane that calls now and then; the other lane may not use it."""
    places = _alike(rng, (1, 2), (3, 8))
    keeper, other = rng.sample(LANES, 2)
    n = size(rng, 30, 500)
    works = [
        replace(w, lane=keeper if rng.random() < 0.15 else other)
        for w in _works(rng, places, n, typical(rng), load=(0.9, 1.3))
    ]
    lanes = {keeper: LaneRule(reserve=tuple((p.name, 1) for p in places)), other: LaneRule()}
    return _case(Setup(works, places, lanes), idle=1.0)


def weights(rng: Chance, ours: bool) -> Case:
    """Lanes that share by weight."""
    places = _alike(rng, (1, 3), (2, 6))
    lanes = {lane: LaneRule(weight=rng.choice((1.0, 1.0, 2.0))) for lane in rng.sample(LANES, 2)}
    works = [
        replace(w, lane=rng.choice(list(lanes)))
        for w in _works(rng, places, size(rng, 20, 600), typical(rng), load=(0.6, 1.0))
    ]
    return _case(Setup(works, places, lanes), ("lane",))


def bursts(rng: Chance, ours: bool) -> Case:
    """All come at a few times; in between it is quiet."""
    places = _alike(rng)
    works = _works(rng, places, size(rng, 20, 1500), typical(rng), style="bursts", load=(0.3, 0.9))
    return _case(Setup(works, places))


def dependencies(rng: Chance, ours: bool) -> Case:
    """Stages that wait for one another, chains, and a join at the end."""
    places, typical_s = _alike(rng, (1, 3), (2, 6)), typical(rng)
    works = _works(rng, places, size(rng, 10, 400), typical_s, KINDS[:3], "at-once")
    stages = rng.randint(2, 4)
    by_stage = [works[i::stages] for i in range(stages)]
    joined: list[Work] = [*by_stage[0]]
    for before, stage in pairwise(by_stage):
        if not before:
            break
        everything = rng.random() < 0.5
        for i, work in enumerate(stage):
            after = (
                tuple(w.id for w in before)
                if everything and len(before) < 40
                else (before[i % len(before)].id,)
            )
            joined.append(replace(work, after=after))
    return _case(Setup(sorted(joined, key=lambda w: w.id), places), ("after", "queued", "host"))


def retries(rng: Chance, ours: bool) -> Case:
    """A few attempts fail, and succeed when tried again."""
    places, typical_s = _alike(rng, (1, 3), (1, 6)), typical(rng)
    share = rng.uniform(0.02, 0.1)
    works = [
        replace(
            w,
            fails=(w.work_s * rng.uniform(0.2, 1.0),) * rng.choice((1, 1, 1, 2))
            if rng.random() < share
            else (),
        )
        for w in _works(rng, places, size(rng, 12, 600), typical_s)
    ]
    return _case(Setup(works, places), ("state", "attempt"), backoff_s=typical_s * rng.uniform(0.05, 0.3))


def rate_limit(rng: Chance, ours: bool) -> Case:
    """A host that takes so many starts a minute, and no more."""
    typical_s, slots = typical(rng), rng.randint(2, 8)
    place = Place(rng.choice(HOSTS), slots, starts_per_s=slots / typical_s * rng.uniform(0.3, 0.7))
    works = _works(rng, [place], size(rng, 10, 400), typical_s)
    return _case(Setup(works, [place]), idle=1.0)


def working_gate(rng: Chance, ours: bool) -> Case:
    """A gate that opens and closes as what it reads goes up and down."""
    places, typical_s = _alike(rng, (1, 2), (3, 8)), typical(rng)
    slots = sum(p.slots for p in places)
    held, other = rng.sample(LANES, 2)
    n = size(rng, 30, 500)
    works = [
        replace(w, lane=held if rng.random() < 0.4 else other)
        for w in _works(rng, places, n, typical_s, load=(0.7, 1.2))
    ]
    if rng.random() < 0.5:
        gate = GateRule(
            "headroom", (held,), watches=other, max_running=max(1, round(slots * rng.uniform(0.5, 0.9)))
        )
        return _case(Setup(works, places, gates=(gate,)), idle=1.0)
    closed, at = [], rng.uniform(0, 5) * typical_s
    until = 2 * n * typical_s / slots
    while at < until:
        shut = typical_s * rng.uniform(0.3, 2.0)
        closed.append((at, at + shut))
        at += shut + typical_s * rng.uniform(2.0, 6.0)
    says = "nvml:memory_free_gb = 1.4 < 3"
    gate = GateRule("vram", (held,), closed=tuple(closed), probe="nvml:memory_free_gb", says=says)
    return _case(Setup(works, places, gates=(gate,)), idle=1.0)


def full_queue(rng: Chance, ours: bool) -> Case:
    """Far more work than slots, from the first second to the last."""
    places = _alike(rng)
    works = _works(rng, places, size(rng, 50, 2000), typical(rng), KINDS[:2], "at-once", spread=(0.05, 0.7))
    return _case(Setup(works, places), ("kind",))


def one_slot(rng: Chance, ours: bool) -> Case:
    """Hosts that take one at a time because that is what they have."""
    kinds = rng.sample(KINDS, rng.randint(1, 3))
    names = rng.sample(HOSTS, len(kinds))
    places = [Place(h, 1, serves=(k,)) for h, k in zip(names, kinds, strict=True)]
    works = _works(rng, places, size(rng, 8, 200), typical(rng), kinds)
    return _case(Setup(works, places), ("kind", "host"))


def outage(rng: Chance, ours: bool) -> Case:
    """A host that is away for a while."""
    places, typical_s = _alike(rng, (2, 4), (2, 6)), typical(rng)
    n = size(rng, 40, 800)
    works = _works(rng, places, n, typical_s, load=(0.8, 1.2))
    busy_s = n * typical_s / sum(p.slots for p in places)
    begins = busy_s * rng.uniform(0.2, 0.6)
    places[0] = replace(places[0], down=((begins, begins + busy_s * rng.uniform(0.05, 0.15)),))
    return _case(Setup(works, places))


def tiny(rng: Chance, ours: bool) -> Case:
    """A handful of tasks: too few to say anything."""
    places = _alike(rng, (1, 2), (1, 4))
    return _case(Setup(_works(rng, places, rng.randint(3, 7), typical(rng), KINDS[:2]), places), ("kind",))


def sparse(rng: Chance, ours: bool) -> Case:
    """Tasks now and then, on hosts with room to spare."""
    places = _alike(rng)
    works = _works(rng, places, size(rng, 8, 400), typical(rng), KINDS[:3], "steady", load=(0.1, 0.4))
    return _case(Setup(works, places), ("kind",))


def unequal_hosts(rng: Chance, ours: bool) -> Case:
    """A quick and a slow host for the same work, given to whoever is free."""
    names = rng.sample(HOSTS, rng.randint(2, 3))
    places = [Place(h, rng.randint(1, 6), speed=0.5**i) for i, h in enumerate(names)]
    works = _works(rng, places, size(rng, 20, 800), typical(rng), load=(0.8, 1.4))
    return _case(Setup(works, places), ("host",))


def long_tail(rng: Chance, ours: bool) -> Case:
    """One task that takes longer than all the others, and ends last."""
    places, typical_s = _alike(rng, (1, 3), (2, 6)), typical(rng)
    works = _works(rng, places, size(rng, 10, 300), typical_s, style="at-once")
    for i in rng.sample(range(len(works)), rng.randint(1, 2)):
        works[i] = replace(works[i], kind="review", work_s=typical_s * rng.uniform(10, 40))
    return _case(Setup(works, places), ("kind",))


def slots_changed(rng: Chance, ours: bool) -> Case:
    """Somebody lowers a host's slots for a while, because its machine is needed, and raises them again."""
    typical_s, slots = typical(rng), rng.randint(4, 8)
    n = size(rng, 60, 800)
    busy_s = n * typical_s / slots
    begins = busy_s * rng.uniform(0.1, 0.5)
    later = ((begins, slots - rng.randint(1, 2)), (begins + busy_s * rng.uniform(0.1, 0.2), slots))
    place = Place(rng.choice(HOSTS), slots, slots_later=later)
    return _case(Setup(_works(rng, [place], n, typical_s), [place]))
