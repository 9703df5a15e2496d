"""The parts below the commands: times and texts, a run counted, progress, lines of a log, whole files."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli import render
from penstock.cli.details import print_waits
from penstock.cli.files import replacing
from penstock.cli.host_watch import Outage
from penstock.cli.logs import Log, telling
from penstock.cli.progress import Board, Lines, Silent, choose, failure_line
from penstock.cli.session import hearing_interrupts
from penstock.cli.tally import Tally
from penstock.model import Host, State, Task, TaskRecord, Verdict, Wait
from penstock.scheduling.messages import (
    Begin,
    Decision,
    End,
    GateChange,
    HostChange,
    Move,
    Requeue,
    Revive,
    Start,
    Stop,
    WaitChange,
)
from penstock.telemetry.story import Story

# ---- render


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (-1.0, "0 ms"),
        (0.0, "0 ms"),
        (0.0996, "0.1 s"),
        (0.04, "40 ms"),
        (0.25, "0.2 s"),
        (3.2, "3.2 s"),
        (9.96, "10 s"),
        (99.4, "99 s"),
        (99.6, "1m40s"),
        (185.0, "3m05s"),
        (3599.9, "1h00m"),
        (7800.0, "2h10m"),
        (277_200.0, "3d05h"),
    ],
)
def test_stretches_of_time(amount: float, text: str) -> None:
    assert render.seconds(amount) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\n  b\tc", "a b c"),
        ("\x1b[31mred", "�[31mred"),
        ("x" * 20, "xxxxxxxxx…"),
        ("žluťoučký 🐎", "žluťoučký 🐎"),
    ],
)
def test_texts_of_others_become_a_line(text: str, line: str) -> None:
    assert render.one_line(text, None if "🐎" in text else 10) == line


def test_moments_tell_the_day_unless_it_is_today() -> None:
    import time

    now = time.time()
    assert len(render.moment(now)) == len("12:00:00.000")
    assert render.moment(now - 3 * 86_400).count("-") == 2
    assert render.moment(None) == ""


@pytest.mark.parametrize(("share", "text"), [(0.0, "0 %"), (0.004, "0.4 %"), (0.5, "50 %"), (1.0, "100 %")])
def test_shares(share: float, text: str) -> None:
    assert render.percent(share) == text


def test_only_the_flexible_column_is_cut() -> None:
    made = render.table(("task", "error"), [("t" * 30, "e" * 100)], flexible="error")
    console = Console(width=50)
    with console.capture() as captured:
        console.print(made)
    line = captured.get().splitlines()[1]
    assert line.startswith("t" * 30 + "  e")
    assert "…" in line


def test_a_table_too_wide_is_told_in_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns, rows = (
        ("way", ">time", ">memory", ">done"),
        [("threads", "132 s", "80 MB", "6"), ("ours", "92 s", "9 MB", "6")],
    )
    monkeypatch.setattr(render, "console", lambda: Console(file=sys.stdout, width=24))
    render.print_in_parts(columns, rows)
    told = capsys.readouterr().out
    assert all(len(line) <= 24 for line in told.splitlines())
    assert told.count("threads") == 2, "each part says of whom"
    for text in ("time", "memory", "done", "132 s", "80 MB"):
        assert text in told
    monkeypatch.setattr(render, "console", lambda: Console(file=sys.stdout, width=80))
    render.print_in_parts(columns, rows)
    assert capsys.readouterr().out.count("threads") == 1


def test_columns_are_two_blanks_apart_the_last_one_too(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_table((">busy", ">slot use"), [("4.0 s", "66 %")])
    assert capsys.readouterr().out == " busy  slot use\n4.0 s      66 %\n"


@pytest.mark.parametrize("colour", [True, False])
def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch, colour: bool) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        monkeypatch.delenv("NO_COLOR", raising=False)
    out = render.console()
    with out.capture() as captured:
        out.print("x", style="red")
    assert ("\x1b[31m" in captured.get()) is colour


# ---- tally


def record(
    task: Task, state: State, host: str = "here", start: float = 0.0, end: float | None = None
) -> TaskRecord:
    return TaskRecord(task, 1, state, 1, host=host, started_at=start, ended_at=end)


TASKS = {
    f"t{n}": Task("a" if n < 4 else "b", id=f"t{n}", lane="left" if n < 4 else "right") for n in range(6)
}


def test_a_run_is_counted() -> None:
    """C5: per lane done, failed, running and queued; per host what runs there, the oldest first."""
    tally = Tally(TASKS)
    tally.add_ended([record(TASKS["t0"], State.DONE, end=1.0), record(TASKS["t1"], State.CANCELLED, end=1.0)])
    other = Task("z", id="other", lane="left")
    tally.set_running(
        [
            record(TASKS["t2"], State.RUNNING, start=5.0),
            record(TASKS["t4"], State.RUNNING, host="there", start=2.0),
            record(other, State.RUNNING, start=3.0),
            record(TASKS["t0"], State.RUNNING, start=0.0),  # it ended after this was read
        ]
    )
    assert (tally.total, tally.done, tally.left, tally.running, tally.queued) == (6, 1, 4, 2, 2)
    none = {State.FAILED: 0, State.CANCELLED: 0, State.BLOCKED: 0}
    assert tally.unwell == {**none, State.CANCELLED: 1}
    assert tally.lanes() == [("left", 4, 1, {**none, State.CANCELLED: 1}, 1), ("right", 2, 0, none, 1)]
    assert [count.queued for count in tally.lanes()] == [1, 1]
    on_hosts = {host: [r.task.id for r in records] for host, records in tally.on_hosts().items()}
    assert on_hosts == {"here": ["other", "t2"], "there": ["t4"]}


def test_the_time_left_is_told_only_when_it_is_known() -> None:
    tasks = {f"t{n}": Task("a", id=f"t{n}") for n in range(9)}
    tally = Tally(tasks)
    assert tally.left_s(10.0) is None
    tally.add_ended([record(tasks["t0"], State.DONE, end=2.0), record(tasks["t1"], State.DONE, end=2.0)])
    tally.set_running(
        [record(tasks["t3"], State.RUNNING, start=9.0), record(tasks["t4"], State.RUNNING, start=9.0)]
    )
    assert tally.left_s(10.0) is None  # two samples are none
    tally.add_ended([record(tasks["t2"], State.DONE, end=2.0)])
    assert tally.left_s(10.0) == (6 * 2.0 - 2 * 1.0) / 2
    tally.draining = True
    assert tally.left_s(10.0) is None


def test_a_kind_that_never_ended_makes_the_rest_a_guess() -> None:
    tasks = {**{f"a{n}": Task("a", id=f"a{n}") for n in range(3)}, "b": Task("b", id="b")}
    tally = Tally(tasks)
    tally.add_ended([record(tasks[f"a{n}"], State.DONE, end=1.0) for n in range(3)])
    tally.set_running([record(tasks["b"], State.RUNNING)])
    assert tally.left_s(1.0) is None


# ---- progress


def test_progress_is_for_those_who_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(*, quiet: bool = False, records: bool = False) -> object:
        return choose("r", (), quiet=quiet, records_on_terminal=records)

    assert isinstance(chosen(), Lines)
    assert isinstance(chosen(quiet=True), Silent)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(chosen(), Board)
    assert isinstance(chosen(records=True), Silent)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(chosen(), Lines)


def test_the_board_has_a_bar_per_lane_and_a_row_per_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """C5"""
    tally = Tally(TASKS)
    tally.add_ended([record(TASKS["t0"], State.DONE, end=1.0), record(TASKS["t1"], State.FAILED, end=1.0)])
    tally.set_running(
        [record(TASKS["t2"], State.RUNNING, start=5.0), record(TASKS["t3"], State.RUNNING, start=6.0)]
    )
    text = drawn(tally, [Host("here", "simulated", slots=3), Host("idle", "simulated", slots=1)])
    assert "run r · 1 of 6 done, 1 failed, 2 running, 2 queued" in text
    rows = [line.split() for line in text.splitlines()]
    (left,) = [row for row in rows if row[:1] == ["left"]]
    assert left[-4:] == ["1", "1", "2", "0"]
    assert ["here", "2/3", "a", "×2", "·", "t2", "for", "5.0", "s"] in rows
    assert ["idle", "0/1", "idle"] in rows


def test_a_board_says_which_hosts_are_down_instead_of_idle() -> None:
    """E9"""
    tally = Tally(TASKS)
    tally.set_running([record(TASKS["t2"], State.RUNNING, start=5.0)])
    tally.outages = {
        "dead": Outage("dead", "no program; install it", needs_fix=True, is_down=True),
        "here": Outage("here", "reset", needs_fix=False, is_down=False),
    }
    text = drawn(tally, [Host("here", "simulated", slots=3), Host("dead", "simulated", slots=1)])
    (dead,) = [line for line in text.splitlines() if line.startswith("dead")]
    assert dead.split() == ["dead", "0/1", "down:", "no", "program;", "install", "it"]
    tally.outages["dead"] = Outage("dead", f"no program; {'x' * 200}", needs_fix=True, is_down=True)
    assert "dead     0/1  down: no program; xxx" in drawn(
        tally, [Host("dead", "simulated", slots=1)], width=60
    )
    assert "t2 for" in text, "who still works shows what it does"


def test_the_board_counts_what_failed_and_what_was_cancelled_apart() -> None:
    """E9: a cancelled task has not failed; who was cancelled or is blocked has a column where there is any."""
    tally = Tally(TASKS)
    ends = [State.FAILED, State.CANCELLED, State.CANCELLED, State.DONE, State.BLOCKED]
    tally.add_ended(record(TASKS[f"t{n}"], state, end=1.0) for n, state in enumerate(ends))
    text = drawn(tally, [])
    assert "1 of 6 done, 1 failed, 2 cancelled, 1 blocked, 0 running, 1 queued" in text
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.split()}
    assert rows["lane"] == ["lane", "done", "failed", "cancelled", "blocked", "running", "queued"]
    assert rows["left"][-6:] == ["1", "1", "2", "0", "0", "0"]
    assert rows["right"][-6:] == ["0", "0", "0", "1", "0", "1"]


def drawn(tally: Tally, hosts: list[Host], width: int = 100, height: int = 24) -> str:
    board = Board("r", hosts)
    console = Console(width=width, height=height, force_terminal=True, color_system=None)
    board._console = console
    with console.capture() as captured:
        console.print(board._drawn(tally, 10.0))
    return captured.get()


def test_a_board_of_many_lanes_and_hosts_fits_the_screen() -> None:
    tasks = {f"t{n}": Task("a", id=f"t{n}", lane=f"lane{n:03}") for n in range(100)}
    tally = Tally(tasks)
    tally.set_running([record(tasks["t77"], State.RUNNING, host="host55")])
    text = drawn(tally, [Host(f"host{n:02}", "simulated") for n in range(60)], height=24)
    assert len(text.splitlines()) <= 24
    assert "lane077" in text
    assert "host55" in text
    assert "more" in text


def test_a_failure_is_a_line() -> None:
    failed = TaskRecord(Task("a", id="t1"), 1, State.FAILED, error="bad\nthing")
    assert failure_line(failed) == "failed t1 a: bad thing"


# ---- logs


def log(*, as_json: bool = False, quiet: bool = False) -> tuple[Log, Story]:
    known = {"t9": Task("later", id="t9", lane="slow"), "t1": Task("a", id="t1", lane="left", run="r")}
    story, made = Story(known.get), Log(as_json=as_json, quiet=quiet)
    story.listen(made)
    return made, story


START = Start("t1", 1, "here", "left", 1, 1.0)


def test_every_change_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """C5"""
    told, story = log()
    story.decided(
        [
            START,
            Stop("t1", 1, "here", 2.0, "cancelled by a client"),
            Requeue("t1", 1, 2.0, 3.5, 1, 0, Verdict.TEMPORARY, "no luck"),
            Revive("t1", 3.0),
            End("t9", 0, State.FAILED, "expire", 4.0, None, "too late"),
            HostChange("here", 5.0, "down", 2, "3 failures"),
            GateChange("cpu", 6.0, False, "80 > 50"),
            WaitChange(1, 7.0, "order", ""),
        ]
    )
    lines = [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert lines[0] == "started  t1 kind=a host=here lane=left run=r attempt=1"
    assert lines[1] == 'stop     t1 host=here why="cancelled by a client"'
    assert lines[2].endswith('kind=a host=here lane=left run=r attempt=1 ran_s=1.0 in_s=1.5 error="no luck"')
    assert lines[3] == "revived  t1"
    assert lines[4] == 'failed   t9 kind=later lane=slow error="too late"'
    assert lines[5] == "host     host=here state=down slots=2 3 failures"
    assert lines[6] == "gate     gate=cpu open=no 80 > 50"
    assert len(lines) == 7
    assert told.failures == 1


def test_what_began_later_than_it_was_started_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    _, story = log()
    moved: list[Decision] = [
        WaitChange(2, 1.0, "worker:here", ""),
        Move("t1", 1.0, 2, ""),
        Move("t1", 4.5, 1, ""),
    ]
    story.decided([START, *moved, Begin("t1", 1, "here", 4.5, 1.0)])
    line = capsys.readouterr().err.splitlines()[1].split(" ", 1)[1]
    assert line == "waited   t1 kind=a host=here lane=left run=r attempt=1 waited_s=3.5 for=worker:here"


def test_what_is_told_late_says_when_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    """After a takeover: no line is older than the one above it."""
    _, story = log()
    again = Requeue("t1", 1, 2.5, 3.5, 1, 0, Verdict.HOST, "the dispatcher was lost")
    story.decided([START, HostChange("here", 5.0, "up", 2, ""), again, HostChange("here", 4.96, "up", 2, "")])
    lines = capsys.readouterr().err.splitlines()
    clocks = [line.split()[0][-6:] for line in lines]
    assert clocks == ["01.000", "05.000", "05.000", "05.000"]
    assert [line.partition(" at=")[2][-6:] for line in lines] == ["", "", "02.500", ""]


def test_json_lines_can_be_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    _, story = log(as_json=True)
    story.decided([End("t9", 0, State.BLOCKED, "block", 4.0, None, 'a "quoted"\nword')])
    assert json.loads(capsys.readouterr().err) == {
        "at": 4.0,
        "event": "blocked",
        "task": "t9",
        "kind": "later",
        "lane": "slow",
        "error": 'a "quoted" word',
    }


def test_a_log_that_cannot_be_written_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _: str) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    log()[1].decided([START])


def test_warnings_of_the_parts_are_lines_too() -> None:
    heard: list[str] = []
    with telling(heard.append):
        logging.getLogger("penstock.watchdog").warning("host %s is\nblocked", "here")
        logging.getLogger("penstock.watchdog").info("nothing")
    logging.getLogger("penstock").propagate = True
    assert heard == ["host here is blocked"]


# ---- interrupts


async def test_interrupts_are_kept_until_somebody_hears_them() -> None:
    """What is pressed while a command starts is not taken for the usual end of a program."""
    heard: list[int] = []
    loop, later = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, later.set)  # signals come in their order
    with hearing_interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGUSR1)
        await later.wait()
        interrupts.tell(heard.append)
        assert heard == [signal.SIGINT]
        later.clear()
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGUSR1)
        await later.wait()
    loop.remove_signal_handler(signal.SIGUSR1)
    assert heard == [signal.SIGINT, signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# ---- files


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("old")
    with pytest.raises(TypeError), replacing(target) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with replacing(target) as file:
        file.write(b"new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_wait_does_not_repeat_a_long_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_waits([Wait("retry", "one cause " + "and another " * 40, float(n), n + 1.0) for n in range(3)])
    told = capsys.readouterr().out
    assert told.count("one cause") == 3
    assert max(map(len, told.splitlines())) < 220


# ---- narrow terminals


class _Terminal(StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def _terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    """Of 80 columns, without colours. Not a fixture: between setup and test, pytest puts its own stdout in."""
    made = _Terminal()
    monkeypatch.setattr("sys.stdout", made)
    for name, value in (("COLUMNS", "80"), ("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    return made


_WORDS = (
    "while gptr-1 ran nothing was started for 14 min 8 s, and at its end 2 were started at once: it holds up"
)


def test_a_long_line_breaks_between_words_and_goes_on_under_its_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = _terminal(monkeypatch)
    render.say_wrapped("  cause     ", _WORDS)
    first, *more = terminal.getvalue().splitlines()
    assert first.startswith("  cause     while gptr-1")
    assert more
    assert all(line.startswith(" " * 12) and len(line) <= 80 for line in more)
    assert " ".join([first, *more]).split() == ["cause", *_WORDS.split()], "no word is broken, none is lost"


def test_a_long_line_in_a_pipe_stays_one(capsys: pytest.CaptureFixture[str]) -> None:
    render.say_wrapped("  cause     ", _WORDS * 3)
    assert capsys.readouterr().out == f"  cause     {_WORDS * 3}\n"


def test_a_folded_column_keeps_every_word(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _terminal(monkeypatch)
    changes = "slots:fenrir 71 %, order 29 % → lane:nightly 55 %, slots:fenrir 45 %"
    row = ("nightly", "120", "1m20s", "1m05s", "3m20s", "2m05s", changes)
    columns = ("lane", ">tasks", ">mean wait", ">after", ">95 %", ">after", "waited for")
    render.print_table(columns, [row], flexible="waited for", fold=True)
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in terminal.getvalue()
    words = terminal.getvalue().split()
    assert [word for word in changes.split() if word not in words] == []
