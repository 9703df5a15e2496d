"""Files as documents, off the loop: text in a thread, PDFs in a process that is killed when one takes too long."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from penstock.council.library.formats import Document, Unreadable, read
from penstock.council.library.pdf_child import LENGTH_BYTES, Read, framed
from penstock.council.library.sections import Form
from penstock.errors import UsageError

_CHILD = "penstock.council.library.pdf_child"
_PDF_S = 120.0


class Reader:
    """Use it through `reading()`, which ends its process."""

    def __init__(self, pdf_s: float = _PDF_S) -> None:
        self._pdf_s = pdf_s
        self._child: Process | None = None

    async def read(self, form: Form, data: bytes) -> Document:
        """`Unreadable` says why there is none."""
        if form is not Form.PDF:
            return await asyncio.to_thread(read, form, data)
        try:
            async with asyncio.timeout(self._pdf_s):
                told = await self._ask(data)
        except TimeoutError:
            raise Unreadable(f"could not be read within {self._pdf_s:g} s") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Unreadable("its reading ended the process that reads PDFs") from None
        if told.misses is not None:
            raise UsageError(told.misses)
        if told.error is not None:
            raise Unreadable(told.error)
        return Document(form, told.sections)

    async def _ask(self, data: bytes) -> Read:
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
            self._child.stdin.write(framed(data))
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
async def reading(pdf_s: float = _PDF_S) -> AsyncIterator[Reader]:
    reader = Reader(pdf_s)
    try:
        yield reader
    finally:
        await reader.close()
