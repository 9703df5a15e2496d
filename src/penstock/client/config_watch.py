"""Whether the config's file is still what a running dispatcher was started with, said once for each edit.

Nothing is applied: the dispatcher goes on with the config that it has, also where the file has become wrong.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.config import Config
from penstock.config.problems import file_shown
from penstock.config.running import compare_config, record_config
from penstock.errors import ConfigError
from penstock.wiring import read_config

_STEP_MS = 500  # editors save in pieces: what comes so close together is one edit
_DEBOUNCE_MS = 3000
_GLANCE_MS = 60_000  # between two looks at what nobody told of
_POLL_MS = 1000  # where the file system tells nothing
_REST_S = 0.5  # before a file that was just replaced is looked for again


class ConfigEdits:
    """The file of a config in use, read again when it has changed."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._recorded = record_config(config)
        self._stamp = _stamp(config.path)
        self.edited: Config | None = None  # what it says now, where that is right and differs
        self.said = ""  # in what it differs, or what is wrong with it; "" where nothing does

    def look(self) -> bool:
        """Whether there is something else to say of it than before."""
        path, before = self._config.path, self.said
        if path is None or (stamp := _stamp(path)) == self._stamp:
            return False
        self._stamp = stamp
        self.edited, self.said = self._read(path)
        return self.said != before

    def _read(self, path: Path) -> tuple[Config | None, str]:
        try:
            edited = read_config(path)
        except ConfigError as error:
            more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
            return None, f"{error.problems[0]}{more}; the running dispatcher keeps the config that it has"
        differs = compare_config(edited, self._recorded)
        return (edited, differs.told(edited)) if differs else (None, "")


@contextmanager
def watching(file: ConfigEdits, config: Config, tell: Callable[[str], None]) -> Iterator[None]:
    """`tell` hears of each edit, on the loop that this is entered in."""
    if config.path is None:
        yield
        return
    watch = _Watch(file, config.path, tell)
    threading.Thread(target=watch.run, name="penstock config", daemon=True).start()
    try:
        yield
    finally:
        watch.over.set()


class _Watch:
    """A thread that waits for the file system. Nobody waits for its end: it holds nothing, and ends by itself."""

    def __init__(self, file: ConfigEdits, path: Path, tell: Callable[[str], None]) -> None:
        self._file = file
        self._path = path
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self.over = threading.Event()

    def run(self) -> None:
        # Loaded when there is time for it. The backend itself, for a file must be looked at once it is watched.
        from watchfiles._rust_notify import RustNotify

        while not self.over.is_set():
            # The file alone, for the store beside it changes all the time; its folder only while it is gone.
            place = self._path if self._path.exists() else self._path.parent
            try:
                with RustNotify([str(place)], False, False, _POLL_MS, False, False) as watcher:
                    self._look()
                    watcher.watch(_DEBOUNCE_MS, _STEP_MS, _GLANCE_MS, self.over)
            except FileNotFoundError:
                self.over.wait(_REST_S)
            except (OSError, RuntimeError) as error:  # no more watches to be had, or none on this file system
                self._say(
                    f"{file_shown(self._path)} cannot be watched ({error}); edits of it are not noticed"
                )
                return

    def _look(self) -> None:
        if self._file.look():
            shown = file_shown(self._path)
            self._say(self._file.said or f"{shown} says again what the running dispatcher was started with")

    def _say(self, text: str) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._tell, text)


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    """What is another when a file was written; None where there is none."""
    try:
        status = os.stat(path) if path is not None else None
    except OSError:
        return None
    return None if status is None else (status.st_ino, status.st_size, status.st_mtime_ns)
