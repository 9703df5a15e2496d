"""Through `bd` or `br`, where Beads has a database: argument lists, no shell; what is printed decides, no status.

Versions differ. A claim that lost ends with status 1 in some and 0 in others, with nothing printed; errors are
JSON on stdout or text on stderr; lists come bare or in an envelope; options come and go. What the program can do
is read from its own help once, and every step is believed only when the issue that it prints says so. Several
processes can win the same claim in some versions: whoever calls `claim` holds a lock of ours.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.intake.beads.claims import FOLDER
from penstock.intake.beads.issues import CLOSED, IN_PROGRESS, OPEN, Issue
from penstock.intake.beads.lines import issues_of
from penstock.intake.beads.readiness import Readiness, is_work, order
from penstock.intake.beads.reports import OURS, Report, appended, one_line
from penstock.intake.beads.tracker import Place, TrackerFault, is_ours, is_unclaimed_by_others, may_claim

_TIMEOUT_S = 120.0
_TRIES = 6  # while the database is locked by somebody else
_FIRST_WAIT_S = 0.1
_SHOWN_AT_ONCE = 50
_BUSY = ("database is locked", "database table is locked", "busy", "could not acquire", "lock timeout")


class Said(NamedTuple):
    status: int
    values: tuple[Any, ...] | None  # what it printed as JSON; None when that was none
    error: str  # empty when it told of none


class ProgramTracker:
    at_once = 1  # each takes a call; the lock is not kept for many of them
    is_nested = True
    is_costly = True
    doubt_s = 0.0

    def __init__(self, place: Place, actor: str, program: str) -> None:
        self.name = f"{place.beads} through {os.path.basename(program)}"
        self._place = place
        self._actor = actor
        self._program = program
        self._options: Mapping[str, str] = {}  # command -> its help

    async def open(self) -> None:
        """Find out what the program can do, and that it can read the issues at all."""
        self._options = {command: await self._help(command) for command in ("update", "close")}
        await self._must("ready", "--limit", "1")

    async def close(self) -> None:
        pass

    # ---- reading

    async def look(self, now: float) -> Readiness:
        """What the program calls ready, less what is worked on already."""
        listed = issues_of(await self._must("ready", "--limit", "0"))
        found = [issue for issue in listed if is_work(issue, now)]
        whole = await self.find([issue.id for issue in found])  # lists may lack labels
        issues = [issue for issue in whole.values() if is_work(issue, now)]
        return Readiness(tuple(sorted(issues, key=order)), {}, None)

    async def find(self, ids: Sequence[str]) -> Mapping[str, Issue]:
        found: dict[str, Issue] = {}
        for start in range(0, len(ids), _SHOWN_AT_ONCE):
            some = ids[start : start + _SHOWN_AT_ONCE]
            said = await self._run("show", *some)
            if said.values is None and len(some) > 1:  # one that is gone may spoil it for the others
                for id in some:
                    found |= await self.find([id])
            else:
                found |= {issue.id: issue for issue in issues_of(said.values or ())}
        return {id: found[id] for id in ids if id in found}

    # ---- changing

    async def claim(self, ids: Sequence[str], now: float) -> Mapping[str, Issue]:
        won = {}
        for id in ids:
            before = (await self.find([id])).get(id)
            if before is None or not is_work(before, now) or not may_claim(before, self._actor):
                continue
            if "--claim" in self._options["update"] and not before.assignee:
                await self._update(id, "--claim")
            else:
                await self._update(id, "--status", IN_PROGRESS, "--assignee", self._actor)
            after = (await self.find([id])).get(id)  # its own word is not enough: read again
            if after is not None and is_ours(after, self._actor):
                won[id] = before
        return won

    async def finish(self, reports: Mapping[str, Report]) -> Collection[str]:
        return [id for id, report in reports.items() if await self._finish(id, report)]

    async def untold(self, reports: Mapping[str, Report]) -> Collection[str]:
        """A database forgets nothing."""
        return ()

    async def _finish(self, id: str, report: Report) -> bool:
        issue = (await self.find([id])).get(id)
        if issue is None:
            return False
        ours = is_unclaimed_by_others(issue, self._actor)
        told = self._told(issue, report)
        if not ours:
            await self._changed(id, *told)
            return False
        if report.status != CLOSED:
            await self._changed(id, "--status", report.status, "--assignee", "", *told)
            return True
        await self._changed(id, *told)
        await self._close(id, report)
        return True

    async def give_back(self, ids: Sequence[str], now: float) -> Sequence[str]:
        found = await self.find(ids)
        ours = [id for id, issue in found.items() if is_unclaimed_by_others(issue, self._actor)]
        for id in ours:
            await self._changed(id, "--status", OPEN, "--assignee", "")
        return ours

    def _told(self, issue: Issue, report: Report) -> list[str]:
        if "--append-notes" in self._options["update"]:
            arguments = ["--append-notes", report.notes]
        else:
            arguments = ["--notes", appended(issue.notes, report.notes)]
        if "--metadata" in self._options["update"]:
            arguments += ["--metadata", json.dumps({**issue.metadata, OURS: dict(report.metadata)})]
        return arguments

    async def _close(self, id: str, report: Report) -> None:
        said = await self._run("close", id, "--reason", report.reason, "--actor", self._actor)
        if await self._is_closed(id):
            return
        if "--force" in self._options["close"]:  # somebody gave it a blocker while it was worked on
            said = await self._run("close", id, "--reason", report.reason, "--force", "--actor", self._actor)
            if await self._is_closed(id):
                return
        raise TrackerFault(f"{self._shown('close', id)}: {said.error or 'the issue is still open'}")

    async def _is_closed(self, id: str) -> bool:
        issue = (await self.find([id])).get(id)
        return issue is None or issue.status == CLOSED

    async def _changed(self, id: str, *arguments: str) -> None:
        said = await self._update(id, *arguments)
        if said.status != 0 or not issues_of(said.values or ()):
            raise TrackerFault(
                f"{self._shown('update', id)}: {said.error or 'it did not say that it was done'}"
            )

    async def _update(self, id: str, *arguments: str) -> Said:
        return await self._run("update", id, *arguments, "--actor", self._actor)

    # ---- what is new

    def signature(self) -> object:
        """Of the files that hold data, as far as they can be seen; what a read leaves behind is not among them."""
        found = []
        for folder, folders, files in os.walk(self._place.beads):
            folders[:] = [name for name in folders if name != FOLDER]
            for name in files:
                path = os.path.join(folder, name)
                if self.is_data(path):
                    with_stat = _stat(path)
                    if with_stat is not None:
                        found.append((path, *with_stat))
        return tuple(sorted(found))

    def is_data(self, path: str) -> bool:
        parts = Path(path).parts
        name = parts[-1]
        if FOLDER in parts[len(self._place.beads.parts) :] or name.endswith(
            (".lock", "-shm", ".log", ".sock", ".pid")
        ):
            return False
        return name.endswith((".jsonl", ".db", "-wal")) or "noms" in parts

    # ---- calls

    async def _help(self, command: str) -> str:
        status, out, err = await self._call([self._program, command, "--help"])
        if status != 0:
            raise TrackerFault(
                f"{self._program} {command} --help: {one_line(err or out)}; is it Beads? Name it: [beads] program"
            )
        return out

    async def _must(self, *arguments: str) -> tuple[Any, ...]:
        said = await self._run(*arguments)
        if said.values is None or (said.error and said.status != 0):
            raise TrackerFault(f"{self._shown(*arguments)}: {said.error or 'it printed no JSON'}")
        return said.values

    async def _run(self, *arguments: str) -> Said:
        wait_s = _FIRST_WAIT_S
        for attempt in range(_TRIES):
            said = _said(*await self._call([self._program, *arguments, "--json"]))
            busy = said.error.lower()
            if attempt + 1 == _TRIES or not any(word in busy for word in _BUSY):
                break
            await asyncio.sleep(wait_s)
            wait_s *= 2
        return said

    async def _call(self, argv: Sequence[str]) -> tuple[int, str, str]:
        environment = {**os.environ, "BEADS_DIR": str(self._place.beads), "NO_COLOR": "1"}
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=self._place.root,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            if error.errno == errno.E2BIG:
                what = f"what {argv[2]} is to be told is too long for an argument"
                raise TrackerFault(
                    f"{self._shown(*argv[1:])}: {what}; shorten its metadata or notes"
                ) from None
            raise TrackerFault(f"{argv[0]}: {error.strerror}; [beads] program names another") from None
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                out, err = await process.communicate()
        except TimeoutError:
            raise TrackerFault(f"{' '.join(argv[:3])}: has not answered for {_TIMEOUT_S:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")

    def _shown(self, *arguments: str) -> str:
        return " ".join([os.path.basename(self._program), *arguments[:2]])


def _said(status: int, out: str, err: str) -> Said:
    """What was printed: a list, one issue, an envelope around either, or an error as JSON or text."""
    values: tuple[Any, ...] | None = None
    error = ""
    try:
        told = json.loads(out) if out.strip() else None
    except ValueError:
        told = None
        error = one_line(out)
    if isinstance(told, dict) and told.get("error") and "id" not in told:
        error = one_line(str(told["error"]))
        told = None
    elif isinstance(told, dict) and "data" in told and "schema_version" in told:
        told = told["data"]
    if error:
        pass
    elif isinstance(told, list):
        values = tuple(told)
    elif isinstance(told, dict):
        values = (told,)
    elif not out.strip() and status == 0 and not err.strip():
        values = ()
    if values is None and not error:
        error = one_line(err) or f"exit status {status}"
    return Said(status, values, error)


def _stat(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
