"""A folder with a config, and command lines in it: what they print, and the status they end with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.cli.app import main

CONFIG = """
store = "penstock.db"

[hosts.small]
type = "simulated"
slots = 2
duration_s = 0.01
serves = ["summarize"]

[hosts.large]
type = "simulated"
slots = 1
duration_s = 0.01
model = "big"
units = { vram_gb = 24 }
serves = ["summarize", "translate"]

[lanes.fast]
max_running = 3

[retry]
base_s = 0.01
"""


class Said(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def told(self) -> list[str]:
        """The lines on stderr."""
        return self.err.splitlines()


class Cli:
    """`cli("submit", "summarize")` is `penstock submit summarize` in its folder."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capture = capture

    def __call__(self, *arguments: str) -> Said:
        self._capture.readouterr()
        status = main(arguments)
        out, err = self._capture.readouterr()
        assert "Traceback" not in err
        return Said(status, out, err)

    def good(self, *arguments: str) -> Said:
        said = self(*arguments)
        assert said.status == 0, said
        return said

    def bad(self, *arguments: str) -> list[str]:
        """Wrong use: what is told, and nothing is printed."""
        said = self(*arguments)
        assert (said.status, said.out) == (2, ""), said
        assert all(line.startswith("penstock: ") for line in said.told)
        return [line.removeprefix("penstock: ") for line in said.told]

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def tasks(self, *arguments: str) -> list[dict[str, Any]]:
        """The tasks of the store, the oldest first."""
        listed: list[dict[str, Any]] = self.good("tasks", "--json", *arguments).json
        return listed[::-1]


def make_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    monkeypatch.delenv("PENSTOCK_CONFIG", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    made = Cli(tmp_path, capsys)
    made.file("penstock.toml", CONFIG)
    return made
