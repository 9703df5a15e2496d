"""E6: deploy/compose.yaml brought up: PostgreSQL, two Penstock of our image, HAProxy before them.

It takes minutes, so in the suite only what podman-compose would do is looked at; PENSTOCK_SOAK=1 does it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance import compose_rig, image_rig
from tests.acceptance.compose_rig import Compose
from tests.acceptance.containers import CannotRun, ContainerEngine
from tests.acceptance.deployed_rig import Caller
from tests.acceptance.serve_rig import until

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
SERVICES = {"postgres", "penstock-a", "penstock-b", "front"}


@pytest.fixture
def compose(container_engine: ContainerEngine, tmp_path: Path) -> Iterator[Compose]:
    images: dict[str, str] = {}
    for name in ("ours", "theirs", "project"):
        (tmp_path / name).mkdir()
    if SOAK:
        try:
            images = compose_rig.make_images(container_engine, tmp_path / "theirs")
            images["PENSTOCK_IMAGE"] = image_rig.build(container_engine, tmp_path / "ours")
        except CannotRun as error:
            pytest.skip(f"no images: {error}")
    made = Compose(container_engine, tmp_path / "project", images)
    try:
        yield made
    finally:
        if SOAK:
            made("down", "--volumes", "--timeout", "5")


@pytest.mark.slow
def test_e6_compose_brings_up_a_pair_that_survives_one_of_them(compose: Compose) -> None:
    if not SOAK:
        told = compose("--dry-run", "--verbose", "up", "--detach")
        assert told.returncode == 0, told.stderr
        for service in SERVICES:
            assert f"{compose.project}_{service}_1" in told.stdout + told.stderr
        return

    compose.good("up", "--detach", "postgres")
    ready = (
        "exec",
        compose.container("postgres"),
        "pg_isready",
        "--host",
        "127.0.0.1",
        "--username",
        "penstock",
    )
    until(lambda: _succeeds(compose, *ready), compose.logs)
    token = compose.good("run", "--rm", "-T", "penstock-a", "token", "add", "laptop").strip().splitlines()[-1]
    compose.good("up", "--detach")
    caller = Caller(f"http://127.0.0.1:{compose.port}", token)
    try:
        until(lambda: len(caller.status()["standbys"]) == 1, compose.logs)
        file = Path("/etc/penstock/penstock.toml")
        digest = hashlib.sha256((compose.folder / "penstock.toml").read_bytes()).hexdigest()
        assert digest in str(caller.wait(caller.submit(file), "done"))
        leader = _leader(caller)
        assert leader in SERVICES, "by the name that the other finds it by"
        compose.podman("kill", "--signal=KILL", compose.container(leader))
        assert digest in str(caller.wait(caller.submit(file), "done"))
        until(lambda: _leader(caller) not in (leader, ""), compose.logs)
    finally:
        caller.close()


def _leader(caller: Caller) -> str:
    """The machine that leads; none between two of them."""
    dispatcher = caller.status()["dispatcher"]
    return "" if dispatcher is None else str(dispatcher["machine"])


def _succeeds(compose: Compose, *words: str) -> bool:
    try:
        compose.podman(*words)
    except AssertionError:
        return False
    return True
