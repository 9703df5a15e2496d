"""B1 on a real container: an agent as Ploinky has them: a manifest, and a server of its own that knows no keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.agents.engine.containers import home_of
from penstock.model import Task
from penstock.wiring import read_config
from tests.acceptance.containers import PYTHON_IMAGE, ContainerEngine

SERVER = """
import json, os, pathlib, subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200 if self.path == "/alive" else 404, {"alive": True})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = ["/bin/sh", f"/agent/handlers/{asked['command']}.sh", *asked["params"]]
        done = subprocess.run(words, capture_output=True, text=True)
        known = sorted(name for name in os.environ if name.startswith(("PENSTOCK_AGENT_", "TOKEN", "GREETING")))
        told = {"output": done.stdout, "environ": known, "prepared": pathlib.Path("/tmp/order").read_text()}
        self.answer(200 if done.returncode == 0 else 500, told if done.returncode == 0 else {"error": done.stderr})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""
MANIFEST = {
    "name": "greeter",
    "image": PYTHON_IMAGE,
    "about": "says hello",
    "commands": {
        "install": "sh /agent/note.sh installed",
        "update": "sh /agent/note.sh updated",
        "run": "python3 /agent/server.py",
    },
    "env": ["GREETING=hello there", "TOKEN"],
    "taskRunner": "http",
}


@pytest.fixture
def home(
    tmp_path: Path, container_engine: ContainerEngine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    for name, value in container_engine.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOKEN", "s3cret")
    folder = tmp_path / "greeter"
    (folder / "handlers").mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(MANIFEST))
    (folder / "server.py").write_text(SERVER)
    (folder / "note.sh").write_text('echo "$1" >> /tmp/order\n')
    (folder / "handlers" / "greet.sh").write_text('echo "$GREETING, $1"\n')
    (folder / "handlers" / "fail.sh").write_text("echo no good >&2\nexit 3\n")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    config = tmp_path / "penstock.toml"
    config.write_text('retry = { retries = 0 }\n[agents.old]\npath = "greeter"\nhealth = "/alive"\n')
    yield tmp_path
    for name in container_engine.left(home_of(str(tmp_path / "penstock.db.agents"))):
        container_engine.podman("rm", "--force", "--time=0", name)


async def test_b1_a_manifest_with_a_server_of_its_own_is_enough(home: Path) -> None:
    """B1: image, commands in their order, env with a secret of ours; a server that knows no keys is given none."""
    config = read_config(home / "penstock.toml")
    assert config.agents["old"].plain
    async with penstock.open(config) as client, asyncio.timeout(60):
        tasks = [Task("old", {"command": name, "params": ["you"]}) for name in ("greet", "fail")]
        greeted, failed = await (await client.submit_many(tasks)).wait()
    assert greeted.error is None
    assert greeted.value == {
        "output": "hello there, you\n",
        "environ": ["GREETING", "PENSTOCK_AGENT_INSTANCE", "TOKEN"],
        "prepared": "installed\nupdated\n",
    }
    assert failed.error is not None
    assert "no good" in failed.error
