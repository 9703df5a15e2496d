"""A dispatcher as a process of its own: `python -m penstock.demo.worker CONFIG`.

It says "ready" when it owns the store, and drains when it is told to or when whoever started it is gone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from penstock.wiring import make_dispatcher, open_store, read_config


async def work(path: Path) -> None:
    config = read_config(path)
    store = open_store(config)
    await store.open()
    loop = asyncio.get_running_loop()
    try:
        dispatcher = make_dispatcher(config, store, "penstock demo")

        def hear() -> None:
            if not os.read(sys.stdin.fileno(), 1024):
                loop.remove_reader(sys.stdin.fileno())
                dispatcher.stop()

        def ready() -> None:
            loop.add_signal_handler(signal.SIGTERM, dispatcher.stop)
            loop.add_reader(sys.stdin.fileno(), hear)
            print("ready", flush=True)

        await dispatcher.run(on_ready=ready)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1])))
