"""A8: a matrix over inputs, templates of payloads and outputs, and what is told when they make no sense."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.config import TaskChecker, parse
from penstock.errors import TaskError
from penstock.intake.plans import Plan, without_outputs_there
from penstock.intake.skipping import OutputFiles, outputs_there
from penstock.intake.taskfile import read, read_file
from penstock.model import Task

CONFIG = '[hosts.h]\ntype = "simulated"\nmodel = "m"\n'
NAME = "{dir}/{stem}.{kind}.{n}.{model}.{uid}.md"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("in/a.md", "in/energy/heat.md", "in/water/tide.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}\n")
    return tmp_path


def written(*entries: dict[str, Any], name: str = "t.jsonl") -> str:
    Path(name).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return name


def made(**entry: Any) -> list[Task]:
    return read(written({"kind": "k", **entry}))


def told(*entries: dict[str, Any], checker: TaskChecker | None = None) -> list[str]:
    with pytest.raises(TaskError) as caught:
        read(written(*entries), checker=checker)
    return str(caught.value).splitlines()


def held_to(folder: Path) -> TaskChecker:
    return TaskChecker(parse(CONFIG, folder / "penstock.toml"))


# ---- inputs


def test_a8_inputs_times_kinds_times_models_times_repeats(folder: Path) -> None:
    """A8: one short entry; outputs mirror the tree of the inputs, in the order of the file."""
    tasks = read(
        written(
            {
                "payload": {"document": "{input}", "title": "{dir}: {stem} ({name})"},
                "output": f"reports/{NAME}",
                "matrix": {
                    "input": "in/**/*.md",
                    "kind": ["deep", "fpf"],
                    "model": ["a/1", "b"],
                    "repeat": 2,
                },
            }
        )
    )
    assert len(tasks) == 3 * 2 * 2 * 2
    assert len({task.output for task in tasks}) == 24
    first, last = tasks[0], tasks[-1]
    assert (first.kind, first.model) == ("deep", "a/1")
    assert first.payload == {"document": str(folder / "in/a.md"), "title": ".: a (a.md)"}
    assert first.output is not None
    assert first.output.startswith("reports/a.deep.1.a-1.")
    assert (last.kind, last.model) == ("fpf", "b")
    assert last.payload == {"document": str(folder / "in/water/tide.md"), "title": "water: tide (tide.md)"}
    assert last.output is not None
    assert last.output.startswith("reports/water/tide.fpf.2.b.")
    assert last.output.removesuffix(".md")[-4] == "."


def test_a8_the_text_of_an_input_is_taken_as_it_is() -> None:
    """A8: braces in a document are nobody's names."""
    Path("in/a.md").write_text("see {model} and {{stem}}\n")
    (task,) = made(payload=["{text}", "Read: {text}"], matrix={"input": "in/a.md", "model": ["m"]})
    assert task.payload == ["see {model} and {{stem}}", "Read: see {model} and {{stem}}"]


def test_a8_inputs_are_looked_for_beside_the_task_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"kind": "k", "payload": "{name}", "matrix": {"input": "in/*"}}
    written(entry)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert [task.payload for task in read("../t.jsonl")] == ["a.md"]
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(entry).encode())))
    assert [task.payload for task in read("-")] == ["a.md"], "of standard input: in the current folder"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            {"matrix": {"input": ["in"]}},
            "matrix.input: must be a folder or a glob, such as 'inputs/**/*.md', not a list",
        ),
        ({"matrix": {"input": "in/*.pdf"}}, "matrix.input: 'in/*.pdf' matches no file in "),
        (
            {"payload": "x", "matrix": {"input": "in"}},
            "matrix.input: nothing in payload says '{input}', its path, or",
        ),
        (
            {"matrix": {"input": "in", "stem": ["x"]}},
            "matrix.stem: {stem} means something else here; choose another",
        ),
        (
            {"matrix": {"n": [1]}, "payload": "{n}"},
            "matrix.n: {n} means something else here; choose another name",
        ),
        (
            {"matrix": {"kind": ["x"]}, "kind": "k"},
            "matrix.kind: kind is also given beside the matrix; give it once",
        ),
        ({"matrix": {"kind": [3]}, "kind": None}, "matrix.kind: must be a list of kind names, not 3"),
        ({"matrix": {"input": "in"}, "key": "x"}, "key: must say {input}, so that it stays with its file"),
        ({"matrix": {"input": "in"}, "payload": "{text}"}, "matrix.input: 'bad.md' is not UTF-8 text"),
    ],
)
def test_a8_wrong_inputs_are_told(entry: dict[str, Any], problem: str) -> None:
    Path("in/bad.md").write_bytes(b"\xff")
    problems = told({"kind": "k", "payload": "{input}", **entry})
    assert problems[0].startswith(f"t.jsonl:1: {problem}")


def test_keys_stay_with_their_files() -> None:
    """A number would soon mean another file."""
    entry = {"payload": "{input}", "key": "{input} {model} {n}", "matrix": {"input": "in", "model": ["m"]}}
    before = {task.payload: task.key for task in made(**entry)}
    Path("in/0.md").write_text("a file that comes first")
    after = {task.payload: task.key for task in made(**entry)}
    assert len(after) == 4
    assert before.items() <= after.items()


# ---- outputs


@pytest.mark.parametrize(
    ("output", "path"),
    [
        ("x.md", "x.md"),
        ("{kind}.{n}.md", "k.1.md"),
        ("{model}/{kind}", "org-m.1-free/k"),
        ("./a//{kind}/./b", "a/k/b"),
        ("{{kind}}.{kind}.}}{{", "{kind}.k.}{"),
    ],
)
def test_a8_an_output_is_a_template_without_a_matrix_too(output: str, path: str) -> None:
    """A8: and braces are written twice."""
    (task,) = made(model="org/m.1:free", output=output)
    assert task.output == path


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"output": "{knd}.md"}, "output: there is no '{knd}' here; did you mean 'kind'?"),
        ({"output": "{}.md"}, "output: there is no '{}' here; names: kind, model, n, uid"),
        ({"output": "{stem}.md"}, "output: there is no '{stem}' here; names: kind, model, n, uid"),
        (
            {"output": "{input}.md", "matrix": {"input": "in"}},
            "output: there is no '{input}' here; names: dir, kind,",
        ),
        ({"output": "a{b"}, "output: has a single '{'; write {name}, or {{ for the character itself"),
        ({"output": "a}b"}, "output: has a single '}'; write {name}, or }} for the character itself"),
        ({"output": "{model}.md"}, "output: says {model}, but the task names no model; give one"),
        ({"output": 3}, "output: must be the path of a file, not 3"),
        ({"output": "../{kind}"}, "output: '../k' is outside of "),
        ({"output": "{x}/y", "matrix": {"x": ["a", "b"]}, "payload": "{x}"}, ""),
        (
            {"output": "r.md", "matrix": {"repeat": 2}},
            "output: two of its tasks have 'r.md'; tell them apart: {n}",
        ),
        ({"output": "{dir}/{name}", "matrix": {"input": "in"}}, ""),
        (
            {"output": "in/{dir}/{name}", "matrix": {"input": "in"}},
            "output: 'in/a.md' would take the place of its own input; name another file",
        ),
    ],
)
def test_a8_wrong_outputs_are_told(folder: Path, entry: dict[str, Any], problem: str) -> None:
    """A8, promise 7: an empty problem is none."""
    entry = {"kind": "k", "payload": "{input}", **entry}
    if not problem:
        assert read(written(entry), checker=held_to(folder))
        return
    (only,) = told(entry, checker=held_to(folder))
    assert only.startswith(f"t.jsonl:1: {problem}")


def test_two_tasks_cannot_have_one_output() -> None:
    """A8: both lines are told, whatever the form, and however the path is written."""
    (only,) = told({"kind": "a", "output": "r/x.md"}, {"kind": "b"}, {"kind": "c", "output": "r/y/../x.md"})
    assert only == "t.jsonl:3: output: 'r/y/../x.md' is already the output of a task on line 1; give another"
    text = '[[tasks]]\nkind = "a"\noutput = "x"\n\n[[tasks]]\nkind = "b"\noutput = "{kind}"\n'
    Path("t.toml").write_text(text + '\n[[tasks]]\nkind = "x"\noutput = "{kind}"\n')
    with pytest.raises(
        TaskError, match=r"^t.toml:11: output: 'x' is already the output of a task on line 3; give"
    ):
        read("t.toml")


def test_an_output_is_not_the_folder_of_another() -> None:
    """A8: told with both lines, before one of them has done its work for nothing."""
    deep, shallow = {"kind": "a", "output": "r/x/y.md"}, {"kind": "b", "output": "r/z/../x"}
    assert told(deep, {"kind": "c"}, shallow) == [
        "t.jsonl:3: output: 'r/z/../x' is the folder of the output of a task on line 1; give another"
    ]
    assert told(shallow, {"kind": "c"}, deep) == [
        "t.jsonl:3: output: 'r/x/y.md' lies below the output of a task on line 1; give another"
    ]
    beside = {"kind": "c", "output": "r/x.md"}
    assert len(read(written(deep, beside, {"kind": "d", "output": "r/x/z.md"}))) == 3
    (only,) = told({"output": "r/{kind}", "matrix": {"kind": ["a", "b"]}}, {"kind": "c", "output": "r/b/c"})
    assert only == "t.jsonl:2: output: 'r/b/c' lies below the output of a task on line 1; give another"


def test_a8_the_same_file_names_the_same_outputs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A8: the uid follows from what a task is; not from its place in the file, nor from where the file lies."""
    entry: dict[str, Any] = {"payload": ["{input}", "say {topic}"], "output": NAME, "model": "m"}
    entry["matrix"] = {"input": "in", "topic": ["x"], "repeat": 2}
    first = {task.output for task in made(**entry)}
    (folder / "in/0.md").write_text("one more")
    assert first < {task.output for task in made(**entry)}
    (folder / "in").rename(folder / "moved")
    (folder / "elsewhere").mkdir()
    (folder / "moved").rename(folder / "elsewhere/in")
    monkeypatch.chdir(folder / "elsewhere")
    assert first < {task.output for task in made(**entry)}
    other = {task.output for task in made(**{**entry, "payload": ["{input}", "tell {topic}"]})}
    assert first.isdisjoint(other), "another payload is another task"


def test_a8_what_an_entry_makes_is_none_of_its_inputs(folder: Path) -> None:
    """A8: outputs beside the inputs are not taken for inputs the next time."""
    entry = {
        "kind": "k",
        "payload": "{input}",
        "output": "in/{dir}/{stem}.{kind}.{uid}.md",
        "matrix": {"input": "in/**/*.md"},
    }
    tasks = read(written(entry), checker=held_to(folder))
    for task in tasks:
        (folder / str(task.output)).write_text("a report")
    (folder / "in/a.k.ZZ9.md").write_text("made by another tool")
    assert read(written(entry), checker=held_to(folder)) == tasks
    for path in (folder / "in").rglob("*.md"):
        if ".k." not in path.name:
            path.unlink()
    assert read(written(entry), checker=held_to(folder)), "what is left is an input like any other"


# ---- what is there


def test_a8_outputs_that_are_there_are_skipped(folder: Path) -> None:
    """A8: whatever their uid; and waiting for one that is skipped is waiting for nothing."""
    entries: list[dict[str, Any]] = [
        {
            "kind": "k",
            "id": "r",
            "payload": "{input}",
            "output": NAME,
            "model": "m",
            "matrix": {"input": "in"},
        },
        {"kind": "k", "id": "plain", "output": "plain.md", "after": ["r", "outside"]},
        {"kind": "k", "id": "sum", "after": ["r", "plain"]},
    ]
    tasks, patterns, places = read_file(written(*entries))
    whole = Plan("r", "", tasks, range(len(tasks)), places)
    assert outputs_there(tasks, patterns, str(folder), ()) == set()
    assert without_outputs_there(whole, set()) is whole
    (folder / "a.k.1.m.A-_.md").write_text("by another tool")
    (folder / "energy").mkdir()
    (folder / "energy/heat.k.1.m.toolong.md").write_text("no uid")
    (folder / "energy/heat.k.1.m.a.b.md").write_text("no uid")
    (folder / "energy/heat.k.2.m.abc.md").write_text("another repeat")
    (folder / "plain.md").write_text("")
    assert outputs_there(tasks, patterns, str(folder), ("plain.md",)) == {0}, (
        "one that is being made again is not"
    )
    plan = without_outputs_there(whole, outputs_there(tasks, patterns, str(folder), ()))
    assert [task.id for task in plan.there] == ["r-1", "plain"]
    assert [(task.id, task.after) for task in plan.todo] == [
        ("r-2", ()),
        ("r-3", ()),
        ("sum", ("r-2", "r-3")),
    ]
    assert [plan.places.of(number) for number in plan.numbers] == [places.of(n) for n in (1, 2, 4)]


def test_only_a_file_is_there(folder: Path) -> None:
    hole = read_file(written({"kind": "k", "output": "{uid}/x-{uid}-{uid}.md"})).patterns.popitem()[1]
    (folder / "x.md").mkdir()
    (folder / "abc").mkdir()
    files = OutputFiles(str(folder))
    assert not files.has("x.md"), "a folder is no output"
    assert not files.has("in/a.md/x.md"), "nor is anything inside of a file"
    assert files.has("in/../in/a.md")
    assert not OutputFiles(str(folder)).has(hole)
    (folder / "abc/x-aa9-b_-.md").write_text("")
    assert OutputFiles(str(folder)).has(hole)
