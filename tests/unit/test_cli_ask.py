"""What `penstock ask` prints of what it hears (E9)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock.cli.ask import _Asker
from penstock.council.live import ATTEMPT, MISSED, TEXT
from penstock.model import Task

ANSWER = {"text": "one two three"}


def hears(*events: dict[str, Any]) -> None:
    asker = _Asker(cast(Any, None), "t1", Task("call/chat"), since=0.0, quiet=False)
    for event in events:
        asker._print(event)
    asker.end_line()
    asker.answer(ANSWER)


def text(piece: str) -> dict[str, Any]:
    return {"event": TEXT, "text": piece}


BEGUN = {"event": ATTEMPT, "number": 1, "host": "h"}
LOST = {"event": MISSED, "count": 7}


def test_what_was_heard_is_not_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    hears(BEGUN, text("one two "), text("three"))
    assert capsys.readouterr() == ("one two three\n", "")


def test_an_answer_of_which_a_part_was_forgotten_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    hears(BEGUN, text("one "), LOST, text("three"))
    out, err = capsys.readouterr()
    assert out == "one three\none two three\n"
    assert err == "penstock: ask: it was read too slowly, and a part is missing; this is the whole answer\n"


def test_what_was_lost_of_an_attempt_before_does_not_matter(capsys: pytest.CaptureFixture[str]) -> None:
    hears(BEGUN, text("one "), LOST, BEGUN, text("one two three"))
    out, _ = capsys.readouterr()
    assert out == "one \none two three\n"


def test_what_was_lost_before_anything_was_heard(capsys: pytest.CaptureFixture[str]) -> None:
    hears(LOST, text("three"))
    assert capsys.readouterr().out == "three\none two three\n"
