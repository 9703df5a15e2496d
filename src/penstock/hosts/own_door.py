"""The way from a host's attempt to Penstock's own `/v1`: an address, and a key that dies with the attempt.

A host that calls models itself (`researcher`, `file_prompt`) sends those calls through the dispatcher it runs
under, in a lane of their own. Whoever serves `/v1` in this process gives the entrance; the dispatcher opens it
before anything starts and closes it when it stops. An adapter finds the door in `host.options["door"]`.

    access = door.admit(job, lane)      # in `work()`
    …                                   # the attempt calls access.url with access.key
    door.dismiss(access)                # may be left out: the end of an attempt takes its keys back
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.config.own_calls import run_of_calls
from penstock.errors import PermanentError, TemporaryError
from penstock.hosts.base import Job


@dataclass(frozen=True, slots=True)
class Access:
    """Where an attempt's calls go, as `OPENAI_BASE_URL`, and the key they bring. The key is for nobody's eyes."""

    url: str
    key: str = field(repr=False)
    far_url: str | None = None  # the same for other machines; None: they have no way


class Guest(NamedTuple):
    """Whose calls come in by a key, and what they are to the scheduler."""

    task: str
    attempt: int
    lane: str
    priority: int
    run: str


class Entrance(Protocol):
    """What lets calls in. Its methods belong to the dispatcher's loop."""

    @property
    def url(self) -> str:
        """The address of its `/v1`."""

    @property
    def node_urls(self) -> tuple[str, str | None]:
        """Its address for attempts on nodes of a cluster: on this machine; and on others, if they have a way."""

    def let_in(self, guest: Guest, root: bytes | None = None) -> str:
        """A key of this guest's, kept in memory alone; made of `root` it is the same for who lets him in again."""

    def shut_out(self, key: str) -> None:
        """Nobody comes in by that key any more, and what came in by it ends."""


class OwnDoor:
    """The one door of a dispatcher. `refused` has the lanes no run may be in, each with the reason."""

    def __init__(self, refused: Mapping[str, str] | None = None) -> None:
        self._refused = refused or {}
        self._entrance: Entrance | None = None
        self._inside: dict[tuple[str, int], list[str]] = {}  # by attempt: its keys

    def open(self, entrance: Entrance) -> None:
        """From now on attempts are let in there; called on the dispatcher's loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._entrance = entrance

    def close(self) -> None:
        """Every key is worth nothing from now on."""
        for task, attempt in list(self._inside):
            self._leave(task, attempt)
        self._entrance = None

    @property
    def is_open(self) -> bool:
        return self._entrance is not None

    def admit(self, job: Job, lane: str) -> Access:
        """A key for the calls of this attempt; called on the dispatcher's loop, where `work()` is."""
        entrance, key = self._let_in(job, lane)
        return Access(entrance.url, key)

    def admit_afar(self, job: Job, lane: str, root: bytes) -> Access:
        """The same for an attempt on a node of a cluster, which outlives this dispatcher: so does its key."""
        entrance, key = self._let_in(job, lane, root)
        near, far = entrance.node_urls
        return Access(near, key, far)

    def _let_in(self, job: Job, lane: str, root: bytes | None = None) -> tuple[Entrance, str]:
        if (why := self._refused.get(job.lane)) is not None:
            raise PermanentError(f"lane: {why}")
        if job.lane == lane:
            raise PermanentError(same_lane(job.host, lane))
        if self._entrance is None:
            raise TemporaryError(
                f"{job.host} calls models through Penstock itself, whose door is not open: "
                "it is while the dispatcher runs"
            )
        guest = Guest(job.task, job.attempt, lane, job.priority, run_of_calls(job.run))
        key = self._entrance.let_in(guest, root)
        self._inside.setdefault((job.task, job.attempt), []).append(key)
        return self._entrance, key

    def dismiss(self, access: Access) -> None:
        """Take one key back; from any thread, and more than once."""
        self._on_the_loop(access.key)

    def ended(self, task: str, attempt: int) -> None:
        """An attempt is over, however it ended: its keys are taken back."""
        self._leave(task, attempt)

    def _on_the_loop(self, key: str) -> None:
        if self._entrance is None:
            return
        if threading.get_ident() == self._thread:
            self._take_back(key)
        else:
            with suppress(RuntimeError):  # the loop is closed, and so is the door
                self._loop.call_soon_threadsafe(self._take_back, key)

    def _take_back(self, key: str) -> None:
        for attempt, keys in self._inside.items():
            if key in keys:
                keys.remove(key)
                if not keys:
                    del self._inside[attempt]
                if self._entrance is not None:
                    self._entrance.shut_out(key)
                return

    def _leave(self, task: str, attempt: int) -> None:
        for key in self._inside.pop((task, attempt), ()):
            if self._entrance is not None:
                self._entrance.shut_out(key)


def same_lane(host: str, lane: str) -> str:
    """What is wrong with a run in the lane of its own calls."""
    return (
        f"runs of host {host!r} cannot be in lane {lane!r}, which is that of their own calls: they would hold "
        f"the places those wait for; submit them to another lane, or set hosts.{host}.calls_lane"
    )
