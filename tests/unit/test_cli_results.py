"""`results`, and how `run` ends on a terminal: what tasks came to, as text, records and files (E9)."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from pathlib import Path

import pytest

import penstock
from penstock.cli import answers
from penstock.client.looking import Looking
from penstock.model import State, Task
from penstock.store.base import TaskFilter
from tests.unit.cli_rig import Cli, make_cli

CONFIG = """
store = "penstock.db"

[hosts.here]
type = "command"
argv = ["printf", "%s", "{say}"]
stdin = "none"
slots = 2
serves = ["say"]

[hosts.not]
type = "command"
argv = ["sh", "-c", "echo why not >&2; exit 3"]
stdin = "none"
serves = ["fail"]

[retry]
retries = 0
"""
SAID = {
    "plain": "one line",
    "report": "# Title\n\nSome *words*.",
    "data": '{"n": 1}',
    "chat": json.dumps({"text": "an answer", "model": "m", "usage": {}}),
}


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    made = make_cli(tmp_path, monkeypatch, capsys)
    made.file("penstock.toml", CONFIG)
    lines = [json.dumps({"kind": "say", "id": name, "payload": {"say": text}}) for name, text in SAID.items()]
    made.file("tasks.jsonl", "\n".join([*lines, '{"kind": "fail", "id": "broken"}', ""]))
    return made


@pytest.fixture
def ran(cli: Cli) -> Cli:
    assert cli("run", "tasks.jsonl", "--run", "first", "--quiet").status == 1
    return cli


def test_results_are_texts_under_their_names(ran: Cli) -> None:
    said = ran.good("results", "first")
    heads = [line for line in said.lines if line.startswith("── ")]
    assert [head.split()[1].rstrip(":") for head in heads] == [*SAID, "broken"], "in the order of the file"
    assert heads[-1].startswith("── broken: failed: exit status 3: why not")
    assert "\n# Title\n\nSome *words*.\n" in said.out
    assert "\nan answer\n" in said.out, "of a record its text"
    assert said.err == ""
    assert ran.good("results", "last").out == ran.good("results", "fir").out == said.out


@pytest.mark.parametrize("name", ["chat", "first:chat"])
def test_the_result_of_one_task_is_its_text_alone(ran: Cli, name: str) -> None:
    assert ran.good("results", name).out == "an answer\n"
    record = ran.good("results", name, "--json").json
    assert (record["name"], record["text"], record["value"]["model"]) == ("chat", "an answer", "m")


def test_of_one_task_that_is_not_done_the_reason_is_told(ran: Cli) -> None:
    said = ran("results", "broken")
    assert (said.status, said.out) == (1, "")
    assert said.err == "penstock: task broken is failed: exit status 3: why not\n"


def test_results_as_records(ran: Cli) -> None:
    listed = ran.good("results", "first", "--json").json
    lines = [json.loads(line) for line in ran.good("results", "first", "--jsonl").lines]
    assert listed == lines
    assert {one["name"]: one["text"] for one in lines} == {
        "plain": "one line",
        "report": SAID["report"],
        "data": json.dumps({"n": 1}, indent=2),
        "chat": "an answer",
        "broken": None,
    }
    assert json.loads(lines[2]["text"]) == lines[2]["value"] == {"n": 1}
    assert lines[-1]["error"].startswith("exit status 3")


def test_results_as_a_table(ran: Cli) -> None:
    rows = list(csv.DictReader(io.StringIO(ran.good("results", "first", "--csv").out)))
    assert [row["name"] for row in rows] == [*SAID, "broken"]
    assert rows[1]["text"] == SAID["report"], "with its lines"
    assert (rows[-1]["state"], rows[-1]["text"]) == ("failed", "")


def test_a_table_on_a_terminal_steers_nothing(ran: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ran.file("bad.jsonl", json.dumps({"kind": "say", "payload": {"say": "a\x1b[2Jb\nc"}}))
    assert ran("run", "bad.jsonl", "--run", "bad", "--quiet").status == 0
    assert "a\x1b[2Jb\nc" in ran.good("results", "bad", "--csv").out, "for a program as it is"
    monkeypatch.setattr("penstock.cli.render.shown", lambda text: text.replace("\x1b", "?"))
    assert "a?[2Jb\nc" in ran.good("results", "bad", "--csv").out


def test_results_as_files(ran: Cli) -> None:
    said = ran.good("results", "first", "--files", "out/here")
    assert said.out == "4 files in out/here; without a result: 1 failed\n"
    folder = ran.folder / "out/here"
    assert {path.name: path.read_text() for path in folder.iterdir() if path.name[0] != "."} == {
        "plain.txt": "one line\n",
        "report.md": SAID["report"] + "\n",
        "data.json": json.dumps({"n": 1}, indent=2) + "\n",
        "chat.txt": "an answer\n",
    }
    assert ran.good("results", "first", "--files", "out/here").out == said.out, "again, over its own"


def test_a_run_that_goes_on_has_results_as_well(cli: Cli) -> None:
    cli.good("submit", "--file", "tasks.jsonl", "--run", "first")
    said = cli.good("results", "first")
    assert said.lines[0] == "── plain: queued"
    assert said.err == "penstock: 5 of 5 tasks not ended yet\n"
    assert (
        cli.good("results", "first", "--files", "out").out == "0 files in out; without a result: 5 queued\n"
    )
    assert cli("work", "--drain", "--quiet").status == 1
    assert cli.good("results", "first", "--files", "out").out.startswith("4 files in out;")


def test_a_folder_of_somebody_is_left_alone(ran: Cli) -> None:
    (ran.folder / "mine").mkdir()
    (ran.folder / "mine/plain.txt").write_text("mine")
    (told,) = ran.bad("results", "first", "--files", "mine")
    assert told == "--files: mine has other files in it; name a new or an empty folder"
    assert [path.name for path in (ran.folder / "mine").iterdir()] == ["plain.txt"]
    ran.good("results", "first", "--files", "out")
    ran.good("submit", "say", '{"say": "x"}', "--run", "second")
    (told,) = ran.bad("results", "second", "--files", "out")
    assert told == "--files: out has the results of run first; name another folder"


def test_nothing_is_written_outside_of_the_folder(ran: Cli) -> None:
    ran.good("results", "first", "--files", "out")
    (ran.folder / "out/chat.txt").unlink()
    (ran.folder / "out/chat.txt").symlink_to(ran.folder / "elsewhere.txt")
    (told,) = ran.bad("results", "first", "--files", "out")
    assert told == "--files: out/chat.txt is a link; remove it, or name another folder"
    assert not (ran.folder / "elsewhere.txt").exists()


def _named(folder: Path, *names: str) -> list[str]:
    from penstock.model import TaskRecord

    files = answers._Files(folder, "r")
    for number, name in enumerate(names):
        files.write(TaskRecord(Task("k", run="r", id=name), number, State.DONE, value="x"))
    return sorted(path.name for path in folder.iterdir() if path.name != ".penstock-run")


def test_names_of_files_are_safe_and_apart(tmp_path: Path) -> None:
    """Ids of an imported run may be anything."""
    names = _named(tmp_path / "a", "r:one", "../../etc/passwd", "..", "a/b", "a b", "One", "x" * 300, "\n")
    assert names == sorted(
        [
            "one.txt",
            "-..-etc-passwd.txt",
            "task.txt",
            "a-b.txt",
            "a-b-2.txt",
            "One-2.txt",
            "x" * 150 + ".txt",
            "-.txt",
        ]
    )


def test_results_are_read_a_page_at_a_time(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that any run fits into memory: nobody asks for all of it."""
    monkeypatch.setattr(answers, "_PAGE", 3)
    sizes: list[int | None] = []
    pages = Looking.pages

    def counted(self: Looking, chosen: TaskFilter, size: int) -> object:
        sizes.append(size)
        return pages(self, chosen, size)

    monkeypatch.setattr(Looking, "pages", counted)
    cli.file("many.jsonl", "".join(f'{{"kind": "say", "id": "t{n}"}}\n' for n in range(10)))
    cli.good("submit", "--file", "many.jsonl", "--run", "many")
    assert len(cli.good("results", "many", "--jsonl").lines) == 10
    assert sizes == [3]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nope"], "there is no run 'nope'"),
        (["first", "--json", "--csv"], "results: --json, --jsonl, --csv and --files cannot be used together"),
        (
            ["first", "--files", "tasks.jsonl"],
            "--files: tasks.jsonl cannot be a folder of results: File exists; name another",
        ),
    ],
)
def test_what_cannot_be_shown(ran: Cli, arguments: list[str], told: str) -> None:
    assert ran.bad("results", *arguments)[0].startswith(told)


# ---- the end of `run`


def beginnings(cli: Cli, run: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    async def show() -> None:
        async with penstock.open(cli.folder / "penstock.toml", dispatch=False) as client:
            await answers.print_beginnings(client, run, "penstock {}".format)

    capsys.readouterr()
    asyncio.run(show())
    return capsys.readouterr().out.splitlines()


def test_a_short_run_ends_with_its_answers(ran: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    assert beginnings(ran, "first", capsys) == [
        "",
        "plain   one line",
        "report  # Title",
        "",
        "        Some *words*.",
        "data    {",
        '          "n": 1',
        "        }",
        "chat    an answer",
        "answers as files: `penstock results first --files DIR`",
    ]


def test_long_answers_are_cut_and_long_runs_told_where_to_read(
    cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\\n".join(f"line {n}" for n in range(50))
    cli.file("long.jsonl", f'{{"kind": "say", "id": "long", "payload": {{"say": "{text}"}}}}\n')
    cli.good("run", "long.jsonl", "--run", "long", "--quiet")
    lines = beginnings(cli, "long", capsys)
    assert (lines[1], lines[24], lines[-1]) == (
        "long  line 0",
        "      line 23 …",
        "all of it: `penstock results long`",
    )
    cli.file("many.jsonl", "".join(f'{{"kind": "say", "payload": {{"say": "{n}"}}}}\n' for n in range(25)))
    cli.good("run", "many.jsonl", "--run", "many", "--quiet")
    assert beginnings(cli, "many", capsys) == ["", "all of it: `penstock results many`"]


def test_without_an_answer_nothing_is_added(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    cli.good("submit", "say", "--run", "queued")
    assert beginnings(cli, "queued", capsys) == []
