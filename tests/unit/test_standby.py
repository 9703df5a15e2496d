"""Servers that take turns: what a standby answers itself, what it passes on, and how a term begins and ends.

The store is a SQLite file that is said to elect: its lock lets one dispatcher in, in whatever process.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from penstock.dispatcher.leadership import Heard, Leadership
from penstock.dispatcher.loop import Dispatcher
from penstock.errors import AlreadyOwned, StoreCorrupt, StoreLocked, StoreRefused
from penstock.hosts.own_door import Guest
from penstock.model import State, Task
from penstock.store.base import Epoch, Owner
from penstock.store.sqlite import SQLiteStore
from penstock.store.standbys import standbys
from penstock.web.passing import PASSED, is_for_leader
from penstock.wiring import make_dispatcher, read_config
from tests.unit.agent_rig import AGENT_ENV, StubKeeper, endpoint_at, placed
from tests.unit.agent_server_rig import Server
from tests.unit.model_rig import Call, chat, http, wire
from tests.unit.web_rig import NOBODY, PATIENCE_S, Web, serving, token, usurped

URL = "/v1/chat/completions"
HOST = (
    '[hosts.raw]\ntype = "openai"\nurl = "{url}"\nmodel = "m"\nslots = 1\nhealth_s = 0\nserves = ["chat"]\n'
)
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CLOSE = (("Connection", "close"),)
AGENT = """
[agents.reports]
image = "{image}"
[agents.reports.handlers]
say = ["say"]
"""
SAY: dict[str, Any] = {"command": "say", "params": ['{"pages": 2}']}
LONG = {"kind": "long", "host": "large"}


async def answer(call: Call) -> None:
    await call.send(http(200, chat("hi"), CLOSE))
    call.hang_up()


async def until(true: Any) -> None:
    """Looks again and again: what it waits for happens in the loop of a server."""
    pause = asyncio.Event()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            made = true()
            if await made if asyncio.iscoroutine(made) else made:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await pause.wait()


@asynccontextmanager
async def two(folder: Path, config: str = "", **options: Any) -> AsyncIterator[tuple[Web, Web]]:
    """One that leads, and one that stands by."""
    async with (
        serving(folder, config, elects=True, **options) as leader,
        serving(folder, config, elects=True, **options) as standby,
    ):
        assert leader.parts.dispatching
        assert standby.parts.stands_by
        yield leader, standby


# ---- standing by


async def test_a_standby_reads_submits_and_cancels_by_itself(tmp_path: Path) -> None:
    async with two(tmp_path) as (leader, standby):
        done, long = await standby.submit({"kind": "k"}, LONG)
        assert (await standby.ended(done))["state"] == "done"
        await standby.running(long)
        await standby.post(f"/api/tasks/{long}/cancel")
        assert (await leader.ended(long))["state"] == "cancelled"
        assert (await standby.post("/api/pause", {"scope": "lane", "name": "fast"}))["paused"] is True
        assert (await leader.get("/api/lanes"))["lanes"]["fast"]["paused"] is True


async def test_who_leads_and_who_stands_by_is_told_by_both(tmp_path: Path) -> None:
    async with two(tmp_path) as (leader, standby):
        await until(lambda: standbys(leader.store))
        for web in (leader, standby):
            status = await web.get("/api/status")
            assert status["dispatcher"]["url"] == leader.url
            assert [one["url"] for one in status["standbys"]] == [standby.url]
            assert (await web.get("/health/live")) == {"status": "ok"}
        health = await standby.get("/health")
        assert (health["status"], health["role"]) == ("ok", "standby")
        assert "leads" in health["dispatcher"]["detail"]
        assert (await leader.get("/health"))["role"] == "leader"
        for web, leads in ((leader, "1.0"), (standby, "0.0")):
            assert f"\npenstock_leader {leads}\n" in (await web.http.get("/metrics")).text


async def test_what_was_submitted_at_a_standby_no_longer_waits_when_it_has_started(tmp_path: Path) -> None:
    """Else its token could submit no more after a while: no decision is heard there."""
    given, secret = token("one", "submit", "read", max_queued=1)
    async with two(tmp_path, tokens=[given], secret=secret) as (_, standby):
        for _ in range(2):
            (task,) = await standby.submit({"kind": "k"})
            await standby.ended(task)
            await until(lambda: not standby.parts.limits.some_tasks())


async def test_tokens_and_log_outs_of_others_are_known_soon(tmp_path: Path) -> None:
    given, secret = token("one", "admin", "read")
    async with two(tmp_path, tokens=[given], secret=secret) as (leader, standby):
        made = await leader.post("/api/tokens", {"name": "two", "scopes": ["read"]}, 201)
        headers = {"Authorization": f"Bearer {made['secret']}"}
        await until(lambda: _has_status(standby, headers, 200))
        await standby.call("DELETE", "/api/tokens/two", 200)
        assert await _has_status(leader, headers, 401)
        await until(lambda: _has_status(standby, headers, 401))
        await leader.store.end_session("gone", 2e9)
        await until(lambda: standby.parts.tokens.has_ended("gone"))


async def _has_status(web: Web, headers: dict[str, str], status: int) -> bool:
    return (await web.http.get("/api/tasks", headers=headers)).status_code == status


# ---- passing on


@pytest.mark.parametrize(
    ("path", "passed"),
    [
        ("/v1/chat/completions", True),
        ("/v1/models", True),
        ("/api/agents/a/call", True),
        ("/api/agents/a/ws", True),
        ("/api/councils/c/ask", True),
        ("/api/councils/c/questions/1/events", True),
        ("/api/shenron/grant-wish", True),
        ("/api/councils/c/questions", False),
        ("/api/councils/c", False),
        ("/api/agents", False),
        ("/api/tasks", False),
        ("/v1", False),
        ("/board/", False),
        ("/health", False),
    ],
)
def test_only_what_the_leader_alone_can_answer_is_passed_on(path: str, passed: bool) -> None:
    assert is_for_leader(path) is passed


async def test_calls_are_passed_on_with_their_tokens(tmp_path: Path) -> None:
    given, secret = token("one", "submit", "read")
    async with (
        wire(answer) as upstream,
        two(tmp_path, HOST.format(url=upstream.url), tokens=[given], secret=secret) as (leader, standby),
    ):
        told = await standby.http.post(URL, json=BODY)
        assert told.status_code == 200
        assert told.json()["choices"][0]["message"]["content"] == "hi"
        id = told.headers["x-penstock-task"]
        await until(lambda: leader.store.get(id))  # it is written after its answer was sent
        assert (await leader.ended(id))["payload"]["caller"] == "one"
        models = await standby.get("/v1/models")
        assert "m" in [one["id"] for one in models["data"]]
        refused = await standby.http.post(URL, json={"model": "none"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
        wrong = await standby.http.post(URL, json=BODY, headers={"Authorization": "Bearer wrong"})
        assert wrong.status_code == 401


async def test_the_key_of_an_attempt_is_for_the_leader_to_know(tmp_path: Path) -> None:
    """An attempt on a node may come to any server: those that stand by have never heard of it."""
    given, secret = token("one", "submit", "read")
    async with (
        wire(answer) as upstream,
        two(tmp_path, HOST.format(url=upstream.url), tokens=[given], secret=secret) as (leader, standby),
    ):
        key = leader.parts.tokens.invite(Guest("t", 1, "fast", 2, "v1-nightly"))
        guest = {"Authorization": f"Bearer {key}"}
        told = await standby.http.post(URL, json=BODY, headers=guest)
        assert told.status_code == 200, told.text
        assert (await standby.http.get("/api/tasks", headers=guest)).status_code == 401
        leader.parts.tokens.dismiss(key)
        assert (await standby.http.post(URL, json=BODY, headers=guest)).status_code == 401
        for prefix in ("ps_", "ps_attempt_"):
            forged = {"Authorization": f"Bearer {prefix}01234567_{'x' * 43}"}
            told = await standby.http.post(URL, json=BODY, headers=forged)
            assert (told.status_code, told.headers["www-authenticate"]) == (401, "Bearer")


async def test_who_is_not_known_learns_nothing_of_who_leads(tmp_path: Path) -> None:
    """What is no key of an attempt is refused at once; what may be one is told to ask again, and no more."""
    given, secret = token("one", "submit", "read")
    async with two(tmp_path, tokens=[given], secret=secret) as (leader, standby):
        for owner in (NOBODY, Owner(1, "elsewhere", "penstock serve", url="http://127.0.0.1:9")):
            async with usurped(tmp_path, owner):
                await until(lambda: leader.parts.stands_by)
                await until(lambda: standby.parts.lookout.leader.owner == owner)  # noqa: B023
                assert "elsewhere" in (await standby.http.post(URL, json=BODY)).text
                for prefix, status in (("ps_", 401), ("ps_attempt_", 503)):
                    forged = {"Authorization": f"Bearer {prefix}01234567_{'x' * 43}"}
                    told = await standby.http.post(URL, json=BODY, headers=forged)
                    assert told.status_code == status
                    assert not any(word in told.text for word in ("elsewhere", "penstock work", "127.0.0.1"))


async def test_a_stream_comes_through_a_standby_piece_by_piece(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def slowly(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        await call.send(b'data: {"choices":[{"index":0,"delta":{"content":"one"}}]}\n\n')
        await go_on.wait()
        await call.send(b'data: {"choices":[{"index":0,"delta":{"content":"two"}}]}\n\ndata: [DONE]\n\n')
        call.hang_up()

    async with (
        wire(slowly) as upstream,
        two(tmp_path, HOST.format(url=upstream.url)) as (_, standby),
        standby.http.stream("POST", URL, json={**BODY, "stream": True}) as response,
    ):
        assert response.status_code == 200
        pieces = response.aiter_text()
        assert "one" in await anext(pieces)
        go_on.set()
        rest = "".join([piece async for piece in pieces])
        assert "two" in rest
        assert rest.endswith("data: [DONE]\n\n")


async def test_a_client_that_leaves_a_standby_has_left_the_leader(tmp_path: Path) -> None:
    never = asyncio.Event()

    async def wait(call: Call) -> None:
        await never.wait()

    async with wire(wait) as upstream, two(tmp_path, HOST.format(url=upstream.url)) as (leader, standby):
        asking = asyncio.ensure_future(standby.http.post(URL, json=BODY))
        await until(lambda: leader.parts.dispatcher.statistics.running == 1)
        asking.cancel()
        await asyncio.wait({asking})
        await until(lambda: leader.parts.dispatcher.statistics.running == 0)
        never.set()


async def test_a_request_goes_round_no_circle(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, standby):
        told = await standby.http.get("/v1/models", headers={PASSED: "1"})
        assert told.status_code == 503
        assert told.json()["error"]["code"] == "no_leader"
        assert "`advertise`" in told.json()["error"]["message"]
        assert told.headers["retry-after"] == "1"


async def test_a_leader_that_serves_nothing_or_is_not_there_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two(tmp_path) as (leader, standby):
        async with usurped(tmp_path):
            await until(lambda: leader.parts.stands_by)
            await until(lambda: standby.parts.lookout.leader.owner == NOBODY)
            told = (await standby.http.post(URL, json=BODY)).json()["error"]
            assert told["message"].startswith(
                "process 1 on elsewhere (penstock work) leads and serves no HTTP"
            )
        gone = Owner(1, "elsewhere", "penstock serve", url="http://127.0.0.1:9")
        async with usurped(tmp_path, gone) as (store, epoch):
            await until(lambda: standby.parts.lookout.leader.owner == gone)
            for _ in range(2):
                await store.heartbeat(epoch.number, time.time())  # it lives
                told = (await standby.http.post(URL, json=BODY)).json()["error"]
                assert "cannot be reached at http://127.0.0.1:9" in told["message"]
                assert "`advertise` of [server]" in told["message"]
            written = [one for one in caplog.messages if "cannot be reached at http://127.0.0.1:9" in one]
            assert len(written) == 1


async def test_when_nobody_leads_calls_are_refused_and_tasks_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path) as (leader, standby):

        async def lose(*_: object) -> Any:
            raise AlreadyOwned("another is quicker")

        monkeypatch.setattr(standby.store, "acquire", lose)
        leader.service.stop()
        await leader.over.wait()
        await until(lambda: standby.parts.lookout.leader is None)
        told = await standby.http.post(URL, json=BODY)
        assert (told.status_code, told.headers["retry-after"]) == (503, "1")
        assert told.json()["error"]["message"] == "no dispatcher leads at the moment; ask again"
        (kept,) = await standby.submit({"kind": "k"})
        health = await standby.get("/health")
        assert (health["status"], health["role"]) == ("degraded", "standby")
        monkeypatch.undo()
        assert (await standby.ended(kept))["state"] == "done"
        await until(lambda: standby.parts.dispatching)


async def test_a_standby_that_could_not_lead_says_when_it_can_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "penstock.dispatcher")
    told: list[Epoch | None] = []
    async with two(tmp_path) as (_, standby):
        monkeypatch.setattr(standby.service, "_on_standby", lambda leader, recorded: told.append(leader))
        with monkeypatch.context() as patched:

            async def away(*_: object) -> bool:
                raise StoreLocked("the database does not answer")

            patched.setattr(standby.store, "wait_vacant", away)
            await until(lambda: "cannot lead for now: the database does not answer" in caplog.messages)
        await until(lambda: "can lead again: the store answers" in caplog.messages)
        await until(lambda: told)  # a line of the log that everybody sees
        assert told[0] is not None


@asynccontextmanager
async def two_with_agents(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Web, Web, StubKeeper, StubKeeper]]:
    """The leader and the standby, and who has the containers of each; behind both is the same agent server."""
    with Server(folder, "--kill-s", "0.2", env=AGENT_ENV) as server:
        keepers = {image: StubKeeper(endpoint_at(server)) for image in ("leader", "standby")}
        with placed(monkeypatch, endpoint_at(server), **keepers) as nobodys:
            async with (
                serving(folder, AGENT.format(image="leader"), elects=True) as leader,
                serving(folder, AGENT.format(image="standby"), elects=True) as standby,
            ):
                assert standby.parts.stands_by
                yield leader, standby, keepers["leader"], keepers["standby"]
        assert nobodys.lent == 0


async def test_a_call_of_an_agent_is_answered_by_the_leaders_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_with_agents(tmp_path, monkeypatch) as (leader, standby, of_leader, of_standby):
        told = await standby.http.post("/api/agents/reports/call", json=SAY)
        assert (told.status_code, told.json()["result"]) == (200, {"pages": 2})
        assert (of_leader.lent, of_standby.lent) == (1, 0)
        id = told.headers["x-penstock-task"]
        await until(lambda: leader.store.get(id))  # it is written after its answer was sent
        assert (await leader.ended(id))["host"] == "reports"


async def test_a_command_in_a_websocket_is_answered_by_the_leaders_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it runs, too: what it writes comes at once, and a word to it arrives."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with (
        two_with_agents(tmp_path, monkeypatch) as (_, standby, of_leader, of_standby),
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{standby.url}/api/agents/reports/ws") as socket,
    ):

        async def told(type: str) -> dict[str, Any]:
            while True:
                message: dict[str, Any] = await socket.receive_json(timeout=PATIENCE_S)
                if message["type"] == type:
                    return message

        await socket.send_json(SAY)
        assert (await told("stdout"))["data"] == SAY["params"][0]
        assert (await told("end"))["status"] == "done"
        assert (of_leader.lent, of_standby.lent) == (1, 0)
        await socket.send_json({"command": "hold", "params": [str(gate)]})
        assert (await told("stdout"))["data"] == "held\n"
        assert (of_leader.live, of_standby.live) == (1, 0)
        await socket.send_json({"cancel": True})
        assert (await told("end"))["error"]["code"] == "cancelled"


async def test_what_the_leader_refuses_is_refused_with_its_status(tmp_path: Path) -> None:
    """Though this one would not refuse it: the standby's config has the agent, and the leader's has not."""
    async with (
        serving(tmp_path, elects=True),
        serving(tmp_path, AGENT.format(image="standby"), elects=True) as standby,
        aiohttp.ClientSession() as session,
    ):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"{standby.url}/api/agents/reports/ws")
        assert refused.value.status == 404
        assert (await standby.post("/api/agents/reports/call", SAY, 404))["type"] == "unknown_agent"


# ---- terms


async def test_a_standby_takes_over_from_one_that_is_stopped(tmp_path: Path) -> None:
    async with two(tmp_path) as (leader, standby):
        (first,) = await leader.submit({"kind": "k"})
        await leader.ended(first)
        leader.service.stop()
        await leader.over.wait()
        await until(lambda: standby.parts.dispatching)
        (task,) = await standby.submit({"kind": "k"})
        assert (await standby.ended(task))["state"] == "done"
        assert await standbys(standby.store) == []
        assert (await standby.get("/health"))["role"] == "leader"


async def test_a_deposed_leader_ends_what_it_runs_records_nothing_and_stands_by(tmp_path: Path) -> None:
    never = asyncio.Event()

    async def wait(call: Call) -> None:
        await never.wait()

    async with wire(wait) as upstream, serving(tmp_path, HOST.format(url=upstream.url), elects=True) as web:
        (long,) = await web.submit(LONG)
        await web.running(long)
        calling = asyncio.ensure_future(web.http.post(URL, json=BODY))
        dispatcher = web.parts.dispatcher
        await until(lambda: dispatcher.statistics.running == 2)
        async with usurped(tmp_path) as (other, epoch):
            seen = await other.last_event()
            told = await calling
            assert told.status_code == 503
            assert told.json()["error"]["code"] == "taken_over"
            assert told.headers["retry-after"] == "1"
            await until(lambda: standbys(web.store))
            assert web.parts.stands_by
            assert [e.type for e in await other.events(seen) if e.type != "submitted"] == []
            assert (await other.get(long)).state is State.RUNNING  # type: ignore[union-attr]
            assert await other.owned_by() == epoch
            (kept,) = await web.submit({"kind": "k"})
        await until(lambda: web.parts.dispatching)
        assert web.parts.dispatcher is not dispatcher
        assert (await web.ended(kept))["state"] == "done"
        await web.running(long)
        assert [one.number for one in await web.store.attempts(long)] == [1, 2]
        never.set()


async def test_a_standby_that_is_stopped_ends_at_once(tmp_path: Path) -> None:
    async with two(tmp_path) as (leader, standby):
        (long,) = await leader.submit(LONG)
        await leader.running(long)
        standby.service.stop()
        async with asyncio.timeout(PATIENCE_S):
            await standby.over.wait()
        assert leader.parts.dispatching
        assert await standbys(leader.store) == []


async def test_a_client_leaves_dispatching_to_the_standbys(tmp_path: Path) -> None:
    """Where one stands by, nobody else jumps in when the leader is gone for a moment."""
    import penstock

    async with two(tmp_path) as (_, standby):
        await until(lambda: standbys(standby.store))
        config = standby.parts.config
        async with penstock.open(config) as client:
            client._store._database.elects = True  # type: ignore[attr-defined]
            assert not client.dispatches
            task = await client.submit(Task("k"))
            async with asyncio.timeout(PATIENCE_S):
                assert (await client.wait(task)).state is State.DONE
            assert not client.dispatches


async def test_who_is_to_stop_while_it_takes_over_does_not_wait_for_a_store_that_is_away(
    tmp_path: Path,
) -> None:
    """E6: nothing runs yet, so that there is nothing to finish; the store may be away for hours."""
    store = SQLiteStore(str(tmp_path / "penstock.db"))
    await store.open()
    (tmp_path / "penstock.toml").write_text('[hosts.h]\ntype = "simulated"\nserves = ["k"]\n')
    config = read_config(tmp_path / "penstock.toml")
    taking_over = asyncio.Event()

    async def lead(dispatcher: Dispatcher, ready: Any) -> None:
        taking_over.set()
        await asyncio.Event().wait()  # for what it has to know from the store

    heard = Heard(on_standby=lambda epoch, recorded: None)
    leadership = Leadership(store, lambda: make_dispatcher(config, store, "test"), heard, takes_turns=True)
    try:
        async with asyncio.timeout(PATIENCE_S):
            running = asyncio.create_task(leadership.run(lead))
            await taking_over.wait()
            leadership.stop()
            leadership.stop()
            await running
    finally:
        await store.close()


async def test_who_stands_by_has_its_engine_prepared_and_forgoes_that_at_its_end(tmp_path: Path) -> None:
    """What takes long to begin has begun when it is to lead."""
    (tmp_path / "penstock.toml").write_text('[hosts.h]\ntype = "simulated"\nserves = ["k"]\n')
    config = read_config(tmp_path / "penstock.toml")
    store = SQLiteStore(str(tmp_path / "penstock.db"))
    await store.open()
    heard: list[str] = []
    prepared = asyncio.Event()

    def make() -> Dispatcher:
        dispatcher = make_dispatcher(config, store, "test")

        async def prepare() -> None:
            heard.append("prepare")
            prepared.set()

        async def forgo() -> None:
            heard.append("forgo")

        dispatcher.prepare, dispatcher.forgo = prepare, forgo  # type: ignore[method-assign]
        return dispatcher

    async def lead(dispatcher: Dispatcher, ready: Any) -> None:
        raise AlreadyOwned("by another")

    leadership = Leadership(store, make, Heard(on_standby=lambda epoch, recorded: None), takes_turns=True)
    try:
        async with asyncio.timeout(PATIENCE_S):
            running = asyncio.create_task(leadership.run(lead))
            await prepared.wait()
            leadership.stop()
            await running
    finally:
        await store.close()
    assert heard[0] == "prepare"
    assert heard[-1] == "forgo"


class Strict(SQLiteStore):
    """A store that lets somebody write for a while."""

    refuses = True
    refusals = 0

    async def lease(self, name: str, owner: str, ttl_s: float, note: str = "") -> bool:
        if self.refuses:
            self.refusals += 1
            raise StoreRefused("it refuses a right; grant it")
        return await super().lease(name, owner, ttl_s, note)


@pytest.mark.parametrize("was_able", [False, True])
async def test_a_standby_that_may_not_write_leaves_unless_it_once_could(
    tmp_path: Path, was_able: bool
) -> None:
    """One that comes without the right can never lead; one that loses it may get it back."""
    (tmp_path / "penstock.toml").write_text('[hosts.h]\ntype = "simulated"\nserves = ["k"]\n')
    config = read_config(tmp_path / "penstock.toml")
    store = Strict(str(tmp_path / "penstock.db"))
    store.refuses = not was_able
    await store.open()

    async def lead(dispatcher: Dispatcher, ready: Any) -> None:
        raise AlreadyOwned("by another")

    heard = Heard(on_standby=lambda epoch, recorded: None)
    leadership = Leadership(store, lambda: make_dispatcher(config, store, "test"), heard, takes_turns=True)
    try:
        async with asyncio.timeout(PATIENCE_S):
            if not was_able:
                with pytest.raises(StoreRefused):
                    await leadership.run(lead)
                return
            running = asyncio.create_task(leadership.run(lead))
            await until(lambda: store.leases("standby/"))
            store.refuses = True
            await until(lambda: store.refusals >= 2)
            leadership.stop()
            await running
    finally:
        await store.close()


async def test_a_standby_of_a_store_that_is_damaged_leaves(tmp_path: Path) -> None:
    """It could never lead, and nobody would hear of it until it had to."""
    (tmp_path / "penstock.toml").write_text('[hosts.h]\ntype = "simulated"\nserves = ["k"]\n')
    config = read_config(tmp_path / "penstock.toml")
    store: Any = SQLiteStore(str(tmp_path / "penstock.db"))
    await store.open()

    async def lead(dispatcher: Dispatcher, ready: Any) -> None:
        raise AlreadyOwned("by another")

    async def damaged() -> None:
        raise StoreCorrupt("its files are damaged; restore a copy")

    store.owned_by = damaged

    heard = Heard(on_standby=lambda epoch, recorded: None)
    leadership = Leadership(store, lambda: make_dispatcher(config, store, "test"), heard, takes_turns=True)
    try:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(StoreCorrupt):
                await leadership.run(lead)
    finally:
        await store.close()
