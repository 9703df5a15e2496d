"""Writes down what happened: as Penstock would have recorded it, or as another system's log tells it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from benchmarks.corpus.world import GateRule, LaneRule, Place, Story, Try, Work, key_of
from penstock.diagnosis.history import Change, Stalled
from penstock.diagnosis.recording import Recording
from penstock.model import Attempt, Gate, Host, Lane, Plant, State, Task, TaskRecord, Verdict, Wait
from penstock.scheduling.messages import GateChange, HostChange

ALWAYS_TOLD = frozenset({"task", "started", "ended"})
MAYBE_TOLD = ("kind", "lane", "host", "model", "priority", "queued", "state", "attempt", "error")
# What stands where a log says nothing.
NO_KIND, NO_HOST, NO_LANE = "task", "", "default"


@dataclass(frozen=True, slots=True)
class Setup:
    """Work, the hosts it runs on, and the rules it runs under."""

    works: Sequence[Work]
    places: Sequence[Place]
    lanes: Mapping[str, LaneRule] = field(default_factory=dict)
    gates: Sequence[GateRule] = ()
    aging_s: float = 300.0

    def plant(self) -> Plant:
        names = dict.fromkeys([*self.lanes, *(w.lane for w in self.works)])
        rules = {name: self.lanes.get(name, LaneRule()) for name in names}
        return Plant(
            hosts=tuple(
                Host(
                    p.name,
                    "simulated",
                    slots=p.slots,
                    serves=p.serves,
                    model=p.model,
                    models=(p.model,) if p.model else (),
                )
                for p in self.places
            ),
            lanes=tuple(
                Lane(
                    name,
                    max_running=rule.max_running,
                    reserve={host: {"slots": float(n)} for host, n in rule.reserve},
                    weight=rule.weight,
                )
                for name, rule in rules.items()
            ),
            gates=tuple(
                Gate(
                    g.name,
                    lane=g.watches,
                    max_running=g.max_running,
                    probe=g.probe,
                    min=3.0 if g.probe else None,
                    holds_lanes=g.holds,
                )
                for g in self.gates
            ),
            aging_s=self.aging_s,
        )


@dataclass(frozen=True, slots=True)
class Clock:
    """How a log's times are off: rounded, and those of starts and ends written a little late."""

    late_s: float = 0.0
    round_s: float = 0.0


# ---- as ours


def ours(setup: Setup, story: Story, name: str, epoch: float) -> Recording:
    """With the plant, every wait and its reason, what became of hosts and gates, and what the watchdog saw."""
    tries = _by_task(story)
    return Recording(
        name=name,
        begin=epoch + min(w.at for w in story.works),
        end=epoch + max(story.ended.values()),
        tasks=[_record(w, i, tries[w.id], story, epoch, name) for i, w in enumerate(story.works, 1)],
        attempts=_attempts(story, epoch),
        waits={w.id: _waits(w, tries[w.id], story, epoch) for w in story.works},
        plant=setup.plant(),
        changes=_changes(setup, story, epoch),
        stalls=[
            Stalled(
                t.task, t.number, t.host, epoch + t.end, t.end - t.start, "handler.py:12 in run: sleep(s)"
            )
            for t in story.blocked
        ],
    )


def _by_task(story: Story) -> dict[str, list[Try]]:
    tries: dict[str, list[Try]] = {w.id: [] for w in story.works}
    for attempt in story.tries:
        tries[attempt.task].append(attempt)
    return tries


def _attempts(story: Story, epoch: float) -> list[Attempt]:
    works = {w.id: w for w in story.works}
    classes = {key: i for i, key in enumerate(story.stretches)}
    return [
        Attempt(
            task=t.task,
            number=t.number,
            host=t.host,
            lane=works[t.task].lane,
            started_at=epoch + t.start,
            work_class=classes[key_of(works[t.task])],
            ended_at=epoch + t.end,
            verdict=_verdict(t),
            error=t.error,
            retry_at=None if t.retry_at is None else epoch + t.retry_at,
        )
        for t in story.tries
    ]


def _verdict(attempt: Try) -> Verdict:
    if not attempt.failed:
        return Verdict.DONE
    return Verdict.PERMANENT if attempt.retry_at is None else Verdict.TEMPORARY


def _record(
    work: Work, number: int, tries: Sequence[Try], story: Story, epoch: float, run: str
) -> TaskRecord:
    failed = sum(t.failed for t in tries)
    last = tries[-1]
    return TaskRecord(
        task=Task(
            work.kind,
            priority=work.priority,
            lane=work.lane,
            run=run,
            after=work.after,
            host=work.host,
            model=work.model,
            id=work.id,
            queued_at=epoch + work.at,
        ),
        number=number,
        state=State.FAILED if last.failed else State.DONE,
        attempts=len(tries),
        tries=failed,
        host=last.host,
        started_at=epoch + last.start,
        ended_at=epoch + story.ended[work.id],
        error=last.error,
    )


def _waits(work: Work, tries: Sequence[Try], story: Story, epoch: float) -> list[Wait]:
    """From when it was queued to its first start, and from each failure to the next."""
    pieces: list[tuple[str, str, float, float]] = []
    since, ready = work.at, story.met[work.id]
    told = "dependency", ", ".join(work.after[:5])
    for attempt in tries:
        pieces.append((*told, since, ready))
        pieces += _cut(story.stretches[key_of(work)], ready, attempt.start)
        since, ready = attempt.end, attempt.retry_at or attempt.end
        told = "scheduled", f"between tries, after: {attempt.error}"
    return [Wait(r, d, epoch + a, epoch + b) for r, d, a, b in pieces if b > a]


def _cut(
    stretches: Sequence[tuple[float, str | None, str]], start: float, end: float
) -> list[tuple[str, str, float, float]]:
    pieces = []
    i = max(0, bisect_right(stretches, start, key=lambda s: s[0]) - 1)
    while start < end:
        until = min(end, stretches[i + 1][0]) if i + 1 < len(stretches) else end
        reason, detail = stretches[i][1:]
        if until > start:
            pieces.append((reason or "order", detail, start, until))
        start = max(start, until)
        i += 1
    return pieces


def _changes(setup: Setup, story: Story, epoch: float) -> list[Change]:
    changes: list[Change] = []
    for p in setup.places:
        changes.append(HostChange(p.name, epoch, "up", p.slots, ""))
        for a, b in p.down:
            changes.append(HostChange(p.name, epoch + a, "down", p.slots_at(a), "its health check fails"))
            changes.append(HostChange(p.name, epoch + b, "up", p.slots_at(b), ""))
        changes += [HostChange(p.name, epoch + at, "up", n, "set by hand") for at, n in p.slots_later]
    gates = {g.name: g for g in setup.gates}
    for at, name, is_open in story.gate_turns:
        gate = gates[name]
        why = "" if is_open else gate.says or f"running({gate.watches}) > {gate.max_running}"
        changes.append(GateChange(name, epoch + at, is_open, why))
    return sorted(changes, key=lambda c: c.at)


# ---- as a log of another system


def foreign(
    story: Story, name: str, epoch: float, told: frozenset[str], clock: Clock, rng: Random
) -> Recording:
    """Only attempts, and of these and their tasks only the columns that are told."""

    def time(at: float) -> float:
        return epoch + (round(at / clock.round_s) * clock.round_s if clock.round_s else at)

    def late(at: float) -> float:
        return time(at + rng.uniform(0.0, clock.late_s))

    works = {w.id: w for w in story.works}
    attempts = []
    for t in story.tries:
        start = late(t.start)
        attempts.append(
            Attempt(
                task=t.task,
                number=t.number,
                host=t.host if "host" in told else NO_HOST,
                lane=works[t.task].lane if "lane" in told else NO_LANE,
                started_at=start,
                work_class=0,
                ended_at=max(start, late(t.end)),
                verdict=_verdict(t) if "state" in told else Verdict.DONE,
                error=t.error if "error" in told else None,
            )
        )
    attempts.sort(key=lambda a: (a.started_at, a.task, a.number))
    records = _records_of_log(attempts, works, story, name, told, time)
    return Recording(
        name=name,
        begin=min(r.task.queued_at for r in records),
        end=max(a.ended_at or 0.0 for a in attempts),
        tasks=records,
        attempts=attempts,
        told=told,
    )


def _records_of_log(
    attempts: Sequence[Attempt],
    works: Mapping[str, Work],
    story: Story,
    name: str,
    told: frozenset[str],
    time: Callable[[float], float],
) -> list[TaskRecord]:
    """A task that has no time of queueing counts as queued when it first started."""
    mine: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        mine.setdefault(attempt.task, []).append(attempt)
    records = []
    for id, own in mine.items():
        work, last = works[id], own[-1]
        first = own[0].started_at
        # Systems without dependencies in their logs queue a task when it may run.
        queued = work.at if "after" in told else story.met[id]
        failed = last.verdict is not Verdict.DONE
        task = Task(
            work.kind if "kind" in told else NO_KIND,
            priority=work.priority if "priority" in told else 2,
            lane=work.lane if "lane" in told else NO_LANE,
            run=name,
            after=work.after if "after" in told else (),
            model=work.model if "model" in told else None,
            id=id,
            queued_at=min(first, time(queued)) if "queued" in told else first,
        )
        records.append(
            TaskRecord(
                task=task,
                number=0,
                state=State.FAILED if failed else State.DONE,
                attempts=len(own),
                tries=sum(a.verdict is not Verdict.DONE for a in own),
                host=last.host or None,
                started_at=last.started_at,
                ended_at=last.ended_at,
                error=last.error,
            )
        )
    records.sort(key=lambda r: r.task.queued_at)
    return [replace(r, number=i) for i, r in enumerate(records, 1)]
