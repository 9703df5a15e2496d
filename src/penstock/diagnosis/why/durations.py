"""How long attempts take, from those that are over: by host, kind and model, as far as enough of each is known."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import exp, log, sqrt
from typing import NamedTuple

from penstock.diagnosis.history import Ran
from penstock.model import Outcome, Task, Verdict

_NEWEST = 200  # of each group: hosts and models change
_ENOUGH = 5  # with fewer, a wider group tells more
_UNKNOWN_SPREAD = 0.5  # of one or two
_BESIDE = 8  # lengths that stand for the surroundings of each

# A host that failed or said "too much" says nothing about how long the work takes.
_COUNT = (Verdict.DONE, Verdict.TEMPORARY, Verdict.PERMANENT)


class Drawn(NamedTuple):
    seconds: float
    outcome: Outcome


class Lengths:
    """The attempts of one group, the shortest first."""

    def __init__(self, ran: Sequence[Ran]) -> None:
        ordered = sorted(ran, key=lambda one: one.seconds)
        self.seconds = [max(0.0, one.seconds) for one in ordered]
        self.count = len(ordered)
        self.mean_s = sum(self.seconds) / self.count
        self.spread = _spread(self.seconds)
        outcomes = [_outcome(one.verdict) for one in ordered]
        grid = sorted(
            ((s * beside, place) for place, s in enumerate(self.seconds) for beside in self._surroundings()),
        )
        self._grid = [seconds for seconds, _ in grid]
        self._outcomes = [outcomes[place] for _, place in grid]

    def _surroundings(self) -> Sequence[float]:
        """Between those that were recorded lie others, and beyond them: each stands for its surroundings."""
        blur = min(1.0, 1.06 * self.spread * self.count**-0.2)
        if not blur:
            return (1.0,)
        beside = [exp(blur * normal((step + 0.5) / _BESIDE)) for step in range(_BESIDE)]
        mean = sum(beside) / _BESIDE  # which is to stay what it is
        return [one / mean for one in beside]

    @property
    def doubt(self) -> float:
        """By how much the mean may be wrong, as the logarithm of a factor: one standard error.

        That of a log-normal mean (Cox), and more for few: where some are very long, those that were recorded
        seldom have their share of them.
        """
        known = max(1, self.count - 1)
        return sqrt(self.spread**2 / known + self.spread**4 / (2 * known)) * (1 + 1 / known)

    def draw(self, level: float, elapsed_s: float = 0.0, scale: float = 1.0) -> Drawn:
        """One that took longer than `elapsed_s`: the shortest at level 0, the longest at level 1."""
        first = bisect_right(self._grid, elapsed_s / scale) if elapsed_s > 0 else 0
        left = len(self._grid) - first
        if not left:  # longer than any: it may take as long again
            return Drawn(elapsed_s * (1.0 + level), Outcome(Verdict.DONE))
        place = first + min(left - 1, int(level * left))
        return Drawn(max(elapsed_s, self._grid[place] * scale), self._outcomes[place])


def _spread(seconds: Sequence[float]) -> float:
    """How much they differ, as the logarithm of a factor: one standard deviation."""
    count = len(seconds)
    if count <= 2:
        return _UNKNOWN_SPREAD
    mean_s = sum(seconds) / count
    if mean_s <= 0:
        return 0.0
    share = sqrt(sum((s - mean_s) ** 2 for s in seconds) / (count - 1)) / mean_s
    return 0.0 if share < 1e-6 else sqrt(log(1 + share**2))  # of equal ones only the last digits differ


def _outcome(verdict: Verdict | None) -> Outcome:
    verdict = verdict or Verdict.DONE
    return Outcome(verdict, error=None if verdict is Verdict.DONE else "as such tasks do")


class Durations:
    def __init__(self, ran: Iterable[Ran]) -> None:
        groups: dict[tuple[str | None, ...], list[Ran]] = defaultdict(list)
        for one in ran:
            if one.verdict not in _COUNT:
                continue
            for key in _keys(one.host, one.kind, one.model):
                group = groups[key]
                if len(group) < _NEWEST:
                    group.append(one)
        self._lengths = {key: Lengths(group) for key, group in groups.items()}

    def of(self, host: str, task: Task) -> Lengths | None:
        """How long such a task takes there; None before anything has ended."""
        *alike, there, anywhere = (self._lengths.get(key) for key in _keys(host, task.kind, task.model))
        known = [one for one in alike if one is not None]
        enough = next((one for one in known if one.count >= _ENOUGH), None)
        return enough or (known[-1] if known else there or anywhere)


def _keys(host: str, kind: str, model: str | None) -> tuple[tuple[str | None, ...], ...]:
    """From like to less like: the same work there, that kind anywhere, anything there, anything."""
    return ("hkm", host, kind, model), ("hk", host, kind), ("k", kind), ("h", host), ()


def normal(level: float) -> float:
    """About how many standard deviations from the mean that level is."""
    level = min(max(level, 1e-3), 1 - 1e-3)
    return log(level / (1 - level)) / 1.702


def quantile(ordered: Sequence[float], level: float) -> float:
    """Between the two values nearest to it."""
    place = level * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
