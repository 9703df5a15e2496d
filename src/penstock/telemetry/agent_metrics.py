"""Figures of agents for /metrics: of all processes of the machine, as they were last read from their files.

They are sums that somebody else keeps, so nothing is counted here; what was read is told in Prometheus' form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

COUNTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "penstock_agent_calls_total": ("outcome", {"answered": "answered", "unanswered": "unanswered"}),
    "penstock_agent_cache_total": ("result", {"hit": "hits", "miss": "misses"}),
    "penstock_agent_pool_total": (
        "container",
        {"ready": "pool_ready", "resumed": "pool_resumed", "cold": "pool_cold"},
    ),
}
TIMES: Mapping[str, str] = {
    "penstock_agent_lock_wait_seconds": "lock_wait_s",
    "penstock_agent_start_seconds": "start_s",
    "penstock_agent_ready_seconds": "ready_s",
    "penstock_agent_overhead_seconds": "overhead_s",
}


class AgentSums(NamedTuple):
    """Of one agent."""

    counts: Mapping[str, int]
    times: Mapping[str, Sequence[tuple[float, int]]]  # at most so long, so often
    totals: Mapping[str, float]


class AgentMetrics(Collector):
    def __init__(self, meanings: Mapping[str, str], bounds: Sequence[float]) -> None:
        self._meanings = meanings
        self._bounds = bounds
        self.known: Mapping[str, AgentSums] = {}

    def describe(self) -> Iterator[Metric]:
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        for name, (label, words) in COUNTS.items():
            counter = CounterMetricFamily(name, self._meanings[name], labels=("agent", label))
            for agent, sums in self.known.items():
                for word, count in words.items():
                    counter.add_metric((agent, word), sums.counts.get(count, 0))
            yield counter
        for name, time in TIMES.items():
            histogram = HistogramMetricFamily(name, self._meanings[name], labels=("agent",))
            for agent, sums in self.known.items():
                histogram.add_metric(
                    (agent,), self._buckets(sums.times.get(time, ())), sums.totals.get(time, 0.0)
                )
            yield histogram

    def _buckets(self, times: Sequence[tuple[float, int]]) -> list[tuple[str, float]]:
        found = [
            (str(float(bound)), sum(count for most_s, count in times if most_s <= bound))
            for bound in self._bounds
        ]
        return [*found, ("+Inf", sum(count for _, count in times))]
