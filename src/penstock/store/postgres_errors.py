"""What PostgreSQL and its driver say, in our words: what happened to which store, and what to do.

Three kinds need telling apart. A server that is away, full, read-only or busy is so for now: it is waited for. One
that refuses (StoreRefused) does so until somebody changes it or the URL: who asks is told at once. What is wrong
with a statement of ours (`is_defect`) nobody can mend by waiting or changing anything.
"""

from __future__ import annotations

import os
import ssl
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from penstock.config.postgres_place import PostgresPlace, named_files
from penstock.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreRefused

UNIQUE = "23505"
NOT_AS_BELIEVED = "PS001"

_READ_ONLY = (
    "is read-only: a standby, or a database that was made so; wait for the primary, or name all hosts in the URL"
    " with target_session_attrs=read-write"
)
# The first that the code begins with.
_SAID = {
    "25006": _READ_ONLY,
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
# So it is until somebody changes it.
_REFUSED = {
    "28": "does not let this user in ({detail}); check user and password (PGPASSWORD, a passfile) and pg_hba.conf",
    "3D000": "has no such database; create it (createdb), or correct the URL",
    "3F000": "has no such schema; create it, or let this user create it",
    "42501": "refuses a right ({detail}); {grant}",
}
# What gives a right, by what the server says of the one that is missing.
_ALL_IN_SCHEMA = (
    "GRANT ALL ON SCHEMA {schema} TO {user}; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {user}"
)
_READ_IN_SCHEMA = (
    "GRANT USAGE ON SCHEMA {schema} TO {user}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {user}"
)
_GRANTS = {
    "permission denied for database": "GRANT CONNECT, CREATE ON DATABASE {database} TO {user}",
    "must be owner": "only the owner of the tables can bring them up to date: open the store as that user once",
    "permission denied to create": _ALL_IN_SCHEMA,
    "permission denied to": "dispatch as the same user everywhere, or GRANT pg_signal_backend TO {user}",
    "must be a": "dispatch as the same user everywhere, or GRANT pg_signal_backend TO {user}",
    "": _ALL_IN_SCHEMA,
}
_FULL = ("53100", "disk_full")
_LOCKED = "55P03"
_CORRUPT = "XX001", "XX002"
# The statement or its values are at fault.
_DEFECTS = ("22", "23", "26", "42", "0A", "21", "54")
_RIGHTS = "42501"
_WRONG_PASSWORD = "28P01"  # noqa: S105 - what the server says of an empty one, too
_NO_RIGHT_TO_A_FILE = ": Permission denied"
_FILES = "58"
# There is no right to the socket, or the driver cannot do what the URL asks for.
_REFUSALS = (PermissionError, asyncpg.ClientConfigurationError)
# The driver has no kind of its own for a server that answers the wish for TLS with no.
_NO_TLS = "rejected SSL upgrade"
# A proxy whose server is away ends what it has begun; everything else of TLS stays as it is.
_HUNG_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
# What the driver raises for a file of TLS that the URL names, before it connects.
_NOT_OPENED = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
_UNREAD = (*_NOT_OPENED, ssl.SSLError, asyncpg.ClientConfigurationError)


def translated(place: PostgresPlace, error: Exception, *, reading: bool = False) -> StoreError:
    """`reading`: it happened to somebody who only reads, and needs no right beyond that."""
    name = place.name
    if isinstance(error, StoreError):
        return error
    code: str = getattr(error, "sqlstate", None) or ""
    detail = _line(error)
    if unread := _unread(place, error, code):
        return StoreRefused(f"{name}: {unread}")
    if isinstance(error, asyncpg.PostgresError) and code:
        if code in _FULL or "No space left" in detail:
            return StoreFull(
                f"{name}: no space left on the server's disk; free some there, nothing acknowledged is lost"
            )
        if code == _LOCKED:
            return StoreLocked(f"{name}: another process kept it locked too long; end that or try again")
        if code in _CORRUPT:
            return StoreCorrupt(f"{name}: its files are damaged ({detail}); restore a copy")
        if code == _RIGHTS and detail.endswith(
            _NO_RIGHT_TO_A_FILE
        ):  # the server's own, which no GRANT gives it
            code = _FILES
        if code == _WRONG_PASSWORD and not _has_password(place):
            remedy = "set PGPASSWORD, or write a passfile (~/.pgpass)"
            return StoreRefused(f"{name}: the server wants a password, and none was given; {remedy}")
        for beginning, said in _REFUSED.items():
            if code.startswith(beginning):
                grant = _grant(place, detail, reading)
                return StoreRefused(f"{name}: the server {said.format(detail=detail, grant=grant)}")
        for beginning, said in _SAID.items():
            if code.startswith(beginning):
                return StoreError(f"{name}: the server {said.format(detail=detail)}")
        return StoreError(f"{name}: PostgreSQL says: {detail} ({code}); look at the server's log")
    if isinstance(error, ssl.SSLError) and not isinstance(error, _HUNG_UP):
        return StoreRefused(
            f"{name}: no TLS with the server ({detail}); check sslmode, sslrootcert and its certificate"
        )
    if isinstance(error, ConnectionError) and detail.endswith(_NO_TLS):
        return StoreRefused(
            f"{name}: the server has no TLS, which sslmode asks for; turn it on there (ssl = on), or change sslmode"
        )
    if isinstance(error, TimeoutError):
        return StoreError(f"{name}: the server does not answer; check that it runs, and the network to it")
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return StoreError(
            f"{name}: no host is of the kind that target_session_attrs asks for; wait, or check the URL"
        )
    kind = StoreRefused if isinstance(error, _REFUSALS) else StoreError
    if isinstance(error, OSError):  # a name may be unknown just while no server behind it is ready
        return kind(f"{name}: the server cannot be reached ({detail}); check that it runs, host and port")
    if kind is StoreRefused:
        return kind(f"{name}: the URL cannot be used ({detail}); correct it")
    return StoreError(f"{name}: the connection was lost ({detail}); check the server and the network")


def is_defect(error: Exception) -> bool:
    code: Any = getattr(error, "sqlstate", None)
    if isinstance(code, str) and code:
        return code.startswith(_DEFECTS) and code != _RIGHTS
    # No host is the primary: one may soon be.
    passing = asyncpg.TargetServerAttributeNotMatched
    return isinstance(error, asyncpg.InternalClientError) and not isinstance(error, passing)


def is_conflict(error: Exception) -> bool:
    return getattr(error, "sqlstate", None) in (UNIQUE, NOT_AS_BELIEVED)


def _unread(place: PostgresPlace, error: Exception, code: str) -> str:
    """Which file of the URL cannot be read, if that is why. The driver does not say, and does without a passfile:
    only who is not let in misses that one."""
    is_shut_out = code.startswith("28")
    if not is_shut_out and (isinstance(error, _HUNG_UP) or not isinstance(error, _UNREAD)):
        return ""
    for parameter, path in named_files(place.dsn):
        if parameter == "passfile" and not is_shut_out:
            continue
        try:
            with open(path, "rb"):
                pass
        except OSError as problem:
            why = f"which cannot be read ({problem.strerror})"
            return f"{parameter} names {path}, {why}; correct the URL, or bring the file"
    return ""


def _has_password(place: PostgresPlace) -> bool:
    """Whether one may have been given; a passfile or a service may have one or not."""
    url = urlsplit(place.dsn)
    options = parse_qs(url.query)
    if url.password or options.keys() & {"password", "passfile", "service"}:
        return True
    if any(os.environ.get(name) for name in ("PGPASSWORD", "PGPASSFILE", "PGSERVICE")):
        return True
    return os.path.exists(os.path.expanduser("~/.pgpass"))


def _grant(place: PostgresPlace, detail: str, reading: bool) -> str:
    """What its owner has to say to the server."""
    url = urlsplit(place.dsn)
    options = parse_qs(url.query)
    user = unquote(url.netloc.rpartition("@")[0].partition(":")[0]) or options.get("user", [""])[0]
    database = unquote(url.path.lstrip("/")) or options.get("dbname", ["DATABASE"])[0]
    user = user or os.environ.get("PGUSER", "USER")
    said = next(said for beginning, said in _GRANTS.items() if detail.startswith(beginning))
    if reading and said is _ALL_IN_SCHEMA:
        said = _READ_IN_SCHEMA
    return said.format(schema=place.schema, user=_quoted(user), database=_quoted(database))


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.islower() else '"' + name.replace('"', '""') + '"'


def _line(error: Exception) -> str:
    """The first line of what it says; of an error without words its kind."""
    if isinstance(error, ConnectionError) and error.errno is not None:
        return os.strerror(error.errno)  # asyncio puts the address in the place of the reason
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    words = str(error).strip().split("\n")[0]
    return words or type(error).__name__
