"""What PostgreSQL says is sorted: what passes is waited for, what somebody must change is told at once."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import asyncpg
import pytest

from penstock.config.postgres_place import postgres_place
from penstock.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreRefused
from penstock.store.postgres_errors import is_defect, translated

NO_FILE = 'could not open file "base/5/16412": Permission denied'
PLACE = postgres_place("postgresql://Anna:secret@db.example/lab?schema=queue")


def said(code: str, words: str = "words") -> Exception:
    error = asyncpg.PostgresError(words)
    vars(error)["sqlstate"] = code
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (said("28P01"), StoreRefused),
        (said("28000"), StoreRefused),
        (said("3D000"), StoreRefused),
        (said("3F000"), StoreRefused),
        (said("42501"), StoreRefused),
        (PermissionError(13, "no"), StoreRefused),
        (ssl.SSLError("no"), StoreRefused),
        (asyncpg.ClientConfigurationError("no"), StoreRefused),
        (ssl.SSLCertVerificationError("expired"), StoreRefused),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), StoreError),
        (ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed"), StoreError),
        (socket.gaierror(socket.EAI_NONAME, "no such name"), StoreError),
        (socket.gaierror(socket.EAI_AGAIN, "later"), StoreError),
        (ConnectionRefusedError(111, "no"), StoreError),
        (ConnectionError('PostgreSQL server at "db.example:5432" rejected SSL upgrade'), StoreRefused),
        (TimeoutError(), StoreError),
        (asyncpg.TargetServerAttributeNotMatched("no primary"), StoreError),
        (asyncpg.ConnectionDoesNotExistError("gone"), StoreError),
        (said("08006"), StoreError),
        (said("25006"), StoreError),
        (said("40001"), StoreError),
        (said("53200"), StoreError),
        (said("53300"), StoreError),
        (said("57014"), StoreError),
        (said("57P01"), StoreError),
        (said("57P03"), StoreError),
        (said("58030"), StoreError),
        (said("42501", NO_FILE), StoreError),
        (said("53100"), StoreFull),
        (said("55P03"), StoreLocked),
        (said("XX001"), StoreCorrupt),
    ],
)
def test_what_it_says_is_of_one_kind(error: Exception, kind: type[StoreError]) -> None:
    told = translated(PLACE, error)
    assert type(told) is kind
    assert not is_defect(error)
    assert "; " in str(told)
    assert "secret" not in str(told)


def test_a_right_that_the_server_itself_lacks_is_no_users_to_grant() -> None:
    told = str(translated(PLACE, said("42501", NO_FILE)))
    assert f"the server cannot use its files ({NO_FILE}); look at the server's disk and log" in told


@pytest.mark.parametrize("code", ["22003", "23505", "42601", "42P01", "0A000"])
def test_what_is_wrong_with_a_statement_is_a_defect(code: str) -> None:
    assert is_defect(said(code))


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("permission denied for database lab", 'GRANT CONNECT, CREATE ON DATABASE lab TO "Anna"'),
        (
            "permission denied for table heads",
            'GRANT ALL ON SCHEMA queue TO "Anna"; GRANT ALL ON ALL TABLES IN SCHEMA queue TO "Anna"',
        ),
        ("must be owner of table tasks", "open the store as that user once"),
        ("permission denied to terminate process", 'GRANT pg_signal_backend TO "Anna"'),
        ("must be a member of the role whose process is being terminated", "as the same user everywhere"),
    ],
)
def test_a_missing_right_is_told_with_what_grants_it(words: str, remedy: str) -> None:
    told = str(translated(PLACE, said("42501", words)))
    assert f"({words}); " in told
    assert remedy in told


def test_who_only_reads_is_told_the_right_to_read() -> None:
    told = str(translated(PLACE, said("42501", "permission denied for table heads"), reading=True))
    assert told.endswith(
        '; GRANT USAGE ON SCHEMA queue TO "Anna"; GRANT SELECT ON ALL TABLES IN SCHEMA queue TO "Anna"'
    )
    told = str(translated(PLACE, said("42501", "permission denied for database lab"), reading=True))
    assert told.endswith('; GRANT CONNECT, CREATE ON DATABASE lab TO "Anna"')


@pytest.mark.parametrize(
    ("url", "variables", "passfile", "is_given"),
    [
        ("postgresql://anna@h/lab", {}, False, False),
        ("postgresql://anna:@h/lab", {"PGPASSWORD": ""}, False, False),
        ("postgresql://anna:x@h/lab", {}, False, True),
        ("postgresql://anna@h/lab?password=x", {}, False, True),
        ("postgresql://anna@h/lab", {"PGPASSWORD": "x"}, False, True),
        ("postgresql://anna@h/lab", {"PGPASSFILE": "/x"}, False, True),
        ("postgresql://anna@h/lab", {}, True, True),
    ],
)
def test_no_password_is_told_from_a_wrong_one(
    url: str,
    variables: dict[str, str],
    passfile: bool,
    is_given: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PGPASSWORD", "PGPASSFILE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(tmp_path), **variables}.items():
        monkeypatch.setenv(name, value)
    if passfile:
        (tmp_path / ".pgpass").touch()
    told = translated(postgres_place(url), said("28P01"))
    assert isinstance(told, StoreRefused)
    assert ("does not let this user in" in str(told)) is is_given
    assert ("wants a password, and none was given; set PGPASSWORD" in str(told)) is not is_given


_OF_TLS = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_NO_FILE = FileNotFoundError(2, "No such file")


@pytest.mark.parametrize(
    ("parameter", "error"),
    [
        *((parameter, _NO_FILE) for parameter in _OF_TLS),
        *((parameter, said("28P01")) for parameter in (*_OF_TLS, "passfile")),
    ],
)
def test_a_file_of_the_url_that_is_not_there_is_named(
    parameter: str, error: Exception, tmp_path: Path
) -> None:
    path = tmp_path / parameter
    place = postgres_place(f"postgresql://anna@db.example/lab?{parameter}={path}")
    told = translated(place, error)
    assert isinstance(told, StoreRefused)
    assert f"{parameter} names {path}, which cannot be read (No such file or directory); " in str(told)
    path.touch()
    assert parameter not in str(translated(place, error)).partition(";")[0]


@pytest.mark.parametrize(
    ("parameter", "error"),
    [
        ("passfile", ConnectionRefusedError(111, "no")),
        ("passfile", _NO_FILE),  # of the server's socket, while it restarts
        ("passfile", asyncpg.InterfaceError("connection is closed")),
        ("sslrootcert", ConnectionRefusedError(111, "no")),
        ("sslrootcert", ssl.SSLEOFError(8, "EOF")),
        ("sslrootcert", TimeoutError()),
        ("sslrootcert", socket.gaierror(socket.EAI_NONAME, "no such name")),
    ],
)
def test_a_file_that_is_done_without_does_not_hide_that_the_server_is_away(
    parameter: str, error: Exception
) -> None:
    """With a password from elsewhere no passfile is needed, and a server that restarts is waited for."""
    place = postgres_place(f"postgresql://anna@db.example/lab?{parameter}=/no/such")
    told = translated(place, error)
    assert type(told) is StoreError
    assert "/no/such" not in str(told)
