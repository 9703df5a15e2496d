"""Slots that tune themselves find the best limit of servers that hide it (C7)."""

from __future__ import annotations

import pytest

from penstock.model import AutoSlots, Host, Lane, Plant
from penstock.scheduling import messages as m
from tests.simulation.cases import CASES, Case, noisy
from tests.simulation.servers import Load, Workers


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_slots_settle_at_the_best_limit_and_give_its_throughput(case: Case) -> None:
    """C7: within 1 (or a tenth) of the best limit, and at least 90 % of the best throughput."""
    load = case.load(seed=1)
    load.run_until(case.run_s)
    assert all(case.low <= limit <= case.high for _, limit in load.limits["h"])
    settled = load.mean_limit("h", case.warm_s)
    assert abs(settled - case.best) <= case.off, load.changes[-10:]
    assert load.throughput("h", case.warm_s) >= 0.9 * case.per_s


@pytest.mark.parametrize("seed", [1, 2])
def test_slots_follow_a_knee_that_moves_from_8_to_3_and_back(seed: int) -> None:
    """C7: each time it settles within 1 of the best and gives 90 % of the best throughput."""
    server = Workers(8)
    load = Case("moves", lambda: server, 8, 8.0).load(seed)
    start = 0.0
    for knee in (8, 3, 8):
        server.knee = knee
        load.run_until(start + 300)
        settled = load.now
        load.run_until(start + 700)
        assert abs(load.mean_limit("h", settled) - knee) <= 1, load.changes[-10:]
        assert load.throughput("h", settled) >= 0.9 * knee
        start = load.now


@pytest.mark.parametrize("per_s", [0.5, 2.0, 4.0])
def test_a_light_load_is_no_reason_to_change_anything(per_s: float) -> None:
    """C7: what is measured while the limit does not bind says nothing about the limit."""
    plant = Plant((Host("h", "none", 1, auto=AutoSlots(1, 64)),), (Lane("default"),))
    load = Load(plant, {"h": Workers(8)}, noisy, per_s=per_s)
    load.run_until(300.0)
    found = len(load.changes)
    load.run_until(3000.0)
    assert len(load.changes) - found <= 1
    assert load.limit("h") <= 16
    assert load.scheduler.live < 20


def test_slots_set_by_hand_are_where_tuning_goes_on_from() -> None:
    """C7: a number set by hand holds at once, within the bounds, and is improved from there."""
    load = Case("set", lambda: Workers(8), 8, 8.0, high=20).load(seed=3)
    load.run_until(200.0)
    load.tell([m.SlotsSet("h", 500)])
    assert load.limit("h") == 20
    assert load.changes[-1].detail == "set by hand"
    load.run_until(700.0)
    since = load.now
    load.run_until(1200.0)
    assert abs(load.mean_limit("h", since) - 8) <= 1
    load.tell([m.SlotsSet("h", 2)])
    assert load.limit("h") == 2
    load.run_until(1500.0)
    since = load.now
    load.run_until(1900.0)
    assert abs(load.mean_limit("h", since) - 8) <= 1


def test_a_pause_and_an_outage_leave_the_limit_alone() -> None:
    """C7: a host that is paused or down is not measured, and goes on where it was."""
    load = Case("held", lambda: Workers(8), 8, 8.0).load(seed=4)
    load.run_until(300.0)
    for held, freed in (
        (m.PauseSet("host", "h", True), m.PauseSet("host", "h", False)),
        (m.HostHealth("h", False, "no answer"), m.HostHealth("h", True)),
    ):
        load.tell([held])
        before = load.limit("h")
        load.run_until(load.now + 100.0)
        assert load.limit("h") == before
        load.tell([freed])
        since = load.now
        load.run_until(load.now + 200.0)
        assert abs(load.mean_limit("h", since) - 8) <= 1


def test_every_change_of_the_limit_is_told_with_its_reason() -> None:
    """C7: status and events show what the slots are and why."""
    load = Case("told", lambda: Workers(6, refuse_above=6), 6, 6.0).load(seed=5)
    load.run_until(100.0)
    assert [c.detail for c in load.changes[:4]] == ["", "more pays", "more pays", "more pays"]
    assert any(c.detail.startswith("429 at ") for c in load.changes)
    figures = load.scheduler.statistics().hosts["h"]
    assert figures.slots == load.limit("h")
    assert figures.detail == load.changes[-1].detail
