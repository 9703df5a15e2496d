"""Containers on a real engine: made, looked at, paused, ended, and nothing left. B1, B2."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.agents.containers import Containers, new_identity
from penstock.config.agents import Agent, Limits
from penstock.errors import ImageMissing
from tests.acceptance.containers import PYTHON_IMAGE, ContainerEngine

SERVER = ("/usr/bin/python3", "-m", "http.server", "8080")


@pytest.fixture
async def containers(container_engine: ContainerEngine, tmp_path: Path) -> AsyncIterator[Containers]:
    """On leaving nothing of the test's own may be left over."""
    async with Containers(str(tmp_path / "agents"), url=container_engine.url) as opened:
        yield opened
        left = await opened.listed()
        for one in left:
            await opened.remove(one.id)
    assert not left
    assert not container_engine.left(opened.home)


async def test_a_container_lives_and_goes(containers: Containers) -> None:
    agent = Agent("x", PYTHON_IMAGE, command=SERVER, limits=Limits(cpus=1.0, memory_mb=64, pids=32))
    identity = new_identity(containers.home)
    id = await containers.create(agent, identity)

    made = await containers.seen(id)
    assert made is not None
    assert (made.running, made.paused, made.exit_code, made.address) == (False, False, None, None)
    assert (made.agent, made.instance, made.home) == ("x", identity.instance, containers.home)
    assert made.name == f"penstock-x-{identity.instance}"

    await containers.start(id)
    ready = await containers.seen(id)
    assert ready is not None
    assert ready.answers
    assert ready.address is not None
    assert ready.address.startswith("127.0.0.1:")
    assert ready.image_id == await containers.image_id(PYTHON_IMAGE)

    for _ in range(2):  # twice is as good as once
        await containers.pause(id)
    (listed,) = await containers.listed(agent="x")
    assert (listed.id, listed.paused, listed.answers, listed.address) == (id, True, False, ready.address)
    for _ in range(2):
        await containers.resume(id)
    await containers.pause(id)
    await containers.stop(id, 0)  # also one that is paused
    ended = await containers.seen(id)
    assert ended is not None
    assert (ended.running, ended.address, ended.exit_code) == (False, None, 137)
    for _ in range(2):
        await containers.remove(id)
    assert await containers.seen(id) is None


async def test_an_image_that_is_not_there(containers: Containers) -> None:
    agent = Agent("x", "localhost/no-such-image:latest")
    with pytest.raises(ImageMissing, match=r"agents\.x\.image: .*no-such-image"):
        await containers.create(agent, new_identity(containers.home))
