"""`penstock show TASK --follow`: what a run says, while it says it (A9)."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.conformance.host_phone import Phone
from tests.unit.cli_rig import Cli, make_cli
from tests.unit.researcher_rig import write_stand_ins

CONFIG = """
store = "penstock.db"
[retry]
base_s = 0.01
[hosts.reports]
type = "researcher"
serves = ["gptr"]
python = "{python}"
model = "m"
url = "http://model.test/v1"
env = {{ PYTHONPATH = "{packages}" }}
[hosts.pretended]
type = "simulated"
serves = ["other"]
duration_s = 0
"""


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    packages = write_stand_ins(tmp_path / "packages")
    made = make_cli(tmp_path, monkeypatch, capsys)
    made.file("penstock.toml", CONFIG.format(python=sys.executable, packages=packages))
    return made


def test_a_log_can_be_read_when_all_is_over(cli: Cli, tmp_path: Path) -> None:
    cli.good("submit", "gptr", json.dumps("research print one two"), "--id", "t")
    cli.good("work", "--drain")
    path = tmp_path / "penstock.db.work" / "reports" / "t.1.log"
    assert f"log       {path}" in cli.good("show", "t").out
    assert cli.good("show", "t", "--json").json["log"] == str(path)
    lines = cli.good("show", "t", "--follow").lines
    assert lines[0] == f"--- attempt 1 on reports: {path}"
    assert lines[-3:] == ["one two", "written straight", "--- done"]


def test_every_attempt_is_told_and_the_failure(cli: Cli) -> None:
    cli.good("submit", "gptr", json.dumps("research form"), "--id", "t", "--retries", "1")
    cli("work", "--drain")
    said = cli("show", "t", "--follow")
    assert said.status == 1
    heads = [line.partition(":")[0] for line in said.lines if line.startswith("---")]
    assert heads == ["--- attempt 1 on reports", "--- attempt 2 on reports", "--- failed"]


def test_a_task_without_a_log_says_so(cli: Cli) -> None:
    cli.good("submit", "other", "1", "--id", "t")
    cli.good("work", "--drain")
    assert cli.good("show", "t", "--follow").lines == ["no attempt of it has a log here", "--- done"]
    assert "log" not in cli.good("show", "t", "--json").json


async def test_lines_are_told_while_the_run_goes_on(cli: Cli, tmp_path: Path) -> None:
    async with Phone() as phone:
        query = f"research print hello; write ring {phone.port} me; write print bye"
        await asyncio.to_thread(cli.good, "submit", "gptr", json.dumps(query), "--id", "t")
        work = await started(tmp_path, "work", "--drain")
        run = await phone.caller("me")
        followed = await started(tmp_path, "show", "t", "--follow", stdout=asyncio.subprocess.PIPE)
        assert followed.stdout is not None
        lines: list[bytes] = []
        while b"hello\n" not in lines:
            lines.append(await followed.stdout.readline())
            assert lines[-1]
        assert work.returncode is None
        run.say("go on")
        rest = await followed.stdout.read()
        assert rest.splitlines()[-3:] == [b"bye", b"written straight", b"--- done"]
        assert (await followed.wait(), await work.wait()) == (0, 0)


async def started(folder: Path, *words: str, **more: int) -> asyncio.subprocess.Process:
    argv = (sys.executable, "-m", "penstock", *words)
    return await asyncio.create_subprocess_exec(*argv, cwd=folder, **more)  # type: ignore[arg-type]
