"""The quick client believes nothing: what lies, drips, hangs or never ends is one clear error within its time."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from penstock.agents.quick.plain_http import Connection, Cut, Nonsense, NotReached, TooSlow
from tests.unit.scripted_server import Script, chunked, hangs, head, request_of, says, scripted


def body_of(script: Script, most_bytes: int = 1_000_000) -> bytes:
    with scripted(script) as server, Connection(server.address) as connection:
        return connection.ask("GET", "/").body(most_bytes)


def lines_of(script: Script, most_bytes: int = 1_000_000) -> list[bytes]:
    with scripted(script) as server, Connection(server.address) as connection:
        return list(connection.ask("GET", "/").lines(most_bytes))


CHUNKED = head(200, "Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (head(200, "Content-Length: 5") + b"hello", b"hello"),
        (head(200, "Content-Length: 5") + b"hello and more", b"hello"),
        (head(200) + b"to the end", b"to the end"),
        (CHUNKED + chunked(b"he", b"llo"), b"hello"),
        (CHUNKED + b"5;name=value\r\nhello\r\n0\r\nTrailer: x\r\n\r\n", b"hello"),
        (head(204, "Content-Length: 5"), b""),
        (head(100) + head(200, "content-length:2") + b"ok", b"ok"),
    ],
)
def test_bodies_are_read_as_they_are_sent(answer: bytes, body: bytes) -> None:
    assert body_of(says(answer)) == body


def test_lines_come_whole_however_they_are_cut() -> None:
    answer = CHUNKED + chunked(b"on", b"e\ntwo\nthr", b"ee", b"\n")
    assert lines_of(says(answer)) == [b"one", b"two", b"three"]


def test_a_line_without_an_end_is_none() -> None:
    assert lines_of(says(CHUNKED + chunked(b"one\ntwo"))) == [b"one"]


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (b"", Cut, "before it answered"),
        (b"HTTP/1.1 200 OK\r\nContent-", Cut, "before it answered"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", Nonsense, "no HTTP"),
        (b"HTTP/1.1 2xx OK\r\n\r\n", Nonsense, "no HTTP"),
        (head(200, "no colon here"), Nonsense, "no HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, Nonsense, "no end|line of over"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000, Nonsense, "line of over"),
        (head(200, "Content-Length: 50") + b"short", Cut, "middle"),
        (head(200, "Content-Length: -5") + b"short", Nonsense, "a length of"),
        (head(200, "Content-Length: 99999999999999999999") + b"short", Nonsense, "a length of"),
        (head(200, "Content-Length: 2000000") + b"x" * 2_000_000, Nonsense, "over 1000000 bytes"),
        (head(200, "Transfer-Encoding: gzip") + b"x", Nonsense, "gzip"),
        (CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n", Nonsense, "length of"),
        (CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n", Nonsense, "length of"),
        (CHUNKED + b"\r\nhello\r\n0\r\n\r\n", Nonsense, "length of"),
        (CHUNKED + b"fffffffff\r\nhello\r\n0\r\n\r\n", Nonsense, "length of"),
        (CHUNKED + b"3\r\nhello\r\n0\r\n\r\n", Nonsense, "over 2 bytes"),
        (CHUNKED + b"9\r\nhello\r\n", Cut, "middle"),
        (CHUNKED + b"5\r\nhello\r\n", Cut, "middle"),
    ],
)
def test_lies_are_found(answer: bytes, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        body_of(says(answer))


def test_a_line_without_end_costs_no_more_than_it_may() -> None:
    with pytest.raises(Nonsense, match="line of over 1000 bytes"):
        lines_of(says(CHUNKED + chunked(*[b"x" * 600] * 3)), most_bytes=1000)


def test_who_sends_no_head_is_given_up() -> None:
    let_go = threading.Event()
    with scripted(hangs(let_go, b"HTTP/1.1 200 OK\r\n")) as server:
        with Connection(server.address) as connection, pytest.raises(TooSlow):
            connection.ask("GET", "/", head_s=0.05)
        let_go.set()


def test_a_head_that_drips_is_given_up() -> None:
    over = threading.Event()

    def drips(connection: socket.socket, request: bytes) -> None:
        while not over.wait(0.005):
            connection.sendall(b"H" if not request else b"X")

    with scripted(drips) as server:
        with Connection(server.address) as connection, pytest.raises(TooSlow):
            connection.ask("GET", "/", head_s=0.1)
        over.set()


def test_silence_in_a_body_is_looked_into() -> None:
    let_go = threading.Event()
    asked: list[int] = []

    def look() -> None:
        asked.append(1)
        if len(asked) == 3:
            raise TooSlow("is dead")

    with scripted(hangs(let_go, CHUNKED)) as server:
        with Connection(server.address, silence_s=0.01) as connection:
            reply = connection.ask("GET", "/")
            connection.when_silent(look)
            with pytest.raises(TooSlow, match="is dead"):
                reply.body(10)
        let_go.set()
    assert len(asked) == 3


def test_without_anybody_to_look_silence_ends_it() -> None:
    let_go = threading.Event()
    with scripted(hangs(let_go, CHUNKED)) as server:
        with Connection(server.address, silence_s=0.01) as connection:
            reply = connection.ask("GET", "/")
            with pytest.raises(TooSlow):
                reply.body(10)
        let_go.set()


def test_an_answer_that_comes_before_the_request_was_read_is_heard() -> None:
    """A server may refuse a body for its size, answer, and close."""

    def refuses(connection: socket.socket, request: bytes) -> None:
        connection.sendall(head(413, "Content-Length: 8") + b"too much")

    with scripted(refuses) as server, Connection(server.address) as connection:
        reply = connection.ask("POST", "/", body=b"x" * 100)
        assert (reply.status, reply.body(100)) == (413, b"too much")


def test_nobody_there_is_told_apart_from_a_cut() -> None:
    with scripted(says(b"")) as server:
        address = server.address
    with pytest.raises(NotReached, match="refuses connections"):
        Connection(address)


def test_a_unix_socket_that_is_not_there_is_not_reached(tmp_path: Path) -> None:
    with pytest.raises(NotReached):
        Connection(str(tmp_path / "none.sock"))


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:port", "127.0.0.1:99999999"])
def test_an_address_that_is_none_is_not_reached(address: str) -> None:
    with pytest.raises(NotReached):
        Connection(address)


def test_requests_are_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    got: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            got.append(request_of(connection))
            connection.sendall(head(200, "Content-Length: 0"))

    thread = threading.Thread(target=serve)
    thread.start()
    with Connection(path) as connection:
        assert connection.ask("POST", "/x", {"A": "b"}, b"body").status == 200
    thread.join(10)
    listener.close()
    lines = got[0].split(b"\r\n")
    assert lines[0] == b"POST /x HTTP/1.1"
    assert {b"Host: localhost", b"A: b", b"Connection: close", b"Content-Length: 4"} < set(lines)
    assert lines[-1] == b"body"
