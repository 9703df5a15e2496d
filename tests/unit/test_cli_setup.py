"""`init` and `check` on the command line: a config from what is there, and what to do where it does not work."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import penstock
from penstock.clock import SystemClock
from penstock.diagnosis.history import Owner
from penstock.setup import checkup
from penstock.testing import ModelBehaviour, ModelServer
from penstock.wiring import open_store, read_config
from tests.unit.cli_rig import CONFIG, Cli, make_cli

Start = Callable[..., ModelServer]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    made = make_cli(tmp_path, monkeypatch, capsys)
    (tmp_path / "penstock.toml").unlink()
    return made


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts model servers on a loop of their own: a command has its own loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    servers: list[ModelServer] = []

    def begin(style: str, **behaviour: Any) -> ModelServer:
        server = ModelServer(ModelBehaviour(style=cast(Any, style), **behaviour))
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
        servers.append(server)
        return server

    yield begin
    for server in servers:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def serving_at(port: int) -> str:
    return f"\n[server]\nport = {port}\n"


# ---- init


def test_init_writes_a_config_that_check_finds_well(cli: Cli, start: Start) -> None:
    """Item 9: found, asked for its models, written, and all of it works."""
    one, two = start("llamacpp", models=("tiny",), slots=3), start("ollama", models=("llama3:8b", "bge-m3"))
    scan = [word for s in (one, two) for word in ("--scan", f"127.0.0.1:{s.port}")]
    lines = cli.good("init", "--not-here", *scan).lines
    assert lines == [
        f"found llama.cpp at http://127.0.0.1:{one.port}: 1 model",
        f"found Ollama at http://127.0.0.1:{two.port}: 2 models",
        "wrote penstock.toml; next: `penstock check`, then `penstock serve`",
    ]
    told = cli.good("check", "--json", "--set", f"server.port={free_port()}").json
    assert told["ok"]
    assert [(f["what"], f["name"], f["state"]) for f in told["findings"][:2]] == [
        ("host", "llamacpp", "well"),
        ("host", "ollama", "well"),
    ]


def test_init_without_a_server(cli: Cli) -> None:
    lines = cli.good("init", "--not-here", "--scan", f"127.0.0.1:{free_port()}").lines
    assert lines[0] == "found no model server; start one, or name a machine with --scan HOST"
    assert lines[1].startswith("wrote penstock.toml with a small model of its own; next: `penstock check`")
    assert 'type = "local"' in (cli.folder / "penstock.toml").read_text()
    assert cli("check", "--json").json["problems"] == []


def test_init_does_not_write_over_a_file(cli: Cli) -> None:
    cli.file("penstock.toml", "# mine\n")
    nowhere = ("--not-here", "--scan", f"127.0.0.1:{free_port()}")
    assert cli.bad("init", *nowhere) == [
        "penstock.toml is there already; --force writes over it, --out names another"
    ]
    assert (cli.folder / "penstock.toml").read_text() == "# mine\n"
    cli.good("init", *nowhere, "--out", "other.toml")
    assert (cli.folder / "other.toml").exists()
    cli.good("init", *nowhere, "--force")
    assert (cli.folder / "penstock.toml").read_text() != "# mine\n"


def test_a_dry_run_prints_and_writes_nothing(cli: Cli, start: Start) -> None:
    server = start("vllm", models=("big",))
    scan = ("--not-here", "--scan", f"127.0.0.1:{server.port}", "--dry-run")
    said = cli.good("init", *scan)
    assert "[hosts.vllm]" in said.lines
    told = cli.good("init", *scan, "--json").json
    assert told["found"] == [
        {
            "kind": "vllm",
            "url": server.url,
            "models": ["big"],
            "embeddings": [],
            "slots": None,
            "wants_key": False,
        }
    ]
    assert told["file"] is None
    assert told["config"].rstrip() == said.out.rstrip()
    assert not list(cli.folder.glob("*.toml"))


@pytest.mark.parametrize("place", ["", "a b", "h:0", "h:x", "h:99999", "http://h", "me@h:1", "h/x", "h\x07"])
def test_init_refuses_what_is_no_place(cli: Cli, place: str) -> None:
    (told,) = cli.bad("init", "--scan", place)
    assert told.startswith(f"--scan: {place!r} must be HOST or HOST:PORT")


def test_init_must_look_somewhere(cli: Cli) -> None:
    assert cli.bad("init", "--not-here") == [
        "init: --not-here leaves nowhere to look; name machines with --scan"
    ]


# ---- check


def findings(cli: Cli, status: int = 0) -> dict[str, tuple[str, str]]:
    said = cli("check", "--json")
    assert said.status == status, said
    assert said.json["ok"] == (status == 0)
    return {f"{f['what']} {f['name']}": (f["state"], f["detail"]) for f in said.json["findings"]}


def test_check_of_a_config_that_works(cli: Cli) -> None:
    port = free_port()
    gate = '\n[gates.cpu]\nprobe = "psutil:memory_free_gb"\nmin = 0\nholds = { hosts = ["small"] }\n'
    cli.file("penstock.toml", CONFIG + gate + serving_at(port))
    lines = cli.good("check").lines
    assert [line.split()[:3] for line in lines[1:3]] == [["ok", "host", "small"], ["ok", "host", "large"]]
    assert lines[-1] == "all is well"
    assert not (cli.folder / "penstock.db").exists(), "check changes nothing"
    told = findings(cli)
    assert told["probe cpu (psutil:memory_free_gb)"][1].endswith(": open")
    assert told[f"server 127.0.0.1:{port}"] == ("well", "the address is free")


CLOUD = """
[hosts.cloud]
type = "openai"
url = "{url}"
model = "a"
models = ["b"]
fallback = {{ budget_usd_per_day = 1.0 }}
[lanes.nightly]
budget_usd_per_day = 1.0
"""


BESIDE = """
[hosts.model]
type = "openai"
url = "{url}"
model = "m"
[hosts.tool]
type = "command"
argv = ["true"]
serves = ["resize"]
"""


def test_a_model_that_takes_what_is_for_a_program_is_pointed_out(cli: Cli, start: Start) -> None:
    """Its task would go to whichever of the two has room, and fail at the model."""
    config = BESIDE.format(url=start("openai", models=("m",)).url) + serving_at(free_port())
    cli.file("penstock.toml", config)
    state, detail = findings(cli)["serves hosts.model.serves"]
    assert state == "warning"
    assert (
        detail
        == '"*" also takes tasks of kind \'resize\' that tool is for; name its own kinds: serves = ["chat"]'
    )
    cli.file("penstock.toml", config.replace('model = "m"', 'model = "m"\nserves = ["chat"]'))
    assert "serves hosts.model.serves" not in findings(cli)


def test_a_budget_that_cannot_close_is_pointed_out(cli: Cli, start: Start) -> None:
    """B7: what costs money without a price is not counted."""
    up = start("openai", models=("a", "b"))
    config = CLOUD.format(url=up.url) + serving_at(free_port())
    cli.file("penstock.toml", config)
    told = findings(cli)
    state, detail = told["budget hosts.cloud.fallback.budget_usd_per_day"]
    assert state == "warning"
    assert "'a', 'b'" in detail
    assert "[prices]" in detail
    assert told["budget lanes.nightly.budget_usd_per_day"][0] == "warning"
    assert cli.good("check").lines[-1] == "it works, but see the 2 notes above"
    cli.file("penstock.toml", config.replace("[lanes.nightly]\nbudget_usd_per_day = 1.0\n", ""))
    assert cli.good("check").lines[-1] == "it works, but see the note above"
    cli.file("penstock.toml", config)
    warned = cli("work", "--drain").err
    assert warned.count("budget_usd_per_day") == 2
    cli.file("penstock.toml", config + "\n[prices]\na = { input = 1, output = 1 }\n")
    told = findings(cli)
    assert "'a'" not in told["budget hosts.cloud.fallback.budget_usd_per_day"][1]
    assert "budget lanes.nightly.budget_usd_per_day" not in told
    cli.file(
        "penstock.toml",
        config + "\n[prices]\na = { input = 1, output = 1 }\nb = { input = 1, output = 1 }\n",
    )
    assert not [name for name in findings(cli) if name.startswith("budget")]


def test_a_wrong_config_ends_with_2(cli: Cli) -> None:
    cli.file("penstock.toml", '[hosts.h]\ntype = "simulated"\nslotz = 2\n')
    assert cli.bad("check") == ["penstock.toml:3: hosts.h.slotz: unknown key; did you mean 'slots'?"]
    said = cli("check", "--json")
    assert (said.status, said.json["ok"], len(said.json["problems"])) == (2, False, 1)
    cli.file("penstock.toml", '[hosts.h]\ntype = "python"\n')
    assert cli.bad("check")[0].startswith("penstock.toml:1: hosts.h.call: is missing")


def test_a_host_that_is_not_well_ends_with_1(cli: Cli, start: Start) -> None:
    up = start("openai", models=("a",))
    cli.file(
        "penstock.toml",
        f'[hosts.up]\ntype = "openai"\nurl = "{up.url}"\n'
        f'[hosts.down]\ntype = "openai"\nurl = "http://127.0.0.1:{free_port()}/v1"\n'
        '[hosts.tool]\ntype = "command"\nargv = ["no-such-program-anywhere"]\n' + serving_at(free_port()),
    )
    told = findings(cli, 1)
    assert [told[f"host {name}"][0] for name in ("up", "down", "tool")] == ["well", "wrong", "wrong"]
    assert "install it" in told["host tool"][1]
    said = cli("check")
    assert said.lines[-1] == "2 problems"


def test_names_that_lead_nowhere_are_wrong(cli: Cli, start: Start) -> None:
    """A model that its server lacks, and an alias of a model that no host has: calls for them would all fail."""
    server = start("openai", models=("small",))
    host = f'[hosts.h]\ntype = "openai"\nurl = "{server.url}"\nmodel = "large"\n'
    cli.file("penstock.toml", '[models]\nfast = "larg"\n' + host + serving_at(free_port()))
    told = findings(cli, 1)
    assert told["host h"][0] == "wrong"
    assert "not among them: large" in told["host h"][1]
    assert told["model fast"] == ("wrong", "the model 'fast' stands for 'larg', which no host has")


def test_a_probe_that_fails(cli: Cli) -> None:
    gate = (
        '\n[gates.{0}]\nprobe = "psutil:disk_free_gb#/no/such"\nmin = 1\non_error = "{0}"\n'
        'holds = {{ hosts = ["small"] }}\n'
    )
    cli.file("penstock.toml", CONFIG + gate.format("open") + gate.format("closed") + serving_at(free_port()))
    told = findings(cli, 1)
    state, detail = told["probe closed (psutil:disk_free_gb#/no/such)"]
    assert state == "wrong"
    assert detail.endswith("until it can be read the gate is closed")
    assert told["probe open (psutil:disk_free_gb#/no/such)"][0] == "warning"


def test_a_store_that_cannot_be(cli: Cli) -> None:
    cli.file("penstock.toml", 'store = "gone/penstock.db"\n' + serving_at(free_port()))
    ((name, (state, detail)), *_) = findings(cli, 1).items()
    assert (name.startswith("store "), state) == (True, "wrong")
    assert "make it, or correct store" in detail
    cli.file("penstock.toml", 'store = "text.db"\n' + serving_at(free_port()))
    cli.file("text.db", "this is no database " * 1000)
    ((_, (state, detail)), *_) = findings(cli, 1).items()
    assert state == "wrong"


def test_little_space_is_worth_a_word(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "_LITTLE_SPACE", 2**62)
    cli.file("penstock.toml", CONFIG + serving_at(free_port()))
    states = [state for name, (state, _) in findings(cli).items() if name.startswith("store")]
    assert states == ["warning"]


def test_promise_8_an_open_address_needs_a_token(cli: Cli) -> None:
    """Promise 8: `check` says so before `serve` refuses."""
    cli.file("penstock.toml", CONFIG + f'\n[server]\nhost = "0.0.0.0"\nport = {free_port()}\n')
    (told,) = [value for name, value in findings(cli, 1).items() if name.startswith("server")]
    assert told[0] == "wrong"
    assert "penstock token add" in told[1]
    cli.good("token", "add", "me", "--scope", "read")
    (told,) = [value for name, value in findings(cli).items() if name.startswith("server")]
    assert told == ("well", "the address is free")


def test_a_port_that_another_program_has(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        threading.Thread(target=_hang_up, args=(other,), daemon=True).start()
        cli.file("penstock.toml", CONFIG + serving_at(port))
        told = findings(cli, 1)[f"server 127.0.0.1:{port}"]  # as `serve` would refuse to start
    assert told == ("wrong", "another program has this port; stop it, or choose another server.port")


@pytest.mark.parametrize("command", ["penstock serve", "penstock work"])
def test_the_port_that_our_own_server_has(cli: Cli, start: Start, command: str) -> None:
    """A server with a /health like ours is ours only while this store's dispatcher serves."""
    port = start("llamacpp").port
    cli.file("penstock.toml", CONFIG + serving_at(port))

    async def beside() -> list[checkup.Finding]:
        config = read_config(cli.folder / "penstock.toml")
        store = open_store(config)
        await store.open()
        try:
            await store.acquire(Owner(os.getpid(), platform.node(), command), SystemClock().now())
            return await checkup.examine(config)
        finally:
            await store.close()

    told = asyncio.run(beside())[-1]
    if command == "penstock serve":
        assert (told.state, told.detail) == ("well", "Penstock serves there")
    else:
        assert told.state == "wrong"


def _hang_up(listener: socket.socket) -> None:
    try:
        while True:
            listener.accept()[0].close()
    except OSError:
        return


def test_check_beside_a_dispatcher(cli: Cli) -> None:
    cli.file("penstock.toml", CONFIG + serving_at(free_port()))

    async def beside() -> list[checkup.Finding]:
        async with penstock.open(cli.folder / "penstock.toml") as client:
            await client.wait(await client.submit(penstock.Task("summarize")))
            return await checkup.examine(client.config)

    told = asyncio.run(beside())
    assert {finding.state for finding in told} == {"well"}
    (store,) = [finding for finding in told if finding.what == "store"]
    assert store.detail == "0 tasks queued; a dispatcher is at work"


def test_check_counts_one_task_in_words(cli: Cli) -> None:
    cli.file("penstock.toml", CONFIG + serving_at(free_port()))

    async def beside() -> list[checkup.Finding]:
        async with penstock.open(cli.folder / "penstock.toml", dispatch=False) as client:
            await client.submit(penstock.Task("summarize"))
            return await checkup.examine(client.config)

    (store,) = [finding for finding in asyncio.run(beside()) if finding.what == "store"]
    assert store.detail == "1 task queued"


class Adapter:
    """A plug-in's, which does not behave."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.closed = False

    async def open(self) -> None: ...

    async def close(self) -> None:
        self.closed = True

    def work(self, job: Any) -> Any:
        raise NotImplementedError

    async def check(self) -> Any:
        if self.fault == "hangs":
            await asyncio.Event().wait()
        raise ZeroDivisionError("oh")


@pytest.mark.parametrize(
    ("fault", "detail"),
    [("hangs", "no answer within 0.05 s; is it overloaded?"), ("raises", "ZeroDivisionError: oh")],
)
async def test_a_host_that_cannot_even_be_checked(fault: str, detail: str) -> None:
    adapter = Adapter(fault)
    told = await checkup._host("h", adapter, 0.05)
    assert told == checkup.Finding("host", "h", "wrong", detail)
    assert adapter.closed
