"""B4, B6: a command's bytes and exit status are its own; whatever a container does wrong has one clear end."""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

import pytest

from penstock.agents.endpoints import READY, Endpoint
from penstock.agents.quick import answers, direct_call
from penstock.agents.quick.answers import Ended, NothingRan
from penstock.agents.quick.direct_call import Asked, NotThere
from penstock.errors import AgentError, AgentLost, UsageError
from tests.unit.scripted_server import Script, ScriptedServer, chunked, hangs, head, says, scripted

PROOF = "proof-of-this-one"
PROVEN = f"X-Penstock-Proof: {PROOF}"
STREAM = head(200, PROVEN, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked")
HEALTHY = says(head(200, PROVEN, "Content-Length: 2") + b"{}")
DEAD = says(b"")


def endpoint_at(address: str) -> Endpoint:
    return Endpoint("i1", "c1", "f1", address, "key-of-callers", PROOF, READY, 0.0)


class Output:
    def __init__(self) -> None:
        self.bytes = {1: b"", 2: b""}

    def write(self, file: int, data: bytes) -> None:
        self.bytes[file] += data


def asked(output: Output, **more: Any) -> Asked:
    return Asked("reports", "render", ["a"], id="t1", to=output.write, **more)


def called(*scripts: Script, output: Output | None = None, **more: Any) -> Ended:
    with scripted(*scripts) as server:
        return direct_call.call(asked(output or Output(), **more), endpoint_at(server.address), "/health")


def events(*lines: dict[str, Any]) -> bytes:
    return chunked(*(json.dumps(line).encode() + b"\n" for line in lines))


def whole(status: int, document: Any, *lines: str) -> Script:
    body = json.dumps(document).encode()
    return says(head(status, PROVEN, f"Content-Length: {len(body)}", *lines) + body)


def refused(status: int, code: str, message: str = "because", *lines: str) -> Script:
    return whole(status, {"error": {"code": code, "message": message}}, *lines)


# ---- what a command did


def test_b6_output_comes_as_it_was_written() -> None:
    output = Output()
    odd = bytes(range(256))
    lines: list[dict[str, Any]] = [
        {"type": "accepted", "id": "t1"},
        {"type": "started", "id": "t1"},
        {"type": "stdout", "data": "grün\n"},
        {"type": "stdout", "base64": base64.b64encode(odd).decode()},
        {"type": "stderr", "data": "no end of line"},
        {"type": "something of a later version"},
        {"type": "end", "status": "done", "exit": 0, "duration_s": 1.5, "waited_s": 0.5},
    ]
    ended = called(says(STREAM + events(*lines)), output=output)
    assert ended.status == 0
    assert ended.spent_s == 2.0
    assert output.bytes == {1: "grün\n".encode() + odd, 2: b"no end of line"}


@pytest.mark.parametrize(
    ("end", "status", "told"),
    [
        ({"status": "done", "exit": 0}, 0, None),
        ({"status": "failed", "exit": 3, "error": {"code": "handler_failed", "exit": 3}}, 3, None),
        ({"status": "failed", "error": {"code": "handler_failed", "exit": 75}}, 75, None),
        ({"status": "failed", "exit": 256}, 1, None),
        ({"status": "failed", "signal": 9, "error": {"code": "handler_failed"}}, 137, "signal 9"),
        (
            {"status": "failed", "error": {"code": "output_too_large", "message": "over", "signal": 9}},
            137,
            "over",
        ),
        (
            {"status": "time_over", "signal": 15, "error": {"code": "time_over", "message": "after 2 s"}},
            124,
            "2 s",
        ),
        ({"status": "cancelled", "signal": 15}, 143, "cancelled"),
        (
            {"status": "failed", "error": {"code": "no_program", "message": "cannot\nstart"}},
            3,
            "cannot start",
        ),
        ({"status": "who knows"}, 3, "who knows"),
        ({"status": "failed", "exit": True}, 3, "failed"),
    ],
)
def test_b4_exit_statuses_are_the_commands_own(end: dict[str, Any], status: int, told: str | None) -> None:
    ended = called(says(STREAM + events({"type": "end", **end})))
    assert ended.status == status
    assert (told is None) == (ended.message is None)
    assert told is None or told in str(ended.message)


def test_a_whole_answer_is_made_of_the_stream() -> None:
    output = Output()
    printed = '{"n": 1e400,\n "x": [1.10]}\n'
    lines: list[dict[str, Any]] = [
        {"type": "stdout", "data": printed[:5]},
        {"type": "stdout", "data": printed[5:]},
        {"type": "stderr", "data": "warning"},
        {"type": "end", "id": "t1", "status": "done", "exit": 0, "http": 200},
    ]
    ended = called(says(STREAM + events(*lines)), output=output, as_json=True)
    line = answers.line(ended.document)
    assert b'"result": {"n": 1e400,  "x": [1.10]}' in line  # numbers are as they were printed
    assert line.count(b"\n") == 1
    told = json.loads(line)
    assert (told["id"], told["format"], told["stderr"], told["exit"]) == ("t1", "json", "warning", 0)
    assert output.bytes == {1: b"", 2: b""}


@pytest.mark.parametrize(
    ("event", "form", "result"),
    [
        ({"data": "plain"}, "text", "plain"),
        ({"data": "NaN"}, "text", "NaN"),
        (
            {"base64": base64.b64encode(b"\xff\xfe").decode()},
            "base64",
            base64.b64encode(b"\xff\xfe").decode(),
        ),
    ],
)
def test_results_that_are_no_json(event: dict[str, str], form: str, result: str) -> None:
    lines: list[dict[str, Any]] = [{"type": "stdout", **event}, {"type": "end", "status": "done", "exit": 0}]
    told = json.loads(answers.line(called(says(STREAM + events(*lines)), as_json=True).document))
    assert (told["format"], told["result"]) == (form, result)


def test_a_failure_as_a_document_has_its_output() -> None:
    lines: list[dict[str, Any]] = [
        {"type": "stdout", "data": "half"},
        {"type": "stderr", "data": "broken"},
        {"type": "end", "status": "failed", "exit": 4, "error": {"code": "handler_failed", "exit": 4}},
    ]
    ended = called(says(STREAM + events(*lines)), as_json=True)
    assert ended.status == 4
    error = json.loads(answers.line(ended.document))["error"]
    assert (error["stdout"], error["stderr"], error["code"]) == ("half", "broken", "handler_failed")


def test_an_answer_in_one_piece_is_taken_too() -> None:
    """Servers that know no streams."""
    output = Output()
    assert called(whole(200, {"status": "done", "result": "text", "stderr": "w"}), output=output).status == 0
    assert output.bytes == {1: b"text", 2: b"w"}
    output = Output()
    error = {"code": "handler_failed", "exit": 7, "stdout": "out", "stderr": "err"}
    assert called(whole(500, {"status": "failed", "error": error}), output=output).status == 7
    assert output.bytes == {1: b"out", 2: b"err"}


# ---- nothing was run


@pytest.mark.parametrize("code", ["draining", "busy", "unauthorized"])
def test_what_was_not_taken_in_says_so(code: str) -> None:
    with pytest.raises(NothingRan) as caught:
        called(refused(503, code, "come later", "Retry-After: 2"))
    assert (caught.value.code, caught.value.retry_after_s) == (code, 2.0)


@pytest.mark.parametrize("code", ["unknown_command", "bad_request", "too_large", "id_taken"])
def test_wrong_use_is_told_as_such(code: str) -> None:
    with pytest.raises(UsageError, match="did you mean render"):
        called(refused(404, code, "no command 'rendr'; did you mean render?"))


def test_other_refusals_are_the_agents() -> None:
    with pytest.raises(AgentError, match="out of paper"):
        called(refused(500, "no_paper", "out of paper"))


@pytest.mark.parametrize(
    "answer",
    [
        head(200, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked")
        + events({"type": "stdout", "data": "not mine"}, {"type": "end", "status": "done"}),
        head(200, "X-Penstock-Proof: another", "Content-Length: 2") + b"{}",
        head(302, "Location: http://127.0.0.1:1/", "Content-Length: 0"),
    ],
    ids=["no proof", "another proof", "a redirect"],
)
def test_what_cannot_prove_itself_is_not_believed(answer: bytes) -> None:
    output = Output()
    with pytest.raises(NotThere):
        called(says(answer), output=output)
    assert output.bytes == {1: b"", 2: b""}


def test_a_refused_connection_is_not_there() -> None:
    with scripted(DEAD) as server:
        address = server.address
    with pytest.raises(NotThere, match="refuses"):
        direct_call.call(asked(Output()), endpoint_at(address), "/health")


def test_a_plain_server_needs_no_proof() -> None:
    body = b'{"status": "done", "result": [1]}'
    output = Output()
    with scripted(says(head(200, f"Content-Length: {len(body)}") + body)) as server:
        ended = direct_call.call(asked(output), endpoint_at(server.address), "/health", plain=True)
    assert (ended.status, output.bytes[1]) == (0, b"[1]\n")


# ---- it may have run


def test_a_stream_without_its_end_was_cut() -> None:
    cut = STREAM + events({"type": "accepted"}, {"type": "stdout", "data": "half"})
    output = Output()
    with pytest.raises(AgentLost, match=r"agents\.reports: .*'render' may have run.*agent logs reports"):
        called(says(cut), output=output)
    assert output.bytes[1] == b"half"


@pytest.mark.parametrize(
    "after",
    [b"7\r\nnot", b"zz\r\n", b"", chunked(b"no json\n"), chunked(b"[1]\n"), chunked(b'{"type": "stdout"}\n')],
    ids=["short", "no length", "nothing", "no JSON", "no table", "no data"],
)
def test_nonsense_after_acceptance_is_a_lost_agent(after: bytes) -> None:
    with pytest.raises(AgentLost):
        called(says(STREAM + after))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("answer", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"])
def test_an_answer_that_is_no_http_may_come_from_the_container_that_ran_it(
    answer: bytes, plain: bool
) -> None:
    """B4: it is not sent again, there or elsewhere."""
    with scripted(says(answer), says(b"")) as server:
        with pytest.raises(AgentLost, match=r"no HTTP.*'render' may have run.*agent logs reports"):
            direct_call.call(asked(Output()), endpoint_at(server.address), "/health", plain=plain)
        assert [one.split()[0] for one in server.requests] == [b"POST", b"DELETE"]


def test_a_request_without_an_answer_is_sent_once_more_to_the_same_container() -> None:
    """The same id runs once there."""
    done = says(STREAM + events({"type": "end", "status": "done", "exit": 0}))
    with scripted(DEAD, HEALTHY, done) as server:
        assert direct_call.call(asked(Output()), endpoint_at(server.address), "/health").status == 0
        first, _, second = server.requests
    assert first == second
    assert b'"id": "t1"' in first


def test_no_answer_from_a_container_that_is_gone_is_lost() -> None:
    with pytest.raises(AgentLost, match="may have run"):
        called(DEAD)


def test_who_falls_silent_and_does_not_answer_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_call, "SILENCE_S", 0.02)
    monkeypatch.setattr(direct_call, "HEALTH_S", 0.02)
    let_go = threading.Event()
    with scripted(hangs(let_go, STREAM), hangs(let_go)) as server:
        with pytest.raises(AgentLost, match="does not answer any more"):
            direct_call.call(asked(Output()), endpoint_at(server.address), "/health")
        let_go.set()


def test_who_is_only_silent_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_call, "SILENCE_S", 0.02)
    asked_often = threading.Event()
    seen: list[ScriptedServer] = []

    def quiet(connection: Any, request: bytes) -> None:
        connection.sendall(STREAM)
        asked_often.wait(30)
        connection.sendall(events({"type": "end", "status": "done", "exit": 0}))

    def healthy(connection: Any, request: bytes) -> None:
        HEALTHY(connection, request)
        if len(seen[0].requests) > 3:
            asked_often.set()

    with scripted(quiet, healthy) as server:
        seen.append(server)
        assert direct_call.call(asked(Output()), endpoint_at(server.address), "/health").status == 0


def test_an_interrupt_cancels_in_the_container() -> None:
    class Interrupting(Output):
        def write(self, file: int, data: bytes) -> None:
            raise KeyboardInterrupt

    ok = says(head(200, PROVEN, "Content-Length: 0"))
    with scripted(says(STREAM + events({"type": "stdout", "data": "x"})), ok) as server:
        with pytest.raises(KeyboardInterrupt):
            direct_call.call(asked(Interrupting()), endpoint_at(server.address), "/health")
        assert server.requests[1].startswith(b"DELETE /task/t1 HTTP/1.1\r\n")
        assert b"Authorization: Bearer key-of-callers" in server.requests[1]


def test_texts_of_an_agent_are_one_line_of_ours() -> None:
    message = "red \x1b[31m alert\n\nand\tmore" + "x" * 10_000
    with pytest.raises(AgentError) as caught:
        called(refused(500, "odd", message))
    told = str(caught.value)
    assert told.isprintable()
    assert len(told) < 2_100


@pytest.mark.parametrize(
    "end",
    [
        {"duration_s": 10**400},
        {"duration_s": float("inf"), "waited_s": float("nan")},
        {"duration_s": [1], "waited_s": "2"},
        {"duration_s": -1, "waited_s": -(10**400)},
        {"\0printed": [1]},
    ],
    ids=["digits", "no number", "other types", "negative", "a key of ours"],
)
def test_b4_a_lying_agent_is_no_fault_of_ours(end: dict[str, Any]) -> None:
    """Whatever its last line says."""
    for as_json in (False, True):
        ended = called(
            says(STREAM + events({"type": "end", "status": "failed", "exit": 5, **end})), as_json=as_json
        )
        assert (ended.status, ended.spent_s) == (5, 0.0)
        assert json.loads(answers.line(ended.document))["exit"] == 5
