"""What a host's attempts tell of its speed: who ran beside how many, for how long, by sort. For `speed_fit.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log

from penstock.diagnosis.attempts import Lived, Sort
from penstock.diagnosis.steps import Steps

_MOST = 250  # attempts that are looked at, per host
_OVERHEAD_S = 0.02  # shorter attempts tell of whoever starts and records them, not of their host
_FEWEST_OF_A_SORT = 3
_BINS = 10  # of concurrency, from each of which some attempts are taken
JITTER = 0.01  # of a duration: two that differ by less are equal


@dataclass(slots=True)
class Sample:
    seconds: float
    counts: tuple[int, ...]  # beside how many it ran
    lengths: tuple[float, ...]  # and how long beside each
    last: int  # how many ran when it ended
    log_load: float  # the mean logarithm of how many ran
    index: int  # in the attempts of the host


@dataclass(slots=True)
class Group:
    """Samples of one sort. The clock, and chance of that size, keep equal durations from proving anything."""

    samples: list[Sample] = field(default_factory=list)
    blur_s: float = 0.0


def groups_of(attempts: Sequence[Lived], load: Steps, resolution: float) -> list[Group]:
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
        middle = median_of([attempts[i].seconds for _, i in found])
        if middle < _OVERHEAD_S:
            continue
        group = Group(blur_s=max(resolution / 2, JITTER * middle))
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


def _sample(attempt: Lived, index: int, load: Steps) -> Sample:
    profile: dict[int, float] = defaultdict(float)
    for start, end, count in load.pieces(attempt.start, attempt.end):
        profile[max(1, count)] += end - start
    log_load = sum(s * log(c) for c, s in profile.items()) / attempt.seconds
    return Sample(
        attempt.seconds,
        tuple(profile),
        tuple(profile.values()),
        max(1, load.before(attempt.end)),
        log_load,
        index,
    )


def seen_at_once(samples: Sequence[Sample]) -> list[int]:
    """How many ran at once, but for loads that were hardly seen."""
    seconds: dict[int, float] = defaultdict(float)
    for sample in samples:
        for count, s in zip(sample.counts, sample.lengths, strict=True):
            seconds[count] += s
    least = 0.01 * sum(seconds.values())
    return sorted(count for count, s in seconds.items() if s >= least)


def median_of(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
