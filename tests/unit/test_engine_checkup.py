"""`penstock check` of a config whose hosts run on a Ray cluster: the cluster is asked, and not this machine."""

from __future__ import annotations

import asyncio
import platform
import socket
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import wiring
from penstock.config import parse
from penstock.engine.cluster.driver_letters import Joined, Joining, Node
from penstock.engine.cluster.frames import REFUSED, Answer, Ask, Frames, frame
from penstock.engine.cluster.link import Line, Link
from penstock.errors import ConfigError
from penstock.setup import checkup, engine_checkup

CONFIG = """
[engine]
type = "ray"
{more}
[hosts.tools]
type = "python"
call = "no_such_module:work"
[hosts.gpu]
type = "command"
argv = ["no-such-program"]
ray = {{ resources = {{ GPU = 1 }} }}
[hosts.near]
type = "simulated"
"""
FAST = Node(node_id="a", name="a", resources={"CPU": 4.0, "GPU": 1.0}, labels={})
SLOW = Node(node_id="b", name="b", resources={"CPU": 4.0}, labels={})


class Driver:
    """One that knows a cluster; with a fault it does not reach it, and without nodes it ends at once."""

    def __init__(self, *nodes: Node, fault: str = "") -> None:
        self._nodes = nodes
        self._fault = fault
        self.joined: list[Joining] = []

    async def spawn(self) -> Line:
        ours, its = socket.socketpair()
        threading.Thread(target=self._serve, args=(its,), daemon=True).start()
        return Line(ours)

    def _serve(self, line: socket.socket) -> None:
        frames = Frames()
        with line:
            while data := line.recv(65_536):
                for head, body in frames.feed(data):
                    if not self._nodes and not self._fault:
                        return
                    line.sendall(self._answer(msgspec.json.decode(head, type=Ask), body))

    def _answer(self, ask: Ask, body: bytes) -> bytes:
        if self._fault:
            return frame(Answer(number=ask.number, fault=REFUSED, error=self._fault))
        if ask.verb == "join":
            self.joined.append(msgspec.json.decode(body, type=Joining))
            return frame(Answer(number=ask.number), msgspec.json.encode(Joined(version="2.9")))
        return frame(Answer(number=ask.number), msgspec.json.encode(self._nodes))


def examined(
    folder: Path, monkeypatch: pytest.MonkeyPatch, driver: Driver, more: str = ""
) -> dict[str, tuple[str, str]]:
    look = engine_checkup.look

    async def asked(config: Any, time_limit_s: float) -> engine_checkup.Seen:
        return await look(config, time_limit_s, driver.spawn)

    monkeypatch.setattr(engine_checkup, "look", asked)
    config = parse(CONFIG.format(more=more), folder / "penstock.toml")
    found = asyncio.run(checkup.examine(config))
    return {f"{one.what} {one.name}": (one.state, one.detail) for one in found}


def test_the_cluster_is_asked_and_this_machine_needs_nothing_of_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(FAST, SLOW)
    told = examined(tmp_path, monkeypatch, driver)
    state, detail = told["engine ray"]
    assert state == "well"
    assert detail.startswith("auto is reached: 2 nodes, Ray 2.9, Python 3.")
    assert told["host tools"] == ("well", "the Ray cluster runs it: 2 of 2 nodes can")
    assert told["host gpu"] == ("well", "the Ray cluster runs it: 1 of 2 nodes can")
    assert told["host near"][0] == "well"
    (joining,) = driver.joined
    assert (joining.names, joining.runtime_env) == ("", {}), "it takes nothing along and deposes nobody"


def test_a_variable_that_is_not_set_here_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it is missed after a takeover only, by attempts that begin then."""
    more = 'pass_env = ["PENSTOCK_TEST_SET", "PENSTOCK_TEST_UNSET"]\n'
    monkeypatch.setenv("PENSTOCK_TEST_SET", "a secret")
    monkeypatch.delenv("PENSTOCK_TEST_UNSET", raising=False)
    state, detail = examined(tmp_path, monkeypatch, Driver(FAST), more)["engine ray"]
    assert state == "warning"
    assert detail.endswith(
        "; pass_env: PENSTOCK_TEST_UNSET is not set here; set it where Penstock is started"
    )
    assert "a secret" not in detail


def test_a_host_that_no_node_can_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = examined(tmp_path, monkeypatch, Driver(SLOW))
    wants = "waits for a Ray node with GPU = 1; the only one has not: start one, or change hosts.gpu.ray"
    assert told["host gpu"] == ("wrong", wants)
    assert told["host tools"][0] == "well"


@pytest.mark.parametrize(
    ("node", "more", "state"),
    [
        ("far", "", "warning"),
        ("far", '[server]\nadvertise = "http://localhost:8787"\n', "warning"),
        ("far", '[server]\nhost = "0.0.0.0"\n', "well"),
        ("far", '[server]\nadvertise = "http://10.0.0.5:8787"\n', "well"),
        ("far", 'calls_url = "http://front:8787"\n', "well"),
        (platform.node(), "", "well"),
    ],
)
def test_reports_need_a_way_back_from_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: str, more: str, state: str
) -> None:
    model = '[hosts.model]\ntype = "openai"\nurl = "http://127.0.0.1:9/v1"\nmodel = "m"\nserves = ["chat"]\n'
    reports = f'{model}[hosts.reports]\ntype = "researcher"\nserves = ["gptr"]\n'
    there = Node(node_id="a", name=node, resources={"CPU": 4.0}, labels={})
    told = examined(tmp_path, monkeypatch, Driver(there), more + reports)["host reports"]
    assert told[0] == state
    assert ("which node far does not reach" in told[1]) is (state == "warning")


@pytest.mark.parametrize(
    ("engine", "state", "detail"),
    [
        ("tcp://engine:2375", "wrong", "give each node an engine of its own"),
        ("tcp://127.0.0.1:2375", "well", "the Ray cluster runs it"),
        ("unix:///run/docker.sock", "well", "the Ray cluster runs it"),
    ],
)
def test_nodes_share_no_engine_of_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, state: str, detail: str
) -> None:
    mounts = 'mounts = [{ source = "data", target = "/data" }]\n'
    agent = f'[agents.yard]\nimage = "i"\nhandlers = {{ a = ["a"] }}\n{mounts}'
    agent += '[hosts.yard]\ntype = "agent"\nray = {}\n'
    more = f'env = {{ DOCKER_HOST = "{engine}" }}\n{agent}'
    found = examined(tmp_path, monkeypatch, Driver(SLOW), more)
    told = found["host yard"]
    assert told[0] == state
    assert detail in told[1]
    there = f"mounts: there is no {tmp_path / 'data'} here; it must be on the nodes that run it"
    assert found["agent yard"] == ("warning", there)


@pytest.mark.parametrize(
    ("driver", "more", "detail"),
    [
        (
            Driver(fault="RuntimeError: Version mismatch"),
            "",
            "the cluster cannot be reached: RuntimeError: Version mismatch; "
            "check that Ray runs there, and engine.address",
        ),
        (
            Driver(),
            "",
            "the cluster cannot be reached: its driver ended; check that Ray runs there, and engine.address",
        ),
        (
            Driver(SLOW),
            'address = "127.0.0.1:1"',
            "nothing answers at 127.0.0.1:1; start Ray there, or correct engine.address",
        ),
    ],
    ids=["refused", "ended", "nobody"],
)
def test_what_keeps_it_from_a_cluster_is_one_line_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: Driver, more: str, detail: str
) -> None:
    told = examined(tmp_path, monkeypatch, driver, more)
    assert told["engine ray"] == ("wrong", detail.format(folder=tmp_path))
    assert told["host tools"] == ("warning", "not tried: it runs on the Ray cluster")
    assert told["host near"][0] == "well"


def test_what_should_go_to_the_nodes_and_is_not_there_is_a_mistake_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For whoever would dispatch, at once; who only submits needs none of it."""
    more = 'working_dir = "nowhere"\npy_modules = ["no"]'
    problems = (
        f"engine.working_dir: there is no folder {tmp_path}/nowhere; make it, or correct the key",
        f"engine.py_modules: there is no {tmp_path}/no; make it, or correct the key",
    )
    with pytest.raises(ConfigError) as checked:
        examined(tmp_path, monkeypatch, Driver(SLOW), more)
    assert checked.value.problems == problems
    config = parse(CONFIG.format(more=more), tmp_path / "penstock.toml")
    with pytest.raises(ConfigError) as dispatched:
        wiring.make_dispatcher(config, wiring.open_store(config), "test")
    assert dispatched.value.problems == problems


async def test_a_line_to_a_cluster_says_why_there_is_none_and_what_to_do() -> None:
    """Once, whatever was said before; and nobody starts a driver for an address where nothing listens."""
    whys: list[str] = []
    changed = asyncio.Event()
    drivers = [Driver(fault="RuntimeError: no"), Driver()]

    def told() -> None:
        whys.append(link.why_down)
        changed.set()

    async def spawn() -> Line:
        return await drivers[min(len(whys), 1)].spawn()

    link = Link(Joining(address="auto", namespace="n"), told, spawn)
    link.open()
    async with asyncio.timeout(30):
        while len(whys) < 3:
            changed.clear()
            await changed.wait()
    await link.close()
    cannot, remedy = (
        "the Ray cluster at auto cannot be reached",
        "check that Ray runs there, and engine.address",
    )
    assert whys[:2] == [f"{cannot}: RuntimeError: no; {remedy}", f"{cannot}: its driver ended; {remedy}"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    whys.clear()
    changed.clear()
    link = Link(Joining(address=f"127.0.0.1:{port}", namespace="n"), told, spawn)
    link.open()
    async with asyncio.timeout(30):
        await changed.wait()
    await link.close()
    assert whys == [f"nothing answers at 127.0.0.1:{port}; start Ray there, or correct engine.address"]
