"""The curve by which a host's attempts slow down, chosen by likelihood. For `speed.py`.

An attempt has some work, in seconds alone. Beside others it advances at the curve's speed, so its work is that
speed integrated over its life. The right curve makes the works of a sort (kind, model) alike: it is the one under
which the ends that were seen are likeliest, works being spread like a log-normal with heavier tails. That is fair
even though long attempts live on when the others are gone: each end is judged given all that was before it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import exp, inf, log, sqrt
from typing import Protocol

from penstock.diagnosis.attempts import Lived, Sort
from penstock.diagnosis.steps import Steps

_MOST = 250  # attempts that are looked at, per host
_FEWEST = 6
_FEWEST_OF_A_SORT = 3
_MOST_KNEES = 8
_BINS = 10  # of concurrency, from each of which some attempts are taken
_TAIL = 4.0  # degrees of freedom of the works' spread: a few outliers bend nothing
_JITTER = 0.01  # of a duration: two that differ by less are equal
_PROOF = 4.0  # beyond the price of its parameters, what a curve must gain over a flat one
_RETROGRADE = 3.0  # servers seldom do less with more: what it takes to believe it of one
_SLOWER = 0.93  # a curve that never gets below this is flat


class Shape(Protocol):
    def speed(self, at_once: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Flat:
    def speed(self, at_once: float) -> float:
        return 1.0


@dataclass(frozen=True, slots=True)
class Scalability:
    sigma: float
    kappa: float

    def speed(self, at_once: float) -> float:
        return 1 / (1 + self.sigma * (at_once - 1) + self.kappa * at_once * (at_once - 1))


@dataclass(frozen=True, slots=True)
class Onset:
    knee: int
    exponent: float

    def speed(self, at_once: float) -> float:
        return min(1.0, float((self.knee / at_once) ** self.exponent))


@dataclass(frozen=True, slots=True)
class Workers:
    count: int

    def speed(self, at_once: float) -> float:
        return min(1.0, self.count / at_once)


FLAT = Flat()


@dataclass(frozen=True, slots=True)
class Fit:
    shape: Shape = FLAT
    observed: tuple[int, int] = (0, 0)
    samples: int = 0
    error: float = inf
    proof: float = 0.0


@dataclass(slots=True)
class _Sample:
    seconds: float
    profile: tuple[tuple[int, float], ...]  # how long beside how many
    last: int  # how many ran when it ended
    log_load: float  # the mean logarithm of how many ran
    index: int  # in the attempts of the host


@dataclass(slots=True)
class _Group:
    """Samples of one sort. The clock, and chance of that size, keep equal durations from proving anything."""

    samples: list[_Sample] = field(default_factory=list)
    blur_s: float = 0.0


def fit(attempts: Sequence[Lived], resolution: float) -> Fit:
    """Attempts are all of one host's, by start."""
    load = Steps((a.start, a.end) for a in attempts)
    groups = _groups(attempts, load, resolution)
    samples = [sample for group in groups for sample in group.samples]
    observed = _observed(samples)
    if len(samples) < _FEWEST or observed[1] < 2:
        return Fit(observed=observed, samples=len(samples))
    flat = _likelihood(groups, [(s.seconds, 1.0) for s in samples])
    price = 0.5 * log(len(samples))
    best: tuple[float, Shape, int] = (0.0, FLAT, 0)
    for shape, value, parameters in _candidates(groups, samples, attempts, observed):
        proof = value - flat - parameters * price
        if proof > best[0] and shape.speed(observed[1]) < _SLOWER:
            best = proof, shape, parameters
    proof, shape, _ = best
    if proof < _PROOF:
        proof, shape = 0.0, FLAT
    return Fit(shape, observed, len(samples), _error(groups, samples, shape), proof)


def served_s(attempts: Sequence[Lived], workers: int) -> list[float]:
    """How long each was worked on, if so many were at a time and the others waited, first come first served.

    Below 0 for one that ended before its turn: then that is not how the host works.
    """
    latest: list[float] = []  # ends of those before it: the latest so many
    seconds = []
    for a in attempts:
        free_at = latest[0] if len(latest) == workers else a.start
        seconds.append(a.end - max(a.start, free_at))
        if len(latest) < workers:
            heapq.heappush(latest, a.end)
        else:
            heapq.heappushpop(latest, a.end)
    return seconds


# ---- samples


def _groups(attempts: Sequence[Lived], load: Steps, resolution: float) -> list[_Group]:
    """Those that ended well, of sorts with some; at most so many of all, spread over how many ran at once."""
    sorts: dict[Sort, list[tuple[float, int]]] = defaultdict(list)
    for index, a in enumerate(attempts):
        if a.is_well and a.is_own and a.end > a.start:
            sorts[a.sort].append((load.mean(a.start, a.end), index))
    sorts = {sort: found for sort, found in sorts.items() if len(found) >= _FEWEST_OF_A_SORT}
    total = sum(len(found) for found in sorts.values())
    groups = []
    for _, found in sorted(sorts.items(), key=lambda item: (item[0][0], item[0][1] or "")):
        share = max(_FEWEST_OF_A_SORT * 2, _MOST * len(found) // total)
        chosen = _spread(found, share)
        middle = _median([attempts[i].seconds for _, i in found])
        group = _Group(blur_s=max(resolution / 2, _JITTER * middle))
        group.samples = [_sample(attempts[i], i, load) for i in chosen]
        groups.append(group)
    return groups


def _spread(found: list[tuple[float, int]], most: int) -> list[int]:
    """So many, from seldom loads as from usual ones, and evenly over time within each."""
    if len(found) <= most:
        return [i for _, i in found]
    low, high = min(found)[0], max(found)[0]
    width = (high - low) / _BINS or 1.0
    bins: dict[int, list[int]] = defaultdict(list)
    for mean, index in found:
        bins[min(_BINS - 1, int((mean - low) / width))].append(index)
    chosen: list[int] = []
    for count, (_, members) in enumerate(sorted(bins.items(), key=lambda item: len(item[1]))):
        part = max(1, (most - len(chosen)) // (len(bins) - count))
        step = max(1.0, len(members) / part)
        chosen += [members[int(n * step)] for n in range(min(part, len(members)))]
    return sorted(chosen)


def _sample(attempt: Lived, index: int, load: Steps) -> _Sample:
    profile: dict[int, float] = defaultdict(float)
    for start, end, count in load.pieces(attempt.start, attempt.end):
        profile[max(1, count)] += end - start
    log_load = sum(s * log(c) for c, s in profile.items()) / attempt.seconds
    return _Sample(attempt.seconds, tuple(profile.items()), max(1, load.before(attempt.end)), log_load, index)


def _observed(samples: Sequence[_Sample]) -> tuple[int, int]:
    """From how few to how many at once, but for loads that were hardly seen."""
    seconds: dict[int, float] = defaultdict(float)
    for sample in samples:
        for count, s in sample.profile:
            seconds[count] += s
    least = 0.01 * sum(seconds.values())
    seen = [count for count, s in seconds.items() if s >= least]
    return (min(seen), max(seen)) if seen else (0, 0)


# ---- likelihood


def _likelihood(groups: Sequence[_Group], works: Sequence[tuple[float, float]]) -> float:
    """Of the ends that were seen. Works come with the speed at the end, in the order of the groups' samples."""
    total, at = 0.0, 0
    for group in groups:
        part = works[at : at + len(group.samples)]
        at += len(part)
        blur = group.blur_s
        centre, width = _spread_of([log(max(w, blur)) for w, _ in part])
        middle = exp(centre)
        for work, speed in part:
            least = blur * speed  # what the clock leaves open, as work
            if work > 2 * least:
                scale = sqrt((width * work) ** 2 + least**2)
                z = (log(work) - centre) * work / scale
            else:  # no work, or less than none: the shape cannot be, but for the clock
                scale = least
                z = (work - middle) / least
            total += log(speed / scale) - (_TAIL + 1) / 2 * log(1 + z * z / _TAIL)
    return total


def _spread_of(values: Sequence[float]) -> tuple[float, float]:
    """Centre and width of values with a few far off: fitted with heavy tails."""
    centre = _median(values)
    width = max(1e-6, 1.4826 * _median([abs(y - centre) for y in values]))
    for _ in range(3):
        weights = [(_TAIL + 1) / (_TAIL + ((y - centre) / width) ** 2) for y in values]
        centre = sum(u * y for u, y in zip(weights, values, strict=True)) / sum(weights)
        squares = sum(u * (y - centre) ** 2 for u, y in zip(weights, values, strict=True))
        width = max(1e-6, sqrt(squares / len(values)))
    return centre, width


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _works(samples: Sequence[_Sample], shape: Shape) -> list[tuple[float, float]]:
    speeds: dict[int, float] = {}
    for sample in samples:
        for count, _ in sample.profile:
            if count not in speeds:
                speeds[count] = shape.speed(count)
        if sample.last not in speeds:
            speeds[sample.last] = shape.speed(sample.last)
    return [(sum(speeds[c] * s for c, s in x.profile), speeds[x.last]) for x in samples]


def _error(groups: Sequence[_Group], samples: Sequence[_Sample], shape: Shape) -> float:
    """Standard error of the exponent, were the curve speed ~ c ** -exponent."""
    works = _works(samples, shape)
    squares, spread, at = 0.0, 0.0, 0
    for group in groups:
        part = works[at : at + len(group.samples)]
        at += len(part)
        centre = sum(s.log_load for s in group.samples) / len(part)
        squares += sum((s.log_load - centre) ** 2 for s in group.samples)
        width = _spread_of([log(w) for w, _ in part])[1]
        spread += len(part) * max(width, _JITTER) ** 2
    return sqrt(spread / len(samples) / squares) if squares > 1e-9 else inf


# ---- candidates


def _candidates(
    groups: Sequence[_Group],
    samples: Sequence[_Sample],
    attempts: Sequence[Lived],
    observed: tuple[int, int],
) -> Iterator[tuple[Shape, float, int]]:
    """Shapes at their best, with their likelihood and how many figures were chosen for it."""

    def value(shape: Shape) -> float:
        worse = log(observed[1] * shape.speed(observed[1]))  # below 0: all together do less than one alone
        return _likelihood(groups, _works(samples, shape)) + _RETROGRADE * min(0.0, worse)

    for knee in _knees(observed[1]):
        served = served_s(attempts, knee)
        yield Workers(knee), _likelihood(groups, [(served[s.index], 1.0) for s in samples]), 1
        onset = partial(Onset, knee)
        exponent = _climb(lambda at, make=onset: value(make(at[0])), (1.0,), 0.5)  # type: ignore[misc]
        yield onset(exponent[0]), value(onset(exponent[0])), 2
    for start in ((0.3, 0.0), (0.2, 0.2), (1.0, 0.0)):
        roots = _climb(lambda at: value(Scalability(at[0] ** 2, at[1] ** 2)), start, 0.25)
        shape = Scalability(roots[0] ** 2, roots[1] ** 2)
        yield shape, value(shape), 2


def _knees(high: int) -> list[int]:
    """Below how many ran at most; when there are many, ever farther apart."""
    if high - 1 <= _MOST_KNEES:
        return list(range(1, high))
    return sorted({round((high - 1) ** (n / (_MOST_KNEES - 1))) for n in range(_MOST_KNEES)})


def _climb(
    value: Callable[[tuple[float, ...]], float], start: tuple[float, ...], step: float
) -> tuple[float, ...]:
    """The best place near, by trying each coordinate up and down with ever smaller steps; none below 0."""
    place, best = start, value(start)
    while step > 0.015:
        moved = False
        for i in range(len(place)):
            for change in (step, -step):
                there = (*place[:i], max(0.0, place[i] + change), *place[i + 1 :])
                found = value(there) if there != place else -inf
                if found > best + 1e-9:
                    place, best, moved = there, found, True
        if not moved:
            step /= 2
    return place
