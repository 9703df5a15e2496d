"""What `penstock compare` plays: workloads with their servers, late arrivals and a host that dies; all of it data.

A story says what it is there to show. Adding one is adding a value to `STORIES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.compare.workloads import FIFTY, FORTY, SIX, Workload, duration_s, ideal_s
from penstock.model import Host, Plant, Task

TOKENS_PER_S = 10  # of the story: a call of 9 s asks for 90 tokens
MOST_TOKENS = 4096  # that a simulated server writes for one call


@dataclass(frozen=True, slots=True)
class Death:
    """A host dies with calls under way, once it has served some, and comes back later.

    A way that gives it no such calls does not keep it alive: `latest_s` after the start it dies all the same.
    """

    host: str
    after_served: int
    back_after_s: float
    latest_s: float


@dataclass(frozen=True, slots=True)
class Story:
    workload: Workload
    shows: str
    at_once: Mapping[str, int] = field(
        default_factory=dict
    )  # what a server truly does at once, if not its slots
    arrives_s: Mapping[str, float] = field(default_factory=dict)  # task -> when, if not at the start
    death: Death | None = None
    cpu_bound: bool = False
    claim: tuple[float, float] | None = None  # what C10 says: one thread per kind, and at best

    @property
    def name(self) -> str:
        return self.workload.name

    def arrival_s(self, task: Task) -> float:
        return self.arrives_s.get(task.id, 0.0)

    def true_slots(self, host: Host) -> int:
        return self.at_once.get(host.name, host.slots)

    @property
    def ideal_s(self) -> float:
        """No way can be faster, not even without the death: the workload's bound on what the servers can do."""
        hosts = tuple(replace(host, slots=self.true_slots(host)) for host in self.workload.plant.hosts)
        true = replace(self.workload, plant=replace(self.workload.plant, hosts=hosts))
        last = max(self.arrival_s(task) + duration_s(task) for task in self.workload.tasks)
        return max(ideal_s(true), last)

    @property
    def work_s(self) -> float:
        return sum(map(duration_s, self.workload.tasks))


def with_death(story: Story, host: str) -> Story:
    """The same with that host dying in mid-call for a third of the ideal time, after its second answer.

    Where it has too few tasks for a call after that, it dies in its first. At half of the ideal time every way
    is still at work.
    """
    return replace(
        story,
        death=Death(
            host,
            2 if _awaited(story, host) > max(2, _slots(story, host)) else 0,
            round(story.ideal_s / 3, 1),
            round(story.ideal_s / 2, 1),
        ),
    )


def _slots(story: Story, name: str) -> int:
    return next(story.true_slots(host) for host in story.workload.plant.hosts if host.name == name)


def _awaited(story: Story, name: str) -> float:
    """Tasks that this host will get: its own, or its share by slots of what others could do as well."""
    hosts = story.workload.plant.hosts
    own, shared = 0, 0.0
    for task in story.workload.tasks:
        able = [host.name for host in hosts if host.serves_kind(task.kind)]
        own += able == [name]
        if name in able:
            shared += _slots(story, name) / sum(_slots(story, one) for one in able)
    return own or shared


# ---- the stories


def _host(name: str, slots: int, *serves: str) -> Host:
    return Host(name, "openai", slots=slots, serves=serves)


def _task(id: str, kind: str, duration_s: float, priority: int = 2) -> Task:
    return Task(kind, {"duration_s": duration_s}, id=id, priority=priority)


_MEMBERS = ("goku", "vegeta", "gohan", "piccolo", "krillin", "bulma")


def _council(name: str, title: str) -> Workload:
    """A member is a kind of its own, so that one thread per kind is the six threads of the original."""
    tasks = tuple(_task(member, member, 10) for member in _MEMBERS)
    return Workload(name, title, Plant((_host("server", 6, "*"),)), tasks)


def _urgent() -> Workload:
    """Every kind has two hosts, durations differ, and what is urgent comes when all slots are taken."""
    seconds = (5.0, 25.0, 10.0, 15.0, 30.0)
    kinds = ("reasoning", "coding")
    ordinary = (_task(f"ordinary-{n:02}", kinds[n % 2], seconds[n % 5]) for n in range(1, 26))
    urgent = (_task(f"urgent-{n}", kinds[n % 2], 10, priority=0) for n in range(1, 6))
    hosts = (_host("surtr", 2, *kinds), _host("fenrir", 3, *kinds))
    return Workload("urgent", "Urgent work comes late", Plant(hosts), (*ordinary, *urgent))


def _death() -> Workload:
    """coding can go elsewhere when fenrir dies; tests can go nowhere else."""
    hosts = (
        _host("surtr", 2, "reasoning", "coding"),
        _host("fenrir", 3, "coding", "tests"),
        _host("skadi", 2, "vision"),
    )
    return Workload(
        "death",
        "A host dies, and comes back",
        Plant(hosts),
        (
            *(_task(f"coding-{n:02}", "coding", 10) for n in range(1, 13)),
            *(_task(f"tests-{n:02}", "tests", 10) for n in range(1, 13)),
            *(_task(f"reasoning-{n}", "reasoning", 20) for n in range(1, 5)),
            *(_task(f"vision-{n}", "vision", 20) for n in range(1, 7)),
        ),
    )


def _cpu() -> Workload:
    tasks = tuple(_task(f"{kind}-{n}", kind, 10) for n in range(1, 5) for kind in ("parse", "score"))
    return Workload("cpu", "Eight tasks that compute", Plant((_host("cores", 2, "parse", "score"),)), tasks)


_STORIES = (
    Story(
        SIX,
        "One thread per kind leaves slots idle: two of one kind wait for each other beside a free slot. "
        "Whoever fills the slots needs 90 s, the longest task; so a plain pool does as well as Penstock.",
        claim=(130, 90),
    ),
    Story(
        FORTY,
        "Twice the slots, half the time, for whoever uses them. All tasks are known at the start, so sorting "
        "them once keeps the priorities in every way.",
        claim=(200, 100),
    ),
    Story(
        FIFTY,
        "The clear time of a morning's queue is that of its busiest kind: 900 s of coding, which three slots do in "
        "300 s, if all three are used.",
    ),
    Story(
        _urgent(),
        "Pools and semaphores are first come, first served, and a task is bound to a host when it comes: "
        "what is urgent and late waits behind the rest, and a host runs dry beside a full one. Penstock "
        "decides when a slot is free.",
        arrives_s={f"urgent-{n}": 20.0 for n in range(1, 6)},
    ),
    Story(
        _death(),
        "In a pool or behind a semaphore every task learns by itself that its host is dead: it tries elsewhere, "
        "or fails when its tries are used up. Penstock takes the host out, also with one thread per kind, keeps "
        "its tasks waiting as host-down, and goes on when it is back.",
        death=Death("fenrir", 2, 40.0, 60.0),
    ),
    Story(
        _council("council", "Six calls to a server that runs six"),
        "Threads do not serialise HTTP calls: six calls of 10 s take 10 s in every way, with six threads too. "
        "Processes cost memory and bring nothing.",
    ),
    Story(
        _council("one-at-a-time", "Six calls to a server that runs one"),
        "The same six calls take 60 s in every way: the server is the queue. What was blamed on threads, "
        "no way of calling can mend; only a server that runs more at once can.",
        at_once={"server": 1},
    ),
    Story(
        _cpu(),
        "Python code that computes holds the interpreter's lock: threads share one core. Processes use both, "
        'and so does Penstock, whose host has isolation = "process".',
        cpu_bound=True,
    ),
)
STORIES: Mapping[str, Story] = {story.name: story for story in _STORIES}
