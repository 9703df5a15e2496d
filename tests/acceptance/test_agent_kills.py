"""Agents at the worst moments, on a real engine (B1, B2, B3): the table of what may be killed, lost or wrong.

After each case every call has its answer or one clear error of its own. Then the agent is removed, and nothing
of it is left: no container, lock, socket, process or file.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

from penstock.agents.endpoints import Endpoint, EndpointFile
from penstock.agents.engine.containers import Containers
from penstock.agents.quick import direct_call
from penstock.agents.quick.answers import NothingRan
from penstock.agents.quick.direct_call import Asked, NotThere
from penstock.agents.starts.start_lock import FileStartLock, StartOwner
from penstock.agents.starts.starting import Patience, Starter
from penstock.agents.trail import Trail
from penstock.config.agents import Agent
from penstock.errors import (
    AgentBusy,
    AgentError,
    AgentLost,
    AgentNotReady,
    EngineUnreachable,
    ImageMissing,
    NoRoomForAgent,
)
from tests.acceptance import agent_child
from tests.acceptance.containers import PYTHON_IMAGE, ContainerEngine, OwnService

CHILD = Path(agent_child.__file__)
PATIENCE_S = 60.0
CALLERS = 4


@dataclass
class Rig:
    """An agent's folder, an engine, and callers that are processes to each other: none shares anything."""

    containers: Containers
    agents_dir: str
    agent: Agent
    margin_s: float = 20.0

    @property
    def files(self) -> EndpointFile:
        return EndpointFile(self.agents_dir, self.agent.name)

    def starter(self) -> Starter:
        return Starter(self.containers, patience=Patience(margin_s=self.margin_s, health_s=3.0))

    async def call(self, word: str = "hello", command: str = "echo") -> str:
        """As a caller does: what cannot have run is asked for elsewhere."""
        output: list[bytes] = []
        asked = Asked(self.agent.name, command, [word], to=lambda _, data: output.append(data)).identified()
        for _ in range(10):
            async with self.starter().lease(self.agent, Trail(self.agent.name)) as endpoint:
                try:
                    ended = await asyncio.to_thread(direct_call.call, asked, endpoint, self.agent.health)
                except (NotThere, NothingRan):
                    self.files.doubted(endpoint)
                else:
                    assert ended.status == 0, ended
                    return b"".join(output).decode().strip()
        raise AssertionError("no container could be called")

    async def calls(self, count: int = CALLERS) -> list[str | BaseException]:
        words = [f"word {n}" for n in range(count)]
        async with asyncio.timeout(PATIENCE_S):
            found = await asyncio.gather(*map(self.call, words), return_exceptions=True)
        for word, one in zip(words, found, strict=True):
            assert one == word or isinstance(one, AgentError), one
        return list(found)

    async def all_answered(self) -> Endpoint:
        """All calls are answered, by the one container that there is."""
        found = await self.calls()
        assert not [one for one in found if isinstance(one, BaseException)]
        (endpoint,) = self.files.read()
        (listed,) = await self.containers.listed()
        assert listed.id == endpoint.container
        return endpoint

    async def child(self, point: str, number: signal.Signals) -> asyncio.subprocess.Process:
        words = [self.agents_dir, self.containers.url, self.agent.image, point, str(int(number))]
        words.append(str(int(self.agent.network)))
        return await asyncio.create_subprocess_exec(
            sys.executable, str(CHILD), *words, stdout=asyncio.subprocess.PIPE
        )


@asynccontextmanager
async def rig_on(url: str, agents_dir: Path) -> AsyncIterator[Rig]:
    async with Containers(str(agents_dir), url=url) as containers:
        rig = Rig(containers, str(agents_dir), agent_child.agent(PYTHON_IMAGE))
        try:
            yield rig
        finally:
            await rig.starter().clear(rig.agent.name)
        assert await containers.listed() == []
    assert [name for _, _, names in os.walk(agents_dir) for name in names] == []


@pytest.fixture
async def rig(container_engine: ContainerEngine, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig_on(container_engine.url, tmp_path / "agents") as rig:
        yield rig


# ---- the creator is killed


@pytest.mark.parametrize("point", agent_child.POINTS)
async def test_the_creator_is_killed(rig: Rig, point: str) -> None:
    """B1, B3: its lock is free at once, and what it made is used where it answers already, else removed."""
    child = await rig.child(point, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        assert await child.wait() == -signal.SIGKILL
    before = [one.id for one in await rig.containers.listed()]
    assert len(before) == (0 if point == "before create" else 1)
    endpoint = await rig.all_answered()
    if point in ("ready", "half written", "written"):
        assert [endpoint.container] == before


@pytest.mark.parametrize("point", ["after create", "ready"])
async def test_the_creator_of_one_without_a_network_is_killed(rig: Rig, point: str) -> None:
    """Its socket's folder is used on, or removed, with its container."""
    rig.agent = agent_child.agent(PYTHON_IMAGE, network=False)
    child = await rig.child(point, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        assert await child.wait() == -signal.SIGKILL
    endpoint = await rig.all_answered()
    folders = [name for name in os.listdir(rig.files.folder) if name.startswith("socket-")]
    assert folders == [f"socket-{endpoint.instance}"]
    assert os.stat(os.path.join(rig.files.folder, folders[0])).st_mode & 0o777 == 0o555
    assert endpoint.address.startswith(rig.files.folder)


async def test_the_creator_is_stopped_and_named(rig: Rig) -> None:
    """B3: who is stuck is named with its pid and step; when it goes on, what it made is used."""
    child = await rig.child("after create", signal.SIGSTOP)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (owner := await FileStartLock(rig.files.folder).owner()) is None or not _is_stopped(
                owner.pid
            ):
                await asyncio.to_thread(lambda: None)
        rig.agent, rig.margin_s = agent_child.agent(PYTHON_IMAGE, start_s=0.2), 0.2
        found = await rig.calls()
        assert {type(one) for one in found} == {AgentBusy}
        assert all(f"process {child.pid} " in str(one) for one in found)
        assert all("step: creating its container" in str(one) for one in found)
    finally:
        child.send_signal(signal.SIGCONT)
    told, _ = await child.communicate()
    rig.agent = agent_child.agent(PYTHON_IMAGE)
    assert (await rig.all_answered()).instance == json.loads(told)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"


# ---- what is known is wrong


def _text(text: str) -> Callable[[Rig, Endpoint], None]:
    def change(rig: Rig, _: Endpoint) -> None:
        Path(rig.files.path).write_text(text)

    return change


def _entry(**changes: object) -> Callable[[Rig, Endpoint], None]:
    def change(rig: Rig, endpoint: Endpoint) -> None:
        rig.files.replace(endpoint.instance, **changes)
        rig.files.doubted(endpoint)

    return change


def _future(rig: Rig, endpoint: Endpoint) -> None:
    ahead = time.time() + 3600
    os.utime(os.path.join(rig.files.folder, f"validated-{endpoint.instance}"), (ahead, ahead))


def _left_locks(rig: Rig, endpoint: Endpoint) -> None:
    """Files that a killed process left; no lock is on them. Its note is of a pid that is another process by now."""
    os.unlink(rig.files.path)
    note = {**asdict(StartOwner.me()), "began": "1", "pid": os.getppid()}
    Path(rig.files.folder, "start.json").write_text(json.dumps(note))
    for name in ("start.lock", "change.lock", f"use-{endpoint.instance}", "endpoints.json.draft"):
        Path(rig.files.folder, name).write_text("4711")


@dataclass(frozen=True)
class Wrong:
    """What is done to what is known of a container that runs."""

    name: str
    change: Callable[[Rig, Endpoint], None]


WRONG = [
    Wrong("missing", lambda rig, _: os.unlink(rig.files.path)),
    Wrong("empty", _text("")),
    Wrong("torn", _text('{"version": 1, "endpoints": [{"inst')),
    Wrong("another version", _text('{"version": 99, "endpoints": []}')),
    Wrong("another container", _entry(container="0" * 64)),
    Wrong("another port", _entry(address="127.0.0.1:1")),
    Wrong("seen in the future", _future),
    Wrong("locks of the dead", _left_locks),
]


async def test_what_is_known_is_wrong(rig: Rig) -> None:
    """B2: whatever the files say, the one container that there is answers, and goes on doing so."""
    first = await rig.starter().endpoint(rig.agent, Trail("kills"))
    for wrong in WRONG:
        wrong.change(rig, rig.files.read()[0])
        endpoint = await rig.all_answered()
        assert endpoint._replace(created_at=first.created_at) == first, wrong.name


@pytest.mark.parametrize("secret", ["key", "proof"])
async def test_what_is_known_is_of_another_instance(rig: Rig, secret: str) -> None:
    """B2: a container that does not know them is not called; a fresh one takes its place."""
    first = await rig.starter().endpoint(rig.agent, Trail("kills"))
    _entry(**{secret: "of another instance"})(rig, first)
    assert (await rig.all_answered()).container != first.container


async def test_another_program_has_the_port(rig: Rig) -> None:
    """B2: one that answers 200 to everything, without the proof, gets nothing to do."""
    first = await rig.starter().endpoint(rig.agent, Trail("kills"))
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"status":"ok"}')
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        rig.files.replace(first.instance, address=f"127.0.0.1:{port}")
        endpoint = await rig.all_answered()
    assert endpoint == first
    assert heads


# ---- what runs ends


async def test_the_container_is_killed_under_load(rig: Rig) -> None:
    """Each call that was under way says so of itself; those that follow are answered by a fresh container."""
    first = await rig.starter().endpoint(rig.agent, Trail("kills"))
    under_way = [asyncio.ensure_future(rig.call("600", "wait")) for _ in range(CALLERS)]
    async with asyncio.timeout(PATIENCE_S):
        while await _running(rig, first) < CALLERS:
            pass
    await rig.containers.kill(first.container)
    async with asyncio.timeout(PATIENCE_S):
        ended = await asyncio.gather(*under_way, return_exceptions=True)
    assert {type(one) for one in ended} == {AgentLost}
    assert all("may have run" in str(one) for one in ended)
    assert (await rig.all_answered()).instance != first.instance


async def _running(rig: Rig, endpoint: Endpoint) -> int:
    from penstock.agents.starts.validating import asked

    return (await asked(rig.agent, endpoint)).running


async def test_the_container_is_paused_by_somebody(rig: Rig) -> None:
    first = await rig.starter().endpoint(rig.agent, Trail("kills"))
    await rig.containers.pause(first.container)
    rig.files.doubted(first)
    assert await rig.all_answered() == first


async def test_the_container_is_removed_by_somebody(rig: Rig) -> None:
    first = await rig.starter().endpoint(rig.agent, Trail("kills"))
    await rig.containers.remove(first.container)
    assert (await rig.all_answered()).instance != first.instance


async def test_the_engine_is_killed_and_comes_back(container_engine: ContainerEngine, tmp_path: Path) -> None:
    """Containers outlive it: they are called without it, and nothing else can be started meanwhile."""
    with container_engine.another_service() as service:
        async with rig_on(service.url, tmp_path / "agents") as rig:
            first = await rig.starter().endpoint(rig.agent, Trail("kills"))
            service.kill()
            rig.files.doubted(first)
            assert await rig.call() == "hello"
            other = replace(rig.agent, env={"A": "1"})
            with pytest.raises(EngineUnreachable, match="podman"):
                await rig.starter().endpoint(other, Trail("kills"))
            service.start()
            assert await rig.all_answered() == first


async def test_the_engine_is_killed_while_it_starts_one(
    container_engine: ContainerEngine, tmp_path: Path
) -> None:
    with container_engine.another_service() as service:
        async with rig_on(service.url, tmp_path / "agents") as rig:
            async with _Breaking(rig.agents_dir, service) as breaking:
                found = await replace(rig, containers=breaking).calls()
            assert {type(one) for one in found} == {EngineUnreachable}
            assert len({str(one) for one in found}) == 1
            service.start()
            await rig.all_answered()


class _Breaking(Containers):
    """Its engine dies as soon as it has made one container."""

    def __init__(self, agents_dir: str, service: OwnService) -> None:
        super().__init__(agents_dir, url=service.url)
        self._service = service

    async def start(self, id: str) -> None:
        self._service.kill()
        await super().start(id)


# ---- what cannot be started


@dataclass(frozen=True)
class Hopeless:
    name: str
    change: Callable[[Agent], Agent]
    error: type[AgentError]
    told: str


HOPELESS = [
    Hopeless("no image", lambda a: replace(a, image="localhost/no-such:latest"), ImageMissing, "no-such"),
    Hopeless(
        "ends at once",
        lambda a: replace(a, handlers={}, command=("/bin/sh", "-c", "echo broken >&2; exit 3")),
        AgentNotReady,
        "exit status 3.*broken",
    ),
    Hopeless(
        "never answers",
        lambda a: replace(a, handlers={}, command=("/bin/sleep", "600"), pool=replace(a.pool, start_s=0.7)),
        AgentNotReady,
        "within 0.7 s.*start_s",
    ),
    Hopeless(
        "no such program",
        lambda a: replace(a, python="no-such-python"),
        AgentError,
        "cannot run 'no-such-python'",
    ),
]


@pytest.mark.parametrize("case", HOPELESS, ids=lambda case: case.name)
async def test_what_cannot_be_started(rig: Rig, case: Hopeless) -> None:
    """One clear error for all who waited, and nothing is left behind."""
    rig.agent = case.change(rig.agent)
    found = await rig.calls()
    assert {type(one) for one in found} == {case.error}
    for one in found:
        with pytest.raises(case.error, match=case.told):
            raise one  # type: ignore[misc]
    assert await rig.containers.listed() == []
    assert "\n" not in str(found[0])


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process can grow, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_the_disk_is_full_from_the_beginning(rig: Rig) -> None:
    with no_room():
        found = await rig.calls()
    assert {type(one) for one in found} == {NoRoomForAgent}
    assert await rig.containers.listed() == []
    await rig.all_answered()


async def test_the_disk_is_full_when_it_is_to_be_written_down(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The container that answers is removed again: nobody could find it."""
    seal = Containers.seal

    def last_room(self: Containers, agent: Agent, instance: str) -> None:
        seal(self, agent, instance)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        undo.append(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard)))

    undo: list[Callable[[], None]] = []
    with monkeypatch.context() as patch:
        patch.setattr(Containers, "seal", last_room)
        try:
            with pytest.raises(NoRoomForAgent, match="make room"):
                await rig.call()
        finally:
            for act in undo:
                act()
    assert await rig.containers.listed() == []
    assert not [name for name in os.listdir(rig.files.folder) if name.endswith(".draft")]
    await rig.all_answered()


async def test_ctrl_c_at_every_step(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is cancelled leaves nothing, at whatever step."""
    for step in ("create", "start", "seen"):
        task = asyncio.ensure_future(rig.call())
        with monkeypatch.context() as patch:
            patch.setattr(Containers, step, _cancelling(task, getattr(Containers, step)))
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await rig.containers.listed() == []
        assert not rig.files.read()
    await rig.all_answered()


def _cancelling(
    task: asyncio.Task[str], step: Callable[..., Awaitable[object]]
) -> Callable[..., Awaitable[object]]:
    async def cancelled(*words: object) -> object:
        task.cancel()
        return await step(*words)

    return cancelled
