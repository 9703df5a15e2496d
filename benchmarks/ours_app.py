"""Our side of the durable benchmarks: the functions that tasks call, and a dispatcher in its own process."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

PIPE = "OURS_PIPE"


async def no_op(payload: Any) -> None:
    """What a drained task runs."""


def stamp(submitted_at: float) -> None:
    os.write(int(os.environ[PIPE]), f"{time.monotonic() - submitted_at}\n".encode())


async def stamp_and_stay(payload: Any) -> None:
    """Tells whose task it is, and keeps its slot."""
    os.write(int(os.environ[PIPE]), f"{os.getpid()} {time.monotonic()}\n".encode())
    await asyncio.sleep(3600)


async def stamp_soon(payload: Any) -> float:
    return time.monotonic()


async def block(seconds: float) -> None:
    """Blocks its loop, as no coroutine should."""
    time.sleep(seconds)  # noqa: ASYNC251 - that is the point


async def dispatch(config: Path) -> None:
    from penstock.wiring import make_dispatcher, open_store, read_config

    settings = read_config(config)
    store = open_store(settings)
    await store.open()
    await make_dispatcher(settings, store, "a benchmark").run(on_ready=lambda: print("ready", flush=True))
    await store.close()


if __name__ == "__main__":
    from benchmarks.frame import end_with_parent
    from penstock.dispatcher.precise import run

    end_with_parent()
    run(dispatch(Path(sys.argv[1])))
