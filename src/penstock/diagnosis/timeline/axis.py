"""How stretches of time are told, and where the marks of an axis stand: round numbers, never too many."""

from __future__ import annotations

from collections.abc import Iterator

_ROUND_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)


def seconds(amount: float) -> str:
    """A stretch of time as people say it: 40 ms, 3.2 s, 12 s, 3m05s, 2h10m, 3d04h."""
    if amount < 0.0995:
        return f"{max(0.0, amount) * 1000:.0f} ms"
    if amount < 9.95:
        return f"{amount:.1f} s"
    if amount < 99.5:
        return f"{amount:.0f} s"
    whole = round(amount)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"


def step_s(span_s: float, most: int) -> float:
    """A round number of seconds of which at most so many fit into the span."""
    wanted = span_s / max(1, most)
    for exponent in range(-9, 0):
        for factor in (1, 2, 5):
            step = float(f"{factor}e{exponent}")
            if step >= wanted * 0.999:
                return step
    for whole in _ROUND_S:
        if whole >= wanted * 0.999:
            return float(whole)
    days = 86_400.0
    while days < wanted:
        days *= 2
    return days


def ticks(span_s: float, most: int) -> Iterator[tuple[float, str]]:
    """Seconds from the begin, and their label."""
    step = step_s(span_s, most) if span_s > 0 else 1.0
    last = int(span_s / step + 1e-9)
    for number in range(last + 1):
        yield number * step, label(number * step, step, last * step)


def label(at_s: float, step: float, last_s: float) -> str:
    """As many digits as the step needs, in the form that the last mark of the axis needs, so that all of an axis
    have one form: 0.25 s, 40 s, 2m30s, 10 min, 3h05m, 2d06h."""
    if at_s == 0:
        return "0"
    if step < 1:
        digits = next(n for n in range(1, 12) if abs(round(step, n) - step) < step * 1e-3)
        return f"{at_s:.{digits}f} s"
    whole, last = round(at_s), round(last_s)
    if last < 120 and step < 60:
        return f"{whole} s"
    if last < 3600:
        return f"{whole // 60}m{whole % 60:02}s" if step < 60 else f"{whole // 60} min"
    if last < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"
