"""Straight on `issues.jsonl`, where there is no database: each change locked, whole or not at all, and merged.

A change is a function from the file as it is to the fields it sets. It is asked again when somebody else wrote
between reading and writing, whether or not they know our lock: what stood in the file's place at that moment
comes back from the exchange, and what they changed is carried into ours. Nothing of theirs is overwritten.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.intake.beads.atomic import Displaced, Settled, exchanged, unseen
from penstock.intake.beads.claims import FOLDER
from penstock.intake.beads.issues import BLOCKED, CLOSED, IN_PROGRESS, OPEN, Issue, stamp
from penstock.intake.beads.lines import REMOVED, Changes, Document, Inside, merged
from penstock.intake.beads.readiness import Readiness, ready
from penstock.intake.beads.reports import OURS, Report, appended, shows
from penstock.intake.beads.tracker import Place, TrackerFault, is_unclaimed_by_others, may_claim

Choose = Callable[[Document], Changes]

_ROUNDS = 1000  # of merging with those who write meanwhile
_KEPT = 32  # files that were in place before, and that somebody may have open still
_SETTLE_S = 0.5  # how long somebody may take to write the rest of a line
_SETTLE_STEP_S = 0.01


class JsonlFile:
    """The file, changed by functions of what it holds. All methods block."""

    def __init__(self, path: Path, lock: Path) -> None:
        self.path = path
        self._lock = lock
        self._displaced: list[Displaced] = []
        self._last: Document | None = None
        self._tail: bytes | None = None  # the line whose end we waited for in vain
        self._missed: frozenset[str] = frozenset()  # issues that we waited for in vain
        self._one_at_a_time = threading.RLock()  # of the threads of this process

    def open(self) -> None:
        """See that it can be read; what killed writers left is merged and cleared."""
        self.change(lambda _: {})
        self.read()

    def close(self) -> None:
        if any(one.has_changed() for one in self._displaced):
            self.change(lambda _: {})
        for one in self._displaced:
            one.close()
        self._displaced = []

    def read(self) -> Document:
        """What it holds; a line that is just being written is waited for, a little."""
        with self._one_at_a_time:
            if any(one.has_changed() for one in self._displaced):
                self.change(lambda _: {})
            return self._parsed(self._settled(self._bytes, frozenset()))

    def change(self, choose: Choose, about: Sequence[str] = ()) -> tuple[Document, Changes]:
        """Set what `choose` says; the file as it was before, with others' changes, and what was set.

        Issues that it is `about` are waited for, a little: whoever writes the file in place empties it first.
        """

        with self._locked():
            return self._changed(choose, lambda read: self._settled(read, frozenset(about)))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone, among all who know the lock; what the disk refuses is told."""
        from filelock import FileLock

        lock = FileLock(self._lock, thread_local=False, is_singleton=False)
        try:
            with self._one_at_a_time, lock.acquire(poll_interval=0.03):
                yield
        except OSError as error:
            raise TrackerFault(
                f"{self.path}: {error.strerror}; check the disk, and who may write there"
            ) from None

    def _changed(self, choose: Choose, settled: Settled) -> tuple[Document, Changes]:
        there = settled(self._bytes)  # what stands in the file, as far as we know
        left, files = unseen(self.path)  # by the dead: under the lock nobody else writes
        data = self._with_late_changes(there, settled)
        for one in left:
            data = merged(one.expected, one.was, data)
        document = self._parsed(data)
        result = self._put(choose, settled, there, document)
        for file in files:  # only when what they hold has its place
            with suppress(OSError):
                file.unlink()
        return result

    def _put(
        self, choose: Choose, settled: Settled, there: bytes, document: Document
    ) -> tuple[Document, Changes]:
        """Set what `choose` says of a document that is `there` but for what others changed elsewhere."""
        for _ in range(_ROUNDS):
            changes = choose(document)
            wanted = document.changed(changes)
            if wanted == there:
                return document, changes
            was, put, displaced = exchanged(self.path, wanted, there, settled)
            if displaced is not None:
                self._displaced.append(displaced)
            if was == there:
                return document, changes
            # Somebody else wrote. What they changed goes into the file as it would be without us.
            theirs = was if there == document.data else merged(there, was, document.data)
            document = self._parsed(theirs)
            there = wanted if put else was
        raise TrackerFault(
            f"{self.path} is rewritten all the time by somebody else; stop them, or use a database"
        )

    def _with_late_changes(self, data: bytes, settled: Settled) -> bytes:
        """With what was written to a file after we had put another in its place, by whoever had it open."""
        for one in self._displaced:
            if one.has_changed():
                before = one.content
                one.take(settled)
                data = merged(before, one.content, data)
        for one in self._displaced[:-_KEPT]:
            one.close()
        self._displaced = self._displaced[-_KEPT:]
        return data

    def _settled(self, read: Callable[[], bytes], about: frozenset[str]) -> bytes:
        """What is read once it looks whole, or has not for too long; what was waited for once is not again."""
        end = time.monotonic() + _SETTLE_S
        seen: bytes | None = None
        while True:
            data = read()
            if data != seen:
                seen = data
                document = self._parsed(data)
                missing = about.difference(document.lines)
                if document.tail in (None, self._tail) and missing <= self._missed:
                    self._missed -= about - missing  # what has come back may be emptied again
                    return data
            if time.monotonic() > end:
                self._tail = document.tail
                self._missed |= missing
                return data
            time.sleep(_SETTLE_STEP_S)

    def _parsed(self, data: bytes) -> Document:
        """What was parsed last is not parsed again: a file is looked at more often than it changes."""
        if self._last is None or self._last.data != data:
            self._last = Document(data, self._last)
        return self._last

    def _bytes(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise TrackerFault(f"{self.path}: {error.strerror}; check who may read it") from None


class JsonlTracker:
    at_once = 100_000
    is_nested = False
    is_costly = False
    doubt_s = 0.25

    def __init__(self, place: Place, actor: str) -> None:
        self.name = str(place.jsonl)
        self._file = JsonlFile(place.jsonl, place.beads / FOLDER / "jsonl.lock")
        self._actor = actor

    async def open(self) -> None:
        await asyncio.to_thread(self._file.open)

    async def close(self) -> None:
        await asyncio.to_thread(self._file.close)

    async def look(self, now: float) -> Readiness:
        document = await asyncio.to_thread(self._file.read)
        strange = {
            raw.decode(errors="replace"): f"{self._file.path}:{number}"
            for number, raw in document.no_issues().items()
        }
        return ready(document.issues, now)._replace(strange=strange)

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

    async def finish(self, reports: Mapping[str, Report]) -> Collection[str]:
        ours: set[str] = set()

        def choose(document: Document) -> Changes:
            ours.clear()
            changes: dict[str, dict[str, Any]] = {}
            for id, report in reports.items():
                if (line := document.lines.get(id)) is not None:
                    changes[id] = _told(line.issue, report)
                    if is_unclaimed_by_others(line.issue, self._actor):
                        ours.add(id)
                        changes[id] |= _ended(report)
            return changes

        await asyncio.to_thread(self._file.change, choose, list(reports))
        return ours

    async def untold(self, reports: Mapping[str, Report]) -> Collection[str]:
        document = await asyncio.to_thread(self._file.read)
        lines = document.lines
        return [id for id, report in reports.items() if id in lines and not shows(lines[id].issue, report)]

    async def give_back(self, ids: Sequence[str], now: float) -> Sequence[str]:
        def choose(document: Document) -> Changes:
            lines = {id: document.lines[id] for id in ids if id in document.lines}
            fields = {"status": OPEN, "assignee": REMOVED, "updated_at": stamp(now)}
            return {
                id: fields for id, line in lines.items() if is_unclaimed_by_others(line.issue, self._actor)
            }

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
