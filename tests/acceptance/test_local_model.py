"""The `local` host with a real model, end to end: llama.cpp's server, a small model, real sockets and signals.

Each test starts a server of its own. One runs at a time, whatever the number of test processes: a server takes
hundreds of megabytes and a core.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from filelock import FileLock

from penstock.clock import SystemClock
from penstock.engine.trees import MARKER
from penstock.hosts.base import Job
from penstock.hosts.gguf import find
from penstock.hosts.local import LocalAdapter, make
from penstock.hosts.local_server import LocalServer
from penstock.hosts.type_options import ServerOptions
from penstock.model import AutoSlots, Host, Outcome, Verdict
from tests.unit.model_rig import Ear

pytestmark = pytest.mark.local_model

PATIENCE_S = 120.0
SCRIPT = """
import asyncio, sys
import penstock

async def main():
    async with penstock.open("penstock.toml") as p:
        await p.wait(await p.submit(penstock.Task("chat", {"prompt": "Hi", "max_tokens": 1})))
        print("ready", flush=True)
        endless = {"prompt": "Hi", "max_tokens": 8000, "ignore_eos": True}
        await p.wait(await p.submit(penstock.Task("chat", endless)))

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _one_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    _, problem = find(None)
    if problem is not None:
        pytest.skip(problem)
    with FileLock(tmp_path_factory.getbasetemp().parent / "local-model.lock"):
        yield


@asynccontextmanager
async def small(slots: int = 1, **options: Any) -> AsyncIterator[LocalAdapter]:
    host = Host("small", "local", slots, model="smollm2", models=("smollm2",), options=options)
    adapter = make(host, SystemClock())
    await adapter.open()
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield adapter
    finally:
        await adapter.close()


async def ask(adapter: LocalAdapter, payload: Any) -> Outcome:
    return await adapter.work(Job("t", 1, "chat", payload, "small", "default")).run()


def endless() -> Ear:
    """A call whose answer would take minutes."""
    message = {"role": "user", "content": "Count."}
    return Ear({"messages": [message], "stream": True, "max_tokens": 8000, "ignore_eos": True})


def children() -> list[psutil.Process]:
    """The servers that run now."""
    return [child for child in psutil.Process().children() if "llama_child" in " ".join(child.cmdline())]


async def wait_gone(processes: list[psutil.Process]) -> None:
    _, left = await asyncio.to_thread(psutil.wait_procs, processes, PATIENCE_S)
    assert not left


# ---- answers


async def test_c6_a_streamed_answer_comes_in_pieces_and_counts_its_tokens() -> None:
    async with small() as adapter:
        message = {"role": "user", "content": "Count from one to nine."}
        # The likeliest words, and none that end it: of what it says at random, eight tokens may be two signs.
        same = {"temperature": 0, "ignore_eos": True, "max_tokens": 8}
        ear = Ear({"messages": [message], "stream": True, **same})
        outcome = await ask(adapter, ear)
    assert outcome.verdict is Verdict.DONE
    assert ear.ends == 1
    events = [line for line in ear.data.decode().splitlines() if line.startswith("data: ")]
    assert len(events) > 4
    assert events[-1] == "data: [DONE]"
    assert outcome.value["model"] == "smollm2"
    assert outcome.tokens is not None
    assert outcome.tokens > 8


async def test_c6_an_answer_fits_the_schema_that_was_asked_for() -> None:
    schema = {
        "type": "object",
        "properties": {"size": {"enum": ["small", "large"]}, "sure": {"type": "boolean"}},
        "required": ["size", "sure"],
        "additionalProperties": False,
    }
    shape = {"type": "json_schema", "json_schema": {"name": "size", "strict": True, "schema": schema}}
    async with small() as adapter:
        payload = {"prompt": "How large is a mouse?", "response_format": shape, "max_tokens": 60}
        outcome = await ask(adapter, payload)
    answer = json.loads(outcome.value["text"])
    assert set(answer) == {"size", "sure"}
    assert answer["size"] in ("small", "large")
    assert isinstance(answer["sure"], bool)


async def test_what_it_cannot_do_fails_for_good_with_words() -> None:
    """A prompt beyond the context, and embeddings of a model that makes none: no retry, no fault of the host."""
    async with small(context=256) as adapter:
        too_long = await ask(adapter, {"prompt": "word " * 1000})
        no_model_for_it = await ask(adapter, {"input": "word"})
        assert (await ask(adapter, {"prompt": "Hi", "max_tokens": 1})).verdict is Verdict.DONE
    assert too_long.verdict is no_model_for_it.verdict is Verdict.PERMANENT
    assert "256 tokens" in str(too_long.error)
    assert "raise hosts.small.context" in str(too_long.error)
    assert "embeddings = true" in str(no_model_for_it.error)


# ---- slots


async def test_e4_a_call_that_is_broken_off_frees_its_slot() -> None:
    async with small(context=8192) as adapter, asyncio.TaskGroup() as group:
        ear = endless()
        call = group.create_task(ask(adapter, ear))
        await ear.news.wait()
        call.cancel()
        assert (await ask(adapter, {"prompt": "Hi", "max_tokens": 1})).verdict is Verdict.DONE
        assert call.cancelled()


async def test_e4_two_slots_answer_at_once() -> None:
    async with small(slots=2, context=8192) as adapter, asyncio.TaskGroup() as group:
        ears = [endless(), endless()]
        calls = [group.create_task(ask(adapter, ear)) for ear in ears]
        await ears[0].news.wait()
        await ears[1].news.wait()
        assert not any(call.done() for call in calls)
        assert len(children()) == 1
        for call in calls:
            call.cancel()


async def test_slots_that_tune_themselves_have_room_for_the_most() -> None:
    host = Host("small", "local", 1, auto=AutoSlots(1, 2), options={"context": 8192})
    adapter = make(host, SystemClock())
    await adapter.open()
    try:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            ears = [endless(), endless()]
            calls = [group.create_task(ask(adapter, ear)) for ear in ears]
            for ear in ears:
                await ear.news.wait()
            for call in calls:
                call.cancel()
    finally:
        await adapter.close()


# ---- life


async def test_an_idle_server_stops_and_the_next_call_starts_it_again() -> None:
    async with small(idle_s=0.05) as adapter:
        for _ in range(2):
            ear = Ear({"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 2})
            async with asyncio.TaskGroup() as group:
                call = group.create_task(ask(adapter, ear))
                await ear.news.wait()
                server = children()
            assert len(server) == 1
            assert call.result().verdict is Verdict.DONE
            await wait_gone(server)


async def test_a_server_killed_in_mid_answer_is_the_hosts_fault_and_the_next_call_works() -> None:
    async with small(slots=2, context=8192) as adapter, asyncio.TaskGroup() as group:
        ear = endless()
        begun = group.create_task(ask(adapter, ear))
        whole = group.create_task(ask(adapter, {"prompt": "Count.", "max_tokens": 8000, "ignore_eos": True}))
        await ear.news.wait()
        [server] = children()
        os.kill(server.pid, signal.SIGKILL)
        lost = await whole
        assert lost.verdict is Verdict.HOST
        assert "died: it was killed by signal 9" in str(lost.error)
        # The client has a part of this one, so no other attempt can help; the stream says what happened.
        assert (await begun).verdict is Verdict.PERMANENT
        assert (await begun).host_fault
        assert b"killed by signal 9" in ear.data
        assert (await ask(adapter, {"prompt": "Hi", "max_tokens": 1})).verdict is Verdict.DONE


async def test_a_server_that_hangs_is_ended() -> None:
    async with small(timeouts={"first_token_s": 0.5, "total_s": 2.0}) as adapter:
        first = Ear({"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 1})
        await ask(adapter, first)
        server = children()
        server[0].suspend()
        outcome = await ask(adapter, endless())
        await wait_gone(server)
    assert outcome.verdict is Verdict.HOST
    assert "it was ended" in str(outcome.error)


async def test_a_model_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    """Promise 7: the end of the server's log is in the error, and what to do."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 100)
    async with small(gguf=str(broken)) as adapter:
        assert (await adapter.check()).up  # it looks like a model
        outcome = await ask(adapter, "Hi")
    assert outcome.verdict is Verdict.HOST
    assert f"could not start with {broken}" in str(outcome.error)
    assert "this GGUF file is version" in str(outcome.error)
    assert "whole GGUF model" in str(outcome.error)


async def test_checking_starts_nothing() -> None:
    async with small() as adapter:
        assert (await adapter.check()).up
        assert not children()


async def test_nobody_else_can_use_the_server() -> None:
    """Promise 8: it listens on loopback alone, and asks for its key."""
    server = LocalServer(ServerOptions(None, "small", context=256))
    try:
        async with server.use() as running, aiohttp.ClientSession() as session:
            heard = psutil.Process(running.child.pid).net_connections(kind="inet")
            assert {each.laddr.ip for each in heard if each.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
            statuses = []
            for key in ("wrong", running.key):
                headers = {"Authorization": f"Bearer {key}"}
                async with session.get(f"{running.url}/v1/models", headers=headers) as response:
                    statuses.append(response.status)
            assert statuses == [401, 200]
    finally:
        await server.close()


def test_a_dispatcher_killed_with_kill_9_leaves_no_server(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[hosts.small]\ntype = "local"\ncontext = 8192\n')
    with subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=tmp_path, stdout=subprocess.PIPE) as dispatcher:
        try:
            assert dispatcher.stdout is not None
            assert dispatcher.stdout.readline() == b"ready\n"
            [server] = psutil.Process(dispatcher.pid).children(recursive=True)
            assert server.environ()[MARKER].split(":")[1:] == ["", "small", "0"]
        finally:
            dispatcher.kill()
    _, left = psutil.wait_procs([server], PATIENCE_S)
    assert not left
