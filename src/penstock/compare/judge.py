"""From what the servers saw to figures: how long, how full, in which order, and what became of every task.

Pure. Seconds in figures are those of the story; spans come in real ones, of one clock for all processes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from penstock.compare.plan import Ending
from penstock.compare.stories import Story

_SERVED = "served"
# Starts within this time of each other are one step: calls do not always reach the servers in the order in
# which they were sent. Real seconds, for it is a matter of this machine.
_STEP_S = 0.02


class Span(NamedTuple):
    """One call as a server saw it, or one piece of computing."""

    task: str
    host: str
    arrived: float
    began: float | None  # in a slot
    ended: float
    fate: str


class Taken(NamedTuple):
    memory_bytes: int  # the most at once, all processes together
    threads: int  # likewise
    processes: int
    switches: int  # of child processes, since the start of the watch
    cpu_s: float  # likewise


class Raw(NamedTuple):
    """What came of it, as the contender, the servers and the meter tell."""

    began: float
    ended: float
    endings: tuple[Ending, ...]
    noticed: str
    down: tuple[float, ...]  # when a host died, and when it was back
    spans: tuple[Span, ...]
    taken: Taken
    switches: int
    cpu_s: float
    others_cores: float = 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What one contender made of one story."""

    contender: str
    ideal_s: float = 0.0
    makespan_s: float = 0.0
    slot_use: float = 0.0  # share of all slots' time that went into answers
    peak_memory_mb: float = 0.0
    processes: int = 0
    threads: int = 0
    switches: int = 0
    cpu_s: float = 0.0  # real seconds of a core
    others_cores: float = 0.0  # that other work used meanwhile
    inversions: int = 0  # starts that passed a more urgent task
    over_full: int = 0  # the most calls that a host had beyond its slots
    inside: int = 0  # the most calls that waited inside a server
    done: int = 0
    failed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    retried: int = 0  # done, though not at the first try
    failed_calls: int = 0
    noticed: str = ""
    down: tuple[float, ...] = ()  # when the host died and when it was back, if it was in time
    spans: tuple[Span, ...] = ()  # in seconds of the story since the start
    error: str | None = None  # why there are no figures

    @classmethod
    def broken(cls, contender: str, error: str) -> Figures:
        return cls(contender, error=error)

    @property
    def to_ideal(self) -> float:
        return self.makespan_s / self.ideal_s if self.ideal_s else 0.0

    @property
    def all_done(self) -> bool:
        return self.error is None and not self.failed and not self.lost

    def as_record(self) -> dict[str, Any]:
        """What is not known is None: a way that broke has no figures."""
        if self.error is not None:
            known = {"contender": self.contender, "error": self.error}
            return {one.name: known.get(one.name) for one in fields(self)} | {"to_ideal": None}
        record = asdict(self)
        record["spans"] = [span._asdict() for span in self.spans]
        return record | {"to_ideal": round(self.to_ideal, 4)}


def judge(story: Story, contender: str, scale: float, raw: Raw) -> Figures:
    wanted = {task.id for task in story.workload.tasks}
    spans = sorted((s for s in raw.spans if s.task in wanted), key=lambda s: s.arrived)
    good = {e.task for e in raw.endings if e.error is None and _answered(e.task, e.answer)}
    failed = {e.task for e in raw.endings if e.error is not None} - good
    real_s = raw.ended - raw.began
    slots = sum(story.true_slots(host) for host in story.workload.plant.hosts)
    busy_s = sum(s.ended - s.began for s in spans if s.began is not None and s.fate == _SERVED)
    held_up = [(s.host, s.arrived, s.ended if s.began is None else s.began) for s in spans]
    waiting = _most_at_once(one for one in held_up if one[2] - one[1] > _STEP_S)
    return Figures(
        contender,
        ideal_s=story.ideal_s,
        makespan_s=real_s / scale,
        slot_use=busy_s / (slots * real_s),
        peak_memory_mb=raw.taken.memory_bytes / 1e6,
        processes=raw.taken.processes,
        threads=raw.taken.threads,
        switches=raw.switches,
        cpu_s=raw.cpu_s,
        others_cores=round(raw.others_cores, 3),
        inversions=inversions(story, scale, raw.began, spans),
        over_full=_over_full(story, spans),
        inside=max(waiting.values(), default=0),
        done=len(good),
        failed=tuple(sorted(failed)),
        lost=tuple(sorted(wanted - good - failed)),
        retried=sum(e.tries > 1 for e in raw.endings if e.task in good),
        failed_calls=sum(e.tries - (e.error is None) for e in raw.endings),
        noticed=raw.noticed,
        down=tuple(round((at - raw.began) / scale, 3) for at in raw.down),
        spans=tuple(_told(s, raw.began, scale) for s in spans),
    )


def _answered(task: str, answer: Any) -> bool:
    """The answer is the task's own: its id is in it."""
    return task == (answer.get("task") if isinstance(answer, Mapping) else answer)


def _told(span: Span, began: float, scale: float) -> Span:
    def story_s(at: float) -> float:
        return round((at - began) / scale, 3)

    return span._replace(
        arrived=story_s(span.arrived),
        began=None if span.began is None else story_s(span.began),
        ended=story_s(span.ended),
    )


# ---- room


def _over_full(story: Story, spans: Iterable[Span]) -> int:
    """Beyond the slots that everybody was told of."""
    most = _most_at_once((s.host, s.arrived, s.ended) for s in spans)
    return max(
        (most[h.name] - h.slots for h in story.workload.plant.hosts if most[h.name] > h.slots), default=0
    )


def _most_at_once(stretches: Iterable[tuple[str, float, float]]) -> Counter[str]:
    steps: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for host, start, end in stretches:
        if end > start:
            steps[host] += [(start, 1), (end, -1)]
    most = Counter[str]()
    for host, changes in steps.items():
        running = 0
        for _, change in sorted(changes):  # of one moment, what ends comes first
            running += change
            most[host] = max(most[host], running)
    return most


# ---- order


def inversions(story: Story, scale: float, began: float, spans: Sequence[Span]) -> int:
    """Starts of a task while a more urgent one was waiting that the same host could have taken."""
    task_of = {task.id: task for task in story.workload.tasks}
    hosts = {host.name: host for host in story.workload.plant.hosts}
    first: dict[str, Span] = {}
    for span in spans:
        first.setdefault(span.task, span)
    urgent = [(task_of[s.task], s) for s in first.values()]
    count = 0
    for span in first.values():
        mine, host = task_of[span.task], hosts[span.host]
        count += any(
            other.priority < mine.priority
            and host.serves_kind(other.kind)
            and began + story.arrival_s(other) * scale < span.arrived - _STEP_S
            and started.arrived > span.arrived + _STEP_S
            for other, started in urgent
        )
    return count
