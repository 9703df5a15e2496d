"""The worker processes of a pool: started afresh (spawn), marked, in sessions of their own, with a line home.

Pebble starts processes through a multiprocessing context; this one differs from the plain spawn context in
four ways that its pool needs:

- the marker in the environment, so that orphans are found (trees.py). It is given to the new process alone:
  setting it in our own environment would mark whatever else this program starts meanwhile;
- a session of its own: Ctrl-C in the terminal is the dispatcher's business, and the group can be killed;
- a line on which the worker says which attempt it has and asks whether to begin it (calls.py);
- `__main__` is not imported again: callables are named by module, and a script without the
  `if __name__ == "__main__"` guard would otherwise run itself in every worker. stdout is the
  dispatcher's own, so what user code prints there goes to stderr.
"""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Callable
from multiprocessing import popen_spawn_posix, reduction, resource_tracker, spawn, util
from multiprocessing.context import SpawnContext, SpawnProcess, set_spawning_popen
from typing import Any

from penstock.engine.calls import set_line
from penstock.engine.trees import MARKER

# Told by the thread that started it: process id, marker, and our end of its line.
Hired = Callable[[int, str, socket.socket], None]


class WorkerContext(SpawnContext):
    def __init__(self, next_marker: Callable[[], str], hired: Hired) -> None:
        super().__init__()
        self._next_marker = next_marker
        self._hired = hired

    def Process(self, **options: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802 - the name pebble calls
        return WorkerProcess(self._next_marker(), self._hired, **options)


class WorkerProcess(SpawnProcess):
    def __init__(self, marker: str, hired: Hired, **options: Any) -> None:
        super().__init__(**options)
        self.marker = marker
        self.line: int | None = None
        self._hired: Hired | None = hired

    def start(self) -> None:
        ours, its = socket.socketpair()
        with its:
            self.line = its.fileno()
            try:
                super().start()
            except BaseException:
                ours.close()
                raise
        assert self.pid is not None
        assert self._hired is not None
        self._hired(self.pid, self.marker, ours)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_hired": None}  # it stays at home

    def run(self) -> None:
        """In the new process."""
        if self.line is not None:
            set_line(self.line)
        super().run()

    @staticmethod
    def _Popen(process: WorkerProcess) -> _Spawn:  # type: ignore[override]  # noqa: N802
        return _Spawn(process)


class _Spawn(popen_spawn_posix.Popen):
    """As its parent class, but for what the module's docstring says."""

    _fds: list[int]  # what pickling the process object adds to: the ends of pebble's channel

    def _launch(self, process: WorkerProcess) -> None:
        tracker = resource_tracker.getfd()
        assert tracker is not None
        preparation = spawn.get_preparation_data(process.name)
        preparation.pop("init_main_from_name", None)
        preparation.pop("init_main_from_path", None)
        letter = io.BytesIO()
        set_spawning_popen(self)
        try:
            reduction.dump(preparation, letter)
            reduction.dump(process, letter)
        finally:
            set_spawning_popen(None)
        sentinel, its_sentinel = os.pipe()
        its_letter, ours = os.pipe()
        self.finalizer = util.Finalize(self, _close, (sentinel, ours))
        try:
            command = spawn.get_command_line(tracker_fd=tracker, pipe_handle=its_letter)
            assert process.line is not None
            inherited: set[int] = {*self._fds, tracker, its_letter, its_sentinel, process.line}
            self.pid = os.posix_spawn(
                spawn.get_executable(),
                command,
                {**os.environ, MARKER: process.marker},
                # Duplicating a descriptor onto itself is what lets the new process have it.
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, fd) for fd in sorted(inherited)]
                + [(os.POSIX_SPAWN_DUP2, 2, 1)],
                setsid=True,
            )
        finally:
            os.close(its_letter)
            os.close(its_sentinel)
        self.sentinel = sentinel
        with open(ours, "wb", closefd=False) as pipe:
            pipe.write(letter.getbuffer())


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
