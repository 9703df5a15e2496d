"""B6, B9: every command of `agent`, on real containers. They run in this process, for to start one costs more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.__main__ import main
from penstock.agents.engine.containers import home_of
from penstock.agents.keeper_note import KeeperNote
from tests.acceptance.containers import PYTHON_IMAGE, ContainerEngine, container_engine

__all__ = ["container_engine"]

CONFIG = f"""
[agents.reports]
image = "{PYTHON_IMAGE}"
path = "reports"
limits = {{ pids = 0 }}

[agents.missing]
image = "localhost/no-such-image:latest"
runner = ["/bin/sh"]
"""
HANDLER = """
echo "rendering $1" >&2
printf '%s' "$1"
exit "${2:-0}"
"""


class Said(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class Yard:
    """A folder with a config: `run("agent", "list")` is `penstock agent list` in it."""

    def __init__(
        self,
        folder: Path,
        engine: ContainerEngine,
        capture: pytest.CaptureFixture[str],
        patch: pytest.MonkeyPatch,
    ) -> None:
        self.folder = folder
        self.agents_dir = folder / "penstock.db.agents"
        self.environ = {**os.environ, **engine.environ}
        self._engine = engine
        self._capture = capture
        self._patch = patch

    def run(self, *words: str) -> Said:
        self._patch.setattr(sys, "argv", ["penstock", *words])
        status = main()
        sys.stdout.flush()
        return Said(status, *self._capture.readouterr())

    def begun(self, *words: str) -> subprocess.Popen[str]:
        """A process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "penstock", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environ,
        )

    def told(self, *words: str) -> Any:
        """What a command prints as JSON."""
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def containers(self, agent: str = "reports") -> list[dict[str, Any]]:
        rows = {row["name"]: row for row in self.told("agent", "list")}
        found: list[dict[str, Any]] = rows[agent]["containers"]
        return found

    def left(self) -> list[str]:
        return self._engine.left(home_of(str(self.agents_dir)))


@pytest.fixture
def yard(
    container_engine: ContainerEngine,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Yard]:
    (tmp_path / "penstock.toml").write_text(CONFIG)
    (tmp_path / "reports" / "handlers").mkdir(parents=True)
    (tmp_path / "reports" / "handlers" / "render.sh").write_text(HANDLER)
    monkeypatch.chdir(tmp_path)
    for name, value in container_engine.environ.items():
        monkeypatch.setenv(name, value)
    made = Yard(tmp_path, container_engine, capfd, monkeypatch)
    try:
        yield made
    finally:
        made.run("agent", "rm", "--all")
    assert made.left() == []


def test_b6_the_life_of_an_agent_on_the_command_line(yard: Yard) -> None:
    """From nothing to nothing, each command once: one container is enough for nearly all of it."""
    assert yard.containers() == []

    done = yard.run("agent", "call", "reports", "render", "q3", "41")
    assert (done.returncode, done.stdout, done.stderr) == (41, "q3", "rendering q3\n")
    [first] = yard.containers()
    assert (first["state"], first["healthy"], first["running"], first["done"]) == ("ready", True, 0, 0)
    assert first["failed"] == 1
    answer = json.loads(yard.run("agent", "call", "--json", "reports", "render", "[1]").stdout)
    assert (answer["status"], answer["result"], answer["stderr"]) == ("done", [1], "rendering [1]\n")

    [started] = yard.told("agent", "start", "reports")
    assert started["instance"] == first["instance"], "one that is there is not made again"
    assert "listening" in yard.run("agent", "logs", "reports", "--tail", "5").stdout
    assert json.loads(yard.run("agent", "logs", "reports", "--json").stdout.splitlines()[0])["line"]

    [stats] = yard.told("agent", "stats", "reports")
    assert (stats["calls"], stats["success_rate"], stats["pool"]["cold"]) == (2, 1.0, 1)
    assert stats["start"]["count"] == stats["ready"]["count"] == 1
    assert stats["cache_hit_rate"] == 0.5
    table = yard.run("agent", "stats").stdout
    assert "100 %" in table
    assert "50 %" in table

    assert len(yard.told("agent", "warm", "reports", "2")) == 2
    assert "2 ready" in yard.run("agent", "list").stdout

    [restarted] = yard.told("agent", "restart", "reports")
    [fresh] = yard.containers()
    assert fresh["instance"] == restarted["instance"] != first["instance"]

    keeper = KeeperNote(str(yard.agents_dir / "reports"), "another")
    assert keeper.take()
    refused = yard.run("agent", "restart", "reports")
    assert refused.returncode == 3
    assert "restart that process" in refused.stderr
    [left] = yard.containers()
    assert left["instance"] == fresh["instance"], "what a dispatcher keeps from another config is left alone"
    keeper.free()

    assert yard.told("agent", "stop", "reports") == [{"agent": "reports", "stopped": 1}]
    assert yard.containers() == []
    assert yard.told("agent", "stop", "--all", "--now") == [
        {"agent": "missing", "stopped": 0},
        {"agent": "reports", "stopped": 0},
    ]
    assert yard.told("agent", "rm", "reports") == [{"agent": "reports", "removed": 0}]
    assert not (yard.agents_dir / "reports").exists()
    assert yard.left() == []


def test_stop_waits_for_what_runs_unless_it_is_told_not_to(yard: Yard) -> None:
    (yard.folder / "reports" / "handlers" / "wait.sh").write_text(
        "echo begun; cat > /dev/null; exec sleep 60\n"
    )
    with yard.begun("agent", "call", "reports", "wait") as call:
        assert call.stdout is not None
        assert call.stdout.readline() == "begun\n"
        with yard.begun("agent", "stop", "reports") as stop:
            while (leaving := yard.containers())[0]["state"] != "leaving":
                assert stop.poll() is None
            assert leaving[0]["running"] == 1
            stop.send_signal(2)
            assert stop.communicate(timeout=30) == ("", "penstock: interrupted\n")
            assert stop.returncode == 130
        assert call.poll() is None
        assert yard.told("agent", "stop", "reports", "--now") == [{"agent": "reports", "stopped": 1}]
        assert "may have run" in call.communicate(timeout=30)[1]
        assert call.returncode == 3
    assert yard.left() == []


def test_what_is_left_of_an_agent_that_the_config_has_no_more_is_found_and_removed(yard: Yard) -> None:
    assert yard.run("agent", "start", "reports").returncode == 0
    config = yard.folder / "penstock.toml"
    config.write_text('[agents.other]\nimage = "x"\n')
    try:
        rows = {row["name"]: row for row in yard.told("agent", "list")}
        assert rows["reports"]["in_config"] is False
        assert "(not in the config)" in yard.run("agent", "list").stdout
        assert yard.run("agent", "start", "reports").returncode == 2
        # Its record is lost as well: it is known by its labels alone.
        (yard.agents_dir / "reports" / "endpoints.json").unlink()
        assert yard.told("agent", "stop", "reports") == [{"agent": "reports", "stopped": 1}]
        config.write_text(CONFIG)
        assert yard.run("agent", "start", "reports").returncode == 0
        config.write_text('[agents.other]\nimage = "x"\n')
        (yard.agents_dir / "reports" / "endpoints.json").unlink()
        assert yard.told("agent", "rm", "reports") == [{"agent": "reports", "removed": 1}]
    finally:
        config.write_text(CONFIG)
    assert yard.left() == []


def test_an_image_that_is_missing_is_one_line_for_all_who_come(yard: Yard) -> None:
    calls = [yard.begun("agent", "call", "missing", "x") for _ in range(8)]
    told = [(call.communicate(timeout=60)[1], call.returncode) for call in calls]
    assert {status for _, status in told} == {3}
    assert all(text.startswith("penstock: ") and text.count("\n") == 1 for text, _ in told), told
    assert all("localhost/no-such-image" in text for text, _ in told)
    assert yard.left() == []


WRONG = (
    (["call", "reprots", "render"], 2, "did you mean 'reports'?"),
    (["call", "--param-json", "{", "reports", "render"], 2, "--param-json: is not JSON"),
    (["call", "--timeout", "soon", "reports", "render"], 2, "must be a number of seconds"),
    (["start"], 2, "name an agent, or say --all"),
    (["start", "--all", "reports"], 2, "exclude each other"),
    (["stop", "reprots"], 2, "did you mean 'reports'?"),
    (["stats", "reprots"], 2, "did you mean 'reports'?"),
    (["warm", "reports", "many"], 2, "must be a whole number"),
    (["logs", "missing"], 2, "has no container"),
    (["lst"], 2, "did you mean"),
)


def test_wrong_use_is_one_line_with_a_remedy(yard: Yard) -> None:
    for words, status, told in WRONG:
        done = yard.run("agent", *words)
        assert (done.returncode, done.stdout) == (status, "")
        assert told in done.stderr
        assert done.stderr.count("\n") == 1


def test_without_an_engine_it_says_how_to_start_one(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PENSTOCK_CONTAINER_SOCKET", str(tmp_path / "none.sock"))
        for words in (["call", "reports", "render"], ["list"], ["start", "reports"], ["stop", "reports"]):
            done = yard.run("agent", *words)
            assert done.returncode == 3, done
            assert "podman system service" in done.stderr
            assert done.stderr.count("\n") == 1
            assert ("reports" in done.stdout) == (words == ["list"])
