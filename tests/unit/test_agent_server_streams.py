"""Streams of the agent server: output in order and whole, characters never cut, WebSocket frames as they come."""

from __future__ import annotations

import base64
import itertools
import json
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from penstock.agents.agent_server import (
    CLOSE,
    PING,
    STDERR,
    STDOUT,
    TEXT,
    Cursor,
    Frames,
    Output,
    WebSocketFault,
    cut_utf8,
    frame,
    text_or_base64,
    unmasked,
)
from tests.unit.agent_server_rig import PATIENCE_S, Server, Stream, printed, read_all

KINDS = st.sampled_from([STDOUT, STDERR])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = ("--kill-s", "0.2", "--body-bytes", "100000")
    with Server(tmp_path_factory.mktemp("agent"), *limits) as running:
        running.write("ask.sh", '#!/bin/sh\nwhile read line; do echo "got $line"; done; echo over\n')
        running.write(
            "both.sh",
            '#!/bin/sh\ni=0; while [ $i -lt "$1" ]; do echo "o$i"; echo "e$i" >&2; i=$((i+1)); done\n',
        )
        yield running
        assert running.stop() == (0, "")


# ---- characters and order


@given(st.text("aäߘ€語😀\0", max_size=30), st.lists(st.integers(0, 200)))
def test_text_is_never_cut_inside_a_character(text: str, places: list[int]) -> None:
    data = text.encode()
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    pieces, carry = [], b""
    for start, end in itertools.pairwise(marks):
        whole, carry = cut_utf8(carry + data[start:end])
        pieces.append(whole.decode())  # raises where a character was cut
    assert ("".join(pieces), carry) == (text, b"")


@given(st.binary(max_size=40))
def test_no_byte_is_lost_by_cutting(data: bytes) -> None:
    whole, carry = cut_utf8(data)
    assert whole + carry == data
    assert len(carry) < 4
    form, text = text_or_base64(data)
    assert (text.encode() if form == "data" else base64.b64decode(text)) == data


@given(st.lists(st.tuples(KINDS, st.binary(min_size=1, max_size=12), st.booleans()), max_size=40))
def test_followers_read_all_in_order_at_their_own_pace(steps: list[tuple[str, bytes, bool]]) -> None:
    output = Output(10_000, 10_000)
    eager, late = Cursor(output), Cursor(output)
    seen: list[tuple[str, bytes]] = []
    for kind, data, looks in steps:
        assert output.add(kind, data)
        if looks:
            seen += eager.take(5)
    output.close()
    for cursor, told in ((eager, seen), (late, [])):
        while not cursor.is_at_end:
            told += cursor.take(7)
        told += cursor.rest()
        for kind in (STDOUT, STDERR):
            written = b"".join(data for of, data, _ in steps if of == kind)
            assert b"".join(data for of, data in told if of == kind) == written
    if all(
        byte < 0x80 for _, data, _ in steps for byte in data
    ):  # no character is held back: the order is exact
        assert joined(seen) == joined([(kind, data) for kind, data, _ in steps])


def joined(pieces: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    runs: list[tuple[str, bytes]] = []
    for kind, data in pieces:
        if runs and runs[-1][0] == kind:
            runs[-1] = kind, runs[-1][1] + data
        else:
            runs.append((kind, data))
    return runs


def test_single_bytes_in_turns_take_no_more_memory_than_the_limit() -> None:
    output, number = Output(100_000, 1000), 0
    while output.add(STDOUT if number % 2 else STDERR, b"x"):
        number += 1
    assert output.size_bytes < 400_000


def test_a_follower_who_is_late_misses_only_what_was_let_go() -> None:
    output = Output(1000, 1000)
    cursor = Cursor(output)
    for number in range(2000):
        output.add(STDERR, b"%099d\n" % number)
    assert output.size_bytes < 80_000
    output.add(STDOUT, b"out")
    output.close()
    told: list[tuple[str, bytes]] = []
    while not cursor.is_at_end:
        told += cursor.take(10**6)
    assert joined(told) == [(STDERR, bytes(output.stderr)), (STDOUT, b"out")]
    assert output.is_cut
    assert len(output.stderr) == 1000
    assert output.stderr.endswith(b"1999\n")


# ---- streams on a real server


def test_a_stream_has_all_lines_in_order(server: Server) -> None:
    with server.follow("both", 300, id="both") as stream:
        assert stream.response.getheader("Content-Type") == "application/x-ndjson"
        lines = list(stream)
    assert [line["type"] for line in (lines[0], lines[1], lines[-1])] == ["accepted", "started", "end"]
    assert printed(lines) == "".join(f"o{number}\n" for number in range(300))
    assert printed(lines, "stderr") == "".join(f"e{number}\n" for number in range(300))
    end = lines[-1]
    assert (end["status"], end["exit"], end["http"], end["truncated"]) == ("done", 0, 200, False)
    assert "result" not in end
    with Stream(server, "GET", "/task/both") as again:
        replayed = list(again)
    assert (printed(replayed), printed(replayed, "stderr")) == (printed(lines), printed(lines, "stderr"))
    assert replayed[-1] == end


def test_output_is_told_while_the_handler_runs(server: Server) -> None:
    fifo = server.fifo("live")
    with server.follow("hold", fifo) as stream:
        assert stream.next("stdout")["data"] == "held\n"
        Path(fifo).write_text("zwölf\n")
        assert stream.next("stdout")["data"] == "zwölf\n"
        assert stream.next("end")["status"] == "done"


def test_characters_and_bytes_are_told_as_such(server: Server) -> None:
    fifo = server.fifo("cut")
    server.write(
        "cut.sh", "#!/bin/sh\nprintf 'a\\303'; read x < \"$1\"; printf '\\244\\n'; printf '\\377' >&2\n"
    )
    with server.follow("cut", fifo) as stream:
        assert stream.next("stdout")["data"] == "a"
        Path(fifo).write_text("go\n")
        lines = list(stream)
    assert printed(lines) == "ä\n"
    assert [line["base64"] for line in lines if line["type"] == "stderr"] == ["/w=="]


def test_an_unfinished_character_at_the_end_is_told_as_bytes(server: Server) -> None:
    server.write("half.sh", "#!/bin/sh\nprintf 'x\\303'\n")
    with server.follow("half") as stream:
        lines = [line for line in stream if line["type"] == "stdout"]
    assert lines == [{"type": "stdout", "data": "x"}, {"type": "stdout", "base64": "ww=="}]


def test_a_large_stream_is_whole(server: Server) -> None:
    server.write("large.sh", "#!/bin/sh\nhead -c 3000000 /dev/zero | tr '\\0' '\\303' ; printf '\\244'\n")
    with server.follow("large") as stream:
        told = [line for line in stream if line["type"] == "stdout"]
    data = b"".join(
        line["data"].encode() if "data" in line else base64.b64decode(line["base64"]) for line in told
    )
    assert (len(data), set(data), data[-1]) == (3_000_001, {0xC3, 0xA4}, 0xA4)


def test_http_1_0_gets_its_stream_up_to_the_close(server: Server) -> None:
    body = b'{"command": "say", "params": ["old"]}'
    with server.connect() as sock:
        sock.sendall(
            b"POST /task HTTP/1.0\r\nAccept: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        head, _, lines = read_all(sock).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert [json.loads(line)["type"] for line in lines.splitlines()] == [
        "accepted",
        "started",
        "stdout",
        "end",
    ]


def test_a_refused_task_is_no_stream(server: Server) -> None:
    with server.follow("nothing") as stream:
        assert stream.response.status == 404


def test_a_caller_who_does_not_read_is_cut_off_and_its_task_cancelled(tmp_path: Path) -> None:
    with Server(tmp_path, "--stall-s", "0.2") as server:
        server.write("flood.sh", FLOOD)
        fifo, ending = server.fifo("f"), server.fifo("g")
        body = json.dumps({"command": "flood", "params": [fifo, ending]}).encode()
        with server.connect() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            head = f"POST /task HTTP/1.1\r\nHost: a\r\nAccept: application/x-ndjson\r\nContent-Length: {len(body)}"
            sock.sendall(head.encode() + b"\r\n\r\n" + body)
            sock.recv(10)
            cut_off = select.poll()
            cut_off.register(sock, 0)  # an end that comes without being read
            assert cut_off.poll(PATIENCE_S * 1000)
            assert Path(ending).read_text() == "told to stop\n"


FLOOD = """#!/bin/sh
trap 'echo told to stop > "$2"; exit' TERM
head -c 9000000 /dev/zero
while :; do read line < "$1"; done
"""


# ---- WebSocket frames

MASK = st.binary(min_size=4, max_size=4)


def client_frame(opcode: int, data: bytes, mask: bytes = b"\1\2\3\4", is_last: bool = True) -> bytes:
    made = bytearray(frame(opcode, data))
    made[0] = (0x80 if is_last else 0) | opcode
    made[1] |= 0x80
    start = len(made) - len(data)
    return bytes(made[:start]) + mask + unmasked(data, mask)


@given(st.binary(max_size=300), MASK)
def test_masking_is_exclusive_or(data: bytes, mask: bytes) -> None:
    assert unmasked(data, mask) == bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))


@given(
    st.lists(
        st.tuples(st.lists(st.binary(max_size=70_000 // 300), min_size=1, max_size=4), MASK, st.booleans()),
        max_size=5,
    ),
    st.lists(st.integers(0, 10**6), max_size=20),
)
def test_messages_are_put_together_however_they_come(
    messages: list[tuple[list[bytes], bytes, bool]], places: list[int]
) -> None:
    sent, expected = b"", []
    for parts, mask, has_ping in messages:
        for number, part in enumerate(parts):
            sent += client_frame(TEXT if number == 0 else 0, part, mask, number == len(parts) - 1)
            if has_ping and number == 0:
                sent += client_frame(PING, b"p", mask)
        expected.append((TEXT, b"".join(parts)))
    marks = sorted({place % (len(sent) + 1) for place in places} | {0, len(sent)})
    frames, buffer, heard = Frames(10_000), bytearray(), []
    for start, end in itertools.pairwise(marks):
        buffer += sent[start:end]
        heard += list(frames.feed(buffer))
    assert [message for message in heard if message[0] != PING] == expected
    assert sum(message == (PING, b"p") for message in heard) == sum(has_ping for _, _, has_ping in messages)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(TEXT, b"not masked"), 1002),
        (client_frame(3, b""), 1002),
        (b"\xc1\x80\0\0\0\0", 1002),  # a reserved bit
        (client_frame(0, b"goes on before it began"), 1002),
        (client_frame(TEXT, b"a", is_last=False) + client_frame(TEXT, b"b"), 1002),
        (client_frame(PING, b"x" * 126), 1002),
        (client_frame(CLOSE, b"", is_last=False), 1002),
        (b"\x81\xff" + struct.pack(">Q", 1 << 62) + b"mask", 1009),
        (b"\x81\xff" + struct.pack(">Q", 1 << 63) + b"mask", 1009),
        (client_frame(TEXT, b"x" * 600, is_last=False) + client_frame(0, b"x" * 600), 1009),
    ],
)
def test_frames_against_the_rules_end_the_connection(sent: bytes, code: int) -> None:
    with pytest.raises(WebSocketFault) as fault:
        list(Frames(1000).feed(bytearray(sent)))
    assert fault.value.code == code


@given(st.binary(max_size=40))
def test_any_bytes_are_frames_or_a_fault(data: bytes) -> None:
    buffer, frames = bytearray(data), Frames(100)
    try:
        size = sum(len(message) for _, message in frames.feed(buffer))
    except WebSocketFault as fault:
        size = 0
        assert str(fault)  # noqa: PT017
    assert size <= len(data)


# ---- WebSocket on a real server


def opened(server: Server) -> Connection:
    return connect(
        server.where.replace("http:", "ws:") + "/ws", open_timeout=PATIENCE_S, close_timeout=PATIENCE_S
    )


def ask(socket: Connection, **message: Any) -> None:
    socket.send(json.dumps(message))


def hear(socket: Connection, type: str) -> list[dict[str, Any]]:
    """What comes, up to a message of this type."""
    heard = []
    while True:
        heard.append(json.loads(socket.recv(PATIENCE_S)))
        if heard[-1]["type"] == type:
            return heard


def test_tasks_follow_each_other_on_one_websocket(server: Server) -> None:
    with opened(server) as socket:
        for word in ("one", "zwö", "x" * 90_000):
            ask(socket, command="say", params=[word[:100]], stdin=word)
            lines = hear(socket, "end")
            assert [line["type"] for line in lines] == ["accepted", "started", "stdout", "end"]
            assert printed(lines) == word[:100]
        ask(socket, command="fail")
        end = hear(socket, "end")[-1]
        assert (end["status"], end["exit"], end["http"]) == ("failed", 3, 500)


def test_fragments_and_pings_are_understood(server: Server) -> None:
    with opened(server) as socket:
        socket.send(['{"comm', 'and": "cat", "st', 'din": "ä"}'])
        assert socket.ping("are you there").wait(PATIENCE_S)
        assert printed(hear(socket, "end")) == "ä"


def test_an_interactive_handler_is_talked_to(server: Server) -> None:
    with opened(server) as socket:
        ask(socket, command="ask", interactive=True, stdin="first\n")
        assert hear(socket, "stdout")[-1]["data"] == "got first\n"
        ask(socket, stdin="second\n")
        assert hear(socket, "stdout")[-1]["data"] == "got second\n"
        ask(socket, stdin="third\n", stdin_close=True)
        assert printed(hear(socket, "end")) == "got third\nover\n"


def test_cancel_on_a_websocket_ends_its_task(server: Server) -> None:
    with opened(server) as socket:
        ask(socket, command="hold", params=[server.fifo("ws-cancel")])
        hear(socket, "stdout")
        ask(socket, cancel=True)
        assert hear(socket, "end")[-1]["status"] == "cancelled"
        ask(socket, command="say", params=["still here"])
        assert printed(hear(socket, "end")) == "still here"


def test_closing_a_websocket_cancels_its_task(server: Server) -> None:
    with opened(server) as socket:
        ask(socket, command="hold", params=[server.fifo("ws-close")], id="ws-close")
        hear(socket, "stdout")
    with Stream(server, "GET", "/task/ws-close") as onlooker:
        assert onlooker.next("end")["status"] == "cancelled"


def test_wrong_messages_are_told_and_the_connection_stays(server: Server) -> None:
    with opened(server) as socket:
        for message, status, code in (
            ("no JSON", 400, "bad_request"),
            ("[]", 400, "bad_request"),
            ("{}", 409, "no_task"),
            ('{"cancel": true}', 409, "no_task"),
            ('{"command": "nothing"}', 404, "unknown_command"),
            ('{"command": "say", "env": {}}', 400, "bad_request"),
        ):
            socket.send(message)
            told = hear(socket, "error")[-1]
            assert (told["http"], told["error"]["code"]) == (status, code)
        ask(socket, command="hold", params=[server.fifo("ws-wrong")])
        hear(socket, "stdout")
        for message, code in (
            ('{"command": "say"}', "task_running"),
            ('{"stdin": "x"}', "bad_request"),
            ('{"stdin": 1}', "bad_request"),
            ('{"other": 1}', "bad_request"),
        ):
            socket.send(message)
            assert hear(socket, "error")[-1]["error"]["code"] == code
        ask(socket, cancel=True)
        hear(socket, "end")


@pytest.mark.parametrize(
    ("sent", "code"), [(b"binary", 1003), ("x" * 100_001, 1009), (["x" * 60_000, "y" * 60_000], 1009)]
)
def test_messages_that_cannot_be_taken_close_with_a_reason(server: Server, sent: Any, code: int) -> None:
    with opened(server) as socket:
        with suppress(ConnectionClosed):  # it may be closed while the rest is being sent
            socket.send(sent)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(PATIENCE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == code


def test_text_that_is_no_utf8_closes_the_connection(server: Server) -> None:
    upgrade = (
        b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with server.connect() as sock:
        sock.sendall(upgrade + client_frame(TEXT, b"\xff"))
        head, _, rest = read_all(sock).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
    assert rest[:4] == bytes([0x80 | CLOSE, len(rest) - 2]) + (1007).to_bytes(2, "big")


def test_a_websocket_needs_the_key(tmp_path: Path) -> None:
    with Server(tmp_path, env={"PENSTOCK_AGENT_KEY": "k"}) as server:
        with pytest.raises(InvalidStatus, match="401"):
            opened(server)
        address = server.where.replace("http:", "ws:") + "/ws"
        with connect(address, additional_headers={"Authorization": "Bearer k"}) as socket:
            ask(socket, command="say", params=["in"])
            assert printed(hear(socket, "end")) == "in"


def test_a_websocket_on_which_nothing_happens_is_closed_but_not_under_a_task(tmp_path: Path) -> None:
    with Server(tmp_path, "--quiet-s", "1") as server, opened(server) as socket:
        ask(socket, command="hold", params=[server.fifo("f")], timeout_s=1.3)
        assert hear(socket, "end")[-1]["status"] == "time_over"
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(PATIENCE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001


def test_messages_that_are_not_whole_count_as_what_is_in_memory(tmp_path: Path) -> None:
    upgrade = (
        b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    part = bytes([TEXT, 0x80 | 126]) + (60_000).to_bytes(2, "big") + bytes(4) + b"x" * 60_000
    with Server(tmp_path, "--input-bytes", "50000") as server:
        with server.connect() as sock:
            sock.sendall(upgrade + part)
            head, _, told = read_all(sock).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert (told[0], int.from_bytes(told[2:4], "big")) == (0x80 | CLOSE, 1013)
        assert server.run("say", "in", stdin="y" * 40_000).body["result"] == "in"
