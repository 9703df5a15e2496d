"""E6: deploy/compose.yaml is what compose takes, and its parts name each other; HAProxy accepts its config."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.config import parse
from tests.unit.test_deploy_kubernetes import configs

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
REPLICAS = ("penstock-a", "penstock-b")


def compose(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "none.env").touch()  # whatever this machine's own deploy/.env says
    words = [sys.executable, "-m", "podman_compose", f"--env-file={tmp_path / 'none.env'}", "config"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")} | variables
    return subprocess.run(
        [*words[:3], "-f", "compose.yaml", *words[3:]],
        cwd=DEPLOY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The file as compose understands it."""
    done = compose(tmp_path_factory.mktemp("compose"), PGPASSWORD="geheim")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def test_without_a_password_it_says_what_to_do(tmp_path: Path) -> None:
    done = compose(tmp_path)
    assert done.returncode != 0
    assert "put PGPASSWORD=... into deploy/.env" in done.stderr + done.stdout


def test_both_replicas_are_alike_and_can_be_told_apart(told: dict[str, Any]) -> None:
    one, other = (told["services"][name] for name in REPLICAS)
    apart = {key for key in {*one, *other} if one.get(key) != other.get(key)}
    assert apart == {"hostname", "volumes"}
    for name in REPLICAS:
        service = told["services"][name]
        assert service["hostname"] == name, "by this name the other reaches it"
        assert service["depends_on"] == {"postgres": {"condition": "service_healthy"}}
        assert service["environment"]["PGPASSWORD"] == "geheim"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["stop_signal"] == "SIGTERM"
        assert service["stop_grace_period"] == "2m"


def test_files_and_volumes_are_there(told: dict[str, Any]) -> None:
    for name, service in told["services"].items():
        for volume in service.get("volumes", ()):
            source, place = (
                volume.split(":")[:2] if isinstance(volume, str) else (volume["source"], volume["target"])
            )
            assert os.path.isabs(place), name
            if source.startswith("."):
                assert (DEPLOY / source).is_file(), f"{name}: {source}"
            else:
                assert source in told["volumes"], f"{name}: {source}"


def test_the_image_and_compose_look_after_it_in_the_same_way(told: dict[str, Any]) -> None:
    recipe = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    check = re.search(r"^HEALTHCHECK (.*?) +CMD (\[.*\])$", recipe, re.MULTILINE)
    assert check is not None
    for name in REPLICAS:
        health = told["services"][name]["healthcheck"]
        assert health["test"] == ["CMD", *yaml.safe_load(check[2])]
        options = dict(option.lstrip("-").split("=") for option in check[1].split())
        assert options == {
            "interval": health["interval"],
            "timeout": health["timeout"],
            "start-period": health["start_period"],
            "retries": str(health["retries"]),
        }


def test_the_config_names_the_database_of_the_file(told: dict[str, Any]) -> None:
    config = parse(configs()["penstock.toml"], DEPLOY / "penstock.toml")
    database = told["services"]["postgres"]["environment"]
    assert config.store == f"postgresql://{database['POSTGRES_USER']}@postgres/{database['POSTGRES_DB']}"


def test_the_front_asks_both_for_their_health() -> None:
    text = (DEPLOY / "haproxy.cfg").read_text()
    servers = dict(re.findall(r"^ +server (\S+) (\S+)", text, re.MULTILINE))
    assert servers == {name: f"{name}:8787" for name in REPLICAS}
    assert re.search(r"option httpchk GET /health$", text, re.MULTILINE)


def test_haproxy_accepts_its_config() -> None:
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        pytest.skip("no haproxy on this machine: run `make system-packages`")
    words = [program, "-c", "-f", str(DEPLOY / "haproxy.cfg")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    problems = [
        line for line in done.stderr.splitlines() if "WARNING" in line and "could not resolve" not in line
    ]
    assert not problems
