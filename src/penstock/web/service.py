"""`serve`: the dispatcher and the HTTP server on one loop, from the first bound socket to the last answer.

Told to stop, it takes in nothing more and finishes what runs, answering meanwhile; then it closes the event
streams and the connections. Told again, what runs is put back first.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

import uvicorn

from penstock.agents import serving
from penstock.client import Client
from penstock.config import Config
from penstock.config.own_files import agents_dir
from penstock.dispatcher.loop import Dispatcher
from penstock.errors import UsageError
from penstock.store.base import Store
from penstock.telemetry.logs import handled
from penstock.telemetry.metrics import Metrics
from penstock.web.app import Parts, build_app
from penstock.web.auth import Tokens
from penstock.web.board_process import BoardProcess
from penstock.web.calls import STALLED_S
from penstock.web.connections import Connection
from penstock.web.door import App
from penstock.web.events import Feed
from penstock.web.own_entrance import OwnEntrance, near_url

_GRACE_S = 5  # for answers under way when all work is done
_TICK_S = 1.0
_BACKLOG = 2048
_WAITING_MESSAGES = 4  # on one WebSocket, until they are read

log = logging.getLogger("penstock.web")


# ---- sockets


def bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of a name; connections wait there until they are served."""
    where = f"{host}:{port}" if ":" not in host else f"[{host}]:{port}"
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UsageError(
            f"{host!r} is no address of this machine; choose another with --host or `host` of [server]"
        ) from None
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    sockets: list[socket.socket] = []
    try:
        for family, address in addresses[:1] if port == 0 else addresses:
            sockets.append(_bound(family, address))
    except OSError as error:
        for one in sockets:
            one.close()
        raise UsageError(f"{where} {_cannot_bind(error)}") from None
    return sockets


def _bound(family: int, address: object) -> socket.socket:
    # The protocol must be named: asyncio turns Nagle's delay off only where it reads TCP there.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections have it from here: one that reads nothing ends
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALLED_S * 1000))
        made.bind(address)  # type: ignore[arg-type] # as getaddrinfo gave it
        # Only one that listens keeps the address for itself.
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _cannot_bind(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            "is in use by another program; stop that one, or choose another port with --port or "
            "`port` of [server]"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return "may not be used by you; choose a port from 1024 on with --port or `port` of [server]"
    if error.errno == errno.EADDRNOTAVAIL:
        return "is no address of this machine; choose another with --host or `host` of [server]"
    return f"cannot be listened on ({error.strerror}); choose another with --host and --port"


def is_loopback(sockets: Sequence[socket.socket]) -> bool:
    return all(ipaddress.ip_address(one.getsockname()[0]).is_loopback for one in sockets)


def urls(sockets: Sequence[socket.socket]) -> list[str]:
    named = [one.getsockname()[:2] for one in sockets]
    return [f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}" for host, port in named]


# ---- the server


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
                backlog=_BACKLOG,
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
    def __init__(
        self, config: Config, store: Store, dispatcher: Dispatcher, sockets: Sequence[socket.socket]
    ) -> None:
        self._sockets = list(sockets)
        self._loopback = is_loopback(sockets)
        client = Client(config, store, dispatch=False)
        self.parts = Parts(
            config=config,
            store=store,
            client=client,
            dispatcher=dispatcher,
            tokens=Tokens(config.server, loopback=self._loopback),
            metrics=Metrics(),
            feed=Feed(store),
            bound=[config.server.host, *(one.getsockname()[0] for one in sockets)],
            board=BoardProcess(config, lambda: near_url(sockets[0])) if config.server.board else None,
        )
        dispatcher.story.listen(self.parts.metrics)
        self._server = HttpServer(build_app(self.parts), self.parts.config.server.body_limit_bytes)

    async def check(self) -> None:
        """Promise 8: nothing listens beyond loopback without a token."""
        if not self._loopback and not await self.parts.store.tokens():
            raise UsageError(
                f"{self.parts.config.server.host} can be reached from other machines and there is no token; "
                "make one with `penstock token add NAME`, or listen on 127.0.0.1"
            )

    def stop(self) -> None:
        """Take in nothing more and finish what runs; the second time, put back what runs."""
        self.parts.draining = True
        self.parts.dispatcher.stop()

    async def run(
        self,
        *,
        on_ready: Callable[[], None],
    ) -> None:
        """Dispatch and serve until stopped."""
        try:
            with handled("uvicorn", Faults(logging.ERROR)):
                await self._run(on_ready)
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            for one in self._sockets:
                one.close()

    async def _run(self, on_ready: Callable[[], None]) -> None:
        dispatched = asyncio.Event()
        parts = self.parts
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self._serve(dispatched, on_ready), name="penstock http")
            feeding = group.create_task(parts.feed.run(), name="penstock events")
            showing = group.create_task(self._show(), name="penstock board")
            try:
                await parts.dispatcher.run(
                    on_ready=dispatched.set,
                    on_decisions=parts.limits.decided,
                    on_tokens=self._read_tokens,
                    entrance=OwnEntrance(self._sockets, parts.tokens),
                )
            finally:
                parts.dispatching = False
                parts.feed.close()
                feeding.cancel()
                if parts.board_door is not None:
                    parts.board_door.close()
                showing.cancel()
                self._server.stop()
                if not dispatched.is_set():
                    serving.cancel()

    async def _serve(self, dispatched: asyncio.Event, on_ready: Callable[[], None]) -> None:
        await dispatched.wait()
        # Whoever changes tokens from here on tells the dispatcher, and so us.
        await self._read_tokens()
        if self.parts.board is not None:
            await self.parts.sessions.open()
        self.parts.dispatching = True
        with self._told_to_commands():
            on_ready()
            await self._server.serve(self._sockets)

    async def _show(self) -> None:
        if self.parts.board is not None:
            await self.parts.board.run()

    def _told_to_commands(self) -> AbstractContextManager[None]:
        """`agent call` and `council ask` find us by a note, with a key of its own."""
        parts = self.parts
        if not parts.config.agents and not parts.config.councils:
            return nullcontext()
        address = near_url(self._sockets[0]).removeprefix("http://")
        return serving.told(agents_dir(parts.config), address, parts.tokens.own_key())

    async def _read_tokens(self) -> None:
        self.parts.tokens.take(await self.parts.store.tokens())
