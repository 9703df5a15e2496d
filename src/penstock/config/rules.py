"""[retry], [lanes.NAME] and [gates.NAME] → the rules between hosts and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.config import keys, probes
from penstock.config.hosts import given
from penstock.config.tables import Table
from penstock.model import CALL_KINDS, Gate, Lane, RetryRule


def read_retry(top: Table) -> RetryRule:
    default = RetryRule()
    table = top.table("retry", "{ retries = 2 }")
    if table is None:
        return default
    table.only(keys.RETRY)
    base_s = table.number("base_s", default.base_s, keys.SECONDS)
    max_s = table.number("max_s", max(default.max_s, base_s), keys.SECONDS)
    if max_s < base_s:
        table.refuse("is less than base_s", "max_s")
    return RetryRule(
        retries=table.whole("retries", default.retries, keys.COUNT_OR_NONE),
        base_s=base_s,
        max_s=max_s,
        host_faults=table.whole("host_faults", default.host_faults, keys.COUNT),
    )


# ---- lanes


def read_lane(name: str, table: Table) -> Lane:
    table.only(keys.LANE)
    return Lane(
        name=name,
        max_running=table.whole("max_running", None, keys.COUNT),
        reserve=_reserve(table),
        weight=table.number("weight", 1.0, keys.AMOUNT),
        budget_usd_per_day=table.number("budget_usd_per_day", None, keys.MONEY),
    )


def _reserve(lane: Table) -> dict[str, dict[str, float]]:
    table = lane.table("reserve", "{ HOST = 1 }")
    if table is None:
        return {}
    found: dict[str, dict[str, float]] = {}
    for host, value in table.raw.items():
        if isinstance(value, Mapping):
            units = table.table(host, "{ slots = 1, vram_gb = 8 }")
            if units is not None:
                found[host] = _reserved_units(units)
        elif (slots := table.whole(host, None, keys.COUNT)) is not None:
            found[host] = {"slots": slots}
    return found


def _reserved_units(table: Table) -> dict[str, float]:
    if not table.raw:
        table.refuse("reserves nothing; say how many slots or units, or remove it")
    found: dict[str, float] = {}
    for unit in table.raw:
        if unit == "slots":
            amount: float | None = table.whole(unit, None, keys.COUNT)
        else:
            amount = table.number(unit, None, keys.AMOUNT)
        if amount is not None:
            found[unit] = amount
    return found


def lane_document(lane: Lane) -> dict[str, Any]:
    table = given(max_running=lane.max_running, budget_usd_per_day=lane.budget_usd_per_day)
    if lane.reserve:
        table["reserve"] = {host: _units_document(units) for host, units in lane.reserve.items()}
    return table | {"weight": lane.weight}


def _units_document(units: Mapping[str, float]) -> dict[str, float]:
    """Slots are whole; a plant that was kept has all amounts as fractions."""
    return {unit: int(amount) if unit == "slots" else amount for unit, amount in units.items()}


# ---- gates


def read_gate(name: str, table: Table) -> Gate:
    table.only(keys.GATE)
    on_lane, on_probe = "lane" in table, "probe" in table
    if on_lane and on_probe:
        table.refuse("has two conditions, lane and probe; make two gates of it")
    elif not on_lane and not on_probe:
        table.refuse('has no condition; give lane = "…" with max_running, or probe = "…" with min or max')
    if not on_probe:
        _refuse_strangers(table, ("min", "max", "every_s", "on_error"), "probe")
    if not on_lane:
        _refuse_strangers(table, ("max_running",), "lane")
    elif "max_running" not in table:
        table.refuse("has no max_running; say up to how many running tasks of the lane it stays open")
    low, high = table.number("min", None, keys.ANY), table.number("max", None, keys.ANY)
    if on_probe and "min" not in table and "max" not in table:
        table.refuse("has neither min nor max; give the readings at which it is open")
    if low is not None and high is not None and low > high:
        table.refuse("is more than max, so it never opens; lower it, or raise max", "min")
    lanes, kinds, hosts = _holds(table)
    return Gate(
        name=name,
        lane=table.text("lane", None),
        max_running=table.whole("max_running", None, keys.COUNT_OR_NONE),
        probe=_probe(table),
        min=low,
        max=high,
        every_s=table.number("every_s", 2.0, keys.SAMPLING),
        on_error=table.choice("on_error", "closed", ("closed", "open")),
        holds_lanes=lanes,
        holds_kinds=kinds,
        holds_hosts=hosts,
    )


def _refuse_strangers(table: Table, strangers: tuple[str, ...], owner: str) -> None:
    for key in strangers:
        if key in table:
            table.refuse(f"belongs to a gate with a {owner}; add {owner} or remove this", key)


def _probe(table: Table) -> str | None:
    probe = table.text("probe", None)
    if probe is None:
        return None
    try:
        probes.check(probe)
    except probes.BadProbe as wrong:
        table.refuse(wrong.message, "probe", near=wrong.near)
    return probe


def _holds(gate: Table) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    like = '{ lanes = ["…"] }'
    if "holds" not in gate:
        gate.refuse(f"holds nothing; say what it acts on: holds = {like}")
    table = gate.table("holds", like)
    if table is None:
        return (), (), ()
    table.only(keys.HOLDS)
    lanes, kinds, hosts = (
        table.names(key, (), most=keys.MAX_SERVES, also=CALL_KINDS if key == "kinds" else ())
        for key in keys.HOLDS
    )
    if not any(table.raw.get(key) for key in keys.HOLDS):
        table.refuse(f"is empty, so the gate holds nothing; say what it acts on: holds = {like}")
    return lanes, kinds, hosts


def gate_document(gate: Gate) -> dict[str, Any]:
    table = given(lane=gate.lane, max_running=gate.max_running, probe=gate.probe, min=gate.min, max=gate.max)
    if gate.probe is not None:
        table |= {"every_s": gate.every_s, "on_error": gate.on_error}
    holds = {"lanes": gate.holds_lanes, "kinds": gate.holds_kinds, "hosts": gate.holds_hosts}
    return table | {"holds": {key: list(names) for key, names in holds.items() if names}}
