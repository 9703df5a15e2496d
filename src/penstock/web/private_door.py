"""A front door for nobody but the attempts of this dispatcher: `/v1` on loopback, on a port that is free.

`run`, `work` and programs that dispatch have one open where some host calls models through Penstock itself. Only
keys minted for attempts come in, and there is nothing here but `/v1`. The socket is the dispatcher's own: when
that process is gone, nothing listens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.client import Client
from penstock.config import Config
from penstock.dispatcher.loop import Dispatcher
from penstock.hosts.own_door import Entrance
from penstock.store.base import Store
from penstock.telemetry.logs import handled
from penstock.telemetry.metrics import Metrics
from penstock.web.app import Parts, build_private_app
from penstock.web.auth import Tokens
from penstock.web.events import Feed
from penstock.web.own_entrance import OwnEntrance
from penstock.web.service import Faults, HttpServer
from penstock.web.sockets import bind

LOOPBACK = "127.0.0.1"


@asynccontextmanager
async def opened(config: Config, store: Store, dispatcher: Dispatcher) -> AsyncIterator[Entrance]:
    """Open until left; on the dispatcher's loop."""
    (bound,) = bind(LOOPBACK, 0)
    parts = Parts(
        config=config,
        store=store,
        client=Client(config, store, dispatch=False),
        dispatcher=dispatcher,
        tokens=Tokens(config.server, loopback=False),  # nobody comes in without a key
        metrics=Metrics(),
        feed=Feed(store),
        bound=[LOOPBACK],
    )
    server = HttpServer(build_private_app(parts), parts.config.server.body_limit_bytes)
    try:
        with handled("uvicorn", Faults(logging.ERROR)):
            async with asyncio.TaskGroup() as group:
                group.create_task(server.serve([bound]), name="penstock own door")
                try:
                    yield OwnEntrance([bound], parts.tokens)
                finally:
                    server.stop()
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        bound.close()
