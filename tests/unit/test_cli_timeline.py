"""`penstock timeline`: on a terminal and in a pipe, as data and as files; what is wrong is told in a line (A6)."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli.timeline_text import ASCII, UNICODE, Signs, print_timeline
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.timeline.bars import timeline_of
from penstock.diagnosis.timeline.svg import GENERATOR
from tests.unit.cli_rig import Cli, make_cli
from tests.unit.timeline_rig import huge, small, wait


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


@pytest.fixture
def ran(cli: Cli) -> Cli:
    cli.file("tasks.jsonl", "\n".join(f'{{"kind": "summarize", "id": "t{n}"}}' for n in range(6)))
    cli.good("run", "tasks.jsonl", "--run", "nightly", "--quiet")
    return cli


def drawn(
    source: Recording, *, width: int = 100, limit: int = 50, signs: Signs = UNICODE, colour: bool = False
) -> str:
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        markup=False,
        highlight=False,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        legacy_windows=False,
    )
    print_timeline(console, timeline_of(source), limit, signs)
    return out.getvalue()


# ---- the drawing


def test_waits_have_letters_of_reasons_and_attempts_of_hosts() -> None:
    lines = drawn(small(), width=80, signs=ASCII).splitlines()
    assert lines[0] == "run nightly: 3 tasks in 25 s so far"
    first, second, third = (line.split("|")[0] for line in lines[2:5])
    assert first.split() == ["first", "summarize", "A" + "#" * 17, "10", "s"]
    assert second.split()[2] == "s" + "." * 14 + "B#####" + "!" + "t" + "......" + "A" + "#" * 7
    assert third.split()[2] == "g" + "." * 36
    assert third.endswith("20 s queued")
    assert "waiting  g. gate:vram 62 %  s. slots:fenrir 25 %  t. scheduled 12 %" in lines


def two_hosts() -> Recording:
    source = small()
    waits = {**source.waits, "third": [wait("slots:surtr", 5, 25)]}
    return replace(source, waits=waits)


def test_waits_for_two_hosts_have_numbers_and_the_legend_tells_them() -> None:
    lines = drawn(two_hosts(), width=80, signs=ASCII).splitlines()
    assert "s2...." in lines[3]
    assert "s1...." in lines[4]
    assert "waiting  s1. slots:surtr 62 %  s2. slots:fenrir 25 %  t. scheduled 12 %" in lines


def test_nothing_is_wider_than_the_screen_and_colours_change_no_sign() -> None:
    for width in (60, 80, 100, 237):
        plain = drawn(huge(400), width=width)
        assert max(map(len, plain.splitlines())) <= width
        coloured = drawn(huge(400), width=width, colour=True)
        assert "\x1b[" in coloured
        assert Console(file=StringIO()).render_str(plain).plain == _without_colours(coloured)


def _without_colours(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_plain_signs_are_ascii() -> None:
    assert drawn(huge(300), signs=ASCII).replace("…", "").isascii()


def test_what_is_left_out_is_folded_and_counted() -> None:
    text = drawn(huge(300, hosts=2), limit=20)
    assert "280 more tasks, folded by lane and kind; --limit shows more" in text
    counts = [int(line.split(" of ")[0]) for line in text.splitlines() if " of lane-" in line]
    assert len(counts) == 12
    assert "and 9 more lanes and kinds" in text
    assert text.count("1m7f") <= 20 + 5


def test_outliers_are_marked_and_the_rule_is_told() -> None:
    text = drawn(huge(2000, hosts=2), limit=10)
    assert "◆ 1m7f" in text
    assert "half of its kind ran at most" in text
    assert "interquartile" in text


def test_names_of_anybody_move_no_cursor() -> None:
    from dataclasses import replace

    source = small()
    bad = replace(source.tasks[0], task=replace(source.tasks[0].task, id="x\x1b[2J\ny", kind="k\r"))
    text = drawn(replace(source, tasks=[bad, *source.tasks[1:]], waits={**source.waits, "x\x1b[2J\ny": []}))
    assert "\x1b" not in text
    assert "\r" not in text


# ---- the command


def test_a6_a_run_is_drawn_by_name_beginning_or_last(ran: Cli) -> None:
    by_name = ran.good("timeline", "nightly")
    assert by_name.lines[0].startswith("run nightly: 6 tasks in ")
    assert [line.split()[0] for line in by_name.lines[2:8]] == [f"t{n}" for n in range(6)]
    assert all(len(line) <= 100 for line in by_name.lines)
    assert "\x1b" not in by_name.out
    assert ran.good("timeline", "ni").out == ran.good("timeline", "last").out == by_name.out


def test_width_and_limit_are_obeyed(ran: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    said = ran.good("timeline", "nightly", "--limit", "2")
    assert max(map(len, said.lines)) <= 70
    assert "4 more tasks, folded by lane and kind; --limit shows more" in said.out


def test_the_data_have_every_task_with_its_pieces(ran: Cli) -> None:
    told = ran.good("timeline", "nightly", "--json").json
    assert [one["task_id"] for one in told["tasks"]] == [f"nightly:t{n}" for n in range(6)]
    for one in told["tasks"]:
        at = one["queued_at"]
        spans = [(w["from"], w["to"]) for w in one["waits"]]
        spans += [(a["started_at"], a["ended_at"]) for a in one["attempt_records"]]
        for start, end in sorted(spans):
            assert start == at
            at = end
        assert at == one["ended_at"]
    assert [host["host"] for host in told["hosts"]] == ["small", "large"]
    assert told["hosts"][0]["slots"][-1][1] == 2


def test_files_are_written_whole_and_replaced(ran: Cli) -> None:
    said = ran.good("timeline", "nightly", "--html", "a.html", "--svg", "a.svg")
    assert (said.out, said.told) == ("", ["penstock: wrote a.html", "penstock: wrote a.svg"])
    assert (ran.folder / "a.html").read_text().startswith("<!doctype html>")
    assert (ran.folder / "a.svg").read_text().startswith("<svg ")
    (ran.folder / "a.svg").write_text(f"<svg >{GENERATOR}old")
    told = ran.good("timeline", "nightly", "--svg", "a.svg", "--json").json
    assert told["run"] == "nightly"
    assert "old" not in (ran.folder / "a.svg").read_text()
    assert not [one for one in ran.folder.iterdir() if one.name.endswith(".part")]


def test_a_file_that_is_no_picture_of_ours_is_left_alone(ran: Cli) -> None:
    tasks = ran.folder / "tasks.jsonl"
    before = tasks.read_bytes()
    for option, what in (("--html", "page"), ("--svg", "picture")):
        (line,) = ran.bad("timeline", "nightly", option, "tasks.jsonl")
        assert f"tasks.jsonl is there and no {what} of penstock timeline; name another file" in line
        assert tasks.read_bytes() == before
    (ran.folder / "empty").touch()  # as mktemp makes it
    ran.good("timeline", "nightly", "--html", "empty")
    (line,) = ran.bad("timeline", "nightly", "--svg", "empty")
    assert "no picture of" in line


@pytest.mark.parametrize(("option", "begin"), [("--html", "<!doctype html>"), ("--svg", "<svg ")])
def test_a_dash_is_stdout(ran: Cli, option: str, begin: str) -> None:
    said = ran.good("timeline", "nightly", option, "-")
    assert said.out.startswith(begin)
    assert said.told == []
    assert not (ran.folder / "-").exists()


def test_an_export_is_drawn_as_the_run_was_without_a_config(ran: Cli) -> None:
    ran.good("export", "nightly", "--out", "nightly.jsonl")
    before = ran.good("timeline", "nightly", "--json").json
    (ran.folder / "penstock.toml").unlink()
    after = ran.good("timeline", "nightly.jsonl", "--json").json
    assert after["tasks"] == before["tasks"]


def test_a_log_of_another_system_is_drawn(cli: Cli) -> None:
    cli.file("log.csv", "id,kind,enq,start,end,worker\na,x,0,1,4,w1\nb,x,0,2,9,w2\n")
    said = cli.good("timeline", "log.csv", "--map", "queued=enq", "--map", "host=worker")
    assert said.lines[0] == "run log: 2 tasks in 9.0 s"
    assert "no reason told 100 %" in said.out
    (host,) = [line for line in said.lines if line.startswith("w1")]
    assert host.split()[1:3] == [">=", "1"], "so many slots were seen in use; how many there were is not told"


# ---- what is wrong


def test_what_is_wrong_is_told_in_one_line_before_any_work(ran: Cli) -> None:
    (ran.folder / "folder").mkdir()
    os.mkfifo(ran.folder / "pipe")
    cases = {
        ("nobody",): "there is no run 'nobody'",
        ("nightly", "--limit", "x"): "--limit: 'x' must be a whole number",
        ("nightly", "--html", "folder"): "folder is there and no file",
        ("nightly", "--svg", "pipe"): "pipe is there and no file",
        ("nightly", "--svg", "gone/a.svg"): "there is no folder",
        ("nightly", "--html", "a", "--svg", "a"): "--html and --svg both name a",
        ("nightly", "--html", "-", "--json"): "--json and a file named - both write to stdout",
        ("nightly", "--map", "a=b"): "--map and --slots are for files",
    }
    for arguments, words in cases.items():
        (line,) = ran.bad("timeline", *arguments)
        assert words in line, arguments
    assert not (ran.folder / "a").exists()


def test_a_run_of_another_name_may_be_in_the_same_store(ran: Cli) -> None:
    ran.good("submit", "summarize", "--run", "nightly-2")
    assert ran.good("timeline", "nightly").lines[0].startswith("run nightly: ")
    told = ran.good("timeline", "last", "--json").json
    assert told["run"] == "nightly-2"
    assert json.dumps(told["tasks"][0]["waits"]).count("dispatcher-down") == 1
