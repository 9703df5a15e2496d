"""Tasks on a real agent server: what runs, what is answered, and that every task ends whatever its handler does."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent_server_rig import Server, Stream, printed, read_answer, until_gone

QUICK = ("--kill-s", "0.2", "--linger-s", "0.2")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("agent"), *QUICK, "--output-bytes", "100000") as running:
        yield running
        status, said = running.stop()
        assert (status, said) == (0, "")


# ---- what runs


@pytest.mark.parametrize(
    ("printed", "format", "result"),
    [
        ('{"a": [1, 2.50]}', "json", {"a": [1, 2.5]}),
        ("plain words", "text", "plain words"),
        ("", "text", ""),
        ("NaN", "text", "NaN"),
        (" 12 ", "json", 12),
        ("[" * 100_00, "text", "[" * 100_00),
        ('"ä\\ud800"', "json", "ä\ud800"),
    ],
)
def test_output_is_json_or_text(server: Server, printed: str, format: str, result: Any) -> None:
    answer = server.run("say", printed)
    assert answer.status == 200
    told = answer.body
    assert (told["format"], told["result"], told["exit"], told["status"]) == (format, result, 0, "done")
    assert told["stderr"] == ""
    assert told["truncated"] is False
    assert told["duration_s"] >= 0
    assert told["waited_s"] >= 0


def test_numbers_are_passed_on_as_printed(server: Server) -> None:
    connection = server.open()
    server.ask(connection, "POST", "/task", {"command": "say", "params": ["1.10e400"]})
    assert b'"result":1.10e400}' in connection.getresponse().read()
    connection.close()


def test_output_that_is_no_utf8_is_base64(server: Server) -> None:
    server.write("bytes.sh", "#!/bin/sh\nprintf '\\377\\376'\n")
    told = server.run("bytes").body
    assert (told["format"], told["result"]) == ("base64", "//4=")


@pytest.mark.parametrize(
    ("params", "argv"),
    [
        (["a b", "$(id)", "", "*"], "<a b><$(id)><><*>"),
        ([1, 2.5, True, None, {"x": ["ä"]}], '<1><2.5><true><null><{"x":["ä"]}>'),
        ({"b": 1, "a": "ü"}, '<{"b":1,"a":"ü"}>'),
        ([], ""),
        (None, ""),
    ],
)
def test_params_become_arguments_without_a_shell(server: Server, params: Any, argv: str) -> None:
    assert server.call("POST", "/task", {"command": "args", "params": params}).body["result"] == argv


def test_stdin_reaches_the_handler(server: Server) -> None:
    text = "ä line\n" * 9_000  # more than a pipe holds
    assert server.run("cat", stdin=text).body["result"] == text


def test_a_handler_that_never_reads_its_stdin_still_ends(server: Server) -> None:
    assert server.run("say", "done", stdin="x" * 500_000).body["result"] == "done"


def test_a_script_needs_neither_mode_nor_first_line(server: Server) -> None:
    assert server.run("plain", "a", 1).body["result"] == ["a", "1"]
    server.write("bare.sh", "echo bare\n")
    assert server.run("bare").body["result"] == "bare\n"


def test_handlers_get_their_task_and_no_keys(tmp_path: Path) -> None:
    # Long ones: what is drawn at random beside them holds any short one now and then.
    secrets = {
        "PENSTOCK_AGENT_KEY": "the-k3y-of-it",
        "PENSTOCK_AGENT_PROOF": "the-pr00f-of-it",
        "PENSTOCK_AGENT_INSTANCE": "instance-one",
    }
    with Server(tmp_path, env={**secrets, "OWN": "kept"}) as server:
        answer = server.run("env", id="t-1")
        assert answer.headers["X-Penstock-Proof"] == "the-pr00f-of-it"
        seen = answer.body["result"]
        assert {"PENSTOCK_TASK_ID=t-1", "PENSTOCK_COMMAND=env", "OWN=kept"} <= set(seen.splitlines())
        assert not any(secret in seen for secret in secrets.values())
        assert server.health()["instance"] == "instance-one"
        refused = server.call("GET", "/health", Authorization="Bearer the-k3x-of-it")
        assert (refused.status, refused.body["error"]["code"]) == (401, "unauthorized")
        assert refused.headers["X-Penstock-Proof"] == "the-pr00f-of-it"
        assert server.call("GET", "/health", Authorization="Basic the-k3y-of-it").status == 401


def test_handlers_by_option_and_a_runner_for_the_rest(tmp_path: Path) -> None:
    with Server(
        tmp_path, "--handler", 'own=["printf","%s|","own"]', "--runner", '["printf","%s|","run"]'
    ) as server:
        assert server.run("own", "a").body["result"] == "own|a|"
        assert server.run("other", "a", "b").body["result"] == "run|other|a|b|"
        assert "own" in server.health()["commands"]
        assert server.run("../other").status == 400


# ---- what is refused


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ({"command": "sai"}, 404, "unknown_command", "did you mean say?"),
        ({"command": "../say"}, 400, "bad_request", "command must be a name"),
        ({"command": ".say"}, 400, "bad_request", "command must be a name"),
        ({"command": "-say"}, 400, "bad_request", "command must be a name"),
        ({"command": "say\n"}, 400, "bad_request", "command must be a name"),
        ({"command": 7}, 400, "bad_request", "command must be a name"),
        ({}, 400, "bad_request", "command must be a name"),
        ([], 400, "bad_request", "not a table"),
        (b"{", 400, "bad_request", "not JSON"),
        (b"", 400, "bad_request", "not JSON"),
        (b"\xff", 400, "bad_request", "not JSON"),
        (b'{"command": "say", "params": ' + b"[" * 100_000, 400, "bad_request", "not JSON"),
        ({"command": "say", "params": "x"}, 400, "bad_request", "params must be"),
        ({"command": "say", "params": ["a\0b"]}, 400, "bad_request", "zero byte"),
        ({"command": "say", "params": ["\ud800"]}, 400, "bad_request", "surrogate"),
        ({"command": "say", "stdin": "\ud800"}, 400, "bad_request", "surrogate"),
        ({"command": "say", "stdin": 1}, 400, "bad_request", "stdin must be"),
        ({"command": "say", "env": {"A": "b"}}, 400, "bad_request", "environment is the container's"),
        ({"command": "say", "timeout": 3}, 400, "bad_request", "did you mean timeout_s?"),
        ({"command": "say", "timeout_s": 0}, 400, "bad_request", "over 0"),
        ({"command": "say", "timeout_s": True}, 400, "bad_request", "timeout_s must be"),
        ({"command": "say", "timeout_s": 1e9}, 400, "bad_request", "at most 86400"),
        ({"command": "say", "id": "a/b"}, 400, "bad_request", "id must be"),
        ({"command": "say", "id": ""}, 400, "bad_request", "id must be"),
        ({"command": "say", "detached": 1}, 400, "bad_request", "detached must be"),
        ({"command": "say", "interactive": True}, 400, "bad_request", "WebSocket"),
    ],
)
def test_wrong_tasks_are_refused_with_a_reason(
    server: Server, body: Any, status: int, code: str, words: str
) -> None:
    answer = server.call("POST", "/task", body)
    error = answer.body["error"]
    assert (answer.status, error["code"]) == (status, code)
    assert words in error["message"]
    assert server.run("say", "well").body["result"] == "well"


def test_pages_of_a_browser_cannot_run_commands_without_a_key(server: Server) -> None:
    refused = server.call("POST", "/task", {"command": "say", "params": ["x"]}, Origin="http://127.0.0.1")
    assert (refused.status, refused.body["error"]["code"]) == (403, "forbidden")


def test_params_too_long_for_arguments_are_told(server: Server) -> None:
    answer = server.run("say", "x" * 200_000)
    assert (answer.status, answer.body["error"]["code"]) == (413, "too_large")
    assert "stdin" in answer.body["error"]["message"]


# ---- how handlers end


def test_a_failing_handler_is_an_error_with_status_and_stderr(server: Server) -> None:
    answer = server.run("fail", id="f-1")
    assert (answer.status, answer.body["status"], answer.body["id"]) == (500, "failed", "f-1")
    error = answer.body["error"]
    assert (error["code"], error["exit"], error["stderr"], error["stdout"]) == (
        "handler_failed",
        3,
        "oops\n",
        "half\n",
    )
    assert "exit status 3" in error["message"]


def test_a_handler_killed_by_a_signal_names_it(server: Server) -> None:
    server.write("die.sh", "#!/bin/sh\nkill -SEGV $$\n")
    error = server.run("die").body["error"]
    assert error["signal"] == 11
    assert "exit" not in error
    assert "SIGSEGV" in error["message"]


@pytest.mark.parametrize(
    ("name", "text", "mode", "words"),
    [
        ("lost", "#!/no/such/program\n", 0o755, "interpreter named in its first line is missing"),
        ("noexec", "#!/bin/sh\n", 0o644, "chmod +x"),
        ("noformat", "no first line\n", 0o755, "#!/bin/sh"),
        ("empty", "", 0o755, "#!/bin/sh"),
    ],
)
def test_a_handler_that_cannot_start_is_an_error_of_its_task(
    server: Server, name: str, text: str, mode: int, words: str
) -> None:
    server.write(name, text, mode)
    answer = server.run(name)
    assert (answer.status, answer.body["error"]["code"]) == (500, "cannot_start")
    assert words in answer.body["error"]["message"]
    with server.follow(name) as stream:
        lines = list(stream)
    assert [line["type"] for line in lines] == ["accepted", "end"]
    assert lines[-1]["error"]["code"] == "cannot_start"


def test_no_process_left_is_an_error_of_that_task_alone(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        before = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        with server.follow("hold", server.fifo("f")) as held:  # its connection and pipes are open already
            held.next("stdout")
            used = len(os.listdir(f"/proc/{server.process.pid}/fd")) + 2
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used, before[1]))
            answer = server.run("say", "x")
            assert (answer.status, answer.body["error"]["code"]) == (503, "no_room")
            assert answer.headers["Retry-After"] == "1"
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, before)
            assert server.run("say", "x").body["result"] == "x"
        assert server.stop()[0] == 0  # and with it what it runs


def test_children_that_hold_the_pipes_do_not_hold_the_task(server: Server) -> None:
    fifo = server.fifo("pipes")
    server.write("fork.sh", '#!/bin/sh\n(read x < "$1") &\necho $!\n')
    told = server.run("fork", fifo).body
    assert told["status"] == "done"
    until_gone(int(told["result"]))


@pytest.mark.parametrize("forks", [1, 2])
def test_children_that_leave_the_group_are_killed_too(server: Server, forks: int) -> None:
    fifo = server.fifo(f"escape{forks}")
    server.write("leave.py", LEAVE)
    told = server.run("leave", fifo, forks).body
    assert told["status"] == "done", told
    until_gone(int(told["result"]))


def test_one_that_forks_without_end_is_ended_with_all_it_made(tmp_path: Path) -> None:
    with Server(tmp_path, *QUICK) as server:
        server.write("bomb.py", BOMB)
        counted = server.folder / "forks"
        with server.follow("bomb", str(counted), id="bomb") as stream:
            assert stream.next("stdout")["data"] == "x\n"
            server.call("DELETE", "/task/bomb")
            assert stream.next("end")["status"] == "cancelled"
        assert server.run("say", "on").body["result"] == "on"
        for pid in counted.read_text().split():
            until_gone(int(pid))
        assert server.stop() == (0, "")


BOMB = """
import os, sys
log = os.open(sys.argv[1], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
print("x", flush=True)
while os.fstat(log).st_size < 400:  # some fifty of them, each in a session of its own
    if os.fork() == 0:
        os.setsid()
        os.write(log, b"%d " % os.getpid())
os.read(os.pipe()[0], 1)
"""

LEAVE = """
import os, sys
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if sys.argv[2] == "1" or os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.write(write, str(os.getpid()).encode())
        open(sys.argv[1]).read()
    os._exit(0)
print(os.read(read, 20).decode())
"""


def test_a_handler_that_closes_its_output_early_is_awaited(server: Server) -> None:
    fifo = server.fifo("early")
    server.write("early.sh", '#!/bin/sh\necho first; exec >&- 2>&-; read line < "$1"; exit 4\n')
    with server.follow("early", fifo) as stream:
        stream.next("stdout")
        Path(fifo).write_text("go\n")
        assert stream.next("end")["exit"] == 4


def test_a_handler_that_prints_forever_is_killed(server: Server) -> None:
    server.write("yes.sh", "#!/bin/sh\nexec yes\n")
    answer = server.run("yes")
    assert (answer.status, answer.body["error"]["code"]) == (500, "output_too_large")
    assert len(answer.body["error"]["stdout"]) == 100_000


def test_exactly_as_much_as_allowed_is_not_too_much(server: Server) -> None:
    server.write("fill.sh", '#!/bin/sh\nhead -c "$1" /dev/zero | tr "\\0" x\n')
    assert len(server.run("fill", 100_000).body["result"]) == 100_000
    assert server.run("fill", 100_001).body["error"]["code"] == "output_too_large"


def test_the_end_of_a_long_stderr_is_kept(tmp_path: Path) -> None:
    with Server(tmp_path, "--stderr-bytes", "1000") as server:
        server.write("chat.sh", "#!/bin/sh\nhead -c 300000 /dev/zero | tr '\\0' x >&2; echo the end >&2\n")
        told = server.run("chat").body
        assert (told["truncated"], len(told["stderr"]), told["stderr"][-8:]) == (True, 1000, "the end\n")


def test_time_over_kills_also_what_ignores_sigterm(server: Server) -> None:
    answer = server.run("deaf", server.fifo("deaf"), timeout_s=1)
    assert (answer.status, answer.body["status"]) == (504, "time_over")
    assert answer.body["error"]["signal"] == 9
    assert "longer than 1 s" in answer.body["error"]["message"]


# ---- cancelling


@pytest.mark.parametrize(("method", "path"), [("DELETE", "/task/{}"), ("POST", "/task/{}/cancel")])
def test_cancel_ends_the_task_for_all_who_wait(server: Server, method: str, path: str) -> None:
    id = f"cancel-{method}"
    with server.follow("hold", server.fifo(id), id=id) as stream:
        stream.next("stdout")
        told = server.call(method, path.format(id))
        assert (told.status, told.body["id"]) == (200, id)
        end = stream.next("end")
    assert (end["status"], end["http"], end["error"]["code"]) == ("cancelled", 409, "cancelled")
    again = server.call(method, path.format(id))
    assert (again.status, again.body["status"]) == (200, "cancelled")
    assert server.call(method, path.format("nobody")).status == 404


def test_cancelling_an_ended_task_changes_nothing(server: Server) -> None:
    server.run("say", "x", id="ended")
    assert server.call("DELETE", "/task/ended").body["status"] == "done"
    shown = server.call("GET", "/task/ended").body
    assert (shown["status"], shown["result"], shown["http"]) == ("done", "x", 200)


def test_a_caller_who_leaves_cancels_its_task(server: Server) -> None:
    fifo = server.fifo("left")
    with server.follow("hold", fifo, id="left") as stream:
        stream.next("stdout")
    with Stream(server, "GET", "/task/left") as onlooker:
        assert onlooker.next("end")["status"] == "cancelled"


def test_a_caller_who_leaves_before_the_whole_answer_cancels_too(server: Server) -> None:
    started = server.fifo("left-started")
    server.write("tell.sh", '#!/bin/sh\necho up > "$1"; read line < "$1"; read line < "$1"\n')
    caller = server.open()
    server.ask(caller, "POST", "/task", {"command": "tell", "params": [started], "id": "left-whole"})
    assert Path(started).read_text() == "up\n"
    caller.close()
    with Stream(server, "GET", "/task/left-whole") as onlooker:
        assert onlooker.next("end")["status"] == "cancelled"


def test_a_task_goes_on_while_somebody_waits(server: Server) -> None:
    fifo = server.fifo("stays")
    first = server.follow("hold", fifo, id="stays")
    first.next("stdout")
    second = server.follow("hold", fifo, id="stays")
    second.next("stdout")
    first.close()
    assert server.call("GET", "/task/stays").body["status"] == "running"
    Path(fifo).write_text("on\n")
    assert second.next("end")["status"] == "done"
    second.close()


def test_a_detached_task_goes_on_alone(server: Server) -> None:
    fifo = server.fifo("alone")
    with server.follow("hold", fifo, id="alone", detached=True) as stream:
        stream.next("stdout")
    shown = server.call("GET", "/task/alone").body
    assert (shown["status"], shown["command"]) == ("running", "hold")
    assert "alone" in server.call("GET", "/tasks").body["running"]
    Path(fifo).write_text("on\n")
    with Stream(server, "GET", "/task/alone") as onlooker:
        lines = list(onlooker)
    assert printed(lines) == "held\non\n"
    assert lines[-1]["status"] == "done"


# ---- ids


def test_the_same_id_runs_once(server: Server) -> None:
    counted = server.folder / "counted"
    answers = [server.run("count", str(counted), id="once") for _ in range(3)]
    assert {answer.body["result"] for answer in answers} == {1}
    assert len({json.dumps(answer.body) for answer in answers}) == 1
    assert counted.read_text() == "x"


def test_the_same_id_at_the_same_time_runs_once(server: Server) -> None:
    counted, fifo = server.folder / "counted2", server.fifo("twice")
    server.write("slow.sh", '#!/bin/sh\nprintf x >> "$1"; echo up; read line < "$2"\n')
    callers = [server.open() for _ in range(5)]
    with server.follow("slow", str(counted), fifo, id="twice") as stream:
        stream.next("stdout")
        for caller in callers:
            server.ask(
                caller, "POST", "/task", {"command": "slow", "params": [str(counted), fifo], "id": "twice"}
            )
        Path(fifo).write_text("go\n")
        assert stream.next("end")["status"] == "done"
    assert [read_answer(caller).body["result"] for caller in callers] == ["up\n"] * 5
    for caller in callers:
        caller.close()
    assert counted.read_text() == "x"


def test_an_id_belongs_to_one_command(server: Server) -> None:
    server.run("say", "a", id="taken")
    for other in (server.run("say", "b", id="taken"), server.run("say", "a", id="taken", stdin="")):
        assert (other.status, other.body["error"]["code"]) == (409, "id_taken")
    long = "x" * 1000
    assert server.run("say", long, id="long").body["result"] == long
    assert server.run("say", long, id="long").status == 200
    assert server.run("say", long + "y", id="long").status == 409


def test_answers_are_forgotten_and_outputs_let_go_within_limits(tmp_path: Path) -> None:
    with Server(tmp_path, "--keep-tasks", "3", "--keep-bytes", "5000") as server:
        for number in range(5):
            server.run("say", "x" * 2000, id=f"t{number}")
        assert server.call("GET", "/task/t0").status == 404
        gone = server.call("GET", "/task/t2")
        assert (gone.status, gone.body["error"]["code"], gone.body["status"]) == (
            410,
            "output_dropped",
            "done",
        )
        again = server.run("say", "x" * 2000, id="t2")
        assert (again.status, again.body["error"]["code"]) == (410, "output_dropped")
        with Stream(server, "GET", "/task/t2") as stream:
            end = stream.next("end")
        assert (end["status"], end["http"], end["error"]["code"]) == ("done", 410, "output_dropped")
        assert server.call("GET", "/task/t4").body["result"] == "x" * 2000
        assert server.health()["done"] == 5


# ---- how many at a time


def test_the_limits_on_running_and_waiting_hold(tmp_path: Path) -> None:
    with Server(tmp_path, "--concurrency", "2", "--waiting", "1") as server:
        fifos = [server.fifo(f"f{number}") for number in range(3)]
        running = [server.follow("hold", fifo, id=f"r{n}") for n, fifo in enumerate(fifos[:2])]
        for stream in running:
            stream.next("stdout")
        waiting = server.follow("hold", fifos[2], id="w")
        waiting.next("accepted")
        health = server.health()
        assert (health["running"], health["waiting"], health["concurrency"]) == (2, 1, 2)
        assert server.call("GET", "/tasks").body == {"running": ["r0", "r1"], "waiting": ["w"]}
        refused = server.run("say", "x")
        assert (refused.status, refused.body["error"]["code"]) == (429, "busy")
        assert refused.headers["Retry-After"] == "1"
        assert server.call("GET", "/task/w").body["status"] == "waiting"
        Path(fifos[0]).write_text("go\n")
        assert waiting.next("started")["id"] == "w"
        Path(fifos[1]).write_text("go\n")
        Path(fifos[2]).write_text("go\n")
        assert waiting.next("end")["waited_s"] > 0
        for stream in (*running, waiting):
            stream.close()


def test_a_waiting_task_whose_caller_leaves_never_runs(tmp_path: Path) -> None:
    with Server(tmp_path, "--concurrency", "1") as server:
        fifo, counted = server.fifo("f"), server.folder / "counted"
        with server.follow("hold", fifo) as running:
            running.next("stdout")
            with server.follow("count", str(counted), id="w") as waiting:
                waiting.next("accepted")
            with Stream(server, "GET", "/task/w") as onlooker:
                lines = list(onlooker)
            assert [line["type"] for line in lines] == ["accepted", "end"]
            assert lines[-1]["status"] == "cancelled"
            Path(fifo).write_text("go\n")
            running.next("end")
        assert server.run("say", "next").body["result"] == "next"
        assert not counted.exists()
