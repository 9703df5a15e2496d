"""Commands where there is no store yet: who only looks is told so and leaves nothing behind, who keeps makes it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from penstock.config.postgres_place import postgres_place
from penstock.store.postgres_database import PostgresDatabase
from tests import postgres_rig
from tests.unit.cli_rig import Cli, make_cli

LOOKING = (
    (("status", "--json"), 0),
    (("tasks", "--json"), 0),
    (("token", "list", "--json"), 0),
    (("show", "gone"), 3),
    (("why", "gone"), 3),
    (("timeline", "gone"), 3),
    (("diagnose", "gone"), 3),
    (("cancel", "gone"), 3),
    (("token", "revoke", "gone"), 3),
    (("top", "--json"), 3),  # it would wait there for ever
)


class Place:
    """Of a store, in a file or in a schema."""

    def __init__(self, cli: Cli, kind: str) -> None:
        self._cli = cli
        self.store = "nowhere.db" if kind == "sqlite" else postgres_rig.fresh_url()
        self.told = "there is no store; name another file"
        if kind == "postgres":
            self._schema = postgres_place(self.store).schema
            self.told = f"there is no store in schema {self._schema}; correct the database or ?schema="

    def is_there(self) -> bool:
        """Or anything of one."""
        if self.store == "nowhere.db":
            return any(self._cli.folder.glob("nowhere*"))
        return asyncio.run(self._has_schema())

    async def _has_schema(self) -> bool:
        other = await asyncpg.connect(postgres_place(self.store).dsn)
        try:
            return await other.fetchval("SELECT to_regnamespace($1)", self._schema) is not None
        finally:
            await other.close()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


@pytest.fixture(params=["sqlite", "postgres"])
def place(cli: Cli, request: pytest.FixtureRequest) -> Place:
    return Place(cli, request.param)


def test_who_only_looks_is_told_and_makes_none(cli: Cli, place: Place) -> None:
    for arguments, status in LOOKING:
        said = cli("--set", f"store={place.store}", *arguments)
        assert said.status == status, said
        (told,) = said.told
        assert place.told in told
        assert not place.is_there(), arguments
    assert cli("--set", f"store={place.store}", "tasks", "--json").json == []


def test_a_check_says_that_it_will_be_made(cli: Cli, place: Place) -> None:
    said = cli("--set", f"store={place.store}", "--set", "server.port=0", "check", "--json")
    (store,) = [found for found in said.json["findings"] if found["what"] == "store"]
    assert (store["state"], store["detail"]) == ("well", "is made with the first task")
    assert not place.is_there()


def test_a_check_of_one_that_is_away_names_it_once(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresDatabase, "patience_s", 0.0)
    place = "postgresql://anna@127.0.0.1:1/lab"
    said = cli("--set", f"store={place}", "check", "--json")
    (store,) = [found for found in said.json["findings"] if found["what"] == "store"]
    assert (store["name"], store["state"]) == (place, "wrong")
    assert store["detail"].startswith("the server cannot be reached")
    assert said.status == 1
    assert f"store {place}: {store['detail']}" in said.json["problems"]


def test_a_plan_needs_none_and_says_nothing_of_it(cli: Cli, place: Place) -> None:
    """What is run for the first time has nothing to join; a dry run makes none either."""
    cli.file("tasks.jsonl", '{"kind": "summarize", "output": "a.json"}\n')
    said = cli.good("--set", f"store={place.store}", "run", "tasks.jsonl", "--dry-run")
    assert not [line for line in said.told if "store" in line]
    assert not place.is_there()


@pytest.mark.parametrize(
    "arguments", [("submit", "summarize", "{}"), ("token", "add", "laptop"), ("pause",), ("work", "--drain")]
)
def test_who_keeps_something_makes_it(cli: Cli, place: Place, arguments: tuple[str, ...]) -> None:
    said = cli.good("--set", f"store={place.store}", *arguments)
    assert not [line for line in said.told if "there is no store" in line]
    assert place.is_there()
