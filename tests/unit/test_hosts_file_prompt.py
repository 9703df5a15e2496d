"""A9: a file of instructions and a document file become one model call; what is read, sent, refused and told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import SystemClock
from penstock.config import parse
from penstock.config.own_files import OwnFiles
from penstock.errors import ConfigError, PermanentError, TemporaryError
from penstock.hosts.base import Job, OwnCoroutine
from penstock.hosts.file_prompt import FilePromptAdapter, make, order_of
from penstock.hosts.own_door import Guest, OwnDoor
from penstock.hosts.rooted_files import RootedFiles
from penstock.model import Host, Outcome, Price, Verdict
from penstock.wiring import NO_WAYS, _placed
from tests.unit.model_rig import Call, chat, http, wire

CLOSE = (("Connection", "close"),)
FILES = {"instructions": "how.md", "document": "what.md"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "inputs"
    root.mkdir()
    (root / "how.md").write_text("Be brief.", encoding="utf-8")
    (root / "what.md").write_text("\ufeffA document, ünd more.", encoding="utf-8")
    return root


def job(payload: Any, model: str | None = None, lane: str = "fpf") -> Job:
    return Job("t1", 1, "file_prompt", payload, "prompts", lane, "nightly", model, priority=1)


async def outcome_of(adapter: FilePromptAdapter, payload: Any, model: str | None = None) -> Outcome:
    await adapter.open()
    try:
        work = adapter.work(job(payload, model))
        assert isinstance(work, OwnCoroutine)
        return await work.run()
    finally:
        await adapter.close()


def host(root: Path, **options: Any) -> Host:
    return Host("prompts", "file_prompt", models=("*",), options={"root": str(root), **options})


# ---- the call


async def test_two_files_are_one_call_and_its_text_the_value(root: Path) -> None:
    asked: list[Call] = []

    async def answer(call: Call) -> None:
        asked.append(call)
        await call.send(http(200, chat("Done."), CLOSE))
        call.hang_up()

    async with wire(answer) as server:
        made = make(host(root, url=server.url, defaults={"top_p": 0.5}), SystemClock())
        payload = {**FILES, "temperature": 0.2, "overrides": {"max_tokens": 7}}
        outcome = await outcome_of(made, payload, "qwen")
    assert asked[0].json == {
        "model": "qwen",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "A document, ünd more."},
        ],
        "temperature": 0.2,
        "max_tokens": 7,
        "top_p": 0.5,
    }
    assert outcome.verdict is Verdict.DONE
    assert outcome.value["text"] == "Done."
    assert outcome.value["usage"]["total_tokens"] == 8
    assert outcome.value | FILES == outcome.value
    assert outcome.tokens == 8


async def test_an_answer_without_text_is_tried_again(root: Path) -> None:
    async def answer(call: Call) -> None:
        await call.send(http(200, chat(""), CLOSE))
        call.hang_up()

    async with wire(answer) as server:
        outcome = await outcome_of(make(host(root, url=server.url), SystemClock()), FILES)
    assert (outcome.verdict, outcome.value) == (Verdict.TEMPORARY, None)
    assert "answered without a text" in (outcome.error or "")


class Hall:
    """An entrance to a server of the test's."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.node_urls = (url, None)
        self.guests: list[Guest] = []
        self.gone: list[str] = []

    def let_in(self, guest: Guest, root: bytes | None = None) -> str:
        self.guests.append(guest)
        return "ps_0123abcd_the-key-of-this-attempt"

    def shut_out(self, key: str) -> None:
        self.gone.append(key)


@pytest.mark.parametrize(("status", "verdict"), [(200, Verdict.DONE), (502, Verdict.TEMPORARY)])
async def test_without_a_url_it_calls_through_its_own_dispatcher(
    root: Path, status: int, verdict: Verdict
) -> None:
    """With a key of the attempt's; what it costs is counted where it was answered, and so is the blame."""
    asked: list[Call] = []

    async def answer(call: Call) -> None:
        asked.append(call)
        failed = b'{"error": {"message": "no host could answer: ps_0123abcd_the-key-of-this-attempt"}}'
        await call.send(http(status, chat("Done.") if status == 200 else failed, CLOSE))
        call.hang_up()

    async with wire(answer) as server:
        door, hall = OwnDoor(), Hall(server.url)
        door.open(hall)
        one = host(root, door=door, calls_lane="own")
        priced = Host("prompts", "file_prompt", models=("*",), prices={"m": Price(1)}, options=one.options)
        outcome = await outcome_of(make(priced, SystemClock()), FILES)
    assert outcome.verdict is verdict
    assert (outcome.tokens, outcome.cost_usd, outcome.host_fault) == (None, None, False)
    assert hall.guests == [Guest("t1", 1, "own", 1, "v1-nightly")]
    assert asked[0].headers["authorization"] == "Bearer ps_0123abcd_the-key-of-this-attempt"
    assert hall.gone == ["ps_0123abcd_the-key-of-this-attempt"]
    assert "the-key" not in (outcome.error or "")


async def test_a_door_that_is_not_open_is_bad_luck(root: Path) -> None:
    adapter = make(host(root, door=OwnDoor()), SystemClock())
    with pytest.raises(TemporaryError, match="not open"):
        adapter.work(job(FILES))


# ---- payloads


@pytest.mark.parametrize(
    "payload",
    [
        FILES,
        {"file_a": "how.md", "file_b": "what.md"},
        {"prompt": "Be brief.", "document": "what.md"},
        {"instructions": "how.md", "text": "A document, ünd more."},
    ],
)
def test_files_have_two_names_each_and_texts_stand_for_them(payload: dict[str, Any], root: Path) -> None:
    messages = order_of(payload).messages(RootedFiles(str(root), 1000))
    assert [message["content"] for message in messages] == ["Be brief.", "A document, ünd more."]


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ("text", "is a table such as"),
        ({"instructions": "how.md"}, "for the document; this one has none of them"),
        ({**FILES, "file_a": "x"}, "this one has instructions and file_a"),
        ({**FILES, "documnt": "x"}, "unknown field 'documnt'; did you mean 'document'?"),
        ({**FILES, "document": 3}, "`document` must be a text that is not empty"),
        ({**FILES, "document": " "}, "`document` must be a text that is not empty"),
        ({**FILES, "model": 3}, "`model` must be a text"),
        ({**FILES, "overrides": []}, "`overrides` must be a table"),
        ({**FILES, "overrides": {"messages": []}}, "`overrides` cannot have `messages`"),
    ],
)
def test_a_payload_that_cannot_be_used_says_why(payload: Any, told: str) -> None:
    """Promise 7."""
    with pytest.raises(PermanentError) as caught:
        order_of(payload)
    assert told in str(caught.value)


# ---- files


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gone.md", "the document file 'gone.md' does not exist in"),
        ("../secret.md", "is outside of"),
        ("out.md", "is outside of"),
        ("folder/up/secret.md", "is outside of"),
        ("/etc/passwd", "is outside of"),
        ("folder", "is no regular file"),
        ("how.md/x", "cannot be read (Not a directory)"),
        ("pipe", "is no regular file"),
        ("big.md", "is over 1000 bytes; shorten it"),
        ("latin.md", "is not UTF-8 text (byte 0xe9 at 3); convert it"),
        ("empty.md", "is empty"),
        (".env", "is hidden or Penstock's own"),
        ("folder/.git/config", "is hidden or Penstock's own"),
        *(
            (name, "is hidden or Penstock's own")
            for name in ("own.db", "own.db-wal", "OWN.DB", "link-to-own", "hard-link-to-own", "own.toml")
        ),
        ("penstock.env", "is hidden or Penstock's own"),
        ("keys/m.key", "is hidden or Penstock's own"),
        ("x" * 300, "File name too long"),
        ("circle", "cannot be read (Too many levels of symbolic links); correct its path"),
        ("a\0b", "cannot be read"),
    ],
)
def test_only_texts_inside_the_root_are_read(root: Path, name: str, told: str) -> None:
    (root.parent / "secret.md").write_text("secret")
    (root / "out.md").symlink_to(root.parent / "secret.md")
    (root / "folder/.git").mkdir(parents=True)
    (root / "folder/.git/config").write_text("secret")
    (root / "folder/up").symlink_to(root.parent)
    os.mkfifo(root / "pipe")
    (root / "big.md").write_text("x" * 1001)
    (root / "latin.md").write_bytes(b"caf\xe9")
    (root / "empty.md").write_text(" \n")
    (root / ".env").write_text("KEY=secret")
    (root / "keys").mkdir()
    for own in ("own.db", "own.db-wal", "own.toml", "penstock.env", "keys/m.key"):
        (root / own).write_text("secret")
    (root / "link-to-own").symlink_to(root / "own.db")
    (root / "hard-link-to-own").hardlink_to(root / "keys/m.key")
    (root / "circle").symlink_to("circle")
    text = 'store = "own.db"\n[hosts.m]\ntype = "openai"\nurl = "http://m/v1"\nkey_file = "keys/m.key"'
    files = RootedFiles(str(root), 1000, OwnFiles(parse(text, root / "own.toml")))
    with pytest.raises(PermanentError) as caught:
        files.text(name, "document")
    assert told in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_links_inside_the_root_are_followed(root: Path, tmp_path: Path) -> None:
    (root / "sub").mkdir()
    (root / "sub/alias.md").symlink_to("../how.md")
    (tmp_path / "elsewhere").symlink_to(root)
    files = RootedFiles(str(tmp_path / "elsewhere"), 1000)
    assert files.text("sub/alias.md", "instructions") == "Be brief."
    assert files.text(str(root / "how.md"), "instructions") == "Be brief."


def test_a_folder_that_is_exchanged_for_a_link_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the reading somebody may change what a name leads to."""
    (root / "sub").mkdir()
    (root / "sub/how.md").write_text("fine")
    (root.parent / "how.md").write_text("secret")
    real = os.path.realpath

    def slow(path: str) -> str:
        found = real(path)
        if found.endswith("how.md") and not (root / "sub").is_symlink():
            (root / "sub").rename(root / "moved")
            (root / "sub").symlink_to(root.parent)
        return found

    monkeypatch.setattr(os.path, "realpath", slow)
    with pytest.raises(PermanentError, match="cannot be read"):
        RootedFiles(str(root), 1000).text("sub/how.md", "document")


# ---- the config


def test_files_are_read_beside_the_config_and_secrets_are_not(tmp_path: Path) -> None:
    text = """
        [hosts.m]
        type = "openai"
        url = "http://m/v1"
        serves = ["chat"]
        key_file = "m.key"
        [hosts.prompts]
        type = "file_prompt"
    """
    config = parse(text, tmp_path / "penstock.toml")
    options = _placed(config, config.plant.hosts[1], NO_WAYS).options
    assert options["root"] == str(tmp_path)
    for name in ("penstock.toml", "penstock.db", "penstock.db-shm", "m.key", "penstock.env"):
        assert options["own_files"].has(str(tmp_path), name), name
    assert not options["own_files"].has(str(tmp_path), "notes.md")


def test_options_of_a_server_need_its_url(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"hosts.prompts.key_env: belongs to the server of `url`"):
        make(host(root, key_env="X"), SystemClock())
    with pytest.raises(ConfigError, match=r"hosts.prompts.max_file_bytes"):
        make(host(root, max_file_bytes=0), SystemClock())


async def test_a_missing_root_is_told_by_check(root: Path) -> None:
    health = await make(host(root / "gone", door=OwnDoor()), SystemClock()).check()
    assert not health.up
    assert "hosts.prompts.root" in health.detail
    assert (await make(host(root, door=OwnDoor()), SystemClock()).check()).up
