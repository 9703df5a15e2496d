"""`penstock token`: secrets are shown once and kept as digests; wrong use changes nothing. Promise 8."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.store.base import Token
from penstock.store.tokens import (
    OF_ATTEMPT,
    derived_secret,
    digest_of,
    id_of,
    is_secret_of,
    may_be_of_attempt,
    new_secret,
)
from tests.unit.cli_rig import Cli, make_cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


def test_a_secret_is_found_by_its_id_and_checked_by_its_digest() -> None:
    id, secret = new_secret()
    token = Token("x", id, digest_of(secret), ("read",))
    assert id_of(secret) == id
    assert is_secret_of(token, secret)
    assert not is_secret_of(token, secret[:-1] + ("A" if secret[-1] != "A" else "B"))
    assert len({new_secret()[1] for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ps_",
        "sk-abc",
        "ps_0a1b2c3d_short",
        "PS_0a1b2c3d_" + "x" * 43,
        "ps_0a1b2c3d_" + "é" * 43,
        "ps_attempt_" + "x" * 43,
        "ps_attempt_attempt_0a1b2c3d_" + "x" * 43,
    ],
)
def test_what_has_not_the_form_of_a_secret_is_nobodys(text: str) -> None:
    assert id_of(text) is None
    assert not may_be_of_attempt(text)


def test_the_key_of_an_attempt_is_told_from_a_token() -> None:
    of_attempts = [new_secret(OF_ATTEMPT), derived_secret(b"root", ["t", 1])]
    assert [id_of(secret) for _, secret in of_attempts] == [id for id, _ in of_attempts]
    assert all(may_be_of_attempt(secret) for _, secret in of_attempts)
    assert not may_be_of_attempt(new_secret()[1])


def test_the_secret_is_shown_once_and_is_in_no_file(cli: Cli) -> None:
    said = cli.good("token", "add", "laptop", "--lane", "fast", "--priority", "1", "--scope", "admin, submit")
    (secret,) = said.lines
    assert id_of(secret) is not None
    assert said.told == ["penstock: keep it: it is not shown again"]
    random_part = secret.split("_", 2)[2].encode()
    for file in cli.folder.rglob("*"):
        assert not file.is_file() or random_part not in file.read_bytes()
    (listed,) = cli.good("token", "list", "--json").json
    assert listed | {"created_at": 0} == {
        "name": "laptop",
        "scopes": ["submit", "admin"],
        "lane": "fast",
        "priority": 1,
        "requests_per_min": None,
        "max_queued": None,
        "created_at": 0,
    }
    assert "laptop" in cli.good("token", "list").lines[1]
    with closing(sqlite3.connect(cli.folder / "penstock.db")) as store:
        assert store.execute("SELECT digest FROM tokens").fetchall() == [(digest_of(secret),)]


def test_limits_and_json(cli: Cli) -> None:
    made = cli.good("token", "add", "a", "--requests-per-min", "1.5", "--max-queued", "7", "--json").json
    assert (made["requests_per_min"], made["max_queued"], made["scopes"]) == (1.5, 7, ["submit", "read"])
    assert id_of(made["secret"]) is not None
    row = cli.good("token", "list").lines[1].split()
    assert row[:4] == ["a", "submit,read", "1.5", "7"]


def test_a_token_can_be_revoked_and_made_again(cli: Cli) -> None:
    cli.good("token", "add", "a")
    cli.good("token", "add", "b")
    assert cli.good("token", "revoke", "a").lines == ["a is revoked"]
    said = cli.good("token", "revoke", "b")
    assert said.told == [
        "penstock: no token is left: the next `serve` is open to every program on this machine"
    ]
    assert cli.good("token", "add", "a", "--json").json["name"] == "a"
    assert cli.good("token", "revoke", "a", "--json").json == {"revoked": "a", "left": 0}
    assert cli.good("token", "list").told == ["penstock: no token; `penstock token add NAME` makes one"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("add", "two words"), "token add: 'two words' is not a name"),
        (("add", "local"), "token add: 'local' is whoever comes without a token"),
        (("add",), "token add: NAME is missing; see `penstock token add --help`"),
        (("add", "x", "--lane", "fats"), "--lane: there is no 'fats'; did you mean 'fast'?"),
        (("add", "x", "--priority", "5"), "--priority: there is no '5'"),
        (("add", "x", "--scope", "red"), "--scope: there is no 'red'; did you mean 'read'?"),
        (("add", "x", "--scope", ""), "--scope: there is no ''"),
        (("add", "x", "--requests-per-min", "0"), "--requests-per-min: '0' must be a number, at least 1"),
        (("add", "x", "--requests-per-min", "nan"), "--requests-per-min: 'nan' must be a number, at least 1"),
        (("add", "x", "--max-queued", "-1"), "--max-queued: '-1' must be a whole number, at least 1"),
        (("add", "there"), "token add: there is a token 'there' already; revoke it first"),
        (("revoke", "ther"), "token revoke: there is no token 'ther'; did you mean 'there'?"),
        (("ad",), "token: there is no command 'ad'; did you mean 'add'?"),
        ((), "token: missing command; see `penstock token --help`"),
    ],
)
def test_wrong_use_is_told_and_changes_nothing(cli: Cli, arguments: tuple[str, ...], told: str) -> None:
    """Promise 7."""
    cli.good("token", "add", "there")
    (line,) = cli.bad("token", *arguments)
    assert line.startswith(told)
    assert [token["name"] for token in cli.good("token", "list", "--json").json] == ["there"]
