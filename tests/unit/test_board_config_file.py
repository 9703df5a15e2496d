"""The config on disk for the set-up page: errors by line, what differs from what runs, no secret (promise 8)."""

from __future__ import annotations

from pathlib import Path

from penstock.config.running import Difference
from penstock.web.board.setup_config import read_file
from penstock.wiring import read_config

TEXT = 'store = "p.db"\n\n[hosts.alder]\ntype = "simulated"\nslots = 2\n\n[lanes.bulk]\nweight = 2\n'


def test_errors_have_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(TEXT)
    running = read_config(path)
    path.write_text(TEXT.replace("slots = 2", 'slots = "two"').replace("weight = 2", "weight = -1"))
    file = read_file(running)
    assert [one.line for one in file.problems] == [5, 8]
    assert file.problems[0].text.startswith("hosts.alder.slots: ")
    assert not file.differs


def test_what_is_not_toml_has_its_line_and_its_secrets_masked(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(TEXT)
    running = read_config(path)
    path.write_text(TEXT + 'api_key = "hunter2\n')
    file = read_file(running)
    assert [one.line for one in file.problems] == [9]
    assert "hunter2" not in "\n".join(file.lines)
    assert "hunter2" not in str(file.problems)


def test_keys_that_differ_from_what_runs_are_named(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(TEXT)
    running = read_config(path)
    assert not read_file(running).differs
    path.write_text(TEXT.replace("slots = 2", "slots = 3") + '[hosts.birch]\ntype = "simulated"\n')
    differs = read_file(running).differs
    assert differs == Difference(added=("hosts.birch",), changed=("hosts.alder.slots",))


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(TEXT)
    running = read_config(path)
    path.unlink()
    assert "cannot be read" in read_file(running).trouble
