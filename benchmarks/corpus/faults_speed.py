"""Runs whose hosts are given more than they bear, or less than they could take."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from benchmarks.corpus.dispatchers import Dispatcher
from benchmarks.corpus.recorder import Setup
from benchmarks.corpus.workloads import (
    HOSTS,
    KINDS,
    Case,
    Chance,
    duration,
    loses,
    size,
    task_id,
    times,
    typical,
)
from benchmarks.corpus.world import Law, OneByOne, Place, Saturating, Scaling, Story, Work


def waves(rng: Random, n: int, slots: int, alone_s: float, busy_s: float) -> list[float]:
    """Backlogs that drain, and tasks that come one by one between them: all degrees of concurrency occur."""
    came: list[float] = []
    at = 0.0
    while len(came) < n:
        alone = rng.randint(3, 6)
        for _ in range(alone):
            came.append(at)
            at += alone_s * rng.uniform(0.4, 1.6)
        bunch = rng.randint(3, 6) * slots
        came += [at] * bunch
        at += busy_s * bunch / slots * rng.uniform(0.8, 1.2)
    return sorted(came[:n])


def concurrency(story: Story, host: str) -> list[int]:
    """Beside how many each attempt of a host started, itself included."""
    mine = [t for t in story.tries if t.host == host]
    ends = sorted(t.end for t in mine)
    levels, gone = [], 0
    for i, attempt in enumerate(mine):
        while gone < len(ends) and ends[gone] <= attempt.start:
            gone += 1
        levels.append(i + 1 - gone)
    return levels


def is_varied(story: Story, host: str, slots: int) -> bool:
    levels = concurrency(story, host)
    low = sum(level <= max(1, slots // 2) for level in levels)
    return low >= 5 and sum(level >= 0.8 * slots for level in levels) >= 8


def running(story: Story) -> float:
    return sum(t.end - t.start for t in story.tries)


def past_its_best(rng: Chance) -> tuple[int, Scaling, int]:
    """Slots, the server's law, and how many it does best with: fewer, and clearly so."""
    while True:
        slots = rng.randint(4, 16)
        law = Scaling(rng.uniform(0.0, 0.2), rng.uniform(0.01, 0.08))
        knee = max(range(1, slots + 1), key=law.throughput)
        if 2 <= knee < slots and law.throughput(knee) >= 1.12 * law.throughput(slots):
            return slots, law, knee


def contention(rng: Chance, ours: bool) -> Case:
    """A server that gets slower the more it is given, past its best."""
    n, typical_s, spread = size(rng, 60, 900), typical(rng), rng.uniform(0.05, 0.35)
    slots, law, knee = past_its_best(rng)
    name = rng.choice(HOSTS)
    place = Place(name, slots, law=law)
    kinds = rng.sample(KINDS, rng.randint(1, 2))
    slower = {k: rng.uniform(0.7, 1.5) for k in kinds}
    per_wave_s = typical_s * slots / law.throughput(slots)
    works = []
    for i, at in enumerate(waves(rng, n, slots, typical_s, per_wave_s)):
        kind = rng.choice(kinds)
        works.append(Work(task_id(i), kind, duration(rng, typical_s * slower[kind], spread), at))
    calm = [Place(next(h for h in HOSTS if h != name), 4, serves=("other",))] if rng.random() < 0.4 else []
    beside = [
        Work(task_id(n + i), "other", duration(rng, typical_s, spread), at)
        for i, at in enumerate(times(rng, 20, 3 / typical_s, "steady") if calm else [])
    ]

    def slowed(story: Story, twin: Story) -> bool:
        return is_varied(story, name, slots) and loses(0.05)(story, twin)

    return Case(
        Setup([*works, *beside], [place, *calm]),
        Dispatcher(),
        Setup([*works, *beside], [replace(place, slots=knee), *calm]),
        Dispatcher(),
        "contention",
        frozenset({"wrong-slots"}),
        frozenset({"host", "kind"}),
        slowed,
    )


def one_at_a_time_server(rng: Chance, ours: bool) -> Case:
    """A server behind many slots that works on one request at a time."""
    typical_s, spread = typical(rng), rng.uniform(0.03, 0.4)
    slots = rng.randint(2, 8)
    n = size(rng, max(12, 4 * slots), 300)
    fair = rng.kept.random() < 0.3  # shares itself among all, to the same effect
    name = rng.choice(HOSTS)
    law: Law = Saturating(1) if fair else OneByOne()
    place = Place(name, slots, law=law)
    style = rng.choice(("at-once", "bursts", "steady"))
    came = times(rng, n, 1.2 / typical_s if style == "steady" else 0.8 / typical_s, style)
    if fair:
        came = waves(rng, n, slots, typical_s, typical_s * slots)
    kinds = rng.sample(KINDS, 1 if spread > 0.25 else rng.randint(1, 2))
    works = [
        Work(task_id(i), rng.choice(kinds), duration(rng, typical_s, spread), at) for i, at in enumerate(came)
    ]
    calm = [Place(next(h for h in HOSTS if h != name), 3, serves=("other",))] if rng.random() < 0.5 else []
    beside = [
        Work(task_id(n + i), "other", duration(rng, typical_s, spread), at)
        for i, at in enumerate(times(rng, 15, 2 / typical_s, "steady") if calm else [])
    ]
    setup = Setup([*works, *beside], [place, *calm])

    def queued_up(story: Story, twin: Story) -> bool:
        return sum(level >= 2 for level in concurrency(story, name)) >= 0.5 * n and loses(0.15)(story, twin)

    return Case(
        setup,
        Dispatcher(),
        Setup(setup.works, [replace(place, law=Place("", 1).law), *calm]),
        Dispatcher(),
        "one-at-a-time-server",
        frozenset(),
        frozenset({"host", "kind"}) if calm or len(kinds) > 1 else frozenset({"host"}),
        queued_up,
        variant="fair" if fair else "queue",
    )


def wrong_slots(rng: Chance, ours: bool) -> Case:
    """More slots than the server can use; or fewer than its twin beside it, or than it had before."""
    typical_s, spread = typical(rng), rng.uniform(0.05, 0.35)
    variant = rng.kept.choice(("many", "few", "few", "lowered" if ours else "many"))
    names = rng.sample(HOSTS, 3)
    model = "qwen2.5-32b"
    if variant == "many":
        slots = rng.randint(6, 16)
        knee = rng.randint(2, max(2, slots // 2))
        n = size(rng, 80, 700)
        place = Place(names[0], slots, law=Saturating(knee), model=model)
        works = [
            Work(task_id(i), KINDS[0], duration(rng, typical_s, spread), at)
            for i, at in enumerate(waves(rng, n, slots, typical_s, typical_s * slots / knee))
        ]
        return Case(
            Setup(works, [place]),
            Dispatcher(),
            Setup(works, [replace(place, slots=knee)]),
            Dispatcher(),
            "wrong-slots",
            frozenset({"contention"}),
            frozenset({"host", "kind"}),
            lambda story, twin: is_varied(story, names[0], slots),
            lambda story, twin: running(story) - running(twin),
            variant=variant,
        )
    big = rng.randint(4, 10)
    small = rng.randint(1, max(1, big // 3))
    n = size(rng, 12 * small + 3 * big, 600)
    if variant == "few":
        places = [Place(names[0], small, model=model), Place(names[1], big, model=model)]
        better = [replace(places[0], slots=big), places[1]]
        style = rng.choice(("at-once", "bursts"))
        came = times(rng, n, (small + big) / typical_s * 1.2, style)
    else:
        at = n * typical_s / big * rng.uniform(0.2, 0.45)
        places = [Place(names[0], big, slots_later=((at, small),), model=model)]
        better = [replace(places[0], slots_later=())]
        came = times(rng, n, big / typical_s * 1.2, rng.choice(("at-once", "steady")))
    works = [Work(task_id(i), KINDS[0], duration(rng, typical_s, spread), at) for i, at in enumerate(came)]
    return Case(
        Setup(works, places),
        Dispatcher(),
        Setup(works, better),
        Dispatcher(),
        "wrong-slots",
        frozenset(),
        frozenset({"host", "kind", "queued"}),
        loses(0.1),
        variant=variant,
    )
