"""What a database must offer so that a store can be kept in it: sessions, wake-ups, and who owns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import StoreError
from penstock.store.bell import Bells
from penstock.store.session import OwnSession, Session

if TYPE_CHECKING:
    from penstock.store.copying import Loader


class Ownership(Protocol):
    """Who dispatches. Its methods block: the store's threads call them.

    The epoch in the store tells the story, and fences: a decision is written only in a transaction that sees its
    dispatcher's epoch open (the query `is_epoch`, which holds off other dispatchers until the transaction is over).
    """

    def take(self, session: Session) -> bool:
        """Become the owner, inside the transaction that begins the epoch; False while another one is alive."""

    def hold(self, epoch: int) -> None:
        """The epoch is kept: show signs of life from now on."""

    def free(self) -> None:
        """Stop being the owner, also when one never was."""

    def is_taken(self, session: Session) -> bool:
        """Whether anybody owns the store, in whatever process or machine, and is alive."""


class Database(Protocol):
    @property
    def name(self) -> str:
        """Where it is, fit for display (no secrets)."""

    @property
    def elects(self) -> bool:
        """Whether dispatchers that wait take over from one that is gone, from whatever machine."""

    @property
    def patience_s(self) -> float:
        """How long a client waits for a database that is away; 0: it is told at once."""

    @property
    def most_bytes(self) -> float:
        """About how much one transaction can carry: more than that is refused, and groups stay well below."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its driver raises."""

    @property
    def bells(self) -> Bells: ...

    @property
    def ownership(self) -> Ownership: ...

    def open_writing(self, *, makes: bool = True) -> OwnSession:
        """Called by the thread that writes; first, and once: the database is checked and brought up to date.

        Where there is no store yet it makes one; or raises StoreMissing, and changes nothing.
        """

    def open_reading(self) -> OwnSession:
        """Called by a thread that reads. What it begins sees one state, and can change nothing."""

    def close(self) -> None:
        """Let go of what the sessions shared, after the last of them."""

    def loader(self, session: OwnSession) -> Loader:
        """For copying a store into this database, or out of it, with a session that writes."""

    def translated(self, error: Exception, *, reading: bool = False) -> StoreError:
        """A driver's error in our words: what happened, and what to do; to somebody who was only `reading`."""

    def is_conflict(self, error: Exception) -> bool:
        """Whether two rows were to have the same id or key."""

    def is_defect(self, error: Exception) -> bool:
        """Whether the statement or its values are at fault: trying again would not help."""
