"""Slots that tune themselves against servers that hide how much they bear, in simulated time (C7).

Each round has its own noise: the seed comes from the measurement's folder.
"""

from __future__ import annotations

from benchmarks.frame import Bench, at_least, at_most, benchmark
from tests.simulation.cases import CASES, Case
from tests.simulation.servers import Workers

MOVING = (8, 3, 8)
SETTLE_S = 300.0
PHASE_S = 700.0


def seed(bench: Bench) -> int:
    return int.from_bytes(bench.folder.name.encode()[-4:], "big")


def settled(case: Case, bench: Bench) -> tuple[float, float]:
    """How far from the best limit it settled, and its share of the best throughput."""
    load = case.load(seed(bench))
    load.run_until(case.run_s)
    off = abs(load.mean_limit("h", case.warm_s) - case.best)
    return off, load.throughput("h", case.warm_s) / case.per_s


def followed(bench: Bench) -> tuple[float, float]:
    """The worst of the phases of a server whose knee moves."""
    server = Workers(MOVING[0])
    load = Case("moves", lambda: server, 8, 8.0).load(seed(bench))
    worst_off, worst_share = 0.0, 1.0
    for phase, knee in enumerate(MOVING):
        server.knee = knee
        since = phase * PHASE_S + SETTLE_S
        load.run_until(since)
        load.run_until((phase + 1) * PHASE_S)
        worst_off = max(worst_off, abs(load.mean_limit("h", since) - knee))
        worst_share = min(worst_share, load.throughput("h", since) / knee)
    return worst_off, worst_share


def register(case: Case, topic: str) -> None:
    @benchmark(
        f"{topic}-share",
        what=f"self-tuned slots, {case.name}: share of the best throughput",
        unit="of 1",
        goal=at_least(0.9),
    )
    def share(bench: Bench) -> float:
        return settled(case, bench)[1]

    if case.off >= case.high:
        return  # without a knee many limits are nearly as good

    @benchmark(
        f"{topic}-off",
        what=f"self-tuned slots, {case.name}: off the best limit, {case.best}",
        unit="slots",
        goal=at_most(case.off),
    )
    def off(bench: Bench) -> float:
        return settled(case, bench)[0]


TOPICS = {
    "knee 2, noisy calls": "slots-2",
    "knee 8, noisy calls": "slots-8",
    "knee 32, noisy calls": "slots-32",
    "429 above 20, before a knee of 30": "slots-429",
    "batching, flat from 24": "slots-batching",
}
for one in CASES:
    if one.name in TOPICS:
        register(one, TOPICS[one.name])


@benchmark(
    "slots-moving-share",
    what="self-tuned slots, knee 8, then 3, then 8: worst share of the best throughput",
    unit="of 1",
    goal=at_least(0.9),
)
def moving_share(bench: Bench) -> float:
    return followed(bench)[1]


@benchmark(
    "slots-moving-off",
    what="self-tuned slots, knee 8, then 3, then 8: most off the best limit",
    unit="slots",
    goal=at_most(1),
)
def moving_off(bench: Bench) -> float:
    return followed(bench)[0]
