"""Where keys stand in a file: the line in every error message."""

from __future__ import annotations

import pytest

from penstock.config.places import KeyPath, json_lines, place, toml_lines
from penstock.config.problems import dotted, nearest

TOML = '''\
# [not.a.table]
title = "a # b"   # trailing [comment]
text = """
[fake]
key = "no"
"""
raw = \'\'\'
it's = here
\'\'\'

[owner]
name = 'x = 1'
a.b."c d" = { x = 1, y = { z = [1, 2] } }
dob = 1979-05-27 07:32:00

[[items]]
n = 1

[items.part]
m = 2

[[items]]
list = [
  1,
  # [comment]
  { k = "}" },
  "]",
]
[[items.subs]]
deep = 1
[[items.subs]]
deep = 2

["quoted \\u00e9"]
k = """a\\"""
[b]
c = 1"""
last = ""
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("text",), 3),
        (("raw",), 7),
        (("owner",), 11),
        (("owner", "name"), 12),
        (("owner", "a", "b", "c d"), 13),
        (("owner", "a", "b", "c d", "y", "z", 1), 13),
        (("owner", "dob"), 14),
        (("items",), 16),
        (("items", 0, "n"), 17),
        (("items", 0, "part", "m"), 20),
        (("items", 1), 22),
        (("items", 1, "list"), 23),
        (("items", 1, "list", 0), 24),
        (("items", 1, "list", 1), 26),
        (("items", 1, "list", 1, "k"), 26),
        (("items", 1, "list", 2), 27),
        (("items", 1, "subs", 0, "deep"), 30),
        (("items", 1, "subs", 1, "deep"), 32),
        (("quoted é", "k"), 35),
        (("quoted é", "last"), 38),
        (("b",), None),
        (("owner", "missing"), 11),
        (("fake",), None),
        (("not",), None),
    ],
)
def test_lines_of_toml(path: KeyPath, line: int | None) -> None:
    assert place(toml_lines(TOML), path) == line


JSON = """\
{
  "a": 1, "b": {
    "c{": "x\\\\",
    "d\\"": [
      1,
      {"e": ":"},
      []
    ]
  },
  "f": [
  ], "g": {}
}
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 2),
        (("b",), 2),
        (("b", "c{"), 3),
        (("b", 'd"'), 4),
        (("b", 'd"', 0), 5),
        (("b", 'd"', 1, "e"), 6),
        (("b", 'd"', 2), 7),
        (("f",), 10),
        (("f", 0), 10),
        (("g",), 11),
    ],
)
def test_lines_of_json(path: KeyPath, line: int) -> None:
    assert place(json_lines(JSON), path) == line


def test_nesting_without_end_is_scanned() -> None:
    deep = 50_000
    assert place(toml_lines("a = " + "[" * deep + "]" * deep + "\nb = 1"), ("b",)) == 2
    assert place(json_lines("[" * deep + "]" * deep), (0, 0)) == 1
    assert place(toml_lines("a." * deep + "a = 1\nb = 1"), ("b",)) == 2


def test_paths_are_shown_on_one_line() -> None:
    assert dotted(("hosts", "a b", "serves", 0)) == "hosts.'a b'.serves[1]"
    assert "\n" not in dotted(("a\nb",))
    assert len(dotted(("x" * 500, "\n" * 500))) < 700


@pytest.mark.parametrize(
    ("word", "meant"), [("slotz", "slots"), ("SLOTS", "slots"), ("prio", "priority"), ("qqq", ""), ("", "")]
)
def test_near_words(word: str, meant: str) -> None:
    assert nearest(word, ("slots", "units", "priority")) == meant
