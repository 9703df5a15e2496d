"""A question on a terminal and in a pipe: what is drawn while it is answered, and what stays."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from penstock.cli.council_live import Board, Tail
from penstock.cli.council_text import Pages
from penstock.cli.council_views import Sections
from penstock.config.councils import Council, Member
from penstock.council.shown import clean, clean_line
from tests.unit.council_rig import record, response, silent

GOKU = Member("GOKU", "🥋", "the direct thinker", model="m")
MANY = tuple(Member(f"M{n}", "", f"role {n}", model="m") for n in range(30))


def council(*members: Member) -> Council:
    return Council("shenron", members, members[0])


def terminal(width: int = 80, height: int = 24, *, colour: bool = False) -> Console:
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        width=width,
        height=height,
        color_system="standard" if colour else None,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def drawn(board: Board, console: Console) -> list[str]:
    """The region as it is."""
    with console.capture() as captured:
        console.print(board._drawn())
    return captured.get().splitlines()


def step(name: str, state: str, stage: str = "members") -> dict[str, Any]:
    first = "member" if stage == "members" else stage
    return {"event": "step", "step": f"{first}/{name}", "name": name, "state": state, "stage": stage}


def text(name: str, said: str, first: str = "member") -> dict[str, Any]:
    return {"event": "text", "step": f"{first}/{name}", "name": name, "text": said}


@pytest.fixture
def console() -> Console:
    return terminal()


def test_the_text_of_a_member_grows_and_its_tail_stays(console: Console) -> None:
    """D7: answers appear as they come; a long one keeps its tail."""
    board = Board(council(GOKU), console)
    for event in (step("GOKU", "queued"), step("GOKU", "started")):
        board.hear(event)
    for line in range(40):
        board.hear(text("GOKU", f"line {line}\n"))
    lines = drawn(board, console)
    assert "🥋 GOKU, the direct thinker  answers" in lines[1]
    assert [line.strip() for line in lines[2:]] == [f"line {n}" for n in range(32, 40)]


def test_a_retried_member_begins_again(console: Console) -> None:
    board = Board(council(GOKU), console)
    board.hear(step("GOKU", "started"))
    board.hear(text("GOKU", "half an answ"))
    board.hear({"event": "again", "step": "member/GOKU"})
    board.hear(text("GOKU", "once more"))
    assert [line.strip() for line in drawn(board, console)[2:]] == ["once more"]


def test_who_waits_for_a_host_that_is_down_does_not_answer(console: Console) -> None:
    """D2, D7: what a dead attempt said is gone, and why it waits is told; names stand without roles in lists."""
    board = Board(council(GOKU, *MANY[:2]), console)
    for name in ("GOKU", "M0", "M1"):
        board.hear(step(name, "queued"))
    board.hear(step("GOKU", "started"))
    board.hear(text("GOKU", "half"))
    assert drawn(board, console)[-2].endswith("1 word")
    assert drawn(board, console)[1] == "waiting for a slot: M0, M1"
    board.hear({**step("GOKU", "queued"), "attempts": 1, "why": "v6 is down (Connection refused)"})
    assert drawn(board, console)[1:] == [
        "🥋 GOKU  waits: v6 is down (Connection refused), tried once",
        "waiting for a slot: M0, M1",
    ]
    board.hear({**step("GOKU", "queued"), "attempts": 2, "why": None})
    assert drawn(board, console)[1] == "🥋 GOKU  waits: its turn, tried twice"
    board.hear(step("GOKU", "started"))
    assert "GOKU, the direct thinker  answers" in drawn(board, console)[2]


def test_many_who_wait_for_hosts_are_listed_in_a_line() -> None:
    console = terminal(200, 8)
    board = Board(council(*MANY[:6]), console)
    for member in MANY[:6]:
        board.hear({**step(member.name, "queued"), "attempts": 0, "why": "v is down"})
    assert drawn(board, console)[1:] == ["waiting for their hosts to come up: M0, M1, M2, M3, M4, M5"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (20, 5), (10, 3)])
def test_the_region_is_never_larger_than_the_terminal(width: int, height: int) -> None:
    """D7: with any number of members, on any terminal."""
    console = terminal(width, height)
    board = Board(council(*MANY), console)
    for number, member in enumerate(MANY):
        board.hear(step(member.name, "started" if number % 3 else "queued"))
        if number % 6 == 0:
            board.hear({**step(member.name, "queued"), "attempts": 1, "why": "v6 is down"})
        board.hear(text(member.name, "some words that are long enough to be wrapped " * 5))
        lines = drawn(board, console)
        assert len(lines) <= max(4, height - 2)
        assert all(cell_len(line) <= width for line in lines)


def test_whoever_answered_leaves_the_region(console: Console) -> None:
    board = Board(council(GOKU, *MANY[:1]), console)
    for name in ("GOKU", "M0"):
        board.hear(step(name, "started"))
    board.hear(step("GOKU", "ended"))
    board.hear({"event": "answer", **response("GOKU")})
    lines = drawn(board, console)
    assert lines[0].startswith("shenron · 1 of 2 answered")
    assert not any("GOKU" in line for line in lines)


def test_nothing_is_left_of_the_region(console: Console) -> None:
    """What is printed above it stays, and it does not."""
    view = Sections(Pages(console), Board(council(GOKU), console))
    view.open()
    view.hear(step("GOKU", "started"))
    view.hear(text("GOKU", "on the way"))
    view.hear({"event": "answer", **response("GOKU", answer="It **holds**.")})
    view.record(record())
    told = written(console)
    assert told.count("It holds.") == 1, "an answer is printed once"
    assert told.index("It holds.") < told.index("summed up by SHENRON")
    assert told.rstrip().endswith("limit: the review was cut to 2 members")


@pytest.mark.parametrize("colour", [True, False])
def test_models_cannot_steer_the_terminal(colour: bool) -> None:
    """Neither while text comes nor when it is printed, whatever is in it."""
    console = terminal(colour=colour)
    view = Sections(Pages(console), Board(council(GOKU), console))
    view.open()
    hostile = "\x1b[2J\x1b]0;title\x07 [bold]x[/bold] [a](http://example.com) \r\x08"
    view.hear(step("GOKU", "started"))
    view.hear(text("GOKU", hostile))
    view.tick()
    view.hear({"event": "answer", **response("GOKU", answer=hostile, role="\x1b[31mred")})
    view.hear({"event": "answer", **silent("VEGETA", "failed", "bad \x1b[31m")})
    view.record(record(synthesis={**record()["synthesis"], "text": hostile}))
    told = written(console)
    assert "\x1b[2J" not in told
    assert "\x1b]" not in told
    assert "\x07" not in told
    assert "[bold]x[/bold]" in told
    assert "http://example.com" in told, "where a link leads is in plain sight"


def test_no_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system="standard")
    Pages(console).answer(response_of("GOKU"))
    assert "\x1b[3" not in written(console)


def response_of(name: str) -> Any:
    from penstock.council.recorded import read_record

    return read_record(record(responses=[response(name)]), "here").responses[0]


def test_passages_by_words_alone_are_no_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """D3: what is amiss is told once, and what was read all the same is not denied."""
    from penstock.council.recorded import read_record

    told = record()
    told["retrieval"] |= {"used": True, "how": "words", "problem": "the server does not answer"}
    pages = Pages()
    pages.record(read_record(told, "here"))
    pages.closing(read_record(told, "here"))
    out = capsys.readouterr().out
    assert "nothing was read" not in out
    assert out.count("found by words alone") == 2
    assert out.count("found by words alone: the server does not answer") == 1
    told["retrieval"]["passages"] = []
    Pages().record(read_record(told, "here"))
    assert "## Documents · nothing was read: the server does not answer" in capsys.readouterr().out


def test_a_pipe_gets_sections_as_they_are_complete(capsys: pytest.CaptureFixture[str]) -> None:
    """D7"""
    view = Sections(Pages(), None)
    view.open()
    view.hear(text("GOKU", "on the way"))
    assert capsys.readouterr().out == ""
    view.hear({"event": "answer", **response("GOKU", answer="It **holds**.")})
    first = capsys.readouterr().out
    assert first.startswith("\n## 🥋 GOKU · the direct thinker · ")
    assert first.endswith("\n\nIt **holds**.\n")
    view.record(record())
    rest = capsys.readouterr().out
    assert "It **holds**." not in rest
    parts = ["PICCOLO · failed", "## Review", "## Agreement", "## Answer", "dissent:", "sources:", "2 of 4"]
    assert [rest.index(part) for part in parts] == sorted(rest.index(part) for part in parts)


def test_one_answer_alone_is_not_printed_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """D5: nor called a synthesis."""
    alone = record(responses=[response("GOKU", answer="Yes.")], review=None)
    alone["synthesis"] |= {"method": "single", "by": "GOKU", "text": "Yes.", "passed_on": []}
    Sections(Pages(), None).record(alone)
    told = capsys.readouterr().out
    assert told.count("Yes.") == 1
    assert "## Answer · one answer alone, not a synthesis" in told
    assert "## Agreement" not in told


@given(st.lists(st.text(alphabet="ab \n漢🐉", max_size=30), max_size=30))
def test_a_tail_holds_the_last_of_what_was_said(pieces: list[str]) -> None:
    tail = Tail(20)
    for piece in pieces:
        tail.add(piece)
    said = "".join("".join(pieces).split())
    shown = "".join("".join(tail.last(8)).split())
    assert said.endswith(shown)
    assert all(cell_len(line) <= 20 for line in tail.last(8))
    assert tail.words == len("".join(pieces).split())


def test_signs_of_several_parts_stay_whole() -> None:
    assert clean("👩‍💻 a\tb\r\nc") == "👩‍💻 a   b\nc"
    assert clean_line("a \x1b[1m b\n c", 6) == "a �[1…"
