"""Events by SSE and WebSocket: none missing, none twice, in order; resumed, filtered, ended when they must."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from penstock.errors import StoreError
from penstock.store.base import StoredEvent
from penstock.store.sqlite import SQLiteStore
from penstock.web import events
from penstock.web.app import Timing
from penstock.web.events import Feed, Wanted
from tests.unit.web_rig import PATIENCE_S, Web, serving, token

QUICK = Timing(heartbeat_s=0.02)


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with serving(tmp_path) as made:
        yield made


async def until_ended(frames: AsyncIterator[Any], tasks: int) -> list[tuple[int, Any]]:
    """Events until so many tasks have ended."""
    found: list[tuple[int, Any]] = []
    async with asyncio.timeout(PATIENCE_S):
        async for id, event in frames:
            found.append((id, event))
            tasks -= event is not None and event["type"] == "ended"
            if not tasks:
                return found
    raise AssertionError(f"the stream ended after {found}")


async def until_readers(web: Web, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S), web.parts.client.watching() as watch:
        while web.parts.feed.readers.count != count:
            await watch()


async def numbers_of(web: Web) -> list[int]:
    return [event.number for event in await web.store.events(limit=100_000)]


# ---- SSE


async def test_a_stream_tells_what_happens_from_now_on(web: Web) -> None:
    await web.ended((await web.submit({"kind": "a"}))[0])
    before = await web.store.last_event()
    async with web.events() as frames:
        (id,) = await web.submit({"kind": "a"})
        found = await until_ended(frames, 1)
    assert [number for number, _ in found] == [event["number"] for _, event in found]
    assert found[0][0] > before
    assert [event["type"] for _, event in found if event["task"] == id] == ["submitted", "started", "ended"]
    assert found[-1][1]["data"]["state"] == "done"


async def test_a_stream_goes_on_after_what_was_seen_without_gap_or_double(web: Web) -> None:
    """E7: broken off and resumed at every point, the pieces are the log."""
    pieces: list[int] = []
    after = 0
    for round in range(6):
        await web.submit(*({"kind": "a"} for _ in range(5)))
        headers = {"Last-Event-ID": str(after)} if round else {}
        async with web.events("/api/events?after=0", headers=headers) as frames:
            async with asyncio.timeout(PATIENCE_S):
                async for id, _ in frames:
                    pieces.append(id)
                    if len(pieces) % 7 == 0:
                        break
        after = pieces[-1]
    whole = await numbers_of(web)
    assert pieces == whole[: len(pieces)]
    assert len(pieces) >= 6 * 5


async def test_many_readers_while_much_happens(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Concurrency: readers at different places, some far behind what is in memory, all get all, in order."""
    monkeypatch.setattr(events, "_KEPT", 20)
    monkeypatch.setattr(events, "_PAGE", 10)

    async def read(after: int, opened: asyncio.Event) -> list[int]:
        async with web.events(f"/api/events?after={after}") as frames:
            opened.set()
            return [id for id, _ in await until_ended(frames, 120 if after == 0 else 100)]

    await web.submit(*({"kind": "a"} for _ in range(20)))
    async with web.parts.client.watching() as watch:
        while (await web.store.snapshot(0)).queued or (await web.store.snapshot(0)).running:
            await watch()
    middle = await web.store.last_event()
    async with asyncio.TaskGroup() as group:
        opened = [asyncio.Event() for _ in range(8)]
        readers = [group.create_task(read(0 if n % 2 else middle, opened[n])) for n in range(8)]
        for one in opened:
            await one.wait()
        for _ in range(20):
            await web.submit(*({"kind": "a"} for _ in range(5)))
    whole = await numbers_of(web)
    for n, reader in enumerate(readers):
        wanted = whole if n % 2 else [number for number in whole if number > middle]
        got = reader.result()
        assert got == wanted[: len(got)]
    await until_readers(web, 0)


async def test_a_stream_can_be_narrowed(web: Web) -> None:
    one = await web.submit({"kind": "a", "id": "t1"}, {"kind": "a", "id": "t2"}, run="one")
    two = await web.submit({"kind": "a", "id": "t3"}, run="two")
    for id in (*one, *two):
        await web.ended(id)

    async def told(query: str, ended: int) -> list[tuple[str, str | None]]:
        async with web.events(f"/api/events?after=0&{query}") as frames:
            return [(event["type"], event["task"]) for _, event in await until_ended(frames, ended)]

    of_run = await told("run=one", 2)
    assert of_run[0] == ("submitted", None)
    assert {task for _, task in of_run[1:]} == {"t1", "t2"}
    assert await told("run=two&type=started&type=ended", 1) == [("started", "t3"), ("ended", "t3")]
    assert await told("task=t2&type=ended", 1) == [("ended", "t2")]


async def test_heartbeats_move_the_place_on_past_what_is_not_wanted(tmp_path: Path) -> None:
    async with serving(tmp_path, timing=QUICK) as web:
        await web.ended((await web.submit({"kind": "a"}))[0])
        last = await web.store.last_event()
        async with web.events("/api/events?after=0&type=none") as frames, asyncio.timeout(PATIENCE_S):
            async for id, event in frames:
                assert event is None
                if id == last:
                    break


async def test_an_id_that_is_no_number_is_refused(web: Web) -> None:
    for id in ("x", "-1", "1.5", "9" * 30, "0" * 25 + "9" * 20, "9" * 5000, "²"):
        headers = [(b"Last-Event-ID", id.encode())]
        assert "Last-Event-ID" in (await web.get("/api/events", 422, headers=headers))["message"], id


async def test_zeros_before_an_id_do_not_count(web: Web) -> None:
    (task,) = await web.submit({"kind": "a"})
    await web.ended(task)
    async with web.events(headers={"Last-Event-ID": "0" * 5000 + "1"}) as frames:
        assert (await anext(frames))[0] == 2


async def test_a_number_beyond_the_log_is_its_end(web: Web) -> None:
    """A store that was begun anew has smaller numbers than its readers remember."""
    async with web.events("/api/events?after=999999") as frames:
        await web.submit({"kind": "a"})
        await until_ended(frames, 1)


async def test_the_stream_of_a_revoked_token_ends_and_says_why(tmp_path: Path) -> None:
    """Promise 8: revoked at once means streams too."""
    (one, secret), (other, stays) = token("one", "read"), token("other", "read")
    async with serving(tmp_path, tokens=[one, other], secret=secret) as web:
        as_other = {"Authorization": f"Bearer {stays}"}
        async with web.events() as frames, web.events(headers=as_other) as others:
            await web.parts.client.revoke_token("one")
            async with asyncio.timeout(PATIENCE_S):
                told = [frame async for frame in frames]
            assert told[-1][1]["event"] == "error"
            assert told[-1][1]["error"]["message"] == "the token was revoked"
            await web.store.note("Test", 0.0, None, None, {})
            async with asyncio.timeout(PATIENCE_S):
                assert (await anext(others))[1]["type"] == "Test"


async def test_streams_end_when_the_server_stops(tmp_path: Path) -> None:
    async with serving(tmp_path) as web:
        async with web.events() as frames:
            web.service.stop()
            async with asyncio.timeout(PATIENCE_S):
                told = [event async for _, event in frames]
        assert all(event["type"] != "error" for event in told)
        async with asyncio.timeout(PATIENCE_S):
            await web.over.wait()


async def test_a_reader_who_takes_nothing_is_let_go(tmp_path: Path) -> None:
    """What a slow reader does not take is kept nowhere for him, and he cannot hold a connection for ever."""
    async with serving(tmp_path, timing=Timing(stall_s=0.2)) as web:
        host, port = web.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.transport.pause_reading()  # type: ignore[attr-defined] # nothing is taken from the socket
        writer.write(b"GET /api/events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until_readers(web, 1)
        text = "x" * 100_000
        for _ in range(100):  # more than any socket's buffers hold
            await web.store.note("Test", 0.0, None, None, {"text": text})
        await until_readers(web, 0)
        writer.close()


async def test_a_store_that_is_away_ends_no_server_and_loses_nobody_an_event(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 1: whoever follows hears heartbeats meanwhile, and then all that happened."""
    monkeypatch.setattr(events, "AGAIN_S", 0.01)
    asked = 0
    is_away = True

    def away(read: Callable[..., Any]) -> Callable[..., Any]:
        async def asks(*args: Any, **options: Any) -> Any:
            nonlocal asked
            if is_away:
                asked += 1
                raise StoreError("it is away; wait")
            return await read(*args, **options)

        return asks

    async with web.events() as frames:
        await until_readers(web, 1)
        for name in ("events", "last_event"):
            monkeypatch.setattr(web.store, name, away(getattr(web.store, name)))
        (id,) = await web.submit({"kind": "a"})
        await web.ended(id)
        async with asyncio.timeout(PATIENCE_S), web.parts.client.watching() as watch:
            while asked < 3:
                await watch()
        is_away = False
        heard = [event["type"] for _, event in await until_ended(frames, 1) if event is not None]
        assert heard[0] == "submitted"
    assert (await web.get("/health"))["status"] == "ok"


async def test_without_readers_nobody_listens(web: Web) -> None:
    await web.ended((await web.submit({"kind": "a"}))[0])
    assert web.parts.feed._newest == 0


async def test_a_feed_wakes_a_reader_who_came_before_it_listened(tmp_path: Path) -> None:
    store = SQLiteStore(str(tmp_path / "x.db"))
    await store.open()
    feed = Feed(store)
    found: list[StoredEvent] = []

    async def read() -> None:
        async for _, page in feed.follow(0, Wanted()):
            found.extend(page)
            if len(found) == 2:
                return

    async with asyncio.TaskGroup() as group, asyncio.timeout(PATIENCE_S):
        reading = group.create_task(read())
        await asyncio.sleep(0)
        await store.note("One", 1.0, None, None, {})
        feeding = group.create_task(feed.run())
        await store.note("Two", 2.0, None, None, {})
        await reading
        feeding.cancel()
    await store.close()
    assert [event.type for event in found] == ["One", "Two"]


# ---- WebSocket


def socket_url(web: Web, query: str = "") -> str:
    return web.url.replace("http://", "ws://") + "/api/ws" + query


async def hear(socket: ClientConnection) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        return json.loads(await socket.recv())


async def closing_code(socket: ClientConnection) -> int | None:
    """With which the server closes it."""
    try:
        while True:
            await hear(socket)
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd else None


async def hear_until_ended(socket: ClientConnection, tasks: int) -> list[Any]:
    found = []
    while tasks:
        found.append(await hear(socket))
        tasks -= found[-1]["type"] == "ended"
    return found


async def test_a_socket_tells_the_same_events(web: Web) -> None:
    async with connect(socket_url(web, "?after=0")) as socket:
        await web.submit({"kind": "a"}, {"kind": "a"})
        found = await hear_until_ended(socket, 2)
    log = (await web.get("/api/events/past?limit=1000"))["events"]
    assert found == log[: len(found)]


async def test_a_socket_resumes_and_can_be_told_something_else(web: Web) -> None:
    await web.submit({"kind": "a", "id": "t1"}, {"kind": "a", "id": "t2"}, run="one")
    await web.ended("t1")
    await web.ended("t2")
    async with connect(socket_url(web, "?after=0&type=ended")) as socket:
        first = await hear_until_ended(socket, 1)
        after = first[-1]["number"]
    async with connect(socket_url(web, f"?after={after}&type=ended&run=one")) as socket:
        (second,) = await hear_until_ended(socket, 1)
        assert {first[-1]["task"], second["task"]} == {"t1", "t2"}
        await socket.send(json.dumps({"after": 0, "task": "t1", "type": ["started"]}))
        assert await hear(socket) == await started_event(web, "t1")
        await socket.send("nonsense")
        assert (await hear(socket))["error"]["message"].startswith("not a subscription")
        await socket.send(json.dumps({"after": -1}))
        assert "not a subscription" in (await hear(socket))["error"]["message"]
        await socket.send(json.dumps({"after": 0, "type": ["ended"], "task": "t2"}))
        assert (await hear(socket))["task"] == "t2"


async def started_event(web: Web, task: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = (await web.get(f"/api/tasks/{task}/events"))["events"]
    return next(event for event in found if event["type"] == "started")


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("?after=x", {}, 422),
        ("", {"Authorization": "Bearer ps_0a1b2c3d_" + "x" * 43}, 401),
        ("", {"Origin": "https://evil.example"}, 403),
        ("", {"Host": "evil.example"}, 403),
    ],
)
async def test_a_socket_that_may_not_is_refused(
    web: Web, query: str, headers: dict[str, str], status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(socket_url(web, query), additional_headers=headers):
            pass
    assert refused.value.response.status_code == status
    assert "error" in json.loads(refused.value.response.body or b"")


async def test_a_socket_needs_the_scope_and_closes_with_its_token(tmp_path: Path) -> None:
    (one, secret), (other, submit) = token("one", "read"), token("other", "submit")
    async with serving(tmp_path, tokens=[one, other], secret=secret) as web:
        with pytest.raises(InvalidStatus):
            async with connect(socket_url(web), additional_headers={"X-API-Key": submit}):
                pass
        async with connect(socket_url(web), additional_headers={"X-API-Key": secret}) as socket:
            await web.parts.client.revoke_token("one")
            assert await closing_code(socket) == 4401


async def test_sockets_close_when_the_server_stops(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, connect(socket_url(web)) as socket:
        web.service.stop()
        assert await closing_code(socket) == 1012
