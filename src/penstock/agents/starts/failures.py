"""What a start that failed leaves for those who waited for it: its error, so that not each of them tries as well.

    AGENTS/NAME/failed.json   the last failure: its error, of which attempt, for which fingerprint

Who waited for that attempt raises the same error. Who comes later has seen this file before it began to wait, and
tries anew.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import NamedTuple

from penstock import errors
from penstock.agents.endpoints import write_whole
from penstock.errors import AgentError

_FILE = "failed.json"
_MOST_BYTES = 65536
_MOST_CHARACTERS = 4000


class Failure(NamedTuple):
    attempt: str
    fingerprint: str
    error: str  # the name of its class
    message: str

    def raised(self) -> AgentError:
        kind = getattr(errors, self.error, AgentError)
        is_ours = isinstance(kind, type) and issubclass(kind, AgentError)
        return kind(self.message) if is_ours else AgentError(self.message)


class Failures:
    """Of one agent. Written by whoever holds its start lock."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, _FILE)

    def last(self) -> Failure | None:
        """Read without a lock; None where there is none, or nothing to be made of it."""
        try:
            with open(self._path, "rb") as file:
                told = json.loads(file.read(_MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(told, dict) or set(told) != set(Failure._fields):
            return None
        return Failure(**told) if all(isinstance(value, str) for value in told.values()) else None

    def since(self, before: Failure | None, fingerprint: str) -> Failure | None:
        """The failure of an attempt that ended since `before` was read."""
        last = self.last()
        if last is None or last.fingerprint != fingerprint:
            return None
        return last if before is None or before.attempt != last.attempt else None

    def tell(self, attempt: str, fingerprint: str, error: AgentError) -> None:
        message = " ".join(str(error).split())[:_MOST_CHARACTERS]
        failure = Failure(attempt, fingerprint, type(error).__name__, message)
        with suppress(AgentError):  # where the disk is full each of those who wait finds that out by itself
            write_whole(self._path, json.dumps(failure._asdict()).encode())

    def forget(self) -> None:
        with suppress(OSError):
            os.unlink(self._path)
