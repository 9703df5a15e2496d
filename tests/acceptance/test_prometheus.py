"""A real Prometheus scrapes a real `penstock serve`, and takes every question of the dashboard. E7."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.telemetry.metrics import METRICS
from tests.acceptance.serve_rig import PATIENCE_S, serving, until

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "penstock.json"
CONFIG = """
[hosts.small]
type = "simulated"
duration_s = 0.01
slots = 2
serves = ["quick", "bad"]

[hosts.large]
type = "simulated"
duration_s = 3600
slots = 1
serves = ["long"]

[lanes.fast]

[gates.calm]
lane = "fast"
max_running = 10
holds = { lanes = ["default"] }
"""
SUFFIXES = ("_bucket", "_count", "_sum")


class Prometheus:
    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, query: str) -> list[dict[str, Any]]:
        reply = httpx.get(
            f"{self.url}/api/v1/query", params={"query": query}, timeout=PATIENCE_S, verify=False
        )
        told = reply.json()
        assert told["status"] == "success", f"{query}: {told.get('error')}"
        found: list[dict[str, Any]] = told["data"]["result"]
        return found

    def value(self, query: str) -> float | None:
        found = self.ask(query)
        return float(found[0]["value"][1]) if found else None

    def waits_for(self, query: str, value: float) -> None:
        until(lambda: self.value(query) == value, lambda: f"{query}: {self.ask(query)}, not {value}")


@contextmanager
def prometheus(folder: Path, target: str | None = None) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no Prometheus here; tools/system-packages.sh prometheus installs it")
    scrape = f"scrape_configs: [{{job_name: penstock, static_configs: [{{targets: ['{target}']}}]}}]\n"
    times = "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
    (folder / "prometheus.yml").write_text(times + (scrape if target else ""))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'series'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
        try:
            started = Prometheus(f"http://127.0.0.1:{port}")
            until(lambda: _is_ready(started.url), lambda: (folder / "prometheus.log").read_text())
            yield started
        finally:
            process.kill()
            process.wait(PATIENCE_S)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", timeout=PATIENCE_S, verify=False).status_code == 200
    except httpx.TransportError:
        return False


def questions() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def filled_in(query: str) -> str:
    """As Grafana does it."""
    return query.replace("$__rate_interval", "1m").replace("$lane", ".*").replace("$host", ".*")


def test_prometheus_has_the_figures_of_a_server(tmp_path: Path) -> None:
    with serving(tmp_path, CONFIG) as server:
        tasks = [{"kind": "quick", "lane": "fast"}] * 3 + [{"kind": "bad", "payload": {"fail": "permanent"}}]
        tasks += [{"kind": "long"}] * 4
        httpx.post(
            f"{server.root_url}/api/tasks", json={"tasks": tasks}, timeout=PATIENCE_S, verify=False
        ).raise_for_status()
        with prometheus(tmp_path, server.root_url.removeprefix("http://")) as told:
            told.waits_for('penstock_tasks_ended_total{lane="fast", host="small", state="done"}', 3)
            told.waits_for('penstock_tasks_ended_total{lane="default", host="small", state="failed"}', 1)
            told.waits_for('penstock_running{host="large"}', 1)
            told.waits_for('penstock_queue_depth{lane="default"}', 3)
            told.waits_for('penstock_waiting_tasks{reason="slots"}', 3)
            told.waits_for('penstock_slots_used{host="large"} / penstock_slots{host="large"}', 1)
            told.waits_for('penstock_host_state{host="large", state="up"}', 1)
            told.waits_for('penstock_gate_open{gate="calm"}', 1)
            told.waits_for('penstock_attempt_seconds_count{host="small", kind="quick"}', 3)
            told.waits_for('penstock_attempts_total{host="small", verdict="permanent"}', 1)
            told.waits_for("up", 1)
            waited = told.value("sum(penstock_wait_reason_seconds_total)")
            whole = told.value("sum(penstock_wait_seconds_sum)")
            assert waited == pytest.approx(whole)
            assert (waited or 0) > 0
            types = httpx.get(f"{told.url}/api/v1/metadata", timeout=PATIENCE_S, verify=False).json()["data"]
            seen = {name: (one["type"], one["help"]) for name, (one,) in types.items() if "penstock" in name}
            for name, metric in METRICS.items():
                if name in seen or f"{name}_total" in seen:
                    assert seen[name] == (metric.kind.__name__.lower(), metric.meaning)
            assert seen.keys() <= METRICS.keys()

            def answered() -> list[str]:
                return [query for query in questions() if told.ask(filled_in(query))]

            # A rate has an answer once there are two figures.
            until(lambda: len(answered()) > len(questions()) / 2, lambda: str(answered()))
        server.command("cancel", "--run", server.tasks()[0]["run"])


def test_every_question_of_the_dashboard_is_one_that_prometheus_takes(tmp_path: Path) -> None:
    with prometheus(tmp_path) as told:
        for query in questions():
            told.ask(filled_in(query))
        with pytest.raises(AssertionError):
            told.ask("sum by (lane (penstock_queue_depth)")


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are() -> None:
    asked: set[str] = set()
    for query in questions():
        for name, chosen in re.findall(r"(penstock_\w+)(?:\{([^}]*)\})?", query):
            metric = next((name.removesuffix(s) for s in SUFFIXES if name.removesuffix(s) in METRICS), name)
            assert metric in METRICS, query
            asked.add(metric)
            assert set(re.findall(r"(\w+)=~?\"", chosen)) <= set(METRICS[metric].labels), query
            for grouped in re.findall(r"by \(([^)]*)\)", query):
                assert set(grouped.split(", ")) <= {*METRICS[metric].labels, "le"}, query
    assert asked == METRICS.keys(), "every metric has its place"


def test_the_dashboard_can_be_imported() -> None:
    """What Grafana wants of a dashboard: a schema, panels in places of their own, one data source to choose."""
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["schemaVersion"] >= 36
    assert dashboard["id"] is None
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([dashboard["panels"], list(variables.values())])))
    assert used - {"__rate_interval", "__all"} <= variables.keys()
    places: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & places, panel["title"]
        places |= cells
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
