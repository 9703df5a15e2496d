"""The figures of /metrics: counters folded from the dispatcher's story, and how things stand when asked.

Prometheus' own text form. Names, labels and meanings are in METRICS, which the reference page repeats. Labels
are words of ours and names of the config; kinds, which anybody may invent, are counted up to a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from penstock.scheduling.messages import Adopt, Spend, Stop
from penstock.telemetry import agent_metrics
from penstock.telemetry.agent_metrics import AgentMetrics, AgentSums
from penstock.telemetry.facts import BegunLate, Ended, Fact, Over, Stalled, Started
from penstock.telemetry.stretches import QueueTime

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

disable_created_metrics()  # type: ignore[no-untyped-call] # the time at which a counter was made would double every line

OTHER_KINDS = "other"
_MOST_KINDS = 100
_SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


_SHORT_SECONDS = (0.0005, 0.001, 0.002)  # of calls that only cost their way


class Metric(NamedTuple):
    kind: type[Gauge] | type[Counter] | type[Histogram]
    labels: tuple[str, ...]
    meaning: str


METRICS: Mapping[str, Metric] = {
    "penstock_queue_depth": Metric(Gauge, ("lane",), "Tasks that wait to start."),
    "penstock_waiting_tasks": Metric(Gauge, ("reason",), "Tasks that wait, by what they wait for now."),
    "penstock_running": Metric(Gauge, ("host",), "Attempts that run."),
    "penstock_lane_running": Metric(Gauge, ("lane",), "Attempts that run, by the lane of their tasks."),
    "penstock_slots": Metric(Gauge, ("host",), "Slots of a host as they are now."),
    "penstock_slots_used": Metric(Gauge, ("host",), "Slots of a host that attempts hold."),
    "penstock_host_up": Metric(Gauge, ("host",), "1 when attempts may start on a host, 0 when it is down."),
    "penstock_host_state": Metric(Gauge, ("host", "state"), "1 for the state that a host is in."),
    "penstock_gate_open": Metric(Gauge, ("gate",), "1 when a gate is open, 0 when it is closed."),
    "penstock_dispatcher_up": Metric(Gauge, (), "1 while tasks are started, 0 while the server stops."),
    "penstock_leader": Metric(
        Gauge, (), "1 while this server's dispatcher has the store, 0 while it stands by."
    ),
    "penstock_asyncio_tasks": Metric(Gauge, (), "Tasks of the server's loop."),
    "penstock_wait_seconds": Metric(
        Histogram,
        ("lane", "reason"),
        "From a task's way into the queue to the start of its attempt; the reason is the last it waited for. "
        "An attempt that began later than it was started has a wait of its own.",
    ),
    "penstock_wait_reason_seconds_total": Metric(
        Counter,
        ("lane", "reason"),
        "Seconds that tasks waited, by what for; counted when the wait is over, and adds up to all of it.",
    ),
    "penstock_attempt_seconds": Metric(Histogram, ("host", "kind"), "How long attempts ran."),
    "penstock_attempts_total": Metric(Counter, ("host", "verdict"), "Attempts that ended, by how."),
    "penstock_tasks_ended_total": Metric(
        Counter, ("host", "lane", "state"), "Tasks that ended, by how, and where they ran last."
    ),
    "penstock_adopted_total": Metric(
        Counter, ("host",), "Attempts of an earlier dispatcher that go on under this one."
    ),
    "penstock_stops_total": Metric(Counter, ("host",), "Attempts that were told to end before their time."),
    "penstock_tokens_total": Metric(
        Counter, ("host", "lane"), "Tokens that attempts used, where hosts count them."
    ),
    "penstock_cost_usd_total": Metric(Counter, ("host", "lane"), "What attempts cost."),
    "penstock_stalls_total": Metric(
        Counter, ("host",), "Times that user code kept a host's loop from turning, as the watchdog saw it."
    ),
    "penstock_stall_seconds_total": Metric(Counter, ("host",), "How long such code kept a loop."),
    "penstock_http_requests_total": Metric(
        Counter, ("method", "route", "status"), "HTTP requests that were answered, the refused ones too."
    ),
    "penstock_http_streams": Metric(Gauge, (), "Event streams and WebSockets that are open."),
    "penstock_calls_total": Metric(
        Counter,
        ("endpoint", "status"),
        "Calls of the front door, by what they were answered; `left`: the client did not wait for it.",
    ),
    "penstock_calls_waiting": Metric(Gauge, (), "Calls of the front door that wait to start."),
    "penstock_first_byte_seconds": Metric(
        Histogram, ("endpoint",), "From a call's way in to the first byte of its answer."
    ),
    "penstock_agent_containers": Metric(
        Gauge, ("agent", "state"), "Containers of agents that can be called."
    ),
    "penstock_agent_calls_total": Metric(
        Counter, ("agent", "outcome"), "Calls of agents, by whether the agent answered."
    ),
    "penstock_agent_cache_total": Metric(
        Counter, ("agent", "result"), "Calls of agents, by whether a container could be called at once."
    ),
    "penstock_agent_pool_total": Metric(
        Counter, ("agent", "container"), "Calls of agents, by how they found their container."
    ),
    "penstock_agent_lock_wait_seconds": Metric(
        Histogram, ("agent",), "How long calls waited for a container that somebody made."
    ),
    "penstock_agent_start_seconds": Metric(
        Histogram, ("agent",), "From the creation of a container to its first answer."
    ),
    "penstock_agent_ready_seconds": Metric(
        Histogram, ("agent",), "The part of that after the engine had started it; of starts for a command."
    ),
    "penstock_agent_overhead_seconds": Metric(
        Histogram,
        ("agent",),
        "What calls took beyond their command's own time and its wait in the container.",
    ),
}
_OF_AGENTS = frozenset({*agent_metrics.COUNTS, *agent_metrics.TIMES})


class Metrics:
    """A listener of the story. Told by the dispatcher's loop, and read on it."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        self._made: dict[str, Any] = {
            name: self._make(name, metric) for name, metric in METRICS.items() if name not in _OF_AGENTS
        }
        meanings = {name: METRICS[name].meaning for name in _OF_AGENTS}
        self._agents = AgentMetrics(meanings, (*_SHORT_SECONDS, *_SECONDS))
        self._registry.register(self._agents)
        self._series: dict[tuple[str, ...], Any] = {}
        self._kinds: set[str] = set()

    def _make(self, name: str, metric: Metric) -> Any:
        if metric.kind is Histogram:
            return Histogram(name, metric.meaning, metric.labels, registry=self._registry, buckets=_SECONDS)
        return metric.kind(name, metric.meaning, metric.labels, registry=self._registry)

    # ---- single figures

    def count(self, name: str, *labels: str, by: float = 1.0) -> None:
        self._labelled(name, labels).inc(by)

    def set(self, name: str, value: float, *labels: str) -> None:
        self._labelled(name, labels).set(value)

    def observe(self, name: str, value: float, *labels: str) -> None:
        self._labelled(name, labels).observe(value)

    def _labelled(self, name: str, labels: tuple[str, ...]) -> Any:
        if not labels:
            return self._made[name]
        series = self._series.get((name, *labels))
        if series is None:
            series = self._series[(name, *labels)] = self._made[name].labels(*labels)
        return series

    # ---- what happened

    def told(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, Started | BegunLate):
                self._waited(fact.lane, fact.wait)
            elif isinstance(fact, Over):
                self._over(fact)
            elif isinstance(fact, Ended):
                self.count("penstock_tasks_ended_total", fact.host or "", fact.lane, fact.state._value_)
                self._waited(fact.lane, fact.wait, started=False)
            elif isinstance(fact, Spend):
                self.count("penstock_cost_usd_total", fact.host, fact.lane, by=fact.usd)
            elif isinstance(fact, Adopt):
                self.count("penstock_adopted_total", fact.host)
            elif isinstance(fact, Stop):
                self.count("penstock_stops_total", fact.host)
            elif isinstance(fact, Stalled):
                if fact.over:
                    self.count("penstock_stall_seconds_total", fact.host, by=fact.seconds)
                else:
                    self.count("penstock_stalls_total", fact.host)

    def _waited(self, lane: str, wait: QueueTime | None, *, started: bool = True) -> None:
        if wait is None:
            return
        for reason, seconds in wait.seconds().items():
            if seconds > 0:
                self.count("penstock_wait_reason_seconds_total", lane, reason, by=seconds)
        if started:
            self.observe("penstock_wait_seconds", wait.total_s, lane, wait.last_reason())

    def _over(self, over: Over) -> None:
        kind = "" if over.known is None else self._kind(over.known.kind)
        self.count("penstock_attempts_total", over.host, over.verdict)
        self.observe("penstock_attempt_seconds", max(0.0, over.at - over.started_at), over.host, kind)
        if over.tokens:
            self.count("penstock_tokens_total", over.host, over.lane, by=over.tokens)

    def _kind(self, kind: str) -> str:
        if kind not in self._kinds:
            if len(self._kinds) >= _MOST_KINDS:
                return OTHER_KINDS
            self._kinds.add(kind)
        return kind

    # ---- how things stand

    def stand(self, figures: Mapping[str, Mapping[tuple[str, ...], float]]) -> None:
        """Gauges as they are now: by name, then by labels. Those that are no longer there are forgotten."""
        for name, values in figures.items():
            gauge = self._made[name]
            if not METRICS[name].labels:
                gauge.set(values[()])
                continue
            gauge.clear()
            for labels, value in values.items():
                gauge.labels(*labels).set(value)

    def stand_of_agents(self, known: Mapping[str, AgentSums]) -> None:
        """The sums of agents as they are now, by name."""
        self._agents.known = known

    def text(self) -> bytes:
        return generate_latest(self._registry)
