"""Cancels: a file in `urgent/` stops the request of its name, before its task starts or while it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from penstock.client import Client
from penstock.errors import UnknownTask
from penstock.intake.folder.answers import take_back
from penstock.intake.folder.flights import Flights
from penstock.intake.folder.layout import Folders, is_there
from penstock.intake.folder.patience import Patience
from penstock.intake.folder.requests import is_hidden
from penstock.intake.folder.telling import Teller, told_name


class Cancels:
    """The file stays until its request is answered: after a crash it is asked for again."""

    def __init__(self, client: Client, flights: Flights, teller: Teller, patience_s: float) -> None:
        self._client = client
        self._flights = flights
        self._teller = teller
        self._asked: set[str] = set()  # tasks
        self._lone = Patience(patience_s, patience_s)

    async def ask(self, folders: Folders, urgent: Sequence[str], unfinished: Patience) -> None:
        tasks = {self._flights.task(name) for name in urgent if self._flights.is_running(name)}
        self._asked &= tasks
        wanted = tasks - self._asked
        if wanted:
            await self._cancel(sorted(wanted))
            self._asked |= wanted
        self._lone.keep(urgent)
        for name in urgent:
            if not (is_hidden(name) or name in self._flights or name in unfinished):
                await self._look_for(folders, name)

    async def _cancel(self, tasks: Sequence[str]) -> None:
        """One that has ended this moment is answered by what it came to."""
        try:
            await self._client.cancel(*tasks)
        except UnknownTask:
            if len(tasks) > 1:
                for task in tasks:
                    await self._cancel([task])

    async def _look_for(self, folders: Folders, name: str) -> None:
        """It has no request: that was answered, or is on its way, or was never sent."""
        if is_there(folders.requests, name):
            return  # it is taken in by the next look
        over = folders.is_answered(name) or is_there(folders.done, name)
        if over or self._lone.is_over(name, None, time.monotonic()):
            gone = await asyncio.to_thread(take_back, folders, name)
            if not over and gone:
                place = f"{folders.layout.urgent}/{told_name(name)}"
                self._teller.note(f"{place}: there is no request of that name to cancel; removed")
