"""Why one task waits, waited, or still runs: its stretches, who held what, what lets it start, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.diagnosis.history import History, Ran
from penstock.diagnosis.waits import Explainer
from penstock.diagnosis.why.durations import Durations, quantile
from penstock.diagnosis.why.helping import find_help, foreseen
from penstock.diagnosis.why.holders import Holder, held_by
from penstock.diagnosis.why.prediction import Prediction, predict_end_of_attempt, predict_start
from penstock.diagnosis.why.present import HostNow, Present
from penstock.diagnosis.why.question import Course, course_of
from penstock.diagnosis.why.remedies import Case, Remedy, remedies, starts_when
from penstock.model import State, TaskRecord, Wait
from penstock.scheduling.gates import THREAD
from penstock.scheduling.messages import HostChange
from penstock.scheduling.reasons import STORE_DOWN

_MOST_BLOCKERS = 10
_MOST_TRIED = 2  # changes that are played


class Part(NamedTuple):
    """A stretch of the wait, and who held what was waited for."""

    wait: Wait
    share: float
    holders: tuple[Holder, ...]

    def as_record(self) -> dict[str, Any]:
        return {
            **self.wait.as_record(),
            "seconds": round(self.wait.seconds, 6),
            "share": round(self.share, 4),
            "holders": [holder.as_record() for holder in self.holders],
        }


class Blocker(NamedTuple):
    """What a queued task waits for right now: `what` is a task, a gate, a host, or the dispatcher."""

    what: str
    name: str
    detail: str

    def as_record(self) -> dict[str, str]:
        return self._asdict()


class Typical(NamedTuple):
    """What is usual, in seconds: the median, and 10 % to 90 %, of so many."""

    seconds: float
    least_s: float
    most_s: float
    number: int

    def as_record(self) -> dict[str, float]:
        return {
            "seconds": round(self.seconds, 3),
            "least_s": round(self.least_s, 3),
            "most_s": round(self.most_s, 3),
            "count": self.number,
        }


class HostDown(NamedTuple):
    """Where a running task runs is down: a cluster that cannot be reached. Nobody hears how it fares."""

    since: float
    detail: str

    def as_record(self) -> dict[str, Any]:
        return self._asdict()


@dataclass(frozen=True, slots=True)
class Why:
    record: TaskRecord
    now: float
    parts: tuple[Part, ...]
    interrupted: bool = False  # it is said to run, but its dispatcher is dead
    stopping_since: float | None = None  # it was told to end, and runs until it does
    host_down: HostDown | None = None  # of one that runs on
    undispatched_since: float | None = None  # it goes on elsewhere, and nobody is there to hear how it fares
    silent_since: float | None = None  # it waits, and whoever dispatches has written nothing since then
    blocked_by: tuple[Blocker, ...] = ()
    starts_when: str | None = None
    remedy: Remedy | None = None
    in_vain: tuple[str, ...] = ()  # changes that were played and would not help
    predicted_start: Prediction | None = None
    predicted_end: Prediction | None = None
    typical_wait: Typical | None = None  # of tasks of its lane and kind
    typical_run: Typical | None = None  # of attempts like it
    course: Course | None = None  # of a question to a council: its steps, for which alone it runs

    @property
    def waited_s(self) -> float:
        return sum(part.wait.seconds for part in self.parts)

    @property
    def ran_s(self) -> float | None:
        """How long its last attempt has run, or ran."""
        record = self.record
        if record.started_at is None or record.state is State.QUEUED:
            return None
        return (self.now if record.ended_at is None else record.ended_at) - record.started_at

    @property
    def reasons(self) -> list[tuple[str, float, str]]:
        """Each reason with its seconds and, in short, the detail of its longest stretch; the largest first."""
        stretches: dict[str, list[Part]] = defaultdict(list)
        for part in self.parts:
            stretches[part.wait.reason].append(part)
        summed: list[tuple[str, float, str]] = []
        for reason, parts in stretches.items():
            longest = max(parts, key=lambda part: part.wait.seconds)
            detail = held_by(longest.holders, named=False) or longest.wait.detail
            summed.append((reason, sum(part.wait.seconds for part in parts), detail))
        return sorted(summed, key=lambda one: -one[1])

    def as_record(self) -> dict[str, Any]:
        record = self.record
        return {
            "task_id": record.task.id,
            "run": record.task.run,
            "kind": record.task.kind,
            "lane": record.task.lane,
            "priority": record.task.priority,
            "state": str(record.state),
            "interrupted": self.interrupted,
            "stopping_since": self.stopping_since,
            "host_down": None if self.host_down is None else self.host_down.as_record(),
            "undispatched_since": self.undispatched_since,
            "silent_since": self.silent_since,
            "host": record.host,
            "attempts": record.attempts,
            "queued_at": record.task.queued_at,
            "started_at": record.started_at,
            "ended_at": record.ended_at,
            "waited_s": self.waited_s,
            "waits": [part.as_record() for part in self.parts],
            "blocked_by": [blocker.as_record() for blocker in self.blocked_by],
            "starts_when": self.starts_when,
            "remedy": None if self.remedy is None else self.remedy.as_record(),
            "in_vain": list(self.in_vain),
            "predicted_start": None if self.predicted_start is None else self.predicted_start.as_record(),
            "predicted_end": None if self.predicted_end is None else self.predicted_end.as_record(),
            "typical_wait": None if self.typical_wait is None else self.typical_wait.as_record(),
            "typical_run": None if self.typical_run is None else self.typical_run.as_record(),
            "course": None if self.course is None else self.course.as_record(),
        }


def explain_question(record: TaskRecord, history: History, asked: History, present: Present) -> Why:
    """With what it waits for while it runs: its steps, which `asked` has."""
    told = explain(record, history, present)
    if all(one.kind != record.task.kind for one in present.queue.ran):
        # How long calls of models take tells nothing of questions.
        told = replace(told, predicted_end=None, typical_run=None)
    return replace(told, course=course_of(record, asked, present.plant, present.now))


def explain(record: TaskRecord, history: History, present: Present) -> Why:
    now = present.now
    explainer = Explainer(history, now)
    waits = explainer.waits(record)
    total = sum(wait.seconds for wait in waits)
    parts = tuple(
        Part(
            wait,
            wait.seconds / total if total else 0.0,
            explainer.holders(wait.reason, wait.start, wait.end),
        )
        for wait in waits
    )
    usual = typical_wait(present.queue.ran, record)
    if record.state is State.QUEUED or record.is_delayed:
        reason, detail = (waits[-1].reason, waits[-1].detail) if waits else ("order", "")
        if present.heard_at is not None and reason not in ("dependency", "scheduled"):
            # What it waited for last is old news: that nothing is written holds it now.
            return Why(
                record,
                now,
                parts,
                silent_since=present.heard_at,
                blocked_by=(
                    Blocker("dispatcher", "", f"has written nothing for {now - present.heard_at:.0f} s"),
                ),
                starts_when=starts_when(STORE_DOWN),
                remedy=remedies(STORE_DOWN, present.plant)[0],
                typical_wait=usual,
            )
        starts = None if record.is_delayed else predict_start(present, record)
        options = remedies(reason, present.plant, _case(record, reason, waits, present))
        helps, in_vain = _help(present, record, starts, options)
        return Why(
            record,
            now,
            parts,
            blocked_by=tuple(_blockers(record, reason, waits, history, present))[:_MOST_BLOCKERS],
            starts_when=starts_when(reason, detail),
            remedy=helps,
            in_vain=in_vain,
            predicted_start=starts,
            typical_wait=usual,
        )
    lengths = Durations(present.queue.ran).of(record.host or "", record.task)
    runs = None if lengths is None else _typical(lengths.seconds)
    if record.state is State.RUNNING and not present.dispatched:
        left = Why(record, now, parts, typical_wait=usual, typical_run=runs)
        if record.host not in present.plant.outliving:
            return replace(left, interrupted=True)
        return replace(left, undispatched_since=_undispatched_since(history, now))
    down = _host_down(record, history, present)
    # Else its end is heard of when its host is back.
    foreseen = record.state is State.RUNNING and down is None
    ends = predict_end_of_attempt(present, record) if foreseen else None
    return Why(record, now, parts, host_down=down, predicted_end=ends, typical_wait=usual, typical_run=runs)


def _help(
    present: Present, record: TaskRecord, starts: Prediction | None, options: Sequence[Remedy]
) -> tuple[Remedy | None, tuple[str, ...]]:
    """What lets it start sooner, found by playing the present on under the changed plant."""
    if starts is None or options[0].change is None:
        return find_help(options, None)

    def predict(present: Present, whatever_s: float | None) -> Prediction:
        return predict_start(present, record, whatever_s)

    return find_help(options[:_MOST_TRIED], foreseen(present, starts, predict, "it would start"))


def _undispatched_since(history: History, now: float) -> float:
    """The last sign of life of whoever dispatched last."""
    lives = [
        e.seen_at if e.ended_at is None else e.ended_at for e in history.epochs if not e.owner.answers_only
    ]
    return max(lives, default=now)


def _host_down(record: TaskRecord, history: History, present: Present) -> HostDown | None:
    """Only of one that runs elsewhere: what runs here ends with what it needs, and says so."""
    host = record.host
    if record.state is not State.RUNNING or not present.dispatched or host not in present.plant.outliving:
        return None
    found: HostDown | None = None
    for change in history.changes:
        if isinstance(change, HostChange) and change.host == host:
            since = change.at if found is None else found.since
            found = HostDown(since, change.detail) if change.state == "down" else None
    return found


# ---- what is usual


def typical_wait(ran: Iterable[Ran], record: TaskRecord) -> Typical | None:
    """How long tasks of its lane and kind waited for their first start, of late."""
    task = record.task
    waits = [
        max(0.0, one.started_at - one.queued_at)
        for one in ran
        if one.number == 1 and one.lane == task.lane and one.kind == task.kind
    ]
    return _typical(sorted(waits)) if waits else None


def _typical(ordered: Sequence[float]) -> Typical:
    least, median, most = (quantile(ordered, level) for level in (0.1, 0.5, 0.9))
    return Typical(median, least, most, len(ordered))


# ---- what it waits for right now


def _blockers(
    record: TaskRecord, reason: str, waits: Sequence[Wait], history: History, present: Present
) -> Iterable[Blocker]:
    name, _, target = reason.partition(":")
    if not present.dispatched and name not in ("dependency", "scheduled"):
        apart = (e.owner.apart for e in history.epochs if e.ended_at is None and e.owner.only_run)
        yield Blocker("dispatcher", "", next(apart, "none is running"))
        hosts = [(host.name, present.hosts.get(host.name)) for host in present.plant.fitting(record.task)]
        if all(now is not None and now.fault is not None and now.fault.needs_fix for _, now in hosts):
            yield from (Blocker("host", name, _state(name, now)) for name, now in hosts)
    elif name == "dependency":
        for needed in record.task.after:
            other = history.dependencies.get(needed)
            if other is None or other.state is not State.DONE:
                yield Blocker("task", needed, "unknown" if other is None else str(other.state))
    elif name == "slots":
        yield from _running(present, lambda one: one.host in target.split(","))
    elif name == "lane":
        yield from _running(present, lambda one: one.task.lane == target)
    elif name == "gate":
        gate = next((one for one in present.plant.gates if one.name == target), None)
        yield Blocker("gate", target, _detail(reason, waits, present))
        if target.startswith(THREAD):
            yield from _running(present, lambda one: one.task.kind == target.removeprefix(THREAD))
        if gate is not None and gate.lane is not None:
            yield from _running(present, lambda one: one.task.lane == gate.lane)
    elif name == "host-down":
        task = record.task
        for host in present.plant.fitting(task):
            yield Blocker("host", host.name, _state(host.name, present.hosts.get(host.name)))
    elif name == "rate":
        for host_name in target.split(","):
            yield Blocker("host", host_name, "has used up its rate")
    elif name == "worker":
        yield Blocker("host", target, "has a slot for it, and the cluster no worker yet")
    elif name == "paused":
        yield Blocker("pause", "", waits[-1].detail)


def _state(host: str, now: HostNow | None) -> str:
    """The state of a host, and where it failed the error, which says what to do."""
    if now is None or now.fault is None:
        return "up" if now is None else now.state
    return f"{now.state}: {now.fault.error.removeprefix(f'{host}: ')}"


def _case(record: TaskRecord, reason: str, waits: Sequence[Wait], present: Present) -> Case:
    return Case(_detail(reason, waits, present), record.task.needs, present.held())


def _detail(reason: str, waits: Sequence[Wait], present: Present) -> str:
    """Of what it waits for now. What a closed gate says is no news, so the wait may not know it."""
    told = waits[-1].detail if waits else ""
    name, _, target = reason.partition(":")
    return present.gate_details.get(target, told) if name == "gate" and present.dispatched else told


def _running(present: Present, chosen: Any) -> Iterable[Blocker]:
    for one in present.queue.running:
        if chosen(one) and one.started_at is not None:
            for_s = max(0.0, present.now - one.started_at)
            yield Blocker("task", one.task.id, f"lane {one.task.lane}, on {one.host} for {for_s:.1f} s")
