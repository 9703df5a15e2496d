"""Model servers that misbehave on real sockets: each ends as an error with a cause, and leaves nothing (C6, C7)."""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.errors import ConfigError
from penstock.hosts import model_http
from penstock.hosts.openai import OpenAIAdapter
from penstock.model import Outcome, Verdict
from tests.unit.model_rig import (
    Act,
    Call,
    Ear,
    adapter,
    answering,
    chat,
    delta,
    error,
    event,
    http,
    perform,
    stream,
    stream_head,
    streaming,
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


def _trickle(*pieces: bytes) -> Act:
    """Sends these and then nothing more."""

    async def act(call: Call) -> None:
        await call.send(*pieces)
        await call.gone.wait()

    return act


def _then(how: str, *pieces: bytes) -> Act:
    async def act(call: Call) -> None:
        await call.send(*pieces)
        if how == "reset":
            call.reset()
        elif how == "half-close":
            call.half_close()
            await call.gone.wait()
        else:
            call.hang_up()

    return act


SILENCES = {
    "nothing": (),
    "half a status line": (b"HTTP/1.",),
    "headers byte by byte": tuple(bytes([byte]) for byte in b"HTTP/1.1 200 OK\r\nX-Slow: "),
    "headers and no body": (stream_head(),),
}


@pytest.mark.parametrize("name", SILENCES)
async def test_a_stream_that_does_not_begin(name: str) -> None:
    act = _trickle(*SILENCES[name])
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
    async with wire(_then(how, *pieces)) as server, adapter(server) as made:
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
    async with wire(_then("hang up", GARBAGE[name])) as server, adapter(server) as made:
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
    async with wire(_trickle(head)) as server, adapter(server) as made:
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


# ---- connections


async def test_connections_are_used_again_also_after_streams() -> None:
    async def act(call: Call) -> None:
        if call.json.get("stream"):
            await streaming(*stream("a"))(call)
        else:
            await call.send(http(200, chat()))

    async with wire(act) as server, adapter(server) as made:
        for payload in ("x", STREAMED_TASK, Ear(PLAIN), Ear(STREAM), "x"):
            assert (await perform(made, payload)).verdict is Verdict.DONE
    assert server.connections == 1


async def test_a_connection_that_the_server_closed_meanwhile_is_not_its_fault() -> None:
    """Servers close idle connections; a request that meets such a one is sent again on another."""
    seen: dict[int, int] = {}

    async def act(call: Call) -> None:
        connection = id(call.gone)
        seen[connection] = seen.get(connection, 0) + 1
        if seen[connection] > 1:
            call.hang_up()
        else:
            await call.send(http(200, chat()))

    async with wire(act) as server, adapter(server) as made:
        for _ in range(3):
            assert (await perform(made, "x")).verdict is Verdict.DONE
    assert server.connections == 3


async def test_a_stream_is_complete_at_done_even_if_its_connection_stays_open() -> None:
    act = _trickle(stream_head(), *(b"%x\r\n%s\r\n" % (len(one), one) for one in stream("a")))
    async with wire(act) as server, adapter(server) as made:
        ear = Ear(STREAM)
        assert (await perform(made, ear)).verdict is Verdict.DONE
        assert (await perform(made, STREAMED_TASK)).verdict is Verdict.DONE
    assert ear.ends == 1


# ---- what is stopped leaves nothing


def _sockets() -> int:
    return sum(os.readlink(f"/proc/self/fd/{fd}").startswith("socket:") for fd in _descriptors())


def _descriptors() -> Iterator[int]:
    for fd in os.listdir("/proc/self/fd"):
        if os.path.islink(f"/proc/self/fd/{fd}"):
            yield int(fd)


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Sockets and asyncio tasks afterwards are those of before."""
    sockets, tasks = _sockets(), len(asyncio.all_tasks())
    yield
    for _ in range(20):
        await asyncio.sleep(0)
    assert (_sockets(), len(asyncio.all_tasks())) == (sockets, tasks)


@pytest.mark.parametrize(
    "payload", ["x", STREAMED_TASK, PLAIN, STREAM], ids=["task", "streamed", "call", "stream"]
)
@pytest.mark.parametrize("sent", [(), (stream_head(), b"5\r\n: hi\n\r\n")], ids=["silent", "speaking"])
async def test_a_call_that_is_stopped_closes_its_connection_at_once(
    payload: Any, sent: tuple[bytes, ...]
) -> None:
    """C7: a client that goes away frees the server; also `cancel` and time-outs."""
    async with nothing_left(), wire(_trickle(*sent)) as server, adapter(server) as made:
        for _ in range(3):
            known = len(server.calls)
            ask = Ear(payload) if isinstance(payload, dict) and "messages" in payload else payload
            asked = asyncio.create_task(perform(made, ask))
            await server.until(lambda known=known: len(server.calls) > known)  # type: ignore[misc]
            for _ in range(5):
                await asyncio.sleep(0)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            await server.until(lambda: not server.live)


async def test_a_large_body_that_nobody_reads_does_not_keep_its_connection() -> None:
    """What is written but not taken would otherwise be waited for after the call was stopped."""
    async with nothing_left():
        with closing(socket.create_server(("127.0.0.1", 0))) as deaf:
            deaf.setblocking(False)
            url = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
            async with adapter(url, timeouts={"first_token_s": 1}) as made:
                asked = asyncio.create_task(perform(made, "x" * 16_000_000))
                accepted, _ = await asyncio.get_running_loop().sock_accept(deaf)
                before = _sockets()
                for _ in range(20):
                    await asyncio.sleep(0)
                asked.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asked
                async with asyncio.timeout(20):
                    while _sockets() == before:
                        await asyncio.get_running_loop().run_in_executor(None, _sockets)
            accepted.close()


async def test_a_storm_of_failing_calls_leaves_nothing() -> None:
    """429s, resets, silences and garbage, 200 at once: no socket and no task stays."""
    acts = [
        answering(http(429, error("slow"), [("Retry-After", "1")])),
        _then("reset", stream_head(), b"5\r\n"),
        _then("hang up"),
        _trickle(stream_head()),
        answering(http(200, b"{")),
        _then("half-close", stream_head(), b"9\r\ndata: {}\n\r\n"),
        streaming(*stream("a")),
    ]

    async def act(call: Call) -> None:
        await acts[len(server.calls) % len(acts)](call)

    async with nothing_left(), wire(act) as server:
        times = {"first_token_s": 0.3, "between_tokens_s": 0.3, "total_s": 0.5}
        async with adapter(server, timeouts=times) as made:
            payloads: list[Any] = [["x", STREAMED_TASK, Ear(PLAIN), Ear(STREAM)][n % 4] for n in range(200)]
            payloads = [Ear(p.body) if isinstance(p, Ear) else p for p in payloads]
            outcomes = await asyncio.gather(*(perform(made, payload) for payload in payloads))
    assert len(outcomes) == 200
    assert all(isinstance(outcome.verdict, Verdict) for outcome in outcomes)
