"""What passes between browsers and the board's process, with a process in its place that tells what reached it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from websockets.exceptions import ConnectionClosed, InvalidStatus

from penstock.web.board.viewer import HEADER, Viewer, as_header, viewer_of
from penstock.web.board_process import Rests
from penstock.web.sessions import COOKIE
from tests.unit.web_rig import PATIENCE_S, Web, serving, token

CHILD = (sys.executable, "-P", str(Path(__file__).parent / "board_child.py"))
HTML = {"Accept": "text/html"}


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with serving(tmp_path, "[server]\nbody_limit_bytes = 200000\n") as web:
        web.parts.board._command = CHILD
        async with asyncio.timeout(PATIENCE_S):
            yield web


async def reached(web: Web, path: str, **options: Any) -> dict[str, Any]:
    answer = await web.http.request(options.pop("method", "GET"), path, **options)
    assert answer.status_code == 201, answer.text
    assert answer.headers["x-own"] == "1"
    assert "x-hop" not in answer.headers
    assert answer.headers["x-frame-options"] == "DENY"
    assert len(answer.headers.get_list("date")) == 1
    told: dict[str, Any] = answer.json()
    return told


def values(told: dict[str, Any], name: str) -> list[str]:
    return [value for key, value in told["headers"] if key == name]


async def test_requests_pass_as_they_are_but_for_what_is_not_theirs(web: Web) -> None:
    lied = as_header(Viewer("mallory", ("admin",)))
    headers = {
        HEADER: lied,
        "X-Forwarded-Prefix": "/evil",
        "X-Forwarded-For": "192.0.2.1",
        "Cookie": "a=1",
        "X-Hop": "1",
        "Connection": "X-Hop",
        "TE": "trailers",
        "Accept-Language": "de",
    }
    told = await reached(web, "/board/a%20b/c%2Fd?q=%C3%A4&r", headers=headers)
    assert (told["path"], told["query"]) == ("/a%20b/c%2Fd", "q=%C3%A4&r")
    (viewer,) = values(told, HEADER)
    assert viewer_of({HEADER: viewer}) == Viewer("local", ("admin", "read", "submit"))
    assert values(told, "x-forwarded-prefix") == ["/board"]
    assert values(told, "accept-language") == ["de"]
    for name in ("x-forwarded-for", "cookie", "x-hop", "te", "authorization"):
        assert not values(told, name)
    assert values(told, "host") == [web.url.removeprefix("http://")]
    assert (await reached(web, "/board/", method="PATCH"))["method"] == "PATCH"


async def test_one_process_is_begun_however_many_ask(web: Web) -> None:
    told = await asyncio.gather(*(reached(web, "/board/x") for _ in range(20)))
    assert len({one["pid"] for one in told}) == 1


async def test_bodies_pass_and_too_long_ones_are_refused(web: Web) -> None:
    assert (await reached(web, "/board/x", method="POST", content=b"y" * 150_000))["body"] == 150_000

    async def pieces(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"z" * 50_000

    assert (await reached(web, "/board/x", method="POST", content=pieces(3)))["body"] == 150_000
    for content in (b"y" * 300_000, pieces(6)):
        refused = await web.http.post("/board/x", content=content)
        assert (refused.status_code, refused.json()["error"]["type"]) == (413, "too_large")
    assert (await reached(web, "/board/x"))["method"] == "GET"


async def test_a_stream_comes_piece_by_piece_and_ends_with_its_reader(web: Web) -> None:
    async with web.http.stream("GET", "/board/stream") as response:
        lines = response.aiter_lines()
        assert await anext(lines) == "data: 1"  # the second is not even made yet
        await web.http.get("/board/go")
        assert [await anext(lines) for _ in range(2)] == ["", "data: 2"]
    assert (await web.http.get("/board/left")).json() is True


async def test_what_a_browser_does_not_take_is_not_read(web: Web) -> None:
    """A browser that reads nothing does not fill our memory: 256 MiB are on offer."""
    async with web.http.stream("GET", "/board/flood"):
        sent_bytes = (await web.http.get("/board/sent")).json()
    assert 0 < sent_bytes < 32 * 1024 * 1024


async def test_a_websocket_passes_both_ways(web: Web) -> None:
    url = web.url.replace("http", "ws") + "/board/socket?a=1"
    async with websockets.connect(url, subprotocols=["chat"]) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == "chat"
        assert not socket.protocol.extensions  # uncompressed
        await socket.send("hello")
        assert await socket.recv() == "hello"
        await socket.send(b"\0\1")
        assert await socket.recv() == b"\0\1"
        await socket.send("bye")
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4001
    with pytest.raises(InvalidStatus) as refused:
        await websockets.connect(web.url.replace("http", "ws") + "/board/closed")
    assert refused.value.response.status_code == 403
    async with websockets.connect(url) as socket:
        pass
    assert (await web.http.get("/board/left")).json() is True
    async with websockets.connect(url) as socket:
        await socket.send("die")
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012  # come again, to another process


async def test_a_process_that_died_is_begun_again_for_who_asks_next(web: Web) -> None:
    first = await reached(web, "/board/x")
    dead = await web.http.post("/board/die", content=b"x")  # a body was taken: it is not sent twice
    assert (dead.status_code, dead.json()["error"]["type"]) == (503, "board_failed")
    second = await reached(web, "/board/x")
    assert first["pid"] != second["pid"]


async def test_a_process_that_hangs_is_ended_and_begun_anew(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await reached(web, "/board/x")
    for limit in ("proxy._HEAD_S", "board_process._ALIVE_S"):
        monkeypatch.setattr(f"penstock.web.{limit}", 0.2)
    os.kill(first["pid"], signal.SIGSTOP)
    error = await web.get("/board/x", 503)
    assert (error["type"], error["message"]) == ("board_failed", "the board did not answer in time")
    monkeypatch.undo()
    assert (await reached(web, "/board/x"))["pid"] != first["pid"]


async def test_what_takes_long_does_not_end_a_process_that_lives(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await reached(web, "/board/x")
    monkeypatch.setattr("penstock.web.proxy._HEAD_S", 0.2)
    assert (await web.get("/board/left", 503))["type"] == "board_failed"  # it answers when a reader has left
    monkeypatch.undo()
    assert (await reached(web, "/board/x"))["pid"] == first["pid"]


async def test_one_that_cannot_begin_is_told_with_its_last_word(web: Web) -> None:
    board = web.parts.board
    board._command, board._rests = (*CHILD, "dies"), Rests(failures=2, first_s=0.01)
    page = await web.http.get("/board/", headers=HTML)
    assert page.status_code == 503
    assert "NoSuchThing: what it needs is not there &lt;b&gt;&amp;" in page.text
    assert "retry-after" in page.headers
    assert "unsafe" not in page.headers["content-security-policy"]


async def test_while_the_store_is_away_who_looks_is_told_why_until_it_is_back(
    web: Web, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    back = tmp_path / "back"
    web.parts.board._command = (*CHILD, "waits", str(back))
    for _ in range(3):
        page = await web.http.get("/board/", headers=HTML)
        assert (page.status_code, page.headers["refresh"]) == (503, "2")
        assert "The store is away" in page.text
        assert "postgresql://db/x: nobody &lt;is&gt; there" in page.text
        assert "check the server" in page.text
        assert "loads again by itself" in page.text
        assert (await web.get("/board/data/x", 503))["type"] == "store_failed"
    back.touch()
    while (await web.http.get("/board/x")).status_code != 201:
        pass
    (told,) = [one.message for one in caplog.records if one.name == "penstock.web"]
    assert told == "the board waits for the store: postgresql://db/x: nobody <is> there; check the server"


async def test_one_that_cannot_even_be_begun_leaves_the_server_at_work(web: Web) -> None:
    board = web.parts.board
    board._command, board._rests = ("/no/such/program",), Rests(failures=1)
    error = await web.get("/board/", 503)
    assert error["type"] == "board_failed"
    assert "it cannot be begun" in error["message"]
    assert (await web.ended((await web.submit({"kind": "short"}))[0]))["state"] == "done"


async def test_what_it_prints_before_it_listens_is_logged(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    """Also lines longer than any buffer of ours."""
    web.parts.board._command = (*CHILD, "babbles")
    assert (await reached(web, "/board/x"))["method"] == "GET"
    assert "board: a library is here" in caplog.text


async def test_one_that_never_listens_is_ended(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.web.board_process._START_S", 0.5)
    board = web.parts.board
    board._command, board._rests = (*CHILD, "mute"), Rests(failures=1)
    assert (await web.get("/board/", 503))["type"] == "board_failed"


async def test_whatever_ends_the_board_leaves_the_server_at_work(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: str) -> None:
        raise RuntimeError("nobody has thought of that")

    monkeypatch.setattr("penstock.web.board_process._session", fails)
    web.parts.board._rests = Rests(failures=1)
    error = await web.get("/board/", 503)
    assert "nobody has thought of that" in error["message"]
    assert (await web.ended((await web.submit({"kind": "short"}))[0]))["state"] == "done"


async def test_without_the_extra_the_remedy_is_told(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.web.board_process.find_spec", lambda name: None)
    monkeypatch.setattr("penstock.web.board_process.COMMAND", CHILD)
    error = await web.get("/board/", 503)
    assert (error["type"], error["remedy"]) == ("board_missing", "pip install 'penstock-ai[ui]'")


async def test_pages_count_against_the_tokens_rate_and_what_they_load_does_not(tmp_path: Path) -> None:
    made, secret = token("ada", "read", requests_per_min=2)
    async with serving(tmp_path, tokens=[made], secret=secret) as web, asyncio.timeout(PATIENCE_S):
        web.parts.board._command = CHILD
        told = [(await web.http.get(path)).status_code for path in ("/board/", "/board/queue", "/board/x")]
        assert told == [201, 201, 429]
        for path in ("/board/files/board.css", "/board/data/timeline", "/board/_nicegui/x.js"):
            await reached(web, path)


async def test_streams_end_when_the_server_stops(web: Web) -> None:
    url = web.url.replace("http", "ws") + "/board/socket"
    async with web.http.stream("GET", "/board/stream") as response, websockets.connect(url) as socket:
        lines = response.aiter_lines()
        assert await anext(lines) == "data: 1"
        web.service.stop()
        assert [line async for line in lines] == [""]
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        await web.over.wait()


async def test_a_viewer_who_comes_with_a_token_gets_a_session_to_act_with(tmp_path: Path) -> None:
    """The board acts in his name, with his rights; his token is not told to it. When it is revoked, streams end."""
    made, secret = token("ada", "read")
    async with serving(tmp_path, tokens=[made], secret=secret) as web, asyncio.timeout(PATIENCE_S):
        web.parts.board._command = CHILD
        told = await reached(web, "/board/x")
        assert secret not in str(told)
        viewer = viewer_of({HEADER: values(told, HEADER)[0]})
        assert (viewer.name, viewer.scopes) == ("ada", ("read",))
        assert viewer.cookie.startswith(f"{COOKIE}=")
        async with httpx.AsyncClient(base_url=web.url, verify=False, trust_env=False) as board:
            assert (await board.get("/api/tasks", headers=viewer.headers())).status_code == 200
            posted = await board.post("/api/tasks", json={"tasks": []}, headers=viewer.headers())
            assert posted.json()["error"]["type"] == "forbidden"  # the token may only read
            async with web.http.stream("GET", "/board/stream") as response:
                lines = response.aiter_lines()
                assert await anext(lines) == "data: 1"
                await web.store.revoke_token("ada")
                await web.service._read_tokens()
                assert [line async for line in lines] == [""]
            assert (await board.get("/api/tasks", headers=viewer.headers())).status_code == 401
