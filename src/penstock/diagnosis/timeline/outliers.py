"""Which tasks of a kind took far longer than the others: the rule, and what is usual.

Far beyond is, of at least eight of a kind: above the upper quartile by more than three times the distance
between the quartiles (Tukey's outer fence), and more than twice the median, and above it by more than a
hundredth of the whole run. The first finds what stands apart; the others keep small differences out where all
are alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf
from statistics import quantiles

LEAST = 8
FENCE = 3.0
TIMES_MEDIAN = 2.0
SHARE_OF_RUN = 0.01
RULE = (
    f"an outlier, of at least {LEAST} of its kind: more than {FENCE:g} interquartile ranges above the upper "
    f"quartile, over {TIMES_MEDIAN:g} × the median, and {SHARE_OF_RUN * 100:g} % of the run beyond it"
)


def far_beyond(amounts: Iterable[tuple[str, float | None]], makespan_s: float) -> list[float | None]:
    """For each (kind, seconds): the median of its kind if it is far beyond, else None. None does not count."""
    amounts = list(amounts)
    by_kind: dict[str, list[float]] = defaultdict(list)
    for kind, seconds in amounts:
        if seconds is not None:
            by_kind[kind].append(seconds)
    bounds = {kind: _bound(seconds, makespan_s) for kind, seconds in by_kind.items() if len(seconds) >= LEAST}
    found: list[float | None] = []
    for kind, seconds in amounts:
        bound, median = bounds.get(kind, (inf, 0.0))
        found.append(median if seconds is not None and seconds > bound else None)
    return found


def _bound(seconds: list[float], makespan_s: float) -> tuple[float, float]:
    lower, median, upper = quantiles(seconds, n=4, method="inclusive")
    fence = upper + FENCE * (upper - lower)
    return max(fence, TIMES_MEDIAN * median, median + SHARE_OF_RUN * makespan_s), median
