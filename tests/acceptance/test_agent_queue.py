"""B5 on real containers: `serve` with the example agent, asked through its folder and by HTTP at the same time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.agents.engine.containers import home_of
from tests.acceptance.containers import PYTHON_IMAGE, ContainerEngine
from tests.acceptance.serve_rig import PATIENCE_S, Serve, serving, until

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent"
# As handlers of the agent: one goes on until it is stopped, one until it is told to end, and one sees what runs.
HOLD = "import signal\nsignal.pause()\n"
SLOW = """
import pathlib, time
while not pathlib.Path("/agent/go").exists():
    time.sleep(0.02)
print("done")
"""
LOOK = """
import json, pathlib
words = [p.read_bytes().split(b"\\0") for p in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
print(json.dumps(sum(b"/agent/handlers/hold.py" in line or b"/agent/handlers/slow.py" in line for line in words)))
"""


class Desk:
    def __init__(self, home: Path, engine: ContainerEngine, serve: Serve) -> None:
        self.queue = home / "work"
        self.home = home
        self._engine = engine
        self.serve = serve

    def ask(self, name: str, body: Any) -> None:
        hidden = self.queue / "requests" / f".{name}"
        hidden.write_text(json.dumps(body))
        hidden.rename(self.queue / "requests" / name)

    def answer(self, path: str) -> dict[str, Any]:
        until((self.queue / path).exists, lambda: f"no {path}: {self.serve.log}")
        found: dict[str, Any] = json.loads((self.queue / path).read_text())
        return found

    def call(self, command: str, **rest: Any) -> httpx.Response:
        url = f"{self.serve.root_url}/api/agents/reports/call"
        return httpx.post(url, json={"command": command, **rest}, timeout=60.0, verify=False)

    def containers(self) -> list[str]:
        return self._engine.left(home_of(str(self.home / "agent.db.agents")))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, container_engine: ContainerEngine) -> Iterator[Desk]:
    home = tmp_path_factory.mktemp("example") / "agent"
    shutil.copytree(EXAMPLE, home, ignore=shutil.ignore_patterns("*.db*", "work"))
    (home / "reports" / "handlers" / "hold.py").write_text(HOLD)
    (home / "reports" / "handlers" / "look.py").write_text(LOOK)
    (home / "reports" / "handlers" / "slow.py").write_text(SLOW)
    for path in (home, *home.rglob("*")):
        path.chmod(0o755)  # the container's user is somebody else
    config = (home / "penstock.toml").read_text()
    config = config.replace("[agents.reports]\n", f'[agents.reports]\nimage = "{PYTHON_IMAGE}"\n')
    with serving(home, config, env=container_engine.environ) as serve:
        desk = Desk(home, container_engine, serve)
        until((desk.queue / "urgent").exists, lambda: serve.log)
        try:
            yield desk
        finally:
            left = desk.containers()
    for name in left:
        container_engine.podman("rm", "--force", "--time=0", name)


def test_b5_b7_folder_and_http_reach_the_same_container(desk: Desk) -> None:
    """B5, B7: a table, a text, what fails with its status and stderr, what is unknown; one container for all."""
    desk.ask("table", {"id": "table", "command": "render", "params": {"rows": {"apples": 3}}, "timestamp": 1})
    desk.ask("text", {"command": "words", "stdin": "one two  three"})
    desk.ask("fails", {"command": "render"})
    desk.ask("unknown", {"command": "rendr"})
    by_http = desk.call("words", stdin="a b")
    assert (by_http.status_code, by_http.json()["result"]) == (200, 2), by_http.text
    made = desk.answer("responses/table")["value"]
    assert made["markdown"].startswith("# Report\n\n| name | number |"), "prepare.py ran before"
    assert desk.answer("responses/text")["value"] == 3
    failed = desk.answer("errors/fails")
    assert failed["state"] == "failed"
    assert "1" in failed["error"]
    assert "render: give the rows of the report" in failed["error"]
    assert "did you mean" in desk.answer("errors/unknown")["error"]
    assert len(desk.containers()) == 1


def test_b5_the_old_layout_in_a_folder_of_its_own(desk: Desk) -> None:
    """B5: `watch --agent` beside `serve`, which does the work; `locks/` stays as it is."""
    old = desk.home / "old" / ".tasks"
    for folder in ("requests", "responses", "errors", "locks", "urgent"):
        (old / folder).mkdir(parents=True)
    (old / "locks" / "a").write_text("4711")
    body = {"id": "a", "command": "words", "stdin": "a b c", "metadata": {"from": "me"}, "timestamp": 1}
    (old / "requests" / "a").write_text(json.dumps(body))
    told = json.loads(desk.serve.command("watch", "old", "--agent", "reports", "--once", "--json", "--quiet"))
    assert (told["id"], told["value"], told["host"]) == ("a", 3, "reports")
    assert json.loads((old / "responses" / "a").read_text()) == told
    assert [path.read_text() for path in (old / "locks").iterdir()] == ["4711"]
    assert len(desk.containers()) == 1


def test_b5_urgent_stops_what_runs_in_the_container(desk: Desk) -> None:
    """B5: nothing else in the container is touched."""
    desk.ask("long", {"command": "hold"})
    until(lambda: desk.call("look").json()["result"] == 1, lambda: desk.serve.log)
    (desk.queue / "urgent" / "long").touch()
    assert desk.answer("errors/long")["state"] == "cancelled"
    until(lambda: desk.call("look").json()["result"] == 0, lambda: desk.serve.log)
    assert len(desk.containers()) == 1
    desk.ask("after", {"command": "words", "stdin": "still here"})
    assert desk.answer("responses/after")["value"] == 2


def test_b5_a_stop_answers_what_runs_and_leaves_the_rest(desk: Desk) -> None:
    """B5: SIGTERM while a command runs in the container. This is the end of `serve`, and the last test here."""
    desk.ask("slow", {"command": "slow"})
    until(lambda: desk.call("look").json()["result"] == 1, lambda: desk.serve.log)

    def let_it_end() -> None:
        until(lambda: "finishing what runs" in desk.serve.log, lambda: desk.serve.log)
        desk.ask("late", {"command": "words"})
        (desk.home / "reports" / "go").touch()

    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(let_it_end)
        assert desk.serve.stop() == 0, desk.serve.log
        ending.result()
    assert desk.answer("responses/slow")["value"] == "done\n"
    assert (desk.queue / "requests" / "late").exists()
    assert not (desk.queue / "responses" / "late").exists()


def test_b5_work_watches_the_queue_and_drain_does_not(tmp_path: Path) -> None:
    """B5: `work` without HTTP. There is no engine: another host that names the agent's kind does the work."""
    (tmp_path / "stand_in.py").write_text("def run(payload):\n    return payload['command']\n")
    (tmp_path / "penstock.toml").write_text(
        '[agents.reports]\nimage = "localhost/reports:latest"\nqueue = "work"\n'
        '[hosts.stand-in]\ntype = "python"\ncall = "stand_in:run"\npath = ["."]\nserves = ["reports"]\n'
    )
    request, response = tmp_path / "work" / "requests" / "a", tmp_path / "work" / "responses" / "a"
    request.parent.mkdir(parents=True)
    request.write_text('{"command": "render"}')
    words = [sys.executable, "-m", "penstock", "work", "--quiet"]
    env = {**os.environ, "PENSTOCK_CONTAINER_SOCKET": str(tmp_path / "none.sock")}
    subprocess.run([*words, "--drain"], cwd=tmp_path, env=env, check=True, timeout=PATIENCE_S)
    assert request.exists()
    assert not response.exists()
    working = subprocess.Popen(words, cwd=tmp_path, env=env)
    try:
        until(response.exists, lambda: f"status {working.poll()}")
        working.terminate()
        assert working.wait(PATIENCE_S) == 0
    finally:
        working.kill()
        working.wait()
    assert json.loads(response.read_text())["value"] == "render"
