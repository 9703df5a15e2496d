"""A8: the files that `matrix.input` means: of a folder or a glob, in order, and none from outside of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.intake import inputs
from penstock.intake.inputs import Input, NoInputs, find_inputs

FILES = (
    "in/a.md",
    "in/b.txt",
    "in/energy/heat.md",
    "in/energy/deep/er/sun.md",
    "in/water/tide.md",
    "in/water/[x].md",
    "in/.hidden.md",
    "in/.git/config.md",
    "in/energy/~$heat.md",
    "in/energy/heat.md~",
    "in/energy/#heat.md#",
    "in/energy/heat.md.part",
    "in/energy/heat.tmp",
    "other/x.md",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}\n")
    return tmp_path


def found(pattern: str, folder: Path | None = None) -> list[str]:
    return [one.inside for one in find_inputs(pattern, folder or Path())]


def why_none(pattern: str) -> str:
    with pytest.raises(NoInputs) as caught:
        find_inputs(pattern, Path())
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


ALL = ["a.md", "b.txt", "energy/deep/er/sun.md", "energy/heat.md", "water/[x].md", "water/tide.md"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("in", ALL),
        ("in/", ALL),
        ("./in/**", ALL),
        ("in/**/*", ALL),
        ("in/**/*.md", [one for one in ALL if one.endswith(".md")]),
        ("in/**/**/*.md", [one for one in ALL if one.endswith(".md")]),
        ("in/*", ["a.md", "b.txt"]),
        ("in/*.md", ["a.md"]),
        ("in/*/*.md", ["energy/heat.md", "water/[x].md", "water/tide.md"]),
        ("in/e*/**/*.md", ["energy/deep/er/sun.md", "energy/heat.md"]),
        ("in/**/er/*", ["energy/deep/er/sun.md"]),
        ("in/?.txt", ["b.txt"]),
        ("in/[ab].*", ["a.md", "b.txt"]),
        ("in/[!a].*", ["b.txt"]),
        ("*/x.md", ["other/x.md"]),
        ("in/a.md", ["a.md"]),
        ("in/water/[x].md", ["[x].md"]),
        ("in/../other/*", ["x.md"]),
        ("in/.git/*", ["config.md"]),
    ],
)
def test_a8_a_folder_a_glob_or_a_file(pattern: str, expected: list[str]) -> None:
    """A8: sorted, without hidden and temporary files, unless the pattern itself names a hidden folder."""
    assert found(pattern) == expected
    assert found(str(Path(pattern).absolute()) + ("/" if pattern.endswith("/") else "")) == expected


def test_a8_what_an_input_is_called() -> None:
    (sun,) = find_inputs("in/**/sun.md", Path())
    assert (sun.dir, sun.name, sun.stem) == ("energy/deep/er", "sun.md", "sun")
    assert sun.path == str(Path("in/energy/deep/er/sun.md").absolute())
    assert sun.text() == "text of in/energy/deep/er/sun.md"
    assert (Input("/x", "a.tar.gz").stem, Input("/x", "a.tar.gz").dir, Input("/x", "LICENSE").stem) == (
        "a.tar",
        ".",
        "LICENSE",
    )


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("in/**/*.pdf", "'in/**/*.pdf' matches no file in "),
        ("nowhere", "there is no file or folder 'nowhere' in "),
        ("nowhere/*.md", "there is no folder 'nowhere' in "),
        ("in/*/../x", "'..' cannot stand behind a '*'; write it at the beginning"),
        ("", "must be a folder or a glob on one line, such as 'inputs/**/*.md'"),
        ("in\n", "must be a folder or a glob on one line, such as 'inputs/**/*.md'"),
        ("x" * 1025, "must be a folder or a glob on one line, such as 'inputs/**/*.md'"),
    ],
)
def test_a8_what_matches_nothing_is_told_by_its_name(pattern: str, why: str) -> None:
    assert why_none(pattern).startswith(why)


def test_links_lead_nowhere_by_surprise(folder: Path) -> None:
    """A8: a linked folder is not entered; a linked file counts inside, and is told when it leads out."""
    (folder / "in/way").symlink_to(folder / "other")
    (folder / "in/loop").symlink_to(folder / "in")
    assert found("in") == ALL
    (folder / "in/again.md").symlink_to(folder / "in/a.md")
    assert found("in/*.md") == ["a.md", "again.md"]
    (folder / "in/out.md").symlink_to(folder / "other/x.md")
    assert why_none("in").startswith("'out.md' is a link that leads out of ")
    assert why_none("in/out.md").startswith("'out.md' is a link that leads out of ")
    assert found("in/**/*.txt") == ["b.txt"], "what the glob does not mean is nobody's matter"
    (folder / "in/out.md").unlink()
    (folder / "in/dead.md").symlink_to(folder / "in/gone.md")
    assert why_none("in").startswith("'dead.md' is a link to nothing")
    (folder / "door").symlink_to(folder / "in")
    (folder / "in/dead.md").unlink()
    assert found("door/*.txt") == ["b.txt"], "the folder that is named may itself be a link"


def test_what_is_no_file_or_no_text(folder: Path) -> None:
    os.mkfifo(folder / "in/pipe.md")
    assert found("in/*.md") == ["a.md"]
    assert why_none("in/pipe.md").startswith("'pipe.md' is no file")
    (folder / "in/a.md").write_bytes(b"\xff\xfe")
    with pytest.raises(NoInputs, match=r"^'a.md' is not UTF-8 text; save it as UTF-8$"):
        find_inputs("in/a.md", Path())[0].text()
    (folder / "in/a.md").write_bytes(b"\xef\xbb\xbfwith a mark\r\n")
    assert find_inputs("in/a.md", Path())[0].text() == "with a mark"
    (one,) = find_inputs("in/a.md", Path())
    (folder / "in/a.md").unlink()
    with pytest.raises(NoInputs, match=r"^'a.md' cannot be read: No such file"):
        one.text()
    Path(os.fsdecode(os.fsencode(folder) + b"/in/\xff.md")).write_text("")
    assert "is not UTF-8; rename it" in why_none("in")


def test_there_are_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_INPUTS", 3)
    assert why_none("in") == "matches over 3 files; name fewer"
    monkeypatch.setattr(inputs, "MAX_LOOKED_AT", 4)
    assert why_none("in/**/*.txt") == "looks through over 4 files; name a smaller folder"
    monkeypatch.setattr(inputs, "MAX_TEXT_BYTES", 4)
    with pytest.raises(NoInputs, match=r"^'a.md' is over 0 MiB; let the host read it: say \{input\}$"):
        find_inputs("in/a.md", Path())[0].text()
