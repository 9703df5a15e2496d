"""The analyst, as the board asks it: started with the first question, started again should it have died.

    async with Analysts(config) as analysts:
        async for said in analysts.ask("diagnose", run="nightly"): …

Leaving the loop drops the question. A page asks one thing of a sort at a time: `page` names it, and what it asked
before is dropped.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from itertools import count
from typing import Any, Self

from penstock.config import Config
from penstock.errors import PenstockError
from penstock.web.board.framing import framed, next_message

_GONE = "the process that looks at runs has ended; ask again, or look at a smaller run"
_ENDING_S = 3.0


class AnalysisFailed(PenstockError):
    """It could not be found out; why, with the remedy."""


class _Child:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.open: dict[int, asyncio.Queue[Any]] = {}

    def tell(self, message: Any) -> None:
        assert self.process.stdin is not None
        if not self.process.stdin.is_closing():
            self.process.stdin.write(framed(message))

    async def hear(self) -> None:
        """What it says, each to who asked; to the end of it."""
        assert self.process.stdout is not None
        while (message := await next_message(self.process.stdout)) is not None:
            if line := self.open.get(message["id"]):
                line.put_nowait(message)
        await self.process.wait()
        for line in self.open.values():
            line.put_nowait({"end": _GONE})


class Analysts:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._child: _Child | None = None
        self._starting = asyncio.Lock()
        self._numbers = count(1)
        self._latest: dict[str, int] = {}  # page -> what it asked last

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        if self._child is not None:
            await _end(self._child.process)
        await self._group.__aexit__(None, None, None)

    async def ask(self, do: str, *, page: str = "", **asked: Any) -> AsyncIterator[dict[str, Any]]:
        """What it says, one thing after the other. AnalysisFailed when that ends in an error."""
        child = await self._there()
        number = next(self._numbers)
        line: asyncio.Queue[Any] = asyncio.Queue()
        child.open[number] = line
        if page and (before := self._latest.get(page)) in child.open and before is not None:
            child.tell({"drop": before})
        self._latest[page] = number
        try:
            child.tell({"id": number, "do": do, **asked})
            while "end" not in (message := await line.get()):
                yield message["say"]
            if message["end"] is not None:
                raise AnalysisFailed(message["end"])
        finally:
            del child.open[number]
            child.tell({"drop": number})
            if self._latest.get(page) == number:
                del self._latest[page]

    async def _there(self) -> _Child:
        async with self._starting:
            if self._child is None or self._child.process.returncode is not None:
                self._child = child = _Child(await _started(self._config))
                self._group.create_task(child.hear(), name="penstock board's analyst")
            return self._child


async def _started(config: Config) -> Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "penstock.web.board.analyst",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(framed(pickle.dumps(config)))
    return process


async def _end(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_ENDING_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
