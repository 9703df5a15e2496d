"""The referee's own account of money: every cost once, added up anew whenever somebody asks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.model import Plant

DAY_S = 86_400


class Cost(NamedTuple):
    day: int
    host: str
    lane: str
    usd: float


@dataclass
class Books:
    plant: Plant
    costs: list[Cost] = field(default_factory=list)
    since: float = -math.inf  # what a dispatcher that took over knows of: its day and the one before

    def add(self, now: float, host: str, lane: str, usd: float) -> None:
        self.costs.append(Cost(math.floor(now / DAY_S), host, lane, usd))

    def take_over(self, now: float) -> dict[tuple[int, str, str], list[float]]:
        """What a store's ledger tells a new dispatcher, by day, host and lane."""
        self.since = math.floor(now / DAY_S) - 1
        ledger: dict[tuple[int, str, str], list[float]] = {}
        for cost in self.known():
            ledger.setdefault((cost.day, cost.host, cost.lane), []).append(cost.usd)
        return ledger

    def known(self) -> list[Cost]:
        return [c for c in self.costs if c.day >= self.since]

    def costs_money(self, host: str) -> bool:
        """The config says so, or it has been seen."""
        (found,) = [h for h in self.plant.hosts if h.name == host]
        budget = found.fallback.budget_usd_per_day if found.fallback else None
        return bool(found.prices) or budget is not None or any(c.host == host for c in self.known())

    def budgets(self) -> dict[str, tuple[float, Callable[[Cost], bool]]]:
        """Every budget under its gate's name: its limit, and which costs are on it."""
        found: dict[str, tuple[float, Callable[[Cost], bool]]] = {}
        for host in self.plant.hosts:
            if host.fallback is not None and host.fallback.budget_usd_per_day is not None:
                found[f"budget:{host.name}"] = (
                    host.fallback.budget_usd_per_day,
                    lambda c, name=host.name: c.host == name,  # type: ignore[misc]
                )
        for lane in self.plant.lanes:
            if lane.budget_usd_per_day is not None:
                found[f"budget:lane:{lane.name}"] = (
                    lane.budget_usd_per_day,
                    lambda c, name=lane.name: c.lane == name,  # type: ignore[misc]
                )
        return found

    def left(self, gate: str, running: int, now: float) -> float:
        """What is left of a budget today when all that runs on it costs what others did; may be negative."""
        limit, counts = self.budgets()[gate]
        known = [c for c in self.known() if counts(c)]
        today = math.floor(now / DAY_S)
        last = [c.usd for c in known if c.day == max(k.day for k in known)]
        mean = sum(last) / len(last) if last else 0.0
        return limit - sum(c.usd for c in known if c.day == today) - running * mean
