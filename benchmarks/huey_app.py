"""The huey side of the benchmark: what its own consumer loads, in its own process.

`HUEY_FILE` names the database, `HUEY_FSYNC=1` makes its commits durable. The consumer tells what it saw
through the pipe numbered `HUEY_PIPE`.
"""

from __future__ import annotations

import itertools
import os
import time

from huey import SqliteHuey

huey = SqliteHuey(filename=os.environ["HUEY_FILE"], fsync=os.environ["HUEY_FSYNC"] == "1")

_pipe = int(os.environ.get("HUEY_PIPE", "-1"))
_finished = itertools.count(1)
_began: list[float] = []


def _no_op(total: int) -> None:
    if not _began:
        _began.append(time.monotonic())
    if next(_finished) == total:
        os.write(_pipe, f"{time.monotonic() - _began[0]}\n".encode())


def _stamp(submitted_at: float) -> None:
    os.write(_pipe, f"{time.monotonic() - submitted_at}\n".encode())


no_op = huey.task(name="no_op")(_no_op)
stamp = huey.task(name="stamp")(_stamp)
