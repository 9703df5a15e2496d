"""The config of a running dispatcher, and another one: what differs is named, and no value of it (E9)."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.cli.dispatching import tell_standby
from penstock.client.config_watch import ConfigEdits, watching
from penstock.config import TaskChecker, parse
from penstock.config.running import Difference, compare_config, knows_all, record_config, unknown_there
from penstock.diagnosis.history import Epoch, Owner
from penstock.errors import TaskError
from penstock.model import Lane, Task
from penstock.wiring import read_config
from tests.unit.cli_rig import CONFIG, Cli, make_cli
from tests.unit.web_rig import serving

PATIENCE_S = 60
TEXT = """
store = "p.db"
[hosts.h]
type = "openai"
url = "http://surtr:1234/v1"
headers = { X-Org = "s3cret-org" }
serves = ["chat"]
slots = 2
[hosts.old]
type = "simulated"
serves = ["sum"]
[lanes.x]
"""


def differs(here: str, there: str, **settings: str) -> Difference:
    """How a file differs from what a dispatcher runs with, which options have set keys of."""
    return compare_config(parse(here), record_config(parse(there).with_settings(settings)))


def test_the_same_config_does_not_differ() -> None:
    assert not differs(TEXT, TEXT)
    assert not differs(
        TEXT, TEXT.replace("slots = 2", "slots = 2 # two") + "max_running = 1\n".replace("max", "# max")
    )
    assert not differs(TEXT, TEXT.replace('store = "p.db"', 'store = "./other/p.db"'))
    assert not differs(
        TEXT, TEXT + '[server]\nadvertise = "http://10.0.0.5:8787"\n'
    )  # each standby has its own


def test_keys_are_named_and_whole_hosts_and_lanes() -> None:
    there = TEXT
    here = (
        TEXT.replace("slots = 2", "slots = 3")
        .replace("s3cret-org", "s3cret-two")
        .replace("[hosts.old]", '[hosts."new.one"]')
        + 'max_running = 1\n[lanes.y]\n[retry]\nretries = 5\n[models]\ng = "chat"\n'
    )
    found = differs("aging_s = 7\n" + here, there)
    assert found == Difference(
        added=("hosts.'new.one'", "lanes.y", "models.g"),
        removed=("hosts.old",),
        changed=("aging_s", "hosts.h.headers", "hosts.h.slots", "lanes.x.max_running", "retry.retries"),
    )
    assert str(found).startswith(
        "hosts.'new.one' is new, lanes.y is new, models.g is new, hosts.old is gone, aging_s"
    )
    assert str(found).endswith(" and 1 more")


def test_what_is_kept_holds_no_value_and_is_never_the_same_twice() -> None:
    """Promise 8: who reads the store learns neither a secret nor that two configs have the same one."""
    one, other = record_config(parse(TEXT)), record_config(parse(TEXT))
    assert "s3cret" not in one
    assert "surtr" not in one
    assert one.count("headers") == 1
    assert not set(_digests(one)) & set(_digests(other))


def _digests(recorded: str) -> list[str]:
    return [part for part in recorded.split('"') if len(part) == 12 and part.isalnum()]


def test_what_an_option_has_set_differs_from_no_file() -> None:
    """It would be set again by the same command line."""
    assert not differs(TEXT, TEXT, **{"hosts.h.slots": "7", "server.port": "9000", "lanes.x.weight": "2"})
    assert differs(TEXT, TEXT + "weight = 3\n", **{"hosts.h.slots": "7"}).changed == ("lanes.x.weight",)
    made = {"hosts.z.type": "simulated", "hosts.z.slots": "3"}
    assert not differs(TEXT, TEXT, **made)
    here = parse(TEXT).with_settings({"hosts.h.slots": "7", "hosts.old.slots": "2"})
    assert not compare_config(here, record_config(parse(TEXT)))


def test_what_a_dispatcher_does_not_know_is_told_once() -> None:
    running, ours = (
        parse(TEXT).plant,
        parse(TEXT + '[lanes.y]\n[hosts.n]\ntype = "simulated"\nserves = ["new"]\n'),
    )
    tasks = [
        Task("chat", lane="x"),
        Task("chat", lane="y"),
        Task("sum", lane="y"),
        Task("new"),
        Task("new", host="n"),
    ]
    assert list(unknown_there(tasks, running)) == [
        "lane 'y': the running dispatcher does not know it; restart it",
        "kind 'new': the running dispatcher does not know it; restart it",
        "host 'n': the running dispatcher does not know it; restart it",
    ]
    assert knows_all(ours.plant, running)
    assert not knows_all(running, ours.plant)


def test_a_checker_tells_what_only_the_edited_file_has() -> None:
    edited = parse(TEXT + "[lanes.y]\n")
    checker = TaskChecker(parse(TEXT), edited=lambda: edited)
    assert checker.problems(Task("chat", lane="y")) == [
        ("lane", "'y': the running dispatcher does not know it; restart it")
    ]
    assert checker.problems(Task("chat", lane="z")) == [
        ("lane", "no lane 'z'; add [lanes.z] to penstock.toml")
    ]
    assert checker.problems(Task("chat", lane="x")) == []


# ---- the file


def test_an_edit_is_said_once_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(TEXT)
    edits = ConfigEdits(read_config(path))
    assert not edits.look()
    path.write_text(TEXT + "# a remark\n")
    assert not edits.look()
    path.write_text(TEXT + "[lanes.yy]\n")
    assert edits.look()
    assert edits.said.endswith(f"penstock.toml: lanes.yy is new; restart it to apply {path}")
    assert edits.edited is not None
    assert not edits.look()
    path.write_text(TEXT + "[lanes.yy]\nwieght = 'hunter2'\n")
    assert edits.look()
    assert edits.said == (
        f"{path}:14: lanes.yy.wieght: unknown key; did you mean 'weight'?; "
        "the running dispatcher keeps the config that it has"
    )
    assert edits.edited is None
    path.unlink()
    assert edits.look()
    assert "there is no such file" in edits.said
    path.write_text(TEXT)
    assert edits.look()
    assert edits.said == ""


@pytest.mark.parametrize("way", ["in place", "replaced"])
async def test_whoever_dispatches_notices_an_edit(tmp_path: Path, way: str) -> None:
    """As editors save: into the same file, or into another one that takes its name; and again after that."""
    path = tmp_path / "penstock.toml"
    path.write_text(TEXT)
    config = read_config(path)
    told: asyncio.Queue[str] = asyncio.Queue()
    with watching(ConfigEdits(config), config, told.put_nowait):
        async with asyncio.timeout(PATIENCE_S):
            for number in (1, 2):
                text = TEXT.replace("slots = 2", f"slots = {2 + number}") + "[lanes.y]\n" * (number - 1)
                if way == "in place":
                    path.write_text(text)
                else:
                    (tmp_path / "new").write_text(text)
                    os.replace(tmp_path / "new", path)
                assert "hosts.h.slots differs" in await told.get()


# ---- commands beside a dispatcher


@contextmanager
def dispatching(folder: Path) -> Iterator[None]:
    """A dispatcher of the config in a folder, as it is now, in a thread."""
    ready, over = threading.Event(), threading.Event()

    async def dispatch() -> None:
        async with penstock.open(folder / "penstock.toml"):
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(dispatch()))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


EDITED = (
    CONFIG.replace("slots = 2", "slots = 4").replace('["summarize"]', '["summarize", "draw"]')
    + "[lanes.chat]\n"
)
NOTICE = (
    "the running dispatcher has another config than penstock.toml: lanes.chat is new, hosts.small.serves differs, "
    "hosts.small.slots differs; restart it to apply penstock.toml"
)


def test_every_command_says_that_the_dispatcher_has_another_config(cli: Cli) -> None:
    cli.file("more.jsonl", '{"kind": "summarize"}\n')
    with dispatching(cli.folder):
        assert cli.good("status", "--json").json["config_differs"] is None
        assert cli.good("submit", "summarize").err == ""
        cli.file("penstock.toml", EDITED)
        assert cli.good("status").lines[1] == NOTICE
        assert cli.good("status", "--json").json["config_differs"] == {
            "added": ["lanes.chat"],
            "removed": [],
            "changed": ["hosts.small.serves", "hosts.small.slots"],
        }
        assert cli.good("submit", "summarize").told == [f"penstock: {NOTICE}"]
        assert f"penstock: {NOTICE}" in cli.good("run", "more.jsonl").told
        findings = cli("check", "--json").json["findings"]
        assert [one["detail"] for one in findings if one["what"] == "config"] == [NOTICE]
    assert cli.good("status", "--json").json["config_differs"] is None  # nobody dispatches


@pytest.mark.parametrize(
    ("arguments", "unknown"),
    [
        (("submit", "summarize", "--lane", "chat"), "lane 'chat'"),
        (("submit", "draw"), "kind 'draw'"),
        (("run", "chat.jsonl"), "lane 'chat'"),
        (("submit", "--file", "chat.jsonl"), "lane 'chat'"),
    ],
)
def test_what_only_the_file_has_is_refused(cli: Cli, arguments: tuple[str, ...], unknown: str) -> None:
    cli.file("chat.jsonl", '{"kind": "summarize", "lane": "chat"}\n' * 3)
    with dispatching(cli.folder):
        cli.file("penstock.toml", EDITED)
        told = [line for line in cli.bad(*arguments) if line != NOTICE]
        assert told == [f"{unknown}: the running dispatcher does not know it; restart it"]
        assert cli.tasks() == []
    with dispatching(cli.folder):  # started again
        assert cli.good(*arguments).err.count(NOTICE) == 0


async def test_a_client_looks_once_where_all_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it costs is one look at the store, and not one for each submit."""
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG)
    async with penstock.open(path) as running, penstock.open(path, dispatch=False) as client:
        assert running.dispatches
        looks = 0
        owned_by = client._store.owned_by

        async def counted() -> object:
            nonlocal looks
            looks += 1
            return await owned_by()

        monkeypatch.setattr(client._store, "owned_by", counted)
        for _ in range(3):
            await client.submit(Task("summarize"))
        assert looks == 1
        path.write_text(EDITED)
        async with penstock.open(path, dispatch=False) as other:
            await other.submit(Task("summarize"))
            with pytest.raises(TaskError, match="lane 'chat': the running dispatcher does not know it"):
                await other.submit(Task("summarize", lane="chat"))


def test_a_standby_says_that_the_leader_has_another_config() -> None:
    told: list[str] = []
    log: Any = SimpleNamespace(line=lambda what, detail: told.append(what), warning=told.append)
    store: Any = SimpleNamespace(name="the store")
    leader = Epoch(1, Owner(7, "here", "penstock serve"), 0.0, 0.0)
    tell_standby(log, store, parse(TEXT), leader, record_config(parse(TEXT)))
    tell_standby(log, store, parse(TEXT + "[lanes.y]\n"), leader, record_config(parse(TEXT)))
    assert told == [
        "standby",
        "standby",
        "the running dispatcher has another config than config: lanes.y is new; restart it to apply config",
    ]


async def test_http_refuses_what_only_the_file_has(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        config = served.parts.config
        served.parts.config_edits.edited = replace(
            config, plant=replace(config.plant, lanes=(*config.plant.lanes, Lane("chat")))
        )
        told = await served.http.post("/api/tasks", json={"kind": "k", "lane": "chat"})
        assert told.status_code == 422
        assert (
            told.json()["error"]["message"]
            == "lane: 'chat': the running dispatcher does not know it; restart it"
        )
