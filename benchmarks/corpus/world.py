"""What a generated run is made of: the work, the hosts with their laws of speed, the gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Work:
    """A task to be. `fails` are the seconds of work of each attempt that fails before one succeeds."""

    id: str
    kind: str
    work_s: float
    at: float = 0.0
    lane: str = "default"
    priority: int = 2
    host: str | None = None
    model: str | None = None
    after: tuple[str, ...] = ()
    fails: tuple[float, ...] = ()
    dies: bool = False  # its last failure is for good
    blocks: bool = False  # its code does not give the loop back


class Law(Protocol):
    """How fast each of the attempts that run on a host gets on, in the order of their starts."""

    def rates(self, blocking: Sequence[bool]) -> Sequence[float]: ...


@dataclass(frozen=True, slots=True)
class Free:
    """Nobody slows anybody."""

    def rates(self, blocking: Sequence[bool]) -> Sequence[float]:
        return [1.0] * len(blocking)


@dataclass(frozen=True, slots=True)
class Scaling:
    """The universal scalability law: waiting for what is shared (`shared`), and keeping it coherent."""

    shared: float
    coherence: float

    def throughput(self, n: int) -> float:
        return n / (1 + self.shared * (n - 1) + self.coherence * n * (n - 1))

    def rates(self, blocking: Sequence[bool]) -> Sequence[float]:
        n = len(blocking)
        return [self.throughput(n) / n] * n if n else []


@dataclass(frozen=True, slots=True)
class Saturating:
    """Up to `knee` at full speed; beyond it they share what the knee gave."""

    knee: int

    def rates(self, blocking: Sequence[bool]) -> Sequence[float]:
        n = len(blocking)
        return [min(1.0, self.knee / n)] * n if n else []


@dataclass(frozen=True, slots=True)
class OneByOne:
    """Takes all, works on the oldest alone."""

    def rates(self, blocking: Sequence[bool]) -> Sequence[float]:
        return [1.0, *[0.0] * (len(blocking) - 1)] if blocking else []


@dataclass(frozen=True, slots=True)
class EventLoop:
    """Attempts share a loop: while one blocks, only the first that does gets on."""

    def rates(self, blocking: Sequence[bool]) -> Sequence[float]:
        if not any(blocking):
            return [1.0] * len(blocking)
        first = list(blocking).index(True)
        return [1.0 if i == first else 0.0 for i in range(len(blocking))]


@dataclass(frozen=True, slots=True)
class Cold:
    """What a host must load before it works: at first, after an idle time, and for another model."""

    load_s: float
    idle_s: float = NEVER
    per_model: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A host as it is, not as somebody believes it to be."""

    name: str
    slots: int
    serves: tuple[str, ...] = ("*",)
    speed: float = 1.0
    law: Law = field(default_factory=Free)
    model: str | None = None
    cold: Cold | None = None
    down: tuple[tuple[float, float], ...] = ()  # nothing starts there
    broken: tuple[tuple[float, float], ...] = ()  # all that starts there fails
    breaks_s: float = 1.0
    slots_later: tuple[tuple[float, int], ...] = ()  # set by somebody, on purpose
    starts_per_s: float | None = None

    def fits(self, kind: str, host: str | None, model: str | None) -> bool:
        if host not in (None, self.name) or ("*" not in self.serves and kind not in self.serves):
            return False
        return model is None or self.model is None or self.model == model or bool(self.cold)

    def slots_at(self, now: float) -> int:
        slots = self.slots
        for at, changed in self.slots_later:
            if at <= now:
                slots = changed
        return slots

    def is_down(self, now: float) -> bool:
        return any(a <= now < b for a, b in self.down)

    def is_broken(self, now: float) -> bool:
        return any(a <= now < b for a, b in self.broken)


@dataclass(frozen=True, slots=True)
class GateRule:
    """Closed at given times (a probe's readings), or by how many of a lane run."""

    name: str
    holds: tuple[str, ...]  # lanes
    closed: tuple[tuple[float, float], ...] = ()
    probe: str | None = None
    says: str = ""  # while it is closed
    watches: str | None = None  # a lane
    max_running: int | None = None
    stuck: tuple[float, float] | None = None  # closed then, whatever it watches

    def is_open(self, now: float, running: int) -> bool:
        if any(a <= now < b for a, b in self.closed):
            return False
        if self.stuck is not None and self.stuck[0] <= now < self.stuck[1]:
            return False
        return self.max_running is None or running <= self.max_running

    def turns(self) -> list[float]:
        stretches = [*self.closed, *([self.stuck] if self.stuck else [])]
        return [t for stretch in stretches for t in stretch if t != NEVER]


@dataclass(frozen=True, slots=True)
class LaneRule:
    max_running: int | None = None
    weight: float = 1.0
    reserve: tuple[tuple[str, int], ...] = ()  # host, slots


@dataclass(slots=True)
class Try:
    """An attempt as it went."""

    task: str
    number: int
    host: str
    start: float
    end: float
    failed: bool
    error: str | None = None
    retry_at: float | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """Tasks that are alike in all a dispatcher looks at wait together."""

    kind: str
    lane: str
    priority: int
    host: str | None
    model: str | None


def key_of(work: Work) -> Key:
    return Key(work.kind, work.lane, work.priority, work.host, work.model)


@dataclass(slots=True)
class Ticket:
    """A task in the queue."""

    work: Work
    seq: int
    key: Key
    since: float  # ready since, after its last failure
    tries: int = 0
    first_ready: float = 0.0


@dataclass(frozen=True, slots=True)
class Story:
    """All that happened, with the truth that no log tells."""

    works: Sequence[Work]
    tries: Sequence[Try]
    stretches: dict[Key, list[tuple[float, str | None, str]]]  # since when a key waits for what
    met: dict[str, float]  # when the last task that one waits after had ended
    ended: dict[str, float]
    gate_turns: Sequence[tuple[float, str, bool]]
    idle_s: float  # time in which ready work stood beside room that fits it
    blocked: Sequence[Try]  # attempts that held the loop
    waited: dict[str, float]  # by task, while ready

    @property
    def makespan_s(self) -> float:
        return max(self.ended.values()) - min(w.at for w in self.works)
