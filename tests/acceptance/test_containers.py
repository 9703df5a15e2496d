"""Containers on a real engine: made, looked at, paused, ended, and nothing left. B1, B2."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.agents.engine.containers import Containers, new_identity
from penstock.agents.engine.sightings import Seen
from penstock.agents.engine.unix_sockets import connected
from penstock.config.agents import Agent, Limits, Mount, Privileges
from penstock.errors import AgentError, AgentLost, EngineUnreachable, ImageMissing
from tests.acceptance.containers import BUSYBOX_IMAGE, PYTHON_IMAGE, ContainerEngine

PATIENCE_S = 60.0
SECRET = "hunter22-and-more"
SERVER = ("/usr/bin/python3", "-m", "http.server", "8080")


@pytest.fixture
async def containers(container_engine: ContainerEngine, tmp_path: Path) -> AsyncIterator[Containers]:
    """On leaving nothing of the test's own may be left over."""
    async with Containers(str(tmp_path / "agents"), {"TOKEN": SECRET}, container_engine.url) as opened:
        yield opened
        left = await opened.listed()
        for one in left:
            await opened.remove(one.id)
    assert not left
    assert not container_engine.left(opened.home)
    assert not list((tmp_path / "agents").glob("*/socket-*"))


def python(code: str, **options: object) -> Agent:
    agent = Agent("x", PYTHON_IMAGE, command=("/usr/bin/python3", "-c", code))
    return dataclasses.replace(agent, **options)  # type: ignore[arg-type]


async def ended(containers: Containers, agent: Agent) -> tuple[Seen, list[str]]:
    """Runs it to its end: how that was, and what it printed."""
    id = await containers.create(agent, new_identity(containers.home))
    try:
        await containers.start(id)
        async with asyncio.timeout(PATIENCE_S):
            printed = [line async for line in containers.logs(id, follow=True)]
            seen = await containers.seen(id)
            while seen is not None and seen.running:
                seen = await containers.seen(id)
        assert seen is not None
        return seen, printed
    finally:
        await containers.remove(id)


# ---- a container's life


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
    used = await containers.stats(id)
    assert used.memory_limit_bytes == 64 * 1024 * 1024
    assert used.memory_bytes is not None
    assert 0 < used.memory_bytes < used.memory_limit_bytes
    assert used.pids is not None

    for _ in range(2):  # twice is as good as once
        await containers.pause(id)
    (listed,) = await containers.listed(agent="x")
    assert (listed.id, listed.paused, listed.answers, listed.address) == (id, True, False, ready.address)
    assert await containers.listed(agent="y") == await containers.listed(home="another") == []
    for _ in range(2):
        await containers.resume(id)
    await containers.pause(id)
    await containers.stop(id, 0)  # also one that is paused
    stopped = await containers.seen(id)
    assert stopped is not None
    assert (stopped.running, stopped.address, stopped.exit_code) == (False, None, 137)
    await containers.stop(id, 0)
    await containers.kill(id)
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(containers.remove(id))
    assert await containers.seen(id) is None
    await containers.stop(id, 0)
    await containers.kill(id)
    with pytest.raises(AgentLost, match="is gone"):
        await containers.pause(id)


async def test_what_happens_to_it_is_told(containers: Containers) -> None:
    agent = dataclasses.replace(python("pass"), image=BUSYBOX_IMAGE, command=("/bin/sleep", "600"))
    id = await containers.create(agent, new_identity(containers.home))
    told: list[str] = []
    watching = asyncio.Event()

    async def watch() -> None:
        async for event in containers.events():
            assert event.container == id
            assert event.labels["io.penstock.agent"] == "x"
            told.append(event.action)
            watching.set()
            if event.action == "die":
                return

    async with asyncio.TaskGroup() as group, asyncio.timeout(PATIENCE_S):
        group.create_task(watch())
        await containers.start(id)
        while not watching.is_set():  # until somebody listens, things happen that nobody hears of
            await containers.pause(id)
            await containers.resume(id)
        await containers.pause(id)
        await containers.resume(id)
        await containers.kill(id)
    await containers.remove(id)
    assert "pause" in told
    assert told[-1] == "die"


async def test_its_output_is_read_and_tells_no_secret(containers: Containers) -> None:
    """Promise 8: also where the agent itself prints what it was given."""
    code = """
import os, sys
print("first")
print("token:", os.environ["TOKEN"], os.environ["PENSTOCK_AGENT_KEY"])
sys.stdout.flush()
sys.stderr.write("at the end: \\u00e9\\n")
"""
    identity = new_identity(containers.home)
    id = await containers.create(python(code, pass_env=("TOKEN",)), identity)
    try:
        await containers.start(id)
        async with asyncio.timeout(PATIENCE_S):
            printed = [line async for line in containers.logs(id, follow=True)]
        assert sorted(printed) == ["at the end: é", "first", "token: *** ***"]
        assert [line async for line in containers.logs(id, tail=1)] == printed[-1:]
        assert await containers.last_words(id) == " | ".join(printed)
        inspected = containers._engine.container(id)
        labels = (await inspected.show())["Config"]["Labels"]
        assert not [value for value in labels.values() if SECRET in value or identity.key in value]
        agent = python(code, pass_env=("TOKEN",))
        assert await containers.has_our_values(agent, id)
        async with Containers(containers.agents_dir, {"TOKEN": "another"}, containers.url) as others:
            assert not await others.has_our_values(agent, id)
        async with Containers(containers.agents_dir, {}, containers.url) as others:
            assert await others.has_our_values(agent, id)
    finally:
        await containers.remove(id)
    assert await containers.last_words(id) == ""


# ---- what it may not do


async def test_it_is_closed(containers: Containers, tmp_path: Path) -> None:
    """One container looks at all that it may not: root, capabilities, user, environment, mounts, swap."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("readable")
    (tmp_path / "out").mkdir(mode=0o777)
    (tmp_path / "out").chmod(0o777)
    code = """
import os
for path in ("/x", "/etc/x", "/usr/x", "/data/x", "/out/x", "/tmp/x"):
    try:
        open(path, "w").close()
        print(path, "written")
    except OSError as error:
        print(path, error.strerror)
print(open("/data/file").read())
for line in open("/proc/self/status"):
    if line.startswith(("CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Uid", "Gid", "Groups")):
        print(*line.split())
print(*sorted(name for name in os.environ if name.startswith("PENSTOCK_") or name == "HOME"))
try:
    os.setuid(0)
except OSError as error:
    print("root:", error.strerror)
"""
    mounts = (Mount(str(tmp_path / "data"), "/data"), Mount(str(tmp_path / "out"), "/out", read_only=False))
    seen, printed = await ended(containers, python(code, mounts=mounts))
    assert seen.exit_code == 0, printed
    none = "0000000000000000"
    assert printed[:12] == [
        *("/x Read-only file system", "/etc/x Read-only file system", "/usr/x Read-only file system"),
        *("/data/x Read-only file system", "/out/x written", "/tmp/x written", "readable"),
        *("Uid: 65534 65534 65534 65534", "Gid: 65534 65534 65534 65534"),
        *(line for line in printed[9:10] if line.startswith("Groups:")),
        *(f"CapPrm: {none}", f"CapEff: {none}"),
    ]
    assert f"CapBnd: {none}" in printed
    assert "NoNewPrivs: 1" in printed
    assert "HOME PENSTOCK_AGENT_INSTANCE PENSTOCK_AGENT_KEY PENSTOCK_AGENT_PROOF" in printed
    assert "root: Operation not permitted" in printed


async def test_what_is_in_memory_has_a_size_and_can_be_written(containers: Containers) -> None:
    """Also where the image's own /tmp is closed to its user; engines may put more there than was asked for."""
    script = 'for dir in /tmp /run /var/tmp; do echo "$dir" >$dir/x && cat $dir/x; done; cat /proc/mounts'
    agent = Agent("x", BUSYBOX_IMAGE, command=("/bin/sh", "-c", script), limits=Limits(tmp_mb=3))
    seen, printed = await ended(containers, agent)
    assert seen.exit_code == 0, printed
    assert printed[:3] == ["/tmp", "/run", "/var/tmp"]
    mounts = {words[1]: words[3].split(",") for line in printed[3:] if (words := line.split())}
    sizes = {
        target: option
        for target, options in mounts.items()
        for option in options
        if option.startswith("size=")
    }
    assert [sizes.get(target) for target in printed[:3]] == ["size=3072k", "size=16384k", "size=16384k"]


async def test_its_limits_hold(containers: Containers) -> None:
    """Memory over the limit kills it, and no process is made over the limit."""
    code = """
import os, time
made = 0
try:
    while made < 100:
        if os.fork() == 0:
            os.read(os.pipe()[0], 1)
        made += 1
except OSError as error:
    print(made, error.strerror, flush=True)
taken = bytearray(256 << 20)
print("never", len(taken))
"""
    limits = Limits(cpus=0.9, memory_mb=48, pids=12, tmp_mb=1)
    seen, printed = await ended(containers, python(code, limits=limits))
    assert printed == ["11 Resource temporarily unavailable"]
    assert seen.exit_code == 137
    assert "memory" in seen.ending
    assert "oom" not in os.listdir(), "the engine leaves its mark in a folder of its own"


async def test_its_log_does_not_fill_the_disk(containers: Containers) -> None:
    code = "import sys\nfor _ in range(250): sys.stdout.write(('x' * 999 + '\\n') * 100)"
    id = await containers.create(python(code), new_identity(containers.home))
    try:
        await containers.start(id)
        async with asyncio.timeout(PATIENCE_S):
            async for _ in containers.logs(id, follow=True):
                pass
            kept = [len(line) + 1 async for line in containers.logs(id)]
    finally:
        await containers.remove(id)
    assert 0 < sum(kept) <= 11_000_000 < 250 * 100 * 1000


async def test_without_a_network_it_has_a_socket_alone(containers: Containers) -> None:
    """B1: none but loopback inside, and nothing but its socket in the folder that it shares with us."""
    code = """
import os, socket
server = socket.socket(socket.AF_UNIX)
server.bind("/run/penstock/agent.sock")
os.chmod("/run/penstock/agent.sock", 0o666)
server.listen()
while True:
    client, _ = server.accept()
    try:
        open("/run/penstock/more", "w").close()
        told = "more"
    except OSError as error:
        told = error.strerror
    client.sendall(f"{sorted(os.listdir('/sys/class/net'))} {told}".encode())
    client.close()
"""
    agent = python(code, network=False)
    identity = new_identity(containers.home)
    id = await containers.create(agent, identity)
    try:
        await containers.start(id)
        seen = await containers.seen(id)
        assert seen is not None
        assert seen.address is not None
        async with asyncio.timeout(PATIENCE_S):
            while not _is_open(seen.address):
                assert await containers.seen(id) is not None
        containers.seal(agent, identity.instance)
        with connected(seen.address, PATIENCE_S) as connection:
            assert await asyncio.to_thread(_all, connection) == "['lo'] Permission denied"
    finally:
        await containers.remove(id)


async def test_more_than_a_socket_in_its_folder_is_found_out(containers: Containers) -> None:
    code = """
import socket
server = socket.socket(socket.AF_UNIX)
server.bind("/run/penstock/agent.sock")
open("/run/penstock/more", "w").close()
"""
    agent = python(code, network=False)
    identity = new_identity(containers.home)
    id = await containers.create(agent, identity)
    try:
        await containers.start(id)
        async with asyncio.timeout(PATIENCE_S):
            async for _ in containers.logs(id, follow=True):
                pass
        with pytest.raises(AgentError, match="more than a socket"):
            containers.seal(agent, identity.instance)
    finally:
        await containers.remove(id)


def _is_open(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & 0o002)
    except FileNotFoundError:
        return False


def _all(connection: socket.socket) -> str:
    return b"".join(iter(lambda: connection.recv(4096), b"")).decode()


# ---- what goes wrong


async def test_an_image_that_is_not_there(containers: Containers) -> None:
    agent = Agent("x", "localhost/no-such-image:latest", network=False)
    with pytest.raises(ImageMissing, match=r"agents\.x\.image: .*no-such-image"):
        await containers.create(agent, new_identity(containers.home))
    with pytest.raises(ImageMissing, match="no-such-image"):
        await containers.image_id("localhost/no-such-image:latest")


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        (Agent("x", BUSYBOX_IMAGE, command=("/bin/nothing",)), "the image cannot run '/bin/nothing'"),
        (Agent("x", BUSYBOX_IMAGE, command=("/bin/sh",), privileges=Privileges(user="web")), "as numbers"),
        (Agent("x", BUSYBOX_IMAGE, command=("/bin/sh",), limits=Limits(memory_mb=1)), r"limits\.memory_mb"),
        (Agent("x", BUSYBOX_IMAGE, command=("/bin/sh",), limits=Limits(cpus=1e-4)), r"limits\.cpus"),
    ],
    ids=["program", "user", "memory", "cpus"],
)
async def test_one_that_cannot_start(containers: Containers, agent: Agent, told: str) -> None:
    identity = new_identity(containers.home)
    with pytest.raises(AgentError, match=rf"agents\.x: .*{told}"):
        await containers.start(await containers.create(agent, identity))
    for one in await containers.listed():
        assert not one.running
        await containers.remove(one.id)


async def test_a_mount_that_is_not_there_is_not_made(containers: Containers, tmp_path: Path) -> None:
    agent = Agent("x", BUSYBOX_IMAGE, command=("/bin/true",), mounts=(Mount(str(tmp_path / "no"), "/data"),))
    with pytest.raises(AgentError, match=r"agents\.x\.mounts\[1\]\.source: .*is not there"):
        await containers.create(agent, new_identity(containers.home))
    assert not (tmp_path / "no").exists()


async def test_one_that_crashes_tells_its_last_words(containers: Containers) -> None:
    seen, printed = await ended(containers, python("import sys; sys.exit('cannot go on')"))
    assert (seen.exit_code, seen.ending) == (1, "ended with exit status 1")
    assert printed == ["cannot go on"]


async def test_cancelled_at_any_moment_nothing_is_left(containers: Containers) -> None:
    agent = Agent("x", BUSYBOX_IMAGE, command=("/bin/true",), network=False)
    for turns in (1, 10, 100):
        creating = asyncio.ensure_future(containers.create(agent, new_identity(containers.home)))
        for _ in range(turns):
            await asyncio.sleep(0)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        assert await containers.listed() == []


async def test_an_engine_that_is_restarted(container_engine: ContainerEngine, tmp_path: Path) -> None:
    """Its containers go on, and a session that was open before works on. B2."""
    agent = Agent("x", BUSYBOX_IMAGE, command=("/bin/sleep", "600"))
    with container_engine.another_service() as service:
        async with Containers(str(tmp_path / "agents"), {}, service.url) as containers:
            id = await containers.create(agent, new_identity(containers.home))
            try:
                await containers.start(id)
                service.kill()
                with pytest.raises(EngineUnreachable, match=r"agents\.x: .* does not answer"):
                    await containers.seen(id)
                with pytest.raises(EngineUnreachable, match="start one"):
                    await containers.create(agent, new_identity(containers.home))
            finally:
                service.start()
                seen = await containers.seen(id)
                await containers.remove(id)
    assert seen is not None
    assert seen.running
    assert not container_engine.left(containers.home)
