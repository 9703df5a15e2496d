"""B5: `penstock watch` as a command line: what it prints, what it refuses, the status it ends with."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.watch import _Stopper
from penstock.cli.watch import _View as View
from penstock.intake.folder.telling import Counts
from tests.unit.cli_rig import Cli, make_cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    made = make_cli(tmp_path, monkeypatch, capsys)
    (tmp_path / "inbox" / "requests").mkdir(parents=True)
    return made


def test_b5_once_answers_what_is_there_and_ends(cli: Cli) -> None:
    cli.file("inbox/requests/a", '{"command": "summarize", "params": ["x"]}')
    cli.file("inbox/requests/b", '{"kind": "summarize", "priority": 0}')
    said = cli.good("watch", "inbox", "--once")
    assert said.out == ""
    assert said.told[0] == f"penstock: watching {cli.folder}/inbox/requests"
    assert said.told[-1] == "penstock: stopped; 2 answered"
    answers = [json.loads((cli.folder / "inbox" / "responses" / name).read_text()) for name in "ab"]
    assert [answer["state"] for answer in answers] == ["done", "done"]
    assert [task["kind"] for task in cli.tasks()] == ["summarize", "summarize"]
    assert cli.good("watch", "inbox", "--once", "--quiet") == (0, "", "")


def test_b5_an_error_is_told_and_is_the_status(cli: Cli) -> None:
    cli.file("inbox/requests/a", '{"command": "sumarize"}')
    cli.file("inbox/requests/b", '{"command": "summarize"}')
    said = cli("watch", "inbox", "--once", "--json", "--quiet")
    assert said.status == 1
    told = "command: no host serves kind 'sumarize'; did you mean 'summarize'?"
    assert said.told == [f"penstock: refused a: {told}"]
    records = [json.loads(line) for line in said.lines]
    assert {record["id"]: (record["state"], record["error"]) for record in records} == {
        "a": ("refused", told),
        "b": ("done", None),
    }
    (written,) = (cli.folder / "inbox" / "errors").iterdir()
    assert json.loads(written.read_text()) == next(record for record in records if record["id"] == "a")


def test_b5_commands_are_mapped_and_have_a_lane(cli: Cli) -> None:
    cli.file("inbox/requests/a", '{"command": "report"}')
    cli.file("inbox/requests/b", '{"command": "tell"}')
    cli.good(
        "watch", "inbox", "--once", "--kind", "*=summarize", "--kind", "tell=translate", "--lane", "fast"
    )
    tasks = cli.tasks()
    assert {(task["kind"], task["lane"]) for task in tasks} == {("summarize", "fast"), ("translate", "fast")}
    assert {task["run"].split("-")[0] for task in tasks} == {"watch"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("inbox", "--lane", "fsat"), "--lane: there is no lane 'fsat'; did you mean 'fast'?"),
        (("inbox", "--kind", "x"), "--kind: 'x' must be COMMAND=KIND, such as --kind report=research"),
        (("inbox", "--agent", "reprots"), "--agent: there is no agent 'reprots'; did you mean 'reports'?"),
        (
            ("inbox", "--agent", "reports", "--kind", "a=b"),
            "--kind: with --agent every command is of the agent's kind; leave one of them out",
        ),
        (("inbox", "--interval", "0"), "--interval: '0' must be a number of seconds from 0.05 to 86400"),
        (("inbox", "--interval", "nan"), "--interval: 'nan' must be a number of seconds from 0.05 to 86400"),
        (("gone",), "gone: there is no such folder; create it with `mkdir -p gone`"),
        (
            ("penstock.toml",),
            "penstock.toml: is not a folder; name the one that holds requests/ or tasks/",
        ),
        ((), "watch: DIR is missing; see `penstock watch --help`"),
    ],
)
def test_b5_wrong_use_is_told_in_a_line(cli: Cli, options: tuple[str, ...], told: str) -> None:
    config = (cli.folder / "penstock.toml").read_text()
    cli.file("penstock.toml", f'{config}\n[agents.reports]\nimage = "localhost/reports:latest"\n')
    assert cli.bad("watch", *options) == [told]


def test_b5_a_folder_that_leads_elsewhere_is_refused(cli: Cli) -> None:
    (cli.folder / "elsewhere").mkdir()
    (cli.folder / "inbox" / "errors").symlink_to(cli.folder / "elsewhere")
    cli.file("inbox/requests/a", "{}")
    said = cli("watch", "inbox", "--once", "--quiet")
    assert said.status == 2
    what = "is a link or no folder; a queue has real folders only: remove it"
    assert said.told == [f"penstock: {cli.folder}/inbox/errors: {what}"]
    assert not list((cli.folder / "elsewhere").iterdir())


def test_at_the_end_nothing_is_under_way(capsys: pytest.CaptureFixture[str]) -> None:
    view = View(as_json=False, quiet=False)
    view.counted(Counts(done=7, errors=1, under_way=2))
    view.end(Counts(done=7, errors=1, under_way=2))
    going, ended = capsys.readouterr().err.splitlines()
    assert going == "penstock: 8 answered, 1 error among them, 2 waiting or running"
    assert ended == "penstock: stopped; 8 answered, 1 error among them; 2 requests left for the next time"


async def test_that_it_stops_is_said_when_the_dispatcher_knows() -> None:
    """B5: said before, a request could still begin after it, and would be waited for."""
    happened: list[str] = []
    over = asyncio.Event()

    async def stop_dispatching(*, put_back: bool) -> None:
        happened.append("told")

    async def run(*, once: bool) -> None:
        await over.wait()

    client: Any = SimpleNamespace(dispatches=True, on_stop="requeue", stop_dispatching=stop_dispatching)
    queue: Any = SimpleNamespace(hold=lambda: None, stop=over.set, run=run)
    view: Any = SimpleNamespace(note=lambda _: happened.append("said"))
    interrupts: Any = SimpleNamespace(
        tell=lambda hear: asyncio.get_running_loop().call_soon(hear, signal.SIGTERM)
    )
    await _Stopper(client, queue, view).watch(interrupts, once=False)
    assert happened == ["told", "said"]
