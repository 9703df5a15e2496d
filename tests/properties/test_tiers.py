"""What a tier keeps about its hosts against a look at every one of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Host
from penstock.scheduling import tiers
from penstock.scheduling.capacity import DOWN, GATED, LIMITED, OK, ONE_SLOT, HostState, Needs
from penstock.scheduling.tiers import Tier

MANY = Needs(2, (("vram", 4.0),))
STEPS = ("start", "start", "start", "end", "end", "condition", "slots")


def plant(count: int) -> list[HostState]:
    """Hosts that differ in slots and units, some of which keep a slot for lane x or y."""
    hosts = [HostState(Host(f"h{i}", "none", 1 + i % 4, units={"vram": 8.0}), i) for i in range(count)]
    for host in hosts[::3]:
        host.reserve("xy"[host.index % 2], {"slots": 1.0})
    return hosts


def fullest(hosts: list[HostState], needs: Needs) -> HostState | None:
    return max(hosts, key=lambda h: (h.share(needs), -h.index), default=None)


@pytest.mark.parametrize("small", [0, 4], ids=["sorted", "small tiers"])
@given(
    count=st.integers(1, 9),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 50), st.integers(0, 50)), max_size=60),
)
def test_a_tier_knows_its_hosts(small: int, count: int, steps: list[tuple[str, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiers, "_SMALL_TIER", small)
        hosts = plant(count)
        known = [Tier(hosts, needs, lane, None) for needs in (ONE_SLOT, MANY) for lane in ("x", "z")]
    running: list[tuple[HostState, str]] = []
    for number, (what, choice, other) in enumerate(steps):
        host = hosts[choice % count]
        tier = known[other % len(known)]
        if what == "start" and (best := tier.best()) is not None:
            best.occupy(f"t{number}", tier.needs, tier.lane, 0.0)
            running.append((best, f"t{number}"))
        elif what == "end" and running:
            host, task = running.pop(choice % len(running))
            host.vacate(task)
            for large in host.large_tiers:
                large.offer(host)
        elif what == "condition":
            before, host.condition = host.condition, (OK, LIMITED, DOWN, GATED)[other % 4]
            for each in host.tiers if host.condition != before else ():
                each.changed(host, before)
        elif what == "slots":
            host.set_slots(1 + other % 4)
            for each in host.tiers:
                each.offer(host)
        for each in known:
            check(each, hosts, hosts[other % count])


def check(tier: Tier, hosts: list[HostState], barred: HostState) -> None:
    well = [h for h in hosts if h.condition == OK]
    roomy = [h for h in well if h.fits(tier.needs, tier.lane)]
    assert tier.best() is fullest(roomy, tier.needs)
    assert tier.best_of(lambda h: h is not barred) is fullest(
        [h for h in roomy if h is not barred], tier.needs
    )
    able = [h for h in well if h.could_hold(tier.needs, tier.lane) and h is not barred]
    assert tier.next_to_fit(lambda h: h is not barred) is fullest(able, tier.needs)
    for condition in range(5):
        named = [h for h in hosts if h.condition == condition]
        assert tier.conditions[condition] == len(named)
        assert tier.names(condition) == tiers.cut_names(named)
        if named:
            assert tier.first(condition) is named[0]
    kept = {
        lane: total
        for lane in ("x", "y")
        if lane != tier.lane and (total := sum(h.unused.get(lane, 0.0) for h in well))
    }
    assert dict(tier.kept()) == kept
    assert tier.keeps == sum(kept.values())


def test_a_long_list_of_hosts_is_cut() -> None:
    assert tiers.cut_names(plant(3), ", ") == "h0, h1, h2"
    assert tiers.cut_names(plant(11)) == "h0,h1,h2,h3,h4,h5,h6,h7,+3"
