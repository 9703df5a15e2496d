"""Connections to model servers: used again, closed at once when a call is stopped, and none left over (C7)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

from penstock.hosts import model_http
from penstock.hosts.openai import OpenAIAdapter
from penstock.model import Verdict
from tests.unit.model_rig import (
    PATIENCE_S,
    Act,
    Call,
    Ear,
    Wire,
    adapter,
    answering,
    chat,
    ending,
    error,
    http,
    perform,
    stream,
    stream_head,
    streaming,
    trickling,
    wire,
)

STREAM = {"model": "m", "messages": [], "stream": True}
PLAIN = {"model": "m", "messages": []}
STREAMED_TASK = {"prompt": "x", "stream": True}


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


async def test_a_connection_that_the_server_closed_meanwhile_is_not_its_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Servers close idle connections; a request that meets such a one is sent again on another."""
    monkeypatch.setattr(model_http, "_STALE_S", PATIENCE_S)  # however slow this machine is
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


async def _keep_idle(server: Wire, made: OpenAIAdapter, connections: int) -> None:
    """So many calls at once, each answered when all have come: their connections stay."""
    asked = [asyncio.create_task(perform(made, "keep")) for _ in range(connections)]
    assert {(await one).verdict for one in asked} == {Verdict.DONE}
    assert server.connections == connections


def _all_at_once(expected: int, lose: Callable[[Call], Awaitable[None]]) -> Act:
    """Answers the first calls when all of them have come, and loses the connection of every other."""
    came, all_came = [0], asyncio.Event()

    async def act(call: Call) -> None:
        if not call.body.count(b'"keep"'):
            await lose(call)
            return
        came[0] += 1
        if came[0] == expected:
            all_came.set()
        await all_came.wait()
        await call.send(http(200, chat()))

    return act


async def test_a_request_is_sent_again_once_and_on_a_connection_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many idle connections there are: what crashes a server is not repeated on each of them."""
    monkeypatch.setattr(model_http, "_STALE_S", PATIENCE_S)

    async def lose(call: Call) -> None:
        call.reset()

    async with wire(_all_at_once(4, lose)) as server, adapter(server) as made:
        await _keep_idle(server, made, 4)
        outcome = await perform(made, "x")
        assert len(server.calls) == 4 + 2
        assert server.connections == 4 + 1
    assert outcome.verdict is Verdict.HOST


@pytest.mark.parametrize("payload", ["x", PLAIN, STREAM], ids=["task", "call", "stream"])
async def test_a_request_that_was_worked_on_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, payload: Any
) -> None:
    """Its tokens would be paid twice, and neither the breaker nor the count of attempts would know."""
    monkeypatch.setattr(model_http, "_STALE_S", 0.001)

    async def lose(call: Call) -> None:
        worked = asyncio.Event()
        asyncio.get_running_loop().call_later(0.02, worked.set)
        await worked.wait()
        call.reset()

    async with wire(_all_at_once(4, lose)) as server, adapter(server) as made:
        await _keep_idle(server, made, 4)
        outcome = await perform(made, Ear(payload) if isinstance(payload, dict) else payload)
        assert len(server.calls) == 4 + 1
    assert outcome.verdict is Verdict.HOST


async def test_a_stream_is_complete_at_done_even_if_its_connection_stays_open() -> None:
    act = trickling(stream_head(), *(b"%x\r\n%s\r\n" % (len(one), one) for one in stream("a")))
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
    """Sockets and asyncio tasks afterwards are those of before; what an earlier test left may go meanwhile."""
    sockets, tasks = _sockets(), len(asyncio.all_tasks())
    yield
    for _ in range(20):
        await asyncio.sleep(0)
    assert _sockets() <= sockets
    assert len(asyncio.all_tasks()) == tasks


@pytest.mark.parametrize(
    "payload", ["x", STREAMED_TASK, PLAIN, STREAM], ids=["task", "streamed", "call", "stream"]
)
@pytest.mark.parametrize("sent", [(), (stream_head(), b"5\r\n: hi\n\r\n")], ids=["silent", "speaking"])
async def test_a_call_that_is_stopped_closes_its_connection_at_once(
    payload: Any, sent: tuple[bytes, ...]
) -> None:
    """C7: a client that goes away frees the server; also `cancel` and time-outs."""
    async with nothing_left(), wire(trickling(*sent)) as server, adapter(server) as made:
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
        ending("reset", stream_head(), b"5\r\n"),
        ending("hang up"),
        trickling(stream_head()),
        answering(http(200, b"{")),
        ending("half-close", stream_head(), b"9\r\ndata: {}\n\r\n"),
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
