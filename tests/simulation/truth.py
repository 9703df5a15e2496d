"""What was true of every waiting task at every moment, and whether what is told of its waits says just that.

The slow and obvious way: after each step every task in the queue is looked at, and what may be told of it from
then on is written down. `check` then holds each stretch of each task's waits against every moment inside it (E1,
promise 5).

It shares no code with the scheduler or the diagnosis. Gates, pauses, health and rates it works out from what
happened; money from the referee's books. Two things it takes on trust, because the rules leave them to the
scheduler: to how many slots a host has tuned itself, and how long a host that failed attempts counts as down.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from penstock.model import Attempt, Gate, Host, State, Task, TimedOutcome, Verdict, Wait
from penstock.scheduling import messages as m
from penstock.scheduling.details import Detail
from tests.simulation.words import check_words

if TYPE_CHECKING:
    from penstock.diagnosis.waits import Explainer
    from penstock.scheduling.scheduler import Scheduler
    from tests.simulation.referee import Referee, Row

NEAR = 1e-6
WINDOW_S = 60.0
LIVE = (State.QUEUED, State.RUNNING)
MAY_SUCCEED = (*LIVE, State.DONE)
TOLD = {"up": "ok", "half-open": "ok", "probing": "down", "rate-limited": "limited"}


class Answer(NamedTuple):
    """What may be told of a task at a moment: the reasons precedence demands, and what is paused, in words."""

    reasons: frozenset[str]
    paused: frozenset[str] = frozenset()
    kept: tuple[tuple[str, float], ...] | None = ()  # slots that others reserve and do not use; None: any


class Anything(frozenset[str]):
    def __contains__(self, word: object) -> bool:
        return True

    def __or__(self, more: object) -> Anything:
        return self


DEPENDENCY = Answer(frozenset({"dependency"}))
SCHEDULED = Answer(frozenset({"scheduled"}))
DOWN = Answer(frozenset({"dispatcher-down"}))
AWAY = Answer(frozenset({"store-down"}))
LATE = Answer(frozenset({"order"}))
TAKING_IN = Answer(frozenset({"order"}))
UNHEARD = Answer(Anything(), Anything(), None)  # as its class waited, which it did not belong to yet


class Piece(NamedTuple):
    start: float
    end: float
    answer: Answer


class Truth:
    def __init__(self, referee: Referee) -> None:
        self.referee = referee
        self.lines: dict[str, list[tuple[float, Answer | None]]] = defaultdict(list)
        self.all_paused = False
        self.paused: set[tuple[str, str]] = set()  # ("lane" | "host", name)
        after = {h.fallback.after_s for h in self.referee.plant.hosts if h.fallback}
        self.opens_after = sorted(after - {0.0})  # those are open from the start
        self.delayed: set[str] = set()  # started, and not begun
        self.unseen: set[str] = set()  # in the store, and no dispatcher has taken them in
        self.shapes: dict[tuple[object, ...], int] = {}  # tasks of one shape wait for the same
        self.shape_of: dict[str, int] = {}
        self.born(referee.now)

    # ---- dispatchers come and go

    def born(self, at: float, *, answering: bool = False) -> None:
        """A dispatcher begins. It knows what the store tells it, and nothing of hosts and probes."""
        self.alive = True
        self.answering = answering  # it answers a request and starts nothing
        self.taken_in = False
        self.born_at = at
        self.draining = self.away = False
        self.back_at = 0.0  # when the store was, the last time it had been away
        self.sick: dict[str, str] = {}  # and why
        self.doubted: set[str] = set()  # attempts failed there by the host's fault
        self.readings: dict[str, float | None] = {}
        self.limited_until: dict[str, float] = {}
        self.starts: dict[str, list[list[float]]] = defaultdict(list)  # host -> [at, tokens]
        self.timed: set[str] = set()  # whose end was heard of late, in this step
        self.hired: set[str] = set()  # who had a worker late, in this step
        # How long each had waited when it last stood in the queue or started, and which host had failed it.
        self.last_known: dict[str, tuple[float, str | None]] = {}

    def gone(self) -> None:
        self.alive = False
        for task in self.delayed:  # whoever comes may find that it has begun, or that nobody has it
            self._note(task, self.referee.now, UNHEARD)

    # ---- what happens

    def hear(self, events: Sequence[m.Event], now: float) -> None:
        """Before the scheduler's decisions are folded in: outcomes count for attempts that run."""
        self.taken_in = True
        self.timed.clear()
        self.hired = {e.task for e in events if isinstance(e, m.Began) and e.first is Detail.NO_WORKER}
        over: set[str] = set()
        for event in events:
            match event:
                case m.PauseSet("all", _, paused):
                    self.all_paused = paused
                case m.PauseSet(scope, name, paused):
                    (self.paused.add if paused else self.paused.discard)((scope, name))
                case m.HostHealth(host, True):
                    self.sick.pop(host, None)
                    self.doubted.discard(host)
                case m.HostHealth(host, False, why):
                    self.sick[host] = why
                case m.GateRead(gate, value):
                    self.readings[gate] = value
                case m.Drain():
                    self.draining = True
                case m.StoreAway(why, since):
                    if why is not None:
                        self._was_away(since, now)
                    self.back_at = now if self.away and why is None else self.back_at
                    self.away = why is not None
                case m.Finished(task, attempt) if task not in over:
                    row = self.referee.running.get(task)
                    if row is not None and row.attempts == attempt:
                        over.add(task)
                        self._learn(row, event, now)
                        if isinstance(event.outcome, TimedOutcome):
                            self.timed.add(task)
                case m.PutBack(task):
                    over.add(task)

    def _learn(self, row: Row, event: m.Finished, now: float) -> None:
        host, outcome = row.host or "", event.outcome
        if outcome.tokens is not None and self.starts[host]:
            self.starts[host][-1][1] += outcome.tokens - _tokens(row.task)
        if outcome.verdict is Verdict.HOST:
            self.doubted.add(host)
        elif outcome.verdict is Verdict.THROTTLED:
            until = now + (outcome.retry_after_s or 0.0)
            self.limited_until[host] = max(until, self.limited_until.get(host, 0.0))

    def follow(self, decisions: Iterable[m.Decision], now: float) -> None:
        for decision in decisions:
            match decision:
                case m.Start(task, _, host, at=at):
                    self._note(task, at, None)
                    self._know(self.referee.rows[task], now)
                    self.starts[host].append([at, _tokens(self.referee.rows[task].task)])
                case m.Revive(task):
                    self.last_known.pop(task, None)
                case m.Delay(task, _, host, _, since):
                    self._note(task, since, Answer(frozenset({f"worker:{host}"})))
                    self.delayed.add(task)
                case m.Begin(task, at=at) if task in self.delayed:
                    self._note(task, at, None)
                    self.delayed.discard(task)
                case m.Begin(task, _, host, at, since):
                    late = AWAY if self.away or self.back_at > since else LATE
                    if task in self.timed or task in self.hired:
                        late = Answer(late.reasons | {f"worker:{host}"})
                    self._note(task, since, late)
                    self._note(task, at, None)
                case m.End(task, attempt, at=at) if attempt and at < now:
                    self._was_met(task, at, now)
                case m.End(task, 0, at=at):
                    self._note(task, at, None)
                case m.Requeue(task, _, at, retry_at) if task in self.timed:
                    self._note(task, at, SCHEDULED)
                    self._note(task, min(retry_at, now), UNHEARD)
                case m.Requeue(task, at=at) if at < now:  # it ran when its dispatcher died
                    self._note(task, at, DOWN)
                    if not self.answering:
                        self._note(task, self.born_at, TAKING_IN)

    def _was_away(self, since: float, now: float) -> None:
        """That the store is away was noticed late: what was not paused may have waited for that already."""
        for line in self.lines.values():
            for place in _between(line, since, now):
                at, answer = line[place]
                if answer is not None and answer.reasons != {"paused"}:  # or it is too close to call
                    line[place] = at, answer._replace(reasons=answer.reasons | AWAY.reasons)

    def _was_met(self, task: str, at: float, now: float) -> None:
        """That a task had ended was heard of late by those that wait, or waited, after it."""
        for line in (self.lines[row.task.id] for row in self.referee.rows.values() if task in row.task.after):
            for place in _between(line, at, now):
                if line[place][1] is not None:
                    line[place] = line[place][0], UNHEARD

    # ---- the look at every task in the queue

    def look(self, now: float, *, foresee: bool = False) -> None:
        """With `foresee` also at those that are due before anybody looks again: time leaps."""
        self._known: dict[tuple[object, ...], Answer] = {}
        self.conditions = (
            {h.name: self._condition(h, now) for h in self.referee.plant.hosts} if self.alive else {}
        )
        self._claimants: list[Row] | None = None
        self._closed_now = {g.name for g in self.referee.plant.gates if self._closed(g)}
        rows = self.referee.rows
        for task in (*(self.referee.live - self.referee.running.keys()), *self.unseen):
            row = rows[task]
            doomed = False
            if row.task.after and not row.attempts:
                states = [rows[n].state for n in row.task.after]
                doomed = any(s not in MAY_SUCCEED for s in states)  # it ends when a dispatcher hears of it
                if any(s in LIVE for s in states) and not doomed:
                    self._note(task, now, DEPENDENCY)
                    continue
            due = max(row.task.not_before or 0.0, row.retry_at or 0.0, now)
            if due > now:
                self._note(task, now, Answer(SCHEDULED.reasons | DEPENDENCY.reasons) if doomed else SCHEDULED)
                if not foresee:
                    continue
            answer = self._held(row, now, seen=due == now)
            if doomed:
                answer = answer._replace(reasons=answer.reasons | DEPENDENCY.reasons)
            self._note(task, due, answer)

    def _held(self, row: Row, now: float, *, seen: bool) -> Answer:
        if not self.alive or self.answering:
            return DOWN
        if not self.taken_in:
            return TAKING_IN
        task = row.task
        seen = seen and task.id not in self.unseen
        waited = 0.0 if row.ready_at is None else now - row.ready_at
        if seen:
            self._know(row, now)
        known = None if seen else self.last_known.get(task.id, (0.0, None))
        surely = perhaps = 0
        if self.opens_after:
            surely, perhaps = (bisect_right(self.opens_after, waited + slack) for slack in (-NEAR, NEAR))
        alike = self._shape(task), row.failed_on, surely, perhaps, known
        answer = self._known.get(alike)
        if answer is None:
            answer = self._demanded(row, -NEAR, seen)
            others = []
            if surely != perhaps:  # a fallback opens within a millionth of a second: too close to call
                others.append(self._demanded(row, NEAR, seen=False))
            if known is not None:
                # Nor has anybody looked which fallback hosts are open to it now: it waits as when it last queued.
                then, failed_on = known
                before = replace(row, ready_at=now - then, failed_on=failed_on)
                others += [TAKING_IN, *(self._demanded(before, slack, seen) for slack in (-NEAR, NEAR))]
            for other in others:
                answer = Answer(answer.reasons | other.reasons, answer.paused | other.paused, kept=None)
            self._known[alike] = answer
        return answer

    def _know(self, row: Row, now: float) -> None:
        waited = 0.0 if row.ready_at is None else now - row.ready_at
        self.last_known[row.task.id] = waited, row.failed_on

    def _shape(self, task: Task) -> int:
        found = self.shape_of.get(task.id)
        if found is None:
            shape = (task.kind, task.lane, task.host, task.model, str(task.needs))
            found = self.shape_of[task.id] = self.shapes.setdefault(shape, len(self.shapes))
        return found

    def _demanded(self, row: Row, slack: float, seen: bool) -> Answer:
        """The rules of order, decision 6, from the first reason to the last."""
        task = row.task
        words = self._paused_words(task)
        if words:
            return Answer(frozenset({"paused"}), frozenset(words))
        if self.away:
            return AWAY
        shut = self._closed_now
        if shut and (
            closed := [g.name for g in self.referee.plant.gates if g.name in shut and _holds(g, task)]
        ):
            return Answer(frozenset(f"gate:{name}" for name in closed))
        if self.referee.thread_is_taken(row, row):
            return Answer(frozenset({f"gate:thread:{task.kind}"}))
        reach = self.referee.fitting_hosts(row, slack)
        is_out, books = self.referee.lane_is_out(task.lane), self.referee.books
        barred = [h for h in reach if books.costs_money(h.name)] if is_out else []
        hosts = [h for h in reach if h not in barred] if barred else reach
        by: dict[str, list[Host]] = defaultdict(list)
        for host in hosts:
            by[self.conditions[host.name]].append(host)
        out_of_money = frozenset({f"gate:budget:lane:{task.lane}"} if barred else ())
        if hosts and not barred and len(by["paused"]) == len(hosts):
            return Answer(frozenset({"paused"}), frozenset({f"{_names(hosts)} paused"}))
        if reach and len(by["paused"]) + len(by["gated"]) == len(hosts):
            return Answer(self._gates_of(by["gated"]) | out_of_money)
        if self._is_full(task.lane):
            return Answer(frozenset({f"lane:{task.lane}"}))
        if by["ok"]:
            return self._no_room(row, by["ok"], seen)
        if by["limited"]:
            return Answer(frozenset({f"rate:{_names(by['limited'])}"}))
        if barred:
            return Answer(out_of_money)
        spare = [h for h in by["gated"] if h.fallback is not None]
        if (
            spare and task.host is None
        ):  # the gate but for which it would not wait for the hosts that are down
            return Answer(self._gates_of(spare))
        return Answer(frozenset({"host-down"}))

    def _no_room(self, row: Row, able: Sequence[Host], seen: bool) -> Answer:
        referee = self.referee
        with_room = [h for h in able if referee.fits(row, h)]
        if not with_room:
            kept = [(lane.name, self._unused(lane.name, able)) for lane in referee.reserving]
            others = tuple((lane, n) for lane, n in kept if n and lane != row.task.lane)
            return Answer(frozenset({f"slots:{_names(able)}"}), kept=others)
        if self._claimants is None:
            self._claimants = referee.claimants()
        for host in with_room:
            kept_for = [c for c in self._claimants if c is not row and self._may_keep(c, host)]
            assert kept_for or not seen, f"{row.task.id} waits beside room on {host.name}"
        return Answer(frozenset({"order"}))

    def _may_keep(self, row: Row, host: Host) -> bool:
        """Rule 3 of the rules of order: units are kept for who waits for nothing but as many as it needs."""
        task, referee = row.task, self.referee
        held = self._paused_words(task) or self.away or self._is_full(task.lane)
        held = held or any(_holds(g, task) for g in referee.plant.gates if g.name in self._closed_now)
        if held or referee.thread_is_taken(row, row):
            return False
        return host in referee.fitting_hosts(row) and referee.could_hold(host, task)

    # ---- one condition each

    def _paused_words(self, task: Task) -> set[str]:
        words = {Detail.STOPPING.value} if self.draining else set()
        if self.all_paused:
            words.add("everything is paused")
        if ("lane", task.lane) in self.paused:
            words.add(f"lane {task.lane} is paused")
        return words

    def _closed(self, gate: Gate) -> bool:
        if gate.lane is not None:
            return self.referee.lane_running(gate.lane) > (gate.max_running or 0)
        value = self.readings.get(gate.name)
        if value is None:
            return gate.on_error == "closed"
        return (gate.min is not None and value < gate.min) or (gate.max is not None and value > gate.max)

    def _closed_for(self, host: Host) -> list[str]:
        names = [g.name for g in self.referee.plant.gates if host.name in g.holds_hosts and self._closed(g)]
        if not self.referee.gates.get(f"budget:{host.name}", True):
            names.append(f"budget:{host.name}")
        return names

    def _gates_of(self, hosts: Sequence[Host]) -> frozenset[str]:
        return frozenset(f"gate:{name}" for host in hosts for name in self._closed_for(host))

    def _is_full(self, name: str) -> bool:
        lane = self.referee.lanes.get(name)
        limit = None if lane is None else lane.max_running
        return limit is not None and self.referee.lane_running(name) >= limit

    def _unused(self, lane: str, hosts: Sequence[Host]) -> float:
        """Slots that a lane reserves on these hosts and does not hold."""
        unused = 0.0
        for host in hosts:
            reserved = self.referee.lanes[lane].reserve.get(host.name, {}).get("slots", 0.0)
            if reserved:
                unused += max(0.0, reserved - self.referee.held(host, lane)["slots"])
        return unused

    def _condition(self, host: Host, now: float) -> str:
        """Also held against what the scheduler told of the host."""
        told = self.referee.host_state.get(host.name, "up")
        if ("host", host.name) in self.paused:
            found = "paused"
        elif self._closed_for(host):
            found = "gated"
        elif host.name in self.sick or (host.name in self.doubted and told in ("down", "probing")):
            found = "down"
        elif self._is_limited(host, now):
            found = "limited"
        else:
            found = "ok"
        assert not self.taken_in or TOLD.get(told, told) == found, f"{host.name} is {found}, told: {told}"
        if self.taken_in and told == "down" and host.name in self.sick:
            why = self.referee.host_detail[host.name]
            assert why == self.sick[host.name], f"{host.name} is down, told: {why}"
        return found

    def _is_limited(self, host: Host, now: float) -> bool:
        if self.limited_until.get(host.name, 0.0) > now:
            return True
        if host.rate is None:
            return False
        lately = [tokens for at, tokens in self.starts[host.name] if at + WINDOW_S > now]
        requests, most = host.rate.requests_per_min, host.rate.tokens_per_min
        return (requests is not None and len(lately) >= requests) or (
            most is not None and sum(lately) >= most
        )

    # ---- writing down, and holding others to it

    def _note(self, task: str, at: float, answer: Answer | None) -> None:
        line = self.lines[task]
        while line and line[-1][0] >= at:
            line.pop()  # what was foreseen; or a step at the same moment, of which nothing is left
        if not line or line[-1][1] != answer:
            line.append((at, answer))

    def check_now(self, scheduler: Scheduler, now: float) -> None:
        """What the scheduler says at this moment."""
        for task in self.referee.live - self.referee.running.keys():
            reason = scheduler.waiting_reason(task)
            answer = self.lines[task][-1][1] if self.lines[task][-1][0] <= now else self.lines[task][-2][1]
            assert answer is not None
            if not self.answering:
                assert reason in answer.reasons, f"{task}: {reason}, but {_told(answer)}"

    def pieces(self, task: str, now: float) -> list[Piece]:
        """Its time in the queue."""
        line = self.lines[task]
        ends = [at for at, _ in line[1:]] + [now]
        return [
            Piece(at, min(end, now), answer)
            for (at, answer), end in zip(line, ends, strict=True)
            if answer is not None and min(end, now) > at
        ]

    def check(self, explainer: Explainer, tasks: Iterable[str], now: float) -> None:
        """Every stretch that is told of these tasks' waits."""
        held: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in self.referee.attempts.values():
            held[attempt.host].append(attempt)
        for task in tasks:
            row = self.referee.rows[task]
            waits = explainer.waits(row.record())
            pieces = self.pieces(task, now)
            self._check_tiling(task, waits, pieces)
            for wait in waits:
                inside = [p for p in pieces if p.start < wait.end and p.end > wait.start]
                for piece in inside:
                    assert wait.reason in piece.answer.reasons, (
                        f"{task}: {wait}, but from {piece.start} to {piece.end} {_told(piece.answer)}"
                    )
                check_words(held, row.task, wait, inside, explainer)

    def _check_tiling(self, task: str, waits: Sequence[Wait], pieces: Sequence[Piece]) -> None:
        spans = [(w.start, w.end) for w in waits]
        assert all(start < end for start, end in spans), f"{task}: a wait without length: {spans}"
        assert all(one[1] <= next_[0] for one, next_ in pairwise(spans)), f"{task}: waits overlap: {spans}"
        told, true = merged(spans), merged((p.start, p.end) for p in pieces)
        assert told == true, f"{task}: waits {told} do not tile {true}"


def _between(line: list[tuple[float, Answer | None]], since: float, now: float) -> range:
    """The places of what was true from then till now, with one at its very beginning."""
    first = bisect_right(line, since, key=lambda noted: noted[0])
    if first and line[first - 1][0] == since:
        first -= 1
    elif first and since < now:
        line.insert(first, (since, line[first - 1][1]))
    return range(first, bisect_left(line, now, key=lambda noted: noted[0]))


def _told(answer: Answer) -> str:
    return " or ".join(sorted(answer.reasons)) + " is true"


def _names(hosts: Sequence[Host]) -> str:
    """Own hosts first, then fallback hosts by the wait that opens them; the order of the config among equals."""
    return ",".join(h.name for h in sorted(hosts, key=lambda h: h.fallback.after_s if h.fallback else -1.0))


def _holds(gate: Gate, task: Task) -> bool:
    return task.lane in gate.holds_lanes or task.kind in gate.holds_kinds


def _tokens(task: Task) -> float:
    return (task.needs or {}).get("tokens", 0.0)


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in spans:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged
