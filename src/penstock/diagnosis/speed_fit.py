"""The curve by which a host's attempts slow down, chosen by likelihood. For `speed.py`.

An attempt has some work, in seconds alone. Beside others it advances at the curve's speed, so its work is that
speed integrated over its life. The right curve makes the works of a sort (kind, model) alike: it is the one under
which the ends that were seen are likeliest, works being spread like a log-normal with heavier tails. That is fair
even though long attempts live on when the others are gone: each end is judged given all that was before it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp, inf, lgamma, log, sqrt
from operator import mul

from penstock.diagnosis.attempts import Lived
from penstock.diagnosis.speed_samples import JITTER, Group, Sample, groups_of, median_of, seen_at_once
from penstock.diagnosis.speed_shapes import FLAT, ONE, Onset, Scalability, Shape, Workers
from penstock.diagnosis.steps import Span, Steps

_FEWEST = 6
_FEWEST_IN_LINE = 4  # that came together, to tell by their ends that they were taken one by one
_MOST_KNEES = 8
_TAIL = 4.0  # degrees of freedom of the works' spread: a few outliers bend nothing
_PROOF = 5.0  # beyond the price of its parameters, what a curve must gain over a flat one
_PROOF_OF_WORKERS = 5.0  # they say where each end must lie, and may be lucky with a few
_RETROGRADE = 1.0  # servers seldom do less with more: what it takes to believe it of one
NO_MORE = 1.3  # times the throughput of one, however many run: that is one at a time
_NEARLY_ONE = 1.5
_REFUTED = 3.0  # and 1 for it: what a figure that is free to choose gains by chance once in two hundred times
_CLEARLY = 1.5
_CLEARLY_UNSEEN = 3.0  # where none was ever alone, so that nobody knows what one alone takes
_TOO_LONG = 1.8
_SLIGHT = 0.1  # an exponent, or the root of a share, with which a slow-down would begin to show
_SLOWER = 0.93  # a curve that never gets below this is flat


_Candidate = tuple[float, Shape, float]  # its likelihood less its figures, the shape, its proof


@dataclass(frozen=True, slots=True)
class Fit:
    shape: Shape = FLAT
    observed: tuple[int, int] = (0, 0)
    samples: int = 0
    error: float = inf
    proof: float = 0.0


def fit(attempts: Sequence[Lived], resolution: float, *, guess: bool = False) -> Fit:
    """Attempts are all of one host's, by start. A guess is what is likelier than not, by Akaike's measure; else a
    slow-down must be proven: to blame a host takes more than to reckon with it.
    """
    load = Steps((a.start, a.end) for a in attempts)
    found = _fit(attempts, load, resolution, guess)
    return found if found.shape is not FLAT else _one_by_one(attempts, load, resolution) or found


def _fit(attempts: Sequence[Lived], load: Steps, resolution: float, guess: bool) -> Fit:
    groups = groups_of(attempts, load, resolution)
    samples = [sample for group in groups for sample in group.samples]
    seen = seen_at_once(samples)
    observed = (seen[0], seen[-1]) if seen else (0, 0)
    if len(samples) < _FEWEST or observed[1] < 2:
        return Fit(observed=observed, samples=len(samples))
    flat = _likelihood(groups, [(s.seconds, 1.0) for s in samples])
    price = 0.5 * log(len(samples))
    # Each sort's centre and spread are fitted too: with few of a sort, that alone makes anything look likely.
    freedom = max(0.0, 1 - 2 * len(groups) / len(samples))
    proven: list[_Candidate] = []
    unproven_one: _Candidate | None = None
    for shape, value, parameters in _candidates(groups, samples, attempts, observed, flat):
        # Against a flat curve each chosen figure costs its full price; which of the others it is, less.
        proof = freedom * (value - flat) - parameters * price
        needed = _PROOF_OF_WORKERS if isinstance(shape, Workers) else _PROOF
        enough = value - flat > parameters if guess else proof > needed
        if enough and shape.speed(observed[1]) < _SLOWER:
            proven.append((value - parameters, shape, proof))
        elif shape == ONE:
            unproven_one = (value - parameters, shape, proof)
    # Once it is proven that company slows, which of the shapes it is needs no proof of its own.
    if proven and unproven_one is not None and unproven_one[0] > flat:
        proven.append(unproven_one)
    shape, proof = _best(proven, seen)
    return Fit(shape, observed, len(samples), _error(groups, samples, shape), proof)


def _one_by_one(attempts: Sequence[Lived], load: Steps, resolution: float) -> Fit | None:
    """A host that takes one after the other, told by ends that are evenly apart, whatever the models.

    Members of a council have models of their own and are asked in the same order each time: then who is last is
    always slow, and no sort has anything to be compared with. Several of one kind that came together and ended one
    behind the other, as long apart as the first took, are no chance. But only as many as differ are evidence: what
    is repeated in the same order tells nothing more.
    """
    alike = [replace(a, sort=(a.sort[0], None)) for a in attempts]
    groups = groups_of(alike, load, resolution)
    samples = [sample for group in groups for sample in group.samples]
    seen = seen_at_once(samples)
    if len(samples) < _FEWEST_IN_LINE or seen[-1] < 2:
        return None
    blur_s = blur_of(attempts, 0.0)
    served = served_s(attempts, 1, blur_s)
    if not _is_credible(groups, served):
        return None
    unknown_order = _unknown_order(attempts, blur_s) * len(samples) / len(attempts)
    flat = _likelihood(groups, [(s.seconds, 1.0) for s in samples])
    inside = _likelihood(groups, [(served[s.index], 1.0) for s in samples]) - unknown_order
    differ = min(len(samples), max(seen[-1], len({attempts[s.index].sort for s in samples})))
    freedom = max(0.0, 1 - 2 * len(groups) / differ)
    proof = freedom * (inside - flat) * differ / len(samples) - 0.5 * log(differ)
    if proof <= _PROOF_OF_WORKERS:
        return None
    shape = Workers(1)
    return Fit(shape, (seen[0], seen[-1]), len(samples), _error(groups, samples, shape), proof)


def _best(proven: Sequence[_Candidate], seen: Sequence[int]) -> tuple[Shape, float]:
    """The likeliest. That a host gets through no more than with one must be clearly likelier than all else; or,
    where one alone was seen too, durations in proportion to company must not be refuted and nearly fit best.

    What a shape gains where nothing was seen is no gain: there, the one without it is as good.
    """
    if not proven:
        return FLAT, 0.0
    more = [p for p in proven if _gains(p[1], seen)]
    best = max(proven, key=lambda p: p[0])
    best_of_more = max(more, key=lambda p: p[0], default=best)
    one = next((p for p in proven if p[1] == ONE), None)
    if (
        one is not None
        and best[0] - one[0] <= _REFUTED
        and not _gains(best[1], seen, _NEARLY_ONE)
        and (seen[0] == 1 or best_of_more is best or one[0] - best_of_more[0] > _CLEARLY)
    ):
        return one[1], one[2]
    clearly = _CLEARLY if seen[0] == 1 or isinstance(best[1], Workers) else _CLEARLY_UNSEEN
    if best_of_more is not best and best[0] - best_of_more[0] <= clearly:
        best = best_of_more
    elif best not in more:
        plain = [p for p in proven if not _gains(p[1], range(1, seen[-1] + 1)) and best[0] - p[0] <= _CLEARLY]
        best = max(plain, key=lambda p: p[0], default=best)
    return best[1], best[2]


def _gains(shape: Shape, levels: Iterable[int], least: float = NO_MORE) -> bool:
    return max(c * shape.speed(c) for c in levels) > least


def served_s(attempts: Sequence[Lived], workers: int, blur_s: float = 0.0) -> list[float]:
    """How long each was worked on, if so many were at a time and the others waited, first come first served.

    Below 0 for one that ended before its turn: then that is not how the host works.
    """
    return _served([(a.start, a.end) for a in attempts], _in_order(attempts, blur_s), workers)


def _served(spans: Sequence[Span], order: Sequence[int], workers: int) -> list[float]:
    latest: list[float] = []  # ends of those before it: the latest so many
    seconds = [0.0] * len(spans)
    for i in order:
        start, end = spans[i]
        if len(latest) < workers:
            seconds[i] = end - start
            heapq.heappush(latest, end)
        else:
            seconds[i] = end - max(start, latest[0])
            heapq.heappushpop(latest, end)
    return seconds


def _in_order(attempts: Sequence[Lived], blur_s: float) -> list[int]:
    """By start; of those that came together, whoever ended first had come first."""
    order: list[int] = []
    for together in _together(attempts, blur_s):
        order += sorted(together, key=lambda i: attempts[i].end) if len(together) > 1 else together
    return order


def blur_of(attempts: Sequence[Lived], resolution: float) -> float:
    """What the clock and chance leave open of a moment."""
    seconds = [a.seconds for a in attempts]
    return max(resolution / 2, JITTER * median_of(seconds)) if seconds else resolution


def _together(attempts: Sequence[Lived], blur_s: float) -> Iterator[list[int]]:
    """Those that started in one moment, of which nobody can say who came first."""
    group: list[int] = []
    for i, a in enumerate(attempts):
        if group and a.start > attempts[group[0]].start + blur_s:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def _unknown_order(attempts: Sequence[Lived], blur_s: float) -> float:
    """What it costs to have chosen the likeliest order of those that came together."""
    return sum(lgamma(len(group) + 1) for group in _together(attempts, blur_s))


# ---- likelihood


def _likelihood(groups: Sequence[Group], works: Sequence[tuple[float, float]]) -> float:
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
    centre = median_of(values)
    width = max(1e-6, 1.4826 * median_of([abs(y - centre) for y in values]))
    for _ in range(3):
        tail, scale = _TAIL * width * width, (_TAIL + 1) * width * width
        weights = [scale / (tail + (y - centre) ** 2) for y in values]
        centre = sum(map(mul, weights, values)) / sum(weights)
        squares = sum(map(mul, weights, [(y - centre) ** 2 for y in values]))
        width = max(1e-6, sqrt(squares / len(values)))
    return centre, width


def _works(samples: Sequence[Sample], shape: Shape) -> list[tuple[float, float]]:
    speeds = _Speeds(shape)
    at = speeds.__getitem__
    return [(sum(map(mul, map(at, x.counts), x.lengths)), speeds[x.last]) for x in samples]


class _Speeds(dict[int, float]):
    """Of a shape, each worked out once."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def __missing__(self, count: int) -> float:
        self[count] = speed = self._shape.speed(count)
        return speed


def _error(groups: Sequence[Group], samples: Sequence[Sample], shape: Shape) -> float:
    """Standard error of the exponent, were the curve speed ~ c ** -exponent."""
    works = _works(samples, shape)
    squares, spread, at = 0.0, 0.0, 0
    for group in groups:
        part = works[at : at + len(group.samples)]
        at += len(part)
        centre = sum(s.log_load for s in group.samples) / len(part)
        squares += sum((s.log_load - centre) ** 2 for s in group.samples)
        width = _spread_of([log(w) for w, _ in part])[1]
        spread += len(part) * max(width, JITTER) ** 2
    return sqrt(spread / len(samples) / squares) if squares > 1e-9 else inf


# ---- candidates


def _candidates(
    groups: Sequence[Group],
    samples: Sequence[Sample],
    attempts: Sequence[Lived],
    observed: tuple[int, int],
    flat: float,
) -> Iterator[tuple[Shape, float, int]]:
    """Shapes at their best, with their likelihood and how many figures were chosen for it.

    The best place is not looked for where both a slight and a strong slow-down are less likely than none.
    """

    def value(shape: Shape) -> float:
        worse = log(observed[1] * shape.speed(observed[1]))  # below 0: all together do less than one alone
        return _likelihood(groups, _works(samples, shape)) + _RETROGRADE * min(0.0, worse)

    blur_s = blur_of(attempts, 0.0)
    unknown_order = _unknown_order(attempts, blur_s) * len(samples) / len(attempts)
    spans, order = [(a.start, a.end) for a in attempts], _in_order(attempts, blur_s)
    for knee in _knees(observed[1]):
        served = _served(spans, order, knee)
        if _is_credible(groups, served):
            inside = _likelihood(groups, [(served[s.index], 1.0) for s in samples]) - unknown_order
            yield Workers(knee), inside, 1
        onset = partial(Onset, knee)
        hands = value(onset(1.0))
        yield (
            onset(1.0),
            hands,
            0 if knee == 1 else 1,
        )  # a server with so many hands; with one, nothing is chosen
        if hands < flat and value(onset(_SLIGHT)) < flat:
            continue
        exponent = _climb(lambda at, make=onset: value(make(at[0])), (1.0,), 0.5)  # type: ignore[misc]
        yield onset(exponent[0]), value(onset(exponent[0])), 1 if knee == 1 else 2
    if max(value(Scalability(sigma, 0.0)) for sigma in (_SLIGHT**2, _SLIGHT, 1.0)) < flat:
        return
    root = _climb(lambda at: value(Scalability(at[0] ** 2, 0.0)), (0.5,), 0.25)
    yield Scalability(root[0] ** 2, 0.0), value(Scalability(root[0] ** 2, 0.0)), 1
    for start in ((0.3, 0.0), (0.2, 0.2), (1.0, 0.0)):
        roots = _climb(lambda at: value(Scalability(at[0] ** 2, at[1] ** 2)), start, 0.25)
        shape = Scalability(roots[0] ** 2, roots[1] ** 2)
        yield shape, value(shape), 2


def _is_credible(groups: Sequence[Group], served: Sequence[float]) -> bool:
    """Whether those that were worked on at once take no longer than those that had to wait inside."""
    for group in groups:
        waited = [s.seconds > served[s.index] + group.blur_s for s in group.samples]
        at_once = [s.seconds for s, w in zip(group.samples, waited, strict=True) if not w]
        others = [served[s.index] for s, w in zip(group.samples, waited, strict=True) if w]
        if not at_once or not others:
            continue
        works = [log(max(s, group.blur_s)) for s in others]
        doubt = 3 * _spread_of(works)[1] / sqrt(len(at_once))
        if log(max(median_of(at_once), group.blur_s)) > median_of(works) + log(_TOO_LONG) + doubt:
            return False
    return True


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
