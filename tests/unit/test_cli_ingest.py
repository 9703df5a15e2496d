"""`council ingest` as people see it: its progress, its summary, and what is refused before anything begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.ingest_display import Bar, Lines, Pace, Silent, choose, told
from penstock.cli.ingest_summary import failures, summary
from penstock.council.library.documents import Aside
from penstock.council.library.ingest import Plan
from penstock.council.library.ingested import Ingested, Progress
from tests.unit.cli_rig import Cli, make_cli

COUNCIL = """
store = "penstock.db"

[hosts.small]
type = "simulated"
slots = 2
serves = ["chat"]

[councils.shenron]
members = [{ name = "GOKU" }]
retrieval = { collection = "knowledge_base" }
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    made = make_cli(tmp_path, monkeypatch, capsys)
    made.file("penstock.toml", COUNCIL)
    (tmp_path / "docs").mkdir()
    return made


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["ingest"], "council ingest: DIR is missing"),
        (["ingest", "nowhere"], "nowhere: No such file or directory; give a folder that is there"),
        (["ingest", "penstock.toml"], "penstock.toml: is not a folder"),
        (["ingest", "docs", "--by", "page"], "--by: there is no 'page'"),
        (["ingest", "docs", "--chunk-words", "0"], "--chunk-words: '0' must be a whole number, at least 1"),
        (
            ["ingest", "docs", "--chunk-words", "9", "--overlap-words", "9"],
            "an overlap of 9 words must be less",
        ),
        (["ingest", "docs", "--as", "a/b"], "--as: 'a/b' must be a name"),
        (["ingest", "docs", "--council", "shenrn"], "there is no council 'shenrn'; did you mean 'shenron'?"),
        (["sources", "--council", "x"], "there is no council 'x'"),
    ],
)
def test_wrong_use_is_told_before_anything_begins(cli: Cli, arguments: list[str], why: str) -> None:
    assert why in cli.bad("council", *arguments)[0]
    assert not (cli.folder / "penstock.db").exists()


def test_a_council_without_a_collection_is_refused(cli: Cli) -> None:
    cli.file("penstock.toml", COUNCIL.replace("retrieval", "# retrieval"))
    for command in (["ingest", "docs"], ["sources"]):
        assert cli.bad("council", *command) == [
            "councils.shenron: has no `retrieval`, and so no collection; give it one"
        ]


def test_which_collection_is_asked_where_there_are_two(cli: Cli) -> None:
    other = '[councils.other]\nmembers = [{ name = "A" }]\n'
    cli.file("penstock.toml", COUNCIL + other)
    assert "nowhere: No such file" in cli.bad("council", "ingest", "nowhere")[0]
    cli.file("penstock.toml", COUNCIL + other + 'retrieval = { collection = "other" }\n')
    assert "--council" in cli.bad("council", "ingest", "nowhere")[0]


# ---- progress


def working(files: int, passages: int, bytes: int, failed: int = 0) -> Progress:
    return Progress(
        "working",
        "r",
        files=10,
        files_done=files,
        passages=passages,
        bytes=1000,
        bytes_done=bytes,
        failed=failed,
    )


def test_progress_tells_rate_and_rest_once_they_are_known() -> None:
    pace = Pace()
    for phase, words in (
        ("looking", "looking at"),
        ("waiting", "an earlier ingest"),
        ("asking", "the library"),
    ):
        assert words in told(Progress(phase), pace)
    pace.add(working(0, 0, 0), 100.0)
    assert told(working(0, 0, 0), pace) == "0 of 10 files · 0 passages"
    pace.add(working(2, 120, 200), 102.0)
    assert told(working(2, 120, 200), pace) == "2 of 10 files · 120 passages · 60/s · about 8.0 s left"
    pace.add(working(10, 130, 1000, 1), 132.0)
    assert told(working(10, 130, 1000, 1), pace) == "10 of 10 files, 1 failed · 130 passages · 4.1/s"


def test_the_rate_is_that_of_late() -> None:
    pace = Pace()
    for second in range(200):
        pace.add(working(0, second * 10 if second < 100 else 1000 + second, second), float(second))
    assert pace.passages_per_s() == pytest.approx(1.0, abs=0.1)


def test_failures_foretell_nothing() -> None:
    pace = Pace()
    pace.add(working(0, 0, 0), 100.0)
    pace.add(working(0, 0, 10, failed=1), 105.0)
    assert pace.left_s(working(0, 0, 10, failed=1)) is None


def test_lines_are_told_when_something_changed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines.open("penstock -c x.toml {}".format)
    began = lines._began
    for at in (0.0, 1.0):
        lines.update(Progress("asking", "ingest-r"), began + at)
    for at in (6.0, 7.0):
        lines.update(Progress("asking", "ingest-r"), began + at)
    lines.update(working(1, 4, 100), began + 8.0)
    lines.update(working(2, 5, 200), began + 8.5)  # it is too early for another line
    assert capsys.readouterr().err.splitlines() == [
        "   0 ms  asking the library what it holds",
        "penstock: the library has not answered yet; `penstock -c x.toml why ingest-r` says what it waits for",
        "  8.0 s  1 of 10 files · 4 passages",
    ]


def test_the_bar_is_for_terminals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    bar = choose(quiet=False)
    assert isinstance(bar, Bar)
    assert isinstance(choose(quiet=True), Silent)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(choose(quiet=False), Lines)
    bar.open("penstock {}".format)
    bar.update(Progress("asking"), bar._began)
    bar.update(working(3, 40, 500), bar._began + 1)
    bar.tell("a word")
    bar.close()
    shown = capsys.readouterr().err
    assert "3 of 10 files" in shown
    assert "penstock: a word" in shown
    assert "━" in shown


# ---- what was done


def ingested(**given: object) -> Ingested:
    made = Ingested("shenron", "knowledge_base", "docs", "docs", False, Plan())
    for name, value in given.items():
        setattr(made, name, value)
    return made


def test_the_summary_names_what_was_left_out_and_why() -> None:
    plan = Plan(unchanged=("docs/a", "docs/b"), kept=("docs/shut/x.md",))
    left_out = [Aside(f"{n}.png", "not a document") for n in range(7)] + [Aside(".git/", "hidden")]
    notes = [Aside("old.txt", "is not UTF-8 (byte 2); read as Latin-1")]
    told = ingested(plan=plan, added=["docs/c"], passages=3, took_s=1.5, left_out=left_out, notes=notes)
    told.failed = [Aside("bad.pdf", "is damaged or no PDF: \x1b[31mstream")]
    told.elsewhere = ["wiki/x.md"]
    assert list(summary(told)) == [
        "docs in knowledge_base: 1 added, 0 changed, 0 removed, 2 unchanged, 1 failed (3 passages) in 1.5 s",
        "kept as they were: docs/shut/x.md",
        "note: old.txt is not UTF-8 (byte 2); read as Latin-1",
        "left out, hidden: .git/",
        "left out, not a document: 0.png, 1.png, 2.png, 3.png, 4.png and 2 more",
        "to be ingested again from their own folders: wiki/x.md",
    ]
    assert list(failures(told)) == ["bad.pdf: is damaged or no PDF: �[31mstream"]


def test_a_dry_run_lists_what_would_be_done() -> None:
    told = ingested(dry_run=True, plan=Plan(("docs/n.md",), ("docs/c.md",), ("docs/r.md",), ("docs/u.md",)))
    assert list(summary(told)) == [
        "would put 1 new file and 1 changed one into knowledge_base, and remove 1; 1 unchanged",
        "  add     docs/n.md",
        "  change  docs/c.md",
        "  remove  docs/r.md",
    ]


def test_an_interrupted_one_says_how_to_go_on() -> None:
    told = ingested(stopped=True, plan=Plan(add=("docs/a", "docs/b", "docs/c", "docs/d")), added=["docs/a"])
    told.failed = [Aside("d", "no room")]
    assert "interrupted with 2 files to go; the same command goes on" in list(summary(told))


def test_many_failures_are_counted() -> None:
    told = ingested(failed=[Aside(f"{n}.md", "no room") for n in range(60)], gave_up=True)
    lines = list(failures(told))
    assert len(lines) == 52
    assert lines[-2] == "10 more failed; --json names all"
    assert lines[-1].startswith("gave up")
