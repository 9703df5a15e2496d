"""Slots that tune themselves: how many calls at once a host bears best, found by trying and measuring.

Only what is measured while the limit binds counts: the host was full all along and more was waiting. A *window*
is some whole turnovers of the host's calls; its throughput at one limit is compared with that at another. What
decides is the elasticity: how much of the added room came back as added throughput, 1 below the knee of a
server and 0 above it.

- grow: add room, twice as much each time, while it pays. Past the knee, its place follows from two throughputs.
  Uneven calls leave that in doubt: then it looks longer, and for want of a proof goes on. The next comparison has
  the longer look to compare with, and stopping early would cost more than a step too far.
- hold: stay; now and then, and ever more seldom, try a little more and a little less.
- A throughput that falls while nothing was changed moves the limit at once, by as much.
- "Too much" (429), repeated faults and time-outs cut the limit by a third; where that happened is a ceiling, tried
  again after a pause that doubles.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import NamedTuple

from penstock.model import AutoSlots, Verdict

GROW, HOLD, MORE, LESS, RECOVER = range(5)

_PAYS = 0.3  # the elasticity from which on more room is worth having
_LINEAR = 0.8  # from here on it is as good as 1: below the knee
_CUT = 0.7
_RECOVER_S = 30.0
_CEILING_S = 30.0  # how long a ceiling is believed at first
_LONGEST_CEILING_S = 960.0
_STRIKES = 2.0  # faults beyond what a well host has now and then
_SURE = 1.5  # standard errors between a gain that pays and none
_VERY_SURE = 2.5
_SHIFT = 0.2  # a change of throughput that is more than a mood
_FIRST_NOISE = 0.3
_FEW = 8.0  # calls from whose spread the noise cannot be told
_LONGER = 32  # calls by which a gain in doubt is measured before growth goes on, or so many turnovers:
_LONGER_TURNOVERS = 4
_MOST = 400  # calls in a window, or so many turnovers:
_MOST_TURNOVERS = 16
_PAUSE = 2  # windows between trials at first
_LONGEST_PAUSE = 8
_FEWER_EVERY = 4  # trials: more costs nothing above a knee, fewer does below it
_MEMORY = 4  # windows that count for the throughput at the limit it holds


class Point(NamedTuple):
    """What was measured at a limit."""

    limit: int
    used: float  # slots in use: the limit, less what is kept for lanes that did not want it
    per_s: float
    calls: int = _MOST  # it was measured by


class Tuner:
    """The limit of one host. It is told of each start and each end, and keeps no time of its own."""

    __slots__ = (
        "_base",
        "_born",
        "_calm_s",
        "_ceiling",
        "_ceiling_s",
        "_ceiling_until",
        "_count",
        "_full",
        "_generation",
        "_left_at",
        "_linear",
        "_need",
        "_noise",
        "_pause",
        "_seconds",
        "_settle",
        "_squares",
        "_state",
        "_step",
        "_strikes",
        "_trials",
        "_used",
        "_weight",
        "_windows",
        "limit",
        "max",
        "min",
        "recovers_at",
        "why",
    )

    def __init__(self, auto: AutoSlots, slots: int) -> None:
        self.min = auto.min
        self.max = auto.max
        self.why = ""  # the last change of the limit, in a few words
        self.recovers_at: float | None = None
        self._noise = _FIRST_NOISE  # of a call's seconds: standard deviation by mean
        self._ceiling: int | None = None
        self._ceiling_until = 0.0
        self._ceiling_s = _CEILING_S
        self._strikes = 0.0
        self._born: dict[str, int] = {}  # live attempt -> the generation of the limit it started under
        self._generation = 0
        self._full = False
        self._need = 0  # calls that make a window
        self._left_at = -1.0  # when it was full last; filled again in the same instant it never stopped being
        self.limit = self._within(slots)
        self._forget()
        self._set(self.limit, GROW, "")

    @property
    def configured(self) -> int:
        """As a throttle's: nothing is owed to a host whose limit is what it should be."""
        return self.limit

    # ---- what it is told

    def began(self, task: str, now: float, full: bool) -> None:
        """An attempt started, and the host has room for more or not."""
        self._born[task] = self._generation
        if full and not self._full:
            self._full = True
            if self._left_at != now:
                self._open(len(self._born))

    def ended(
        self, task: str, now: float, verdict: Verdict, seconds: float, used: float, full: bool, slow: bool
    ) -> None:
        """An attempt ended: what it held is free again. `slow`: it took longer than most that succeed."""
        generation = self._born.pop(task, self._generation)
        binding = self._full or self._left_at == now
        self._full = full
        if not full and binding:
            self._left_at = now
        if verdict is Verdict.DONE:
            self._strikes = max(0.0, self._strikes - 0.5 / self.limit)
            if binding:
                self._sample(now, seconds, used)
        elif verdict is Verdict.THROTTLED:
            self._dropped(generation, now, "429")
        elif verdict is Verdict.HOST or (verdict is Verdict.TEMPORARY and slow):
            self._strikes += 1
            if self._strikes >= _STRIKES:
                self._dropped(generation, now, "faults" if verdict is Verdict.HOST else "time-outs")

    def tick(self, now: float) -> None:
        if self.recovers_at is not None and self.recovers_at <= now:
            self._recover()

    def configure(self, slots: int, why: str = "set by hand") -> None:
        """Set from outside: it goes on from there, within its bounds."""
        self._forget()
        self._set(self._within(slots), HOLD, why)

    def stretch(self, slots: float) -> None:
        """Make room for one task that needs more slots than there are, as far as that is allowed."""
        if self.limit < slots <= self.max:
            self._forget()
            self._set(ceil(slots), HOLD, "for a task that needs as many")

    # ---- windows

    def _open(self, settle: int) -> None:
        """A window begins when as many calls have ended as were running: what is left began under its limit."""
        self._settle = settle
        self._count = 0
        self._seconds = self._squares = self._used = 0.0

    def _sample(self, now: float, seconds: float, used: float) -> None:
        if self._settle:
            self._settle -= 1
            return
        self._count += 1
        self._seconds += seconds
        self._squares += seconds * seconds
        self._used += used
        if self._count >= self._need and self._seconds > 0:
            count = self._count
            mean_s = self._seconds / count
            spread = sqrt(max(0.0, self._squares / count - mean_s * mean_s)) / mean_s
            self._noise = max(spread, 0.9 * self._noise)
            used = self._used / count
            # Little's law: less ruffled by calls that end in step than counting ends by the clock.
            point = Point(self.limit, used, used / mean_s, count)
            if self._state == GROW and self._must_look_longer(point):
                self._need = self._turnovers(2 * count)
                return
            self._open(0)
            self._judge(point, now)

    def _set(self, limit: int, state: int, why: str) -> None:
        """Go to a limit, for a purpose."""
        if limit != self.limit:
            self.limit = limit
            self.why = why
            self._generation += 1
        self._state = state
        self.recovers_at = None
        self._need = self._turnovers(self._wanted())
        self._open(len(self._born))

    def _wanted(self) -> float:
        """Calls to measure, so that chance does not decide."""
        noise = self._noise
        if self._state in (MORE, LESS):
            assert self._base is not None
            change = abs(self.limit - self._base.limit) / self._base.limit
            return 1.5 * (_SURE * noise / (_PAYS * change)) ** 2
        if self._state == GROW:
            return max(4.0, 16 * noise**2)
        return max(16.0, (_VERY_SURE * noise / _SHIFT) ** 2)

    def _turnovers(self, calls: float) -> int:
        """Whole turnovers: calls that run in step end in step, and part of a round says nothing."""
        limit = self.limit
        most = max(_MOST, _MOST_TURNOVERS * limit)
        return limit * max(2, ceil(min(calls, most) / limit))

    def _forget(self) -> None:
        """Nothing measured so far is true any more."""
        self._base: Point | None = None  # the limit it would go back to
        self._linear: Point | None = None  # the highest limit known to be below the knee
        self._weight = 0
        self._calm_s: float | None = None  # a call's seconds before they rose
        self._windows = 0  # since the last trial
        self._pause = _PAUSE
        self._trials = 0
        self._step = 0

    # ---- decisions

    def _judge(self, point: Point, now: float) -> None:
        if self._state == GROW:
            self._grown(point, now)
        elif self._state == MORE:
            if self._elasticity(point) > _PAYS:
                self._pause = _PAUSE
                self._step = point.limit - (self._base.limit if self._base else point.limit)
                self._linear = self._base
                self._grown(point, now)
            else:
                self._back("more did not pay")
        elif self._state == LESS:
            if self._elasticity(point) < _PAYS:
                self._hold(point, "fewer do as well")
                self._pause = _PAUSE
                self._trials = 1
            else:
                self._back("fewer did worse")
        elif self._state == RECOVER:
            self._recover()
        else:
            self._held(point, now)

    def _elasticity(self, point: Point) -> float:
        base = self._base
        assert base is not None
        if point.used == base.used:
            return 0.0
        return (point.per_s / base.per_s - 1) / (point.used / base.used - 1)

    def _must_look_longer(self, point: Point) -> bool:
        """Whether more room seems not to pay, which may be chance, and a longer look could tell."""
        enough = max(_LONGER, _LONGER_TURNOVERS * point.limit)
        return point.calls < enough and self._is_in_doubt(point)

    def _is_in_doubt(self, point: Point) -> bool:
        base = self._base
        if base is None or base.used >= point.used:
            return False
        elasticity = self._elasticity(point)
        few = 1 + _FEW / min(point.calls, base.calls)  # some calls that are alike by chance show no noise
        chance = few * self._noise * sqrt(1 / point.calls + 1 / base.calls) * point.per_s / base.per_s
        return elasticity <= _PAYS < elasticity + _SURE * chance / (point.used / base.used - 1)

    def _grown(self, point: Point, now: float) -> None:
        """More room: keep it and take more while it pays."""
        base = self._base
        if base is not None and base.limit < point.limit:
            elasticity = self._elasticity(point)
            if elasticity <= _PAYS and not self._is_in_doubt(point):
                self._hold_at(self._knee(point), point, "past the knee")
                return
            if elasticity >= _LINEAR and (self._linear is None or self._linear is base):
                self._linear = point
        elif self._linear is None:
            self._linear = point
        self._base = point
        self._step = min(2 * self._step or point.limit, point.limit)
        limit = min(point.limit + self._step, self._highest(now))
        if limit > point.limit:
            self._set(limit, GROW, "more pays")
        else:
            self._hold(point, "")

    def _knee(self, point: Point) -> int:
        """Where throughput stopped growing with the limit, if it did so all at once; else where it last paid."""
        base, linear = self._base, self._linear
        assert base is not None
        if linear is None:
            return base.limit
        per_slot = linear.per_s / linear.used
        knee = point.per_s / per_slot
        expected = min(base.used, knee) * per_slot
        if abs(base.per_s / expected - 1) > max(0.1, _SURE * self._noise / sqrt(self._need)):
            return base.limit
        limit = point.limit + round(knee - point.used)
        return max(linear.limit, min(limit, point.limit - 1))

    def _hold_at(self, limit: int, point: Point, why: str) -> None:
        base = self._base
        if base is not None and base.limit == limit:
            self._back(why)
            return
        self._forget()
        self._set(limit, HOLD, why)

    def _hold(self, point: Point, why: str) -> None:
        """Stay where it was just measured."""
        self._base = point
        self._weight = 1
        self._windows = 0
        self._set(point.limit, HOLD, why)
        self._settle = 0  # it has been there all the time

    def _back(self, why: str) -> None:
        """To the limit before the trial; the next trial is a longer while away."""
        assert self._base is not None
        self._windows = 0
        self._weight = max(self._weight, 1)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._set(self._base.limit, HOLD, why)

    def _held(self, point: Point, now: float) -> None:
        base = self._base
        self._windows += 1
        if base is None:
            calm, self._calm_s = self._calm_s, None
            if calm is not None and calm * point.per_s < (1 - _SHIFT) * point.used:
                # The window that showed the change was partly from before it: what is left to go shows here.
                limit = self._within(round(self.limit * calm * point.per_s / point.used))
                self._set(limit, HOLD, "calls take longer")
            else:
                self._base = point
                self._weight = 1
            return
        unlikely = max(
            _SHIFT, _VERY_SURE * self._noise * sqrt(1 / self._need + 1 / (self._weight * self._need))
        )
        ratio = point.per_s / base.per_s
        if ratio < 1 - unlikely:
            self._forget()
            self._calm_s = base.used / base.per_s
            self._set(self._within(round(self.limit * ratio)), HOLD, "calls take longer")
            return
        if ratio > 1 + unlikely:
            self._base = point
            self._weight = 1
            self._pause = _PAUSE
            return
        self._weight = min(self._weight + 1, _MEMORY)
        self._base = Point(
            base.limit,
            base.used + (point.used - base.used) / self._weight,
            base.per_s + (point.per_s - base.per_s) / self._weight,
            base.calls + point.calls,
        )
        self._need = self._turnovers(self._wanted())
        if self._windows >= self._pause:
            self._try(now)

    def _try(self, now: float) -> None:
        """A little more, or a little less: as much as shows through the noise."""
        limit = self.limit
        change = max(1, round(0.1 * limit), round(limit * _SURE * self._noise * sqrt(1.5 / _MOST) / _PAYS))
        more = min(limit + change, self._highest(now))
        less = max(limit - change, self.min)
        fewer = self._trials % _FEWER_EVERY == 1
        self._trials += 1
        if fewer and less < limit and (change == 1 or change <= 0.25 * limit):
            self._set(less, LESS, "trying fewer")
        elif more > limit:
            self._set(more, MORE, "trying more")
        else:
            self._windows = 0

    # ---- too much

    def _dropped(self, generation: int, now: float, what: str) -> None:
        """The host could not bear what it was given."""
        running = len(self._born)
        if (
            generation != self._generation
        ):  # started before the cut: it tells no more than where the ceiling is
            if self._state == RECOVER and self._ceiling is not None:
                self._ceiling = max(self.limit + 1, min(self._ceiling, running + 1))
            return
        limit = self.limit
        self._strikes = 0.0
        lower = max(self.min, min(limit - 1, int(limit * _CUT)))
        if self._state in (GROW, MORE) and self._base is not None:
            lower = max(lower, self._base.limit)  # that was borne
        if self._ceiling is not None and limit >= self._ceiling:
            self._ceiling_s = min(2 * self._ceiling_s, _LONGEST_CEILING_S)
        self._ceiling = max(lower + 1, min(limit, running + 1))
        self._ceiling_until = now + self._ceiling_s
        self._forget()
        self._set(lower, RECOVER, f"{what} at {limit}")
        self.recovers_at = now + _RECOVER_S

    def _recover(self) -> None:
        """It bore the cut limit: up to where it was too much, less one."""
        self._set(self._within((self._ceiling or self.max) - 1), HOLD, "up to what it bore")

    def _highest(self, now: float) -> int:
        if self._ceiling is not None and now < self._ceiling_until:
            return min(self.max, self._ceiling - 1)
        return self.max

    def _within(self, slots: int) -> int:
        return max(self.min, min(slots, self.max))
