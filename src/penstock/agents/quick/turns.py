"""Whose turn it is to get an agent going, when many commands come at once and find no endpoint.

One takes the turn and loads what it needs to talk to the engine; the others wait here, for next to nothing, and
look for what comes of it: an endpoint, or its failure. The turn only spares work: that one container is made is
seen to by the start lock, so that who waits too long simply goes as well, and learns there who is stuck.

    AGENTS/NAME/turn.lock     held by the kernel for whoever has the turn

Hundreds may wait while one works, on the same cores: a look costs a few system calls, and files are read only when
they have changed.
The standard library alone: a warm `agent call` imports it.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import Any

from penstock.agents.quick.known_config import Known
from penstock.agents.trail import Trail

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.1
_LOOK_S = 0.5  # so often all is looked at, changed or not
_TOLD = ("endpoints.json", "failed.json", "config.json")  # where what comes of it is seen
_UNKNOWN_START_S = 60.0
_BEYOND_S = 15.0  # past the time that a container may take: whoever has the turn is stuck


class Waiting:
    """One command's wait for an agent."""

    def __init__(self, agents_dir: str, agent: str) -> None:
        self._folder = os.path.join(agents_dir, agent)
        self._pause_s = _FIRST_PAUSE_S
        self._lock: int | None = None
        self._seen: Any = None
        self._look_at = 0.0
        self._began: float | None = None
        self._before: Any = None

    @property
    def waited_s(self) -> float | None:
        """Since there was no endpoint; None: there was one at once."""
        return None if self._began is None else time.monotonic() - self._began

    def for_others(self, known: Known | None, trail: Trail) -> bool:
        """Wait a little for what the others make; False: it is our turn to make it.

        Raises what the one who tried failed with, while we waited for that.
        """
        from penstock.agents.starts.failures import Failures

        failures = Failures(self._folder)
        if self._began is None:
            self._began = time.monotonic()
            self._before = failures.last()
            trail.note("no endpoint", hit=False)
        elif known is not None and (failed := failures.since(self._before, known.fingerprint)) is not None:
            raise failed.raised()
        limit_s = (_UNKNOWN_START_S if known is None else known.start_s) + _BEYOND_S
        while True:
            waited_s = time.monotonic() - self._began
            if self._takes_turn() or waited_s > limit_s:
                trail.note("our turn to start it", waited_s=waited_s)
                return False
            time.sleep(self._pause_s * (0.5 + os.urandom(1)[0] / 256))
            self._pause_s = min(self._pause_s * 1.5, _LONGEST_PAUSE_S)
            if self._is_news():
                return True

    def _is_news(self) -> bool:
        """Whether it is worth while to look at all of it."""
        seen = [_stamp(os.path.join(self._folder, name)) for name in _TOLD]
        if seen == self._seen and time.monotonic() < self._look_at:
            return False
        self._seen, self._look_at = seen, time.monotonic() + _LOOK_S
        return True

    def _takes_turn(self) -> bool:
        try:
            if self._lock is None or not os.fstat(self._lock).st_nlink:  # `agent rm` took it away
                self.over()
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                path = os.path.join(self._folder, "turn.lock")
                self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return True  # the full path says what is wrong with the folder
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def over(self) -> None:
        """The endpoint is there, or there will be none: the next one may go."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _stamp(path: str) -> tuple[int, int, int] | None:
    """They are replaced as a whole, so that another one is another file."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_ino, seen.st_mtime_ns, seen.st_size
