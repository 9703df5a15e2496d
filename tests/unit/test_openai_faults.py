"""Model servers that misbehave on real sockets: each ends as an error with a cause, and leaves nothing (C6, C7)."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.errors import ConfigError
from penstock.hosts import model_http
from penstock.hosts.openai import OpenAIAdapter
from penstock.model import Outcome, Verdict
from tests.unit.model_rig import (
    Call,
    Ear,
    adapter,
    answering,
    chat,
    delta,
    ending,
    event,
    http,
    perform,
    stream_head,
    streaming,
    trickling,
    wire,
)

STREAM = {"model": "m", "messages": [], "stream": True}
PLAIN = {"model": "m", "messages": []}
STREAMED_TASK = {"prompt": "x", "stream": True}
HOST_FAULT = Verdict.HOST


async def every_way(made: OpenAIAdapter) -> list[Outcome]:
    """The outcomes of a task and a relayed call, plain and streamed; nothing may have reached a client."""
    outcomes = [await perform(made, "x"), await perform(made, STREAMED_TASK)]
    for body in (PLAIN, STREAM):
        ear = Ear(body)
        outcomes.append(await perform(made, ear))
        assert not ear.begun
    return outcomes


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return int(taken.getsockname()[1])


# ---- no connection


async def test_nothing_listens() -> None:
    async with adapter(f"http://127.0.0.1:{free_port()}/v1") as made:
        outcomes = await every_way(made)
        health = await made.check()
    assert {outcome.verdict for outcome in outcomes} == {HOST_FAULT}
    assert "start it, or correct its url" in (outcomes[0].error or "")
    assert not health.up
    assert "start it" in health.detail


async def test_a_name_without_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*args: Any, **kwargs: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    async with adapter("http://no-such-host.invalid/v1") as made:
        outcome = await perform(made, "x")
    assert outcome.verdict is HOST_FAULT
    assert "has no address; correct hosts.box.url" in (outcome.error or "")


async def test_a_server_that_no_longer_accepts() -> None:
    """Its queue of connections is full: the attempt to connect gets no answer at all."""
    with closing(socket.socket()) as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        async with adapter(url, timeouts={"connect_s": 0.2}) as made:
            outcomes = await every_way(made)
        for one in waiting:
            one.close()
    assert {outcome.verdict for outcome in outcomes} == {HOST_FAULT}
    assert "connect_s" in (outcomes[0].error or "")


# ---- certificates


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that signs itself, for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


async def test_a_certificate_that_nobody_vouches_for(certificate: tuple[Path, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    async with wire(answering(http(200, chat("hi"))), tls=context) as server:
        async with adapter(server) as made:
            outcomes = await every_way(made)
            health = await made.check()
        async with adapter(server, ca_file=str(certificate[0])) as made:
            trusted = await perform(made, "x")
    assert {outcome.verdict for outcome in outcomes} == {HOST_FAULT}
    assert "not trusted" in (outcomes[0].error or "")
    assert "ca_file" in (outcomes[0].error or "")
    assert "ca_file" in health.detail
    assert trusted.value["text"] == "hi"


async def test_https_where_only_http_is_spoken() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(http(400, b"this is no HTTP"))
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server, adapter(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1") as made:
        outcomes = await every_way(made)
    assert {outcome.verdict for outcome in outcomes} == {HOST_FAULT}
    assert "does it speak https?" in (outcomes[0].error or "")


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_a_ca_file_that_is_none_is_a_mistake_of_the_config(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=r"hosts.box.ca_file"):
        async with adapter("https://127.0.0.1/v1", ca_file=str(file)):
            pass


# ---- answers that never come, or not to their end


SILENCES = {
    "nothing": (),
    "half a status line": (b"HTTP/1.",),
    "headers byte by byte": tuple(bytes([byte]) for byte in b"HTTP/1.1 200 OK\r\nX-Slow: "),
    "headers and no body": (stream_head(),),
}


@pytest.mark.parametrize("name", SILENCES)
async def test_a_stream_that_does_not_begin(name: str) -> None:
    act = trickling(*SILENCES[name])
    async with wire(act) as server, adapter(server, timeouts={"first_token_s": 0.1}) as made:
        outcome = await perform(made, STREAMED_TASK)
        relayed = await perform(made, ear := Ear(STREAM))
    assert outcome.verdict is relayed.verdict is HOST_FAULT
    assert "first_token_s" in (outcome.error or "")
    assert not ear.begun


@pytest.mark.parametrize("how", ["hang up", "reset", "half-close"])
@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"HTTP/1.1 200 OK\r\nContent-Le",),
        (http(200, chat())[:-20],),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",),
        (stream_head(),),
    ],
    ids=["nothing", "headers", "content-length", "chunk", "no body"],
)
async def test_an_answer_that_is_cut_off(how: str, pieces: tuple[bytes, ...]) -> None:
    async with wire(ending(how, *pieces)) as server, adapter(server) as made:
        outcomes = await every_way(made)
    assert {outcome.verdict for outcome in outcomes} == {HOST_FAULT}
    assert len(server.calls) == 4  # nothing was asked twice behind the scheduler's back


GARBAGE = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "binary": bytes(range(256)) * 4,
    "bad chunks": stream_head("application/json") + b"zz\r\n{}\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}",
    "huge header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
    "html": http(200, b"<html>log in</html>", kind="text/html"),
    "no JSON": http(200, b"fine"),
    "empty": http(200, b""),
    "a list": http(200, []),
    "wrong type": http(200, {"choices": "many"}),
    "wrong type of usage": http(200, chat(usage={"prompt_tokens": "five"})),
    "truncated": http(200, msgspec.json.encode(chat())[:-10]),
    "not gzip": http(200, b"\x00", [("Content-Encoding", "gzip")]),
    "embeddings": http(200, {"data": []}),
    "no choice at all": http(200, {"id": "x"}),
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_is_the_hosts_fault(name: str) -> None:
    async with wire(ending("hang up", GARBAGE[name])) as server, adapter(server) as made:
        outcomes = await every_way(made)
    assert {outcome.verdict for outcome in outcomes} == {HOST_FAULT}, outcomes
    assert all(outcome.error and outcome.error.startswith("box") for outcome in outcomes)


@pytest.mark.parametrize(
    "events",
    [
        (b"data: {no json}\n\n",),
        (b"data: []\n\n",),
        (event({"choices": [{"index": "x"}]}),),
        (event({"choices": 3}),),
        (event(delta("a")),),
        (b"",),
        (b"nothing like an event",),
    ],
)
async def test_streams_of_garbage_are_the_hosts_fault(events: tuple[bytes, ...]) -> None:
    async with wire(streaming(*[one for one in events if one])) as server, adapter(server) as made:
        task = await perform(made, STREAMED_TASK)
        ear = Ear(STREAM)
        relayed = await perform(made, ear)
    assert task.verdict is HOST_FAULT
    assert relayed.verdict is (Verdict.PERMANENT if ear.begun else HOST_FAULT)
    assert relayed.host_fault == ear.begun
    assert not ear.begun or ear.data.endswith(b"}\n\n")


async def test_an_endless_stream_is_ended() -> None:
    async def act(call: Call) -> None:
        await call.send(stream_head())
        while not call.gone.is_set():
            await call.chunks(event(delta("x" * 10_000)))

    async with wire(act) as server, adapter(server, max_reply_bytes=100_000) as made:
        task = await perform(made, STREAMED_TASK)
        ear = Ear(STREAM)
        relayed = await perform(made, ear)
    assert task.verdict is relayed.verdict is Verdict.PERMANENT
    assert "max_reply_bytes" in (task.error or "")
    assert not relayed.host_fault
    assert len(ear.data) < 300_000
    assert b'"code":"reply_too_large"' in ear.data
    assert ear.ends == 1


async def test_an_endless_refusal_is_read_no_further_than_anybody_would() -> None:
    async def act(call: Call) -> None:
        await call.send(b"HTTP/1.1 500 X\r\nContent-Type: text/plain\r\n\r\n")
        while not call.gone.is_set():
            await call.send(b"no " * 10_000)

    async with wire(act) as server, adapter(server) as made:
        outcome = await perform(made, "x")
    assert outcome.verdict is HOST_FAULT
    assert len(outcome.error or "") < 1000


async def test_a_refusal_that_does_not_end_counts_by_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    head = (
        b"HTTP/1.1 429 X\r\nContent-Type: application/json\r\nContent-Length: 99\r\nRetry-After: 3\r\n\r\n{"
    )
    monkeypatch.setattr(model_http, "_WORDS_S", 0.05)
    async with wire(trickling(head)) as server, adapter(server) as made:
        outcome = await perform(made, "x")
    assert outcome.verdict is Verdict.THROTTLED
    assert outcome.retry_after_s == 3.0


async def test_compressed_replies_are_read_and_passed_on_plain() -> None:
    packed = gzip.compress(msgspec.json.encode(chat("hi")))
    act = answering(http(200, packed, [("Content-Encoding", "gzip")]))
    async with wire(act) as server, adapter(server) as made:
        outcome = await perform(made, "x")
        await perform(made, ear := Ear(PLAIN))
    assert server.calls[0].headers["accept-encoding"] == "identity"
    assert outcome.value["text"] == "hi"
    assert msgspec.json.decode(ear.data) == chat("hi")
    assert "content-encoding" not in ear.headers


async def test_a_redirect_is_not_followed_so_that_the_key_goes_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOX_KEY", "sk-secret")
    async with wire(answering(http(200, chat()))) as other:
        act = answering(http(307, b"", [("Location", other.url + "/chat/completions")]))
        async with wire(act) as server, adapter(server, key_env="BOX_KEY") as made:
            outcome = await perform(made, "x")
        assert not other.calls
    assert outcome.verdict is HOST_FAULT
    assert "correct hosts.box.url" in (outcome.error or "")
