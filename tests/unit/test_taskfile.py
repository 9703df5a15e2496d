"""Task files: what each form means, and how each mistake is told.

Promise 7: a file gives all its tasks or one error.
"""

from __future__ import annotations

import gc
import io
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.config import TaskChecker, parse
from penstock.errors import TaskError
from penstock.intake import documents, taskfile
from penstock.intake.entries import Setting, read_entry
from penstock.intake.taskfile import read
from penstock.model import OnCrash, Task

NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, text: str | bytes) -> str:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def told(name: str, text: str | bytes, **options: Any) -> list[str]:
    with pytest.raises(TaskError) as caught:
        read(write(name, text), now=NOW, **options)
    return str(caught.value).splitlines()


def jsonl(*entries: dict[str, Any]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


ENTRY: dict[str, Any] = {
    "kind": "summarize",
    "payload": {"text": "x", "list": [1, 2.5, None, True]},
    "priority": 0,
    "lane": "gptr",
    "run": "mine",
    "after": ["other"],
    "needs": {"vram_gb": 8},
    "host": "surtr",
    "model": "m/1:free",
    "timeout_s": 60,
    "deadline": 1_800_000_000,
    "not_before": 1_750_000_000,
    "retries": 3,
    "key": "k 1",
    "on_crash": "block",
    "id": "t1",
}
TASK = Task(
    "summarize",
    {"text": "x", "list": [1, 2.5, None, True]},
    priority=0,
    lane="gptr",
    run="mine",
    after=("other",),
    needs={"vram_gb": 8},
    host="surtr",
    model="m/1:free",
    timeout_s=60,
    deadline=1_800_000_000,
    not_before=1_750_000_000,
    retries=3,
    key="k 1",
    on_crash=OnCrash.BLOCK,
    id="mine:t1",
)

YAML = """\
tasks:
- kind: summarize
  payload: {text: x, list: [1, 2.5, null, true]}
  priority: 0
  lane: gptr
  run: mine
  after: [other]
  needs: {vram_gb: 8}
  host: surtr
  model: m/1:free
  timeout_s: 60
  deadline: 1800000000
  not_before: 1750000000
  retries: 3
  key: k 1
  on_crash: block
  id: t1
"""

TOML = """\
[[tasks]]
kind = "summarize"
priority = 0
lane = "gptr"
run = "mine"
after = ["other"]
needs = { vram_gb = 8 }
host = "surtr"
model = "m/1:free"
timeout_s = 60
deadline = 1800000000
not_before = 1750000000
retries = 3
key = "k 1"
on_crash = "block"
id = "t1"
payload = { text = "x", list = [1, 2.5, true] }
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.jsonl", jsonl(ENTRY)),
        ("t.ndjson", jsonl(ENTRY)),
        ("t.json", json.dumps([ENTRY])),
        ("t.json", json.dumps({"tasks": [ENTRY]})),
        ("t.YAML", YAML),
        ("t.yml", json.dumps([ENTRY])),
    ],
)
def test_every_field_in_every_form(name: str, text: str) -> None:
    assert read(write(name, text)) == [TASK]


def test_every_field_in_toml() -> None:
    (task,) = read(write("t.toml", TOML))
    assert task == Task(
        **{field: getattr(TASK, field) for field in TASK.__slots__ if field != "payload"},
        payload={
            "text": "x",
            "list": [1, 2.5, True],
        },
    )


def test_the_least_task() -> None:
    assert read(write("t.jsonl", '{"kind": "k"}')) == [Task("k")]


def test_reading_leaves_the_collector_as_it_was() -> None:
    assert gc.isenabled()
    read(write("t.jsonl", '{"kind": "k"}'))
    told("t.jsonl", "{")
    assert gc.isenabled()
    gc.disable()
    try:
        told("t.jsonl", "{")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_nothing_is_what_is_left_out() -> None:
    entry: dict[str, Any] = dict.fromkeys(ENTRY) | {"kind": "k"}
    assert read(write("t.jsonl", jsonl(entry))) == read(write("t.json", json.dumps([entry]))) == [Task("k")]


def test_blank_lines_and_a_byte_order_mark_are_nothing() -> None:
    text = b'\xef\xbb\xbf{"kind": "a"}\r\n\r\n   \n{"kind": "b"}'
    assert [task.kind for task in read(write("t.jsonl", text))] == ["a", "b"]


@pytest.mark.parametrize(("name", "text"), [("t.jsonl", ""), ("t.yaml", "# nothing\n"), ("t.json", "[]")])
def test_a_file_may_be_empty(name: str, text: str) -> None:
    assert read(write(name, text)) == []


def test_standard_input_is_jsonl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"kind": "a"}\n{"kind": 3}\n')))
    with pytest.raises(TaskError, match=r"^<stdin>:2: kind: must be text, not 3$"):
        read("-")


def test_what_comes_from_outside_fills_what_is_left_out() -> None:
    file = write("t.jsonl", jsonl({"kind": "a"}, {"kind": "b", "run": "own", "on_crash": "retry"}))
    first, second = read(file, run="outer", on_crash=OnCrash.BLOCK)
    assert (first.run, first.on_crash) == ("outer", OnCrash.BLOCK)
    assert (second.run, second.on_crash) == ("own", OnCrash.RETRY)


def test_defaults_are_for_all_entries() -> None:
    text = "defaults: {lane: gptr, priority: 1, payload: {a: 1}}\n"
    text += "tasks:\n- kind: a\n- {kind: b, lane: x, payload: 2}\n"
    assert read(write("t.yaml", text)) == [
        Task("a", {"a": 1}, priority=1, lane="gptr"),
        Task("b", 2, priority=1, lane="x"),
    ]
    toml = '[defaults]\nlane = "gptr"\n[[tasks]]\nkind = "a"\n'
    assert read(write("t.toml", toml)) == [Task("a", lane="gptr")]


# ---- times


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        (1_800_000_000.5, 1_800_000_000.5),
        ("2026-01-31T18:00:00Z", 1_769_882_400.0),
        ("2026-01-31T18:00:00+01:00", 1_769_878_800.0),
        ("2026-01-31 18:00", datetime(2026, 1, 31, 18).timestamp()),
        ("2026-01-31", datetime(2026, 1, 31).timestamp()),
        ("+30m", NOW + 1800),
        ("+90s", NOW + 90),
        ("+2h", NOW + 7200),
        ("+1d1.5h", NOW + 86_400 + 5400),
        ("1970-01-01T00:00:00Z", 0.0),
    ],
)
@pytest.mark.parametrize("field", ["deadline", "not_before"])
def test_times_as_people_write_them(value: object, moment: float, field: str) -> None:
    (task,) = read(write("t.jsonl", jsonl({"kind": "k", field: value})), now=NOW)
    assert getattr(task, field) == moment


def test_toml_has_times_of_its_own() -> None:
    text = '[[tasks]]\nkind = "k"\ndeadline = 2026-01-31T18:00:00Z\nnot_before = 2026-01-31T18:00:00\n'
    (task,) = read(write("t.toml", text))
    assert task.deadline == 1_769_882_400.0
    assert task.not_before == datetime(2026, 1, 31, 18).timestamp()


@pytest.mark.parametrize("value", ["soon", "30m", "+", "+m", "+3w", "-3m", "2026-13-01", "+٣m", ""])
def test_what_is_no_time(value: str) -> None:
    (problem,) = told("t.jsonl", jsonl({"kind": "k", "deadline": value}))
    assert problem.startswith(
        f"t.jsonl:1: deadline: {value!r} is not a time; write seconds since the epoch, "
    )


@pytest.mark.parametrize("value", [-1, 1.7e12, True, [1], "1000-01-01", "9999-12-31"])
def test_times_beyond_all_clocks(value: object) -> None:
    (problem,) = told("t.jsonl", jsonl({"kind": "k", "not_before": value}))
    assert problem.startswith("t.jsonl:1: not_before: must be a number from 0 to 100000000000, not ")


# ---- matrix


def test_a8_one_entry_many_models_and_repeats() -> None:
    """A8: one input × many models × n repeats from one short file."""
    entry = {
        "kind": "report",
        "id": "r",
        "key": "k",
        "payload": {"topic": "rust", "out": "{model}-{repeat}.md"},
        "matrix": {"model": ["a/1", "b"], "repeat": 2},
    }
    tasks = read(write("t.jsonl", jsonl(entry)))
    assert [(task.id, task.key, task.model, task.payload) for task in tasks] == [
        ("r-1", "k-1", "a/1", {"topic": "rust", "out": "a/1-1.md"}),
        ("r-2", "k-2", "a/1", {"topic": "rust", "out": "a/1-2.md"}),
        ("r-3", "k-3", "b", {"topic": "rust", "out": "b-1.md"}),
        ("r-4", "k-4", "b", {"topic": "rust", "out": "b-2.md"}),
    ]


def test_a8_other_names_fill_the_payload() -> None:
    """A8: a text that is nothing but a name takes the value as it is; other braces stay."""
    text = (
        "- kind: k\n  payload: ['{a}', 'x{a}y{b}', {n: '{b}', '{a}': '{c} {\"json\": 1}'}]\n"
        "  matrix: {a: [1, 2.5], b: [true, '{a}']}\n"
    )
    tasks = read(write("t.yaml", text))
    assert [task.payload for task in tasks] == [
        [1, "x1yTrue", {"n": True, "{a}": '{c} {"json": 1}'}],
        [1, "x1y{a}", {"n": "{a}", "{a}": '{c} {"json": 1}'}],
        [2.5, "x2.5yTrue", {"n": True, "{a}": '{c} {"json": 1}'}],
        [2.5, "x2.5y{a}", {"n": "{a}", "{a}": '{c} {"json": 1}'}],
    ]
    assert {(task.id, task.key) for task in tasks} == {("", None)}


def test_repeats_add_nothing_to_a_payload() -> None:
    """Hosts refuse fields they do not know: a copy's number is where the file says so."""
    tasks = read(write("t.jsonl", jsonl({"kind": "k", "payload": "say {repeat}", "matrix": {"repeat": 2}})))
    assert [task.payload for task in tasks] == ["say 1", "say 2"]
    tasks = read(write("t.jsonl", jsonl({"kind": "k", "matrix": {"repeat": 2}})))
    assert [task.payload for task in tasks] == [None, None]
    table = {"kind": "k", "payload": {"seed": "{repeat}"}, "matrix": {"repeat": 2}}
    assert [task.payload for task in read(write("t.jsonl", jsonl(table)))] == [{"seed": 1}, {"seed": 2}]


def test_waiting_for_a_matrix_is_waiting_for_all_of_it() -> None:
    entries: list[dict[str, Any]] = [
        {"kind": "k", "id": "sum", "after": ["r", "x"]},
        {"kind": "k", "id": "r", "matrix": {"repeat": 2}},
    ]
    assert read(write("t.jsonl", jsonl(*entries)))[0].after == ("r-1", "r-2", "x")


@pytest.mark.parametrize(
    ("matrix", "problem"),
    [
        (3, "matrix: must be a table like { model = [...], repeat = 3 }, not 3"),
        ({}, "matrix: must be a table like { model = [...], repeat = 3 }, not an empty one"),
        ({"repeat": 0}, "matrix.repeat: must be a whole number from 1 to 1000000, not 0"),
        ({"repeat": True}, "matrix.repeat: must be a whole number from 1 to 1000000, not true"),
        ({"model": "m"}, "matrix.model: must be a list of values, not text"),
        ({"model": []}, "matrix.model: must be a list of values, not an empty one"),
        ({"model": [1]}, "matrix.model: must be a list of model names, not 1"),
        ({"text": [{}]}, "matrix.text: must be a list of texts and numbers; a table cannot stand in a text"),
        ({"other": [1]}, "matrix.other: nothing in payload says '{other}'; it has: text"),
        ({"tex": [1]}, "matrix.tex: nothing in payload says '{tex}'; did you mean 'text'?"),
        ({"a b": [1]}, "matrix.'a b': is not a name that {name} could stand for"),
        ({"repeat": 1001, "text": list(range(1000))}, "matrix: makes 1001000 tasks; at most 1000000"),
        ({"model": ["good", "bad\n"]}, "model: must be one line without control characters"),
    ],
)
def test_matrix_problems(matrix: object, problem: str) -> None:
    (only,) = told("t.jsonl", jsonl({"kind": "k", "payload": "{text}", "matrix": matrix}))
    assert only.startswith(f"t.jsonl:1: {problem}")


def test_copies_do_not_repeat_a_problem() -> None:
    raw = {"kind": "k", "priority": 9, "matrix": {"repeat": 1000}}
    assert len(read_entry(raw, Setting(now=NOW))[1]) == 1
    raw = {"kind": "k", "matrix": {"model": [f"{number}\n" for number in range(1000)]}}
    assert len(read_entry(raw, Setting(now=NOW))[1]) == 1


def test_a_model_is_given_once() -> None:
    (problem,) = told("t.jsonl", jsonl({"kind": "k", "model": "m", "matrix": {"model": ["n"]}}))
    assert problem == "t.jsonl:1: matrix.model: model is also given beside the matrix; give it once"


# ---- problems and their places


def test_problems_of_jsonl_have_their_line() -> None:
    text = b"""{"kind": "a", "id": "x"}
# no
{"kind": "a", "priorty": 1}
{"kind": "a", "id": "x"}
{"kind": "a"
{"kind": "a"} {}
[1]
{"kind": "\xff"}
{"kind": "a", "priority": 9, "lane": "a b"}
{"payload": 1}
"""
    assert told("t.jsonl", text + b"[" * 100_000) == [
        "t.jsonl:2: JSONL has no comments; remove the line, or use YAML",
        "t.jsonl:3: priorty: unknown field; did you mean 'priority'?",
        "t.jsonl:4: id: 'x' is already the id of a task on line 1; give another",
        "t.jsonl:5: is not JSON: input data was truncated; correct it",
        "t.jsonl:6: is not JSON: trailing characters; correct it",
        "t.jsonl:7: a task must be a table like {kind: …}, not a list",
        "t.jsonl:8: is not UTF-8 text; save the file as UTF-8",
        "t.jsonl:9: lane: 'a b' is not a name: letters, digits, '_', '.' and '-', at most 64, "
        "first a letter or digit",
        "t.jsonl:9: priority: must be a whole number from 0 (most urgent) to 4, not 9",
        "t.jsonl:10: kind: is missing; every task needs one",
        "t.jsonl:11: is nested too deeply; flatten it",
    ]


def test_problems_of_yaml_have_their_line() -> None:
    text = "defaults:\n  lane: a b\n  idd: x\n  key: k\n"
    text += "tasks:\n- kind: a\n- lane: b\n  priority: 7\n  kind: c\n- 3\nx: 1\n"
    assert [line.split(": ")[:2] for line in told("t.yaml", text)] == [
        ["t.yaml:11", "x"],
        ["t.yaml:3", "defaults.idd"],
        ["t.yaml:4", "defaults.key"],
        ["t.yaml:2", "defaults.lane"],
        ["t.yaml:8", "priority"],
        ["t.yaml:10", "a task must be a table like {kind"],
    ]


def test_problems_of_toml_have_their_line() -> None:
    text = '[[tasks]]\nkind = "a"\n\n[[tasks]]\nkind = "b"\nneeds = { gb = -1 }\n'
    text += "[tasks.payload]\nday = 2026-01-31\n"
    assert told("t.toml", text) == [
        "t.toml:8: payload.day: a date or time is not JSON; write it in quotes",
        "t.toml:6: needs.gb: must be a number from 0 to 1000000000000000, not -1",
    ]


def test_problems_of_json_have_their_line() -> None:
    text = '[\n {"kind": "a"},\n {"kind": "b",\n  "lane": 3}\n]'
    assert told("t.json", text) == ["t.json:4: lane: must be text, not 3"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("t.json", '[\n{"kind": 1,}]', "t.json:2: is not JSON: "),
        ("t.json", "3", "t.json: must be a list of tasks, not 3"),
        ("t.json", '{"task": []}', "t.json:1: task: unknown key; did you mean 'tasks'?"),
        ("t.json", '{"tasks": {}}', "t.json:1: tasks: must be a list, not a table"),
        ("t.json", '{"defaults": [1], "tasks": []}', "t.json:1: defaults: must be a table, not a list"),
        ("t.json", "[" * 100_000, "t.json: is nested too deeply; flatten it"),
        ("t.json", b'["\xff"]', "t.json:1: is not UTF-8 text; save the file as UTF-8"),
        ("t.toml", "a = = 1", "t.toml:1:5: is not TOML: "),
        ("t.toml", "a = " + "[" * 10_000, "t.toml: is nested too deeply; flatten it"),
        ("t.toml", "a = " + "9" * 5000, "t.toml: has a number with thousands of digits; make it shorter"),
        ("t.yaml", "a: [", "t.yaml:2: is not YAML: "),
        ("t.txt", "", "t.txt: must end in .jsonl, .yaml, .toml or .json, so that its form is known"),
    ],
)
def test_files_that_are_no_task_files(name: str, text: str | bytes, problem: str) -> None:
    assert told(name, text)[0].startswith(problem)


def test_files_that_cannot_be_read(folder: Path) -> None:
    with pytest.raises(TaskError, match=r"^gone\.jsonl: there is no such file; correct the name$"):
        read("gone.jsonl")
    with pytest.raises(TaskError, match=r"^gone\.yaml: there is no such file; correct the name$"):
        read("gone.yaml")
    (folder / "dir.jsonl").mkdir()
    with pytest.raises(TaskError, match=r"^dir\.jsonl: cannot be read: Is a directory$"):
        read(folder / "dir.jsonl")


def test_only_the_first_problems_are_told() -> None:
    lines = told("t.jsonl", jsonl(*({"kind": "a", "lane": number} for number in range(100))))
    assert len(lines) == 21
    assert lines[-1] == "t.jsonl: there may be more; these are the first 20 problems"
    assert lines[19].startswith("t.jsonl:20:")


def test_tasks_that_wait_for_each_other_are_refused() -> None:
    entries: list[dict[str, Any]] = [
        {"kind": "k", "id": "a", "after": "b"},
        {"kind": "k", "id": "b", "after": ["c", "a"]},
    ]
    assert told("t.jsonl", jsonl(*entries)) == [
        "t.jsonl:1: after: these tasks wait for each other, so none could start: a → b → a; take one out of `after`"
    ]
    entries = [
        {"kind": "k", "id": "a", "after": "r"},
        {"kind": "k", "id": "r", "after": "a", "matrix": {"repeat": 2}},
    ]
    assert "a → r-1 → a" in told("t.jsonl", jsonl(*entries))[0]


def test_a_matrix_takes_its_ids() -> None:
    entries: list[dict[str, Any]] = [
        {"kind": "k", "id": "r-2"},
        {"kind": "k", "id": "r", "matrix": {"repeat": 3}},
        {"kind": "k", "id": "r"},
    ]
    assert told("t.jsonl", jsonl(*entries)) == [
        "t.jsonl:2: id: 'r-2' is already the id of a task on line 1; give another",
        "t.jsonl:3: id: 'r' is already the id of a task on line 2; give another",
    ]


def test_the_config_is_held_against_every_line() -> None:
    """A3, C1: an unknown lane or kind is told with its line."""
    config = parse('[hosts.a]\ntype = "simulated"\nserves = ["chat"]\n[lanes.gptr]', Path("penstock.toml"))
    entries: list[dict[str, Any]] = [{"kind": "chat"}, {"kind": "chat", "lane": "gtpr"}, {"kind": "caht"}]
    assert told("t.jsonl", jsonl(*entries), checker=TaskChecker(config)) == [
        "t.jsonl:2: lane: no lane 'gtpr'; did you mean 'gptr'?",
        "t.jsonl:3: kind: no host serves kind 'caht'; did you mean 'chat'?",
    ]


@pytest.mark.parametrize(
    ("limit", "value", "problem"),
    [
        ("MAX_LINE_BYTES", 30, "t.jsonl:2: is over 0 MiB; put large things in a file of their own"),
        ("MAX_STREAM_BYTES", 30, "t.jsonl: is over 0 GiB; split it"),
        ("MAX_TASKS", 1, "t.jsonl: has over 1 tasks; split it"),
    ],
)
def test_streams_have_limits(monkeypatch: pytest.MonkeyPatch, limit: str, value: int, problem: str) -> None:
    monkeypatch.setattr(taskfile, limit, value)
    assert told("t.jsonl", jsonl({"kind": "a"}, {"kind": "a", "payload": "x" * 30})) == [problem]


def test_documents_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_DOCUMENT_BYTES", 10)
    (problem,) = told("t.yaml", "- kind: abcdef")
    assert problem == "t.yaml: is over 0 MiB; use JSONL, which is read line by line"


def test_too_many_to_wait_for() -> None:
    entries: list[dict[str, Any]] = [
        {"kind": "k", "id": "r", "matrix": {"repeat": 10_001}},
        {"kind": "k", "id": "s", "after": "r"},
    ]
    assert told("t.jsonl", jsonl(*entries)) == [
        "t.jsonl:2: after: 10001 tasks to wait for are too many; at most 10000"
    ]


def test_payloads_that_json_cannot_say() -> None:
    assert told("t.yaml", "- kind: k\n  payload:\n    a: .nan\n") == [
        "t.yaml:3: payload.a: nan is not JSON; use a finite number or null"
    ]
    nested = "{" + "a = {" * 120 + "}" * 120 + "}"
    (problem,) = told("t.toml", f'[[tasks]]\nkind = "k"\npayload = {nested}')
    assert problem.endswith("is nested deeper than 100 levels; flatten it")
