"""A simulated model server as a process: tells its address and serves until it is stopped."""

from __future__ import annotations

import asyncio
import json
import resource
import sys

from penstock.testing import ModelBehaviour, ModelServer


async def main() -> None:
    given = json.loads(sys.argv[1])
    given["models"] = tuple(given["models"])
    async with ModelServer(ModelBehaviour(**given), remember=0) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(main())
