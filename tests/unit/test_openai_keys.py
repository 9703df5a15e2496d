"""The key of a model server: where it is read, that a new one is found, that nobody ever sees it (promise 8)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import State, Task
from penstock.errors import ConfigError, HostError
from penstock.hosts.model_key import Key
from penstock.hosts.model_options import read_options
from penstock.hosts.openai import OpenAIAdapter
from penstock.model import Host, Verdict
from tests.unit.model_rig import (
    Call,
    Ear,
    Wire,
    adapter,
    answering,
    chat,
    delta,
    error,
    event,
    http,
    perform,
    stream,
    streaming,
    wire,
)

SECRET = 'sk-"very\\secret/0123456789'
PLAIN = {"model": "m", "messages": []}


def _options(**options: Any) -> Any:
    return read_options(Host("box", "openai", options={"url": "http://localhost:1/v1", **options}))


# ---- where it comes from


async def test_a_key_from_the_environment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOX_KEY", f" {SECRET}\n")
    async with wire(answering(http(200, chat()))) as server, adapter(server, key_env="BOX_KEY") as made:
        await perform(made, "x")
    assert server.calls[0].headers["authorization"] == f"Bearer {SECRET}"


async def test_without_a_key_none_is_sent() -> None:
    async with wire(answering(http(200, chat()))) as server, adapter(server) as made:
        await perform(made, "x")
    assert "authorization" not in server.calls[0].headers


def _keyed(right: str) -> Any:
    async def act(call: Call) -> None:
        if call.headers.get("authorization") == f"Bearer {right}":
            await call.send(http(200, {"data": []}) if call.method == "GET" else http(200, chat("in")))
        else:
            await call.send(http(401, error("wrong key", "invalid_api_key")))

    return act


async def test_a_rotated_key_is_read_when_the_old_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-first\n")
    server: Wire
    async with wire(_keyed("sk-first")) as server, adapter(server, key_file=str(file)) as made:
        assert (await perform(made, "x")).verdict is Verdict.DONE
        server.act = _keyed("sk-second")
        refused = await perform(made, "x")
        assert refused.verdict is Verdict.HOST
        assert str(file) in (refused.error or "")
        file.write_text("sk-second\n")
        assert (await perform(made, "x")).verdict is Verdict.DONE
        server.act = _keyed("sk-third")
        file.write_text("sk-third\n")
        assert (await made.check()).up
    assert len(server.calls) == 6  # an old key that is still the same is not sent again


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "hosts.box.key_file: there is no such file; make it"),
        ("", "there is no key in the file"),
        (" \n ", "there is no key in the file"),
        ("two words", "is no key"),
        ("schlüssel", "is no key"),
        ("x" * 70_000, "too large to be a key"),
    ],
)
async def test_a_file_without_a_key_is_a_fault_of_the_host_with_a_remedy(
    tmp_path: Path, content: str | None, told: str
) -> None:
    """The dispatcher starts all the same: the host is down until its key is there."""
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
    async with wire(answering(http(200, chat()))) as server, adapter(server, key_file=str(file)) as made:
        outcome, health = await perform(made, "x"), await made.check()
        assert outcome.verdict is Verdict.HOST
        assert told in (outcome.error or "")
        # A file that is not there is not named: it may be the key itself, written at the wrong place.
        assert (str(file) in (outcome.error or "")) is (content is not None)
        assert not health.up
        assert told in health.detail
        assert not server.calls
        file.write_text("sk-right")
        assert (await perform(made, "x")).verdict is Verdict.DONE


def test_a_folder_is_no_key_file(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot be read"):
        Key("box", file=str(tmp_path)).value()


def test_an_unset_variable_is_named() -> None:
    with pytest.raises(HostError, match=r"there is no key in the environment variable NO_SUCH_KEY"):
        Key("box", env="NO_SUCH_KEY").value()


async def test_a_key_file_that_everybody_can_read_is_pointed_out(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-right")
    file.chmod(0o644)
    async with wire(_keyed("sk-right")) as server, adapter(server, key_file=str(file)) as made:
        health = await made.check()
        file.chmod(0o600)
        assert "chmod" not in (await made.check()).detail
    assert health.up
    assert f"chmod o= {file}" in health.detail


# ---- nobody sees it


@pytest.mark.parametrize("status", [200, 400, 401, 429, 500])
async def test_a_key_that_the_server_echoes_is_hidden(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    monkeypatch.setenv("BOX_KEY", SECRET)
    caplog.set_level(logging.DEBUG)
    async with adapter_echoing(status) as (made, server):
        outcome, health = await perform(made, "x"), await made.check()
        ear = Ear(PLAIN)
        relayed = await perform(made, ear)
    assert server.calls
    shown = f"{outcome!r} {health!r} {relayed!r} {ear.refusal!r} {made!r} {vars(made)!r} {caplog.text}"
    assert SECRET not in shown
    assert "0123456789" not in shown
    assert "sk-" not in shown
    assert outcome.verdict is not Verdict.DONE
    assert ear.refusal is None or b"[key]" in ear.refusal.body


@asynccontextmanager
async def adapter_echoing(status: int) -> AsyncIterator[tuple[OpenAIAdapter, Wire]]:
    async def act(call: Call) -> None:
        key = call.headers["authorization"].removeprefix("Bearer ")
        long_before = "x" * 480  # the place where a text is cut must not leave half a key
        await call.send(http(status, error(f"{long_before} {key} is bad"), [("x-request-id", key)]))

    async with wire(act) as server, adapter(server, key_env="BOX_KEY") as made:
        yield made, server


@pytest.mark.parametrize("pieces", [1, 7, 40])
@pytest.mark.parametrize("end", [b"\n\n", b""], ids=["whole", "cut off"])
async def test_a_key_that_a_stream_tells_in_its_error_is_hidden(
    monkeypatch: pytest.MonkeyPatch, pieces: int, end: bytes
) -> None:
    """Once the answer has begun: however the event is cut on its way."""
    monkeypatch.setenv("BOX_KEY", SECRET)
    told = event(error(f"{SECRET} is bad")).removesuffix(b"\n\n") + end
    size = -(-len(told) // pieces)
    parts = [told[at : at + size] for at in range(0, len(told), size)]
    said = event(delta('the "error": none'))
    async with wire(streaming(said, *parts)) as server, adapter(server, key_env="BOX_KEY") as made:
        ear = Ear(PLAIN | {"stream": True})
        outcome = await perform(made, ear)
    assert ear.data.startswith(said)
    assert b"[key] is bad" in ear.data
    assert b"0123456789" not in ear.data
    assert "0123456789" not in repr(outcome)


async def test_a_word_that_is_also_the_key_stays_in_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers without keys are given any: `ollama` is no secret, and answers are no errors."""
    monkeypatch.setenv("BOX_KEY", "ollama")
    events = stream("I am ", "ollama")
    async with wire(streaming(*events)) as server, adapter(server, key_env="BOX_KEY") as made:
        ear = Ear(PLAIN | {"stream": True})
        await perform(made, ear)
    assert ear.data == b"".join(events)


async def test_a_key_is_in_no_event_result_or_file_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_KEY", SECRET)

    async def act(call: Call) -> None:
        key = call.headers["authorization"].removeprefix("Bearer ")
        await call.send(http(400, error(f"your key {key} is bad")))

    async with wire(act) as server:
        config = tmp_path / "penstock.toml"
        config.write_text(
            f'[hosts.box]\ntype = "openai"\nurl = "{server.url}"\nkey_env = "BOX_KEY"\nhealth_s = 0\n'
        )
        async with penstock.open(config) as p:
            result = await p.wait(await p.submit(Task("k", "hello")))
    assert result.state is State.FAILED
    assert "your key [key] is bad" in (result.error or "")
    written = _all_bytes(tmp_path)
    assert b"[key]" in written
    assert b"0123456789" not in written


def _all_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_a_key_too_short_to_be_secret_garbles_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOX_KEY", "x")
    key = Key("box", env="BOX_KEY")
    assert key.value() == "x"
    assert key.redact("a text") == "a text"


# ---- mistakes in the config


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": ""}, "url: is missing"),
        ({"url": "localhost:1234"}, "url: must be like"),
        ({"url": "ftp://x/v1"}, "url: must be like"),
        ({"url": "http://user:sk-hidden@x/v1"}, "url: holds a secret"),
        ({"url": "http://x/v1?key=sk-hidden"}, "url: must end with its path"),
        ({"url": "http://[x/v1"}, "url: must be like"),
        ({"key_env": "A", "key_file": "b"}, "key_file: stands beside key_env"),
        ({"headers": {"Authorization": "Bearer sk-hidden"}}, "headers.Authorization: carries a secret"),
        ({"headers": {"Host": "x"}}, "headers.Host: is set for each call"),
        ({"headers": {"X": "a\nb"}}, "headers.X: is no header"),
        ({"headers": 3}, "headers: must be a table"),
        ({"timeouts": {"connect": 3}}, "timeouts.connect: unknown key; did you mean 'connect_s'?"),
        ({"timeouts": {"connect_s": 0}}, "timeouts.connect_s: must be a number of seconds above 0"),
        ({"timeouts": 3}, "timeouts: must be a table"),
        ({"defaults": {"model": "x"}}, "defaults.model: is no default"),
        ({"defaults": []}, "defaults: must be a table"),
        ({"health_s": -1}, "health_s: must be"),
        ({"max_reply_bytes": 0}, "max_reply_bytes: must be"),
    ],
)
def test_mistakes_are_told_with_place_and_remedy_and_no_secret(options: dict[str, Any], told: str) -> None:
    """Promise 7, and promise 8: what should have been a key is not repeated."""
    with pytest.raises(ConfigError) as caught:
        _options(**options)
    assert told in str(caught.value)
    assert str(caught.value).startswith("hosts.box.")
    assert "sk-hidden" not in str(caught.value)


def test_a_url_may_end_in_a_slash() -> None:
    assert _options(url="http://x:1/v1/").url == "http://x:1/v1"
