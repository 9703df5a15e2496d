"""Budgets: whether the money that a host or a lane may cost in a day lets another attempt begin.

A day is a UTC day. A budget is a gate: it closes when what was spent in the day, and what the attempts that run
now are expected to cost on top, reaches the limit. The expected cost of an attempt is the mean of those that told
theirs. Attempts that cost less than expected open it again; at the latest the next day does.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import NamedTuple

from penstock.model import Gate
from penstock.scheduling.gates import GateState

DAY_S = 86_400.0

_CENT = 0.01
_EPSILON = 1e-9  # ten times 0.1 reach 1.0


# A budget is open, closed because what runs may use it up, or closed because it is spent.
_OPEN, _EXPECTED, _SPENT = range(3)


class Costs(NamedTuple):
    """What the attempts of a day cost, and how many told it."""

    day: int
    usd: float = 0.0
    calls: int = 0

    @property
    def mean_usd(self) -> float:
        return self.usd / self.calls if self.calls else 0.0

    def __add__(self, more: Costs) -> Costs:  # type: ignore[override]
        return Costs(self.day, self.usd + more.usd, self.calls + more.calls)


def day_of(now: float) -> int:
    """The UTC day of a time: how many lie between it and the first of January 1970."""
    return int(now // DAY_S)


def host_gate(host: str) -> str:
    return f"budget:{host}"


def lane_gate(lane: str) -> str:
    return f"budget:lane:{lane}"


def is_left(limit_usd: float, spent_usd: float, expected_usd: float = 0.0) -> bool:
    """Whether a budget still lets something begin."""
    return spent_usd + expected_usd < limit_usd - _EPSILON


def told(limit_usd: float, spent_usd: float, expected_usd: float = 0.0) -> str:
    """A closed budget in words."""
    text = f"{usd(spent_usd)} of {usd(limit_usd)} USD spent today"
    if is_left(limit_usd, spent_usd):
        text += f", {usd(expected_usd)} more expected of what runs"
    return f"{text}; opens 00:00 UTC"


def usd(amount: float) -> str:
    """Cents, and for less than that the first digits that say anything."""
    return f"{amount:.2f}" if amount == 0 or amount >= _CENT else f"{amount:.2g}"


class Budget(GateState):
    """One host's or lane's money. `live` are the attempts that run on its account."""

    __slots__ = ("_last", "_stage", "lane", "limit_usd", "live", "spent", "timer_at")

    def __init__(self, gate: Gate, limit_usd: float, live: Sized, lane: str | None = None) -> None:
        self._stage = _OPEN
        super().__init__(gate)
        self.detail = self.fault = ""
        self.told = self.standing
        self.limit_usd = limit_usd
        self.live = live
        self.lane = lane  # None when it is a host's
        self.spent = Costs(0)
        self.timer_at: float | None = None
        self._last = Costs(0)  # of the last day before that had any

    @property
    def standing(self) -> tuple[bool, str]:
        """Also worth telling: closed for what was expected, and then for what was spent."""
        return self.open, str(self._stage)

    @property
    def expected_usd(self) -> float:
        """What the attempts that run will cost, if they cost what others did."""
        return len(self.live) * (self.spent if self.spent.calls else self._last).mean_usd

    @property
    def opens_at(self) -> float:
        """When the day is over of which it last heard."""
        return (self.spent.day + 1) * DAY_S

    def add(self, usd: float, now: float) -> None:
        """An attempt cost this."""
        self.add_of_day(Costs(day_of(now), usd, 1), now)

    def add_of_day(self, costs: Costs, now: float) -> None:
        """What was recorded of a day: spent if it is this one; of an earlier one only the mean counts."""
        self._turn(now)
        if costs.day == self.spent.day:
            self.spent += costs
        elif costs.day == self._last.day:
            self._last += costs
        elif self._last.day < costs.day < self.spent.day:
            self._last = costs

    def judge(self, now: float) -> bool:
        """Open or close by what is spent and what runs; whether that is anything new."""
        self._turn(now)
        spent_usd, expected_usd = self.spent.usd, self.expected_usd
        if is_left(self.limit_usd, spent_usd, expected_usd):
            stage = _OPEN
        else:
            stage = _EXPECTED if is_left(self.limit_usd, spent_usd) else _SPENT
        if stage == self._stage:
            return False
        self._stage = stage
        self.open = stage == _OPEN
        self.detail = "" if self.open else told(self.limit_usd, spent_usd, expected_usd)
        return True

    def _turn(self, now: float) -> None:
        """A new day begins with nothing spent."""
        day = day_of(now)
        if day > self.spent.day:
            if self.spent.calls:
                self._last = self.spent
            self.spent = Costs(day)
