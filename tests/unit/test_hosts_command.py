"""The command adapter: arguments and stdin from a payload, and what the end of a program means."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, PermanentError
from penstock.hosts.base import Job, Program
from penstock.hosts.command import CommandAdapter
from penstock.model import Host, Outcome, Verdict
from tests.conformance.engine_rig import Rig, command_host


def adapter(**options: Any) -> CommandAdapter:
    return CommandAdapter(Host("tool", "command", options={"argv": ["prog"], **options}))


def work(payload: Any, **options: Any) -> Program:
    return adapter(**options).work(Job("t", 1, "k", payload, "tool", "default"))


# ---- arguments


@pytest.mark.parametrize(
    ("argument", "payload", "expected"),
    [
        ("{file}", {"file": "a b; rm -rf $HOME"}, "a b; rm -rf $HOME"),
        ("--file={file}", {"file": "x"}, "--file=x"),
        ("{a}-{b}", {"a": 1, "b": 2.5}, "1-2.5"),
        ("{flag}", {"flag": True}, "true"),
        ("{none}", {"none": None}, "null"),
        ("{list}", {"list": ["ü", 1]}, '["ü",1]'),
        ("{{file}}", {}, "{file}"),
        ("{{{file}}}", {"file": "x"}, "{x}"),
        ("{file}", {"file": "{other}"}, "{other}"),
        ("{a-b_1}", {"a-b_1": "x"}, "x"),
        ("{empty}", {"empty": ""}, ""),
        ("plain", None, "plain"),
    ],
)
def test_fields_fill_arguments(argument: str, payload: Any, expected: str) -> None:
    assert work(payload, argv=["prog", argument]).argv == ("prog", expected)


@pytest.mark.parametrize("payload", [{}, {"other": 1}, "text", None, ["file"]])
def test_a_missing_field_fails_for_good(payload: Any) -> None:
    with pytest.raises(PermanentError, match="the payload has no field 'file'"):
        work(payload, argv=["prog", "{file}"])


def test_a_payload_brings_its_own_arguments_only_where_allowed() -> None:
    payload = {"argv": ["other", "x"]}
    assert work(payload).argv == ("prog",)
    assert work(payload, allow_payload_argv=True).argv == ("other", "x")
    assert work({}, allow_payload_argv=True).argv == ("prog",)
    for bad in ([], "other x", [1], None):
        with pytest.raises(PermanentError, match="`argv` must be a list of texts"):
            work({"argv": bad}, allow_payload_argv=True)
    with pytest.raises(PermanentError, match="has no argv of its own"):
        work({}, allow_payload_argv=True, argv=None)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"argv": "prog {file}"}, "hosts.tool.argv: must be a list"),
        ({"argv": []}, "hosts.tool.argv: is missing"),
        ({"argv": None}, "hosts.tool.argv: is missing"),
        ({"argv": ["prog", 1]}, "hosts.tool.argv[2]: must be text in quotes, not a number"),
        (
            {"argv": ["{a.b}"]},
            "hosts.tool.argv[1]: has braces around what is no field of a payload; write {name}",
        ),
        ({"argv": ["x", "{}"]}, "hosts.tool.argv[2]: has braces"),
        ({"argv": ["{a"]}, "hosts.tool.argv[1]: has braces"),
        ({"argv": ["a}"]}, "hosts.tool.argv[1]: has braces"),
        ({"stdin": "yaml"}, 'hosts.tool.stdin: must be "json" or "text" or "none"'),
        ({"output": 1}, "hosts.tool.output: must be"),
        ({"temporary_exit": 75}, "hosts.tool.temporary_exit: must be a list of whole numbers"),
        ({"temporary_exit": [True]}, "hosts.tool.temporary_exit[1]: must be a whole number"),
        ({"env": {"A": 1}}, "hosts.tool.env.A: must be text in quotes, not a number"),
        ({"cwd": 1}, "hosts.tool.cwd: must be text in quotes, not a number"),
        ({"output_limit_bytes": 0}, "hosts.tool.output_limit_bytes: must be a whole number above 0"),
        ({"allow_payload_argv": "yes"}, "hosts.tool.allow_payload_argv: must be true or false"),
    ],
)
def test_config_problems_have_place_and_remedy(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        adapter(**options)
    assert problem in str(error.value)


# ---- stdin


def test_stdin() -> None:
    assert work({"a": "ü"}).stdin == '{"a":"ü"}'.encode()
    assert work("ü\n", stdin="text").stdin == "ü\n".encode()
    assert work({"a": 1}, stdin="none").stdin == b""
    with pytest.raises(PermanentError, match='stdin = "text" needs a text as payload, not dict'):
        work({"a": 1}, stdin="text")


# ---- outcomes


@pytest.mark.parametrize(
    ("output", "stdout", "value"),
    [
        ("auto", b'{"a": 1}\n', {"a": 1}),
        ("auto", b"42", 42),
        ("auto", b"two words\n", "two words"),
        ("auto", b"two\n\n", "two\n"),
        ("auto", b"", ""),
        ("text", b"42\r\n", "42"),
        ("text", b"\xff", "\ufffd"),
        ("json", b" [1]\n", [1]),
    ],
)
def test_stdout_is_the_value(output: str, stdout: bytes, value: Any) -> None:
    assert work({}, output=output).outcome(0, stdout, b"") == Outcome(Verdict.DONE, value)


@pytest.mark.parametrize(
    "stdout",
    [b"", b"no", b'{"a":', b'"\xff"', b"[" * 100_000 + b"]" * 100_000],
    ids=["empty", "word", "cut off", "not UTF-8", "too deep"],
)
def test_json_that_is_none_fails_for_good(stdout: bytes) -> None:
    outcome = work({}, output="json").outcome(0, stdout, b"")
    assert outcome.verdict is Verdict.PERMANENT
    assert "stdout is not JSON" in (outcome.error or "")


@pytest.mark.parametrize(
    ("status", "verdict", "error"),
    [
        (1, Verdict.PERMANENT, "exit status 1: two | three | four"),
        (75, Verdict.TEMPORARY, "exit status 75: two | three | four"),
        (-9, Verdict.TEMPORARY, "killed by SIGKILL: two | three | four"),
        (-250, Verdict.TEMPORARY, "killed by signal 250: two | three | four"),
    ],
)
def test_an_exit_status_is_never_a_silent_success(status: int, verdict: Verdict, error: str) -> None:
    """B4"""
    stderr = b"one\ntwo\n\nthree\nfour\n"
    assert work({}).outcome(status, b"{}", stderr) == Outcome(verdict, error=error, logs=stderr.decode())


def test_errors_and_logs_are_cut() -> None:
    outcome = work({}).outcome(2, b"", b"x" * 10_000 + b"end")
    assert outcome.error is not None
    assert outcome.logs is not None
    assert len(outcome.error) <= 2000
    assert len(outcome.logs) == 4000
    assert outcome.error.endswith("end")
    assert outcome.logs.endswith("end")
    assert work({}).outcome(2, b"", b"").error == "exit status 2"


def test_temporary_statuses_are_the_users() -> None:
    program = work({}, temporary_exit=[3])
    assert program.outcome(3, b"", b"").verdict is Verdict.TEMPORARY
    assert program.outcome(75, b"", b"").verdict is Verdict.PERMANENT


# ---- check


async def test_check_looks_for_the_program(tmp_path: Path) -> None:
    program = tmp_path / "prog"
    program.write_text("#!/bin/sh\n")
    assert not (await adapter(argv=[str(program)]).check()).up
    program.chmod(0o755)
    assert (await adapter(argv=[str(program)]).check()).up
    assert (await adapter(argv=["./prog"], cwd=str(tmp_path)).check()).up
    assert (await adapter(argv=["prog"], env={"PATH": str(tmp_path)}).check()).up
    missing = await adapter(argv=["no-such-program"]).check()
    assert missing.detail == "no program 'no-such-program'; install it, or correct hosts.tool.argv"
    assert "no folder '/nowhere'" in (await adapter(cwd="/nowhere").check()).detail
    assert (await adapter(argv=["{program}"]).check()).up


# ---- with real programs


async def test_environment_and_folder(tmp_path: Path) -> None:
    host = command_host("host", env={"COLOUR": "blue"}, cwd=str(tmp_path))
    async with Rig(host) as rig:
        outcome = await rig.outcome_of("host", {"act": "environment", "variable": "COLOUR"})
        marker = await rig.outcome_of(
            "host", {"act": "environment", "variable": "PENSTOCK_ATTEMPT"}, task="x:y"
        )
    assert outcome.value == {"cwd": str(tmp_path), "value": "blue", "leads a session": True}
    store, life, attempt = marker.value["value"].split(":", 2)
    assert (store, attempt) == (rig.tag, "x:y:1")
    assert life.startswith(f"{os.getpid()}-")


@pytest.mark.parametrize(
    ("argv", "verdict", "word"),
    [
        (
            ["/no/such/program"],
            Verdict.HOST,
            f"No such file or directory; install it on {platform.node()}, or correct",
        ),
        (["/dev/null"], Verdict.HOST, "Permission denied"),
        (["/etc"], Verdict.HOST, "Permission denied"),
        ([sys.executable, "-c", "pass", "x" * 5_000_000], Verdict.PERMANENT, "give long input on stdin"),
    ],
    ids=["missing", "no program", "folder", "too long"],
)
async def test_programs_that_cannot_start(argv: list[str], verdict: Verdict, word: str) -> None:
    async with Rig(command_host("host", allow_payload_argv=True)) as rig:
        outcome = await rig.outcome_of("host", {"argv": argv})
    assert outcome.verdict is verdict
    assert word in (outcome.error or "")


async def test_a_folder_that_is_not_there_is_the_hosts_fault() -> None:
    async with Rig(command_host("host", cwd="/nowhere")) as rig:
        outcome = await rig.outcome_of("host", {})
    assert outcome.verdict is Verdict.HOST
    assert "no folder '/nowhere'; create it" in (outcome.error or "")


async def test_input_that_is_not_read_and_output_on_both_pipes() -> None:
    """Neither a full pipe nor a broken one may make an attempt hang."""
    unread = Host("unread", "command", options={"argv": [sys.executable, "-c", "print(1)"]})
    echo = Host(
        "echo",
        "command",
        options={
            "argv": [sys.executable, "-c", "import sys; d = sys.stdin.read(); sys.stderr.write(d); print(d)"],
            "output": "text",
            "stdin": "text",
            "output_limit_bytes": 5_000_000,
        },
    )
    payload = "y" * 3_000_000
    async with Rig(unread, echo) as rig:
        assert (await rig.outcome_of("unread", payload)).value == 1
        assert (await rig.outcome_of("echo", payload)).value == payload


async def test_output_up_to_the_limit_is_kept_and_one_byte_more_is_not() -> None:
    async with Rig(command_host("host", output_limit_bytes=1000)) as rig:
        noise = "n" * 3000 + "last words"
        fits = await rig.outcome_of("host", {"act": "huge", "size": 1000, "stderr": noise})
        too_much = await rig.outcome_of("host", {"act": "huge", "size": 1001, "stderr": noise})
    assert fits.value == "x" * 1000
    assert fits.logs == noise[-1000:]
    assert too_much.verdict is Verdict.PERMANENT
    assert "more than 1000 bytes" in (too_much.error or "")
    assert (too_much.logs or "").endswith("last words")


async def test_killed_by_a_signal_is_temporary() -> None:
    async with Rig(command_host("host")) as rig:
        outcome = await rig.outcome_of("host", {"act": "signal"})
    assert outcome == Outcome(Verdict.TEMPORARY, error="killed by SIGKILL")
