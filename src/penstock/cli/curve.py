"""A sweep drawn with block characters: one column per value, the knee marked."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from penstock.cli.render import seconds

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 8
_MOST_WIDTH = 72


def drawn(values: Sequence[str], heights: Sequence[float], knee: int | None) -> list[str]:
    """Lines from top to bottom; a height that is not finite has no bar."""
    known = [height for height in heights if isfinite(height)]
    if not known or max(known) <= 0:
        return []
    top = max(known)
    width = max(1, min(6, _MOST_WIDTH // len(values) - 1))
    axis = max(len(seconds(top)), len(seconds(top / 2)))
    lines = []
    for level in range(_HEIGHT, 0, -1):
        cells = [_cell(height / top * _HEIGHT - (level - 1)) * width for height in heights]
        label = seconds(top) if level == _HEIGHT else seconds(top / 2) if level == _HEIGHT // 2 else ""
        lines.append(f"{label:>{axis}} ┤" + " ".join(cells).rstrip())
    lines.append(" " * axis + " └" + "─" * ((width + 1) * len(values)))
    lines += _named(values, width, axis, knee)
    return lines


def _cell(rest: float) -> str:
    """Of one level: how much of it the bar fills."""
    if not isfinite(rest):
        return " "
    return _BLOCKS[max(0, min(8, round(rest * 8)))]


def _named(values: Sequence[str], width: int, axis: int, knee: int | None) -> list[str]:
    """Values under their bars as far as there is room, and an arrow under the knee."""
    row = ""
    for place, value in enumerate(values):
        start = place * (width + 1)
        if len(row) < start or not row:
            row = row.ljust(start) + value + " "
    lines = [" " * (axis + 2) + row.rstrip()]
    if knee is not None:
        lines.append(" " * (axis + 2 + knee * (width + 1)) + f"▲ {values[knee]}: the knee")
    return lines
