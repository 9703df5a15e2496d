"""What PostgreSQL and its driver say, in our words: what happened to which store, and what to do."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import asyncpg

from penstock.config.postgres_place import PostgresPlace
from penstock.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked

UNIQUE = "23505"
NOT_AS_BELIEVED = "PS001"

_READ_ONLY = (
    "is read-only: a standby, or a database that was made so; wait for the primary, or name all hosts in the URL"
    " with target_session_attrs=read-write"
)
# The first that the code begins with.
_SAID = {
    "25006": _READ_ONLY,
    "28": "does not let this user in ({detail}); check user and password (PGPASSWORD, a passfile) and pg_hba.conf",
    "3D000": "has no such database; create it (createdb), or correct the URL",
    "3F000": "has no such schema; create it, or let this user create it",
    "42501": "refuses a right ({detail}); grant this user all on the schema and its tables",
    "53300": "has no connection left; raise max_connections, or put PgBouncer before it",
    "53200": "is out of memory; give the server more, or try again",
    "57014": "cancelled the statement ({detail}); try again, or raise statement_timeout",
    "57P01": "is being shut down, or ended this connection; it is tried again until it is back",
    "57P02": "crashed and is starting again; it is tried again until it is back",
    "57P03": "is not ready yet ({detail}); it is tried again until it is",
    "57P05": "ended a connection that was idle in a transaction; try again",
    "40": "could not put two transactions in order ({detail}); try again",
    "08": "broke the connection ({detail}); check the server and the network",
    "58": "cannot use its files ({detail}); look at the server's disk and log",
}
_FULL = ("53100", "disk_full")
_LOCKED = "55P03"
_CORRUPT = "XX001", "XX002"
# The statement or its values are at fault.
_DEFECTS = ("22", "23", "26", "42", "0A", "21", "54")
_RIGHTS = "42501"
_GOING = ("57P01", "57P02", "57P03")  # shut down, crashed, not ready yet
# Waiting helps with none of these: there is no such host, no right to the socket, no TLS.
_NOT_AWAY = (socket.gaierror, PermissionError, ssl.SSLError)


def translated(place: PostgresPlace, error: Exception) -> StoreError:
    name = place.name
    if isinstance(error, StoreError):
        return error
    code: str = getattr(error, "sqlstate", None) or ""
    detail = _line(error)
    if isinstance(error, asyncpg.PostgresError) and code:
        if code in _FULL or "No space left" in detail:
            return StoreFull(
                f"{name}: no space left on the server's disk; free some there, nothing acknowledged is lost"
            )
        if code == _LOCKED:
            return StoreLocked(f"{name}: another process kept it locked too long; end that or try again")
        if code in _CORRUPT:
            return StoreCorrupt(f"{name}: its files are damaged ({detail}); restore a copy")
        for beginning, said in _SAID.items():
            if code.startswith(beginning):
                return StoreError(f"{name}: the server {said.format(detail=detail)}")
        return StoreError(f"{name}: PostgreSQL says: {detail} ({code}); look at the server's log")
    if isinstance(error, ssl.SSLError):
        return StoreError(
            f"{name}: no TLS with the server ({detail}); check sslmode, sslrootcert and its certificate"
        )
    if isinstance(error, TimeoutError):
        return StoreError(f"{name}: the server does not answer; check that it runs, and the network to it")
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return StoreError(
            f"{name}: no host is of the kind that target_session_attrs asks for; wait, or check the URL"
        )
    if isinstance(error, OSError):
        return StoreError(
            f"{name}: the server cannot be reached ({detail}); check that it runs, host and port"
        )
    return StoreError(f"{name}: the connection was lost ({detail}); check the server and the network")


def is_away(error: Exception) -> bool:
    """Whether the server may be back in a moment, as in a restart; nothing is wrong with what we ask."""
    if getattr(error, "sqlstate", None) in _GOING or isinstance(error, asyncpg.PostgresConnectionError):
        return True
    return isinstance(error, OSError) and not isinstance(error, _NOT_AWAY)


def is_defect(error: Exception) -> bool:
    code: Any = getattr(error, "sqlstate", None)
    if isinstance(code, str) and code:
        return code.startswith(_DEFECTS) and code != _RIGHTS
    return isinstance(error, asyncpg.InternalClientError)


def is_conflict(error: Exception) -> bool:
    return getattr(error, "sqlstate", None) in (UNIQUE, NOT_AS_BELIEVED)


def _line(error: Exception) -> str:
    """The first line of what it says; of an error without words its kind."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    words = str(error).strip().split("\n")[0]
    return words or type(error).__name__
