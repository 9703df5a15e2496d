"""Traces as a collector receives them, of real dispatchers, real calls and real programs. E7."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from tests.acceptance.otlp_rig import Span, collecting
from tests.acceptance.serve_rig import PATIENCE_S, serving, until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
ECHO = "import json, os; print(json.dumps([os.environ.get(n) for n in ('TRACEPARENT', 'TRACESTATE')]))"
CONFIG = """
[hosts.tool]
type = "command"
argv = ["{python}", "-c", "{echo}"]
slots = 1
serves = ["tool"]

[hosts.model]
type = "openai"
url = "{url}/v1"
model = "m"
serves = ["general"]
"""
FUNCTIONS = """
from opentelemetry import trace

def where(payload):
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}-{context.span_id:016x}"

async def where_async(payload):
    return where(payload)
"""


def assert_tiled(root: Span, spans: Sequence[Span]) -> None:
    """Every moment of the task is in exactly one wait or attempt."""
    assert spans[0].start == root.start
    assert spans[-1].end == root.end
    for one, other in pairwise(spans):
        assert one.end == other.start, (one, other)
    assert {span.trace_id for span in spans} == {root.trace_id}


@pytest.fixture
def config(tmp_path: Path) -> str:
    return CONFIG.replace("{python}", sys.executable).replace("{echo}", ECHO)


def test_tasks_of_a_server_are_in_their_callers_trace(tmp_path: Path, config: str) -> None:
    """W3C context comes in by HTTP and goes on to a real program; waits and attempts tile each task's time."""
    with collecting() as collector:
        told = f'[telemetry]\notlp_endpoint = "{collector.url}"\n'
        with serving(
            tmp_path, config.replace("{url}", collector.url) + told, "--log-format", "json"
        ) as server:
            answer = httpx.post(
                f"{server.root_url}/api/tasks",
                json={"tasks": [{"kind": "tool"}] * 3},
                headers={"traceparent": PARENT, "tracestate": "congo=t61"},
                timeout=PATIENCE_S,
                verify=False,
            ).raise_for_status()
            ids = answer.json()["task_ids"]
            until(lambda: len(server.tasks("--state", "done")) == 3, lambda: server.log)
            values = {task["task_id"]: task["value"] for task in server.tasks()}
            shown = server.command("show", ids[0])
        lines = [json.loads(line) for line in server.lines]
    roots = collector.roots()
    assert {root.attributes["penstock.task"] for root in roots} == set(ids)
    assert TRACE in shown
    for root in roots:
        spans = collector.under(root)
        assert_tiled(root, spans)
        assert (root.trace_id, root.parent_id) == (TRACE, "00f067aa0ba902b7")
        assert (root.name, root.service) == ("task tool", "penstock")
        (attempt,) = [span for span in spans if span.name == "attempt tool"]
        parent, state = values[root.attributes["penstock.task"]]
        assert parent == f"00-{TRACE}-{attempt.span_id}-01"
        assert state == "congo=t61"
    reasons = [span.name for root in roots for span in collector.under(root)]
    assert "wait slots:tool" in reasons, "one slot, three tasks"
    assert {line["trace"] for line in lines if line["event"] == "done"} == {TRACE}


def test_calls_of_the_front_door_pass_their_trace_on(tmp_path: Path, config: str) -> None:
    with collecting() as collector:
        told = f'[telemetry]\notlp_endpoint = "{collector.url}"\n'
        with serving(tmp_path, config.replace("{url}", collector.url) + told) as server:
            for headers in ({"traceparent": PARENT}, {}, {"traceparent": "garbage"}):
                httpx.post(
                    f"{server.url}/chat/completions",
                    json={"model": "m", "messages": [{"role": "user", "content": "hi"}]},
                    headers=headers,
                    timeout=PATIENCE_S,
                    verify=False,
                ).raise_for_status()
    roots = collector.roots()
    assert [root.parent_id for root in roots] == ["00f067aa0ba902b7", "", ""]
    assert len({root.trace_id for root in roots}) == 3
    sent = {headers["traceparent"] for headers in collector.asked}
    for root in roots:
        spans = collector.under(root)
        assert_tiled(root, spans)
        assert f"00-{root.trace_id}-{spans[-1].span_id}-01" in sent
        assert root.attributes["penstock.tokens"] == 5


def test_without_a_collector_a_callers_trace_goes_on_as_it_came(tmp_path: Path, config: str) -> None:
    with collecting() as collector, serving(tmp_path, config.replace("{url}", collector.url)) as server:
        for headers in ({"traceparent": PARENT, "tracestate": "a=b"}, {}):
            httpx.post(
                f"{server.url}/chat/completions",
                json={"model": "m", "messages": [{"role": "user", "content": "hi"}]},
                headers=headers,
                timeout=PATIENCE_S,
                verify=False,
            ).raise_for_status()
    first, second = collector.asked
    assert (first["traceparent"], first["tracestate"]) == (PARENT, "a=b")
    assert "traceparent" not in second
    assert not collector.spans


def penstock(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *args],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def written(folder: Path, config: str, tasks: Sequence[object]) -> None:
    (folder / "penstock.toml").write_text(textwrap.dedent(config))
    (folder / "functions.py").write_text(FUNCTIONS)
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))


PYTHON = """
[hosts.thread]
type = "python"
calls = { sync = "functions:where", async = "functions:where_async" }
serves = ["sync", "async"]

[hosts.process]
type = "python"
call = "functions:where"
isolation = "process"
serves = ["isolated"]
"""


def test_run_takes_its_trace_from_the_environment_and_functions_are_in_it(tmp_path: Path) -> None:
    """By the standard variables alone; a function sees its attempt's span as OpenTelemetry's current one."""
    written(tmp_path, PYTHON, [{"kind": kind} for kind in ("sync", "async", "isolated")])
    with collecting() as collector:
        names = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "reports"}
        said = penstock(tmp_path, "run", "tasks.jsonl", "--json", "--quiet", TRACEPARENT=PARENT, **names)
        assert said.returncode == 0, said.stderr
    values = {result["task_id"]: result["value"] for result in map(json.loads, said.stdout.splitlines())}
    roots = collector.roots()
    assert len(roots) == 3
    for root in roots:
        spans = collector.under(root)
        assert_tiled(root, spans)
        assert (root.trace_id, root.parent_id, root.service) == (TRACE, "00f067aa0ba902b7", "reports")
        assert values[root.attributes["penstock.task"]] == f"{TRACE}-{spans[-1].span_id}"


def test_submit_keeps_the_trace_for_whoever_works(tmp_path: Path) -> None:
    written(tmp_path, PYTHON, [])
    said = penstock(tmp_path, "submit", "sync", "--id", "t1", TRACEPARENT=PARENT)
    assert said.returncode == 0, said.stderr
    penstock(tmp_path, "submit", "sync", "--id", "t2")
    with collecting() as collector:
        said = penstock(tmp_path, "work", "--drain", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
        assert said.returncode == 0, said.stderr
    by_task = {root.attributes["penstock.task"]: root for root in collector.roots()}
    assert by_task["t1"].trace_id == TRACE
    assert by_task["t2"].parent_id == ""
    for root in by_task.values():
        spans = collector.under(root)
        assert_tiled(root, spans)
        assert spans[0].attributes["penstock.wait.reason"] == "dispatcher-down"


def test_a_dead_collector_costs_a_warning(tmp_path: Path) -> None:
    with collecting() as collector:
        gone = collector.url
    written(tmp_path, PYTHON + f'[telemetry]\notlp_endpoint = "{gone}"\n', [{"kind": "sync"}] * 3)
    said = penstock(tmp_path, "run", "tasks.jsonl", "--json")
    assert said.returncode == 0, said.stderr
    assert len(said.stdout.splitlines()) == 3
    told = [line for line in said.stderr.splitlines() if "traces" in line]
    assert len(told) == 1, said.stderr
    assert gone in told[0]
    assert "Traceback" not in said.stderr


def test_the_password_of_a_collector_is_in_no_line(tmp_path: Path) -> None:
    """Promise 8."""
    with collecting() as collector:
        gone = collector.url.replace("http://", "http://ada:opensesame@")
    written(tmp_path, PYTHON, [{"kind": "sync"}])
    said = penstock(tmp_path, "run", "tasks.jsonl", OTEL_EXPORTER_OTLP_ENDPOINT=gone)
    assert said.returncode == 0, said.stderr
    assert "traces" in said.stderr
    assert "opensesame" not in said.stderr + said.stdout


def test_a_collector_that_is_told_can_be_seen_from_a_python_program(tmp_path: Path) -> None:
    """A task that is submitted inside a span is that span's child."""
    written(tmp_path, PYTHON, [])
    program = """
        import asyncio, penstock
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider

        async def main():
            async with penstock.open("penstock.toml") as p:
                tracer = TracerProvider(shutdown_on_exit=False).get_tracer("mine")
                with tracer.start_as_current_span("mine") as span:
                    run = await p.submit_many([penstock.Task("sync")])
                await run.wait()
            context = span.get_span_context()
            print(f"{context.trace_id:032x} {context.span_id:016x}")

        asyncio.run(main())
        """
    with collecting() as collector:
        said = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            cwd=tmp_path,
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert said.returncode == 0, said.stderr
    (root,) = collector.roots()
    assert [root.trace_id, root.parent_id] == said.stdout.split()
