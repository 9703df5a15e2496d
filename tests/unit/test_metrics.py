"""The figures of /metrics: folded from decisions, as they stand when asked, all documented. E7."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.model import Host, Outcome, Plant, RetryRule, State, Task, Verdict
from penstock.scheduling.details import Detail
from penstock.scheduling.messages import (
    Adopt,
    Began,
    Delayed,
    End,
    Finished,
    PutBack,
    Requeue,
    Route,
    Spend,
    Start,
    Stop,
    Submitted,
    Tick,
    WaitChange,
)
from penstock.scheduling.routes import route_key
from penstock.scheduling.scheduler import Scheduler
from penstock.telemetry.facts import Stalled
from penstock.telemetry.metrics import METRICS, OTHER_KINDS, Metrics
from penstock.telemetry.story import Story
from tests.unit.web_rig import serving

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
TASKS = {
    "a": Task("k", lane="fast", id="a", queued_at=100.0),
    "b": Task("k", id="b", queued_at=100.0, after=("a",)),
    "c": Task("k", id="c", queued_at=100.0, not_before=101.0),
}


def listening(met_at: float | None = None) -> tuple[Metrics, Story]:
    story, metrics = Story(TASKS.get, lambda task: met_at), Metrics()
    story.listen(metrics)
    return metrics, story


def figures(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Each sample by its name and the values of its labels; buckets left out."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def start(task: str, attempt: int = 1, at: float = 110.0) -> Start:
    return Start(task, attempt, "surtr", TASKS[task].lane, 1, at)


def end(task: str, at: float, outcome: Outcome | None, state: State = State.DONE) -> End:
    return End(task, 1, state, "finish", at, outcome, None)


def test_attempts_waits_tokens_and_costs_are_folded_from_decisions() -> None:
    metrics, story = listening()
    story.decided([WaitChange(1, 100.0, "slots:surtr", "")])
    story.decided([start("a"), WaitChange(1, 110.0, None, "")])
    story.decided([Spend("a", 1, "surtr", "fast", 0, 113.0, 0.5)])
    story.decided([end("a", 113.0, Outcome(Verdict.DONE, tokens=12.0, cost_usd=0.5))])
    told = figures(metrics)
    assert told["penstock_wait_seconds_sum", "fast", "slots"] == 10
    assert told["penstock_attempt_seconds_sum", "surtr", "k"] == 3
    assert told["penstock_attempts_total", "surtr", "done"] == 1
    assert told["penstock_tasks_ended_total", "surtr", "fast", "done"] == 1
    assert told["penstock_tokens_total", "surtr", "fast"] == 12
    assert told["penstock_cost_usd_total", "surtr", "fast"] == 0.5


def test_a_reason_ends_with_the_wait_of_its_class() -> None:
    metrics, story = listening()
    story.decided([WaitChange(1, 100.0, "gate:vram", ""), WaitChange(1, 105.0, None, ""), start("a")])
    assert figures(metrics)["penstock_wait_seconds_count", "fast", "none"] == 1


def test_a_wait_for_a_worker_has_its_seconds_and_is_no_part_of_the_attempt() -> None:
    scheduler = Scheduler(Plant(hosts=(Host("surtr", "python"),)))
    metrics, story = listening()
    story.decided(scheduler.apply(Submitted((TASKS["a"],)), 110.0))
    story.decided(scheduler.apply(Delayed("a", 1), 111.0))
    story.decided(scheduler.apply(Began("a", 1, 115.0, Detail.NO_WORKER), 115.0))
    story.decided(scheduler.apply(Finished("a", 1, Outcome(Verdict.DONE)), 117.0))
    told = figures(metrics)
    seconds = {r: told["penstock_wait_reason_seconds_total", "fast", r] for r in ("order", "worker")}
    assert seconds == {"order": 10, "worker": 5}
    assert told["penstock_wait_seconds_sum", "fast", "worker"] == 5
    assert told["penstock_wait_seconds_sum", "fast", "none"] == 10
    assert told["penstock_attempt_seconds_sum", "surtr", "k"] == 2


def test_what_a_task_waits_for_by_itself() -> None:
    metrics, story = listening()
    story.decided([start("b"), start("c")])
    told = figures(metrics)
    assert told["penstock_wait_seconds_count", "default", "dependency"] == 1
    assert told["penstock_wait_seconds_count", "default", "scheduled"] == 1


def test_what_an_attempt_cost_counts_though_it_is_tried_again() -> None:
    scheduler = Scheduler(Plant(hosts=(Host("surtr", "openai"),), retry=RetryRule(retries=1, base_s=0.0)))
    metrics, story = listening()
    story.decided(scheduler.apply_all([Submitted((TASKS["a"],))], 110.0))
    for attempt, verdict in enumerate((Verdict.TEMPORARY, Verdict.DONE), 1):
        outcome = Outcome(verdict, cost_usd=0.25)
        story.decided(scheduler.apply_all([Finished("a", attempt, outcome)], 110.0 + attempt))
        story.decided(scheduler.apply_all([Tick()], 120.0))
    told = figures(metrics)
    assert told["penstock_attempts_total", "surtr", "temporary"] == 1
    assert told["penstock_tasks_ended_total", "surtr", "fast", "done"] == 1
    assert told["penstock_cost_usd_total", "surtr", "fast"] == 0.5


def test_seconds_by_reason_add_up_to_the_wait() -> None:
    """E1: whatever a task waited for, not only the last of it."""
    metrics, story = listening()
    story.decided([WaitChange(1, 102.0, "gate:vram", ""), WaitChange(1, 105.0, "slots:surtr", "")])
    story.decided([start("a"), WaitChange(1, 110.0, None, "")])
    told = figures(metrics)
    seconds = {
        reason: told["penstock_wait_reason_seconds_total", "fast", reason]
        for reason in ("order", "gate", "slots")
    }
    assert seconds == {"order": 2, "gate": 3, "slots": 5}
    assert sum(seconds.values()) == told["penstock_wait_seconds_sum", "fast", "slots"]


def test_tokens_of_attempts_that_are_tried_again_or_put_back_count() -> None:
    """E7: what was used is told, whatever became of it."""
    scheduler = Scheduler(Plant(hosts=(Host("surtr", "openai"),), retry=RetryRule(retries=1, base_s=0.0)))
    metrics, story = listening()
    story.decided(scheduler.apply_all([Submitted((TASKS["a"],))], 110.0))
    tried = Outcome(Verdict.TEMPORARY, tokens=3.0, cost_usd=0.25)
    story.decided(scheduler.apply_all([Finished("a", 1, tried)], 111.0))
    story.decided(scheduler.apply_all([Tick()], 120.0))
    story.decided(scheduler.apply_all([PutBack("a", 2, 4.0, 0.5)], 121.0))
    story.decided(scheduler.apply_all([Finished("a", 3, Outcome(Verdict.DONE, tokens=5.0))], 122.0))
    told = figures(metrics)
    assert told["penstock_tokens_total", "surtr", "fast"] == 12
    assert told["penstock_cost_usd_total", "surtr", "fast"] == 0.75
    assert told["penstock_attempts_total", "surtr", "cancelled"] == 1


def test_a_stall_is_counted_once() -> None:
    """C4"""
    metrics, story = listening()
    story.stalled(Stalled("surtr", "a", 1, 10.0, 0.25, over=False))
    story.stalled(Stalled("surtr", "a", 1, 12.0, 2.0, over=True))
    told = figures(metrics)
    assert told["penstock_stalls_total", "surtr"] == 1
    assert told["penstock_stall_seconds_total", "surtr"] == 2


def test_kinds_that_anybody_may_invent_are_a_bounded_set() -> None:
    story, metrics = Story(lambda task: Task(f"kind-{task}", id=task)), Metrics()
    story.listen(metrics)
    for number in range(150):
        task = str(number)
        story.decided([Start(task, 1, "surtr", "fast", 1, 1.0)])
        story.decided([End(task, 1, State.DONE, "finish", 2.0, Outcome(Verdict.DONE), None)])
    kinds = [name[-1] for name in figures(metrics) if name[0] == "penstock_attempt_seconds_count"]
    assert len(kinds) == 101
    assert figures(metrics)["penstock_attempt_seconds_count", "surtr", OTHER_KINDS] == 50


def test_a_retry_waits_from_when_it_was_queued_again() -> None:
    metrics, story = listening()
    story.decided([start("a"), Requeue("a", 1, 112.0, 115.0, 1, 0, Verdict.TEMPORARY, "no")])
    story.decided(
        [start("a", 2, 115.0), Stop("a", 2, "surtr", 116.0, "asked"), Adopt("b", 1, "surtr", 116.0)]
    )
    story.decided([end("a", 117.0, Outcome(Verdict.CANCELLED), State.CANCELLED)])
    told = figures(metrics)
    assert told["penstock_wait_seconds_sum", "fast", "scheduled"] == 3
    assert told["penstock_attempts_total", "surtr", "temporary"] == 1
    assert told["penstock_attempts_total", "surtr", "cancelled"] == 1
    assert told["penstock_stops_total", "surtr"] == 1
    assert told["penstock_adopted_total", "surtr"] == 1
    assert told["penstock_tasks_ended_total", "surtr", "fast", "cancelled"] == 1


def test_a_task_that_ends_in_the_queue_made_no_attempt() -> None:
    metrics, story = listening()
    story.decided(
        [WaitChange(1, 90.0, "gate:vram", ""), Route(route_key("k", "fast", None, None, None), 1, 90.0, "")]
    )
    story.decided([end("a", 101.0, None, State.CANCELLED)])
    told = figures(metrics)
    assert told["penstock_tasks_ended_total", "", "fast", "cancelled"] == 1
    assert told["penstock_wait_reason_seconds_total", "fast", "gate"] == 1
    assert not [name for name in told if name[0] == "penstock_attempts_total"]


def test_gauges_forget_what_is_no_longer_there() -> None:
    metrics = Metrics()
    metrics.stand({"penstock_waiting_tasks": {("slots",): 3, ("order",): 1}})
    metrics.stand({"penstock_waiting_tasks": {("slots",): 2}})
    told = figures(metrics)
    assert told["penstock_waiting_tasks", "slots"] == 2
    assert ("penstock_waiting_tasks", "order") not in told


def test_two_servers_in_a_process_do_not_meet() -> None:
    one, other = Metrics(), Metrics()
    one.count("penstock_stops_total", "surtr")
    assert ("penstock_stops_total", "surtr") not in figures(other)


def test_every_metric_is_documented_with_its_labels() -> None:
    rows = re.findall(r"^\| `(penstock_\w+)` \| (\w+) \| ([^|]*) \|", DOCS.read_text(), re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert documented == {
        name: (metric.kind.__name__.lower(), metric.labels) for name, metric in METRICS.items()
    }


async def test_a_server_tells_its_figures(tmp_path: Path) -> None:
    async with serving(tmp_path) as web:
        (id,) = await web.submit({"kind": "a"})
        await web.ended(id)
        (held,) = await web.submit({"kind": "long", "host": "large", "lane": "fast"})
        await web.running(held)
        await web.submit({"kind": "a", "after": held}, {"kind": "long", "host": "large", "lane": "fast"})
        await web.post("/api/resume", {})  # the dispatcher has taken them in before it answers
        response = await web.http.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        told = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(response.text)
            for sample in family.samples
        }
    assert told["penstock_running", "large"] == 1
    assert told["penstock_slots", "small"] == 2
    assert told["penstock_host_up", "large"] == 1
    assert told["penstock_gate_open", "calm"] == 1
    assert told["penstock_queue_depth", "fast"] == told["penstock_queue_depth", "default"] == 1
    assert told["penstock_waiting_tasks", "dependency"] == told["penstock_waiting_tasks", "slots"] == 1
    assert told[("penstock_dispatcher_up",)] == 1
    assert told["penstock_tasks_ended_total", "small", "default", "done"] == 1
    assert told["penstock_http_requests_total", "POST", "/api/tasks", "201"] == 3
    with pytest.raises(KeyError):
        told["penstock_http_requests_total", "GET", "/metrics", "200"]  # counted once it is answered
