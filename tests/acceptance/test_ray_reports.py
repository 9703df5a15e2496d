"""Reports by GPT-Researcher itself on a node of a Ray cluster: its calls come back to whoever leads, in its name.

Models and search engine are simulated, the rest is real. Of two runs one is cancelled while it begins, for their
imports alone take seconds of a core; the other hangs in its first call of a model when the leader is killed. Their
calls go to the one that stands by, as through a balancer: it passes them on, and then leads itself.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from filelock import FileLock

import penstock
from penstock.engine.trees import is_alive
from penstock.model import State
from penstock.store.base import TaskFilter
from penstock.testing import Fault, ModelBehaviour, ModelRequest, ModelServer
from tests.acceptance.deployed_rig import free_port
from tests.acceptance.serve_rig import Serve, until
from tests.postgres_rig import fresh_url
from tools.ray_cluster import ROOT, ray_cluster
from tools.report_lanes import PYTHON, QUERY, VECTORS, WRITER, answer, search_engine, write_plant

PATIENCE_S = 300.0
MORE = """
work_dir = "work"
ray = {{ resources = {{ second = 1 }}, per_worker = 2 }}

[engine]
type = "ray"
address = "{address}"
calls_url = "{calls_url}"

[lanes.calls]
budget_usd_per_day = 50.0

[prices.writer]
output = 1000.0
"""
# The interpreter of reports, which leaves a daemon behind first: a run is a tree, and ends as one.
FAMILY = """\
#!/bin/sh
setsid sleep 1000 < /dev/null > /dev/null 2>&1 &
exec {python} "$@"
"""
SERVE = """
    import sys
    from dataclasses import replace
    from pathlib import Path
    from penstock import wiring
    from penstock.cli.app import main
    from tools.ray_cluster import RayCluster

    # A line to a driver that is there: one of its own takes seconds to start.
    cluster, spawn = wiring._cluster, RayCluster("", Path(sys.argv[1]), 0).spawn
    wiring._cluster = lambda *given: replace(cluster(*given), spawn=spawn)
    sys.exit(main(["serve", "--port", sys.argv[2]]))
"""


@pytest.fixture(autouse=True)
def _one_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if not PYTHON.exists():
        pytest.skip("there is no .venv-researcher; tools/install-beside.sh researcher makes it")
    with FileLock(tmp_path_factory.getbasetemp().parent / "researcher.lock"):
        yield


@contextmanager
def serving(folder: Path, port: int = 0) -> Iterator[Serve]:
    (folder / "serve.py").write_text(textwrap.dedent(SERVE))
    process = subprocess.Popen(
        [sys.executable, "serve.py", str(ray_cluster().folder), str(port)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Serve(folder, process)
    try:
        server.wait_until_ready()
        yield server
    finally:
        if server.is_alive:
            server.kill()
    assert "Traceback" not in server.log, server.log


def processes(door: str, run: str) -> list[psutil.Process]:
    """Of one run, by what each of them was given; the run's own process first."""
    found = []
    for process in psutil.process_iter():
        try:
            given = process.environ()
            if given.get("OPENAI_BASE_URL") == door and Path(given.get("HOME", "")).name == run:
                found.append(process)
        except psutil.Error:
            continue
    return sorted(found, key=lambda process: process.name() == "sleep")


def begun(door: str, run: str, server: Serve) -> list[psutil.Process]:
    """Its two processes, once they are there."""
    until(lambda: len(processes(door, run)) == 2, lambda: server.log, PATIENCE_S)
    return processes(door, run)


def task(id: str) -> penstock.Task:
    return penstock.Task("gptr", QUERY, id=id)


def said(folder: Path, run: str) -> str:
    """What has come back of its log."""
    return "".join(path.read_text() for path in folder.rglob(f"{run}.log"))


def is_let_in(door: str, key: str) -> bool:
    answered = httpx.get(f"{door}/models", headers={"Authorization": f"Bearer {key}"}, verify=False)
    assert answered.status_code in (200, 401)
    return answered.status_code == 200


def is_of_node(process: psutil.Process, place: str, dispatcher: int) -> bool:
    """Whether a worker of that node started it."""
    above = process.parents()
    assert dispatcher not in [one.pid for one in above]
    assert "ray::" in above[0].cmdline()[0]
    raylets = [one for one in above if "raylet" in one.name()]
    return any(f"{place},1000" in word for word in raylets[0].cmdline())


@pytest.mark.slow
async def test_reports_run_on_nodes_and_outlive_their_dispatcher(tmp_path: Path) -> None:
    """A9, E6: on a node, not below the dispatcher; its lane, budget and key; a cancel ends the whole tree."""

    leaders = [1]

    def hang_with_the_first(request: ModelRequest) -> Fault | None:
        return Fault.hang() if leaders == [1] else None

    family = tmp_path / "family"
    family.write_text(FAMILY.format(python=PYTHON))
    family.chmod(0o755)
    port = free_port()
    door = f"http://127.0.0.1:{port}/v1"
    behaviour = ModelBehaviour(models=(WRITER, VECTORS), slots=4, answer=answer, faults=hang_with_the_first)
    with search_engine() as search_url:
        async with ModelServer(behaviour) as models, asyncio.timeout(PATIENCE_S):
            more = MORE.format(address=ray_cluster().address, calls_url=f"http://127.0.0.1:{port}")
            config = write_plant(tmp_path, models.url, search_url, lanes=False, more=more, python=family)
            config.write_text(config.read_text().replace("penstock.db", fresh_url()))
            async with penstock.open(config, dispatch=False) as client:
                with serving(tmp_path) as first, serving(tmp_path, port) as second:
                    await client.submit_many([task("cancelled"), task("long")], run="reports")
                    cancelled, long = [begun(door, f"{id}.1", first) for id in ("cancelled", "long")]
                    assert is_of_node(long[0], "second", first.pid)
                    keys = [run[0].environ()["OPENAI_API_KEY"] for run in (cancelled, long)]
                    assert [is_let_in(door, key) for key in keys] == [True, True]
                    await client.cancel("cancelled")
                    assert (await client.wait("cancelled")).state is State.CANCELLED
                    assert not any(is_alive(process.pid) for process in cancelled)
                    assert [is_let_in(door, key) for key in keys] == [False, True]

                    await models.wait_for(lambda stats: stats.in_flight == 1, PATIENCE_S)
                    until(lambda: said(tmp_path, "long.1") != "", lambda: first.log)
                    leaders.append(2)
                    first.kill()
                    result = await client.wait("long")
                    assert result.error is None, second.log
                    assert result.attempts == 1
                    assert result.value["text"].startswith("# Sand")
                    until(lambda: not any(is_alive(process.pid) for process in long), lambda: second.log)
                    assert not is_let_in(door, keys[1])
                    assert "HTTP/1.1 200 OK" in said(tmp_path, "long.1")
                    calls = await client.tasks(TaskFilter(run="v1-reports"))
                    snapshot = await client.snapshot()
                    assert second.stop() == 0, second.log
    assert {call.task.lane for call in calls} == {"calls"}
    ended_well = {call.task.payload["caller"] for call in calls if call.state is State.DONE}
    assert ended_well == {"task long"}
    assert sum(spent for (_, lane), spent in snapshot.spent.items() if lane == "calls") > 0
