"""Task files by the thousand: every form says the same, and anything gives tasks or told problems."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import TaskError
from penstock.intake.entries import FIELDS, Setting, read_entry
from penstock.intake.taskfile import read
from penstock.intake.yamlfile import NotYaml, load_yaml
from penstock.model import Task

patient = settings(deadline=None)  # how long an example takes says nothing here

words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6)
payloads = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,6}", fullmatch=True)
entries = st.fixed_dictionaries(
    {"kind": names},
    optional={
        "payload": payloads,
        "priority": st.integers(0, 4),
        "lane": names,
        "run": names,
        "after": names | st.lists(names, max_size=2),
        "needs": st.dictionaries(names, st.floats(0.5, 9), max_size=2),
        "host": names,
        "model": names,
        "timeout_s": st.floats(0.1, 99),
        "deadline": st.integers(0, 10**10) | st.sampled_from(["+3m", "2026-01-31T18:00:00Z"]),
        "retries": st.integers(0, 9),
        "key": names,
        "on_crash": st.sampled_from(["retry", "block"]),
        "matrix": st.fixed_dictionaries({"repeat": st.integers(1, 3)}, optional={}),
    },
)


class Quoting(yaml.SafeDumper):
    """Every text in quotes: the dumper's older YAML leaves 1e3 bare, which YAML 1.2 reads as a number."""


Quoting.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def read_text(name: str, text: str | bytes) -> list[Task]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read(path, now=1000.0)


@patient
@given(st.lists(entries, max_size=4))
def test_every_form_says_the_same(given_entries: list[dict[str, Any]]) -> None:
    """A8, promise 7: the quick way of JSONL reads what the thorough way reads."""
    setting = Setting(now=1000.0)
    thorough: list[Task] = []
    for entry in given_entries:
        tasks, problems = read_entry(entry, setting)
        assert not problems
        thorough += tasks
    assert read_text("t.jsonl", "\n".join(map(json.dumps, given_entries))) == thorough
    assert read_text("t.json", json.dumps(given_entries, indent=1)) == thorough
    assert read_text("t.yaml", yaml.dump({"tasks": given_entries}, Dumper=Quoting)) == thorough


scalars = st.none() | st.booleans() | st.integers() | st.floats() | words | st.just(10**400)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*FIELDS, "tasks", "defaults", "model", "repeat"]) | words, inner, max_size=4
        )
    ),
    max_leaves=12,
)


@patient
@given(anything, st.sampled_from([".json", ".yaml", ".jsonl"]))
def test_any_value_gives_tasks_or_problems(value: Any, suffix: str) -> None:
    """Promise 7."""
    tell_or_read(f"t{suffix}", json.dumps(value))


@patient
@given(
    st.binary(max_size=60) | st.text(max_size=60).map(str.encode),
    st.sampled_from([".jsonl", ".json", ".yaml", ".toml"]),
)
def test_any_bytes_give_tasks_or_problems(data: bytes, suffix: str) -> None:
    """Promise 7."""
    tell_or_read(f"t{suffix}", data)


pieces = st.sampled_from(
    [*"[]{}:,-?&*!|>'\"#%@` \n\tab1", "- ", ": ", "<<: ", "&a ", "*a", "!!str ", "---\n", "kind"]
)


@patient
@given(st.lists(pieces, max_size=30).map("".join))
def test_any_yaml_is_read_or_refused(text: str) -> None:
    """Promise 7."""
    try:
        load_yaml(text)
    except NotYaml as error:
        told = error
    else:
        return
    assert told.line >= 1
    assert len(str(told).splitlines()) == 1


def tell_or_read(name: str, text: str | bytes) -> None:
    try:
        tasks = read_text(name, text)
    except TaskError as error:
        lines = str(error).splitlines()
    else:
        assert all(isinstance(task, Task) for task in tasks)
        return
    assert all(f"{name}:" in line for line in lines)


@pytest.mark.parametrize("field", [field for field in FIELDS if field != "matrix"])
def test_every_field_of_a_task_is_a_field_of_the_file(field: str) -> None:
    assert field in Task.__slots__
