"""Runs whose hosts, gates or retries are at fault."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from benchmarks.corpus.dispatchers import Dispatcher, Hammering, Leaky, Patient
from benchmarks.corpus.faults_speed import beside
from benchmarks.corpus.recorder import Setup
from benchmarks.corpus.workloads import (
    HOSTS,
    KINDS,
    LANES,
    Case,
    Chance,
    duration,
    gain,
    held_up,
    loses,
    size,
    task_id,
    times,
    typical,
)
from benchmarks.corpus.world import Cold, GateRule, Place, Story, Work


def over(story: Story, places: Sequence[Place]) -> float:
    """Seconds of attempts that ran beyond a host's slots."""
    slots = {p.name: p.slots for p in places}
    beyond = 0.0
    for name, limit in slots.items():
        mine = [t for t in story.tries if t.host == name]
        steps = sorted([(t.start, 1) for t in mine] + [(t.end, -1) for t in mine])
        level, at = 0, 0.0
        for now, step in steps:
            beyond += max(0, level - limit) * (now - at)
            level, at = level + step, now
    return beyond


def leaked_slots(rng: Chance, ours: bool) -> Case:
    """A count of free slots that goes wrong when attempts fail."""
    n, typical_s, spread = size(rng, 80, 900), typical(rng), rng.uniform(0.1, 0.6)
    rises = ours and rng.kept.random() < 0.35
    slots = rng.randint(3, 10)
    places = [Place(h, slots) for h in rng.sample(HOSTS, rng.randint(1, 2))]
    failing = rng.uniform(0.04, 0.12)
    came = times(rng, n, len(places) * slots / typical_s * 1.6, rng.choice(("at-once", "steady")))
    works = [
        Work(
            task_id(i),
            KINDS[0],
            duration(rng, typical_s, spread),
            at,
            fails=(typical_s * rng.uniform(0.5, 3.0),) if rng.random() < failing else (),
        )
        for i, at in enumerate(came)
    ]
    lost = rng.randint(max(2, slots // 2), slots - 1)  # of each host, in the end
    chance = min(1.0, 2.0 * lost * len(places) / max(1.0, failing * n))
    floor = 1 if rises else slots - lost
    leaky = Leaky(
        Random(rng.random()), min(0.35, chance) if rises else chance, 1 if rises else -1, floor, typical_s / 4
    )

    def drifted(story: Story, twin: Story) -> bool:
        if rises:
            most = max(max(beside(story, p.name)) for p in places)
            return 1.3 * slots <= most <= 3 * slots
        return loses(0.1)(story, twin)

    setup = Setup(works, places)
    return Case(
        setup,
        leaky,
        setup,
        Dispatcher(backoff_s=typical_s / 4),
        "leaked-slots",
        frozenset() if rises else frozenset({"idle-slots"}),
        frozenset({"host", "queued", "state"}),
        drifted,
        (lambda story, twin: over(story, places)) if rises else None,
        variant="rises" if rises else "falls",
    )


def retry_storm(rng: Chance, ours: bool) -> Case:
    """A host in trouble, or work that cannot succeed, tried again and again without a pause."""
    n, typical_s, spread = size(rng, 12, 300), typical(rng, 2, 60), rng.uniform(0.1, 0.6)
    poison = rng.kept.random() < 0.5
    count, slots = rng.randint(1, 3), rng.randint(1, 4)
    quick = typical_s * rng.uniform(0.03, 0.2)
    came = times(rng, n, count * slots / typical_s * 1.2, rng.choice(("at-once", "steady")))
    places = [Place(h, slots) for h in rng.sample(HOSTS, count)]
    tries = rng.randint(8, 30)
    if not poison:
        begins = n * typical_s / (count * slots) * rng.uniform(0.1, 0.4)
        lasts = max(quick * rng.uniform(40, 120) / slots, typical_s * 3)
        places[0] = replace(places[0], broken=((begins, begins + lasts),), breaks_s=quick)
        tries = 1000
    doomed = set(rng.sample(range(n), max(2, int(n * rng.uniform(0.1, 0.35)))) if poison else ())
    works = [
        Work(
            task_id(i),
            "report" if i in doomed else "summarize",
            duration(rng, typical_s, spread),
            at,
            fails=tuple(duration(rng, quick, 0.3) for _ in range(tries)) if i in doomed else (),
            dies=i in doomed,
        )
        for i, at in enumerate(came)
    ]
    sane = [replace(w, fails=w.fails[:1]) for w in works]

    def stormed(story: Story, twin: Story) -> bool:
        again = sum(t.number > 1 for t in story.tries)
        most = Counter(t.task for t in story.tries).most_common(1)[0][1]
        share = sum(t.failed for t in story.tries) / len(story.tries)
        return (
            again >= 15
            and most >= 5
            and share >= 0.4
            and len(story.tries) < 4000
            and loses(0.04)(story, twin)
        )

    delay = rng.choice((0.0, 0.0, quick * 0.3))
    return Case(
        Setup(works, places),
        Hammering(tries, delay),
        Setup(sane, places),
        Patient(),
        "retry-storm",
        frozenset(),
        frozenset({"host", "kind", "state", "attempt"}),
        stormed,
        variant="poison" if poison else "host",
    )


def cold_starts(rng: Chance, ours: bool) -> Case:
    """A model that must be loaded: at first, after every quiet hour, or whenever another one was asked for."""
    typical_s, spread = typical(rng, 0.5, 30), rng.uniform(0.05, 0.4)
    variant = rng.kept.choice(("first", "idle", "model"))
    load_s = typical_s * math.exp(1.5 * spread) * rng.uniform(5, 20)
    count = rng.randint(1, 3)
    slots = 1 if variant == "model" else rng.randint(1, 4)
    n = size(rng, 12 * count * slots if variant != "first" else 10 * count * slots, 250)
    cold = Cold(load_s, load_s * 2 if variant == "idle" else math.inf, variant == "model")
    places = [Place(h, slots, cold=cold) for h in rng.sample(HOSTS, count)]
    per_s = count * slots / typical_s
    if variant == "idle":
        bunches = max(2, min(8, n // (5 * count * slots)))
        gap = n / bunches / per_s + load_s * 4
        came = sorted((i % bunches) * gap * rng.uniform(1.0, 1.001) for i in range(n))
    else:
        came = times(rng, n, per_s * rng.uniform(0.8, 1.2), rng.choice(("at-once", "steady")))
    models: Sequence[str | None] = [None]
    if variant == "model":
        models = ["qwen2.5-32b", "llama-3-8b", "mistral-7b"][: rng.randint(2, 3)]
    works, run_length, model = [], 0, models[0]
    for i, at in enumerate(came):
        if variant == "model" and run_length <= 0:
            model = rng.choice([m for m in models if m != model])
            run_length = rng.randint(4, 12) * count
        run_length -= 1
        works.append(Work(task_id(i), KINDS[0], duration(rng, typical_s, spread), at, model=model))

    def loads_often(story: Story, twin: Story) -> bool:
        slow = sum(t.end - t.start >= load_s for t in story.tries)
        return 1 <= slow <= len(story.tries) / 3 and loses(0.05)(story, twin)

    return Case(
        Setup(works, places),
        Dispatcher(),
        Setup(works, [replace(p, cold=replace(cold, load_s=0.0)) for p in places]),
        Dispatcher(),
        "cold-starts",
        frozenset(),
        frozenset({"host", "model"}) if variant == "model" else frozenset({"host"}),
        loads_often,
        variant=variant,
    )


def unbalanced_hosts(rng: Chance, ours: bool) -> Case:
    """Work dealt out to hosts before anybody knows who will be free."""
    typical_s, spread = typical(rng), rng.uniform(0.1, 0.8)
    count, slots = rng.randint(2, 4), rng.randint(1, 4)
    n = size(rng, 4 * count * slots, 500)
    variant = rng.kept.choice(("slow", "skewed", "slow"))
    names = rng.sample(HOSTS, count)
    places = [
        Place(h, slots, speed=1 / rng.uniform(1.8, 4.0) if variant == "slow" and i == 0 else 1.0)
        for i, h in enumerate(names)
    ]
    came = times(rng, n, count * slots / typical_s * rng.uniform(1.2, 2.0), rng.choice(("at-once", "steady")))
    weights = [rng.uniform(2.5, 5.0), *[1.0] * (count - 1)]
    works = []
    for i, at in enumerate(came):
        host = names[i % count] if variant == "slow" else rng.choices(names, weights)[0]
        works.append(Work(task_id(i), rng.choice(KINDS[:2]), duration(rng, typical_s, spread), at, host=host))
    free = [replace(w, host=None) for w in works]
    return Case(
        Setup(works, places),
        Dispatcher(),
        Setup(free, places),
        Dispatcher(),
        "unbalanced-hosts",
        frozenset({"idle-slots"}),
        frozenset({"host", "queued"}),
        lambda story, twin: loses(0.1)(story, twin) and held_up(story, twin, typical_s / 2) >= 4,
        variant=variant,
    )


def stuck_gate(rng: Chance, ours: bool) -> Case:
    """A gate whose probe died, or whose count went wrong: closed long after its reason had gone."""
    n, typical_s, spread = size(rng, 20, 500), typical(rng), rng.uniform(0.1, 0.7)
    slots = rng.randint(2, 6)
    places = [Place(h, slots) for h in rng.sample(HOSTS, rng.randint(1, 3))]
    counted = rng.kept.random() < 0.4
    held, other = rng.sample(LANES, 2)
    share = rng.uniform(0.3, 0.6)
    about_s = n * typical_s / (slots * len(places))
    begins = about_s * rng.uniform(0.0, 0.3)
    ends = begins + about_s * rng.uniform(1.2, 3.0)
    works = [
        Work(
            task_id(i),
            KINDS[0],
            duration(rng, typical_s, spread),
            at,
            lane=held if rng.random() < share else other,
        )
        for i, at in enumerate(times(rng, n, n / about_s, rng.choice(("at-once", "steady"))))
    ]
    gate: GateRule
    if counted:
        limit = rng.randint(1, slots)
        gate = GateRule("headroom", (held,), watches=other, max_running=limit, stuck=(begins, ends))
    else:
        ups = sorted(rng.uniform(0, begins) for _ in range(2)) if begins > typical_s else []
        closed = (*([(ups[0], ups[1])] if ups else []), (begins, ends))
        says = "nvml:memory_free_gb failed: NVMLError: driver not loaded; on_error = closed"
        gate = GateRule("vram", (held,), closed=closed, probe="nvml:memory_free_gb", says=says)
    well = replace(gate, stuck=None, closed=gate.closed[:-1])
    return Case(
        Setup(works, places, gates=(gate,)),
        Dispatcher(),
        Setup(works, places, gates=(well,)),
        Dispatcher(),
        "stuck-gate",
        frozenset(),
        frozenset(),
        lambda story, twin: gain(story, twin) >= 0.15 * story.makespan_s,
        variant="count" if counted else "probe",
    )


def host_down(rng: Chance, ours: bool) -> Case:
    """A host goes away and comes back late, and nobody else serves what is meant for it."""
    n, typical_s, spread = size(rng, 12, 400), typical(rng), rng.uniform(0.1, 0.7)
    slots = rng.randint(1, 5)
    names = rng.sample(HOSTS, rng.randint(1, 3))
    pinned = rng.kept.random() < 0.4
    places = [
        Place(h, slots, serves=("*",) if pinned else (kind,)) for h, kind in zip(names, KINDS, strict=False)
    ]
    about_s = n * typical_s / (slots * len(places))
    begins = about_s * rng.uniform(0.0, 0.5)
    ends = begins + max(about_s, 4 * typical_s) * rng.uniform(0.5, 2.5)
    away = [replace(places[0], down=((begins, ends),)), *places[1:]]
    works = []
    for i, at in enumerate(times(rng, n, n / about_s, rng.choice(("at-once", "steady")))):
        place = rng.randrange(len(places))
        host = names[place] if pinned else None
        kind = KINDS[0] if pinned else KINDS[place]
        works.append(Work(task_id(i), kind, duration(rng, typical_s, spread), at, host=host))
    return Case(
        Setup(works, away),
        Dispatcher(),
        Setup(works, places),
        Dispatcher(),
        "host-down",
        frozenset({"unbalanced-hosts"}) if pinned else frozenset(),  # once it is back, all are in line there
        frozenset(),
        lambda story, twin: gain(story, twin) >= 0.15 * story.makespan_s,
        variant="pinned" if pinned else "kinds",
    )
