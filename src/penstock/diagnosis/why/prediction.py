"""When a task will start, or a run end: the present played on, several times, through the real scheduler.

Each time every attempt takes as long as a similar one took; one that runs already, as long as one that took at
least as long. Which one is no chance: the times are spread evenly over what was recorded, for each attempt
in an order of its own (a Latin hypercube), so the same present gives the same prediction. What may come besides is
not foreseen: new tasks, faults.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import exp, isclose, sqrt
from typing import Any, NamedTuple
from zlib import crc32

from penstock.diagnosis.questions import question_kinds
from penstock.diagnosis.simulator import Fate, Simulator
from penstock.diagnosis.why.durations import Durations, Lengths, normal, quantile
from penstock.diagnosis.why.present import Present, begin
from penstock.lifecycle import ENDED
from penstock.model import State, Task, TaskRecord
from penstock.scheduling.messages import Start

MOST_SAMPLES = 32
FEW_SAMPLES = 8  # with fewer the range follows from how much such tasks differ
MOST_PLAYED = 8_000  # tasks, in all samples together: about half a second's work
MOST_IN_LANE = 2_000  # of a lane's queue; beyond that it goes on as it went so far
_HORIZON_S = 30 * 86_400.0
_MOST_LIFTED = 8
_EIGHTY_PERCENT = 1.2816  # standard deviations on either side

NEVER = "it is likely to end without a start: a task it comes after fails, or its deadline comes first"
NO_DURATIONS = "no attempt has ended yet, so nobody knows how long one takes"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds from the present, or from when what is `provided` has happened: the median, and 10 % to 90 %."""

    now: float
    seconds: float | None = None
    least_s: float | None = None
    most_s: float | None = None
    provided: tuple[str, ...] = ()
    unknown: str = ""  # why nothing can be told
    samples: int = 0
    attempts: int = 0  # that are over and tell how long such tasks take
    cut_short: bool = False  # the queue was too long to be played to its end

    def as_record(self) -> dict[str, Any]:
        return {
            "at": self._at(self.seconds),
            "earliest": self._at(self.least_s),
            "latest": self._at(self.most_s),
            "in_s": _rounded(self.seconds),
            "earliest_in_s": _rounded(self.least_s),
            "latest_in_s": _rounded(self.most_s),
            "provided": list(self.provided),
            "unknown": self.unknown or None,
            "samples": self.samples,
            "attempts": self.attempts,
            "cut_short": self.cut_short,
        }

    def _at(self, seconds: float | None) -> float | None:
        """A time of day only where nothing else must happen first."""
        return None if seconds is None or self.provided else round(self.now + seconds, 3)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


class _Goal(NamedTuple):
    """What is waited for: that these have started, or ended."""

    tasks: Collection[str]
    state: str  # "started" or "ended"
    factor: float = 1.0  # how much farther it is than can be played


def predict_start(present: Present, record: TaskRecord, whatever_s: float | None = None) -> Prediction:
    """When a queued task starts. `whatever_s`: what attempts take of which nobody knows how long they take."""
    lane = record.task.lane
    left_out = present.queue.left_out.get(lane, 0)
    own = [r for r in present.queue.queued if r.task.lane == lane]
    here = any(r.task.id == record.task.id for r in present.queue.queued)
    if here and not left_out:
        return _predict(present, record, _Goal((record.task.id,), "started"), whatever_s)
    if not own:
        return Prediction(present.now, unknown="it is not in the queue any more")
    aging_s = present.plant.aging_s
    last = max(own, key=lambda r: (r.task.queued_at + r.task.priority * aging_s, r.number))
    factor = (len(own) + left_out) / len(own)
    return _predict(present, last, _Goal((last.task.id,), "started", factor), whatever_s)


def predict_end(present: Present, run: str, whatever_s: float | None = None) -> Prediction:
    """When the last task of a run ends."""
    live = [r for r in (*present.queue.running, *present.queue.queued) if r.task.run == run]
    if not live:
        return Prediction(present.now, unknown="none of its tasks lives")
    questions = question_kinds(present.plant).intersection(r.task.kind for r in live)
    if unknown := sorted(questions.difference(ran.kind for ran in present.queue.ran)):
        return Prediction(present.now, unknown=f"no question of kind {unknown[0]} has ended yet")
    lanes = {r.task.lane for r in live}
    shown = [r for r in present.queue.queued if r.task.lane in lanes]
    left_out = sum(present.queue.left_out.get(lane, 0) for lane in lanes)
    factor = (len(shown) + left_out) / len(shown) if shown else 1.0
    return _predict(present, live[-1], _Goal({r.task.id for r in live}, "ended", factor), whatever_s)


def predict_end_of_attempt(present: Present, record: TaskRecord) -> Prediction:
    """When what runs is over, from how long similar ones took."""
    now, host = present.now, record.host
    lengths = None if host is None else Durations(present.queue.ran).of(host, record.task)
    if lengths is None or record.started_at is None:
        return Prediction(now, unknown=NO_DURATIONS)
    elapsed_s = max(0.0, now - record.started_at)
    least, median, most = (
        max(0.0, lengths.draw(level, elapsed_s).seconds - elapsed_s) for level in (0.1, 0.5, 0.9)
    )
    return Prediction(now, median, least, most, samples=1, attempts=lengths.count)


# ---- playing


def _predict(
    present: Present, record: TaskRecord, goal: _Goal, whatever_s: float | None = None
) -> Prediction:
    durations = Durations(present.queue.ran)
    size = len(present.queue.running) + len(present.queue.queued) + 1
    samples = max(1, min(MOST_SAMPLES, MOST_PLAYED // size))
    provided: list[str] = [] if present.dispatched else ["a dispatcher runs"]
    first = _first(present, durations, goal, samples, whatever_s)
    if provided and first.reached_s and _waits_for_money(present, record):
        # Midnight comes at its time, not so long after somebody dispatches.
        present = replace(present, spent=())
        provided.append("it is 00:00 UTC, when a new day's money is there")
        first = _first(present, durations, goal, samples, whatever_s)
    while first.reached_s is None and not first.unknown:
        lifted = _lift(present, first, record)
        if isinstance(lifted, str) or len(provided) >= _MOST_LIFTED:
            unknown = lifted if isinstance(lifted, str) else "too much must happen first"
            return Prediction(present.now, provided=tuple(provided), unknown=unknown)
        present, words = lifted
        provided.append(words)
        first = _first(present, durations, goal, samples, whatever_s)
    if first.unknown:
        return Prediction(present.now, provided=tuple(provided), unknown=first.unknown)
    more = 1 if first.whatever else samples
    played = [first, *(_Sample(present, durations, goal, s, samples) for s in range(1, more))]
    times = sorted(one.reached_s for one in played if one.reached_s is not None and not one.never)
    if not times:
        return Prediction(present.now, provided=tuple(provided), unknown=NEVER)
    least_s, median_s, most_s = (foreseen(times, level) for level in (0.1, 0.5, 0.9))
    if len(times) < FEW_SAMPLES:
        factor = exp(_EIGHTY_PERCENT * first.doubt)
        least_s, most_s = min(least_s, median_s / factor), max(most_s, median_s * factor)
    return Prediction(
        present.now,
        median_s,
        max(0.0, least_s),
        most_s,
        tuple(provided),
        samples=len(played),
        attempts=first.attempts,
        cut_short=goal.factor > 1,
    )


def _first(
    present: Present, durations: Durations, goal: _Goal, samples: int, whatever_s: float | None
) -> _Sample:
    """The first play. Where nobody knows how long anything takes, one that comes out whatever it takes, if any."""
    first = _Sample(present, durations, goal, 0, samples, whatever_s=whatever_s)
    if not first.unknown:
        return first
    at_once, forever = (
        _Sample(present, durations, goal, 0, samples, whatever_s=s) for s in (0.0, 2 * _HORIZON_S)
    )
    one, other = at_once.reached_s, forever.reached_s
    same = one is other is None or (
        one is not None and other is not None and isclose(one, other, abs_tol=1e-3)
    )
    return at_once if same and at_once.never == forever.never else first


class _Sample:
    """The present played on once, until the goal is reached or nothing is left that could happen.

    `whatever_s`: what an attempt takes of which nobody knows how long it takes; else the play ends there.
    """

    def __init__(
        self,
        present: Present,
        durations: Durations,
        goal: _Goal,
        number: int,
        of: int,
        *,
        whatever_s: float | None = None,
    ) -> None:
        self._present = present
        self._whatever_s = whatever_s
        self._durations = durations
        self._number = number
        self._of = of
        self._elapsed = {r.task.id: r.started_at for r in present.going_on}
        self._starts = 0
        self._seen: dict[Lengths, float] = {}  # each with how much longer or shorter it is taken to be
        self.unknown = ""
        self.simulator = begin(present, self._fate)
        left = set(goal.tasks)
        self._play(left, goal)
        self.never = False  # whether it ended without a start
        self.reached_s: float | None = None
        if not left and not self.unknown:
            self.reached_s = max(0.0, self.simulator.now - present.now) * goal.factor
            if goal.state == "started":
                self.never = any(self.simulator.record(t).started_at is None for t in goal.tasks)

    def _play(self, left: set[str], goal: _Goal) -> None:
        simulator = self.simulator
        known = {r.task.id for r in (*self._present.queue.running, *self._present.queue.queued)}
        left &= known

        def reached() -> bool:
            while left and simulator.now >= self._present.now:
                task = next(iter(left))
                if not _is_reached(simulator.record(task), goal.state):
                    break
                left.discard(task)
            return not left or bool(self.unknown)

        simulator.run(reached, before=self._present.now + _HORIZON_S)

    def _fate(self, start: Start, task: Task) -> Fate:
        lengths = self._durations.of(start.host, task)
        if lengths is None:
            if self._whatever_s is None:
                self.unknown = NO_DURATIONS
            return Fate(self._whatever_s or 0.0)
        self._starts += 1
        scale = self._seen.get(lengths)
        if scale is None:
            scale = self._seen[lengths] = self._scale(lengths)
        level = self._level(f"{task.id}/{start.attempt}")
        since = self._elapsed.get(task.id) if start.attempt == 1 else None
        if since is None:
            seconds, outcome = lengths.draw(level, scale=scale)
            return Fate(seconds, outcome)
        seconds, outcome = lengths.draw(level, max(0.0, self._present.now - since), scale)
        return Fate(max(0.0, seconds - (start.at - since)), outcome)

    def _level(self, what: str) -> float:
        """Between 0 and 1: one of as many steps as there are samples, another in each of them."""
        mixed = _mixed(crc32(what.encode()))
        step = ((mixed | 1) * self._number + (mixed >> 16)) % self._of
        return (step + _mixed(mixed + self._number) / 2**32) / self._of

    def _scale(self, lengths: Lengths) -> float:
        """What was recorded are some of many: their mean may be wrong by chance, all through a sample."""
        if not lengths.doubt:
            return 1.0
        level = self._level(f"scale {lengths.count} {lengths.mean_s!r}")
        return exp(lengths.doubt * normal(level))

    @property
    def whatever(self) -> bool:
        return self._whatever_s is not None

    @property
    def doubt(self) -> float:
        """How far off one sample may be, as the logarithm of a factor: by chance, and for want of knowledge."""
        variances = [one.spread**2 / max(1, self._starts) + one.doubt**2 for one in self._seen]
        return sqrt(max(variances, default=0.0))

    @property
    def attempts(self) -> int:
        return max((one.count for one in self._seen), default=0)


def foreseen(times: Sequence[float], level: float) -> float:
    """Below which one more such time lies with that chance: of n, a tenth lies beyond the first only if n is 9."""
    place = (level * (len(times) + 1) - 1) / max(1, len(times) - 1)
    return quantile(times, min(1.0, max(0.0, place)))


def _mixed(number: int) -> int:
    """Another number of 32 bits, far from that of a neighbour."""
    number = (number ^ (number >> 16)) * 0x45D9F3B & 0xFFFFFFFF
    number = (number ^ (number >> 16)) * 0x45D9F3B & 0xFFFFFFFF
    return number ^ (number >> 16)


def _is_reached(record: TaskRecord, state: str) -> bool:
    return record.state in ENDED or (state == "started" and record.started_at is not None)


# ---- what must happen first


def _waits_for_money(present: Present, record: TaskRecord) -> bool:
    """Whether a budget is what holds it once somebody dispatches."""
    simulator = begin(present, lambda start, task: Fate(_HORIZON_S))
    simulator.run(before=present.now + 1e-3)
    reason = simulator.waiting_reason(record.task.id)
    return reason is not None and reason.startswith("gate:budget:")


def _lift(present: Present, sample: _Sample, record: TaskRecord) -> tuple[Present, str] | str:
    """The present without what holds the task, or a task it comes after; else why it is not to be told."""
    simulator, task = sample.simulator, record.task
    for _ in range(len(present.queue.queued) + 1):
        reason = simulator.waiting_reason(task.id)
        if reason != "dependency":
            break
        needed = _unmet(simulator, task)
        if needed is None:
            return "a task it comes after is not in the queue"
        task = needed
    if reason is None:
        return "it is not foreseen to start within 30 days"
    lifted = present.without(reason, task)
    if lifted is not None:
        return lifted
    if reason.startswith("slots"):
        return "no host that serves it has as many units as it needs"
    if reason == "host-down":
        return "no host serves it"
    return f"it is not foreseen that {reason} ends"


def _unmet(simulator: Simulator, task: Task) -> Task | None:
    known = {record.task.id: record for record in simulator.records}
    for name in task.after:
        record = known.get(name)
        if record is not None and record.state is State.QUEUED:
            return record.task
    return None
