"""The forms that a slow-down by company may have: the speed of one attempt beside others. For `speed_fit.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


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
ONE = Onset(1, 1.0)  # a server that shares itself among all
