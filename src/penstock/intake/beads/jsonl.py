"""Straight on `issues.jsonl`, where there is no database: each change locked, whole or not at all, and merged.

A change is a function from the file as it is to the fields it sets. It is asked again when somebody else wrote
between reading and writing, whether or not they know our lock: what stood in the file's place at that moment
comes back from the exchange, and what they changed is carried into ours. Nothing of theirs is overwritten.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.intake.beads.atomic import Settled, exchanged
from penstock.intake.beads.claims import FOLDER
from penstock.intake.beads.issues import BLOCKED, CLOSED, IN_PROGRESS, OPEN, Issue, stamp
from penstock.intake.beads.lines import REMOVED, Changes, Document, Inside, merged
from penstock.intake.beads.readiness import Readiness, ready
from penstock.intake.beads.reports import OURS, Report, appended
from penstock.intake.beads.tracker import Place, TrackerFault, is_ours, may_claim

Choose = Callable[[Document], Changes]

_ROUNDS = 1000  # of merging with those who write meanwhile
_SETTLE_S = 0.5  # how long somebody may take to write the rest of a line
_SETTLE_STEP_S = 0.01


class JsonlFile:
    """The file, changed by functions of what it holds. All methods block."""

    def __init__(self, path: Path, lock: Path) -> None:
        self.path = path
        self._lock = lock

    def read(self) -> Document:
        """What it holds; a line that is just being written is waited for, a little."""
        return Document(_settled(self._bytes, lambda document: not document.is_half_written))

    def change(self, choose: Choose, about: Sequence[str] = ()) -> tuple[Document, Changes]:
        """Set what `choose` says; the file as it was before, with others' changes, and what was set.

        Issues that it is `about` are waited for, a little: whoever writes the file in place empties it first.
        """
        from filelock import FileLock

        def is_whole(document: Document) -> bool:
            return not document.is_half_written and all(id in document.lines for id in about)

        lock = FileLock(self._lock, thread_local=False, is_singleton=False)
        with lock.acquire(poll_interval=0.01):
            return self._changed(choose, lambda read: _settled(read, is_whole))

    def _changed(self, choose: Choose, settled: Settled) -> tuple[Document, Changes]:
        document = Document(settled(self._bytes))
        there = document.data  # what stands in the file, as far as we know
        for _ in range(_ROUNDS):
            changes = choose(document)
            wanted = document.changed(changes)
            if wanted == there:
                return document, changes
            was, put = exchanged(self.path, wanted, there, settled)
            if was == there:
                return document, changes
            # Somebody else wrote. What they changed goes into the file as it would be without us.
            theirs = was if there == document.data else merged(there, was, document.data)
            document = Document(theirs)
            there = wanted if put else was
        raise TrackerFault(
            f"{self.path} is rewritten all the time by somebody else; stop them, or use a database"
        )

    def _bytes(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise TrackerFault(f"{self.path}: {error.strerror}; check who may read it") from None


def _settled(read: Callable[[], bytes], is_whole: Callable[[Document], bool]) -> bytes:
    """What is read once it looks whole, or has not for too long."""
    end = time.monotonic() + _SETTLE_S
    while True:
        data = read()
        if is_whole(Document(data)) or time.monotonic() > end:
            return data
        time.sleep(_SETTLE_STEP_S)


class JsonlTracker:
    at_once = 100_000
    is_nested = False
    is_costly = False

    def __init__(self, place: Place, actor: str) -> None:
        self.name = str(place.jsonl)
        self._file = JsonlFile(place.jsonl, place.beads / FOLDER / "jsonl.lock")
        self._actor = actor

    async def open(self) -> None:
        await asyncio.to_thread(self._file.read)

    async def look(self, now: float) -> Readiness:
        document = await asyncio.to_thread(self._file.read)
        return ready(document.issues, now)

    async def find(self, ids: Sequence[str]) -> Mapping[str, Issue]:
        document, _ = await asyncio.to_thread(self._file.change, lambda _: {}, ids)
        return {id: document.lines[id].issue for id in ids if id in document.lines}

    async def claim(self, ids: Sequence[str], now: float) -> Mapping[str, Issue]:
        def choose(document: Document) -> Changes:
            free = {issue.id for issue in ready(document.issues, now).ready if may_claim(issue, self._actor)}
            fields = {"status": IN_PROGRESS, "assignee": self._actor, "updated_at": stamp(now)}
            return {id: fields for id in ids if id in free}

        document, changes = await asyncio.to_thread(self._file.change, choose, ids)
        return {id: document.lines[id].issue for id in changes}

    async def finish(self, id: str, report: Report) -> bool:
        kept = True

        def choose(document: Document) -> Changes:
            nonlocal kept
            line = document.lines.get(id)
            if line is None:
                kept = False
                return {}
            kept = is_ours(line.issue, self._actor)
            return {id: _told(line.issue, report) | (_ended(report) if kept else {})}

        await asyncio.to_thread(self._file.change, choose, [id])
        return kept

    async def give_back(self, ids: Sequence[str], now: float) -> Sequence[str]:
        def choose(document: Document) -> Changes:
            lines = {id: document.lines[id] for id in ids if id in document.lines}
            fields = {"status": OPEN, "assignee": REMOVED, "updated_at": stamp(now)}
            return {id: fields for id, line in lines.items() if is_ours(line.issue, self._actor)}

        _, changes = await asyncio.to_thread(self._file.change, choose, ids)
        return list(changes)

    def signature(self) -> object:
        try:
            found = os.stat(self._file.path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def is_data(self, path: str) -> bool:
        return os.path.basename(path) == self._file.path.name


def _told(issue: Issue, report: Report) -> dict[str, Any]:
    return {
        "notes": appended(issue.notes, report.notes),
        "metadata": Inside({OURS: dict(report.metadata)}),
        "updated_at": stamp(report.at),
    }


def _ended(report: Report) -> dict[str, Any]:
    if report.status == CLOSED:
        return {"status": CLOSED, "closed_at": stamp(report.at), "close_reason": report.reason}
    return {"status": BLOCKED, "assignee": REMOVED}
