"""What a container engine complains about is one clear error each, with its remedy; nothing is left behind. B2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.agents.engine import engine_session, recipe
from penstock.agents.engine.containers import Containers, new_identity
from penstock.agents.engine.engine_faults import NO_CONNECTION, Asked, hidden, is_gone, one_line, translated
from penstock.config.agents import Agent, Limits, Mount
from penstock.errors import AgentError, EngineUnreachable, ImageMissing, NoRoomForAgent
from tests.unit.engine_rig import ID, PING, PlayedEngine, Reply, played_engine

CREATE = "POST /containers/create"
START = f"POST /containers/{ID}/start"
REMOVE = f"DELETE /containers/{ID}"
INSPECT = f"GET /containers/{ID}/json"
ASKED = Asked("unix:///e.sock", "reports", "localhost/reports:latest", "serve", ("hunter22",))
AGENT = Agent("reports", "localhost/reports:latest", command=("serve",))

WORDS: list[tuple[int, str, type[AgentError], str]] = [
    (404, "No such image: localhost/reports:latest", ImageMissing, "agents.reports.image"),
    (500, "localhost/reports:latest: image not known", ImageMissing, "build or pull it"),
    (500, "write /var/lib/docker/x: no space left on device", NoRoomForAgent, "disk is full"),
    (500, "mkdir /var/lib/x: disk quota exceeded", NoRoomForAgent, "disk is full"),
    (500, "Bind for 127.0.0.1:0 failed: port is already allocated", NoRoomForAgent, "no port"),
    (
        500,
        "driver failed programming external connectivity: all ports are allocated",
        NoRoomForAgent,
        "no port",
    ),
    (
        500,
        "failed to find open port: listen tcp 127.0.0.1:0: bind: address already in use",
        NoRoomForAgent,
        "no port",
    ),
    (
        500,
        "no IP addresses available in range set: 10.88.0.1-10.88.255.254",
        NoRoomForAgent,
        "no address left",
    ),
    (
        500,
        "fork/exec /usr/bin/conmon: resource temporarily unavailable",
        NoRoomForAgent,
        "no memory, process",
    ),
    (500, "runc create failed: cannot allocate memory", NoRoomForAgent, "no memory, process"),
    (
        500,
        "error allocating lock: allocation failed; exceeded num_locks (2048)",
        NoRoomForAgent,
        "no memory, process",
    ),
    (500, "opening file `memory.max` for writing: Permission denied: crun: cgroup", AgentError, "Delegate="),
    (500, "the requested cgroup controller `cpu` is not available", AgentError, "Delegate="),
    (
        500,
        "unable to set memory limit to 1048576 (current usage: 2592768): cgroup",
        AgentError,
        "limits.memory_mb",
    ),
    (400, "Minimum memory limit allowed is 6MB", AgentError, "agents.reports.limits.memory_mb"),
    (
        400,
        "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available",
        AgentError,
        "limits.cpus",
    ),
    (500, "CPU cfs quota cannot be less than 1ms (i.e. 1000)", AgentError, "agents.reports.limits.cpus"),
    (400, 'exec: "serve": executable file not found in $PATH: unknown', AgentError, "cannot run 'serve'"),
    (400, 'exec: "/serve": stat /serve: no such file or directory', AgentError, "agents.reports.command"),
    (400, 'invalid mount config for type "bind": bind source path does not exist: /x', AgentError, "mounts"),
    (500, "statfs /x: no such file or directory", AgentError, "agents.reports.mounts"),
    (500, "unable to find user web: no matching entries in passwd file", AgentError, "as numbers"),
    (500, "error setting rlimit type 6: operation not permitted", AgentError, "default_ulimits"),
    (500, "potentially insufficient UIDs or GIDs available in user namespace", AgentError, "/etc/subuid"),
    (500, "container-init binary not found on the host", AgentError, "install catatonit"),
    (500, "can not pause containers on rootless containers with cgroup V1", AgentError, "cannot pause"),
    (500, 'slirp4netns failed: open("/dev/net/tun"): Permission denied', AgentError, "network = false"),
    (418, "I am a teapot", AgentError, "refused, with status 418: I am a teapot"),
    (NO_CONNECTION, "Cannot connect", EngineUnreachable, "systemctl --user start podman.socket"),
]


def test_an_engine_that_is_away_is_told_in_the_systems_words() -> None:
    words = (
        "Cannot connect to Docker Engine via x [Cannot connect to unix socket x ssl:default [No such file]]"
    )
    assert "does not answer: No such file: start one" in str(translated(NO_CONNECTION, words, ASKED))


@pytest.mark.parametrize(
    ("status", "words", "kind", "told"), WORDS, ids=[words[:40] for _, words, *_ in WORDS]
)
def test_each_fault_has_its_error_and_its_remedy(
    status: int, words: str, kind: type[AgentError], told: str
) -> None:
    error = translated(status, f"{words}\n  at hunter22", ASKED)
    assert type(error) is kind
    message = str(error)
    assert told in message
    assert message.startswith("agents.reports")
    assert "\n" not in message
    assert "agents.*" not in message
    assert "hunter22" not in message


def test_what_is_gone_is_known_by_words_too() -> None:
    assert is_gone(404, "")
    assert is_gone(500, "container 4334 does not exist in database: no such container")
    assert not is_gone(500, "no such file")


def test_secrets_are_hidden_whole_and_by_the_line() -> None:
    assert hidden("a long-secret b", ["long-secret"]) == "a *** b"
    assert hidden("second line", ["first line\nsecond line"]) == "***"
    assert hidden("longer is long", ["long", "longer"]) == "*** is ***"
    assert hidden("yes", ["y", ""]) == "yes"  # too short to hide anything
    assert "hunter" not in one_line(f"{'x' * 398} hunter22", ["hunter22"])  # hidden before it is cut


# ---- the same through a session, with an engine that is played


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[PlayedEngine]:
    async with played_engine(tmp_path) as played:
        yield played


@pytest.fixture
async def containers(engine: PlayedEngine, tmp_path: Path) -> AsyncIterator[Containers]:
    async with Containers(str(tmp_path / "agents"), {"TOKEN": "hunter22"}, engine.url) as opened:
        yield opened


@pytest.mark.parametrize(("status", "words", "kind"), [row[:3] for row in WORDS[:6]], ids=range(6))
async def test_a_refused_create_is_told(
    engine: PlayedEngine, containers: Containers, status: int, words: str, kind: type[AgentError]
) -> None:
    engine.replies[CREATE] = Reply(status, {"message": words})
    with pytest.raises(kind, match="agents"):
        await containers.create(AGENT, new_identity(containers.home))
    assert not [asked for asked in engine.asked if asked.startswith("DELETE")]


async def test_a_refused_start_is_told_and_the_creator_removes(
    engine: PlayedEngine, containers: Containers
) -> None:
    engine.makes_containers()
    engine.replies[START] = Reply(500, {"message": "write /x: no space left on device"})
    id = await containers.create(AGENT, new_identity(containers.home))
    with pytest.raises(NoRoomForAgent, match=r"agents\.reports: the engine's disk is full"):
        await containers.start(id)
    await containers.remove(id)
    assert engine.asked[-1] == REMOVE


@pytest.mark.parametrize(
    ("limits", "dropped"),
    [(Limits(memory_mb=64), "Memory"), (Limits(cpus=0.5), "NanoCpus"), (Limits(pids=9), "PidsLimit")],
    ids=["memory", "cpus", "pids"],
)
async def test_a_limit_that_the_engine_drops_is_an_error(
    engine: PlayedEngine, containers: Containers, limits: Limits, dropped: str
) -> None:
    """Docker answers a create that it cannot limit with a warning, and goes on without the limit. B1."""
    engine.makes_containers()
    told = {"Id": ID, "Config": {}, "State": {}, "HostConfig": {"PidsLimit": limits.pids} | {dropped: 0}}
    engine.replies[INSPECT] = Reply(body=told)
    agent = Agent("reports", "image", command=("serve",), limits=limits)
    with pytest.raises(AgentError, match=r"Delegate=.*agents\.reports\.limits = { pids = 0 }"):
        await containers.create(agent, new_identity(containers.home))
    assert engine.asked[-1] == REMOVE


async def test_a_limit_that_the_engine_rounds_is_none(engine: PlayedEngine, containers: Containers) -> None:
    """Podman keeps a third of a core as 33333 of 100000 parts."""
    engine.makes_containers()
    kept = {"NanoCpus": 333_330_000, "PidsLimit": 256}
    engine.replies[INSPECT] = Reply(body={"Id": ID, "Config": {}, "State": {}, "HostConfig": kept})
    agent = Agent("reports", "image", command=("serve",), limits=Limits(cpus=1 / 3))
    assert await containers.create(agent, new_identity(containers.home)) == ID


async def test_no_value_that_is_passed_is_in_an_error(engine: PlayedEngine, containers: Containers) -> None:
    """Promise 8."""
    identity = new_identity(containers.home)
    agent = Agent("reports", "image", pass_env=("TOKEN",))
    said = f"invalid environment TOKEN=hunter22 {identity.key} {identity.proof}"
    engine.replies[CREATE] = Reply(400, {"message": said})
    with pytest.raises(AgentError, match="invalid environment") as caught:
        await containers.create(agent, identity)
    assert "TOKEN=hunter22" in engine.bodies[CREATE]["Env"]
    for secret in ("hunter22", identity.key, identity.proof):
        assert secret not in str(caught.value)


async def test_a_variable_that_is_not_set(engine: PlayedEngine, containers: Containers) -> None:
    with pytest.raises(AgentError, match=r"agents\.reports\.pass_env: set OTHER in the environment"):
        await containers.create(Agent("reports", "image", pass_env=("TOKEN", "OTHER")), new_identity("h"))
    assert engine.asked == [PING]


async def test_an_engine_that_dies_in_the_middle(engine: PlayedEngine, containers: Containers) -> None:
    identity = new_identity(containers.home)
    name = f"penstock-reports-{identity.instance}"
    engine.makes_containers()
    engine.replies[CREATE] = Reply(201, {"Id": ID}, is_cut=True)
    engine.replies[f"GET /containers/{name}/json"] = Reply(body={"Id": ID})
    engine.replies[f"DELETE /containers/{name}"] = Reply(204)
    with pytest.raises(
        EngineUnreachable, match=r"agents\.reports: the container engine at unix://.* start one"
    ):
        await containers.create(AGENT, identity)
    assert engine.asked[-1] == f"DELETE /containers/{name}", "it was made, although nobody was told"


async def test_an_answer_that_is_no_engines(engine: PlayedEngine, containers: Containers) -> None:
    for broken in (Reply(200, b"hello"), Reply(200, [1, 2]), Reply(500, b"\xff")):
        engine.replies[INSPECT] = broken
        with pytest.raises(AgentError, match="container"):
            await containers.seen(ID)


async def test_an_engine_that_never_answers(
    engine: PlayedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_session, "ANSWER_S", 0.05)
    engine.hold[PING] = asyncio.Event()
    with pytest.raises(EngineUnreachable, match=r"no answer within 0\.05 s"):
        await Containers(str(tmp_path), {}, engine.url).open()


async def test_no_engine_at_all(tmp_path: Path) -> None:
    with pytest.raises(EngineUnreachable, match=r"unix:///.*nothing\.sock does not answer"):
        await Containers(str(tmp_path), {}, f"unix://{tmp_path}/nothing.sock").open()


async def test_cancelled_while_it_is_made(engine: PlayedEngine, containers: Containers) -> None:
    """What the engine makes after that is removed, so that nothing is left behind."""
    engine.makes_containers()
    answer = engine.hold[CREATE] = asyncio.Event()
    engine.came.clear()
    creating = asyncio.ensure_future(containers.create(AGENT, new_identity(containers.home)))
    while CREATE not in engine.asked:
        await engine.came.wait()
        engine.came.clear()
    creating.cancel()
    creating.cancel()
    answer.set()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert engine.asked[-1] == REMOVE


async def test_an_engine_without_an_init_does_without(engine: PlayedEngine, containers: Containers) -> None:
    engine.makes_containers()
    refusals = [Reply(500, {"message": "container-init binary not found on the host: stat catatonit"})]
    engine.replies[CREATE] = lambda: refusals.pop() if refusals else Reply(201, {"Id": ID})
    assert await containers.create(AGENT, new_identity(containers.home)) == ID
    assert engine.bodies[CREATE]["HostConfig"]["Init"] is False
    await containers.create(AGENT, new_identity(containers.home))
    assert engine.asked.count(CREATE) == 3, "what is known is not asked for again"


async def test_somebody_else_removes_it_just_now(engine: PlayedEngine, containers: Containers) -> None:
    engine.makes_containers()
    await containers.create(AGENT, new_identity(containers.home))
    engine.replies[REMOVE] = Reply(409, {"message": "removal of container is already in progress"})
    known = [Reply(body=engine._inspected())]
    engine.replies[INSPECT] = lambda: known.pop() if known else Reply(404, {"message": "no such container"})
    await containers.remove(ID)


async def test_at_most_eight_starts_at_a_time(engine: PlayedEngine, containers: Containers) -> None:
    held = engine.hold[START] = asyncio.Event()
    engine.replies[START] = Reply(204)
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(containers.start(ID))
        while engine.asked.count(START) < 8:
            await engine.came.wait()
            engine.came.clear()
        for _ in range(50):  # whatever else could come has had its turn
            await asyncio.sleep(0)
        assert engine.asked.count(START) == 8
        held.set()
    assert engine.asked.count(START) == 20


async def test_a_folder_of_ours_that_cannot_be_written_to(engine: PlayedEngine, tmp_path: Path) -> None:
    (tmp_path / "agents").touch()
    async with Containers(str(tmp_path / "agents"), {}, engine.url) as containers:
        with pytest.raises(AgentError, match="agents"):
            await containers.create(Agent("reports", "image", network=False), new_identity(containers.home))
    assert engine.asked == [PING]


async def test_places_that_are_ours_are_not_mounted_over(
    engine: PlayedEngine, containers: Containers, tmp_path: Path
) -> None:
    agent = Agent(
        "reports", "image", mounts=(Mount(str(tmp_path), "/data"), Mount(str(tmp_path), "/penstock"))
    )
    with pytest.raises(
        AgentError, match=r"agents\.reports\.mounts\[2\]\.target: /penstock is where Penstock's own"
    ):
        await containers.create(agent, new_identity(containers.home))
    assert engine.asked == [PING]


async def test_an_engine_elsewhere_is_not_given_an_agent_without_a_key(tmp_path: Path) -> None:
    """Promise 8: nothing listens beyond loopback without one."""
    containers = Containers(str(tmp_path), {}, "tcp://engine.lan:2375")
    with pytest.raises(AgentError, match=r"agents\.reports\.plain: .*without a key"):
        await containers.create(Agent("reports", "image", plain=True), new_identity(containers.home))
    with pytest.raises(AgentError, match=r"agents\.reports\.network: .*run Penstock there"):
        await containers.create(Agent("reports", "image", network=False), new_identity(containers.home))


async def test_labels_alone_make_no_container_ours(engine: PlayedEngine, containers: Containers) -> None:
    """An image that was made of a container of ours hands its labels on to whatever its owner runs from it."""
    labels = {recipe.HOME_LABEL: containers.home, recipe.AGENT_LABEL: "x", recipe.INSTANCE_LABEL: "a1"}
    told = [
        {"Id": "c1", "Names": ["/penstock-x-a1"], "State": "running", "Labels": labels},
        {"Id": "c2", "Names": ["/mine"], "State": "running", "Labels": labels},
        {"Id": "c3", "State": "running", "Labels": labels},
    ]
    engine.replies["GET /containers/json"] = Reply(body=told)
    assert [one.id for one in await containers.listed(agent="x")] == ["c1"]


async def test_a_missing_image_is_told_with_its_place(engine: PlayedEngine, containers: Containers) -> None:
    engine.replies["GET /images/localhost/no:latest/json"] = Reply(404, {"message": "no such image"})
    with pytest.raises(ImageMissing, match=r"^agents\.gone\.image: .* has no image 'localhost/no:latest'"):
        await containers.image_id("localhost/no:latest", "gone")
