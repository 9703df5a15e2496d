"""A session with PostgreSQL that reads: all it begins sees one state, and can change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any

from penstock.store.bell import Ring
from penstock.store.postgres_link import ERRORS, Link
from penstock.store.postgres_statements import Query, cleaned, numbered, query

LOCK_S = 5  # half of what a client waits: it tries once more
_UNWELL = "ended_at IS NOT NULL AND state <> 'done'"
_ALSO_UNWELL = "number IN (SELECT number FROM tasks WHERE is_unwell)"
# One of these alone sees one state without a transaction.
_SINGLE = frozenset(
    {
        "arrivals",
        "fetch",
        "incoming",
        "open_requests",
        "request_answer",
        "task",
        "events_after",
        "last_event",
        "leader",
    }
    | {"attempts_of_task", "live_in_run", "ended_in_run", "states_in_run", "lease_of", "runs_of", "clock"}
)
# Pages of a long queue: by its index they cost what they hold. A planner that knows nothing yet of a new table
# would collect and sort all that is left, for each of them.
_IN_ORDER = frozenset({"queued", "live_beyond"})
_BY_INDEX = "; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"


class PostgresSession:
    """What reads. See `session.OwnSession`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._begun = False

    # ---- queries

    def rows(self, query_name: str, *parameters: Any) -> list[Any]:
        asked = query(query_name)
        given = asked.given(parameters)
        self._before(asked)
        return self._link.fetch(asked.text, given)

    def row(self, query_name: str, *parameters: Any) -> Any:
        found = self.rows(query_name, *parameters)
        return found[0] if found else None

    def run(self, query_name: str, *parameters: Any) -> int:
        asked = query(query_name)
        given = asked.given([cleaned(one) if isinstance(one, str) else one for one in parameters])
        self._before(asked)
        return self._link.change(asked.text, given)

    def add(self, query_name: str, *parameters: Any) -> int:
        ((number,),) = self.rows(
            query_name, *(cleaned(one) if isinstance(one, str) else one for one in parameters)
        )
        return int(number)

    def bulk(self, query_name: str, width: int, values: Sequence[Any]) -> int:
        raise AssertionError("this session only reads")

    def many(self, query_name: str, rows: Sequence[Sequence[Any]]) -> None:
        raise AssertionError("this session only reads")

    def select(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        self._before(None)
        # Those that came to no good end have an index by a column that nobody else knows.
        statement = statement.replace(_UNWELL, f"{_UNWELL} AND {_ALSO_UNWELL}")
        return self._link.fetch(numbered(statement), [_plain(one) for one in parameters])

    def indexed_by(self, index: str) -> str:
        return ""

    def among(self, column: str) -> str:
        return f"{column} IN (SELECT value::bigint FROM json_array_elements_text(?::json))"  # noqa: S608 - ours

    def like(self, column: str) -> str:
        return f"{column} ILIKE ? ESCAPE '\\'"

    @contextmanager
    def savepoint(self) -> Iterator[Callable[[], None]]:
        raise AssertionError("this session only reads")
        yield

    def time(self) -> float:
        now: float = self.row("clock")[0]
        return now

    # ---- transactions

    def begin(self) -> bool:
        self._begun = False
        return self._link.connect()

    def kept_all(self) -> bool:
        return True  # it only reads

    def commit(self, rings: AbstractSet[Ring] = frozenset()) -> bool:
        if self._begun:
            self._link.script("COMMIT")
            self._begun = False
        return True

    def happened(self) -> bool:
        raise AssertionError("this session only reads")

    def rollback(self) -> None:
        if self._begun:
            self._begun = False
            try:
                self._link.script("ROLLBACK")
            except ERRORS:
                self._link.drop()

    def tidy(self) -> None: ...

    def close(self) -> None:
        self._link.close()

    def _before(self, asked: Query | None) -> None:
        """Begin, where this query needs a transaction to see the same state as others."""
        alone = asked is not None and asked.name in _SINGLE and not self._link.place.pooled
        if not self._begun and not alone:
            in_order = _BY_INDEX if asked is not None and asked.name in _IN_ORDER else ""
            self._link.script(self._begin_text("ISOLATION LEVEL REPEATABLE READ READ ONLY") + in_order)
            self._begun = True

    def _begin_text(self, how: str = "") -> str:
        if not self._link.place.pooled:
            return f"BEGIN {how}"
        # Behind a pool nothing of a session stays but for the transaction.
        return (
            f"BEGIN {how}; SET LOCAL search_path TO {self._link.place.schema}, pg_catalog, pg_temp;"
            f" SET LOCAL lock_timeout = '{LOCK_S}s'"
        )


def _plain(value: Any) -> Any:
    return cleaned(value) if isinstance(value, str) else value
