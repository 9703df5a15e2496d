"""Runs whose hosts are given more than they bear, or less than they could take."""

from __future__ import annotations

from collections import Counter
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
    """Backlogs that drain, and small bunches of every size between them: all degrees of concurrency occur."""
    came: list[float] = []
    at = 0.0
    while len(came) < n:
        for _ in range(rng.randint(4, 7)):
            few = rng.randint(1, slots)
            came += [at] * few
            at += (alone_s + (busy_s - alone_s) * few / slots) * rng.uniform(0.9, 1.5)
        many = rng.randint(4, 8) * slots
        came += [at] * many
        at += busy_s * many / slots * rng.uniform(0.8, 1.2)
    return sorted(came[:n])


def beside(story: Story, host: str) -> list[float]:
    """How many ran at once on a host, on average while each of its attempts did."""
    mine = [t for t in story.tries if t.host == host]
    steps = sorted([(t.start, 1) for t in mine] + [(t.end, -1) for t in mine])
    area, level, before = 0.0, 0, 0.0
    until = {}  # attempt-seconds run up to a time
    for at, step in steps:
        area += level * (at - before)
        level, before = level + step, at
        until[at] = area
    return [(until[t.end] - until[t.start]) / (t.end - t.start) for t in mine]


def is_varied(story: Story, host: str, slots: int) -> bool:
    """Enough attempts nearly alone, in the middle, and in full company."""
    degrees = [(level - 1) / (slots - 1) for level in beside(story, host)]
    thirds = Counter(min(2, int(degree * 3)) for degree in degrees)
    return all(thirds[third] >= 6 for third in range(3))


def is_known(story: Story, host: str) -> bool:
    """Enough attempts to know how long they take there."""
    return sum(t.host == host for t in story.tries) >= 10


def running(story: Story) -> float:
    return sum(t.end - t.start for t in story.tries)


def past_its_best(rng: Chance) -> tuple[int, Scaling, int]:
    """Slots, the server's law, and how many it does best with: fewer, and clearly so."""
    while True:
        slots = rng.randint(4, 16)
        law = Scaling(rng.uniform(0.0, 0.2), rng.uniform(0.01, 0.08))
        knee = max(range(1, slots + 1), key=law.throughput)
        full = law.throughput(slots)
        if 2 <= knee < slots and law.throughput(knee) >= 1.25 * full and full >= 1.4:
            return slots, law, knee


def contention(rng: Chance, ours: bool) -> Case:
    """A server that gets slower the more it is given, past its best."""
    typical_s, spread = typical(rng), rng.uniform(0.05, 0.35)
    slots, law, knee = past_its_best(rng)
    n = size(rng, 12 * slots, 500)
    name = rng.choice(HOSTS)
    kinds = rng.sample(KINDS, rng.randint(1, 2))
    place = Place(name, slots, law=law, serves=tuple(kinds))
    slower = {k: rng.uniform(0.7, 1.5) for k in kinds}
    per_wave_s = typical_s * slots / law.throughput(slots)
    works = []
    came = waves(rng, n * 2 // 5, slots, typical_s, per_wave_s)
    came += [came[-1]] * (n - len(came))  # what is lost must be lost at the end
    for i, at in enumerate(came):
        kind = rng.choice(kinds)
        works.append(Work(task_id(i), kind, duration(rng, typical_s * slower[kind], spread), at))
    calm = [Place(next(h for h in HOSTS if h != name), 4, serves=("other",))] if rng.random() < 0.4 else []
    others = [
        Work(task_id(n + i), "other", duration(rng, typical_s, spread), at)
        for i, at in enumerate(times(rng, 20, 3 / typical_s, "steady") if calm else [])
    ]

    def slowed(story: Story, twin: Story) -> bool:
        return is_varied(story, name, slots) and loses(0.05)(story, twin)

    return Case(
        Setup([*works, *others], [place, *calm]),
        Dispatcher(),
        Setup([*works, *others], [replace(place, slots=knee), *calm]),
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
    style = rng.choice(("at-once", "bursts", "steady"))
    came = times(rng, n, 1.2 / typical_s if style == "steady" else 0.8 / typical_s, style)
    if fair:
        came = waves(rng, n, slots, typical_s, typical_s * slots)
    kinds = rng.sample(KINDS, 1 if spread > 0.25 else rng.randint(1, 2))
    place = Place(name, slots, law=law, serves=tuple(kinds))
    works = [
        Work(task_id(i), rng.choice(kinds), duration(rng, typical_s, spread), at) for i, at in enumerate(came)
    ]
    calm = [Place(next(h for h in HOSTS if h != name), 3, serves=("other",))] if rng.random() < 0.5 else []
    others = [
        Work(task_id(n + i), "other", duration(rng, typical_s, spread), at)
        for i, at in enumerate(times(rng, 15, 2 / typical_s, "steady") if calm else [])
    ]
    setup = Setup([*works, *others], [place, *calm])

    def queued_up(story: Story, twin: Story) -> bool:
        levels = beside(story, name)
        # Of a server that shares itself, only lone requests tell it from one with two hands.
        alone = not fair or sum(level <= 1.1 for level in levels) >= 2
        return alone and sum(level >= 1.5 for level in levels) >= 0.5 * n and loses(0.15)(story, twin)

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
        lambda story, twin: loses(0.1)(story, twin) and is_known(story, places[0].name),
        variant=variant,
    )
