"""The figures of a page are what a benchmark printed."""

from __future__ import annotations

from pathlib import Path

from tools.paste_figures import notes_in, pasted

PRINTED = """Python 3, medians of 1

what    figure
------  ------
a       1

scale-tasks, penstock:
queued  µs
------  --
10       1
100      2

other, penstock:
one line

scale-tasks, huey:
nobody asked
"""


def test_blocks_are_filled_with_the_notes_of_their_topic() -> None:
    assert notes_in(PRINTED)["other"] == "one line\n"
    block = "<!-- figures: {} -->\n\n```text\n{}\n```\n\n"
    page = "A\n\n" + block.format("scale-tasks", "old") + block.format("gone", "stays")
    new = page.replace("old", "queued  µs\n------  --\n10       1\n100      2")
    assert pasted(page, PRINTED) == new
    assert pasted(new, PRINTED) == new


def test_the_page_of_scale_has_places_for_its_figures() -> None:
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
    topics = ("scale-tasks", "scale-hosts", "scale-lanes", "partitions", "postgres-million-takeover")
    for topic in topics:
        assert f"figure of {topic}" in pasted(page, f"{topic}, penstock:\nfigure of {topic}\n")
