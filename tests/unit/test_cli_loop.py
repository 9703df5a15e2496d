"""C3: `loop --beads` on issues.jsonl with simulated hosts: chains, failures, results, wrong use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.logs import Log
from tests.unit.cli_rig import Cli, make_cli

CONFIG = """
store = "penstock.db"

[hosts.here]
type = "simulated"
slots = 1
duration_s = 0.01
serves = ["general", "summarize"]

[retry]
base_s = 0.01

[beads]
kind = "general"
labels = { docs = "summarize" }
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    made = make_cli(tmp_path, monkeypatch, capsys)
    made.file("penstock.toml", CONFIG)
    (tmp_path / ".beads").mkdir()
    return made


def issue(id: str, **fields: Any) -> dict[str, Any]:
    after = fields.pop("after", ())
    payload = {name: fields.pop(name) for name in ("fail", "value") if name in fields}
    made = {"id": id, "title": f"Do {id}", "status": "open", "priority": 2, "issue_type": "task", **fields}
    if after:
        made["dependencies"] = [{"issue_id": id, "depends_on_id": other, "type": "blocks"} for other in after]
    return made | ({"metadata": {"payload": payload}} if payload else {})


def write(cli: Cli, *issues: dict[str, Any]) -> None:
    cli.file(".beads/issues.jsonl", "".join(json.dumps(one) + "\n" for one in issues))


def read(cli: Cli) -> dict[str, dict[str, Any]]:
    lines = (cli.folder / ".beads" / "issues.jsonl").read_text().splitlines()
    return {one["id"]: one for one in map(json.loads, lines)}


def loop(cli: Cli, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    said = cli("loop", "--beads", ".", "--once", "--json", *arguments)
    return said.status, [json.loads(line) for line in said.lines], said.err


def test_c3_a_chain_runs_in_its_order(cli: Cli) -> None:
    """C3: each as soon as what it waits for is closed, urgent ones first, results in the issues."""
    write(
        cli,
        issue("bd-3", after=["bd-2"], priority=0),
        issue("bd-2", after=["bd-1"], priority=0, labels=["docs"]),
        issue("bd-1", value="the first result"),
        issue("bd-4", priority=0),
        issue("bd-5", status="closed"),
    )
    status, ended, err = loop(cli)
    assert status == 0
    assert err.splitlines()[-1].endswith("stopped  4 closed")
    assert [(one["issue"], one["status"]) for one in ended] == [
        (id, "closed") for id in ("bd-4", "bd-1", "bd-2", "bd-3")
    ]
    found = read(cli)
    assert {one["status"] for one in found.values()} == {"closed"}
    assert found["bd-1"]["notes"].endswith("the first result")
    assert found["bd-2"]["metadata"]["penstock"]["kind"] == "summarize"
    assert [task["state"] for task in cli.tasks()] == ["done"] * 4
    status, ended, err = loop(cli)  # nothing is done twice
    assert (status, ended) == (0, [])
    assert err.splitlines()[-1].endswith("stopped  no issue was taken")


def test_c3_a_failure_blocks_its_issue_and_what_waits_for_it(cli: Cli) -> None:
    """C3: "all hosts failed" is never closed as success; opened again, it is tried again."""
    write(cli, issue("bd-1", fail="permanent"), issue("bd-2", after=["bd-1"]))
    status, ended, err = loop(cli)
    assert status == 1
    assert [(one["issue"], one["status"], one["error"]) for one in ended] == [
        ("bd-1", "blocked", "simulated permanent failure")
    ]
    assert err.splitlines()[-1].endswith("stopped  1 blocked")
    found = read(cli)
    assert (found["bd-1"]["status"], found["bd-2"]["status"]) == ("blocked", "open")
    assert "simulated permanent failure" in found["bd-1"]["notes"]
    again = {**found["bd-1"], "status": "open", "metadata": {"payload": {"value": 1}}}
    write(cli, again, found["bd-2"])
    assert loop(cli)[0] == 0
    assert {one["status"] for one in read(cli).values()} == {"closed"}


def test_c3_results_are_saved_inside_the_root_only(cli: Cli) -> None:
    """C3: `Output path:`; one that leads out, or over a file of ours, blocks the issue and runs nothing."""
    cli.file("out", "")
    write(
        cli,
        issue("bd-1", description="Output path: a/b.md", value={"text": "hello"}),
        issue("bd-2", description="Output path: ../b.md"),
        issue("bd-3", description="Output path: penstock.db"),
        issue("bd-4", description="Output path: out/b.md"),  # found out when it is written
    )
    status, ended, _ = loop(cli)
    assert status == 1
    states = {one["issue"]: one["status"] for one in ended}
    assert states == {"bd-1": "closed", "bd-2": "blocked", "bd-3": "blocked", "bd-4": "blocked"}
    assert (cli.folder / "a/b.md").read_text() == "hello\n"
    assert not (cli.folder.parent / "b.md").exists()
    assert len(cli.tasks()) == 2
    found = read(cli)
    assert "saved to a/b.md" in found["bd-1"]["close_reason"]
    assert "leads out of" in found["bd-2"]["notes"]
    assert "Penstock's own" in found["bd-3"]["notes"]


def test_c3_issues_that_nobody_here_can_do_are_left_alone(cli: Cli) -> None:
    """C3: and said so, with the remedy; those of somebody else without a word."""
    cli.file("penstock.toml", CONFIG.replace('kind = "general"\n', ""))
    write(
        cli,
        issue("bd-1"),
        issue("bd-2", labels=["kind:paint"]),
        issue("bd-3", labels=["docs"], assignee="ada"),
        issue("bd-4", labels=["docs"]),
    )
    before = read(cli)
    status, ended, err = loop(cli)
    assert status == 1
    assert [one["issue"] for one in ended] == ["bd-4"]
    assert "bd-1 is left alone: no rule gives it a kind" in err
    assert "bd-2 is left alone: kind: no host serves kind 'paint'" in err
    assert "bd-3" not in err
    assert {id: one for id, one in read(cli).items() if id != "bd-4"} == {
        id: one for id, one in before.items() if id != "bd-4"
    }


def test_c3_an_issue_that_the_store_does_not_take_keeps_nobody(cli: Cli) -> None:
    """C3: its task would be too long; it is blocked, the others run."""
    write(cli, issue("bd-1"), issue("bd-2", description="x" * 5000), issue("bd-3"))
    status, ended, _ = loop(cli, "--set", "payload_limit_bytes=4000")
    assert status == 1
    assert {one["issue"]: one["status"] for one in ended} == {
        "bd-1": "closed",
        "bd-2": "blocked",
        "bd-3": "closed",
    }
    assert "4,000 are allowed" in read(cli)["bd-2"]["notes"]
    assert read(cli)["bd-2"].get("assignee") is None


def test_c3_no_more_are_claimed_than_wanted(cli: Cli) -> None:
    """C3: the others are there for other workers meanwhile; in the end all are done."""
    write(cli, *(issue(f"bd-{n}") for n in range(5)))
    status, ended, err = loop(cli, "--set", "beads.max_claimed=2")
    assert (status, len(ended)) == (0, 5)
    held = most = 0
    for line in err.splitlines():
        held += (" claimed " in line) - (" closed " in line)
        most = max(most, held)
    assert most == 2


def test_c3_a_task_that_was_cancelled_blocks_its_issue(cli: Cli) -> None:
    """C3: given back, it would be claimed again at once."""
    from penstock.intake.beads.reports import report_of
    from penstock.model import State, Task, TaskRecord

    report = report_of(TaskRecord(Task("k", id="t"), 1, State.CANCELLED))
    assert (report.status, report.reason) == ("blocked", "the task was cancelled")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "loop: --beads DIR is missing"),
        (("--beads", "gone"), "gone: there is no such folder"),
        (("--beads", "empty"), "empty has no .beads folder; run `bd init` there"),
        (("--beads", "full"), "has a database (beads.db), which only `bd` may write"),
        (("--beads", ".", "--interval", "often"), "--interval: 'often' must be a number of seconds"),
        (("--beads", ".", "--interval", "nan"), "--interval: 'nan' must be a number of seconds"),
    ],
)
def test_c3_wrong_use_is_one_line_with_the_remedy(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    """C3, promise 7."""
    (cli.folder / "empty").mkdir()
    (cli.folder / "full" / ".beads").mkdir(parents=True)
    cli.file("full/.beads/beads.db", "")
    monkeypatch.setenv("PATH", str(cli.folder))
    (line,) = cli.bad("loop", *arguments)
    assert told in line


def test_also_when_quiet_a_stop_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    """Who sees nothing happen presses Ctrl-C again, and ends what would have finished."""
    log = Log(as_json=False, quiet=True, traced=False)
    log.line("ready", detail="x")
    log.line("stopping", detail="finishing what runs; once more puts it back")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("stopping finishing what runs; once more puts it back")
