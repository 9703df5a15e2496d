"""Sections of documents: where headings are, what is none, and that no line is lost."""

from __future__ import annotations

import pytest

from penstock.council.library.sections import Section, markdown_sections, rst_sections


def named(sections: tuple[Section, ...]) -> list[str]:
    return [section.heading for section in sections]


MARKDOWN = """\
---
title: not a heading
# nor this
---
Before all.

# Guide
Intro.

## On *Linux* with [apt](https://example.com/x) ##
Steps.

```sh
# a comment in code
```

### `apt install`
More.

Windows
-------
- item
---
Other.

    # indented code

Second title
============
#hashtag is none
End.
"""


def test_markdown_headings_are_named_with_those_above_them() -> None:
    sections = markdown_sections(MARKDOWN)
    assert named(sections) == [
        "",
        "Guide",
        "Guide › On Linux with apt",
        "Guide › On Linux with apt › apt install",
        "Guide › Windows",
        "Second title",
    ]
    assert "".join(section.text for section in sections) == MARKDOWN
    assert "# a comment in code" in sections[2].text


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("", []),
        ("no heading at all", [""]),
        ("~~~\n# code that never ends\n", [""]),
        ("````\n```\n# code\n````\n# Real\n", ["", "Real"]),
        ("# A\n### C\n## B\n", ["A", "A › C", "A › B"]),
        ("| a |\n---\n", [""]),
        ("---\nno end of front matter\n# A\n", ["", "A"]),
        ("#\ntext\n", [""]),
        ("# A #\n## B ##  \n## C#\n#\tD\n", ["A", "A › B", "A › C#", "D"]),
        ("# ##\n", [""]),
        ("# `snake_case` __all__ *of* _it_\n", ["snake_case all of it"]),
        ("# ![a](u(v)w) [b](<x y>) [c]\n", ["a b [c]"]),
        ("# " + "long " * 100 + "\n", [("long " * 40)[:199] + "…"]),
    ],
)
def test_markdown_corners(text: str, headings: list[str]) -> None:
    sections = markdown_sections(text)
    assert named(sections) == headings
    assert "".join(section.text for section in sections) == text


RST = """\
=======
 Guide
=======
Intro.

Install
=======
Steps.

Linux
-----
apt

==== ====
a    table
==== ====

Use
===
End.
"""


def test_rst_levels_are_in_the_order_of_their_first_use() -> None:
    sections = rst_sections(RST)
    assert named(sections) == ["Guide", "Guide › Install", "Guide › Install › Linux", "Guide › Use"]
    assert "".join(section.text for section in sections) == RST


@pytest.mark.parametrize(
    "line",
    [
        "# a" + " " * 1_000_000 + "x",
        "# a" + " #" * 500_000 + "x",
        "# " + "[" * 1_000_000,
        "# " + "[a](" * 250_000,
        "# " + "[a]((" * 200_000,
        "# a" + "_" * 1_000_000 + "x",
        "a\n" + "-" * 500_000 + " " * 500_000 + "x",
    ],
    ids=lambda line: line[:8],
)
def test_a_long_line_is_no_trouble(line: str) -> None:
    """D2: with an expression that goes over a line once for each of its signs, one of these takes hours."""
    assert "".join(section.text for section in markdown_sections(line)) == line
