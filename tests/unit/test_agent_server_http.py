"""How the agent server reads HTTP: what is a request, where it ends, and what hostile callers get."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.agents import agent_server
from penstock.agents.agent_server import (
    ChunkedBody,
    Connection,
    CountedBody,
    Head,
    HeadReader,
    Refusal,
    parse_head,
)
from tests.unit.agent_server_rig import PATIENCE_S, Server, Stream, read_all

GET = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET /tasks HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("agent"), "--body-bytes", "100000") as running:
        yield running
        assert running.stop() == (0, "")


def post(body: bytes, *headers: str) -> bytes:
    lines = ["POST /task HTTP/1.1", "Host: a", *(headers or [f"Content-Length: {len(body)}"])]
    return "\r\n".join([*lines, "", ""]).encode() + body


def statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]


def say(word: str) -> bytes:
    return json.dumps({"command": "say", "params": [word]}).encode()


# ---- heads

TOKEN = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_!", min_size=1, max_size=20)
VALUE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=40)
FIELDS = st.dictionaries(TOKEN.map(lambda name: f"x-{name}"), VALUE, max_size=20)


@given(TOKEN.map(str.upper), FIELDS, st.integers(0, 10**15 - 1), st.sampled_from(["", " ", "\t "]))
def test_a_head_is_read_as_it_was_written(method: str, fields: dict[str, str], length: int, pad: str) -> None:
    lines = [f"{method} /a/b?c=d HTTP/1.1", "HOST: h", f"Content-Length:{length}"]
    lines += [f"{name.title()}:{pad}{value}{pad}" for name, value in fields.items()]
    head = parse_head("\r\n".join(lines).encode("latin-1"))
    assert head == Head(method, "/a/b", 1, {"host": "h", "content-length": str(length), **fields}, length)


@given(
    st.one_of(st.binary(max_size=200), st.builds(lambda a, b, c: a + b + c, *[st.binary(max_size=20)] * 3))
)
def test_any_bytes_are_a_head_or_a_refusal(data: bytes) -> None:
    for head in (data, b"GET / HTTP/1.1\r\nHost: a\r\n" + data, b"POST /task HTTP/1.1\r\n" + data):
        with suppress(Refusal):
            read = parse_head(head)
            assert not any(set(value) & set("\r\n\0") for value in read.headers.values())


@given(st.lists(st.integers(0, 10**6), max_size=60), st.booleans(), st.binary(max_size=9))
def test_a_head_is_read_however_it_is_cut(places: list[int], is_late: bool, after: bytes) -> None:
    reader, buffer, found = HeadReader(), bytearray(), None
    for part in cut((b"\r\n" if is_late else b"") + LAST + after, places):
        buffer += part
        found = found or reader.feed(buffer)
    assert found is not None
    assert (found.path, found.keeps, bytes(buffer)) == ("/tasks", False, after)


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Content-Length: 5", "Content-Length: 5"],
        ["Content-Length: 5, 5"],
        ["Content-Length: +5"],
        ["Content-Length: -1"],
        ["Content-Length: 0x5"],
        ["Content-Length: 5_0"],
        ["Content-Length: ٣"],
        ["Content-Length:"],
        ["Content-Length: " + "9" * 40],
        ["Content-Length : 5"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: identity"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: xchunked"],
        ["X-Folded: a", " Content-Length: 5"],
        ["X-Folded: a", "\tb"],
        [" X: first"],
        ["no colon"],
        [": no name"],
        ["X: a\0b"],
        ["X: a\rContent-Length: 5"],
        ["X: a\nContent-Length: 5"],
        ["Host: twice"],
        ["Na me: x"],
    ],
)
def test_what_two_readers_could_take_differently_is_refused(server: Server, lines: list[str]) -> None:
    """Nothing after it is read as a request: the body could be one."""
    head = "\r\n".join(["POST /task HTTP/1.1", "Host: a", *lines, "", ""])
    with pytest.raises(Refusal):
        parse_head(head.encode()[:-4])
    answered = statuses(server.raw(head.encode() + GET + GET))
    assert len(answered) == 1
    assert answered[0] in (400, 413, 501)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /health HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /health HTTP/2.0\r\nHost: a\r\n\r\n", 400),
        (b"GET  /health HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /health\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\n", 400),  # TLS
        (b"GET /health HTTP/1.1\nHost: a\n\n", 400),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"x" * 40_000, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 100 + b"\r\n", 431),
        (post(b"", "Content-Length: 100001"), 413),
        (post(b"186a1\r\n", "Transfer-Encoding: chunked"), 413),
        (post(b"fffffffff\r\n", "Transfer-Encoding: chunked"), 400),
        (post(b"5\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), 400),
        (post(b"5\r\nhello!\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), 400),
        (post(b"5\r\nhelloXX0\r\n\r\n", "Transfer-Encoding: chunked"), 400),
        (post(b"-5\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), 400),
        (post(b"0\r\nbad trailer\r\n\r\n", "Transfer-Encoding: chunked"), 400),
        (post(b"0\r\n" + b"a: b\r\n" * 2000, "Transfer-Encoding: chunked"), 400),
        (b"POST /task HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (post(b"{}", "Content-Length: 2", "Expect: miracles"), 417),
        (GET.replace(b"/health", b"/ws"), 426),
        (LAST.replace(b"/tasks", b"/nothing"), 404),
        (LAST.replace(b"GET", b"PUT"), 405),
        (LAST.replace(b"GET", b"OPTIONS").replace(b"/tasks", b"*"), 404),
    ],
)
def test_refused_requests_have_their_status(server: Server, request_bytes: bytes, status: int) -> None:
    answer = server.raw(request_bytes)
    assert statuses(answer) == [status]
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert "not JSON" not in error["message"]  # it was refused before anybody looked into it


# ---- bodies

PIECES = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(marks)]


@given(
    PIECES,
    st.sampled_from([b"", b"; a=b", b' ;q="1"']),
    st.booleans(),
    st.lists(st.integers(0, 999)),
    st.binary(),
)
def test_a_chunked_body_is_read_however_it_is_cut(
    pieces: list[bytes], extension: bytes, trailer: bool, places: list[int], after: bytes
) -> None:
    chunks = [b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces]
    end = b"0\r\n" + (b"X-Sum: 1\r\n" if trailer else b"") + b"\r\n"
    body, buffer = ChunkedBody(1000), bytearray()
    for part in cut(b"".join(chunks) + end + after, places):
        buffer += part
        body.feed(buffer)
    assert body.is_whole
    assert bytes(body.data) == b"".join(pieces)
    assert bytes(buffer) == after


@given(st.binary(max_size=100), st.lists(st.integers(0, 999)), st.binary(max_size=20))
def test_a_counted_body_ends_where_it_says(data: bytes, places: list[int], after: bytes) -> None:
    body, buffer = CountedBody(len(data), 100), bytearray()
    for part in cut(data + after, places):
        buffer += part
        body.feed(buffer)
    assert (body.is_whole, bytes(body.data), bytes(buffer)) == (True, data, after)


@given(st.binary(max_size=60))
def test_any_chunked_bytes_are_a_body_or_a_refusal(data: bytes) -> None:
    body, buffer = ChunkedBody(50), bytearray(data)
    with suppress(Refusal):
        body.feed(buffer)
    assert len(body.data) <= 50


def test_chunked_requests_are_taken(server: Server) -> None:
    data = say("chunks")
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in data) + b"0\r\n\r\n"
    with server.connect() as sock:
        sock.sendall(post(chunks, "Transfer-Encoding: Chunked", "Connection: close"))
        assert b'"result":"chunks"' in read_all(sock)


# ---- connections


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    with server.connect() as sock:
        sock.sendall(post(say("one")) + GET + post(say("two")) + b"\r\n" + GET + LAST + GET)
        answer = read_all(sock)
    assert statuses(answer) == [200] * 5
    places = [
        answer.find(part)
        for part in (b'"result":"one"', b'"status":"ok"', b'"result":"two"', b'"waiting":[]')
    ]
    assert places == sorted(places)
    assert min(places) > 0


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 10**6), max_size=8))
def test_requests_are_read_however_they_are_cut(server: Server, places: list[int]) -> None:
    whole = GET + post(b"{}") + GET + post(b"2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked") + LAST
    with server.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in cut(whole, places):
            sock.sendall(part)
        assert statuses(read_all(sock)) == [200, 400, 200, 400, 200]


def test_a_connection_serves_on_after_a_refused_task(server: Server) -> None:
    with server.connect() as sock:
        sock.sendall(post(b"no JSON") + GET.replace(b"/health", b"/task/none") + LAST)
        assert statuses(read_all(sock)) == [400, 404, 200]


def test_a_large_body_that_is_refused_does_not_hide_the_answer(server: Server) -> None:
    with server.connect() as sock:
        sock.sendall(post(b"x" * 150_000))
        assert statuses(read_all(sock)) == [413]


def test_continue_is_said_before_the_body(server: Server) -> None:
    data = say("went on")
    head = ["POST /task HTTP/1.1", "Host: a", f"Content-Length: {len(data)}", "Expect: 100-continue"]
    with server.connect() as sock:
        sock.sendall("\r\n".join([*head, "Connection: close", "", ""]).encode())
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(data)
        assert b'"result":"went on"' in read_all(sock)
    with server.connect() as sock:  # no body is invited that would be refused
        sock.sendall(post(b"", "Content-Length: 100001", "Expect: 100-continue"))
        assert statuses(read_all(sock)) == [413]


def test_slow_requests_are_given_up(tmp_path: Path) -> None:
    with Server(tmp_path, "--head-s", "0.2", "--body-s", "0.2") as server:
        for begun in (b"GET /health HTTP/1.1\r\nHos", post(b"{", "Content-Length: 2"), b"\r\n"):
            with server.connect() as sock:
                sock.sendall(begun)
                assert statuses(read_all(sock)) == [408]


def test_a_request_cut_short_is_not_run(server: Server) -> None:
    counted = server.folder / "cut-short"
    data = json.dumps({"command": "count", "params": [str(counted)]}).encode()
    assert server.raw(post(data, f"Content-Length: {len(data) + 1}")) == b""
    assert server.raw(b"GET /health HTTP/1.1\r\nHost: a\r\n") == b""
    assert not counted.exists()


def test_http_1_0_and_other_forms_are_answered(server: Server) -> None:
    old = server.raw(b"GET /health HTTP/1.0\r\n\r\n" + GET)
    assert statuses(old) == [200]
    assert b"Connection: close" in old
    kept = server.raw(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + LAST)
    assert statuses(kept) == [200, 200]
    assert b"Connection: keep-alive" in kept
    absolute = server.raw(LAST.replace(b"/tasks", b"http://a:80/health?x=1"))
    assert b'"status":"ok"' in absolute
    bare = server.raw(LAST.replace(b"GET", b"HEAD"))
    assert statuses(bare) == [200]
    assert bare.endswith(b"\r\n\r\n")
    assert re.search(rb"Content-Length: [1-9]", bare)


def test_half_closing_still_gets_the_answer_of_a_look(server: Server) -> None:
    assert statuses(server.raw(GET + GET)) == [200, 200]


def test_callers_beyond_the_limit_wait_until_there_is_room(tmp_path: Path) -> None:
    with Server(tmp_path, "--connections", "2") as server:
        fifos = [server.fifo("f"), server.fifo("g")]
        held = [server.follow("hold", fifo) for fifo in fifos]
        for stream in held:
            stream.next("stdout")
        with server.connect() as third:
            third.sendall(LAST)
            Path(fifos[0]).write_text("go\n")
            assert held[0].next("end")["status"] == "done"
            held[0].close()
            assert statuses(read_all(third)) == [200]
        Path(fifos[1]).write_text("go\n")
        assert held[1].next("end")["status"] == "done"
        held[1].close()


def test_an_idle_connection_makes_room_for_a_caller(tmp_path: Path) -> None:
    with Server(tmp_path, "--connections", "1") as server, server.connect() as idle:
        idle.sendall(GET)
        assert statuses(idle.recv(10_000)) == [200]
        assert server.run("say", "in").body["result"] == "in"
        assert idle.recv(1000) == b""


def test_bodies_in_memory_have_a_limit_together(tmp_path: Path) -> None:
    with (
        Server(tmp_path, "--input-bytes", "50000") as server,
        server.follow("hold", server.fifo("f"), stdin="x" * 40_000) as held,
    ):
        held.next("stdout")
        answer = server.run("say", "x", stdin="y" * 20_000)
        assert (answer.status, answer.body["error"]["code"]) == (429, "busy")
        assert server.run("say", "x").status == 200


def test_a_connection_without_a_request_is_closed_after_a_while(tmp_path: Path) -> None:
    with Server(tmp_path, "--quiet-s", "0.05") as server, server.connect() as sock:
        assert read_all(sock) == b""


def test_one_who_never_asks_is_given_no_longer_than_for_a_head(tmp_path: Path) -> None:
    with Server(tmp_path, "--head-s", "0.05") as server, server.connect() as sock:
        assert read_all(sock) == b""


def test_those_who_show_no_key_make_room_for_a_caller(tmp_path: Path) -> None:
    """Anybody on this machine can connect; who has no key keeps nobody out."""
    with Server(tmp_path, "--connections", "3", env={"PENSTOCK_AGENT_KEY": "k"}) as server:
        strangers = [server.connect() for _ in range(3)]
        strangers[1].sendall(b"GET /health HTTP/1.1\r\nHo")
        strangers[2].sendall(GET)
        assert statuses(strangers[2].recv(10_000)) == [401]
        assert server.run("say", "in").body["result"] == "in"
        assert server.health()["status"] == "ok"
        for sock in strangers:
            sock.close()


def test_the_same_id_with_a_table_instead_of_a_list_is_another_task(server: Server) -> None:
    first = server.call("POST", "/task", {"command": "args", "params": {}, "id": "empty"})
    assert first.body["result"] == "<{}>"
    again = server.call("POST", "/task", {"command": "args", "id": "empty"})
    assert (again.status, again.body["error"]["code"]) == (409, "id_taken")


@pytest.mark.parametrize("is_late", [False, True])
def test_one_who_sends_far_more_than_it_asks_for_holds_no_task(server: Server, is_late: bool) -> None:
    """Behind all that it would not be seen that the caller has left."""
    fifo, id = server.fifo(f"much-{is_late}"), f"much-{is_late}"
    asked = post(json.dumps({"command": "hold", "params": [fifo], "id": id}).encode())
    with server.connect() as sock:
        sock.sendall(asked if is_late else asked + b"x" * 600_000)
        if is_late:
            while server.call("GET", f"/task/{id}").status == 404:
                pass
            with suppress(ConnectionError):
                sock.sendall(b"x" * 600_000)
            with Stream(server, "GET", f"/task/{id}") as onlooker:
                assert onlooker.next("end")["status"] == "cancelled"
        else:
            with suppress(ConnectionError):
                assert statuses(read_all(sock)) in ([400], [])
    until = time.monotonic() + PATIENCE_S  # it may have begun before all was there
    while server.health()["running"]:
        assert time.monotonic() < until


async def test_a_caller_that_left_before_its_answer_was_ended_is_no_fault_of_the_server() -> None:
    class Left(asyncio.Transport):
        def can_write_eof(self) -> bool:
            return True

        def write_eof(self) -> None:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    connection = Connection.__new__(Connection)
    connection._is_lost = False
    connection.transport = Left()
    with pytest.raises(agent_server._Lost):
        await connection._linger()


def test_a_folder_of_handlers_that_is_not_there_is_told(tmp_path: Path) -> None:
    with Server(tmp_path, "--handlers", str(tmp_path / "nowhere")) as server:
        status, said = server.stop()
    assert status == 0
    assert said == (
        f"agent-server: there are no handlers: {tmp_path}/nowhere is no folder; name another with --handlers\n"
    )
