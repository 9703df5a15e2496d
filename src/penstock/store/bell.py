"""Bells: how a store in one process wakes those who wait in another, without anybody polling.

A bell is a named pipe in a folder beside the store. Ringing writes one byte to it without waiting; whoever
waits has the pipe in his event loop. The dispatcher has one bell, rung by clients; each waiting client has
its own, and the dispatcher rings them all. A store in memory has the same bells without the pipes.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from enum import Enum
from itertools import count
from typing import Protocol

from penstock.errors import StoreError

_DISPATCHER = "dispatcher"
_CLIENT = "client-"
_UNFINISHED = "new-"
_numbers = count(1)


class Ring(Enum):
    """Who is woken once a change is durable."""

    NOBODY = 0
    DISPATCHER = 1
    CLIENTS = 2
    EVERYBODY = 3


class HungBell(ABC):
    """The waiting end. What was rung is kept by `_taken`; the event only says when to look."""

    def __init__(self, family: set[HungBell]) -> None:
        self._family = family
        family.add(self)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()
        self.closed = False

    async def wait(self, timeout_s: float | None = None) -> bool:
        if self.closed:
            raise StoreError("this bell is closed")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._taken():
                    if loop is not self._loop:
                        self._leave_loop()
                        self._event = asyncio.Event()
                        self._join_loop(loop)
                        continue  # it may have been rung before it could be heard
                    await self._event.wait()
                    self._event.clear()
        except TimeoutError:
            return self._taken()  # a ring in the last moment is a ring
        return True

    def close(self) -> None:
        """Whoever waits is let go."""
        if self.closed:
            return
        self._family.discard(self)
        self._leave_loop()
        self.closed = True
        self._event.set()

    @abstractmethod
    def _taken(self) -> bool:
        """Take all rings so far; whether there were any. A closed bell has always been rung."""

    def _join_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def _leave_loop(self) -> None:
        self._loop = None


class Bells(Protocol):
    """All bells of one store."""

    def ring_dispatcher(self) -> None: ...

    def ring_clients(self) -> None: ...

    def dispatcher_bell(self) -> HungBell: ...

    def client_bell(self) -> HungBell: ...

    def close(self) -> None: ...


# ---- between processes


class PipeBell(HungBell):
    def __init__(self, family: set[HungBell], path: str, pipe: int) -> None:
        super().__init__(family)
        self._path = path
        self._pipe = pipe

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        with suppress(OSError):
            # A newer bell of the same name is not ours to remove.
            if os.stat(self._path).st_ino == os.fstat(self._pipe).st_ino:
                os.unlink(self._path)
        os.close(self._pipe)

    def _taken(self) -> bool:
        if self.closed:
            return True
        try:
            return bool(os.read(self._pipe, 1 << 16))
        except BlockingIOError:
            return False

    def _join_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        super()._join_loop(loop)
        loop.add_reader(self._pipe, self._hear)

    def _leave_loop(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._pipe)
        super()._leave_loop()

    def _hear(self) -> None:
        # The byte stays in the pipe for `wait`. Until it is taken there is nothing more to hear, and a loop
        # that went on listening would spin.
        self._leave_loop()
        self._event.set()


class PipeBells:
    """Bells in a folder that every process on the store can reach."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._bells: set[HungBell] = set()

    def ring_dispatcher(self) -> None:
        _ring(os.path.join(self._folder, _DISPATCHER))

    def ring_clients(self) -> None:
        try:
            names = os.listdir(self._folder)
        except OSError:
            return  # nobody ever waited
        for name in names:
            if name.startswith(_CLIENT):
                path = os.path.join(self._folder, name)
                if _ring(path) == errno.ENXIO:  # its process died
                    with suppress(OSError):
                        os.unlink(path)

    def dispatcher_bell(self) -> HungBell:
        return self._hang(_DISPATCHER)

    def client_bell(self) -> HungBell:
        # The random end keeps apart processes of equal number in different containers.
        return self._hang(f"{_CLIENT}{os.getpid()}-{next(_numbers)}-{os.urandom(3).hex()}")

    def close(self) -> None:
        for bell in tuple(self._bells):
            bell.close()
        with suppress(OSError):
            os.rmdir(self._folder)  # stays while others have bells in it

    def _hang(self, name: str) -> HungBell:
        path = os.path.join(self._folder, name)
        for _ in range(10):
            try:
                with suppress(FileExistsError):
                    os.mkdir(self._folder, 0o700)
                return PipeBell(self._bells, path, self._pipe(path))
            except FileNotFoundError:
                continue  # another process removed the empty folder in between
            except OSError as error:
                problem = error.strerror
                break
        else:
            problem = "its folder keeps vanishing"
        raise StoreError(
            f"{path}: the pipe for wake-ups cannot be made ({problem}); check the folder's permissions"
        )

    def _pipe(self, path: str) -> int:
        """Opened first, named after: a ringer takes a pipe that nobody has open for dead, and removes it."""
        unfinished = os.path.join(self._folder, f"{_UNFINISHED}{os.getpid()}-{os.urandom(3).hex()}")
        os.mkfifo(unfinished, 0o600)
        # Both ends: with a writer of its own the pipe never reports an end.
        pipe = os.open(unfinished, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.rename(unfinished, path)
        except OSError:
            os.close(pipe)
            raise
        return pipe


def _ring(path: str) -> int:
    """Write a byte, wait for nothing; the error number when nobody hears, else 0."""
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return error.errno or 0
    with suppress(OSError):  # full of rings already, or closed this moment
        os.write(pipe, b"!")
    os.close(pipe)
    return 0


# ---- within one process


class LocalBell(HungBell):
    """A bell for a store in memory; it can be rung from any thread."""

    def __init__(self, family: set[HungBell]) -> None:
        super().__init__(family)
        self._lock = threading.Lock()
        self._rung = False

    def ring(self) -> None:
        with self._lock:
            self._rung = True
        loop, event = self._loop, self._event
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)

    def _taken(self) -> bool:
        with self._lock:
            rung, self._rung = self._rung, False
        return rung or self.closed


class LocalBells:
    """Bells of a store that only this process can reach."""

    def __init__(self) -> None:
        self._dispatcher: set[HungBell] = set()
        self._clients: set[HungBell] = set()

    def ring_dispatcher(self) -> None:
        _ring_all(self._dispatcher)

    def ring_clients(self) -> None:
        _ring_all(self._clients)

    def dispatcher_bell(self) -> HungBell:
        return LocalBell(self._dispatcher)

    def client_bell(self) -> HungBell:
        return LocalBell(self._clients)

    def close(self) -> None:
        for bell in (*self._dispatcher, *self._clients):
            bell.close()


def _ring_all(bells: set[HungBell]) -> None:
    for bell in tuple(bells):
        if isinstance(bell, LocalBell):
            bell.ring()
