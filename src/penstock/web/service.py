"""`serve`: the dispatcher and the HTTP server on one loop, from the first bound socket to the last answer.

Where dispatchers take turns it serves from the start, whether it leads or stands by.

Told to stop, it takes in nothing more and finishes what runs, answering meanwhile; then it closes the event
streams and the connections. Told again, what runs is put back first.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import uvicorn

from penstock.agents import serving
from penstock.client import Client
from penstock.config import Config
from penstock.config.own_files import agents_dir
from penstock.diagnosis.history import Epoch
from penstock.dispatcher.leadership import Heard, Leadership, OnStandby, Tidy
from penstock.dispatcher.loop import Dispatcher
from penstock.store.base import Store
from penstock.telemetry.logs import handled
from penstock.telemetry.metrics import Metrics
from penstock.web.app import Parts, build_app
from penstock.web.auth import Tokens
from penstock.web.board_process import BoardProcess
from penstock.web.connections import Connection
from penstock.web.door import App
from penstock.web.events import Feed
from penstock.web.lookout import Lookout
from penstock.web.own_entrance import OwnEntrance, near_url
from penstock.web.sockets import BACKLOG, is_loopback

_GRACE_S = 5  # for answers under way when all work is done
_TICK_S = 1.0
_WAITING_MESSAGES = 4  # on one WebSocket, until they are read

log = logging.getLogger("penstock.web")


class HttpServer(uvicorn.Server):
    """uvicorn without its hold on signals, and without waking ten times a second."""

    def __init__(self, app: App, message_limit_bytes: int) -> None:
        """`message_limit_bytes`: of one message on a WebSocket."""
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="auto",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACE_S,
                backlog=BACKLOG,
                ws_max_size=message_limit_bytes,
                ws_max_queue=_WAITING_MESSAGES,
                ws_per_message_deflate=False,  # it would cost the dispatcher's loop more than it saves
            )
        )
        self._stop = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.should_exit = True
        self._stop.set()

    async def main_loop(self) -> None:
        ticks = 0
        while not await self.on_tick(ticks):
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._stop.wait()
            ticks += 10  # of a tenth of a second


class Faults(logging.Handler):
    """uvicorn's errors in a line of ours: of what kind, and where. What was asked is left out: it may be secret."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)[-3:]
            places = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
            log.error("a request failed: %s at %s", type(error).__name__, places)


class Service:
    """`make` gives a dispatcher for each term; `on_standby` hears who leads while we stand by."""

    def __init__(
        self,
        config: Config,
        store: Store,
        make: Callable[[], Dispatcher],
        sockets: Sequence[socket.socket],
        on_standby: OnStandby | None = None,
        tidy: Tidy | None = None,
    ) -> None:
        self._sockets = list(sockets)
        self._loopback = is_loopback(sockets)
        self._on_standby = on_standby
        client = Client(config, store, dispatch=False, answers=not store.elects)
        self.parts = parts = Parts(
            config=config,
            store=store,
            client=client,
            tokens=Tokens(config.server, loopback=self._loopback),
            metrics=Metrics(),
            feed=Feed(store),
            lookout=Lookout(store, self._read_again) if store.elects else None,
            bound=[config.server.host, *(one.getsockname()[0] for one in sockets)],
            board=BoardProcess(config, lambda: near_url(sockets[0])) if config.server.board else None,
        )

        def made() -> Dispatcher:
            dispatcher = make()
            dispatcher.story.listen(parts.metrics)
            return dispatcher

        self._leadership = Leadership(
            store, made, Heard(self._stands_by, self._leads_no_more, tidy), takes_turns=store.elects
        )
        self._serving = asyncio.Event()  # it may answer
        self._server = HttpServer(build_app(parts), config.server.body_limit_bytes)

    @property
    def stands_by(self) -> bool:
        return self._leadership.stands_by

    def stop(self) -> None:
        """Take in nothing more and finish what runs; the second time, put back what runs."""
        self.parts.draining = True
        self._leadership.stop()

    async def run(
        self,
        *,
        on_ready: Callable[[], None],
        on_lead: Callable[[], None] | None = None,
    ) -> None:
        """Dispatch, or stand by, and serve until stopped. `on_lead` hears of each term that begins."""
        try:
            with handled("uvicorn", Faults(logging.ERROR)):
                await self._run(on_ready, on_lead or (lambda: None))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            for one in self._sockets:
                one.close()

    async def _run(self, on_ready: Callable[[], None], on_lead: Callable[[], None]) -> None:
        parts = self.parts
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self._serve(on_ready), name="penstock http")
            others = [
                group.create_task(parts.feed.run(), name="penstock events"),
                group.create_task(self._show(), name="penstock board"),
                group.create_task(self._look_out(), name="penstock lookout"),
            ]
            try:
                await self._leadership.run(partial(self._lead, on_lead))
            finally:
                parts.dispatcher = None
                if parts.lookout is not None:
                    parts.lookout.close()
                parts.feed.close()
                if parts.board_door is not None:
                    parts.board_door.close()
                for other in others:
                    other.cancel()
                self._server.stop()
                if not self._serving.is_set():
                    serving.cancel()

    async def _lead(
        self, on_lead: Callable[[], None], dispatcher: Dispatcher, ready: Callable[[], None]
    ) -> None:
        """One term."""
        parts = self.parts

        def begin() -> None:
            parts.dispatcher = dispatcher
            term.enter_context(self._told_to_commands())
            self._serving.set()
            ready()
            on_lead()

        with ExitStack() as term:
            try:
                await dispatcher.run(
                    on_ready=begin,
                    on_decisions=parts.limits.decided,
                    on_tokens=self._read_tokens,
                    entrance=OwnEntrance(
                        self._sockets,
                        parts.tokens,
                        parts.config.server.advertise,
                        parts.config.engine.calls_url,
                    ),
                )
            finally:
                parts.dispatcher = None

    def _leads_no_more(self) -> None:
        """Whoever comes while a deposed dispatcher is being ended is passed on to its successor."""
        self.parts.dispatcher = None

    def _stands_by(self, leader: Epoch | None, recorded: str | None) -> None:
        self._serving.set()
        if self._on_standby is not None:
            self._on_standby(leader, recorded)

    async def _serve(self, on_ready: Callable[[], None]) -> None:
        await self._serving.wait()
        # Whoever changes tokens from here on tells the dispatcher, and so us.
        await self._read_tokens()
        if self.parts.board is not None:
            await self.parts.sessions.open()
        if self.parts.lookout is not None:
            await self.parts.lookout.open()
        on_ready()
        try:
            await self._server.serve(self._sockets)
        finally:
            if self.parts.passing_on is not None:
                await self.parts.passing_on.close()

    async def _show(self) -> None:
        if self.parts.board is not None:
            await self.parts.board.run()

    async def _look_out(self) -> None:
        lookout = self.parts.lookout
        if lookout is not None:
            await self._serving.wait()
            await lookout.run()

    def _told_to_commands(self) -> AbstractContextManager[None]:
        """`ask`, `council ask` and `agent call` find us by a note, with a key of its own."""
        parts = self.parts
        address = near_url(self._sockets[0]).removeprefix("http://")
        return serving.told(agents_dir(parts.config), address, parts.tokens.own_key())

    async def _read_again(self) -> None:
        """What other servers of the same store, and the dispatcher that leads, have changed."""
        parts = self.parts
        await self._read_tokens()
        if parts.board is not None:
            await parts.sessions.read_ended()
        if mine := parts.limits.some_tasks():
            parts.limits.stand(await parts.store.states(mine))

    async def _read_tokens(self) -> None:
        self.parts.tokens.take(await self.parts.store.tokens())
