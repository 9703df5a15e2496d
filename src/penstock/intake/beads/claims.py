"""Who works on what. A loop keeps its claims in a file beside the issues, under a lock that dies with its process.

What Beads itself knows of a claim is a status and a name; it cannot tell whether whoever has that name is still
alive. Here a claim belongs to an owner: a process with a lock file of its own. Whoever finds the lock free knows
that the owner is dead, and goes on with its claims. A claim is written before the issue is touched, and forgotten
after the issue has been told how it ended, so that no death in between loses it.

A lock is seen by all who share a kernel, whatever name their container has. Of an owner on another machine it is
known when it last gave a sign of life; one that is silent is dead, and its claims are taken over where the store
knows their tasks.

The key of a claim is the key of its task: to submit it again gives the same task, whatever it has come to
meanwhile.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from penstock.errors import UsageError
from penstock.intake.beads.atomic import leftovers, replaced
from penstock.machine import boot_id

FOLDER = "penstock"  # inside .beads
BEAT_S = 10.0
SILENT_S = 60.0  # as told by the clock of the file system, which all of them share
_IGNORE = "# What Penstock keeps while it works on issues.\n*\n"


@dataclass(frozen=True, slots=True)
class Claim:
    issue: str
    key: str
    at: float
    task: str | None = None  # once it was submitted


class Claims:
    """The claims of this process, for one store. Methods that change them are called under `exclusive()`."""

    def __init__(self, beads: Path, store: str) -> None:
        self._folder = beads / FOLDER
        self._store = store
        self._machine = platform.node()
        self._boot = boot_id()
        self.passed_over: list[str] = []  # claims that others left and that are not taken over, and why
        self._name = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._lock: int | None = None
        self._mine: dict[str, Claim] = {}

    # ---- life

    def open(self) -> None:
        try:
            self._folder.mkdir(exist_ok=True)
            ignore = self._folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text(_IGNORE)
            with self.exclusive():  # nobody takes a lock file for dead that is about to be locked
                self._lock = os.open(
                    self._lock_file(self._name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
                )
                fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise UsageError(
                f"{self._folder}: claims cannot be kept there ({error.strerror}); check who may write to it"
            ) from None

    def close(self) -> None:
        """Let go. Claims that are left are those of a dead owner from now on."""
        if self._lock is None:
            return
        if not self._mine:
            with suppress(OSError):
                self._file(self._name).unlink()
            with suppress(OSError):
                self._lock_file(self._name).unlink()
        os.close(self._lock)
        self._lock = None

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """One process at a time, on this machine, claims issues of this folder."""
        from filelock import FileLock

        lock = FileLock(self._folder / "lock", thread_local=False, is_singleton=False)
        with lock.acquire(poll_interval=0.03):
            yield

    # ---- claims

    @property
    def mine(self) -> Mapping[str, Claim]:
        return self._mine

    def add(self, issues: Iterable[str], at: float) -> list[Claim]:
        made = [Claim(issue, f"beads:{issue}:{secrets.token_hex(8)}", at) for issue in issues]
        self._write({**self._mine, **{claim.issue: claim for claim in made}})
        return made

    def submitted(self, tasks: Mapping[str, str]) -> None:
        """Which task does which issue."""
        known = {
            issue: replace(self._mine[issue], task=task)
            for issue, task in tasks.items()
            if issue in self._mine
        }
        self._write({**self._mine, **known})

    def drop(self, issues: Iterable[str]) -> None:
        gone = set(issues)
        self._write({issue: claim for issue, claim in self._mine.items() if issue not in gone})

    def taken(self) -> set[str]:
        """Issues that a living owner has claimed, ourselves included."""
        return set(self._mine).union(*(claims.issues for _, claims in self._others() if claims.alive))

    def beat(self) -> None:
        """A sign of life, for those who cannot see our lock."""
        with suppress(OSError):
            os.utime(self._lock_file(self._name))

    def tasks_elsewhere(self) -> list[str]:
        """The tasks of dead owners of other machines: whose store has the same name may be another store."""
        return [
            claim.task
            for _, claims in self._others()
            if claims.elsewhere and not claims.alive
            for claim in claims.issues.values()
            if claim.task is not None
        ]

    def adopt(self, known: Collection[str] = ()) -> list[Claim]:
        """Take over what dead owners of this store have left. Claims for other stores are theirs to go on with.

        `known` are those of `tasks_elsewhere` that the store has.
        """
        found: dict[str, Claim] = {}
        names = []
        self.passed_over = []
        for name, claims in self._others():
            if (why := self._why_not(claims, known)) is not None:
                if claims.issues and why:
                    self.passed_over.append(f"{', '.join(claims.issues)}: claimed by {why}")
                continue
            found |= {issue: claim for issue, claim in claims.issues.items() if issue not in self._mine}
            names.append(name)
        if found:
            self._write({**self._mine, **found})
        for name in names:  # only when they are ours
            for file in (*leftovers(self._file(name)), self._file(name), self._lock_file(name)):
                with suppress(OSError):
                    file.unlink()
        return list(found.values())

    def _why_not(self, claims: _Kept, known: Collection[str]) -> str | None:
        """Why claims are left to their owner; empty where that is nothing to tell of."""
        if claims.alive:
            until = f"which gave a sign of life; they are taken over when it is silent for {SILENT_S:g} s"
            return f"a loop on {claims.machine}, {until}" if claims.elsewhere else ""
        if claims.issues and claims.store != self._store:
            return f"a loop that died, for the store {claims.store}; run one with it, or open them again"
        tasks = {claim.task for claim in claims.issues.values() if claim.task is not None}
        if claims.elsewhere and not tasks <= set(known):
            other = "for a store of the same name that is not this one"
            return f"a loop on {claims.machine} that died, {other}; run one there, or open them again"
        return None

    # ---- files

    def _write(self, claims: dict[str, Claim]) -> None:
        told = {
            "store": self._store,
            "machine": self._machine,
            "boot": self._boot,
            "claims": [asdict(claim) for claim in claims.values()],
        }
        replaced(self._file(self._name), json.dumps(told, indent=1).encode())
        self._mine = claims

    def _others(self) -> Iterator[tuple[str, _Kept]]:
        for lock in self._folder.glob("owner-*.lock"):
            name = lock.name.removeprefix("owner-").removesuffix(".lock")
            if name == self._name:
                continue
            kept = _read(self._file(name))
            if kept.machine in ("", self._machine) or (kept.boot and kept.boot == self._boot):
                yield name, replace(kept, alive=_is_locked(lock))
            else:
                yield name, replace(kept, alive=not self._is_silent(lock), elsewhere=True)

    def _is_silent(self, lock: Path) -> bool:
        self.beat()
        try:
            return self._lock_file(self._name).stat().st_mtime - lock.stat().st_mtime > SILENT_S
        except OSError:
            return False

    def _file(self, name: str) -> Path:
        return self._folder / f"owner-{name}.json"

    def _lock_file(self, name: str) -> Path:
        return self._folder / f"owner-{name}.lock"


@dataclass(frozen=True, slots=True)
class _Kept:
    issues: Mapping[str, Claim]
    store: str = ""
    machine: str = ""
    boot: str = ""
    alive: bool = False
    elsewhere: bool = False  # where its lock cannot be seen


def _read(file: Path) -> _Kept:
    """What an owner has written; nothing when it has not, or when that is not ours."""
    try:
        told: Any = json.loads(file.read_bytes())
        claims = [Claim(**one) for one in told["claims"]]
        issues = {claim.issue: claim for claim in claims}
        return _Kept(issues, str(told["store"]), str(told["machine"]), str(told.get("boot", "")))
    except (OSError, ValueError, TypeError, KeyError):
        return _Kept({})


def _is_locked(lock: Path) -> bool:
    try:
        file = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: those who only look do not meet
    except OSError:
        return True
    finally:
        os.close(file)
    return False
