"""The session with PostgreSQL that writes, with as few journeys to the server as it can.

What is written without needing an answer is kept back until somebody needs one, or until the commit; then all of it
is one statement. A transaction that needed no answer at all is that one statement and nothing else. Two answers are
presumed: that all tasks moved from where they were believed to be, and that the dispatcher is still the one. The
statement holds only if both are true; if not, the writer tries again, and then they are asked for.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from typing import Any

import asyncpg

from penstock.store.bell import Ring
from penstock.store.postgres_bells import PostgresBells
from penstock.store.postgres_errors import NOT_AS_BELIEVED
from penstock.store.postgres_link import ERRORS, Link
from penstock.store.postgres_session import PostgresSession
from penstock.store.postgres_statements import (
    APART,
    MOVES,
    Part,
    Query,
    composed,
    counted,
    for_rows,
    needs_head,
    query,
)

_GONE = ("08", "57P")  # beginnings of what a server says that ends the connection
# These meet nobody who adds tasks or events: they need not wait for those.
_APART = frozenset(
    {
        "lease",
        "renew_lease",
        "end_lease",
        "lease_of",
        "add_token",
        "drop_token",
        "keep_secret",
        "secret",
        "clock",
    }
    | {"forget_sessions", "end_session", "add_request", "answer_request", "leader", "tasks_numbered"}
)


class _Savepoint:
    __slots__ = ("at", "name")

    def __init__(self, at: int) -> None:
        self.at = at  # how many parts were kept back before it
        self.name = ""  # on the server, once it is there


class PostgresWriting(PostgresSession):
    """What writes: one of it per store."""

    def __init__(self, link: Link, bells: PostgresBells) -> None:
        super().__init__(link)
        self._bells = bells
        self._parts: list[Part] = []  # kept back
        self._epoch: int | None = None  # presumed to be the dispatcher's
        self._savepoints: list[_Savepoint] = []
        self._named = 0
        self._is_locked = False
        self._is_careful = False  # presume nothing
        self._next_careful = False
        self._writer = secrets.token_hex(8)
        self._mark: int | None = None  # where it is, once it is kept
        self._is_anew = False  # the database may be another than it was
        self._rings: AbstractSet[Ring] = frozenset()

    # ---- what is kept back

    def bulk(self, query_name: str, width: int, values: Sequence[Any]) -> int:
        rows = len(values) // width
        if not rows:
            return 0
        asked, given = for_rows(query_name, width, values)
        if query_name in MOVES and self._is_careful:
            return self._changed(Part(asked, given, rows))
        is_believed = query_name in MOVES or (query_name == "end_attempts" and not self._is_careful)
        self._keep_back(Part(asked, given, rows, believed=rows if is_believed else None))
        return rows

    def many(self, query_name: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.bulk(query_name, len(rows[0]), [value for row in rows for value in row])

    def run(self, query_name: str, *parameters: Any) -> int:
        if query_name == "see_epoch" and not self._is_careful:
            asked = query(query_name)
            self._keep_back(Part(asked, asked.given(parameters), 1, believed=1))
            return 1
        return super().run(query_name, *parameters)

    def rows(self, query_name: str, *parameters: Any) -> list[Any]:
        if query_name == "is_epoch" and not self._is_careful:
            self._epoch = parameters[0]
            return [(1,)]
        if query_name == "from_here":  # all that goes on from there is in one statement
            self._send_kept()
            return [(0, 0)]
        return super().rows(query_name, *parameters)

    def load(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Rows into a table as they are, by the quickest way there is."""
        self._before(None)
        self._link.copy(table, columns, rows)

    @contextmanager
    def savepoint(self) -> Iterator[Callable[[], None]]:
        here = _Savepoint(len(self._parts))
        self._savepoints.append(here)
        try:
            yield lambda: self._undo(here)
        except BaseException:
            if self._link.is_up:
                with suppress(*ERRORS):
                    self._undo(here)
            raise
        finally:
            self._savepoints.remove(here)

    def _undo(self, savepoint: _Savepoint) -> None:
        if savepoint.name:
            self._parts.clear()
            self._link.script(f"ROLLBACK TO {savepoint.name}")
        else:
            del self._parts[savepoint.at :]

    def _keep_back(self, part: Part) -> None:
        if any(
            other.query.table == part.query.table
            and (self._is_careful or {other.query.name, part.query.name} not in APART)
            for other in self._parts
        ):  # parts of one statement do not see what the others did
            self._send_kept()
        self._parts.append(part)

    # ---- transactions

    def begin(self) -> bool:
        self._parts.clear()
        self._epoch = None
        self._savepoints.clear()
        self._is_locked = self._begun = False
        self._is_careful, self._next_careful = self._next_careful, False
        self._is_anew |= self._link.connect()
        if self._mark is None:
            self._alone("add_mark", self._writer, 0)
            self._mark, self._is_anew = 0, False
        return self._is_anew

    def kept_all(self) -> bool:
        """Every commit moves the mark: the last one is there if it is where that one left it."""
        found = self._alone_rows("mark", self._writer)
        is_whole = bool(found) and found[0][0] >= self._mark
        if not is_whole or found[0][0] != self._mark:
            writer = secrets.token_hex(8)
            self._alone("add_mark", writer, 0)
            self._writer, self._mark = writer, 0
        return is_whole

    def commit(self, rings: AbstractSet[Ring] = frozenset()) -> bool:
        self._rings = rings
        try:
            if self._begun or self._link.place.pooled:
                self._send_kept(is_last=True)
                self._end(lambda: self._link.script("COMMIT"))
                self._begun = False
            else:  # also where nothing is written: who is told of a commit counts on the mark
                self._end(lambda: self._send(self._parts, is_last=True))
        except _Unanswered:
            self._begun = False
            self._link.drop()
            return False
        # Not before: a look that failed, or whose transaction did, is made again.
        self._is_anew = False
        self._settled()
        return True

    def happened(self) -> bool:
        self._link.connect()
        self._is_anew = True
        assert self._mark is not None
        # The lost commit needs the mark where it was: once it is elsewhere, that cannot happen any more.
        left = self._alone("leave_mark", self._writer, self._mark)
        found = self._alone_rows("mark", self._writer)
        if found and not left and found[0][0] == self._mark + 1:
            self._settled()
            return True
        if found and found[0][0] > self._mark:  # else it is another database than it was: see `kept_all`
            self._mark = found[0][0]
        return False

    def rollback(self) -> None:
        self._parts.clear()
        super().rollback()

    def close(self) -> None:
        if self._link.is_up and self._mark is not None:
            with suppress(*ERRORS):
                self._alone("drop_marks", self._writer)
        super().close()

    def _settled(self) -> None:
        assert self._mark is not None
        self._mark += 1
        self._bells.ring_here(self._rings)

    def _end(self, send: Callable[[], object]) -> None:
        """Send the last word; _Unanswered when it may or may not have been heard."""
        try:
            send()
        except asyncpg.PostgresError as error:
            if (error.sqlstate or "").startswith(_GONE) or not self._link.is_up:
                raise _Unanswered from error
            raise
        except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise _Unanswered from error

    def _look_at(self, error: Exception) -> None:
        if getattr(error, "sqlstate", None) == NOT_AS_BELIEVED:
            self._next_careful = True
            if str(error).endswith("mark"):  # somebody moved it, or this is another database than it was
                self._is_anew = True

    # ---- sending

    def _before(self, asked: Query | None) -> None:
        """Before something whose answer is needed: what was kept back is sent, and nobody else adds meanwhile."""
        self._send_kept()
        self._begin_there(locks=asked is None or asked.name not in _APART)

    def _begin_there(self, locks: bool = False) -> None:
        script = [] if self._begun else [self._begin_text()]
        if locks and not self._is_locked:
            script.append(query("lock_heads").text)
            self._is_locked = True
        for savepoint in self._savepoints:
            if not savepoint.name:
                self._named += 1
                savepoint.name = f"s{self._named}"
                script.append(f"SAVEPOINT {savepoint.name}")
        if script:
            self._begun = True
            self._link.script("; ".join(script))

    def _send_kept(self, is_last: bool = False) -> None:
        """Send what was kept back; each savepoint in its place."""
        at = 0
        for savepoint in self._savepoints:
            if not savepoint.name and savepoint.at > at:
                before, self._parts = self._parts[: savepoint.at - at], self._parts[savepoint.at - at :]
                at = savepoint.at
                self._begin_there_without_savepoints()
                self._send(before)
        if self._parts or is_last:
            self._begin_there()
            parts, self._parts = self._parts, []
            self._send(parts, is_last)
        for savepoint in self._savepoints:
            savepoint.at = 0

    def _begin_there_without_savepoints(self) -> None:
        kept, self._savepoints = self._savepoints, [one for one in self._savepoints if one.name]
        try:
            self._begin_there(locks=True)
        finally:  # also when the connection breaks: whoever made them takes them away
            self._savepoints = kept

    def _changed(self, part: Part) -> int:
        """Send one part for its count of rows."""
        self._before(part.query)
        return self._link.change(counted(part.query), [0, 0, *part.given])

    def _send(self, parts: Sequence[Part], is_last: bool = False) -> None:
        """As one statement."""
        epoch = self._epoch
        rings = self._rings if is_last else frozenset()
        notice = self._bells.notice(rings)
        if not (parts or epoch is not None or is_last):
            return
        self._epoch = None
        shape = tuple((part.query.name, part.query.is_packed, part.believed is not None) for part in parts)
        given: list[Any] = []
        if needs_head(parts, epoch is not None):
            tasks = sum(part.rows for part in parts if part.query.name in ("add_tasks", "import_task"))
            events = sum(part.rows for part in parts if part.query.name in ("add_events", "add_submitted"))
            given += (tasks, events)
        for part in parts:
            given += part.given
            if part.believed is not None:
                given.append(part.believed)
        if epoch is not None:
            given.append(epoch)
        if is_last:
            given += (self._writer, self._mark)
        if notice is not None:
            given += notice
        text = composed(shape, is_last, epoch is not None, notice is not None)
        try:
            self._link.fetch(text, given)
        except asyncpg.PostgresError as error:
            self._look_at(error)
            raise

    def _alone(self, query_name: str, *parameters: Any) -> int:
        """A change outside of any transaction of the store's."""
        asked = query(query_name)
        changed: int = self._outside(lambda: self._link.change(asked.text, asked.given(parameters)))
        return changed

    def _alone_rows(self, query_name: str, *parameters: Any) -> list[Any]:
        asked = query(query_name)
        found: list[Any] = self._outside(lambda: self._link.fetch(asked.text, asked.given(parameters)))
        return found

    def _outside(self, do: Callable[[], Any]) -> Any:
        if not self._link.place.pooled:
            return do()
        self._link.script(self._begin_text())
        try:
            done = do()
            self._link.script("COMMIT")
        except ERRORS:
            self._link.drop()
            raise
        return done


class _Unanswered(Exception):
    """The connection was lost while the last word was on its way."""
