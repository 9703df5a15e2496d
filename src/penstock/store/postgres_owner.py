"""Who dispatches from a PostgreSQL store: a lock that dies with its connection, and a heart that beats.

The owner's heart has a connection of its own, which holds an advisory lock, and a thread that shows signs of life
by the database's clock. A process that dies loses its connections, and with them the lock, that moment. One that
hangs, or is cut off, keeps the lock but falls silent: then whoever wants to take over ends its connections. What
fences is the epoch, which is looked at in every transaction of a dispatcher: see `heads`.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from penstock.config.postgres_place import PostgresPlace
from penstock.errors import UsageError
from penstock.machine import boot_id, namespace, process_start
from penstock.store.postgres_link import ERRORS, Link
from penstock.store.postgres_statements import query
from penstock.store.session import Session

LEASE_S = 3.0  # of silence: then an owner is taken for gone
BEAT_S = 0.5
_ANSWER_S = 1.5  # the server has to answer a beat in
# A sign of life need not outlast the server: a disk or a replica that is slow does not make a leader look dead.
_BEATING = "SET synchronous_commit = off"
_RETRY_S = 0.2
_LOOK_AGAIN_S = 0.3  # who has just taken the lock has not shown a sign of life yet
_FREEING_S = 3.0  # a connection that was ended needs a moment


class Leader(NamedTuple):
    """What the database says of the owner."""

    connection: int | None  # that holds the lock
    silent_s: float
    lease_s: float
    process: str
    is_there: bool  # though without the lock: it may be about to take it again

    @property
    def is_alive(self) -> bool:
        holds = self.connection is not None or self.is_there
        return holds and self.silent_s <= self.lease_s and not _is_dead(self.process)


class PostgresOwnership:
    """See `database.Ownership`."""

    def __init__(self, place: PostgresPlace, tag: str) -> None:
        self._place = place
        self._tag = tag
        self._key = int.from_bytes(hashlib.blake2b(place.schema.encode(), digest_size=7).digest(), "big")
        self._heart: Heart | None = None

    def take(self, session: Session) -> bool:
        if self._place.pooled:
            raise UsageError(
                f"{self._place.name}: behind a pool (pooled=true) nobody can be elected; dispatch with a URL"
                " that leads to the server itself, or to a pool in session mode"
            )
        if self._heart is not None:
            return False
        heart = Heart(self._place, self._tag, self._key)
        if not heart.begin():
            return False
        self._heart = heart
        return True

    def hold(self, epoch: int) -> None:
        if self._heart is not None:
            self._heart.epoch = epoch

    def free(self) -> None:
        heart, self._heart = self._heart, None
        if heart is not None:
            heart.stop()

    def is_taken(self, session: Session) -> bool:
        return Leader(*session.row("leader", self._key)).is_alive


class Heart:
    """The thread and the connection of an owner."""

    def __init__(self, place: PostgresPlace, tag: str, key: int) -> None:
        self._place = place
        self._key = key
        self._tag = tag
        self._process = f"{tag} {_machine()} {os.getpid()} {_process_start(os.getpid())}"
        self._begun: bool | Exception | None = None
        self._decided = threading.Event()
        self._stopping = threading.Event()
        self.epoch: int | None = None
        self._thread = threading.Thread(target=self._run, name=f"heart of {place.name}", daemon=True)

    def begin(self) -> bool:
        """Take the lock; False while somebody alive has it."""
        self._thread.start()
        self._decided.wait()
        if isinstance(self._begun, Exception):
            raise self._begun
        return bool(self._begun)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    # ---- the thread

    def _run(self) -> None:
        link = Link(self._place, self._tag, _BEATING, _ANSWER_S)
        try:
            try:
                link.connect()
                self._begun = self._take(link)
            except ERRORS as error:
                self._begun = error
            self._decided.set()
            if self._begun is True:
                self._beat(link)
        finally:
            link.close()

    def _take(self, link: Link) -> bool:
        leader = self._leader(link)
        if leader.is_alive and leader.process != self._process:
            return False
        if self._try(link):
            return True
        if not _is_dead(leader.process):
            self._stopping.wait(_LOOK_AGAIN_S)
            again = self._leader(link)
            if again.is_alive or (again.connection is not None and again.connection != leader.connection):
                return False
            leader = again
        self._depose(link, leader)
        give_up_at = time.monotonic() + _FREEING_S
        while not self._stopping.is_set():
            if self._try(link):
                return True
            if time.monotonic() > give_up_at or self._leader(link).is_alive:
                return False
            self._stopping.wait(0.02)
        return False

    def _depose(self, link: Link, leader: Leader) -> None:
        tag = leader.process.partition(" ")[0]
        if tag:
            link.fetch(query("end_connections").text, (tag,))
        if leader.connection is not None:
            link.fetch(query("end_connection").text, (leader.connection,))

    def _try(self, link: Link) -> bool:
        """Take the lock, and show a sign of life with it."""
        ((is_ours,),) = link.fetch(query("try_lock").text, (self._key,))
        if is_ours:
            self._show(link)
        return bool(is_ours)

    def _show(self, link: Link) -> None:
        link.change(query("beat").text, (LEASE_S, self._process))

    def _leader(self, link: Link) -> Leader:
        return Leader(*link.fetch(query("leader").text, (self._key,))[0])

    def _beat(self, link: Link) -> None:
        """Until it is stopped, or somebody else has taken over."""
        while not self._stopping.wait(BEAT_S if link.is_up else _RETRY_S):
            try:
                if link.connect():
                    if not self._take_again(link):
                        return
                else:
                    self._show(link)
            except ERRORS:
                link.drop()
        with suppress(*ERRORS):
            if link.is_up:
                link.change(query("fall_silent").text, (self._process,))

    def _take_again(self, link: Link) -> bool:
        """After the connection was lost: False when there is another owner."""
        while not self._stopping.is_set():
            leader = self._leader(link)
            ((epoch,),) = link.fetch(query("head_epoch").text)
            if self.epoch is not None and epoch != self.epoch:
                return False
            if self._try(link):
                return True
            if leader.process == self._process and leader.connection is not None:
                # The server has not noticed yet that the connection is gone that we had before.
                link.fetch(query("end_connection").text, (leader.connection,))
            elif leader.is_alive:
                return False
            self._stopping.wait(_RETRY_S)
        return False


def _machine() -> str:
    """Tells one machine, as processes number themselves there, from any other."""
    boot, pids = boot_id(), namespace("pid")
    return hashlib.blake2b((boot + pids).encode(), digest_size=8).hexdigest() if boot and pids else "-"


def _process_start(pid: int) -> str:
    return process_start(pid) or "-"


def _is_dead(process: str) -> bool:
    """Whether it is one of this machine that has ended. Of others nobody here can tell."""
    words = process.split(" ")
    if len(words) != 4 or words[1] == "-" or words[1] != _machine():
        return False
    return _process_start(int(words[2])) != words[3]
