"""Templates by the thousand (A8): nothing they make leads out of the folder for outputs, nothing is lost."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import Config, TaskChecker, parse
from penstock.config.outputs import OutputRules, is_inside
from penstock.engine.outputs import Outputs
from penstock.intake.entries import Setting, read_copies
from penstock.intake.skipping import OutputFiles
from penstock.intake.templates import HOLE, IS_UID, PathTemplate, filled, in_a_name, read_path
from penstock.model import Outcome, Verdict

patient = settings(deadline=None)

ROOT = Path("/srv/outputs")
CHECKER = TaskChecker(parse('[hosts.h]\ntype = "simulated"\n', ROOT / "penstock.toml"))
hostile = st.sampled_from(
    ["..", "../..", "/etc/passwd", ".", "a/../../b", "", "~", "\\", "a\nb", "\0", "…", ".x", "x."]
)
values = hostile | st.text(max_size=8)
pieces = st.sampled_from(
    ["{a}", "{b}", "{n}", "{uid}", "{kind}", "{{", "}}", "/", "..", ".", "x", " ", "../", "{c}", "{", "}"]
)
templates = st.lists(pieces, max_size=8).map("".join)


def entry_of(template: str, a: Any, b: Any) -> dict[str, Any]:
    matrix = {"a": [a], "b": [b], "repeat": 2}
    return {"kind": "k", "payload": "{a} {b}", "output": template, "matrix": matrix}


@patient
@given(templates, values, values | st.integers() | st.floats(allow_nan=False))
def test_a8_no_template_leads_out_of_the_outputs(template: str, a: Any, b: Any) -> None:
    """A8: whatever fills it; what would is a told problem."""
    made, problems = read_copies(entry_of(template, a, b), Setting(0.0, checker=CHECKER))
    assert bool(made) != bool(problems)
    for copy in made:
        assert copy.task.output is not None
        path = os.path.normpath(os.path.join(ROOT, copy.task.output))
        assert is_inside(path, str(ROOT))
        assert copy.task.output.isprintable()


@patient
@given(st.text(max_size=12))
def test_a_value_is_one_part_of_a_name(value: str) -> None:
    part = in_a_name(value)
    assert part
    assert "/" not in part
    assert part.strip(".")
    assert not any(c.isspace() for c in part)
    assert in_a_name(part) == part


@patient
@given(st.text("{}abn/", max_size=12))
def test_braces_written_twice_are_braces(text: str) -> None:
    """Any text can be said."""
    doubled = text.replace("{", "{{").replace("}", "}}")
    assert read_path(doubled, ()) == PathTemplate((text,), ())


names = st.text("ab", min_size=1, max_size=3)


@patient
@given(st.lists(st.text("x{} ", max_size=3) | names.map(lambda name: f"{{{name}}}"), max_size=6))
def test_a_payload_without_known_names_stays_as_it_is(parts: list[str]) -> None:
    text = "".join(parts)
    assert filled({"t": [text, text]}, {"other": "?"}) == {"t": [text, text]}


@patient
@given(names, st.text(max_size=6))
def test_what_fills_a_payload_is_not_filled_again(name: str, value: str) -> None:
    assert filled(f"<{{{name}}}|{{{{{name}}}}}>", {name: value}) == f"<{value}|{{{name}}}>"


parts = st.from_regex(r"[a-z.]{1,3}", fullmatch=True).filter(lambda part: part.strip("."))


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        parts | st.just("{uid}") | parts.map(lambda part: f"{part}.{{uid}}"), min_size=1, max_size=3
    ).map("/".join)
)
def test_a8_what_was_written_is_there(template: str) -> None:
    """A8: an output that the engine has saved is found by its pattern, and by no longer or shorter one."""
    with tempfile.TemporaryDirectory() as root:
        made, problems = read_copies({"kind": "k", "output": template}, Setting(0.0))
        assert not problems
        (copy,) = made
        output = str(copy.task.output)
        pattern = copy.pattern or output
        assert not OutputFiles(root).has(pattern)
        rules = OutputRules(Config(), root)
        assert Outputs(rules).kept(output, Outcome(Verdict.DONE, "text")).verdict is Verdict.DONE
        assert OutputFiles(root).has(pattern)
        assert not OutputFiles(root).has(pattern + "x")
        assert not OutputFiles(root).has("x" + pattern)
        assert (HOLE in pattern) == ("{uid}" in template)
        assert IS_UID.fullmatch("a_-")
