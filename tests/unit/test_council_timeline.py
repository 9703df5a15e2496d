"""D1: a question on a timeline is a thin bar over its steps, which are called by their members."""

from __future__ import annotations

from io import StringIO
from xml.etree import ElementTree

import pytest
from rich.console import Console

from penstock.cli.timeline_text import ASCII, UNICODE, Signs, print_timeline
from penstock.diagnosis.timeline.bars import Timeline, timeline_of
from penstock.diagnosis.timeline.page import page_data
from penstock.diagnosis.timeline.svg import picture
from tests.unit.recording_rig import Row, recording
from tests.unit.test_council_diagnosed import MEMBERS, asked

NAMES = [*MEMBERS, "agreement", "SHENRON synthesis"]


@pytest.fixture
def timeline() -> Timeline:
    return timeline_of(asked("one-server"))


def drawn(timeline: Timeline, signs: Signs) -> list[str]:
    out = StringIO()
    print_timeline(Console(file=out, width=100, color_system=None), timeline, 100, signs)
    return out.getvalue().splitlines()


def test_bars_and_hosts(timeline: Timeline) -> None:
    question, *steps = timeline.bars
    assert question.is_question
    assert [bar.name for bar in steps] == NAMES
    assert not any(bar.is_question for bar in steps)
    assert [use.host for use in timeline.hosts] == ["lmstudio", "council-library"], (
        "nothing loads the council's"
    )
    assert timeline.host_names == ("lmstudio", "council-library", "council-shenron")


@pytest.mark.parametrize("signs", [UNICODE, ASCII])
def test_on_a_terminal(timeline: Timeline, signs: Signs) -> None:
    lines = drawn(timeline, signs)
    question = lines[2]
    assert question.startswith(timeline.bars[0].record.task.id)
    assert signs.asking * 20 in question
    assert signs.running not in question
    assert [line[:17].strip() for line in lines[3:11]] == NAMES
    assert all(signs.running in line for line in lines[3:11])
    assert not any(line.startswith("council-shenron") for line in lines)


def test_as_a_picture(timeline: Timeline) -> None:
    root = ElementTree.fromstring(picture(timeline))
    space = "{http://www.w3.org/2000/svg}"
    texts = {text.text for text in root.iter(f"{space}text")}
    assert texts.issuperset(NAMES)
    heights = [
        {float(rect.get("height", "0")) for rect in group.iter(f"{space}rect")}
        for group in root.iter(f"{space}g")
    ]
    rows = [found for found in heights if found]
    assert min(rows[0]) < min(rows[1]) == max(rows[1])


def test_as_a_page(timeline: Timeline) -> None:
    data = page_data(timeline)
    assert data["thin"] == [0]
    assert data["tasks"]["name"] == ["", *NAMES]
    assert data["tasks"]["id"][1] == timeline.bars[1].record.task.id


def test_other_runs_have_no_names() -> None:
    data = page_data(timeline_of(recording([Row("a", 0.0, 1.0)])))
    assert (data["thin"], data["tasks"]["name"]) == ([], [])
