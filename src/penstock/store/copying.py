"""A whole store, history included, from one database to another: all of it, or nothing.

The target takes all rows in one transaction, which is committed only after every table was read back from it and
has the count and the hash of what was read from the source. Both are owned meanwhile, and nobody can add to them:
no dispatcher begins on either, and no task that is submitted to the source just then is left behind.

One thing is not copied: what a store's workers on a Ray cluster are named by. Two stores that have the same would
stop each other's attempts there. Only where attempts may still run does the target get it, to go on with them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock.errors import StoreError, UsageError
from penstock.model import State
from penstock.store.base import RAY_SECRET
from penstock.store.database import Database
from penstock.store.ownership import who_owns
from penstock.store.session import OwnSession

ARRIVAL = "(arrival)"  # stands for the column that tells in which order rows were written
_FIRST_PAGE = 100  # rows; the next are as many as make a good size
_MOST_ROWS = 20_000
_PAGE_BYTES = 4 << 20
_ASK_AGAIN_S = 0.5  # a database that does not say whether a commit happened
_encode = msgspec.msgpack.Encoder().encode


class Table(NamedTuple):
    """The first columns are its key: pages are read in their order."""

    name: str
    key: int
    columns: tuple[str, ...]


def _table(name: str, columns: str, key: int = 1) -> Table:
    return Table(name, key, tuple(ARRIVAL if column == "*" else column for column in columns.split()))


TABLES = (
    _table(
        "tasks",
        "number id state attempts tries host_faults retry_at ran_on started_at ended_at ended_event error value run"
        ' kind lane priority queued_at "after" needs host model timeout_s deadline not_before retries key on_crash'
        " payload trace output",
    ),
    _table("payloads", "number payload"),
    _table("tally", "state tasks"),
    _table("batches", "first event"),
    _table(
        "attempts",
        "task number host lane started_at work_class ended_at verdict error retry_at imported",
        key=2,
    ),
    _table("events", "number at type task attempt host data"),
    _table("requests", "number verb args asked_at answered_at ok detail data"),
    _table("routes", "* key at work_class name"),
    _table("moves", "* task at work_class why"),
    _table("rests", "* task began revived attempts"),
    _table("stretches", "* work_class at reason detail"),
    _table("priority_changes", "* task at was priority"),
    _table("hosts", "host state slots detail changed_at error needs_fix"),
    _table("lanes", "lane paused changed_at"),
    _table("gates", "gate open detail changed_at"),
    _table("everything", "one paused changed_at"),
    _table(
        "epochs",
        "number pid machine command answers_only started_at seen_at ended_at plant url only_run config",
    ),
    _table("imports", "run imported_at lowest_class material"),
    _table("foreign_tasks", "id run state record", key=2),
    _table("tokens", "name id digest scopes lane priority requests_per_min max_queued created_at"),
    _table("spending", "day host lane usd calls", key=3),
    _table("leases", "name owner note since expires_at"),
    _table("secrets", "name value"),
    _table("ended_sessions", "id expires_at"),
    _table("task_files", "file run"),
)


class Numbers(NamedTuple):
    """The last that were given: none is ever used again, though its row may be gone."""

    tasks: int
    events: int
    requests: int
    epochs: int


class Loader(Protocol):
    """What a database knows of taking rows in as they are."""

    @property
    def arrival(self) -> str:
        """The column that tells in which order rows were written."""

    def kept(self, rows: Sequence[Any]) -> list[tuple[Any, ...]]:
        """These rows as the database can keep them."""

    def load(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None: ...

    def numbers(self) -> Numbers: ...

    def finish(self, numbers: Numbers) -> None:
        """All rows are there: what the database derives from them, and the numbers to go on from."""


class Copied(NamedTuple):
    table: str
    rows: int
    sha256: str


class Copy(NamedTuple):
    tables: list[Copied]
    takes_workers: bool  # of the source on a Ray cluster, which must not dispatch there any more


class Progress(NamedTuple):
    """How far it is: rows read and written first, then rows read back."""

    step: str  # copying, verifying
    table: str
    done: int  # of all tables
    total: int


Tell = Callable[[Progress], None]


def copy_store(source: Database, target: Database, tell: Tell = lambda _: None) -> Copy:
    """Blocks until it is done. Whatever it raises, the target is as it was."""
    with ExitStack() as stack:
        stack.callback(source.close)
        reading = stack.enter_context(_Opened(source, makes=False))
        stack.callback(target.close)
        writing = stack.enter_context(_Opened(target, makes=True))
        return _copied(reading, writing, tell)


class _Opened:
    """A database with a transaction, owned while it lasts."""

    def __init__(self, database: Database, *, makes: bool) -> None:
        self.database = database
        self._makes = makes
        self.session: OwnSession
        self.loader: Loader

    def __enter__(self) -> _Opened:
        database = self.database
        self.session = database.open_writing(makes=self._makes)
        try:
            with self.translating():
                self.session.begin()
                if not database.ownership.take(self.session):
                    raise who_owns(database.name, self.session)
                self.loader = database.loader(self.session)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.session.rollback()
        self.database.ownership.free()
        self.session.close()

    @contextmanager
    def translating(self) -> Iterator[None]:
        """What its driver raises comes out in our words."""
        try:
            yield
        except self.database.errors as error:
            raise self.database.translated(error) from None

    def count(self, table: str, where: str = "1 = 1", *values: str) -> int:
        with self.translating():
            query = f"SELECT count(*) FROM {table} WHERE {where}"  # noqa: S608 - words of ours
            ((count,),) = self.session.select(query, values)
        return int(count)

    def pages(self, table: Table) -> Iterator[list[tuple[Any, ...]]]:
        columns = _columns(table, self.loader)
        key = ", ".join(columns[: table.key])
        after: tuple[Any, ...] = ()
        size = _FIRST_PAGE
        while True:
            beyond = f" WHERE ({key}) > ({', '.join('?' * table.key)})" if after else ""
            # Only names of this module are put in; every value goes in as a parameter.
            query = f"SELECT {', '.join(columns)} FROM {table.name}{beyond} ORDER BY {key} LIMIT ?"  # noqa: S608
            with self.translating():
                page = [tuple(row) for row in self.session.select(query, (*after, size))]
            if not page:
                return
            yield page
            after = page[-1][: table.key]
            size = _next_size(page)

    def commit(self) -> None:
        """One that nobody confirmed is asked for until the database answers: it did happen, or it did not."""
        with self.translating():
            if self.session.commit():
                return
        while True:
            try:
                happened = self.session.happened()
                break
            except self.database.errors:
                time.sleep(_ASK_AGAIN_S)
        if not happened:
            raise StoreError(
                f"{self.database.name}: the connection was lost before the last word; nothing was kept, copy again"
            )


def _copied(source: _Opened, target: _Opened, tell: Tell) -> Copy:
    _refuse_used(target)
    has_workers = source.count("secrets", "name = ?", RAY_SECRET) > 0
    takes_workers = has_workers and source.count("tasks", "state = ?", State.RUNNING.value) > 0
    leaves_workers = has_workers and not takes_workers
    total = sum(source.count(table.name) for table in TABLES) - leaves_workers
    copied: list[Copied] = []
    done = 0
    for table in TABLES:
        digest, rows = hashlib.sha256(), 0
        columns = _columns(table, target.loader)
        for page in source.pages(table):
            if table.name == "secrets" and leaves_workers:
                page = [row for row in page if row[0] != RAY_SECRET]
            kept = target.loader.kept(page)
            with target.translating():
                target.loader.load(table.name, columns, kept)
            _add(digest, kept)
            rows += len(kept)
            tell(Progress("copying", table.name, done + rows, total))
        done += rows
        copied.append(Copied(table.name, rows, digest.hexdigest()))
    with source.translating():
        numbers = source.loader.numbers()
    with target.translating():
        target.loader.finish(numbers)
    _verify(target, copied, tell, total)
    target.commit()
    return Copy(copied, takes_workers)


def _verify(target: _Opened, copied: Sequence[Copied], tell: Tell, total: int) -> None:
    done = 0
    for table, expected in zip(TABLES, copied, strict=True):
        digest, rows = hashlib.sha256(), 0
        for page in target.pages(table):
            _add(digest, page)
            rows += len(page)
            tell(Progress("verifying", table.name, done + rows, total))
        done += rows
        found = Copied(table.name, rows, digest.hexdigest())
        if found != expected:
            raise StoreError(
                f"{target.database.name}: {rows} rows of {table.name} that were read back are not the"
                f" {expected.rows} of the source; nothing was kept, copy again"
            )


def _refuse_used(target: _Opened) -> None:
    for table in TABLES:
        count = target.count(table.name)
        if count:
            raise UsageError(
                f"{target.database.name}: has {count} rows of {table.name} already; copy into a new store,"
                " another file or another ?schema="
            )


# ---- rows


def _columns(table: Table, loader: Loader) -> list[str]:
    return [loader.arrival if column == ARRIVAL else column for column in table.columns]


def _next_size(page: Sequence[tuple[Any, ...]]) -> int:
    """How many rows like some of these make a page of a good size."""
    some = page[:: 1 + len(page) // 20]
    bytes_each = 1 + sum(len(_encode(row)) for row in some) // len(some)
    return max(1, min(_MOST_ROWS, _PAGE_BYTES // bytes_each))


def _add(digest: Any, rows: Sequence[tuple[Any, ...]]) -> None:
    digest.update(b"".join(map(_encode, rows)))
