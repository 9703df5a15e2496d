"""Files as documents, in a process that is killed when one of them takes too long, or when nobody waits any more.

Every form is read there: what is harmless to read cannot be told from outside.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from penstock.council.library.formats import Document, NoText, Unreadable
from penstock.council.library.reading_child import LENGTH_BYTES, MOST_S, Read, framed
from penstock.council.library.sections import Form
from penstock.errors import UsageError

_CHILD = "penstock.council.library.reading_child"


class Reader:
    """Use it through `reading()`, which ends its process."""

    def __init__(self, most_s: float = MOST_S) -> None:
        self._most_s = most_s
        self._child: Process | None = None

    async def read(self, form: Form, data: bytes) -> Document:
        """`Unreadable` says why there is none."""
        try:
            async with asyncio.timeout(self._most_s):
                told = await self._ask(form, data)
        except TimeoutError:
            raise Unreadable(f"could not be read within {self._most_s:g} s") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Unreadable("its reading ended the process that reads documents") from None
        if told.misses is not None:
            raise UsageError(told.misses)
        if told.error is not None:
            raise (NoText if told.is_without_text else Unreadable)(told.error)
        return Document(form, told.sections, told.note)

    def give_up(self) -> None:
        """Whatever is being read is `Unreadable` at once; the next file is read by another process."""
        if self._child is not None:
            with suppress(ProcessLookupError):
                self._child.kill()

    async def _ask(self, form: Form, data: bytes) -> Read:
        done = False
        try:
            if self._child is None:
                self._child = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",
                    "-m",
                    _CHILD,
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=DEVNULL,
                    start_new_session=True,
                )
            assert self._child.stdin is not None
            assert self._child.stdout is not None
            self._child.stdin.write(framed(form.encode()) + framed(data))
            await self._child.stdin.drain()
            size = int.from_bytes(await self._child.stdout.readexactly(LENGTH_BYTES))
            told = await self._child.stdout.readexactly(size)
            done = True
            return msgspec.json.decode(told, type=Read)
        finally:
            if not done:  # what it says next would be an answer to another question
                await asyncio.shield(self.close())

    async def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
            if child.stdin is not None:
                child.stdin.close()


@asynccontextmanager
async def reading(most_s: float = MOST_S) -> AsyncIterator[Reader]:
    reader = Reader(most_s)
    try:
        yield reader
    finally:
        await reader.close()
