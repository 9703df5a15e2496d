"""What a queue of issues must do, and which way leads to the one in a folder.

Where Beads has a database, only its own program may write; where it has none, `issues.jsonl` is the truth.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock.config.beads import Beads
from penstock.errors import UsageError
from penstock.intake.beads.issues import IN_PROGRESS, OPEN, Issue
from penstock.intake.beads.readiness import Readiness
from penstock.intake.beads.reports import Report

FOLDER = ".beads"
JSONL = ("issues.jsonl", "beads.jsonl")
_DOLT = ("dolt", "embeddeddolt", ".dolt")
_PROGRAMS = ("bd", "br")
_NO_DATABASE = re.compile(r"^[ \t]*no-db[ \t]*:[ \t]*true\b", re.MULTILINE)


class TrackerFault(Exception):
    """The issues cannot be read or changed, now; the message tells why."""


class Tracker(Protocol):
    """Issues of one folder. Nothing here is done for an issue that somebody else has changed meanwhile."""

    name: str  # for people: how it is reached
    at_once: int  # issues that are best claimed together
    is_nested: bool  # whether what is to be watched lies in folders below
    is_costly: bool  # whether to look takes so much that it is not done at every change
    doubt_s: float  # how long others may take from reading to writing who know of no lock; 0 when nobody can

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def look(self, now: float) -> Readiness: ...

    async def find(self, ids: Sequence[str]) -> Mapping[str, Issue]:
        """These issues as they are; those that are gone are left out."""

    async def claim(self, ids: Sequence[str], now: float) -> Mapping[str, Issue]:
        """Those of them that are ours from now on."""

    async def finish(self, reports: Mapping[str, Report]) -> Collection[str]:
        """Close or block issues; those that were ours still. The others are told in their notes alone."""

    async def untold(self, reports: Mapping[str, Report]) -> Collection[str]:
        """Issues that are there and do not show any more what they were told."""

    async def give_back(self, ids: Sequence[str], now: float) -> Sequence[str]:
        """Open issues of ours again; those that were."""

    def signature(self) -> object:
        """What its files look like from outside; equal means that there is nothing new."""

    def is_data(self, path: str) -> bool:
        """Whether a change of that file may mean anything."""


def is_ours(issue: Issue, actor: str) -> bool:
    return issue.status == IN_PROGRESS and issue.assignee == actor


def is_unclaimed_by_others(issue: Issue, actor: str) -> bool:
    """Whether what we claimed is still for us to end. Somebody may have written an older state over our claim."""
    return issue.status in (OPEN, IN_PROGRESS) and issue.assignee in ("", actor)


def may_claim(issue: Issue, actor: str) -> bool:
    """What is assigned to somebody is theirs to begin."""
    return issue.assignee in ("", actor)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the issues of a folder are. With a `database` only a program may write."""

    root: Path  # the folder that has .beads
    beads: Path
    jsonl: Path
    database: str | None


def find_place(folder: Path) -> Place:
    """The issues of a folder, which may be .beads itself."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    beads = folder if folder.name == FOLDER else folder / FOLDER
    if not beads.is_dir():
        raise UsageError(
            f"{folder} has no {FOLDER} folder; run `bd init` there, or name the folder that has one"
        )
    root = beads.absolute().parent
    beads = _followed(beads)
    names = [_named_jsonl(beads), *JSONL]
    jsonl = next((beads / name for name in names if name and (beads / name).exists()), beads / JSONL[0])
    return Place(root, beads, jsonl.resolve(), _database(beads))


def open_tracker(place: Place, rules: Beads) -> Tracker:
    if place.database is None:
        from penstock.intake.beads.jsonl import JsonlTracker

        return JsonlTracker(place, rules.actor)
    from penstock.intake.beads.program import ProgramTracker

    return ProgramTracker(place, rules.actor, _program(place, rules))


def _program(place: Place, rules: Beads) -> str:
    names = _PROGRAMS if rules.program is None else (rules.program,)
    for name in names:
        if (found := shutil.which(name)) is not None:
            return found
    if rules.program is not None:
        raise UsageError(f"beads.program: {rules.program!r} is not a program; install it, or name its path")
    raise UsageError(
        f"{place.beads} has a database ({place.database}), which only `bd` may write, and bd is not on the PATH; "
        "install it, or name it in penstock.toml: [beads] program"
    )


def _database(beads: Path) -> str | None:
    """The name of the database, if there is one."""
    metadata = _metadata(beads)
    if _NO_DATABASE.search(_text(beads / "config.yaml")):
        return None
    for name in _DOLT:
        if (beads / name).is_dir():
            return name
    if metadata.get("backend") == "dolt" or metadata.get("dolt_mode"):
        return "dolt"
    named = metadata.get("database")
    for path in ([beads / named] if isinstance(named, str) and named else []) + [beads / "beads.db"]:
        if path.is_file():
            return path.name
    others = sorted(path.name for path in beads.glob("*.db") if "backup" not in path.name)
    return others[0] if others else None


def _named_jsonl(beads: Path) -> str | None:
    named = _metadata(beads).get("jsonl_export")
    return named if isinstance(named, str) and "/" not in named else None


def _metadata(beads: Path) -> Mapping[str, Any]:
    try:
        told = json.loads(_text(beads / "metadata.json"))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _followed(beads: Path) -> Path:
    """A work tree of git may have its issues elsewhere: `.beads/redirect` says where."""
    target = _text(beads / "redirect").strip()
    if not target:
        return beads
    other = beads.parent / target
    if not other.is_dir():
        raise UsageError(
            f"{beads / 'redirect'} leads to {target!r}, which is no folder; correct or remove it"
        )
    return other


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
