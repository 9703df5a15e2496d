"""How a command finds `serve`, and what it knows of a config without reading it: stale and torn notes are none."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from penstock.agents import serving
from penstock.agents.quick import known_config
from penstock.agents.quick.known_config import Known
from penstock.config.document import DEFAULT_STORE
from penstock.config.files import NAME, VARIABLE, find

KNOWN = Known("f1", "/health", plain=False, start_s=60.0)


# ---- serve


def test_serve_is_found_while_it_serves(tmp_path: Path) -> None:
    folder = str(tmp_path / "agents")
    assert serving.found(folder) is None
    with serving.told(folder, "127.0.0.1:8787", "secret"):
        found = serving.found(folder)
        assert found == ("127.0.0.1:8787", "secret", os.getpid())
        assert "secret" not in repr(found)
        note = Path(folder) / "serving.json"
        assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert serving.found(folder) is None
    assert not note.exists()


def test_the_note_of_one_that_was_killed_is_worth_nothing(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with serving.told(folder, "127.0.0.1:8787", "secret"):
        left = (tmp_path / "serving.json").read_bytes()
    (tmp_path / "serving.json").write_bytes(left)
    assert serving.found(folder) is None


@pytest.mark.parametrize(
    "note",
    ["", "{", "[]", "null", "{}", '{"version": 1, "address": 3, "key": "k", "pid": 1}', '{"version": 2}'],
)
def test_a_note_that_is_none(tmp_path: Path, note: str) -> None:
    with serving.told(str(tmp_path), "127.0.0.1:8787", "secret"):
        (tmp_path / "serving.json").write_text(note)
        assert serving.found(str(tmp_path)) is None


def test_a_second_serve_leaves_the_first_one_its_note(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with serving.told(folder, "127.0.0.1:1", "one"):
        with serving.told(folder, "127.0.0.1:2", "two"):
            found = serving.found(folder)
        assert found is not None
        assert found.address == "127.0.0.1:1"
        assert serving.found(folder) == found


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with serving.told(str(tmp_path / "file" / "agents"), "127.0.0.1:1", "key"):
        pass


# ---- what a config says


def noted(tmp_path: Path, *more: Path) -> str:
    config = tmp_path / NAME
    config.write_text("[agents.reports]\nimage = 'x'\n")
    stamps = [known_config.stamp(str(path)) for path in (config, *more)]
    known_config.note(str(tmp_path / "agents"), "reports", stamps, KNOWN)
    return str(config)


def read(tmp_path: Path, config: str) -> Known | None:
    return known_config.read(str(tmp_path / "agents"), "reports", config)


def test_what_was_noted_holds_while_the_files_are_the_same(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text("{}")
    config = noted(tmp_path, manifest)
    assert read(tmp_path, config) == KNOWN
    os.utime(manifest, ns=(1, 1))
    assert read(tmp_path, config) is None
    manifest.unlink()
    assert read(tmp_path, config) is None
    config = noted(tmp_path, manifest)
    assert read(tmp_path, config) == KNOWN  # that there is none is known as well
    manifest.write_text("{}")
    assert read(tmp_path, config) is None


def test_a_config_that_was_changed_or_is_another_is_not_known(tmp_path: Path) -> None:
    config = noted(tmp_path)
    assert read(tmp_path, str(tmp_path / "other.toml")) is None
    seen = os.stat(config)
    Path(config).write_text("[agents.reports]\nimage = 'xy'\n")
    os.utime(config, ns=(seen.st_mtime_ns, seen.st_mtime_ns))
    assert read(tmp_path, config) is None  # of another size


def test_what_changed_while_it_was_read_is_not_noted(tmp_path: Path) -> None:
    config = noted(tmp_path)
    before = known_config.stamp(config)
    Path(config).write_text("")
    known_config.note(str(tmp_path / "agents"), "reports", [before], KNOWN._replace(fingerprint="old"))
    assert read(tmp_path, config) is None
    note = json.loads((tmp_path / "agents" / "reports" / "config.json").read_text())
    assert note["known"]["fingerprint"] == "f1"


@pytest.mark.parametrize("note", ["", "{", "[]", '{"version": 1}', '{"version": 1, "files": []}'])
def test_a_note_that_is_torn_is_none(tmp_path: Path, note: str) -> None:
    config = noted(tmp_path)
    (tmp_path / "agents" / "reports" / "config.json").write_text(note)
    assert read(tmp_path, config) is None


def test_the_config_is_found_as_all_other_commands_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.delenv(VARIABLE, raising=False)
    deep = tmp_path / "work" / "a" / "b"
    deep.mkdir(parents=True)

    def both() -> str | None:
        found = find(deep)
        quick = known_config.found_config(None, str(deep))
        assert quick == (None if found is None else str(found))
        return quick

    assert both() is None
    for place in (tmp_path / "own" / "penstock", tmp_path / "work", deep):
        place.mkdir(parents=True, exist_ok=True)
        (place / NAME).write_text("")
        assert both() == str(place / NAME)
        if place.name == "penstock":
            monkeypatch.setenv(VARIABLE, str(tmp_path / "named.toml"))
            assert both() == str(tmp_path / "named.toml")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[agents.reports]\n", f"{DEFAULT_STORE}.agents"),
        ("store = 'data/x.db'\n[agents.reports]\n", "data/x.db.agents"),
        ("store = './data/../x.db'\n[agents.reports]\n", "x.db.agents"),
        ("store = 'postgresql://h/d'\n[agents.reports]\n", None),
        ("store = 3\n[agents.reports]\n", None),
        ("[agents.others]\n", None),
        ("agents = 3\n", None),
        ("not toml", None),
    ],
)
def test_where_agents_are_known_is_what_the_config_says(tmp_path: Path, text: str, place: str | None) -> None:
    (tmp_path / NAME).write_text(text)
    found = known_config.named_agents_dir(str(tmp_path / NAME), "reports")
    assert found == (None if place is None else str(tmp_path / place))


@pytest.mark.parametrize(
    ("name", "fits"),
    [("reports", True), ("a-b_c.2", True), ("", False), ("..", False), ("a/b", False), (".x", False)],
)
def test_no_name_leads_to_another_folder(name: str, fits: bool) -> None:
    assert known_config.is_name(name) is fits
