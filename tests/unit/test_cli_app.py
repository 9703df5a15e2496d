"""The command line as a whole: help, wrong use, errors in one line, statuses, and what it costs to start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from penstock.cli.app import COMMANDS, app, main
from penstock.errors import AlreadyOwned, StoreFull, Unreachable
from penstock.version import __version__
from tests.unit.cli_rig import CONFIG, Cli, make_cli
from tools.generate_docs import commands


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


COMMAND_LINES = [list(path[1:]) for path, _ in commands(typer.main.get_command(app)) if len(path) > 1]


def program(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        cwd=folder,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# ---- help


def test_version_is_told(cli: Cli) -> None:
    assert cli.good("--version").out == f"penstock {__version__}\n"
    assert program(cli.folder, "--version").stdout == f"penstock {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_command(cli: Cli, arguments: list[str]) -> None:
    said = cli.good(*arguments)
    for name in COMMANDS:
        assert f"\n  {name} " in said.out


@pytest.mark.parametrize("command", COMMAND_LINES, ids=" ".join)
def test_every_command_explains_itself_with_examples(cli: Cli, command: list[str]) -> None:
    said = cli.good(*command, "--help")
    assert said.out.startswith(f"Usage: penstock {' '.join(command)}")
    assert f"\n  Examples:\n    penstock {' '.join(command)}" in said.out


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("run", "penstock run [OPTIONS] FILE"),
        ("cancel", "penstock cancel [OPTIONS] [TASK]..."),
        ("compare", "penstock compare [OPTIONS] [WORKLOAD]..."),
        ("systemd", "penstock systemd [OPTIONS] [COMMAND [OPTIONS]]"),
    ],
)
def test_help_has_the_words_of_its_users_only(cli: Cli, command: str, usage: str) -> None:
    told = cli.good(command, "--help").out
    assert f"Usage: {usage}\n" in told
    assert not re.search(r"<\w+[\[>]|{\w+}", told), "types of Python are nobody's business"


@pytest.mark.parametrize(
    "command",
    sorted(set(COMMANDS) - {"work", "serve", "export", "store", "token", "agent", "agent-server", "council"}),
)
def test_every_command_that_prints_data_takes_json(cli: Cli, command: str) -> None:
    assert "--json" in cli.good(command, "--help").out


@pytest.mark.parametrize(
    "command", ["call", "list", "logs", "restart", "rm", "start", "stats", "stop", "warm"]
)
def test_every_command_of_agents_takes_json(cli: Cli, command: str) -> None:
    """B6"""
    said = cli.good("agent", command, "--help").out
    assert "--json" in said
    assert f"penstock agent {command}" in said.partition("Examples:")[2]


# ---- wrong use


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["taks"], "there is no command 'taks'; did you mean 'tasks'?"),
        (["tasks", "--stat", "done"], "tasks: there is no option --stat; did you mean '--state'?"),
        (
            ["submit", "summarize", "--prio", "1"],
            "submit: there is no option --prio; did you mean '--priority'?",
        ),
        (["--confg", "x", "tasks"], "there is no option --confg; did you mean '--config'?"),
        (["show"], "show: TASK is missing; see `penstock show --help`"),
        (["run"], "run: FILE is missing; see `penstock run --help`"),
        (["show", "a", "b"], "show: got unexpected extra argument(s) (b); see `penstock show --help`"),
        (["tasks", "--run"], "option '--run' requires an argument"),
        (["tasks", "--state", "quued"], "--state: there is no 'quued'; did you mean 'queued'?"),
        (["tasks", "--limit", "0"], "--limit: '0' must be a whole number, at least 1"),
        (["work", "--log-format", "xml"], "--log-format: there is no 'xml'; choose: json, text"),
        (["--set", "slots", "tasks"], "--set: 'slots' must be KEY=VALUE, such as --set hosts.fenrir.slots=4"),
    ],
)
def test_wrong_use_is_told_in_a_line_with_the_remedy(cli: Cli, arguments: list[str], told: str) -> None:
    """Promise 7."""
    assert cli.bad(*arguments) == [told]
    assert not (cli.folder / "penstock.db").exists()


def test_a_command_nobody_knows_is_answered_with_those_there_are(cli: Cli) -> None:
    first = ", ".join(sorted(COMMANDS)[:4])
    assert cli.bad("zzz")[0].startswith(f"there is no command 'zzz'; commands: {first}")


# ---- config


def test_the_config_may_be_named_before_or_after_the_command(cli: Cli) -> None:
    cli.file("other.toml", CONFIG.replace("penstock.db", "other.db"))
    cli.good("-c", "other.toml", "submit", "summarize")
    cli.good("submit", "summarize", "--config", "other.toml")
    assert len(cli.good("tasks", "--json", "-c", "other.toml").json) == 2
    assert cli.tasks() == []


def test_the_config_may_be_named_by_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.folder / "penstock.toml").rename(cli.folder / "elsewhere.toml")
    monkeypatch.setenv("PENSTOCK_CONFIG", str(cli.folder / "elsewhere.toml"))
    assert cli.tasks() == []


def test_single_keys_can_be_set(cli: Cli) -> None:
    said = cli.good("--set", "hosts.small.slots=7", "status", "--json", "--set", "hosts.large.slots = 5")
    assert {name: host["slots"] for name, host in said.json["hosts"].items()} == {"small": 7, "large": 5}


def test_a_wrong_setting_names_the_near_one(cli: Cli) -> None:
    assert cli.bad("status", "--set", "hosts.smal.slots=7") == [
        "--set: hosts.smal.slots: no host 'smal'; did you mean 'small'?"
    ]


def test_every_problem_of_a_config_has_its_line(cli: Cli) -> None:
    cli.file("penstock.toml", '[hosts.a]\ntype = "simulated"\nslots = 0\n\n[lane.x]\n')
    told = cli.bad("status")
    assert len(told) == 2
    assert told[0].startswith("penstock.toml:3: hosts.a.slots: ")
    assert told[1].startswith("penstock.toml:5: lane: unknown key; did you mean 'lanes'?")
    assert not (cli.folder / "penstock.db").exists()


def test_without_a_config_it_says_where_it_looked(cli: Cli) -> None:
    (cli.folder / "penstock.toml").unlink()
    (told,) = cli.bad("tasks")
    assert told.startswith("no penstock.toml in this folder or its parents")


# ---- trouble


def test_a_damaged_store_is_told_with_status_3(cli: Cli) -> None:
    damaged = b"this is no database, whatever its name says" * 100
    (cli.folder / "penstock.db").write_bytes(damaged)
    said = cli("tasks")
    assert (said.status, said.out, len(said.told)) == (3, "", 1)
    assert said.err.startswith("penstock: ")
    assert "penstock.db" in said.err
    assert (cli.folder / "penstock.db").read_bytes() == damaged


@pytest.mark.parametrize("error", [AlreadyOwned("owned"), Unreachable("silent"), StoreFull("full")])
def test_dispatcher_and_store_trouble_is_status_3(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def snapshot(_: object) -> None:
        raise error

    monkeypatch.setattr("penstock.client.Client.snapshot", snapshot)
    assert cli("status") == (3, "", f"penstock: {error}\n")


def test_a_file_that_cannot_be_opened_is_told(cli: Cli) -> None:
    assert cli.bad("import", "gone.jsonl") == ["gone.jsonl: no such file or directory; correct the name"]
    assert cli.bad("import", ".")[0].startswith(".: ")


def test_an_interrupt_is_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    async def snapshot(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.client.Client.snapshot", snapshot)
    assert cli("status") == (130, "", "penstock: interrupted\n")


def test_a_reader_who_leaves_is_no_error(cli: Cli) -> None:
    cli.file("many.jsonl", '{"kind": "summarize"}\n' * 3000)
    cli.good("submit", "--file", "many.jsonl")
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", "tasks", "--json"],
        cwd=cli.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"[{")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_a_terminal_that_cannot_show_a_sign_is_no_error(cli: Cli) -> None:
    cli.good("submit", "summarize", '"é…×"', "--id", "t1")
    assert program(cli.folder, "show", "t1", PYTHONIOENCODING="ascii").returncode == 0
    # JSON is UTF-8 wherever it is written.
    told = subprocess.run(
        [sys.executable, "-m", "penstock", "show", "t1", "--json"],
        cwd=cli.folder,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert json.loads(told.stdout.decode("utf-8"))["payload"] == "é…×"


# ---- what it costs to start


def loaded_by(folder: Path, *arguments: str, status: int = 0) -> set[str]:
    """The modules in memory when a command has ended."""
    code = (
        "import sys\n"
        "from penstock.__main__ import main\n"
        "status = main()\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
        "sys.exit(status)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == status, told.stderr
    return set(told.stderr.split())


def test_version_loads_nothing(cli: Cli) -> None:
    loaded = loaded_by(cli.folder, "--version")
    assert not loaded & {"typer", "asyncio", "dataclasses", "msgspec", "rich", "sqlite3"}


@pytest.mark.parametrize(
    ("options", "status"), [(("--host", "0.0.0.0"), 2), (("--set", "store=/no/such/folder/x.db"), 3)]
)
def test_serve_refuses_before_it_loads_what_takes_long(
    cli: Cli, options: tuple[str, ...], status: int
) -> None:
    """No token, or a store that cannot be opened: whoever corrects it need not wait for the server's parts."""
    loaded = loaded_by(cli.folder, "serve", "--port", "0", *options, status=status)
    assert "penstock.web.sockets" in loaded
    assert not loaded & {"fastapi", "uvicorn", "aiohttp", "penstock.web.service"}


def test_submit_loads_no_engine_and_no_terminal(cli: Cli) -> None:
    loaded = loaded_by(
        cli.folder, "submit", "summarize", "{}", "-p", "1", "--after", "", "--needs", "slots=1"
    )
    heavy = ("rich", "pydantic", "yaml", "psutil", "pebble", "filelock", "importlib.metadata")
    ours = tuple(f"penstock.{part}" for part in ("engine", "dispatcher", "compare", "demo"))
    assert not [name for name in loaded if name.startswith((*heavy, *ours))]
    assert {name for name in loaded if name.startswith("penstock.hosts.")} == {  # no adapter
        f"penstock.hosts.{name}" for name in ("model_key", "model_options", "options", "type_options")
    }
    assert {name for name in loaded if name.startswith("penstock.cli.")} == {
        f"penstock.cli.{name}" for name in ("app", "planning", "render", "session", "submit")
    }


def test_main_is_what_the_program_runs(cli: Cli) -> None:
    assert program(cli.folder, "taks").returncode == main(["taks"]) == 2
