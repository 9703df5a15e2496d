"""Watches a folder queue: requests become tasks, tasks that end become answers. For the CLI and for agents.

One pass after another, never two at once: look at what is new, submit it, ask for cancels, give the answers of what
ended. A pass may fail (a full disk, a folder that is gone); it is done again until it succeeds. After `kill -9` the
folder and the store tell all there is to know: every request that is still in its folder is read again, its key
leads to the task it has already become, and `answers.recover` gives what was ready.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from os import listdir
from pathlib import Path
from typing import Any

import msgspec

from penstock.client import Client
from penstock.errors import StoreFull, StoreLocked, UnknownTask, Unreachable
from penstock.intake.folder import answers
from penstock.intake.folder.bodies import Refused
from penstock.intake.folder.cancels import Cancels
from penstock.intake.folder.changes import Changes
from penstock.intake.folder.flights import Flights
from penstock.intake.folder.layout import Folders, Hold, Layout, find_layout, open_folders, take_hold
from penstock.intake.folder.taking import Taking, WatchOptions
from penstock.intake.folder.telling import (
    DOUBLED,
    Counts,
    Teller,
    body_of,
    refusal_of,
    told_name,
    trouble_text,
)
from penstock.model import State

_ANSWERS_AT_ONCE = 500
_REST = 10.0  # looking takes at most a tenth of the time, however many files there are


class FolderQueue:
    """`run()` watches until `stop()`; `hold()` takes in nothing more and goes on answering."""

    def __init__(self, client: Client, folder: Path, options: WatchOptions, teller: Teller) -> None:
        self._client = client
        self._options = options
        self._teller = teller
        self.layout: Layout = find_layout(folder)
        self.counts = Counts()
        self._flights = Flights()
        self._taking = Taking(client, options, self._flights, self.counts, teller)
        self._cancels = Cancels(client, self._flights, teller, options.patience_s)
        self._changes = Changes(self.layout, self._on_change, teller.note)
        self._held: Hold | None = None
        self._wake = asyncio.Event()
        self._rested = 0.0  # when looking is allowed again
        self._due = 0.0  # when it is wanted
        self._takes_in = True
        self._only: list[str] | None = None
        self._stopping = False
        self._trouble: str | None = None

    # ---- from outside

    async def run(self, *, once: bool = False) -> None:
        """Watch. With `once`: answer what is there, then end; what stands in the way is raised."""
        try:
            async with self._opened():
                pass  # what stands in the way at the start is the caller's to tell
            async with asyncio.TaskGroup() as group:
                ringing = group.create_task(self._hear_bell())
                if not once:
                    group.create_task(self._changes.hear())
                try:
                    await self._work(once)
                finally:
                    ringing.cancel()
                    self._changes.close()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            if self._held is not None:
                self._held.release()

    def hold(self) -> None:
        self._takes_in = False

    def stop(self) -> None:
        """Give the answers that are due, then end."""
        self._stopping = True
        self._takes_in = False
        self._wake.set()

    # ---- passes

    async def _work(self, once: bool) -> None:
        while True:
            self._wake.clear()
            last = self._stopping
            try:
                await self._pass()
            except OSError as error:
                if once:
                    raise
                self._tell_trouble(trouble_text(error))
            except (StoreFull, StoreLocked, Unreachable) as error:
                if once:
                    raise
                self._tell_trouble(str(error))
            else:
                self._tell_trouble(None)
            self._tell_counts()
            if once:
                self._only = self._taking.unfinished.names()
                last = last or not (self._flights or self._flights.owes or self._only)
            if last:
                return
            await self._wait()

    async def _pass(self) -> None:
        async with self._opened() as folders:
            urgent = await asyncio.to_thread(listdir, folders.urgent)
            if self._takes_in and time.monotonic() >= self._due:
                await self._look(folders, frozenset(urgent))
            if urgent:
                await self._cancels.ask(folders, urgent, self._taking.unfinished)
            for task in await self._taking.awaited.take():
                self._flights.end(task)
            await self._answer(folders)

    async def _look(self, folders: Folders, urgent: frozenset[str]) -> None:
        assert self._held is not None
        began = time.monotonic()
        self._due = began + self._options.interval_s
        await self._taking.take(folders, self._held.name, urgent, self._only)
        now = time.monotonic()
        self._rested = now + _REST * (now - began)
        if len(self._taking.unfinished):
            self._due = min(self._due, now + self._options.quiet_s)
        self._due = max(self._due, self._rested)

    async def _wait(self) -> None:
        """Until something rings, or it is time to look."""
        left_s = self._due - time.monotonic() if self._takes_in else self._options.interval_s
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _on_change(self) -> None:
        self._due = min(self._due, self._rested)
        self._wake.set()

    async def _hear_bell(self) -> None:
        async with self._client.watching() as watch:
            while True:
                await watch()
                if len(self._flights) and self._trouble is None:
                    self._wake.set()

    # ---- the folder

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Folders]:
        """Its folders, and nobody else has them."""
        with ExitStack() as stack:
            folders, hold, recovered = await asyncio.to_thread(self._open, stack)
            if hold is not None:
                self._hold(hold)
            if recovered:
                self._teller.note(
                    f"answers that the last watcher had ready and did not give: {recovered}; given"
                )
            yield folders

    def _open(self, stack: ExitStack) -> tuple[Folders, Hold | None, int]:
        folders = stack.enter_context(open_folders(self.layout))
        if self._held is not None and self._held.place == folders.place():
            return folders, None, 0
        hold = take_hold(folders)
        return folders, hold, answers.recover(folders)

    def _hold(self, hold: Hold) -> None:
        before, self._held = self._held, hold
        if before is None:
            return
        before.release()
        self._changes.renew()
        if before.name != hold.name:  # nobody there waits for what we have under way
            if len(self._flights):
                left = "1 request of the old one gets no answer"
                if len(self._flights) > 1:
                    left = f"{len(self._flights)} requests of the old one get no answer"
                self._teller.note(f"{self.layout.base}: is another folder than before; {left}")
            self._taking.awaited.forget()
            self._flights.clear()

    # ---- answering

    async def _answer(self, folders: Folders) -> None:
        while self._flights.owes:
            bodies: dict[str, dict[str, Any]] = {}
            for (name, refused), _ in zip(self._flights.owed(), range(_ANSWERS_AT_ONCE), strict=False):
                bodies[name] = {} if refused is None else refusal_of(name, refused)
            for name in [name for name, body in bodies.items() if not body]:
                bodies[name] = await self._body(name)
            made = [
                answers.Answer(name, body["state"] == State.DONE, msgspec.json.encode(body) + b"\n")
                for name, body in bodies.items()
            ]
            told = await asyncio.to_thread(answers.give, folders, made)
            for name in told.given:
                self._flights.land(name)
                self._tell_answer(bodies[name])
            for name in told.doubled:
                self._flights.land(name)
                self._teller.note(f"{told_name(name)}: {DOUBLED}")
            for name, why in told.held:
                self._flights.hold_back(name)
                self._teller.note(f"{told_name(name)}: is answered but cannot be moved to done/: {why}")
            if told.trouble is not None:
                raise told.trouble
            self._tell_counts()

    async def _body(self, name: str) -> dict[str, Any]:
        try:
            return body_of(name, await self._client.get(self._flights.task(name)))
        except UnknownTask:
            return refusal_of(name, Refused("the store has forgotten its task; send it again under a new id"))

    # ---- telling

    def _tell_answer(self, body: dict[str, Any]) -> None:
        if body["state"] == State.DONE:
            self.counts.done += 1
        else:
            self.counts.errors += 1
        self._teller.answered(body)

    def _tell_counts(self) -> None:
        self.counts.under_way = len(self._flights)
        self.counts.unfinished = len(self._taking.unfinished)
        self._teller.counted(self.counts)

    def _tell_trouble(self, text: str | None) -> None:
        if text is not None:
            self._due = time.monotonic() + self._options.interval_s
        if text != self._trouble:
            self._trouble = text
            self._teller.trouble(text)
