"""PostgreSQL as a database for a store."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.config.postgres_place import PostgresPlace
from penstock.errors import StoreError
from penstock.store.postgres_bells import PostgresBells
from penstock.store.postgres_errors import is_conflict, is_defect, translated
from penstock.store.postgres_link import ERRORS, Link
from penstock.store.postgres_open import MIGRATIONS, prepare
from penstock.store.postgres_owner import PostgresOwnership
from penstock.store.postgres_session import LOCK_S, PostgresSession
from penstock.store.postgres_writing import PostgresWriting

if TYPE_CHECKING:
    from penstock.store.copying import Loader
    from penstock.store.session import OwnSession

# A commit that is acknowledged is on the disk, whatever the server does for others. Who is stopped in the middle of
# a transaction does not keep the others waiting for ever, and who waits for another hears of it (a copy holds
# `heads` until it is done): a client is told, a dispatcher tries again. Plans are made once, maybe while the tables
# are empty; they must be right for a million rows: each row that is named is found by its index.
_WRITING = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';"
    f" SET idle_in_transaction_session_timeout = '10s'; SET lock_timeout = '{LOCK_S}s'; SET jit = off;"
    " SET plan_cache_mode = force_generic_plan;"
    " SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
)
_READING = "SET idle_in_transaction_session_timeout = '60s'"
_HANGS_S = 120.0  # no statement of ours takes as long


class PostgresDatabase:
    """See `database.Database`."""

    elects = True
    patience_s = 10.0
    most_bytes: float = 512 << 20  # a statement is one message, and the server hangs up on one of 1 GiB
    errors: tuple[type[Exception], ...] = ERRORS

    def __init__(self, place: PostgresPlace, migrations: Sequence[str] = MIGRATIONS) -> None:
        self._place = place
        self._migrations = migrations
        self._tag = f"penstock-{secrets.token_hex(6)}"
        self.name = place.name
        self.bells = PostgresBells(place, self._tag)
        self.ownership = PostgresOwnership(place, self._tag)

    def open_writing(self, *, makes: bool = True) -> PostgresWriting:
        link = Link(self._place, self._tag, _WRITING, _HANGS_S)
        try:
            prepare(link, self._migrations, patience_s=self.patience_s, makes=makes)
            self.bells.open()
        except BaseException:
            link.close()
            raise
        return PostgresWriting(link, self.bells)

    def open_reading(self) -> PostgresSession:
        return PostgresSession(Link(self._place, self._tag, _READING, _HANGS_S))

    def loader(self, session: OwnSession) -> Loader:
        from penstock.store.postgres_copying import PostgresLoader

        assert isinstance(session, PostgresWriting)
        return PostgresLoader(session)

    def close(self) -> None:
        self.bells.hush()

    def translated(self, error: Exception, *, reading: bool = False) -> StoreError:
        return translated(self._place, error, reading=reading)

    def is_conflict(self, error: Exception) -> bool:
        return is_conflict(error)

    def is_defect(self, error: Exception) -> bool:
        return is_defect(error)
