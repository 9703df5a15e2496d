"""Budgets that could never close, because nothing tells what the calls they are for cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.config.keys import MODEL_TYPES
from penstock.config.problems import quoted
from penstock.config.takes import named_models
from penstock.config.wording import some
from penstock.model import ANY_MODEL, Host, Plant

_NEVER_TELL = ("python", "command")  # their attempts have no cost
_MOST_NAMED = 3


class BlindBudget(NamedTuple):
    place: str  # the key, as the config has it
    detail: str


def blind_budgets(plant: Plant) -> Iterator[BlindBudget]:
    for host in plant.hosts:
        if host.fallback is not None and host.fallback.budget_usd_per_day is not None:
            missing = _without_price(host)
            if missing:
                place = f"hosts.{host.name}.fallback.budget_usd_per_day"
                yield BlindBudget(
                    place, f"does not count calls of {missing}, which has no price; add it to [prices]"
                )
    if any(_may_cost(host) for host in plant.hosts):
        return
    for lane in plant.lanes:
        if lane.budget_usd_per_day is not None:
            place = f"lanes.{lane.name}.budget_usd_per_day"
            yield BlindBudget(place, "never closes: no model of any host has a price; add it to [prices]")


def _without_price(host: Host) -> str:
    """The models of a host whose calls tell no cost, in words."""
    if host.type not in MODEL_TYPES:
        return ""
    names = named_models(host)
    missing = [quoted(name) for name in names if name not in host.prices]
    if not names and not host.prices:
        return "any model"
    return some(missing, _MOST_NAMED)


def _may_cost(host: Host) -> bool:
    if host.type not in MODEL_TYPES:
        return host.type not in _NEVER_TELL
    names = named_models(host)
    return any(name in host.prices for name in names) or (ANY_MODEL in host.models and bool(host.prices))
