"""Work and hosts by chance: how many tasks, how long each takes, when they come, where they may run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from benchmarks.corpus.dispatchers import Dispatcher
from benchmarks.corpus.recorder import Setup
from benchmarks.corpus.world import Place, Story, Work

HOSTS = ("surtr", "fenrir", "skoll", "hati", "garm", "ymir", "vali", "modi", "magni")
KINDS = ("summarize", "extract", "report", "embed", "review", "plan")
LANES = ("gptr", "fpf", "chat", "night", "eval")

Judge = Callable[[Story, Story], bool]
Harm = Callable[[Story, Story], float]


class Chance(Random):
    """`kept` falls the same for a seed, however often its run is drawn anew until the fault does harm."""

    def __init__(self, name: str, seed: int, turn: int) -> None:
        super().__init__(f"{name}/{seed}/{turn}")
        self.kept = Random(f"{name}/{seed}")


@dataclass(frozen=True, slots=True)
class Case:
    """A run to be, and the same work as it would go without the fault."""

    setup: Setup
    dispatcher: Dispatcher
    twin: Setup
    twin_dispatcher: Dispatcher
    label: str | None = None
    acceptable: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()  # columns without which the fault cannot be known
    is_there: Judge = field(default=lambda story, twin: True)  # whether the fault does harm, in truth
    harm: Harm | None = None  # seconds that tasks lose, where the run's end is not what suffers
    variant: str = ""


def loses(share: float) -> Judge:
    """The run would have ended sooner by so much of its time."""
    return lambda story, twin: gain(story, twin) >= share * story.makespan_s


def held_up(story: Story, twin: Story, seconds: float) -> int:
    """How many tasks waited that much longer than they would have."""
    return sum(story.waited[w.id] - twin.waited[w.id] >= seconds for w in story.works)


def turnaround(story: Story, of: Callable[[Work], bool] = lambda work: True) -> float:
    """From when they came to when they ended, in all."""
    return sum(story.ended[w.id] - w.at for w in story.works if of(w))


def gain(story: Story, twin: Story) -> float:
    return story.makespan_s - twin.makespan_s


def size(rng: Random, low: int, high: int) -> int:
    """As often around 10 as around 1,000."""
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def typical(rng: Random, low: float = 0.5, high: float = 120.0) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def duration(rng: Random, median_s: float, spread: float) -> float:
    return median_s * math.exp(rng.gauss(0.0, spread))


def times(rng: Random, n: int, per_s: float, style: str) -> list[float]:
    """When n tasks come, `per_s` of them on average."""
    if style == "at-once":
        return [0.0] * n
    if style == "steady":
        at, came = 0.0, []
        for _ in range(n):
            came.append(at)
            at += rng.expovariate(per_s)
        return came
    waves = max(2, min(8, n // 10))  # bursts
    gap = n / waves / per_s
    return sorted(rng.randrange(waves) * gap + rng.random() * gap * 0.05 for _ in range(n))


def hosts(rng: Random, n: int, slots: Sequence[int], **how: object) -> list[Place]:
    return [Place(name, rng.choice(slots), **how) for name in rng.sample(HOSTS, n)]  # type: ignore[arg-type]


def task_id(i: int) -> str:
    return f"t{i:04d}"


def overtaken(story: Story, by: Callable[[Work, Work], bool]) -> dict[str, int]:
    """Of each task: how many that came no earlier started before it, of those that `by` counts."""
    first = {t.task: t.start for t in reversed(story.tries)}
    count = {}
    for work in story.works:
        count[work.id] = sum(
            1
            for other in story.works
            if other.at >= work.at and first[other.id] < first[work.id] - 1e-9 and by(other, work)
        )
    return count


def seen_room_s(story: Story) -> float:
    """For how long ready work stood beside a host that ran its kind, and that was seen to take more at once."""
    steps: list[tuple[float, int, str, str]] = []
    kinds = {w.id: w.kind for w in story.works}
    fitting: dict[str, set[str]] = {}
    ready = dict(story.met)
    for attempt in story.tries:
        kind = kinds[attempt.task]
        fitting.setdefault(kind, set()).add(attempt.host)
        steps += [(ready[attempt.task], 1, "", kind), (attempt.start, -1, "", kind)]
        steps += [(attempt.start, 1, attempt.host, ""), (attempt.end, -1, attempt.host, "")]
        ready[attempt.task] = attempt.retry_at or attempt.end
    steps.sort(key=lambda step: step[:2])
    level: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for _, change, host, _ in steps:
        if host:
            level[host] += change
            most[host] = max(most[host], level[host])
    level.clear()
    waiting: Counter[str] = Counter()
    seconds, before = 0.0, steps[0][0]
    for at, change, host, kind in steps:
        if at > before and any(n and any(level[h] < most[h] for h in fitting[k]) for k, n in waiting.items()):
            seconds += at - before
        before = at
        if host:
            level[host] += change
        else:
            waiting[kind] += change
    return seconds
