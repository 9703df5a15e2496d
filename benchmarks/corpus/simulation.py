"""Runs generated work on generated hosts under some dispatcher, event by event, and keeps the truth of it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from benchmarks.corpus.world import GateRule, Key, LaneRule, Place, Story, Ticket, Try, Work, key_of

if TYPE_CHECKING:
    from benchmarks.corpus.dispatchers import Dispatcher

NEAR_S = 1e-9


@dataclass(slots=True)
class Runner:
    """An attempt under way: what is left of its work, counted down at its host's rates."""

    ticket: Ticket
    attempt: Try
    left_s: float


@dataclass(slots=True)
class Station:
    """A host at work."""

    place: Place
    runners: list[Runner] = field(default_factory=list)
    at: float = 0.0
    version: int = 0
    warm_at: float = 0.0
    loaded: str | None = None
    used: bool = False
    idle_since: float = 0.0
    next_start: float = 0.0
    starts: int = 0

    def advance(self, now: float) -> None:
        if now > self.at and self.runners:
            for runner, rate in zip(self.runners, self.rates(), strict=True):
                runner.left_s -= rate * (now - self.at)
        self.at = now

    def rates(self) -> Sequence[float]:
        return self.place.law.rates([r.ticket.work.blocks for r in self.runners])

    def next_end(self) -> float | None:
        ends = [
            self.at + max(0.0, r.left_s) / rate
            for r, rate in zip(self.runners, self.rates(), strict=True)
            if rate > 0
        ]
        return min(ends, default=None)

    def load_s(self, model: str | None, now: float) -> float:
        """How long an attempt that starts now waits for what must be loaded."""
        cold = self.place.cold
        if cold is None:
            return 0.0
        idle = not self.runners and now - self.idle_since > cold.idle_s
        other = cold.per_model and model != self.loaded
        if not self.used or idle or other:
            self.warm_at = now + cold.load_s
        self.used, self.loaded = True, model
        return max(0.0, self.warm_at - now)


class Simulation:
    def __init__(
        self,
        works: Sequence[Work],
        places: Sequence[Place],
        dispatcher: Dispatcher,
        lanes: dict[str, LaneRule] | None = None,
        gates: Sequence[GateRule] = (),
    ) -> None:
        self.works = works
        self.stations = {p.name: Station(p) for p in places}
        self.dispatcher = dispatcher
        self.lanes = lanes or {}
        self.gates = gates
        self.now = 0.0
        self.waiting: dict[Key, list[tuple[float, int, Ticket]]] = {}
        self.running_in: dict[str, int] = {}
        self.started_in: dict[str, float] = {}
        self.blockers = 0
        self._unseen: list[tuple[Station, Runner]] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._fitting: dict[Key, list[Station]] = {}
        self._left = len(works)
        self._tries: list[Try] = []
        self._stretches: dict[Key, list[tuple[float, str | None, str]]] = {}
        self._ended: dict[str, float] = {}
        self._met: dict[str, float] = {}
        self._needs: dict[str, int] = {}
        self._followers: dict[str, list[Ticket]] = {}
        self._gates_open: dict[str, bool] = {}
        self._gate_turns: list[tuple[float, str, bool]] = []
        self._idle_s = 0.0
        self._idle = False
        self._blocked: list[Try] = []
        self._waited: dict[str, float] = {}

    # ---- what dispatchers ask

    def fitting(self, key: Key) -> list[Station]:
        if key not in self._fitting:
            self._fitting[key] = [
                s for s in self.stations.values() if s.place.fits(key.kind, key.host, key.model)
            ]
        return self._fitting[key]

    def gate_holding(self, lane: str) -> GateRule | None:
        for gate in self.gates:
            if lane in gate.holds and not self._is_open(gate):
                return gate
        return None

    def lane_is_full(self, lane: str) -> bool:
        rule = self.lanes.get(lane)
        limit = rule.max_running if rule else None
        return limit is not None and self.running_in.get(lane, 0) >= limit

    def reserved(self, host: str, lane: str) -> int:
        """Slots of a host that other lanes keep for themselves and do not use."""
        kept = 0
        for name, rule in self.lanes.items():
            if name == lane:
                continue
            mine = sum(1 for r in self.stations[host].runners if r.ticket.work.lane == name)
            kept += sum(max(0, n - mine) for h, n in rule.reserve if h == host)
        return kept

    def wake_at(self, at: float) -> None:
        self._push(at, lambda: None)

    # ---- the run

    def run(self) -> Story:
        for seq, work in enumerate(sorted(self.works, key=lambda w: w.at)):
            ticket = Ticket(work, seq, key_of(work), work.at)
            self._push(work.at, lambda t=ticket: self._arrive(t))  # type: ignore[misc]
        for station in self.stations.values():
            place = station.place
            turns = [t for stretch in (*place.down, *place.broken) for t in stretch]
            for at in [*turns, *(at for at, _ in place.slots_later)]:
                self.wake_at(at)
        for gate in self.gates:
            for at in gate.turns():
                self.wake_at(at)
        self.dispatcher.begin(self)
        while self._left:
            if not self._heap:
                raise RuntimeError(f"{self._left} tasks wait for ever under {type(self.dispatcher).__name__}")
            self._step()
        return Story(
            works=sorted(self.works, key=lambda w: w.at),
            tries=sorted(self._tries, key=lambda t: (t.start, t.task, t.number)),
            stretches=self._stretches,
            met=self._met,
            ended=self._ended,
            gate_turns=self._gate_turns,
            idle_s=self._idle_s,
            blocked=self._blocked,
            waited=self._waited,
        )

    def _push(self, at: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (at, next(self._order), act))

    def _step(self) -> None:
        at = self._heap[0][0]
        if self._idle:
            self._idle_s += at - self.now
        self.now = max(self.now, at)
        while self._heap and self._heap[0][0] <= at + NEAR_S:
            heapq.heappop(self._heap)[2]()
        self._watch_gates()
        if self.dispatcher.is_awake(self):
            while (choice := self.dispatcher.choose(self)) is not None:
                self._start(*choice)
                self._watch_gates()
        self._explain()

    def _arrive(self, ticket: Ticket) -> None:
        work = ticket.work
        missing = [t for t in work.after if t not in self._ended]
        if missing:
            self._needs[work.id] = len(missing)
            for other in missing:
                self._followers.setdefault(other, []).append(ticket)
        else:
            self._met[work.id] = self.now
            self._enqueue(ticket)

    def _enqueue(self, ticket: Ticket) -> None:
        ticket.since = self.now
        if not ticket.tries:
            ticket.first_ready = self.now
        queue = self.waiting.setdefault(ticket.key, [])
        heapq.heappush(queue, (self.dispatcher.rank(ticket), ticket.seq, ticket))

    def _start(self, key: Key, station: Station) -> None:
        ticket = heapq.heappop(self.waiting[key])[2]
        now, work, place = self.now, ticket.work, station.place
        self._waited[work.id] = self._waited.get(work.id, 0.0) + now - ticket.since
        ticket.tries += 1
        self.running_in[work.lane] = self.running_in.get(work.lane, 0) + 1
        self.started_in[work.lane] = self.started_in.get(work.lane, 0.0) + 1
        station.advance(now)
        station.starts += 1
        failing = place.is_broken(now) or ticket.tries <= len(work.fails)
        work_s = place.breaks_s if place.is_broken(now) else work.work_s / place.speed
        if not place.is_broken(now) and failing:
            work_s = work.fails[ticket.tries - 1] / place.speed
        work_s += station.load_s(work.model, now)
        attempt = Try(work.id, ticket.tries, place.name, now, now, failing)
        station.runners.append(Runner(ticket, attempt, work_s))
        if place.starts_per_s is not None:
            station.next_start = now + 1 / place.starts_per_s
            self.wake_at(station.next_start)
        if work.blocks:
            self.blockers += 1
            self._blocked.append(attempt)
        self.dispatcher.started(self, station)
        self._expect(station)

    def _expect(self, station: Station) -> None:
        station.version += 1
        at = station.next_end()
        if at is not None:
            self._push(max(at, self.now), lambda v=station.version: self._look(station, v))  # type: ignore[misc]

    def _look(self, station: Station, version: int) -> None:
        if version != station.version:
            return
        station.advance(self.now)
        for runner in [r for r in station.runners if r.left_s <= NEAR_S * 10]:
            station.runners.remove(runner)
            if self.dispatcher.sees_ends_late and self.blockers and not runner.ticket.work.blocks:
                self._unseen.append((station, runner))
            else:
                self._end(station, runner)
        self._expect(station)

    def _end(self, station: Station, runner: Runner) -> None:
        ticket, attempt, now = runner.ticket, runner.attempt, self.now
        work = ticket.work
        attempt.end = now
        self._tries.append(attempt)
        self.running_in[work.lane] -= 1
        if not station.runners:
            station.idle_since = now
        if work.blocks:
            self.blockers -= 1
        self.dispatcher.ended(self, station, attempt)
        gives_up = attempt.failed and (
            ticket.tries >= self.dispatcher.max_tries or (work.dies and ticket.tries >= len(work.fails))
        )
        if attempt.failed:
            attempt.error = self.dispatcher.error(attempt)
        if attempt.failed and not gives_up:
            attempt.retry_at = now + self.dispatcher.retry_delay(ticket.tries)
            self._push(attempt.retry_at, lambda: self._enqueue(ticket))
        else:
            self._close(work, now)
        if work.blocks and not self.blockers:
            for other, unseen in self._unseen:
                self._end(other, unseen)
            self._unseen = []

    def _close(self, work: Work, now: float) -> None:
        self._ended[work.id] = now
        self._left -= 1
        for follower in self._followers.get(work.id, ()):
            self._needs[follower.work.id] -= 1
            if not self._needs[follower.work.id]:
                self._met[follower.work.id] = now
                self._push(now, lambda f=follower: self._enqueue(f))  # type: ignore[misc]

    # ---- the truth

    def _is_open(self, gate: GateRule) -> bool:
        return gate.is_open(self.now, self.running_in.get(gate.watches or "", 0))

    def _watch_gates(self) -> None:
        for gate in self.gates:
            is_open = self._is_open(gate)
            if self._gates_open.get(gate.name) is not is_open:
                self._gates_open[gate.name] = is_open
                self._gate_turns.append((self.now, gate.name, is_open))

    def _explain(self) -> None:
        """Of every key that waits: what for, where that changed; and whether room that fits lies idle."""
        self._idle = False
        for key, queue in self.waiting.items():
            known = self._stretches.setdefault(key, [])
            if not queue:
                if known and known[-1][1] is not None:
                    known.append((self.now, None, ""))
                continue
            reason, detail = self.reason(key)
            if not known or known[-1][1:] != (reason, detail):
                known.append((self.now, reason, detail))
            if reason == "order" or reason.startswith(("lane:", "slots:")):
                self._idle = self._idle or any(
                    len(s.runners) + self._held(s) < s.place.slots_at(self.now)
                    for s in self.fitting(key)
                    if not s.place.is_down(self.now)
                )

    def _held(self, station: Station) -> int:
        return sum(1 for s, _ in self._unseen if s is station)

    def reason(self, key: Key) -> tuple[str, str]:
        gate = self.gate_holding(key.lane)
        if gate is not None:
            watched = f"running({gate.watches}) > {gate.max_running}"
            return f"gate:{gate.name}", gate.says or watched
        if self.lane_is_full(key.lane):
            return f"lane:{key.lane}", f"{self.running_in[key.lane]} running, its max_running"
        fitting = self.fitting(key)
        up = [s for s in fitting if not s.place.is_down(self.now)]
        if not up:
            return "host-down", ", ".join(s.place.name for s in fitting)
        slow = [s for s in up if s.next_start > self.now + NEAR_S]
        if slow and len(slow) == len(up):
            return f"rate:{slow[0].place.name}", "as many starts as its rate allows"
        if all(self.dispatcher.room(self, s, key) <= 0 for s in up):
            return "slots:" + ",".join(s.place.name for s in up), ""
        return "order", self.dispatcher.excuse
