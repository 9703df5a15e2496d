"""GPT-Researcher itself, as published (A9): reports through Penstock's own /v1, families in lanes, kills.

The models and the search engine are simulated, the rest is real. One test runs at a time, whatever the number of
test processes: each run takes seconds of a core for its imports alone.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

import penstock
from penstock.model import State
from penstock.store.base import TaskFilter
from penstock.testing import Fault, ModelBehaviour, ModelRequest, ModelServer
from tools.report_lanes import (
    CALLS,
    PYTHON,
    QUERY,
    RUN,
    VECTORS,
    WRITER,
    Workload,
    answer,
    search_engine,
    write_plant,
)
from tools.report_lanes import tasks as families

PATIENCE_S = 300.0
SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
WORKLOAD = Workload(standard=7, teams=4, prompts=40) if SOAK else Workload(standard=2, teams=1, prompts=6)


@pytest.fixture(autouse=True)
def _one_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if not PYTHON.exists():
        pytest.skip("there is no .venv-researcher; tools/install-beside.sh researcher makes it")
    with FileLock(tmp_path_factory.getbasetemp().parent / "researcher.lock"):
        yield


@pytest.fixture
def search_url() -> Iterator[str]:
    with search_engine() as url:
        yield url


def behaviour(**options: object) -> ModelBehaviour:
    return ModelBehaviour(models=(WRITER, VECTORS), slots=4, answer=answer, **options)  # type: ignore[arg-type]


def runs_alive(folder: Path) -> list[int]:
    """Processes of runs that work in there, whoever started them."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME", "").startswith(str(folder)):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def folders(config: Path) -> list[str]:
    base = config.parent / "penstock.db.work" / "reports"
    return sorted(path.name for path in base.iterdir() if path.is_dir())


@pytest.mark.slow
async def test_families_of_reports_run_at_once(tmp_path: Path, search_url: str) -> None:
    """A1, A3, A4, A9: standard and multi-agent runs start together beside a flood of file+prompt tasks.

    The whole figure of the report runner, 7 and 4, is played in `make soak`.
    """
    async with ModelServer(behaviour()) as server:
        config = write_plant(tmp_path, server.url, search_url, lanes=True)
        async with penstock.open(config) as client:
            async with asyncio.timeout(PATIENCE_S):
                results = await (await client.submit_many(families(WORKLOAD, lanes=True), run=RUN)).wait()
            runs = await client.tasks(TaskFilter(run=RUN))
            calls = await client.tasks(TaskFilter(run=CALLS))
    assert [result.error for result in results if result.error] == []
    reports = [record for record in runs if record.task.kind in ("gptr", "ma")]
    assert len(reports) == WORKLOAD.standard + WORKLOAD.teams
    # All start at once, before the first of them asks for anything, whatever the other families have queued.
    first_call = min(call.task.queued_at for call in calls if call.task.lane == "calls")
    assert max(record.started_at or 0.0 for record in reports) <= first_call
    assert {record.attempts for record in reports} == {1}
    # Every model call came back through us, in the lane of its family.
    assert len(calls) == server.stats.received
    assert {call.task.lane for call in calls} == {"calls", "fpf-calls"}
    makers = {call.task.payload["caller"] for call in calls if call.task.lane == "calls"}
    assert makers == {f"task {record.task.id}" for record in reports}
    for record in reports:
        value = record.value
        assert value["text"].startswith("# Sand")
        assert value["documents"] == ["deltas.txt", "floods.txt", "rivers.txt"]
        assert value["tokens"] > 0
        assert (value["costs"] is None) is (record.task.kind == "ma")
        log = tmp_path / "penstock.db.work" / "reports" / f"{record.task.id}.1.log"
        assert "HTTP/1.1 200 OK" in log.read_text()
    assert folders(config) == []
    assert runs_alive(tmp_path) == []


@pytest.mark.slow
async def test_a_run_that_is_killed_while_a_model_answers_is_run_again(
    tmp_path: Path, search_url: str
) -> None:
    """A9: kill -9 of the run; nothing of it is left, and the next attempt succeeds."""

    def first_hangs(request: ModelRequest) -> Fault | None:
        return Fault.hang() if request.number == 0 else None

    async with ModelServer(behaviour(faults=first_hangs)) as server:
        config = write_plant(tmp_path, server.url, search_url, lanes=True, more="[retry]\nbase_s = 0.01\n")
        async with penstock.open(config) as client, asyncio.timeout(PATIENCE_S):
            task = penstock.Task("gptr", QUERY, lane="gptr", id="t", output="out/t.md")
            await client.submit(task)
            await server.wait_for(lambda stats: stats.received == 1, PATIENCE_S)
            assert folders(config) == ["t.1"]
            [pid] = runs_alive(tmp_path)
            os.kill(pid, signal.SIGKILL)
            result = await client.wait("t")
            attempts = await client.attempts("t")
    assert [attempt.verdict for attempt in attempts] == ["temporary", "done"]
    assert "killed by SIGKILL" in (attempts[0].error or "")
    assert (tmp_path / "out" / "t.md").read_text().rstrip() == result.value["text"]
    assert folders(config) == []
    assert runs_alive(tmp_path) == []


async def work(folder: Path) -> asyncio.subprocess.Process:
    argv = (sys.executable, "-m", "penstock", "work", "--drain", "--quiet")
    return await asyncio.create_subprocess_exec(*argv, cwd=folder)


async def asked_for(server: ModelServer, calls: int) -> None:
    await server.wait_for(lambda stats: stats.received >= calls, PATIENCE_S)


async def gone(pid: int) -> None:
    with_pid = psutil.Process(pid) if psutil.pid_exists(pid) else None
    if with_pid is not None:
        await asyncio.to_thread(with_pid.wait, 30)


def check_whole(path: Path) -> None:
    """A report is there as a whole, or not at all."""
    assert not path.exists() or path.read_text().startswith("# Sand")
    assert not list(path.parent.glob(f"{path.name}?*"))


@pytest.mark.slow
class TestInSoak:
    """What takes minutes: `make soak` runs it. Short forms stand above, and among the tests with stand-ins."""

    __test__ = SOAK

    @pytest.mark.parametrize("kind", ["deep", "detailed_report", "outline_report", "resource_report"])
    async def test_each_type_of_report(self, tmp_path: Path, search_url: str, kind: str) -> None:
        """A9: the package's other reports."""
        async with ModelServer(behaviour()) as server:
            config = write_plant(tmp_path, server.url, search_url, lanes=True)
            payload = {"query": QUERY, "report_type": kind}
            async with penstock.open(config) as client, asyncio.timeout(PATIENCE_S):
                result = await client.wait(await client.submit(penstock.Task("gptr", payload, lane="gptr")))
        assert result.error is None
        assert result.value["report_type"] == kind
        assert "Sand" in result.value["text"]

    @pytest.mark.parametrize("how", ["cancel", "time-out"])
    async def test_a_run_that_is_ended_leaves_nothing(
        self, tmp_path: Path, search_url: str, how: str
    ) -> None:
        """A9: cancelled while it waits for a model, or out of time: no process, no output, no folder."""
        async with ModelServer(behaviour(faults=lambda request: Fault.hang())) as server:
            config = write_plant(tmp_path, server.url, search_url, lanes=True)
            task = penstock.Task(
                "ma",
                QUERY,
                lane="ma",
                id="t",
                output="t.md",
                retries=0,
                timeout_s=20 if how != "cancel" else None,
            )
            async with penstock.open(config) as client, asyncio.timeout(PATIENCE_S):
                await client.submit(task)
                if how == "cancel":
                    await asked_for(server, 1)
                    await client.cancel("t")
                result = await client.wait("t")
                assert folders(config) == []
                assert runs_alive(tmp_path) == []
                assert not (tmp_path / "t.md").exists()
                ends = {
                    "cancel": (State.CANCELLED, "cancelled while it ran"),
                    "time-out": (State.FAILED, "timed out after 20 s"),
                }
                assert (result.state, result.error) == ends[how]

    async def test_a_model_that_makes_no_plan_fails_the_run(self, tmp_path: Path, search_url: str) -> None:
        """A9: a tiny model's sub-queries are no JSON, over which the package stumbles; it is told as it is."""
        async with ModelServer(
            ModelBehaviour(models=(WRITER, VECTORS), answer="I cannot do that.")
        ) as server:
            config = write_plant(tmp_path, server.url, search_url, lanes=True)
            async with penstock.open(config) as client, asyncio.timeout(PATIENCE_S):
                await client.submit(penstock.Task("gptr", QUERY, lane="gptr", id="t", retries=0))
                result = await client.wait("t")
                attempts = await client.attempts("t")
        assert [attempt.verdict for attempt in attempts] == ["temporary"]
        assert "'str' object has no attribute 'append'" in (result.error or "")
        assert "a model's answer had not the form it needs" in (result.error or "")
        assert folders(config) == []

    @pytest.mark.parametrize("seed", [1, 2])
    async def test_runs_killed_at_random_moments_resume(
        self, tmp_path: Path, search_url: str, seed: int
    ) -> None:
        """A9: runs and dispatchers are killed at random; at the end each report is there once, and nothing else."""
        rng = random.Random(seed)
        async with ModelServer(behaviour()) as server:
            more = "[retry]\nbase_s = 0.01\nhost_faults = 1000\n"
            config = write_plant(tmp_path, server.url, search_url, lanes=True, more=more)
            async with penstock.open(config, dispatch=False) as client, asyncio.timeout(PATIENCE_S):
                asked = [
                    penstock.Task(
                        kind, QUERY, lane=kind, id=f"{kind}-{n}", output=f"{kind}-{n}.md", retries=100
                    )
                    for kind, count in (("gptr", 2), ("ma", 1))
                    for n in range(count)
                ]
                await client.submit_many(asked)
                for _ in range(5):
                    dispatcher = await work(tmp_path)
                    received = server.stats.received + rng.randrange(0, 12)
                    await asked_for(server, received)
                    alive = runs_alive(tmp_path)
                    if alive and rng.random() < 0.5:
                        os.kill(rng.choice(alive), signal.SIGKILL)
                        await asked_for(server, received + 1)
                    dispatcher.kill()
                    await dispatcher.wait()
                    await asyncio.gather(
                        *map(gone, runs_alive(tmp_path))
                    )  # nobody looks for them: they end by themselves
                    for task in asked:
                        check_whole(tmp_path / str(task.output))
                assert await (await work(tmp_path)).wait() == 0
                for task in asked:
                    record = await client.get(task.id)
                    assert record.state is State.DONE
                    assert (tmp_path / str(task.output)).read_text().rstrip() == record.value["text"].rstrip()
        assert folders(config) == []
        assert runs_alive(tmp_path) == []
