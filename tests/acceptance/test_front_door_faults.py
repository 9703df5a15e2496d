"""Faults on real sockets, on both sides of a real `serve`: calls end as they should, and nothing leaks (D6, E4).

Before and after each test the server's slots, sockets, files, threads, asyncio tasks and memory are read from
outside: each fault must leave it as it was.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.testing import Fault, ModelBehaviour, ModelServer
from tests.acceptance.serve_rig import PATIENCE_S, Figures, Serve, host, serving, until
from tests.unit.model_rig import Act, Call, chat, delta, event, http, stream_head, wire

CLOSE = (("Connection", "close"),)
MARGIN_BYTES = 48 * 1024 * 1024  # of memory that Python keeps for the next time
CALM = "health_s = 0"
SILENT = CALM + "\ntimeouts = { between_tokens_s = 0.3 }"
QUICK = """
    health_s = 0
    breaker = { failures = 1000 }
    timeouts = { connect_s = 0.5, first_token_s = 0.5, between_tokens_s = 0.3, total_s = 1 }
"""

# A model server that can be killed as a process.
VICTIM = """
    import asyncio
    from penstock.testing import ModelBehaviour, ModelServer

    async def main():
        behaviour = ModelBehaviour(models=("victim",), tokens=100_000, tokens_per_s=50)
        async with ModelServer(behaviour) as server:
            print(server.url, flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())
"""


class Plant:
    def __init__(self, serve: Serve, raw: socket.socket, victim: subprocess.Popen[str]) -> None:
        self.serve = serve
        self._raw = raw
        self.victim = victim
        self.storm: tuple[ModelServer, ModelServer] | None = None
        self.calm: Figures | None = None

    def raw(self) -> socket.socket:
        return self._raw.dup()


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    folder = tmp_path_factory.mktemp("faults")
    with ExitStack() as stack:
        raw = stack.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
        storm = [
            stack.enter_context(ModelServer.in_thread(ModelBehaviour(models=("storm",)))) for _ in range(2)
        ]
        secure = stack.enter_context(
            ModelServer.in_thread(ModelBehaviour(models=("secure",)), ssl_context=own_certificate(folder))
        )
        victim = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(VICTIM)], stdout=subprocess.PIPE, text=True
        )
        stack.callback(end, victim)
        assert victim.stdout is not None
        config = (
            "[retry]\nbase_s = 0.01\nhost_faults = 2\n"
            + host("raw", f"http://127.0.0.1:{raw.getsockname()[1]}/v1", model="raw", slots=4, more=QUICK)
            + host("patient", f"http://127.0.0.1:{raw.getsockname()[1]}/v1", model="patient", more=CALM)
            + host("silent", f"http://127.0.0.1:{raw.getsockname()[1]}/v1", model="silent", more=SILENT)
            + host("stuck", f"http://127.0.0.1:{full_backlog(stack)}/v1", model="stuck", more=QUICK)
            + host("secure", secure.url, model="secure", more=QUICK)
            + host("victim", victim.stdout.readline().strip(), model="victim", more=QUICK)
            + host("storm1", storm[0].url, model="storm", slots=4, more=QUICK)
            + host("storm2", storm[1].url, model="storm", slots=4, more=QUICK)
        )
        serve = stack.enter_context(serving(folder, config))
        plant = Plant(serve, raw, victim)
        plant.storm = storm[0], storm[1]
        # A first round, after which all that is made once is there.
        for _ in range(20):
            assert post(serve, "storm").status_code == 200
            post(serve, "secure")
        until(lambda: serve.figures().held == 0, lambda: f"connections stay: {serve.figures()}")
        plant.calm = serve.figures()
        yield plant


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def own_certificate(folder: Path) -> ssl.SSLContext:
    """One that nobody vouches for."""
    openssl = shutil.which("openssl")
    assert openssl is not None, "openssl is needed"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def full_backlog(stack: ExitStack) -> int:
    """The port of a server that accepts nobody, and whose queue is full."""
    listening = stack.enter_context(closing(socket.socket()))
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    for _ in range(4):
        waiting = stack.enter_context(closing(socket.socket()))
        waiting.setblocking(False)
        waiting.connect_ex(listening.getsockname())
    port: int = listening.getsockname()[1]
    return port


@pytest.fixture(autouse=True)
def no_leak(plant: Plant, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    assert plant.calm is not None
    after = plant.serve.settle(plant.calm, rss_bytes=MARGIN_BYTES)
    print(f"{request.node.name}: {plant.calm} -> {after}")


def body(model: str, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}


def post(serve: Serve, model: str, **fields: Any) -> httpx.Response:
    return httpx.post(
        f"{serve.url}/chat/completions", json=body(model, **fields), timeout=PATIENCE_S, verify=False
    )


@pytest.fixture
async def client(plant: Plant) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(
        base_url=plant.serve.url, timeout=PATIENCE_S, verify=False, limits=limits
    ) as made:
        yield made


def error_of(told: httpx.Response) -> dict[str, Any]:
    """Every failure keeps OpenAI's shape."""
    error: dict[str, Any] = told.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def last_event(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data.rstrip().rpartition(b"\n\n")[2].removeprefix(b"data: "))
    return found


# ---- the host's side


async def test_d6_a_server_killed_in_mid_stream(client: httpx.AsyncClient, plant: Plant) -> None:
    data = b""
    async with client.stream("POST", "/chat/completions", json=body("victim", stream=True)) as told:
        assert told.status_code == 200
        async for piece in told.aiter_raw():
            if not data:
                plant.victim.send_signal(signal.SIGKILL)
            data += piece
    assert last_event(data)["error"]["code"] == "upstream_error"
    gone = await client.post("/chat/completions", json=body("victim"))
    assert gone.status_code == 502
    assert "no connection" in error_of(gone)["message"]


async def test_a_server_that_hangs_at_accept(client: httpx.AsyncClient) -> None:
    told = await asyncio.gather(*(client.post("/chat/completions", json=body("stuck")) for _ in range(8)))
    assert {one.status_code for one in told} <= {502, 504}
    assert all("connect" in error_of(one)["message"] for one in told)


async def test_a_certificate_that_nobody_vouches_for(client: httpx.AsyncClient) -> None:
    told = await client.post("/chat/completions", json=body("secure"))
    assert told.status_code == 502
    assert "certificate" in error_of(told)["message"]


async def never(call: Call) -> None:
    await call.gone.wait()


async def trickle(call: Call) -> None:
    """A byte at a time, and then no more."""
    head = http(200, chat())
    for place in range(40):
        await call.send(head[place : place + 1])
    await call.gone.wait()


async def half_closed(call: Call) -> None:
    call.half_close()
    await call.gone.wait()


async def half_closed_later(call: Call) -> None:
    await call.send(http(200, chat())[:-5])
    call.half_close()


async def reset(call: Call) -> None:
    call.reset()


async def no_http(call: Call) -> None:
    await call.send(b"\x00\x01 SSH-2.0-OpenSSH_9.2\r\n\r\n")
    call.hang_up()


async def endless_head(call: Call) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\n")
    while not call.gone.is_set():
        await call.send(b"X-More: " + b"x" * 1000 + b"\r\n")


async def no_answer(call: Call) -> None:
    await call.send(http(200, b"<html>an error page</html>", CLOSE, "text/html"))
    call.hang_up()


async def two_lengths(call: Call) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 900\r\n\r\n{}")
    call.hang_up()


ACTS = [never, trickle, half_closed, half_closed_later, reset, no_http, endless_head, no_answer, two_lengths]


@pytest.mark.parametrize("act", ACTS)
async def test_a_host_that_does_not_answer_is_an_error(
    client: httpx.AsyncClient, plant: Plant, act: Act
) -> None:
    """Whatever it does instead, each call is answered, and with what its shape must be."""
    async with wire(act, sock=plant.raw()):
        told = await asyncio.gather(
            *(client.post("/chat/completions", json=body("raw", stream=n % 2 == 0)) for n in range(4))
        )
    for one in told:
        assert one.status_code in (502, 504), one.text
        assert error_of(one)["type"] == "server_error"


async def test_a_stream_that_goes_silent_ends_in_an_error_event(
    client: httpx.AsyncClient, plant: Plant
) -> None:
    async def act(call: Call) -> None:
        await call.send(stream_head())
        await call.chunks(event(delta("the beginning")))
        await call.gone.wait()

    async with wire(act, sock=plant.raw()):
        told = await client.post("/chat/completions", json=body("silent", stream=True))
    assert told.content.startswith(event(delta("the beginning")))
    assert last_event(told.content)["error"]["code"] == "timeout"


async def test_a_storm_of_429_costs_no_call(plant: Plant) -> None:
    """Every host refuses for a while: calls wait, and none is lost."""
    assert plant.storm is not None
    refusing = {"error": {"message": "slow down", "type": "requests", "param": None, "code": None}}
    for server in plant.storm:
        server.fail_next(*[Fault.refuse(429, refusing, headers={"retry-after-ms": "50"})] * 30)
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=0)
    async with httpx.AsyncClient(
        base_url=plant.serve.url, timeout=PATIENCE_S, verify=False, limits=limits
    ) as many:
        told = await asyncio.gather(*(many.post("/chat/completions", json=body("storm")) for _ in range(100)))
    assert {one.status_code for one in told} == {200}
    assert any(int(one.headers["x-penstock-attempt"]) > 1 for one in told)


# ---- the client's side

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def request(data: bytes) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(data) + data


ASKED = request(json.dumps(body("patient", stream=True)).encode())


async def beginning(call: Call) -> None:
    await call.send(stream_head())
    await call.chunks(event(delta("the beginning")))
    await call.gone.wait()


PARTS = [b"", b"P", HEAD[:-2], HEAD, HEAD + b"Content-Length: 50\r\n\r\n{", b"\x16\x03\x01\x02\x00\x01"]


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
async def test_a_client_that_leaves_within_its_request(
    client: httpx.AsyncClient, plant: Plant, how: str
) -> None:
    """No call comes of it, and the log tells of no defect."""
    for part in PARTS * 5:
        reader, writer = await asyncio.open_connection("127.0.0.1", plant.serve.port)
        writer.write(part)
        await writer.drain()
        await leave(writer, how)
        if how == "half-close":
            await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()
    assert (await client.get("/models")).status_code == 200


async def leave(writer: asyncio.StreamWriter, how: str) -> None:
    if how == "half-close":
        writer.write_eof()
    elif how == "reset":
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        writer.transport.abort()
    else:
        writer.close()


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
async def test_a_client_that_leaves_in_mid_stream_frees_its_slot(plant: Plant, how: str) -> None:
    """A half-closed connection counts as left: nobody can tell whether anyone still reads."""
    async with wire(beginning, sock=plant.raw()) as upstream:
        for number in range(8):
            reader, writer = await asyncio.open_connection("127.0.0.1", plant.serve.port)
            writer.write(ASKED)
            await asyncio.wait_for(reader.readuntil(b"the beginning"), PATIENCE_S)
            await leave(writer, how)
            await upstream.until(lambda: not upstream.live)
            assert len(upstream.calls) == number + 1
            writer.close()


async def test_a_client_that_reads_nothing_slows_only_its_own_call(plant: Plant) -> None:
    """Its host's stream waits for it: what it does not read is not piled up here."""
    sent = 0
    line = event(delta("x" * 60_000))

    async def flood(call: Call) -> None:
        nonlocal sent
        await call.send(stream_head())
        while not call.gone.is_set():
            await call.chunks(line)
            sent += len(line)

    looks = [0]

    def is_still() -> bool:
        looks.append(sent)
        return sent > 0 and len(looks) > 50 and len(set(looks[-50:])) == 1

    async with wire(flood, sock=plant.raw()) as upstream:
        _, writer = await asyncio.open_connection("127.0.0.1", plant.serve.port, limit=1024)
        writer.write(request(json.dumps(body("patient", stream=True)).encode()))
        await asyncio.to_thread(until, is_still, lambda: f"{sent} bytes were taken, and more")
        assert (await asyncio.to_thread(post, plant.serve, "storm")).status_code == 200
        assert plant.calm is not None
        held = (await asyncio.to_thread(plant.serve.figures)).rss_bytes
        assert held < plant.calm.rss_bytes + MARGIN_BYTES
        writer.transport.abort()
        await upstream.until(lambda: not upstream.live)


async def test_idle_connections_keep_nobody_else_out(client: httpx.AsyncClient, plant: Plant) -> None:
    """Five hundred clients that say nothing, or a byte."""
    writers = []
    for number in range(500):
        _, writer = await asyncio.open_connection("127.0.0.1", plant.serve.port)
        writer.write(b"P" if number % 2 else b"")
        writers.append(writer)
    assert (await client.get("/models")).status_code == 200
    for writer in writers:
        writer.transport.abort()
