"""Kills what a worker left running when it died without a word: run as a program of its own, beside the worker.

    python -I -S guard.py MARKER_PREFIX [FOLDER]

Its stdin ends when the worker does, also when that was killed or its node fell. Then every process that carries the
worker's marker is killed, until there is none, and the folder is removed. It imports nothing of ours, so that it
takes few megabytes; a worker that ends in order tells it so by a line. It is nobody's child: a worker that loses
its node kills its own children before it ends, and they would be all but the guard's to find.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time

_NEEDLE = b"\0PENSTOCK_ATTEMPT="
_QUIET_ROUNDS = 3  # a process may start another one while we look
_ROUND_S = 0.05
_PATIENCE_S = 10.0


def main() -> None:
    prefix = os.fsencode(sys.argv[1])
    if os.fork():
        os._exit(0)
    if sys.stdin.buffer.readline():
        return
    quiet = 0
    until = time.monotonic() + _PATIENCE_S
    while quiet < _QUIET_ROUNDS and time.monotonic() < until:
        found = marked(prefix)
        quiet = 0 if found else quiet + 1
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(_ROUND_S)
    for folder in sys.argv[2:]:
        shutil.rmtree(folder, ignore_errors=True)


def marked(prefix: bytes) -> list[int]:
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():  # Linux alone has it
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = b"\0" + file.read()
            with open(f"/proc/{name}/stat", "rb") as file:
                is_zombie = file.read().rpartition(b")")[2].split()[0] == b"Z"
        except OSError:
            continue
        if not is_zombie and environment.partition(_NEEDLE)[2].startswith(prefix):
            found.append(int(name))
    return found


if __name__ == "__main__":
    main()
