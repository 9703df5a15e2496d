"""The figures of /metrics: counters folded from what the dispatcher decides, and how things stand when asked.

Prometheus' own text form. Names, labels and meanings are in METRICS, which the reference page repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from penstock.model import Task
from penstock.scheduling.messages import Decision, End, Requeue, Spend, Start, Stop, WaitChange

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

disable_created_metrics()  # type: ignore[no-untyped-call] # the time at which a counter was made would double every line

_SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class Metric(NamedTuple):
    kind: type[Gauge] | type[Counter] | type[Histogram]
    labels: tuple[str, ...]
    meaning: str


METRICS: Mapping[str, Metric] = {
    "penstock_queue_depth": Metric(Gauge, ("lane",), "Tasks that wait to start."),
    "penstock_waiting_tasks": Metric(Gauge, ("reason",), "Tasks that wait, by what they wait for now."),
    "penstock_running": Metric(Gauge, ("host",), "Attempts that run."),
    "penstock_slots": Metric(Gauge, ("host",), "Slots of a host as they are now."),
    "penstock_host_up": Metric(Gauge, ("host",), "1 when attempts may start on a host, 0 when it is down."),
    "penstock_gate_open": Metric(Gauge, ("gate",), "1 when a gate is open, 0 when it is closed."),
    "penstock_dispatcher_up": Metric(Gauge, (), "1 while tasks are started, 0 while the server stops."),
    "penstock_asyncio_tasks": Metric(Gauge, (), "Tasks of the server's loop."),
    "penstock_wait_seconds": Metric(
        Histogram,
        ("lane", "reason"),
        "From a task's way into the queue to the start of its attempt; the reason is the last it waited for.",
    ),
    "penstock_attempt_seconds": Metric(Histogram, ("host",), "How long attempts ran."),
    "penstock_attempts_total": Metric(Counter, ("host", "verdict"), "Attempts that ended, by how."),
    "penstock_tasks_ended_total": Metric(Counter, ("lane", "state"), "Tasks that ended, by how."),
    "penstock_stops_total": Metric(Counter, ("host",), "Attempts that were told to end before their time."),
    "penstock_tokens_total": Metric(
        Counter, ("host",), "Tokens of tasks' last attempts, where hosts count them."
    ),
    "penstock_cost_usd_total": Metric(
        Counter, ("host",), "What attempts cost, also those that were tried again."
    ),
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
}


class _Running(NamedTuple):
    host: str
    lane: str
    started_at: float


class Metrics:
    """`task` finds a live task by its id. Told by the dispatcher's loop, and read on it."""

    def __init__(self, task: Callable[[str], Task | None]) -> None:
        self._task = task
        self._registry = CollectorRegistry(auto_describe=True)
        self._made: dict[str, Any] = {name: self._make(name, metric) for name, metric in METRICS.items()}
        self._running: dict[str, _Running] = {}
        self._queued_at: dict[str, float] = {}  # of tasks that are in the queue once more
        self._reasons: dict[int, str] = {}  # work class -> what it waited for last

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

    def _labelled(self, name: str, labels: Sequence[str]) -> Any:
        return self._made[name].labels(*labels) if labels else self._made[name]

    # ---- what is decided

    def decided(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Start):
                self._started(decision)
            elif isinstance(decision, End):
                self._ended(decision)
            elif isinstance(decision, Requeue):
                self._over(decision.task, decision.at, str(decision.verdict))
                self._queued_at[decision.task] = decision.at
            elif isinstance(decision, WaitChange):
                # After the starts of the same step: those still count as having waited.
                if decision.reason is None:
                    self._reasons.pop(decision.work_class, None)
                else:
                    self._reasons[decision.work_class] = decision.reason.partition(":")[0]
            elif isinstance(decision, Spend):
                self.count("penstock_cost_usd_total", decision.host, by=decision.usd)
            elif isinstance(decision, Stop):
                self.count("penstock_stops_total", decision.host)

    def _started(self, start: Start) -> None:
        self._running[start.task] = _Running(start.host, start.lane, start.at)
        queued_at = self._queued_at.pop(start.task, None)
        task = self._task(start.task)
        if task is None:
            return
        reason = self._reasons.get(start.work_class)
        if reason is None:  # what a task waits for by itself is not its class's
            delayed = queued_at is not None or task.not_before is not None
            reason = "dependency" if task.after and queued_at is None else "scheduled" if delayed else "none"
        queued_at = task.queued_at if queued_at is None else queued_at
        self.observe("penstock_wait_seconds", max(0.0, start.at - queued_at), start.lane, reason)

    def _ended(self, end: End) -> None:
        self._queued_at.pop(end.task, None)
        running = self._running.get(end.task)
        if running is not None:
            lane = running.lane
        else:
            task = self._task(end.task)
            lane = "" if task is None else task.lane
        outcome = end.outcome
        if outcome is not None and running is not None:
            self._over(end.task, end.at, str(outcome.verdict))
            if outcome.tokens:
                self.count("penstock_tokens_total", running.host, by=outcome.tokens)
        self._running.pop(end.task, None)
        self.count("penstock_tasks_ended_total", lane, str(end.state))

    def _over(self, task: str, at: float, verdict: str) -> None:
        running = self._running.pop(task, None)
        if running is not None:
            self.count("penstock_attempts_total", running.host, verdict)
            self.observe("penstock_attempt_seconds", max(0.0, at - running.started_at), running.host)

    # ---- how things stand

    def stand(self, figures: Mapping[str, Mapping[tuple[str, ...], float]]) -> None:
        """Gauges as they are now: by name, then by labels. Those that are no longer there are forgotten."""
        for name, values in figures.items():
            gauge = self._made[name]
            if METRICS[name].labels:
                gauge.clear()
            for labels, value in values.items():
                self._labelled(name, labels).set(value)

    def text(self) -> bytes:
        return generate_latest(self._registry)
