"""Opening a PostgreSQL database: is it one we can use, are the tables ours, and are they of our version."""

from __future__ import annotations

import time
from collections.abc import Sequence

import asyncpg

from penstock.errors import StoreCorrupt, StoreError, StoreMissing, StoreRefused, StoreTooNew
from penstock.store.postgres_errors import is_defect, translated
from penstock.store.postgres_link import ERRORS, Link
from penstock.store.postgres_statements import query
from penstock.store.queries import sql_file

MIGRATIONS: tuple[str, ...] = (
    "postgres/0001_store.sql",
    "postgres/0002_faults.sql",
    "postgres/0003_only_run.sql",
    "postgres/0004_task_files.sql",
    "postgres/0005_config.sql",
)

_OLDEST_SERVER = 130_000
_GOING = "57P"  # it ends, or has not begun
_STARTING = "57P03"
_STARTING_S = 60.0
_BETWEEN_TRIES_S = 0.2
# A step takes as long as it takes, and so do those who wait for it. A server that hangs is noticed otherwise.
_STEP_S = 7 * 86_400.0


def prepare(link: Link, migrations: Sequence[str], *, patience_s: float, makes: bool) -> None:
    """Bring the tables up to date; make them where there are none, or refuse. Raises StoreError.

    A server that is away, or goes meanwhile, is waited for, and longer one that says it is starting.
    """
    began = time.monotonic()
    while True:
        try:
            link.connect()
            _check(link, migrations, makes)
            return
        except ERRORS as error:
            problem = translated(link.place, error, reading=not makes)
            code = str(getattr(error, "sqlstate", None) or "")
            is_away = not link.is_up or code.startswith(_GOING)
            waits_s = _STARTING_S if code == _STARTING else patience_s
            if not is_away or is_defect(error) or isinstance(problem, StoreRefused):
                raise problem from None
            if time.monotonic() - began >= waits_s:
                raise problem from None
        link.drop()
        time.sleep(_BETWEEN_TRIES_S)


def _check(link: Link, migrations: Sequence[str], makes: bool) -> None:
    place = link.place
    table = f"{place.schema}.migrations"
    # In a transaction: behind a pool the next statement might reach another connection.
    link.script(f"BEGIN; SET LOCAL search_path TO {place.schema}, pg_catalog, pg_temp")
    ((server, encoding, is_standby, is_there, has_schema),) = link.fetch(
        query("look").text, (table, place.schema)
    )
    if server < _OLDEST_SERVER:
        raise StoreError(
            f"{place.name}: PostgreSQL {server // 10_000} is too old; Penstock needs 13 or newer"
        )
    if encoding != "UTF8":
        raise StoreError(f"{place.name}: its encoding is {encoding}; create the database with encoding UTF8")
    version = _version(link, migrations) if is_there else 0
    link.script("COMMIT")
    if version == 0 and not makes:
        raise StoreMissing(
            f"{place.name}: there is no store in schema {place.schema}; correct the database or ?schema=, or let"
            " `penstock submit`, `work` or `serve` make it"
        )
    if version < len(migrations):
        if is_standby:
            raise StoreError(f"{place.name}: a standby, which cannot be written; name the primary in the URL")
        _migrate(link, migrations, has_schema)


def _version(link: Link, migrations: Sequence[str]) -> int:
    place = link.place
    try:
        ((version,),) = link.fetch(query("version").text)
    except asyncpg.UndefinedColumnError:
        raise StoreCorrupt(
            f"{place.name}: schema {place.schema} is of another program; choose another with ?schema=NAME"
        ) from None
    if version > len(migrations):
        raise StoreTooNew(
            f"{place.name}: written by a newer Penstock (version {version}, this one knows {len(migrations)});"
            " upgrade Penstock"
        )
    return int(version)


def _migrate(link: Link, migrations: Sequence[str], has_schema: bool) -> None:
    """All missing steps in one transaction; whoever else opens meanwhile waits, and finds nothing left to do."""
    place = link.place
    link.script("BEGIN; SET LOCAL lock_timeout = 0")
    try:
        link.fetch(query("lock_schema").text, (place.schema,), timeout_s=_STEP_S)
        if not has_schema:
            link.script(f"CREATE SCHEMA IF NOT EXISTS {place.schema}")
        link.script(f"SET LOCAL search_path TO {place.schema}, pg_catalog, pg_temp")
        link.script(query("make_migrations").text)
        version = _version(link, migrations)
        for number, name in enumerate(migrations[version:], version + 1):
            _step(link, number, name)
            link.change(query("add_version").text, (number,))
        link.script("COMMIT")
    except BaseException:
        if link.is_up:
            link.script("ROLLBACK")
        raise


def _step(link: Link, number: int, name: str) -> None:
    place = link.place
    try:
        link.script(sql_file(name), timeout_s=_STEP_S)
    except asyncpg.PostgresError as error:
        said = error.args[0]  # without details, which have lines of their own
        if number == 1 and isinstance(error, asyncpg.DuplicateTableError):
            raise StoreCorrupt(
                f"{place.name}: schema {place.schema} has tables of another program ({said}); choose another"
                " with ?schema=NAME"
            ) from None
        if is_defect(error):
            raise StoreError(
                f"{place.name}: its tables could not be brought to version {number} ({said}), and are as they were;"
                " go on with the Penstock that made them"
            ) from None
        raise
