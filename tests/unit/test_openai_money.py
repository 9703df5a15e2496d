"""What attempts cost that end before their answer is complete: a budget counts them too (B7)."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import State, Task
from penstock.config import load
from penstock.hosts.base import Job, OwnCoroutine, Spent
from penstock.hosts.openai import OpenAIAdapter
from penstock.hosts.relay import ClientStalled
from penstock.model import Host, Price, Verdict
from penstock.scheduling.budget import day_of
from penstock.wiring import open_store
from tests.unit.model_rig import (
    Act,
    Call,
    Ear,
    Wire,
    adapter,
    answering,
    chat,
    delta,
    ending,
    error,
    event,
    http,
    perform,
    stream_head,
    streaming,
    trickling,
    wire,
)

PRICED = Host("box", "openai", model="m", models=("m", "auto"), prices={"m": Price(10.0, 20.0, 1.0)})
STREAM = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True}
PLAIN = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
STREAMED_TASK = {"prompt": "hello", "stream": True}


def _is(spent: Spent, tokens: int, cost_usd: float) -> bool:
    return spent.tokens == tokens and spent.cost_usd == pytest.approx(cost_usd)


def _usd(prompt: float, completion: float) -> float:
    return (prompt * 10.0 + completion * 20.0) / 1_000_000


def _prompt(server: Wire) -> int:
    """Tokens of the last request, as they are estimated."""
    return len(server.calls[-1].body) // 4


def _begun_stream(*texts: str) -> Act:
    pieces = (event(delta(text)) for text in texts)
    return trickling(stream_head(), *(b"%x\r\n%s\r\n" % (len(one), one) for one in pieces))


async def _leave(made: OpenAIAdapter, payload: Any, ready: Any) -> Spent:
    """Begin an attempt, end it from outside once it is `ready`, and ask what it spent."""
    work = made.work(Job("t", 1, "k", payload, "box", "default"))
    assert isinstance(work, OwnCoroutine)
    asked = asyncio.ensure_future(work.run())
    await ready
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    return work.spent()


async def test_a_stream_that_is_left_cost_what_it_brought() -> None:
    async with wire(_begun_stream("a", "b", "c")) as server, adapter(server, host=PRICED) as made:
        ear = Ear(STREAM)

        async def heard() -> None:
            while ear.data.count(b"data:") < 3:
                ear.news.clear()
                await ear.news.wait()

        spent = await _leave(made, ear, heard())
    assert _is(spent, _prompt(server) + 3, _usd(_prompt(server), 3))


@pytest.mark.parametrize("payload", ["hello", PLAIN], ids=["task", "call"])
async def test_an_answer_in_one_piece_that_is_left_cost_what_others_there_did(payload: Any) -> None:
    """Nothing is seen of it, and servers make it to the end."""
    usage = {"prompt_tokens": 5, "completion_tokens": 1000, "total_tokens": 1005}

    async def act(call: Call) -> None:
        if len(server.calls) == 2:
            await call.send(http(200, chat(usage=usage)))
        else:
            await call.gone.wait()

    def ask() -> Any:
        return Ear(payload) if isinstance(payload, dict) else payload

    async with wire(act) as server, adapter(server, host=PRICED) as made:
        first = await _leave(made, ask(), server.until(lambda: len(server.calls) == 1))
        assert _is(first, _prompt(server), _usd(_prompt(server), 0))
        assert (await perform(made, ask())).tokens == 1005
        later = await _leave(made, ask(), server.until(lambda: len(server.calls) == 3))
    assert _is(later, _prompt(server) + 1000, _usd(_prompt(server), 1000))


async def test_an_answer_that_its_client_is_slow_to_take_cost_what_the_server_counted() -> None:
    async with wire(answering(http(200, chat()))) as server, adapter(server, host=PRICED) as made:
        ear = Ear(PLAIN)
        ear.slow = asyncio.Event()
        assert _is(await _leave(made, ear, ear.news.wait()), 8, _usd(5, 3))


async def test_an_answer_that_its_client_does_not_read_cost_what_it_brought() -> None:
    class Deaf(Ear):
        async def send(self, data: bytes) -> None:
            await super().send(data)
            raise ClientStalled("the client has read nothing")

    async with wire(_begun_stream("a", "b")) as server, adapter(server, host=PRICED) as made:
        ear = Deaf(STREAM)
        outcome = await perform(made, ear)
    assert len(ear.heard) == 1, "nothing more is sent"
    assert (outcome.verdict, outcome.host_fault) == (Verdict.PERMANENT, False)
    events = ear.data.count(b"data:")
    assert outcome.cost_usd == pytest.approx(_usd(_prompt(server), events))


async def test_what_was_never_sent_cost_nothing() -> None:
    """The attempt is left while it waits for a connection."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as full:
        place = full.getsockname()
        connecting = [socket.socket() for _ in range(8)]  # more than wait there, so that the next one hangs
        for one in connecting:
            one.setblocking(False)
            one.connect_ex(place)
        begun = asyncio.Event()
        async with adapter(f"http://127.0.0.1:{place[1]}/v1", host=PRICED) as made:
            asyncio.get_running_loop().call_later(0.1, begun.set)
            spent = await _leave(made, "hello", begun.wait())
        for one in connecting:
            one.close()
    assert spent == Spent()


@pytest.mark.parametrize(
    ("act", "payload", "tokens"),
    [
        (trickling(), "hello", 0),
        (trickling(), PLAIN, 0),
        (_begun_stream("a", "b"), STREAMED_TASK, 2),
        (_begun_stream("a", "b"), STREAM, 2),
    ],
    ids=["task", "call", "streamed task", "stream"],
)
async def test_an_attempt_that_takes_too_long_cost_what_it_used(act: Act, payload: Any, tokens: int) -> None:
    async with wire(act) as server, adapter(server, host=PRICED, timeouts={"total_s": 0.2}) as made:
        outcome = await perform(made, Ear(payload) if "messages" in payload else payload)
    assert outcome.verdict is not Verdict.DONE
    assert outcome.tokens == _prompt(server) + tokens
    assert outcome.cost_usd == pytest.approx(_usd(_prompt(server), tokens))


async def test_a_task_whose_stream_breaks_cost_what_it_brought() -> None:
    pieces = [event(delta("a")), event(error("out of memory", 500))]
    async with wire(streaming(*pieces)) as server, adapter(server, host=PRICED) as made:
        outcome = await perform(made, STREAMED_TASK)
    assert outcome.verdict is Verdict.HOST
    assert outcome.cost_usd == pytest.approx(_usd(_prompt(server), 1))


@pytest.mark.parametrize(
    "act",
    [
        answering(http(500, error("oops"))),
        answering(http(429, error("slow"))),
        answering(http(200, error("no"))),
        streaming(event(error("no", 500))),
        ending("hang up"),
    ],
    ids=["500", "429", "error in 200", "error as first event", "no answer"],
)
@pytest.mark.parametrize("payload", ["hello", STREAMED_TASK, PLAIN, STREAM])
async def test_a_refusal_costs_nothing(act: Act, payload: Any) -> None:
    async with wire(act) as server, adapter(server, host=PRICED) as made:
        outcome = await perform(made, Ear(payload) if "messages" in payload else payload)
    assert (outcome.tokens, outcome.cost_usd) == (None, None)


# ---- with a dispatcher

CONFIG = """
[hosts.box]
type = "openai"
url = "{url}"
model = "m"
slots = 1
health_s = 0

[prices]
m = {{ input = 10.0, output = 20.0 }}
"""


@pytest.mark.parametrize("how", ["cancel", "time-out"])
@pytest.mark.parametrize("payload", ["hello", STREAMED_TASK], ids=["whole", "streamed"])
async def test_what_is_stopped_is_in_the_ledger(tmp_path: Path, how: str, payload: Any) -> None:
    async with wire(trickling()) as server:
        path = tmp_path / "penstock.toml"
        path.write_text(CONFIG.format(url=server.url))
        config = load(path)
        async with penstock.open(path) as p:
            timeout_s = 0.2 if how == "time-out" else None
            task = await p.submit(Task("k", payload, timeout_s=timeout_s, retries=0))
            await server.until(lambda: bool(server.calls))
            if how == "cancel":
                await p.cancel(task)
            result = await p.wait(task)
        assert result.state is (State.CANCELLED if how == "cancel" else State.FAILED)
        store = open_store(config)
        await store.open()
        spent = await store.spending(day_of(result.ended_at or 0.0))
        await store.close()
    assert [one.host for one in spent] == ["box"]
    assert spent[0].usd == pytest.approx(_usd(_prompt(server), 0))
