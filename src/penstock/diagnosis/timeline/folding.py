"""Many bars in one row: for each stretch of time, what most of them did, and how many were there.

For pictures with fewer rows than tasks. Which bars keep a row of their own is decided here too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from penstock.diagnosis.timeline.bars import Bar, Sort, Steps, Timeline, went_wrong


class Cell(NamedTuple):
    """What most of the bars did in one stretch of time; `share` of them, on average, were there at all."""

    sort: Sort
    what: str
    share: float


def fold(bars: Sequence[Bar], begin: float, end: float, columns: int) -> list[Cell | None]:
    """The row of these bars, in so many stretches of equal length; None where no task was there."""
    width = (end - begin) / columns
    if width <= 0 or not bars:
        return [None] * columns
    # Per kind of piece: seconds that begin or end inside a column, and how many reach across whole ones.
    partial: dict[tuple[Sort, str], list[float]] = defaultdict(lambda: [0.0] * columns)
    across: dict[tuple[Sort, str], list[int]] = defaultdict(lambda: [0] * (columns + 1))
    for bar in bars:
        for piece in bar.pieces:
            if piece.sort is Sort.RESTING:
                continue
            first, last = (piece.start - begin) / width, (piece.end - begin) / width
            i, j = _column(first, columns), _column(last, columns)
            key = piece.sort, piece.what
            if i == j:
                partial[key][i] += last - first
                continue
            partial[key][i] += i + 1 - first
            partial[key][j] += last - j
            across[key][i + 1] += 1
            across[key][j] -= 1
    return _largest(partial, across, columns, len(bars))


def _column(at: float, columns: int) -> int:
    return min(columns - 1, max(0, int(at)))


def _largest(
    partial: dict[tuple[Sort, str], list[float]],
    across: dict[tuple[Sort, str], list[int]],
    columns: int,
    bars: int,
) -> list[Cell | None]:
    most: list[tuple[float, Sort, str] | None] = [None] * columns
    total = [0.0] * columns
    for (sort, what), seconds in partial.items():
        whole = 0
        for column in range(columns):
            whole += across[sort, what][column]
            amount = seconds[column] + whole
            total[column] += amount
            best = most[column]
            if amount > 0 and (best is None or amount > best[0]):
                most[column] = amount, sort, what
    return [
        None if best is None else Cell(best[1], best[2], min(1.0, amount / bars))
        for best, amount in zip(most, total, strict=True)
    ]


def means(steps: Steps, begin: float, end: float, columns: int) -> list[float]:
    """The average over each of so many stretches of equal length."""
    width = (end - begin) / columns
    if width <= 0 or not steps:
        return [steps[-1][1] if steps else 0.0] * columns
    sums = [0.0] * columns
    for (start, value), (stop, _) in zip(steps, [*steps[1:], (end, 0.0)], strict=True):
        first, last = max(0.0, (start - begin) / width), min(float(columns), (stop - begin) / width)
        for column in range(int(first), min(columns, int(last) + 1)):
            sums[column] += value * max(0.0, min(last, column + 1) - max(first, column))
    return sums


class Fold(NamedTuple):
    lane: str
    kind: str
    bars: Sequence[Bar]


def chosen(timeline: Timeline, limit: int) -> tuple[list[Bar], list[Fold]]:
    """The most telling bars, in order of arrival, and the others by lane and kind.

    Outliers come first, then what went wrong, then what took longest from the queue to its end.
    """
    if len(timeline.bars) <= limit:
        return list(timeline.bars), []
    order = sorted(
        range(len(timeline.bars)),
        key=lambda i: (
            not timeline.bars[i].outliers,
            not went_wrong(timeline.bars[i]),
            timeline.bars[i].start - timeline.bars[i].end,
        ),
    )
    kept = set(order[:limit])
    folds: dict[tuple[str, str], list[Bar]] = defaultdict(list)
    for i, bar in enumerate(timeline.bars):
        if i not in kept:
            folds[bar.record.task.lane, bar.record.task.kind].append(bar)
    rows = sorted(folds.items(), key=lambda item: -len(item[1]))
    return [timeline.bars[i] for i in sorted(kept)], [Fold(lane, kind, bars) for (lane, kind), bars in rows]
