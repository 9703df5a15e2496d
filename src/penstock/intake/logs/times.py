"""Times as logs write them → seconds: ISO 8601, epochs, clocks, lengths of time, seconds of a run.

What a value is, is told by its look and its size alone. Points on the calendar and times within a run cannot
be set against each other, so every value says which of the two it is.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import Enum
from math import isfinite
from typing import Any, NamedTuple

DAY_S = 86_400.0
_HALF_DAY_S = DAY_S / 2
_LARGEST = 4e18  # as nanoseconds, a moment in the year 2096

# An epoch by its size, in the smallest unit it can be: from 1973 on, none of these ranges meet.
_EPOCHS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3), (1e8, 1.0))

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_CLOCK = re.compile(r"(?:(\d{1,4}):)?(\d{1,4}):(\d{2}(?:[.,]\d{1,9})?)", re.ASCII)
_LENGTH = re.compile(
    r"(?=.*\d)(?:(\d+(?:\.\d+)?)\s*(?:d|days?))?\s*(?:(\d+(?:\.\d+)?)\s*(?:h|hrs?|hours?))?\s*"
    r"(?:(\d+(?:\.\d+)?)\s*(?:m|mins?|minutes?))?\s*(?:(\d+(?:\.\d+)?)\s*(?:s|secs?|seconds?))?\s*"
    r"(?:(\d+(?:\.\d+)?)\s*(?:ms|millis(?:econds)?))?\s*(?:(\d+(?:\.\d+)?)\s*(?:us|µs|μs|microseconds))?",
    re.ASCII | re.IGNORECASE,
)
_LENGTH_UNITS = (DAY_S, 3600.0, 60.0, 1.0, 1e-3, 1e-6)
_DAY_FIRST = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}", re.ASCII)

# The unit that a column's name ends with, in seconds.
UNITS = {
    "ns": 1e-9, "nanos": 1e-9, "nanoseconds": 1e-9,
    "us": 1e-6, "micros": 1e-6, "microseconds": 1e-6,
    "ms": 1e-3, "msec": 1e-3, "millis": 1e-3, "milliseconds": 1e-3,
    "min": 60.0, "mins": 60.0, "minutes": 60.0,
    "hours": 3600.0,
}  # fmt: skip

FORMS = "ISO 8601, seconds or an epoch, HH:MM:SS, MM:SS, or a length like 26m37s"


class Base(Enum):
    """What a time counts from."""

    CALENDAR = "times of the calendar"
    NAIVE = "times of the calendar without a zone"
    RUN = "times within the run"
    CLOCK = "times within the run, perhaps of a day"


class Stamp(NamedTuple):
    seconds: float
    base: Base


def unit_of(column: str) -> float:
    """The unit of plain numbers in a column whose name ends with one; else a second."""
    return UNITS.get(column.rpartition("_")[2], 1.0)


def read_time(value: Any, unit_s: float = 1.0) -> Stamp | None:
    """A moment; None when it is none. `unit_s` is that of numbers too small for an epoch."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _of_number(value, unit_s)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text[4:5] == "-" and (stamp := _calendar(text)) is not None:  # nearly all of a long log's
        return stamp
    if _NUMBER.fullmatch(text):
        number = _number(text)
        return None if number is None else _of_number(number, unit_s)
    if (clock := _clock(text)) is not None:
        return clock
    if (length_s := _length(text)) is not None:
        return Stamp(length_s, Base.RUN)
    return _calendar(text)


def read_length(value: Any, unit_s: float = 1.0) -> float | None:
    """How long something took, in seconds; None when the value does not say."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        number: float | None = _bounded(value)
    elif not isinstance(value, str):
        return None
    elif _NUMBER.fullmatch(value.strip()):
        number = _number(value.strip())
    else:
        clock = _clock(value.strip())
        return _length(value.strip()) if clock is None else clock.seconds
    return None if number is None or number < 0 else number * unit_s


def _number(text: str) -> float | None:
    if len(text) > 40:
        return None
    return _bounded(int(text) if text.lstrip("+-").isdecimal() else float(text))


def _bounded(number: float) -> float | None:
    return number if abs(number) <= _LARGEST and isfinite(number) else None


def _of_number(number: float, unit_s: float) -> Stamp | None:
    if _bounded(number) is None:
        return None
    for least, per_second in _EPOCHS:
        if number >= least:
            return Stamp(number / per_second, Base.CALENDAR)
    return Stamp(number * unit_s if unit_s != 1.0 else float(number), Base.RUN)


def _clock(text: str) -> Stamp | None:
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    hours, minutes, seconds = found[1], int(found[2]), float(found[3].replace(",", "."))
    if seconds >= 60 or (hours is not None and minutes >= 60):
        return None
    if hours is None:
        return Stamp(minutes * 60 + seconds, Base.RUN)
    of_day = int(hours) < 24
    return Stamp(int(hours) * 3600 + minutes * 60 + seconds, Base.CLOCK if of_day else Base.RUN)


def _length(text: str) -> float | None:
    if len(text) > 80 or not text[:1].isdigit():
        return None
    found = _LENGTH.fullmatch(text)
    if found is None:
        return None
    parts = zip(found.groups(), _LENGTH_UNITS, strict=True)
    return sum(float(amount) * unit for amount, unit in parts if amount is not None)


def _calendar(text: str) -> Stamp | None:
    """ISO 8601, with the liberties that logs take: a blank for the T, a comma, slashes, UTC in words."""
    if len(text) > 64 or (not _DAY_FIRST.match(text) and not text[:8].isdecimal()):
        return None
    try:
        moment = datetime.fromisoformat(_tidied(text))
        if moment.tzinfo is None:
            return Stamp(moment.replace(tzinfo=UTC).timestamp(), Base.NAIVE)
        return Stamp(moment.timestamp(), Base.CALENDAR)
    except (ValueError, OverflowError):
        return None


def _tidied(text: str) -> str:
    if " " not in text and "/" not in text:
        return text
    for word in (" UTC", " GMT", " Z"):
        if text.endswith(word):
            text = text.removesuffix(word) + "Z"
    return text[:10].replace("/", "-") + text[10:].replace(" +", "+").replace(" -", "-")


class Days:
    """Times of day, in the order of a log: which day each belongs to.

    A step back by over half a day is midnight; a step forward by as much, once midnight has passed, is
    somebody who was there before it.
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self._day = 0

    def placed(self, seconds: float) -> float:
        if self._last is None:
            self._last = seconds
            return seconds
        at = seconds + self._day * DAY_S
        if self._last - at > _HALF_DAY_S:
            self._day += 1
            at += DAY_S
        elif at - self._last > _HALF_DAY_S and self._day:
            return at - DAY_S
        self._last = at
        return at
