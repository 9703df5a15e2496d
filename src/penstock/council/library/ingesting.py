"""Putting a folder into a collection: find what changed, read it, and hand it to the library through the queue.

Files are read here, by who was asked, and the library only ever sees texts. A bounded number of tasks is under way
at a time. Whatever ends this, at whatever moment, the collection's account says what is there: the next time goes
on from that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.config.councils import LIBRARY, Council
from penstock.council.library import documents, ingest
from penstock.council.library.chunks import cut
from penstock.council.library.documents import Aside, File, Found
from penstock.council.library.door import INTERRUPTED, Door, Endings, Run, collection_of, manifest, why_not
from penstock.council.library.formats import NoText, Unreadable
from penstock.council.library.ingested import Ingested, Options, Progress
from penstock.council.library.reading import Reader, reading
from penstock.errors import LibraryError, UsageError
from penstock.lifecycle import ENDED
from penstock.model import State, Task, TaskRecord
from penstock.store.base import TaskFilter

_MOST_TASKS = 64  # under way at a time
_MOST_BYTES = 16 * 1024 * 1024  # of them
_GIVE_UP_AFTER = 20  # files that the library refused, before it took a single one
_PRIORITY = 3  # a question that comes meanwhile goes first
_FRAME_BYTES = 4096  # of a payload, beside its texts
_JSON_SIGNS = 2  # bytes that one byte of text may take in JSON; only signs of control take more


@dataclass(slots=True)
class _Sent:
    """A file under way."""

    file: File
    parts: int
    passages: int
    failed: bool = False


class Ingestion:
    """One folder's. `run()` does all of it; `stop()` ends it soon, and leaves what is under way to the queue."""

    def __init__(self, door: Door, council: Council, folder: Path, options: Options) -> None:
        self._root = checked(council, folder, options)
        self._collection = collection_of(council)
        self.progress = Progress()
        self._door = door
        self._council = council
        self._folder = folder
        self._options = options
        self._stopping = False
        self._tasks: dict[str, tuple[_Sent, int, float]] = {}  # under way: their file, passages, bytes
        self._removing: dict[str, list[str]] = {}
        self._under_way_bytes = 0.0
        self._begun: Run | None = None
        self._endings: Endings | None = None
        self._reader: Reader | None = None

    def stop(self) -> None:
        """A file that is being read is left: of it nothing was sent."""
        self._stopping = True
        if self._reader is not None:
            self._reader.give_up()

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    async def run(self) -> Ingested:
        began = time.monotonic()
        found = await asyncio.to_thread(documents.find, self._folder)
        root = self._root
        stamps = await asyncio.to_thread(self._stamps, root, found)
        await self._wait_for_others()
        self.progress.phase = "asking"
        if self._stopping:
            raise LibraryError(INTERRUPTED)
        held = await self._held()
        plan = ingest.plan(root, stamps, held, lambda source: _is_unseen(root, found, source))
        if not found.files and plan.remove and not self._options.may_empty:
            raise UsageError(
                f"{self._folder}: holds no document, but {len(plan.remove)} were ingested from it; "
                "--empty removes them from the collection"
            )
        self._told = self._report(root, plan, found)
        self._told.elsewhere = [one for one, made in held.items() if not made and not root.holds(one)]
        self.progress.plan = plan
        if not self._options.dry_run:
            await self._work(root, plan, found)
        self._told.stopped = self._stopping
        self._told.took_s = time.monotonic() - began
        return self._told

    def _report(self, root: ingest.Root, plan: ingest.Plan, found: Found) -> Ingested:
        return Ingested(
            self._council.name,
            self._collection,
            str(self._folder),
            root.name,
            self._options.dry_run,
            plan,
            left_out=found.left_out,
            failed=found.failed,
        )

    def _stamps(self, root: ingest.Root, found: Found) -> dict[str, str]:
        """Of every file that can be read; what turns out to be no document leaves `found`."""
        stamps: dict[str, str] = {}
        kept: list[File] = []
        for file in found.files:
            if self._stopping:
                break
            try:
                data = documents.load(file)
            except Unreadable as error:
                found.failed.append(Aside(file.source, str(error)))
                continue
            if not documents.is_text(file, data):
                found.left_out.append(Aside(file.source, "binary"))
                continue
            kept.append(file)
            stamps[root.source(file.source)] = ingest.stamp(root, file.form, data, self._options.chunking)
        found.files = kept
        return stamps

    # ---- what is there

    async def _wait_for_others(self) -> None:
        """What an interrupted ingest left in the queue is done first: the account tells of it afterwards."""
        live = TaskFilter(states=(State.QUEUED, State.RUNNING), kind=LIBRARY)
        waited_for: set[str] = set()
        async with self._door.watching() as watch:
            while not self._stopping:
                if not waited_for:
                    waited_for = {one.task.id for one in await self._door.tasks(live) if self._changes(one)}
                if not waited_for:
                    return
                self.progress.phase = "waiting"
                await watch()
                states = await self._door.states(waited_for)
                waited_for = {id for id, state in states.items() if state not in ENDED}

    def _changes(self, record: TaskRecord) -> bool:
        payload = record.task.payload
        return (
            isinstance(payload, Mapping)
            and payload.get("do") in ("upsert", "remove")
            and payload.get("council") == self._council.name
        )

    async def _held(self) -> dict[str, str]:
        run = time.strftime(f"ingest-{self._council.name}-%Y%m%d-%H%M%S")
        self._begun, value = await manifest(self._door, self._council, run, lambda: self._stopping)
        self._endings = self._begun.endings()
        self.progress.run = self._begun.name
        held: dict[str, str] = value["sources"]
        return held

    # ---- what is to be done

    async def _work(self, root: ingest.Root, plan: ingest.Plan, found: Found) -> None:
        told, progress = self._told, self.progress
        assert self._begun is not None
        told.run = self._begun.name
        files = {root.source(file.source): file for file in found.files}
        progress.phase = "working"
        progress.files = len(plan.todo)
        progress.bytes = sum(files[source].size_bytes for source in plan.todo)
        await self._send_removals(plan.remove)
        todo = iter(plan.todo)
        async with reading() as reader, self._door.watching() as watch:
            self._reader = reader
            while True:
                more = await self._send_some(root, files, todo, reader)
                ended = await self._take()
                if not (self._tasks or self._removing) and not more:
                    return
                if self._is_over:
                    return
                if not ended and not (more and self._has_room()):
                    await watch()

    @property
    def _is_over(self) -> bool:
        return self._stopping or self._told.gave_up

    def _has_room(self) -> bool:
        return len(self._tasks) < _MOST_TASKS and self._under_way_bytes < _MOST_BYTES

    async def _send_removals(self, sources: Sequence[str]) -> None:
        if payloads := list(ingest.removals(self._council.name, sources)):
            ids = await self._submit(payloads)
            self._removing.update(zip(ids, (payload["sources"] for payload in payloads), strict=True))

    async def _submit(self, payloads: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        assert self._begun is not None
        assert self._endings is not None
        tasks = [Task(LIBRARY, payload, priority=_PRIORITY) for payload in payloads]
        sent = await self._door.submit_many(tasks, run=self._begun.name)
        self._endings.add(sent.task_ids)
        return sent.task_ids

    async def _send_some(
        self, root: ingest.Root, files: Mapping[str, File], todo: Iterator[str], reader: Reader
    ) -> bool:
        """Read on and send, while there is room, but not for long; whether there may be more."""
        until = time.monotonic() + 0.25
        while not self._is_over and self._has_room():
            source = next(todo, None)
            if source is None:
                return False
            await self._send(root, source, files[source], reader)
            if time.monotonic() > until:
                return True
        return not self._is_over

    async def _send(self, root: ingest.Root, source: str, file: File, reader: Reader) -> None:
        try:
            data = await asyncio.to_thread(documents.load, file)
            document = await reader.read(file.form, data)
            chunking = self._options.chunking
            chunks = await asyncio.to_thread(cut, document.form, document.sections, chunking)
            made = ingest.stamp(root, file.form, data, chunking)
            most_bytes = min(ingest.MOST_BYTES, self._most_text_bytes())
            payloads = list(ingest.upserts(self._council.name, source, made, chunks, most_bytes))
        except NoText as error:
            self._told.left_out.append(Aside(file.source, str(error)))
            if source in self._told.plan.change:  # what it held is not there any more
                await self._send_removals([source])
            self._file_done(file)
            return
        except Unreadable as error:
            if not self._stopping:
                self._fail(file, str(error))
            return
        if document.note is not None:
            self._told.notes.append(Aside(file.source, document.note))
        sent = _Sent(file, len(payloads), len(chunks))
        share = file.size_bytes / len(payloads)
        try:
            ids = await self._submit(payloads)
        except UsageError as error:  # such as a passage that is over the limit of payloads
            self._fail(file, str(error))
            return
        for id, payload in zip(ids, payloads, strict=True):
            self._tasks[id] = sent, len(payload["passages"]), share
            self._under_way_bytes += share

    def _most_text_bytes(self) -> int:
        return max(1, (self._options.payload_limit_bytes - _FRAME_BYTES) // _JSON_SIGNS)

    # ---- what came of it

    async def _take(self) -> bool:
        assert self._endings is not None
        records = await self._endings.take()
        for record in records:
            if (sources := self._removing.pop(record.task.id, None)) is not None:
                self._removed(record, sources)
            elif (under_way := self._tasks.pop(record.task.id, None)) is not None:
                self._part_ended(record, *under_way)
        return bool(records)

    def _removed(self, record: TaskRecord, sources: list[str]) -> None:
        if record.state is State.DONE:
            self._told.removed += sources
            return
        for source in sources:
            self._told.failed.append(Aside(source, f"could not be removed: {why_not(record)}"))
        self.progress.failed += len(sources)

    def _part_ended(self, record: TaskRecord, sent: _Sent, passages: int, share: float) -> None:
        progress = self.progress
        self._under_way_bytes -= share
        sent.parts -= 1
        if record.state is State.DONE:
            progress.passages += passages
            self._told.passages += passages
            progress.bytes_done += int(share)
        elif not sent.failed:
            sent.failed = True
            self._fail(sent.file, why_not(record))
        if not sent.parts and not sent.failed:
            progress.files_done += 1
            source = f"{self._told.name}/{sent.file.source}"
            (self._told.changed if source in self._told.plan.change else self._told.added).append(source)

    def _file_done(self, file: File) -> None:
        self.progress.files_done += 1
        self.progress.bytes_done += file.size_bytes

    def _fail(self, file: File, why: str) -> None:
        self._told.failed.append(Aside(file.source, why))
        self.progress.failed += 1
        self.progress.bytes_done += file.size_bytes
        if self.progress.failed >= _GIVE_UP_AFTER and not self.progress.files_done:
            self._told.gave_up = True


def checked(council: Council, folder: Path, options: Options) -> ingest.Root:
    """What the folder is in its collection; whatever is wrong with the request is told before anything begins."""
    collection_of(council)
    if (wrong := options.chunking.problem()) is not None:
        raise UsageError(f"ingest: {wrong}")
    return ingest.root_of(str(documents.resolved(folder)), options.name)


def _is_unseen(root: ingest.Root, found: Found, source: str) -> bool:
    return found.is_unseen(source.removeprefix(f"{root.name}/"))
