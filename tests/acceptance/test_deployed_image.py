"""E6: the image of deploy/Containerfile, built here, and run as compose and Kubernetes do: without rights.

In the suite it is built with a pip that installs nothing; PENSTOCK_SOAK=1 installs all of it, and runs it.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import httpx
import pytest
import yaml

from tests.acceptance import image_rig
from tests.acceptance.containers import CannotRun, ContainerEngine
from tests.acceptance.engine_guard import Engine
from tests.acceptance.serve_rig import PATIENCE_S, until

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
# What stands in compose.yaml and in the pods' securityContext; the queue is in a file here, of a volume.
WITHOUT_RIGHTS = ("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges")
SETTINGS = ("--set", "store=/var/lib/penstock/queue.db", "--set", "hosts.surtr.url=http://127.0.0.1:9/v1")
CONFIG = f"--volume={DEPLOY / 'penstock.toml'}:/etc/penstock/penstock.toml:ro"


class Container:
    """Penstock in a container, which has been given a token and a way to it."""

    def __init__(self, engine: ContainerEngine, image: str, name: str) -> None:
        self._engine = engine
        self.name = name
        self.volume = f"{name}-state"
        self._words = (*WITHOUT_RIGHTS, CONFIG, f"--volume={self.volume}:/var/lib/penstock", image, *SETTINGS)
        self.token = engine.podman("run", "--rm", *self._words, "token", "add", "laptop").strip()

    def start(self) -> None:
        words = ("run", "--detach", f"--name={self.name}", "--publish=127.0.0.1::8787")
        self._engine.podman(*words, *self._words, "serve")
        self.url = f"http://{self._engine.podman('port', self.name, '8787').strip()}"
        until(lambda: self.status("/health/live") == 200, self.log)

    def status(self, path: str) -> int:
        try:
            return httpx.get(f"{self.url}{path}", timeout=PATIENCE_S, verify=False).status_code
        except httpx.TransportError:
            return 0  # it is on its way up, or gone

    def inside(self, *words: str) -> str:
        return self._engine.podman("exec", self.name, *words)

    def log(self) -> str:
        engine = Engine(self._engine.folder)
        words = engine.argv("logs", self.name)
        done = subprocess.run(
            words, env=engine.environ, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        return done.stdout + done.stderr

    def exited(self) -> int:
        return int(self._engine.podman("wait", self.name))

    def remove(self) -> None:
        self._engine.podman("rm", "--force", "--time=0", "--ignore", self.name)
        self._engine.podman("volume", "rm", "--force", self.volume)


@pytest.mark.slow
def test_e6_the_image_is_built_serves_without_rights_and_drains_as_kubernetes_has_it(
    container_engine: ContainerEngine, tmp_path: Path
) -> None:
    (work := tmp_path / "image").mkdir()
    if not SOAK:
        image = image_rig.build_hull(container_engine, work)
        _says_how_it_is_run(container_engine, image)
        extras, *files = container_engine.podman("run", "--rm", image).split()
        assert extras == image_rig.EXTRAS
        assert "/src/src/penstock/cli/serve.py" in files
        beside = {file.removeprefix("/src/") for file in files if not file.startswith("/src/src/penstock/")}
        assert beside == {"LICENSE", "README.md", "constraints/penstock.txt", "pyproject.toml"}, (
            "nothing else of this folder gets into it"
        )
        return
    try:
        image = image_rig.build(container_engine, work)
    except CannotRun as error:
        pytest.skip(f"no image of ours: {error}")
    _says_how_it_is_run(container_engine, image)
    container = Container(container_engine, image, f"deployed-{os.urandom(3).hex()}")
    try:
        container.start()
        _serves(container_engine, container)
        _drains(container)
    finally:
        container.remove()


def _says_how_it_is_run(engine: ContainerEngine, image: str) -> None:
    (told,) = json.loads(engine.podman("image", "inspect", image))
    config = told["Config"]
    assert config["User"] == "10001:10001"
    assert (config["Entrypoint"], config["Cmd"][0]) == (["tini", "--", "penstock"], "serve")
    assert config["StopSignal"] in ("SIGTERM", "15")
    (health,) = [one["Healthcheck"] for one in (told, config) if "Healthcheck" in one]
    assert "/health/live" in health["Test"][-1]


def _serves(engine: ContainerEngine, container: Container) -> None:
    engine.podman("healthcheck", "run", container.name)  # fails unless it is healthy
    assert container.inside("id", "-u").strip() == "10001"
    assert container.inside("cat", "/proc/1/comm").strip() == "tini"
    assert container.status("/health") == 200, "a probe has no token"
    assert container.status("/api/tasks") == 401
    task = json.dumps({"file": "/etc/penstock/penstock.toml"})
    told = container.inside("penstock", *SETTINGS, "submit", "digest", task, "--wait", "--json")
    assert hashlib.sha256((DEPLOY / "penstock.toml").read_bytes()).hexdigest() in told


def _drains(container: Container) -> None:
    manifest = yaml.safe_load((DEPLOY / "kubernetes" / "deployment.yaml").read_text())
    (pod,) = manifest["spec"]["template"]["spec"]["containers"]
    with pytest.raises(CannotRun):  # the wait of preStop ends with the container, long before its time
        container.inside(*pod["lifecycle"]["preStop"]["exec"]["command"])
    assert container.exited() == 0
    assert "stopped" in container.log()
