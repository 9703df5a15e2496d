"""YAML as plain JSON values: what words mean, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.config.places import KeyPath
from penstock.intake.yamlfile import NotYaml, load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("no", "no"),
        ("on", "on"),
        ("y", "y"),
        ("12", 12),
        ("-3", -3),
        ("+3", 3),
        ("0", 0),
        ("007", "007"),
        ("0x1F", 31),
        ("0o17", 15),
        ("1_000", "1_000"),
        ("12:30:00", "12:30:00"),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-1.5E-2", -0.015),
        ("1.2.3", "1.2.3"),
        (".inf", float("inf")),
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31T18:00:00Z", "2026-01-31T18:00:00Z"),
        ('"12"', "12"),
        ("'true'", "true"),
        ("!!str 12", "12"),
        ("! 12", "12"),
        ("|\n  a\n  b\n", "a\nb\n"),
        ("- a\n- [b, {c: d}]\n", ["a", ["b", {"c": "d"}]]),
        ("1: a\ntrue: b\nnull: c\n", {"1": "a", "true": "b", "null": "c"}),
        ("a: &x {b: 1}\nc: *x\n", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x 5\nc: [*x, *x]\n", {"a": 5, "c": [5, 5]}),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\n", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("d: {<<: [{a: 1}, {a: 2, b: 2}], c: 3}\n", {"d": {"a": 1, "b": 2, "c": 3}}),
        ("--- 5\n", 5),
    ],
)
def test_words_mean_what_yaml_1_2_says(text: str, value: Any) -> None:
    assert load_yaml(text) == value
    assert type(load_yaml(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\nb: [", 3, "is not YAML: did not find expected"),
        ("a: 1\n\tb: 2", 2, "is not YAML: "),
        ("a: 1\nb: \x01", 2, "holds a control character; remove it"),
        ("a: 1\na: 2", 2, "'a' is given twice in one table; keep one"),
        (
            "- !!python/object/apply:os.system [ls]",
            1,
            "the tag '!!python/object/apply:os.system' is not supported",
        ),
        ("- !mine 3", 1, "the tag '!mine' is not supported; remove it"),
        ("- !!set {a}", 1, "the tag '!!set' is not supported; remove it"),
        ("a: *b", 1, "*b stands for nothing; there is no &b before it"),
        ("a: &b [*b]", 1, "*b contains itself"),
        ("? [a]\n: b", 1, "a key must be text, not a list or table"),
        ("a: &k x\n*k : y", 2, "a key must be text, not an alias"),
        ("<<: 3", 1, "<< takes a table or a list of tables"),
        ("<<: []", 1, "<< takes a table or a list of tables"),
        ("a: 1\n---\nb: 1", 2, "a second document starts here; put all tasks into one"),
        ("a: " + "9" * 5000, 1, "holds a number with thousands of digits; make it shorter"),
        ("[" * 101 + "]" * 101, 1, "is nested deeper than 100 levels; flatten it"),
        ("[" * 200_000, 1, "is nested deeper than 100 levels; flatten it"),
    ],
)
def test_what_is_refused(text: str, line: int, problem: str) -> None:
    with pytest.raises(NotYaml) as caught:
        load_yaml(text)
    assert caught.value.line == line
    assert str(caught.value).startswith(problem)


def test_aliases_cannot_explode() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(NotYaml, match="its aliases stand for more than 10000000 values; write less"):
        load_yaml("\n".join(levels))
    merges = ["a0: &a0 {x: 1}"]
    merges += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    with pytest.raises(NotYaml, match="its aliases stand for more than"):
        load_yaml("\n".join(merges))


def test_the_line_of_every_key_and_entry() -> None:
    noted: dict[KeyPath, int] = {}
    load_yaml("a:\n- b: 1\n  c:\n  - 2\n- {d: 3,\n   e: 4}\n- f\n", noted.setdefault)
    assert noted == {
        (): 1,
        ("a",): 1,
        ("a", 0): 2,
        ("a", 0, "b"): 2,
        ("a", 0, "c"): 3,
        ("a", 0, "c", 0): 4,
        ("a", 1): 5,
        ("a", 1, "d"): 5,
        ("a", 1, "e"): 6,
        ("a", 2): 7,
    }


def test_json_is_yaml() -> None:
    value = {"a": [1, 2.5, "x\ny", None, True], "é": {"": "\u2028"}}
    assert load_yaml(json.dumps(value)) == value


def test_without_the_c_parser_all_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert load_yaml("- {a: [1, no]}") == [{"a": [1, "no"]}]
    with pytest.raises(NotYaml, match="is not YAML"):
        load_yaml("a: [")
