"""Dispatchers, good and bad: which waiting task starts where, and when each of them looks at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from benchmarks.corpus.world import Key, Ticket, Try

if TYPE_CHECKING:
    from benchmarks.corpus.simulation import Simulation, Station

Choice = tuple[Key, "Station"]


class Dispatcher:
    """As it should be: whatever is eligible starts as soon as a host that fits has room.

    The more urgent first, waiting `aging_s` counts as a level, lanes share by weight, then first come first
    served; on the host with the most free share, in turn among equals.
    """

    sees_ends_late = False
    excuse = "others first"

    def __init__(self, aging_s: float = 300.0, max_tries: int = 4, backoff_s: float = 1.0) -> None:
        self.aging_s = aging_s
        self.max_tries = max_tries
        self.backoff_s = backoff_s

    def begin(self, sim: Simulation) -> None: ...

    def is_awake(self, sim: Simulation) -> bool:
        return True

    def rank(self, ticket: Ticket) -> float:
        return ticket.seq

    def room(self, sim: Simulation, station: Station, key: Key) -> int:
        kept = sim.reserved(station.place.name, key.lane) if sim.lanes else 0
        return station.place.slots_at(sim.now) - len(station.runners) - kept

    def host_for(self, sim: Simulation, key: Key) -> Station | None:
        able = [
            (self.room(sim, station, key) / station.place.slots, -station.starts, station)
            for station in sim.fitting(key)
            if self.is_usable(sim, station)
        ]
        share, _, station = max(able, key=lambda a: a[:2], default=(0.0, 0, None))
        return station if share > 0 else None

    def is_usable(self, sim: Simulation, station: Station) -> bool:
        return not station.place.is_down(sim.now) and station.next_start <= sim.now + 1e-9

    def is_held(self, sim: Simulation, key: Key) -> bool:
        return sim.lane_is_full(key.lane) or sim.gate_holding(key.lane) is not None

    def order(self, sim: Simulation, ticket: Ticket) -> tuple[float, ...]:
        level = ticket.key.priority - (sim.now - ticket.first_ready) / self.aging_s
        if len(sim.lanes) < 2:
            return (level, ticket.seq)
        rule = sim.lanes.get(ticket.key.lane)
        share = sim.running_in.get(ticket.key.lane, 0) / (rule.weight if rule else 1.0)
        return (math.floor(level), share, ticket.seq)

    def choose(self, sim: Simulation) -> Choice | None:
        best: tuple[tuple[float, ...], Key, Station] | None = None
        for key, queue in sim.waiting.items():
            if not queue or self.is_held(sim, key):
                continue
            order = self.order(sim, queue[0][2])
            if best is not None and best[0] <= order:
                continue
            station = self.host_for(sim, key)
            if station is not None:
                best = order, key, station
        return None if best is None else best[1:]

    def started(self, sim: Simulation, station: Station) -> None: ...

    def ended(self, sim: Simulation, station: Station, attempt: Try) -> None: ...

    def retry_delay(self, tries: int) -> float:
        return self.backoff_s * 2.0 ** (tries - 1)

    def error(self, attempt: Try) -> str:
        return "the server hung up"


class SingleQueue(Dispatcher):
    """One queue for all hosts; its head is waited for, whoever is behind it."""

    excuse = "the queue's head waits for its host"

    def choose(self, sim: Simulation) -> Choice | None:
        heads = [(queue[0][2].seq, key) for key, queue in sim.waiting.items() if queue]
        if not heads:
            return None
        key = min(heads, key=lambda h: h[0])[1]
        station = self.host_for(sim, key)
        return None if station is None or self.is_held(sim, key) else (key, station)


class WorkersPerFamily(Dispatcher):
    """So many threads for each family of work, whatever the hosts could take."""

    excuse = "its family's thread is busy"

    def __init__(
        self, workers: int, family: Callable[[Key], str], only: frozenset[str] | None = None
    ) -> None:
        super().__init__()
        self.workers = workers
        self.family = family
        self.only = only  # families that are so treated; None: all

    def is_held(self, sim: Simulation, key: Key) -> bool:
        mine = self.family(key)
        if self.only is not None and mine not in self.only:
            return super().is_held(sim, key)
        busy = sum(1 for s in sim.stations.values() for r in s.runners if self.family(r.ticket.key) == mine)
        return busy >= self.workers or super().is_held(sim, key)


class PollLoop(Dispatcher):
    """Looks at the queue every so often, and starts what fits then."""

    excuse = "nobody looked yet"

    def __init__(self, every_s: float, backoff_s: float = 1.0) -> None:
        super().__init__(backoff_s=backoff_s)
        self.every_s = every_s
        self._next = 0.0

    def is_awake(self, sim: Simulation) -> bool:
        if sim.now + 1e-9 < self._next:
            return False
        self._next = (int(sim.now / self.every_s + 1e-6) + 1) * self.every_s
        sim.wake_at(self._next)
        return True


class SlowHands(Dispatcher):
    """A freed slot is used only after its worker has slept and looked again."""

    excuse = "the worker sleeps"

    def __init__(self, nap_s: float) -> None:
        super().__init__()
        self.nap_s = nap_s
        self._asleep: dict[str, list[float]] = {}

    def ended(self, sim: Simulation, station: Station, attempt: Try) -> None:
        until = sim.now + self.nap_s
        self._asleep.setdefault(station.place.name, []).append(until)
        sim.wake_at(until)

    def _napping(self, sim: Simulation, station: Station) -> int:
        naps = [t for t in self._asleep.get(station.place.name, ()) if t > sim.now + 1e-9]
        self._asleep[station.place.name] = naps
        return len(naps)

    def host_for(self, sim: Simulation, key: Key) -> Station | None:
        able = [
            s
            for s in sim.fitting(key)
            if self.room(sim, s, key) - self._napping(sim, s) > 0 and self.is_usable(sim, s)
        ]
        return max(able, key=lambda s: (self.room(sim, s, key) / s.place.slots, -s.starts), default=None)


class BlockedLoop(Dispatcher):
    """An event loop that runs the tasks' own code: while that blocks, nothing starts."""

    excuse = "the loop does not turn"

    def __init__(self, sees_ends_late: bool) -> None:
        super().__init__()
        self.sees_ends_late = sees_ends_late

    def is_awake(self, sim: Simulation) -> bool:
        return not sim.blockers

    def choose(self, sim: Simulation) -> Choice | None:
        return None if sim.blockers else super().choose(sim)


class Strict(Dispatcher):
    """The preferred always go first, without aging."""

    def __init__(self, level: Callable[[Key], float]) -> None:
        super().__init__()
        self.level = level

    def order(self, sim: Simulation, ticket: Ticket) -> tuple[float, ...]:
        return (self.level(ticket.key), ticket.seq)


class LastInFirstOut(Dispatcher):
    """A stack: who comes last is served first."""

    def rank(self, ticket: Ticket) -> float:
        return -ticket.seq

    def order(self, sim: Simulation, ticket: Ticket) -> tuple[float, ...]:
        return (-ticket.seq,)


class FirstComeBlind(Dispatcher):
    """A FIFO semaphore before the hosts: priorities play no part."""

    def order(self, sim: Simulation, ticket: Ticket) -> tuple[float, ...]:
        return (ticket.seq,)


class AnyOrder(Dispatcher):
    """Whoever happens to get the lock: no order at all."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._rng = rng

    def rank(self, ticket: Ticket) -> float:
        return self._rng.random()

    def order(self, sim: Simulation, ticket: Ticket) -> tuple[float, ...]:
        queue = sim.waiting[ticket.key]
        return (queue[0][0],)


class Leaky(Dispatcher):
    """Counts free slots, and miscounts when an attempt fails: forgets to release, or releases twice."""

    def __init__(self, rng: Random, chance: float, step: int, floor: int, backoff_s: float) -> None:
        super().__init__(backoff_s=backoff_s)
        self._rng = rng
        self.chance = chance
        self.step = step  # -1: a slot is lost; +1: one too many is given back
        self.floor = floor  # a host left with none would never end
        self.free: dict[str, int] = {}
        self.drift: dict[str, int] = {}

    def begin(self, sim: Simulation) -> None:
        self.free = {name: s.place.slots for name, s in sim.stations.items()}
        self.drift = dict.fromkeys(sim.stations, 0)

    def room(self, sim: Simulation, station: Station, key: Key) -> int:
        return self.free[station.place.name]

    def started(self, sim: Simulation, station: Station) -> None:
        self.free[station.place.name] -= 1

    def ended(self, sim: Simulation, station: Station, attempt: Try) -> None:
        name = station.place.name
        self.free[name] += 1
        left = station.place.slots + self.drift[name] + self.step
        if attempt.failed and left >= self.floor and self._rng.random() < self.chance:
            self.free[name] += self.step
            self.drift[name] += self.step

    def error(self, attempt: Try) -> str:
        return "timed out"


class Hammering(Dispatcher):
    """Tries again at once, and again."""

    def __init__(self, max_tries: int, delay_s: float) -> None:
        super().__init__(max_tries=max_tries)
        self.delay_s = delay_s

    def retry_delay(self, tries: int) -> float:
        return self.delay_s

    def error(self, attempt: Try) -> str:
        return "connection refused"


class Patient(Dispatcher):
    """Leaves a host in trouble alone until it is well."""

    def is_usable(self, sim: Simulation, station: Station) -> bool:
        return super().is_usable(sim, station) and not station.place.is_broken(sim.now)
