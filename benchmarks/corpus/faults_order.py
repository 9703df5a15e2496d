"""Runs whose dispatcher is at fault: what it starts in which order, and when it looks."""

from __future__ import annotations

import statistics
from dataclasses import replace
from random import Random

from benchmarks.corpus.dispatchers import (
    AnyOrder,
    BlockedLoop,
    Dispatcher,
    FirstComeBlind,
    LastInFirstOut,
    PollLoop,
    SingleQueue,
    SlowHands,
    Strict,
    WorkersPerFamily,
)
from benchmarks.corpus.recorder import Setup
from benchmarks.corpus.workloads import (
    HOSTS,
    KINDS,
    LANES,
    Case,
    Chance,
    duration,
    held_up,
    hosts,
    loses,
    overtaken,
    size,
    task_id,
    times,
    typical,
)
from benchmarks.corpus.world import EventLoop, LaneRule, Place, Story, Work


def head_of_line_blocking(rng: Chance, ours: bool) -> Case:
    """One queue before hosts that serve different kinds; the kinds come in clumps."""
    n, typical_s = size(rng, 16, 700), typical(rng)
    kinds = rng.sample(KINDS, rng.randint(2, 4))
    places = [
        Place(h, rng.randint(1, 4), serves=(k,))
        for h, k in zip(rng.sample(HOSTS, len(kinds)), kinds, strict=True)
    ]
    slower = {k: rng.uniform(0.5, 2.0) for k in kinds}
    weights = [p.slots / slower[k] * rng.uniform(0.7, 1.4) for p, k in zip(places, kinds, strict=True)]
    clump = rng.choice((1, 2, 5))
    order: list[str] = []
    while len(order) < n:
        order += rng.choices(kinds, weights) * rng.randint(1, clump)
    per_s = sum(p.slots / slower[p.serves[0]] for p in places) / typical_s * rng.uniform(0.9, 1.3)
    came = times(rng, n, per_s, rng.choice(("at-once", "steady", "bursts")))
    spread = rng.uniform(0.1, 0.8)
    works = [
        Work(task_id(i), k, duration(rng, typical_s * slower[k], spread), at)
        for i, (k, at) in enumerate(zip(order[:n], came, strict=True))
    ]
    setup = Setup(works, places)
    return Case(
        setup,
        SingleQueue(),
        setup,
        Dispatcher(),
        "head-of-line-blocking",
        frozenset({"idle-slots"}),
        frozenset({"host", "kind", "queued"}),
        lambda story, twin: loses(0.08)(story, twin) and held_up(story, twin, typical_s / 2) >= 4,
    )


def serial_starts(rng: Chance, ours: bool) -> Case:
    """A thread per kind, one worker for everything, or a lane that lets one through."""
    n, typical_s, spread = size(rng, 10, 400), typical(rng), rng.uniform(0.1, 0.8)
    variant = rng.kept.choice(("kinds", "all", "some", "lane" if ours else "kinds"))
    workers = 1 if variant in ("all", "lane") else rng.choice((1, 1, 1, 2))
    kinds = rng.sample(KINDS, 1 if variant == "all" else rng.randint(2, 4))
    slots = workers * len(kinds) * rng.randint(2, 3)
    count = rng.randint(2, 3) if variant == "all" else rng.randint(1, 3)
    if variant == "kinds" and not ours:  # a log shows room by more hosts than threads, or as families run out
        count = rng.choice((1, workers * len(kinds) + 1))
    places = [Place(h, max(2, -(-slots // count))) for h in rng.sample(HOSTS, min(count, len(HOSTS)))]
    came = [0.0] * n
    if rng.random() < 0.3:
        per_s = workers * len(kinds) / typical_s * rng.uniform(1.5, 3.0)
        came = times(rng, n, per_s, "steady")
    slower = {k: rng.uniform(0.6, 1.6) for k in kinds}
    slow = kinds[0]
    weights = [3.0 if variant == "some" and k == slow else rng.uniform(0.3, 1.5) for k in kinds]
    lanes = {slow: LaneRule(max_running=1)} if variant == "lane" else {}
    works = []
    for i, at in enumerate(came):
        kind = rng.choices(kinds, weights)[0]
        lane = kind if variant == "lane" else "default"
        works.append(Work(task_id(i), kind, duration(rng, typical_s * slower[kind], spread), at, lane))
    dispatcher: Dispatcher
    if variant == "lane":
        dispatcher = Dispatcher()
    else:
        only = frozenset({slow}) if variant == "some" else None
        dispatcher = WorkersPerFamily(
            workers, (lambda k: "") if variant == "all" else (lambda k: k.kind), only
        )
    return Case(
        Setup(works, places, lanes),
        dispatcher,
        Setup(works, places),
        Dispatcher(),
        "serial-starts",
        frozenset({"idle-slots"}),
        frozenset({"host", "kind"}) if variant != "all" else frozenset({"host"}),
        loses(0.2),
        variant=variant,
    )


def stalled_loop(rng: Chance, ours: bool) -> Case:
    """Code that blocks the dispatcher's own loop; or, as ours can tell, the loop that attempts share."""
    n, typical_s, spread = size(rng, 20, 500), typical(rng, 0.5, 40), rng.uniform(0.1, 0.6)
    shared = ours and rng.kept.random() < 0.4
    kinds = rng.sample(KINDS, rng.randint(2, 4))
    one_kind_each = (
        shared or rng.random() < 0.4
    )  # a shared loop is one host's: nobody else may take its tasks
    slots = rng.randint(2, 5)  # of each: else the one with fewer could be said to have too few
    places = [
        Place(
            h,
            slots,
            serves=(kinds[i % len(kinds)],) if one_kind_each else ("*",),
            law=EventLoop() if shared and i == 0 else Place("", 1).law,
        )
        for i, h in enumerate(rng.sample(HOSTS, len(kinds) if one_kind_each else rng.randint(2, 4)))
    ]
    per_s = slots * len(places) / typical_s * rng.uniform(0.9, 1.3)
    came = times(rng, n, per_s, rng.choice(("at-once", "steady")))
    works = [
        Work(task_id(i), rng.choice(kinds), duration(rng, typical_s, spread), at) for i, at in enumerate(came)
    ]
    able = [i for i, w in enumerate(works) if i < n * 0.7 and (not shared or w.kind == places[0].serves[0])]
    few = (
        len(able) // 5 if shared else n // 10
    )  # were there many, the loop would be a server for one at a time
    for i in rng.sample(able, min(len(able), max(1, min(rng.randint(1, 6), few)))):
        works[i] = replace(works[i], work_s=duration(rng, typical_s * rng.uniform(4, 12), 0.2), blocks=True)
    return Case(
        Setup(works, places),
        Dispatcher() if shared else BlockedLoop(sees_ends_late=rng.kept.random() < 0.3),
        Setup([replace(w, blocks=False) for w in works], [replace(p, law=Place("", 1).law) for p in places]),
        Dispatcher(),
        "stalled-loop",
        frozenset({"serial-starts", "idle-slots"}),
        frozenset({"host", "kind", "queued"}),
        loses(0.06),
        variant="shared" if shared else "dispatcher",
    )


def idle_slots(rng: Chance, ours: bool) -> Case:
    """A dispatcher that polls, workers that sleep, or a lane's limit far below the slots."""
    typical_s, spread = typical(rng), rng.uniform(0.1, 0.8)
    variant = rng.kept.choice(("poll", "naps", "limit" if ours else "poll"))
    places = hosts(rng, rng.randint(1, 3), (2, 3, 4, 6, 8))
    places = [replace(p, slots=places[0].slots) for p in places]
    slots = sum(p.slots for p in places)
    n = size(rng, max(24, 5 * slots), 700)
    came = times(
        rng, n, slots / typical_s * rng.uniform(1.0, 1.5), rng.choice(("at-once", "steady", "bursts"))
    )
    works = [
        Work(task_id(i), rng.choice(KINDS[:2]), duration(rng, typical_s, spread), at)
        for i, at in enumerate(came)
    ]
    setup = Setup(works, places)
    twin, dispatcher = setup, Dispatcher()
    if variant == "poll":
        dispatcher = PollLoop(typical_s * rng.uniform(0.4, 2.5))
    elif variant == "naps":
        dispatcher = SlowHands(typical_s * rng.uniform(0.2, 1.0))
    else:
        places = [replace(p, slots=max(p.slots, 6)) for p in places]
        limit = max(3, sum(p.slots for p in places) // rng.randint(3, 5))
        works = [replace(w, lane="night", at=w.at * 0.2) for w in works]
        setup = Setup(works, places, {"night": LaneRule(max_running=limit)})
        twin = Setup(works, places)
    return Case(
        setup,
        dispatcher,
        twin,
        Dispatcher(),
        "idle-slots",
        frozenset({"serial-starts"}) if variant == "limit" else frozenset(),
        frozenset({"host", "queued"}),
        loses(0.1),
        variant=variant,
    )


def starvation(rng: Chance, ours: bool) -> Case:
    """A stream of the preferred that never lets the others in; or a stack."""
    n, typical_s, spread = size(rng, 100, 1000), typical(rng, 0.5, 30), rng.uniform(0.1, 0.7)
    variant = rng.kept.choice(("priority", "priority", "lane", "lane", "stack"))
    places = hosts(rng, rng.randint(1, 2), (1, 2, 3, 4))
    places = [replace(p, slots=places[0].slots) for p in places]
    slots = sum(p.slots for p in places)
    mean_s = typical_s * 2.718281828 ** (spread * spread / 2)
    came = times(rng, n, slots / mean_s * rng.uniform(1.05, 1.25), "steady")
    share = rng.uniform(0.04, 0.12)
    works = []
    for i, at in enumerate(came):
        poor = variant != "stack" and i > slots and i < n * 0.5 and rng.random() < share * 2
        works.append(
            Work(
                task_id(i),
                KINDS[0],
                duration(rng, typical_s, spread),
                at,
                lane=LANES[3] if poor and variant == "lane" else LANES[2],
                priority=4 if poor and variant == "priority" else 1 if variant == "priority" else 2,
            )
        )
    dispatchers = {
        "priority": Strict(lambda k: k.priority),
        "lane": Strict(lambda k: 1.0 if k.lane == LANES[3] else 0.0),
        "stack": LastInFirstOut(),
    }
    column = {"priority": {"priority"}, "lane": {"lane"}, "stack": set()}[variant]

    def passed_over(story: Story) -> list[str]:
        passed = overtaken(story, lambda other, work: True)
        return [w.id for w in works if passed[w.id] >= 0.15 * n]

    def starved(story: Story, twin: Story) -> bool:
        poor = passed_over(story)
        kept_back = {w.id for w in works if w.priority == 4 or w.lane == LANES[3]}
        if kept_back and len(kept_back & set(poor)) < 0.7 * len(kept_back):
            return False
        rest = [story.waited[w.id] for w in works if w.id not in set(poor)]
        if not 3 <= len(poor) <= n / 3:
            return False
        ordinary = max(statistics.median(rest), typical_s / 2)
        return statistics.median(story.waited[id] for id in poor) >= 8 * ordinary

    setup = Setup(works, places, aging_s=1e6)
    return Case(
        setup,
        dispatchers[variant],
        setup,
        FirstComeBlind(),
        "starvation",
        frozenset(),
        frozenset({"queued", "host", *column}),
        starved,
        lambda story, twin: sum(story.waited[id] - twin.waited[id] for id in passed_over(story)),
        variant=variant,
    )


def priority_inversion(rng: Chance, ours: bool) -> Case:
    """Numbers read upside down, a FIFO semaphore behind the priorities, or whoever gets the lock."""
    n, typical_s, spread = size(rng, 40, 600), typical(rng), rng.uniform(0.1, 0.7)
    variant = rng.kept.choice(("upside-down", "blind", "any"))
    places = hosts(rng, rng.randint(1, 3), (1, 2, 3, 4))
    places = [replace(p, slots=places[0].slots) for p in places]
    slots = sum(p.slots for p in places)
    style = "steady" if variant == "upside-down" else "at-once"
    came = times(rng, n, slots / typical_s * rng.uniform(0.9, 1.2), style)
    if variant == "blind" and rng.random() < 0.5:  # submitted a bunch at a time
        waves = rng.randint(2, 4)
        came = sorted(rng.randrange(waves) * n / waves * typical_s / slots * 0.8 for _ in range(n))
    share, urgent = rng.uniform(0.05, 0.25), rng.choice((0, 1))
    works = [
        Work(
            task_id(i),
            KINDS[0],
            duration(rng, typical_s, spread),
            at,
            priority=urgent if rng.random() < share else rng.choice((2, 3)),
        )
        for i, at in enumerate(came)
    ]
    dispatchers = {
        "upside-down": Strict(lambda k: -k.priority),
        "blind": FirstComeBlind(),
        "any": AnyOrder(Random(rng.random())),
    }

    def inverted(story: Story, twin: Story) -> bool:
        passed = overtaken(story, lambda other, work: other.priority > work.priority)
        hurried = [w for w in works if w.priority == urgent]
        if len(hurried) < 3:
            return False
        lost = [story.waited[w.id] - twin.waited[w.id] for w in hurried]
        often = sum(passed[w.id] >= 4 for w in hurried) >= 0.5 * len(hurried)
        return often and statistics.mean(lost) >= max(2 * typical_s, 0.05 * story.makespan_s)

    setup = Setup(works, places)
    return Case(
        setup,
        dispatchers[variant],
        setup,
        Dispatcher(),
        "priority-inversion",
        frozenset({"starvation"}) if variant == "upside-down" else frozenset(),
        frozenset({"queued", "host", "priority"}),
        inverted,
        lambda story, twin: sum(
            story.waited[w.id] - twin.waited[w.id] for w in works if w.priority == urgent
        ),
        variant=variant,
    )
