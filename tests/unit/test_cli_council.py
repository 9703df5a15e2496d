"""`penstock council` in a folder with a config: what it lists, reports and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.council_past import _print_history
from tests.unit.cli_rig import CONFIG, Cli, make_cli
from tests.unit.council_rig import record

COUNCIL = """
[hosts.models]
type = "openai"
url = "http://127.0.0.1:9/v1"
model = "m"
slots = 4
serves = ["chat"]

[councils.shenron]
chair = "VEGETA"
retrieval = { collection = "knowledge_base" }
members = [
  { name = "GOKU", emoji = "🥋", role = "the direct thinker", model = "m" },
  { name = "VEGETA", emoji = "👑", role = "the critic", model = "m" },
]
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    made = make_cli(tmp_path, monkeypatch, capsys)
    made.file("penstock.toml", CONFIG + COUNCIL)
    return made


def test_list_tells_who_answers_and_who_sums_up(cli: Cli) -> None:
    """D2"""
    told = cli.good("council", "list")
    assert told.lines[0] == "shenron: mode council, quorum 1 of 2, reads 3 passages of knowledge_base"
    assert [line.split() for line in told.lines[2:]] == [
        ["🥋", "GOKU", "the", "direct", "thinker", "m", "models", "chat", "answers"],
        ["👑", "VEGETA", "the", "critic", "m", "models", "chat", "answers,", "sums", "up"],
    ]
    (listed,) = cli.good("council", "list", "--json").json
    assert [one["name"] for one in listed["members"]] == ["GOKU", "VEGETA"]
    assert listed["chair"]["name"] == "VEGETA"


def test_list_tells_the_hosts_and_their_models(cli: Cli) -> None:
    """D2: also where members name a host, and a chair that answers nothing itself."""
    text = COUNCIL.replace('model = "m" },', 'host = "models" },')
    chair = 'chair = { name = "SHENRON", role = "the dragon", host = "models" }'
    cli.file("penstock.toml", CONFIG + text.replace('chair = "VEGETA"', chair))
    rows = [line.split() for line in cli.good("council", "list").lines[2:]]
    assert [row[-4:] for row in rows[:2]] == [["m", "models", "chat", "answers"]] * 2
    assert rows[2] == ["SHENRON", "the", "dragon", "m", "models", "chat", "sums", "up"]


@pytest.mark.parametrize("command", [("list",), ("history",)])
def test_without_a_council_an_example_is_shown(cli: Cli, command: tuple[str, ...]) -> None:
    cli.file("penstock.toml", CONFIG)
    told = cli("council", *command)
    assert (told.status, told.out) == (2, "")
    assert told.told[0].startswith("penstock: there is no council in ")
    assert "[councils.shenron]" in told.told


def test_the_example_is_a_council(cli: Cli) -> None:
    cli.file("penstock.toml", CONFIG)
    shown = cli("council", "list").err.split("\n", 1)[1].replace("MODEL", "m")
    cli.file("penstock.toml", CONFIG + COUNCIL.split("[councils", 1)[0] + shown)
    assert "GOKU" in cli.good("council", "list").out


def test_history_says_when_there_is_none(cli: Cli) -> None:
    cli.good("resume")  # now there is a store
    told = cli.good("council", "history")
    assert told.out == ""
    assert "nothing was asked yet" in told.err
    assert cli.good("council", "history", "--json").json == []
    assert "nothing was asked yet" in cli.bad("council", "show", "last")[0]
    assert cli.bad("council", "show", "zzz") == [
        "there is no question 'zzz'; `penstock council history` lists them"
    ]


def test_what_is_no_question_is_refused(cli: Cli) -> None:
    cli.good("submit", "summarize", "{}")
    task = cli.tasks()[0]["task_id"]
    (told,) = cli.bad("council", "show", task)
    assert told.startswith(f"'{task}' is a task of kind 'summarize', no question")


def test_a_report_of_a_file(cli: Cli) -> None:
    """D8: by the name of --out, or by --format, as Markdown or HTML."""
    cli.file("r.json", json.dumps(record()))
    assert cli.good("council", "report", "r.json").out.startswith("# A question to the council\n")
    assert cli.good("council", "report", "r.json", "--format", "html").out.startswith("<!doctype html>")
    assert cli.good("council", "report", "r.json", "-o", "r.html").out == ""
    assert (cli.folder / "r.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "r.json: is not JSON: "),
        ("[]", "r.json: is no record of a council's question: "),
    ],
)
def test_a_report_of_something_else_is_refused(cli: Cli, content: str, told: str) -> None:
    cli.file("r.json", content)
    (said,) = cli.bad("council", "report", "r.json", "-o", "r.md")
    assert said.startswith(told)
    assert not (cli.folder / "r.md").exists()


def test_a_report_of_nothing_is_refused(cli: Cli) -> None:
    assert cli.bad("council", "report", "missing.json") == [
        "missing.json: no such file or directory; correct the name"
    ]
    cli.file("r.json", json.dumps(record()))
    assert (
        "--out: 'r.txt' must end with .md or .html"
        in cli.bad("council", "report", "r.json", "-o", "r.txt")[0]
    )
    cli.good("council", "report", "r.json", "-o", "r.txt", "--format", "md")
    assert "there is no 'pdf'" in cli.bad("council", "report", "missing.json", "--format", "pdf")[0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("Why?", "--mode", "fast"), "no mode 'fast'"),
        (("Why?", "--members", "KRILLIN"), "no member 'KRILLIN'; there are: GOKU, VEGETA"),
        (("",), "`query` is empty"),
        (("Why?", "--council", "shenrn"), "there is no council 'shenrn'; did you mean 'shenron'?"),
        (("Why?", "--out", "answer.pdf"), "--out: 'answer.pdf' must end with .json"),
        (("Why?", "--out", "missing/answer.md"), "--out: 'missing/answer.md' cannot be written"),
        (("Why?", "--follow-up"), "--follow-up: council 'shenron' was asked nothing yet"),
        (("Why?", "--follow-up", "--conversation", "a"), "--follow-up and --conversation exclude each other"),
        (("Why?", "--conversation", "v1-2026-11-16"), "what begins with 'v1-' are chats of everybody"),
        (("Why?", "--conversation", "a/b:c", "--dry-run"), "`conversation` cannot be 'a/b:c'"),
        (("Why?", "--json", "--events"), "--json and --events exclude each other"),
        (("Why?", "--priority", "7"), "--priority: there is no '7'"),
    ],
)
def test_what_is_wrong_is_told_and_nobody_is_asked(cli: Cli, arguments: tuple[str, ...], told: str) -> None:
    """D7: in one line, before anything is kept."""
    (said,) = cli.bad("council", "ask", *arguments)
    assert told in said
    assert cli.tasks() == []


def test_a_dry_run_tells_calls_tokens_and_money(cli: Cli) -> None:
    """D6: by stage, expected and at most, and asks nobody."""
    cli.file("penstock.toml", CONFIG + COUNCIL + "\n[prices.m]\ninput = 1\noutput = 2\n")
    made = cli.good("council", "ask", "Why?", "--dry-run", "--json").json
    assert [one["stage"] for one in made["stages"]] == ["retrieve", "members", "agreement", "synthesis"]
    assert 0 < made["usd"] < made["usd_most"]
    told = cli.good("council", "ask", "Why?", "--dry-run").lines
    assert told[0].split() == ["stage", "calls", "tokens", "USD", "expected", "USD", "at", "most"]
    assert told[-1] == "nothing was asked of shenron"
    assert cli.tasks() == []


def test_detach_leaves_a_question(cli: Cli) -> None:
    """D7: it is listed, can be shown, and is not reported before it is over."""
    left = cli.good("council", "ask", "Why?", "--detach", "--conversation", "dams")
    id = left.out.strip()
    assert "no dispatcher is running" in left.err
    (one,) = cli.good("council", "history", "--conversation", "dams", "--json").json
    assert (one["id"], one["state"], one["query"], one["conversation"]) == (id, "queued", "Why?", "dams")
    assert one["mode"] == "council", "as the council has it, before there is a record"
    assert "begins conversation 'dams'" in left.err
    again = cli.good("council", "ask", "And now?", "--detach", "--conversation", "dams")
    assert "begins conversation" not in again.err
    (told,) = cli.bad("council", "ask", "And why?", "--follow-up", "--detach")
    assert f"the newest, {again.out.strip()}, is queued; leave it out" in told, "it has no answer to follow"
    assert "not over yet" in cli.good("council", "show", "last").out
    assert "there is nothing to report" in cli.bad("council", "report", id)[0]
    assert "dams" not in cli.good("council", "history").out.splitlines()[0]


@pytest.mark.parametrize(
    ("disputes", "shown"),
    [(2, "2 in dispute"), (0, "1.00"), (None, "1.00")],
    ids=["some", "none", "unchecked"],
)
def test_d4_disputes_come_before_the_figure_in_the_history(
    disputes: int | None, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """D4: where there is room for one of them."""
    entry = {
        "id": "q",
        "asked_at": 1.0,
        "state": "done",
        "mode": "council",
        "success_count": 2,
        "total_fighters": 2,
        "disputes": disputes,
        "agreement": 1.0,
        "query": "Why?",
    }
    _print_history([entry], several=False)
    row = capsys.readouterr().out.splitlines()[1]
    assert shown in row
    assert ("1.00" in row) is not bool(disputes)
