"""What is copied of a store, and what the command says of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli import stores
from penstock.store.base import RAY_SECRET
from penstock.store.copying import ARRIVAL, TABLES, Progress
from tests.unit.cli_rig import Cli, make_cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


def test_every_table_and_column_is_copied(cli: Cli) -> None:
    """What a migration adds must be added to the list, else a copy loses it."""
    cli.good("submit", "summarize", "{}")
    with closing(sqlite3.connect(cli.folder / "penstock.db")) as file:
        names = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        there = {
            name: {column for (column,) in file.execute("SELECT name FROM pragma_table_info(?)", (name,))}
            for name in names
            if not name.startswith("sqlite_")
        }
    listed = {t.name: {column.strip('"') for column in t.columns if column != ARRIVAL} for t in TABLES}
    assert listed == there


def test_a_store_is_copied_and_can_be_used(cli: Cli) -> None:
    for _ in range(2):
        cli.good("submit", "summarize", "{}")
    said = cli.good("store", "copy", "penstock.db", "new.db")
    (line,) = said.lines
    assert line.startswith(f"copied 2 tasks, 2 events and 2 other rows to {cli.folder / 'new.db'} in ")
    assert line.endswith("; all were read back and are the same")
    before = cli.good("tasks", "--json").json
    assert cli.good("tasks", "--json", "--set", "store=new.db").json == before


def test_json_names_rows_and_hashes(cli: Cli) -> None:
    cli.good("submit", "summarize", "{}")
    told = cli.good("store", "copy", "penstock.db", "new.db", "--json").json
    assert told["from"] == str(cli.folder / "penstock.db")
    assert told["to"] == str(cli.folder / "new.db")
    assert told["rows"] == sum(table["rows"] for table in told["tables"].values()) == 3
    assert list(told["tables"]) == [table.name for table in TABLES]
    assert told["tables"]["tasks"]["rows"] == 1
    assert len(told["tables"]["tasks"]["sha256"]) == 64
    again = cli.good("store", "copy", "new.db", "third.db", "--json").json
    assert again["tables"] == told["tables"]


def test_who_goes_on_with_what_runs_on_a_ray_cluster_is_told(cli: Cli) -> None:
    cli.good("submit", "summarize", "{}")
    with closing(sqlite3.connect(cli.folder / "penstock.db")) as file:
        file.execute("INSERT INTO secrets (name, value) VALUES (?, ?)", (RAY_SECRET, b"secret"))
        file.commit()
        assert len(cli.good("store", "copy", "penstock.db", "idle.db").lines) == 1
        assert not cli.good("store", "copy", "penstock.db", "idle2.db", "--json").json["takes_ray_workers"]
        file.execute("UPDATE tasks SET state = 'running'")
        file.commit()
    (_, told) = cli.good("store", "copy", "penstock.db", "busy.db").lines
    assert told == (
        f"what runs on a Ray cluster goes on with {cli.folder / 'busy.db'};"
        f" let nobody dispatch there from {cli.folder / 'penstock.db'} any more"
    )
    assert cli.good("store", "copy", "penstock.db", "busy2.db", "--json").json["takes_ray_workers"]


def test_refusals_change_nothing(cli: Cli) -> None:
    cli.good("submit", "summarize", "{}")
    (cli.folder / "empty.db").touch()
    for none in ("none.db", "empty.db"):
        said = cli("store", "copy", none, "new.db")
        assert said.status == 3
        told = "there is no store; name another file, or let `penstock submit`, `work` or `serve` make it"
        assert said.told == [f"penstock: {cli.folder / none}: {told}"]
    (told,) = cli.bad("store", "copy", "penstock.db", "./penstock.db")
    assert "FROM and TO are the same store" in told
    assert not (cli.folder / "none.db").exists()
    assert (cli.folder / "empty.db").read_bytes() == b""
    assert not (cli.folder / "new.db").exists()
    cli.good("store", "copy", "penstock.db", "new.db")
    (told,) = cli.bad("store", "copy", "penstock.db", "new.db")
    assert "new.db: has 1 rows of tasks already; copy into a new store" in told


def test_progress_is_told_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stores, "_TOLD_EVERY_S", 0.0)
    display = stores._Display(is_quiet=False)
    display.update(Progress("copying", "events", 1500, 6000))
    display.close()
    assert capsys.readouterr().err == "penstock: copying events: 1,500 of 6,000 rows (25 %)\n"
    stores._Display(is_quiet=True).update(Progress("copying", "events", 1500, 6000))
    assert capsys.readouterr().err == ""
