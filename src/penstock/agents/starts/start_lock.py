"""Who may create containers of an agent: one process at a time, known by name to those who wait.

    AGENTS/NAME/start.lock    held by the kernel for its owner: free at the moment the owner dies
    AGENTS/NAME/start.json    who that is, since when, and at which step it is

Nobody waits for the lock: others try it now and then while they look for what its owner is making. An engine on
another machine is shared by machines that no lock of a file binds, so there the lock is a lease of the store.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Protocol

from penstock.agents.endpoints import unwritable, write_whole
from penstock.machine import boot_id, namespace, process_start

_MOST_BYTES = 65536
_MOST_CHARACTERS = 120  # of a command in a message


@dataclass(frozen=True, slots=True)
class StartOwner:
    """Who holds the lock, and what it is doing. A process is known by when it began, for pids come back."""

    attempt: str  # one holding of the lock: unique
    machine: str
    place: str  # where its pid means something: one boot of a machine, and a namespace
    pid: int
    began: str
    command: str
    since: float
    step: str
    step_at: float  # by its own machine's clock

    @classmethod
    def me(cls) -> StartOwner:
        now, pid = time.time(), os.getpid()
        return cls(
            attempt=secrets.token_hex(8),
            machine=platform.node(),
            place=_place(),
            pid=pid,
            began=process_start(pid),
            command=_command(),
            since=now,
            step="beginning",
            step_at=now,
        )

    def told(self, watched_s: float) -> str:
        """In words; it has been seen at its step for `watched_s`."""
        since = datetime.fromtimestamp(self.since).isoformat(" ", "seconds")
        step_s = self.step_s
        how_long = f"{max(step_s, watched_s):.0f} s" if step_s is not None else f"at least {watched_s:.0f} s"
        return (
            f"process {self.pid} on {self.machine} ({self.command}), since {since},"
            f" for {how_long} at the step: {self.step}"
        )

    @property
    def step_s(self) -> float | None:
        """How long it has been at its step. None: another machine's clock says when that began."""
        return max(0.0, time.time() - self.step_at) if self._is_here else None

    def is_alive(self) -> bool:
        """As far as can be seen: those of other machines and namespaces are taken to be."""
        return not self._is_here or process_start(self.pid) == self.began

    @property
    def _is_here(self) -> bool:
        return self.place == _place()


class StartLock(Protocol):
    """Taken by one at a time; the others are told who that is."""

    @property
    def attempt(self) -> str:
        """Of the holding that is under way, or was last."""

    async def take(self) -> bool:
        """Without waiting."""

    async def tell(self, step: str) -> None:
        """What is being done now. AgentBusy: the lock was lost, and somebody else may have it."""

    async def free(self) -> None:
        """Also when it is not held."""

    async def owner(self) -> StartOwner | None:
        """Who has it; None where that is not known (yet)."""


MakeStartLock = Callable[[str], StartLock]  # from the folder of the agent


class FileStartLock:
    """For an engine on this machine."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._note = os.path.join(folder, "start.json")
        self._me = StartOwner.me()
        self._free: Callable[[], None] | None = None

    @property
    def attempt(self) -> str:
        return self._me.attempt

    async def take(self) -> bool:
        if self._free is not None:
            return False
        from filelock import FileLock, Timeout  # a warm call comes without

        # Two of one process exclude each other as two processes do.
        lock = FileLock(
            os.path.join(self._folder, "start.lock"), mode=0o600, thread_local=False, is_singleton=False
        )
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            lock.acquire(blocking=False)
        except Timeout:
            return False
        except OSError as error:
            raise unwritable(self._folder, error) from None
        self._free = lock.release
        try:
            self._me = StartOwner.me()
            self._save()
        except BaseException:
            await self.free()
            raise
        return True

    async def tell(self, step: str) -> None:
        self._me = at_step(self._me, step)
        self._save()

    async def free(self) -> None:
        if self._free is not None:
            with suppress(OSError):
                os.unlink(self._note)
            self._free()
            self._free = None

    async def owner(self) -> StartOwner | None:
        found = _noted(self._note)
        return found if found is not None and found.is_alive() else None  # of a dead one: it left its note

    def _save(self) -> None:
        write_whole(self._note, note_of(self._me))


def _noted(path: str) -> StartOwner | None:
    try:
        with open(path, "rb") as file:
            return owner_of(file.read(_MOST_BYTES))
    except OSError:
        return None


def note_of(owner: StartOwner) -> bytes:
    return json.dumps(asdict(owner)).encode()


def owner_of(note: bytes | str) -> StartOwner | None:
    """None: it does not say."""
    try:
        told = json.loads(note)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or set(told) != {one.name for one in fields(StartOwner)}:
        return None
    return StartOwner(**told) if _are_fit(told) else None


def _are_fit(told: dict[str, Any]) -> bool:
    texts = (told["attempt"], told["machine"], told["place"], told["began"], told["command"], told["step"])
    times = (told["since"], told["step_at"])
    return (
        all(isinstance(text, str) and text.isprintable() for text in texts)
        and all(isinstance(one, int | float) and 0 <= one < 1e11 for one in times)
        and isinstance(told["pid"], int)
        and told["pid"] > 0
    )


def at_step(owner: StartOwner, step: str) -> StartOwner:
    return StartOwner(**{**asdict(owner), "step": step, "step_at": time.time()})


def _place() -> str:
    boot, pids = boot_id(), namespace("pid")
    return f"{boot} {pids}" if boot and pids else platform.node()


def _command() -> str:
    """How this process was called, without its arguments, which may hold what is nobody's business."""
    name = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
    words = [name, *(word for word in sys.argv[1:3] if word.isidentifier())]
    told = "".join(one if one.isprintable() else "?" for one in " ".join(words))
    return told[:_MOST_CHARACTERS]
