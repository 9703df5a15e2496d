"""Two `penstock serve` on one PostgreSQL database: who leads, what the other answers, and who takes over."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from playwright.sync_api import expect

from penstock.testing import ModelBehaviour, ModelServer
from tests.acceptance import browser_rig
from tests.acceptance.serve_rig import PATIENCE_S, Serve, serving, until
from tests.figures import Tell
from tests.postgres_rig import fresh_url

BODY = {"model": "simulated", "messages": [{"role": "user", "content": "hello there"}], "max_tokens": 8}
CHAT = "/v1/chat/completions"
CONFIG = """
store = "{store}"
heartbeat_s = 0.2

[server]
board = {board}

[hosts.model]
type = "openai"
url = "{model}"
model = "simulated"
serves = ["chat", "reasoning"]
slots = 8
health_s = 0

[hosts.shell]
type = "command"
argv = ["sh", "-c", "{script}"]
serves = ["shell"]
slots = 2

[hosts.quick]
type = "simulated"
serves = ["quick"]
slots = 2

[councils.elders]
chair = {{ name = "CHAIR", model = "simulated" }}
[[councils.elders.members]]
name = "FIRST"
role = "the one who begins"
model = "simulated"
[[councils.elders.members]]
name = "SECOND"
role = "the one who doubts"
model = "simulated"
"""


class Nodes:
    """Servers on one database, each in a folder of its own."""

    def __init__(self, folder: Path, stack: ExitStack, model: str, *, board: bool) -> None:
        self._folder = folder
        self._stack = stack
        self._count = 0
        text = CONFIG.replace("{script}", "@script@").format(
            store=fresh_url(), model=model, board=str(board).lower()
        )
        self._config = text.replace("@script@", "{script}")
        self.env = {"XDG_STATE_HOME": str(folder / "state")}

    def start(self) -> Serve:
        self._count += 1
        folder = self._folder / f"n{self._count}"
        folder.mkdir()
        return self._stack.enter_context(serving(folder, self._config, env=self.env))


@pytest.fixture
def model() -> Iterator[str]:
    with ModelServer.in_process(ModelBehaviour(talks=True)) as server:
        yield server.url


@contextmanager
def nodes(folder: Path, model: str, *, board: bool = False) -> Iterator[Nodes]:
    with ExitStack() as stack:
        yield Nodes(folder, stack, model, board=board)


def get(server: Serve, path: str, status: int = 200) -> Any:
    told = httpx.get(f"{server.root_url}{path}", timeout=PATIENCE_S, verify=False)
    assert told.status_code == status, told.text
    return told.json()


def post(server: Serve, path: str, body: Any = None, status: int = 200) -> Any:
    told = httpx.post(f"{server.root_url}{path}", json=body, timeout=PATIENCE_S, verify=False)
    assert told.status_code == status, told.text
    return told.json()


def submit(server: Serve, *entries: Mapping[str, Any]) -> list[str]:
    ids: list[str] = post(server, "/api/tasks", {"tasks": list(entries)}, 201)["task_ids"]
    return ids


def in_state(server: Serve, task: str, *states: str) -> dict[str, Any]:
    """A task, when it is in one of these states."""
    found: dict[str, Any] = {}

    def is_there() -> bool:
        found.update(get(server, f"/api/tasks/{task}"))
        return found["state"] in states

    until(is_there, lambda: f"{found}\n{server.log}")
    return found


def role(server: Serve) -> str:
    """As it says itself, also while it is not well."""
    told = httpx.get(f"{server.root_url}/health", timeout=PATIENCE_S, verify=False)
    assert told.status_code in (200, 503), told.text
    return str(told.json()["role"])


def leads(server: Serve) -> bool:
    return role(server) == "leader"


def taken_over_by(server: Serve, since: float) -> float:
    """How long it took until this one leads."""
    until(lambda: leads(server), lambda: server.log)
    return time.monotonic() - since


def shell(script: str) -> dict[str, Any]:
    return {"kind": "shell", "payload": {"script": script}, "retries": 3}


def test_a_standby_answers_and_passes_on(tmp_path: Path, model: str, request: pytest.FixtureRequest) -> None:
    with nodes(tmp_path, model, board=True) as made:
        leader = made.start()
        standby = made.start()
        assert leads(leader)
        # ---- who is who
        assert get(standby, "/health")["role"] == "standby"
        assert get(standby, "/health/live") == {"status": "ok"}
        until(lambda: bool(get(leader, "/api/status")["standbys"]), lambda: standby.log)
        for status in (
            get(leader, "/api/status"),
            get(standby, "/api/status"),
            json.loads(standby.command("status", "--json")),
        ):
            assert (status["dispatcher"]["pid"], status["dispatcher"]["url"]) == (leader.pid, leader.root_url)
            assert [one["pid"] for one in status["standbys"]] == [standby.pid]
        told = leader.command("status")
        for one, word in ((leader, "dispatched by"), (standby, "standing by:")):
            assert re.search(rf"(?m)^{word} process {one.pid} on .* at {one.root_url} since [\d:.]+$", told)
        assert leader.metrics()["penstock_leader"] == 1
        assert standby.metrics()["penstock_leader"] == 0
        # ---- what it does itself
        done, long = submit(standby, {"kind": "quick"}, shell("exec sleep 600"))
        assert in_state(standby, done, "done")["task_id"] == done
        in_state(standby, long, "running")
        post(standby, f"/api/tasks/{long}/cancel")
        in_state(leader, long, "cancelled")
        board = httpx.get(f"{standby.root_url}/board/", timeout=PATIENCE_S, verify=False)
        assert (board.status_code, "Penstock" in board.text) in [(200, True), (503, True)]
        # ---- what it passes on
        assert "simulated" in [one["id"] for one in get(standby, "/v1/models")["data"]]
        whole = httpx.post(f"{standby.root_url}{CHAT}", json=BODY, timeout=PATIENCE_S, verify=False)
        assert whole.json()["choices"][0]["message"]["content"]
        called = whole.headers["x-penstock-task"]
        listed = f"{leader.root_url}/api/tasks/{called}"  # it is written after its answer was sent
        until(lambda: httpx.get(listed, verify=False).status_code == 200, lambda: leader.log)
        assert get(leader, f"/api/tasks/{called}")["kind"] == "call/chat"
        with httpx.stream(
            "POST",
            f"{standby.root_url}{CHAT}",
            json={**BODY, "stream": True},
            timeout=PATIENCE_S,
            verify=False,
        ) as stream:
            text = "".join(stream.iter_text())
        assert text.endswith("data: [DONE]\n\n")
        asked = post(standby, "/api/councils/elders/ask", {"query": "Why?", "mode": "quick"}, 202)
        with httpx.stream(
            "GET", f"{standby.root_url}{asked['links']['events']}", timeout=PATIENCE_S, verify=False
        ) as events:
            heard = "".join(events.iter_text())
        assert "event: done" in heard
        # ---- who is who, on both boards
        browser = request.getfixturevalue("browser")  # the rest needs none
        for server, word in ((leader, "Standing by"), (standby, "This server stands by")):
            with browser_rig.opened(browser, f"{server.root_url}/board/") as (page, _):
                crew = page.locator(".crew li")
                expect(crew).to_contain_text(
                    [
                        re.compile(f"Dispatched by .*process {leader.pid} .*at {leader.root_url}, since "),
                        re.compile(f"^{word}: .*process {standby.pid} .*at {standby.root_url}$"),
                    ]
                )


def test_a_standby_takes_over_from_one_that_stops_and_one_that_is_killed(
    tmp_path: Path, model: str, tell: Tell
) -> None:
    with nodes(tmp_path, model) as made:
        first, second = made.start(), made.start()
        (task,) = submit(second, {"kind": "quick"})
        in_state(first, task, "done")
        os.kill(first.pid, signal.SIGTERM)
        stopped_s = taken_over_by(second, time.monotonic())
        assert first.wait() == 0
        third = made.start()
        (long,) = submit(third, shell("echo $$ > pid; exec sleep 600"))
        in_state(third, long, "running")
        pids = [tmp_path / "n2" / "pid"]
        until(lambda: bool(pids[0].exists() and pids[0].read_text().strip()), lambda: second.log)
        left = psutil.Process(int(pids[0].read_text()))
        since = time.monotonic()
        second.kill()
        killed_s = taken_over_by(third, since)
        tell(f"took over {stopped_s:.2f} s after a stop was asked for, {killed_s:.2f} s after kill -9")
        until(lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE, lambda: third.log)
        in_state(third, long, "running")
        attempts = get(third, f"/api/tasks/{long}")["attempt_records"]
        assert [one["number"] for one in attempts] == [1, 2]
        post(third, f"/api/tasks/{long}/cancel")
        in_state(third, long, "cancelled")
        assert get(third, "/api/status")["standbys"] == []
        assert "1 task was running when the last dispatcher was lost" in third.log
        fourth = made.start()
        os.kill(fourth.pid, signal.SIGTERM)
        assert fourth.wait() == 0
        assert fourth.log.rstrip().endswith("stopped  standing by")
        assert "finishing what runs" not in fourth.log


def test_a_leader_that_was_stopped_in_its_tracks_changes_nothing_when_it_wakes(
    tmp_path: Path, model: str, tell: Tell
) -> None:
    with nodes(tmp_path, model) as made:
        first, second = made.start(), made.start()
        (long,) = submit(first, shell("exec sleep 600"))
        in_state(first, long, "running")
        before = psutil.Process(first.pid).children(recursive=True)
        assert before
        os.kill(first.pid, signal.SIGSTOP)
        try:
            taken_s = taken_over_by(second, time.monotonic())
            # What came while it slept has been decided by the other.
            (done,) = submit(second, {"kind": "quick"})
            in_state(second, done, "done")
            in_state(second, long, "running")
            events = get(second, "/api/events/past?limit=1000")["events"]
        finally:
            os.kill(first.pid, signal.SIGCONT)
        tell(f"took over {taken_s:.2f} s after SIGSTOP")
        until(lambda: role(first) == "standby", lambda: first.log)
        until(lambda: bool(get(second, "/api/status")["standbys"]), lambda: first.log)
        assert [one["pid"] for one in get(first, "/api/status")["standbys"]] == [first.pid]
        until(lambda: not any(map(_lives, before)), lambda: f"{before}")
        after = get(second, f"/api/events/past?limit=1000&after={events[-1]['number']}")["events"]
        assert [one["type"] for one in after if one["task"] is not None] == []
        assert [one["number"] for one in get(second, f"/api/tasks/{long}")["attempt_records"]] == [1, 2]
        assert get(second, f"/api/tasks/{long}")["state"] == "running"
        post(first, f"/api/tasks/{long}/cancel")
        in_state(second, long, "cancelled")
        whole = httpx.post(f"{first.root_url}{CHAT}", json=BODY, timeout=PATIENCE_S, verify=False)
        assert whole.status_code == 200, whole.text


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
