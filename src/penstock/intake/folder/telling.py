"""What a watcher tells whoever started it: answers as they are given, what is odd, what is in the way."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.intake.folder.bodies import Refused
from penstock.model import State, TaskRecord

REFUSED = "refused"
DOUBLED = "has an answer already, which stays; use each id once"

_REMEDIES = {
    errno.ENOENT: "create it again, or stop watching",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EROFS: "make it writable",
    errno.EACCES: "give this user the permission to write there",
    errno.EPERM: "give this user the permission to write there",
}


@dataclass(slots=True)
class Counts:
    taken: int = 0  # requests that became tasks, or were refused
    done: int = 0
    errors: int = 0
    under_way: int = 0
    unfinished: int = 0  # files that are not whole yet

    @property
    def answered(self) -> int:
        return self.done + self.errors


class Teller(Protocol):
    def answered(self, body: Mapping[str, Any]) -> None:
        """An answer was given; the file holds the same."""

    def note(self, text: str) -> None:
        """Something that a person should know."""

    def trouble(self, text: str | None) -> None:
        """What keeps the queue from working at the moment; None when it works again."""

    def counted(self, counts: Counts) -> None: ...


def trouble_text(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename else ""
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{place}{error.strerror or error}" + (f"; {remedy}" if remedy else "")


def body_of(name: str, record: TaskRecord) -> dict[str, Any]:
    """The answer of a task that ended: its record, under the name of its request."""
    body = {"id": told_name(name)} | record.as_record()
    if record.state is not State.DONE and not record.error:
        body["error"] = f"the task was {record.state}"
    return body


def refusal_of(name: str, refused: Refused) -> dict[str, Any]:
    """The answer of a request that never became a task."""
    state = str(State.CANCELLED) if refused.cancelled else REFUSED
    return {"id": told_name(name), "state": state, "value": None, "error": refused.why}


def told_name(name: str) -> str:
    """As text that JSON can hold, whatever bytes the file system has."""
    return name.encode("utf-8", "backslashreplace").decode()
