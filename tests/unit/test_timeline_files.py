"""The timeline as a page and as a picture: whole, well-formed, harmless whatever text is in them (A6)."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from penstock.diagnosis.recording import Recording
from penstock.diagnosis.timeline.bars import timeline_of
from penstock.diagnosis.timeline.page import page
from penstock.diagnosis.timeline.svg import MOST_ROWS, picture
from penstock.model import State, Verdict
from tests.unit.timeline_rig import attempt, huge, record, recording, small, task, wait

EVIL = "</script><img src=x onerror=alert(1)>{{SCRIPT}}&amp;\"'\u2028\ud800\x00\x1b[31m"
SVG = "{http://www.w3.org/2000/svg}"


def hostile() -> Recording:
    return replace(
        recording(
            [record(task(EVIL, EVIL, lane=EVIL), 1, State.FAILED, 1, 2)],
            [attempt(EVIL, 1, EVIL, 1, 2, Verdict.PERMANENT, EVIL)],
            {EVIL: [wait(f"gate:{EVIL}", 0, 1, EVIL)]},
            end=2,
            hosts=None,
        ),
        name=EVIL,
    )


class Parts(HTMLParser):
    """What a browser sees: elements, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[int, str] = {}
        self._open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = True

    def handle_endtag(self, tag: str) -> None:
        self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[len(self.tags) - 1] = self.texts.get(len(self.tags) - 1, "") + data

    def of(self, tag: str) -> list[str]:
        return [self.texts.get(place, "") for place, (name, _) in enumerate(self.tags) if name == tag]


def data_of(text: str) -> Any:
    return json.loads(Parts(text).of("script")[0])


# ---- the page


def test_a_page_needs_nothing_from_outside() -> None:
    parts = Parts(page(timeline_of(small())))
    names = {tag for tag, _ in parts.tags}
    assert not names & {"link", "img", "iframe", "object", "base", "form "}
    assert not any({"src", "href", "onclick", "style"} & attributes.keys() for _, attributes in parts.tags)
    assert not re.search(r"https?://", "".join(parts.of("script")[1:] + parts.of("style")))


def test_a_page_runs_its_own_script_and_style_only() -> None:
    parts = Parts(page(timeline_of(small())))
    (policy,) = [
        a["content"] or "" for tag, a in parts.tags if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    script, style = parts.of("script")[1], parts.of("style")[0]
    for text in (script, style):
        assert f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy


def test_hostile_text_stays_text_in_a_page() -> None:
    text = page(timeline_of(hostile()))
    plain = Parts(page(timeline_of(small())))
    parts = Parts(text)
    assert [tag for tag, _ in parts.tags] == [tag for tag, _ in plain.tags]
    assert parts.of("script")[1] == plain.of("script")[1], (
        "a name that looks like a place in the template is not one"
    )
    data = data_of(text)
    assert data["tasks"]["id"] == [EVIL]
    assert data["kinds"] == data["lanes"] == [EVIL]
    text.encode()


def test_a_page_of_thousands_is_small() -> None:
    made = timeline_of(huge(3000))
    text = page(made)
    data = data_of(text)
    assert len(data["tasks"]["id"]) == 3000
    assert len(data["texts"]) < 50, "each text is there once"
    assert len(text) / 3000 < 120


def test_a_long_run_counts_in_milliseconds() -> None:
    week = 7 * 86_400
    source = recording(
        [record(task("t"), 1, State.DONE, 0, week)], [attempt("t", 1, "surtr", 0, week)], {"t": []}, end=week
    )
    data = data_of(page(timeline_of(source)))
    assert data["unit"] == 1e-3
    assert data["pieces"]["length"] == [week * 1000]


# ---- the picture


def parsed(source: Recording) -> ElementTree.Element:
    return ElementTree.fromstring(picture(timeline_of(source)))


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]


def test_a_picture_says_what_it_shows() -> None:
    root = parsed(small())
    title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert desc is not None
    assert title.text == "run nightly: 3 tasks in 25 s"
    assert "gate:vram 20 s, slots:fenrir 8.0 s, scheduled 4.0 s" in (desc.text or "")
    words = texts(root)
    assert {"first", "second", "third", "surtr", "fenrir", "waiting"} <= set(words)
    assert {"gate:vram 20 s", "on surtr"} <= set(words), "the legend"
    assert {"0", "5 s", "25 s"} <= set(words), "the axis"


def test_every_pattern_that_is_used_is_there() -> None:
    root = parsed(small())
    there = {one.get("id") for one in root.iter(f"{SVG}pattern")}
    used = {
        found[1] for one in root.iter() if (found := re.fullmatch(r"url\(#(.+)\)", one.get("fill") or ""))
    }
    assert len(used) == 3, "gate, slots, scheduled"
    assert used <= there


def test_waits_for_two_hosts_have_patterns_of_their_own() -> None:
    source = small()
    root = parsed(replace(source, waits={**source.waits, "third": [wait("slots:surtr", 5, 25)]}))
    drawn = {(one.get("width"), one[0].get("fill")): one.get("id") for one in root.iter(f"{SVG}pattern")}
    assert len(drawn) == 3, "slots:fenrir, slots:surtr, scheduled"
    assert any("slots:surtr" in words for words in texts(root))


def test_hostile_text_stays_text_in_a_picture() -> None:
    root = parsed(hostile())
    assert {one.tag.removeprefix(SVG) for one in root.iter()} <= {
        *("svg", "title", "desc", "style", "defs", "pattern", "rect", "g", "path", "text")
    }
    assert any("<img" in "".join(one.itertext()) for one in root.iter(f"{SVG}title"))


@pytest.mark.parametrize("count", [MOST_ROWS, MOST_ROWS + 1, 3000])
def test_thousands_of_tasks_share_rows(count: int) -> None:
    text = picture(timeline_of(huge(count, hosts=3)))
    root = ElementTree.fromstring(text)
    height = float(root.get("height") or 0)
    assert height < 2000
    assert len(text) < 1_000_000
    shared = any("share a row" in words for words in texts(root))
    assert shared is (count > MOST_ROWS)


def test_many_hosts_do_not_fill_the_picture() -> None:
    root = parsed(huge(200, hosts=40, slots=1))
    assert float(root.get("height") or 0) < 2500
    assert "and 24 more hosts" in texts(root)


def test_a_run_of_no_time_is_drawn_too() -> None:
    source = recording(
        [record(task("t"), 1, State.DONE, 0, 0)], [attempt("t", 1, "surtr", 0, 0)], {"t": []}, end=0
    )
    assert "nan" not in picture(timeline_of(source))
    assert parsed(source).get("role") == "img"
