"""The simulated model server as tests, the demo and `penstock simulate` use it: start, watch, change, stop."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from aiohttp import web

from penstock.errors import UsageError
from penstock.testing.behaviour import ModelBehaviour
from penstock.testing.calls import CallSpan, ModelRequest
from penstock.testing.faults import Fault
from penstock.testing.process import ServerProcess, server_process
from penstock.testing.service import Service
from penstock.testing.stats import Condition, ServerStats, Watch

T = TypeVar("T")

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_BACKLOG = 4096
_SHUTDOWN_S = 1.0
_TURNS_TO_CONNECT = 3  # of the loop, from accepting to being a connection
_BODY_BYTES = 64 * 1024 * 1024
_PATIENCE_S = 30.0


class ModelServer:
    """An HTTP server on loopback that behaves like a model server.

    async with ModelServer(ModelBehaviour(slots=2, first_token_s=0.1)) as server:
        client = openai.AsyncOpenAI(base_url=server.url, api_key="none")

    All of it may be used from any thread and any loop.
    """

    def __init__(
        self,
        behaviour: ModelBehaviour | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        remember: int = 1000,
    ) -> None:
        if host not in LOOPBACK:
            raise UsageError(f"a simulated server listens on loopback only, not on {host}; use 127.0.0.1")
        self._behaviour = behaviour or ModelBehaviour()
        self._host = host
        self._port = port
        self._ssl = ssl_context
        self.stats = ServerStats()
        # What was asked, the last `remember` calls.
        self.requests: deque[ModelRequest] = deque(maxlen=remember)
        # When they came, got a slot and were over, in the order of their ends.
        self.spans: deque[CallSpan] = deque(maxlen=remember)
        self._watch = Watch(self.stats)
        self._service: Service | None = None
        self._server: web.Server | None = None
        self._listening: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # ---- where it is

    @property
    def port(self) -> int:
        """The port it listens on; 0 before the first start. A server that starts again keeps it."""
        return self._port

    @property
    def root_url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._ssl else 'http'}://{host}:{self._port}"

    @property
    def url(self) -> str:
        """What a client takes as its base URL."""
        return f"{self.root_url}/v1"

    # ---- start and stop

    async def start(self) -> None:
        """Listen. After `stop` or `kill` it listens on the same port again; the counts go on."""
        await self._on_loop_of_server(self._start)

    async def stop(self) -> None:
        """Stop listening and break off what is under way."""
        await self._on_loop_of_server(self._stop)

    async def kill(self) -> None:
        """End as a killed process does: every connection is reset, in the middle of whatever it was."""
        await self._on_loop_of_server(self._stop)

    async def __aenter__(self) -> ModelServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _start(self) -> None:
        if self._listening is not None:
            raise UsageError(f"the simulated server on {self.root_url} runs already")
        self._loop = asyncio.get_running_loop()
        service = Service(self._behaviour, self.stats, self.requests, self.spans, self._watch)
        server = web.Server(
            service.handle,
            request_factory=_with_large_body,
            handler_cancellation=True,
            access_log=None,
        )
        try:
            listening = await self._loop.create_server(
                server, self._host, self._port, ssl=self._ssl, backlog=_BACKLOG
            )
        except OSError as error:
            raise UsageError(f"port {self._port}: {error.strerror}; choose another, or 0 for any") from None
        self._port = listening.sockets[0].getsockname()[1]
        self._service, self._server, self._listening = service, server, listening

    async def _stop(self) -> None:
        service, server, listening = self._service, self._server, self._listening
        if service is None or server is None or listening is None:
            return
        self._service = self._server = self._listening = None
        service.stopping = True
        await stop_listening(listening)
        for connection in server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        done: Future[None] = Future()
        self._watch.add(lambda _: service.active == 0, done)
        await asyncio.wrap_future(done)
        service.clock.close()
        await server.shutdown(_SHUTDOWN_S)

    # ---- change it while it runs

    @property
    def behaviour(self) -> ModelBehaviour:
        return self._behaviour

    @behaviour.setter
    def behaviour(self, behaviour: ModelBehaviour) -> None:
        self._behaviour = behaviour
        self._with_service(lambda service: service.follow(behaviour))

    def hold(self) -> None:
        """Nothing goes on: no answer begins, no token comes, until `release`."""
        self._with_service(lambda service: service.clock.hold(True), must_run=True)

    def release(self) -> None:
        self._with_service(lambda service: service.clock.hold(False))

    def fail_next(self, *faults: Fault | None) -> None:
        """The faults of the next calls, one each, before those of the behaviour."""
        self._with_service(lambda service: service.extra_faults.extend(faults), must_run=True)

    # ---- wait for it

    async def wait_for(self, condition: Condition, timeout_s: float = _PATIENCE_S) -> None:
        """Until the counts fulfil the condition: `await server.wait_for(lambda s: s.in_flight == 2)`."""
        done = self._watched(condition)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wrap_future(done)
        except TimeoutError:
            raise self._not_seen(timeout_s) from None

    def wait(self, condition: Condition, timeout_s: float = _PATIENCE_S) -> None:
        """`wait_for` for code without a loop, beside a server in a thread."""
        try:
            self._watched(condition).result(timeout_s)
        except TimeoutError:
            raise self._not_seen(timeout_s) from None

    def _watched(self, condition: Condition) -> Future[None]:
        done: Future[None] = Future()
        self._with_loop(lambda: self._watch.add(condition, done))
        return done

    def _not_seen(self, timeout_s: float) -> TimeoutError:
        return TimeoutError(f"{self.root_url}: not within {timeout_s:g} s; it has {self.stats.as_record()}")

    # ---- in a thread or a process of its own

    @classmethod
    @contextmanager
    def in_thread(cls, behaviour: ModelBehaviour | None = None, **options: Any) -> Iterator[ModelServer]:
        """A server on a loop and a thread of its own, for code without a loop and for measurements."""
        server = cls(behaviour, **options)
        ready: Future[Callable[[], None]] = Future()
        thread = threading.Thread(target=asyncio.run, args=(server._lived(ready),), name="model-server")
        thread.start()
        try:
            end = ready.result()
            try:
                yield server
            finally:
                end()
        finally:
            thread.join()

    @classmethod
    def in_process(
        cls, behaviour: ModelBehaviour | None = None, **options: Any
    ) -> AbstractContextManager[ServerProcess]:
        """A server in a process of its own, for measurements. The behaviour must be picklable."""
        return server_process(behaviour, options)

    async def _lived(self, ready: Future[Callable[[], None]]) -> None:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        try:
            await self._start()
        except UsageError as error:
            ready.set_exception(error)
            return
        ready.set_result(lambda: _told(loop, over))
        try:
            await over.wait()
        finally:
            await self._stop()

    # ---- threads

    async def _on_loop_of_server(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        loop = self._loop
        if loop is None or loop.is_closed() or loop is asyncio.get_running_loop():
            return await step()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(step(), loop))

    def _with_service(self, step: Callable[[Service], None], *, must_run: bool = False) -> None:
        service = self._service
        if service is not None:
            self._with_loop(lambda: step(service))
        elif must_run:
            raise UsageError("the simulated server does not run; start it first")

    def _with_loop(self, step: Callable[[], None]) -> None:
        loop = self._loop
        if loop is None or loop.is_closed() or loop is _running_loop():
            step()
            return
        done: Future[None] = Future()

        def take() -> None:
            try:
                step()
            except BaseException as error:
                done.set_exception(error)
                raise
            done.set_result(None)

        loop.call_soon_threadsafe(take)
        done.result(_PATIENCE_S)


def _told(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    loop.call_soon_threadsafe(over.set)


async def stop_listening(server: asyncio.Server) -> None:
    """What was accepted in this very moment becomes a connection first: asyncio loses it, open and unread, when its
    server is closed before that, and whoever called waits."""
    for one in server.sockets:
        server.get_loop().remove_reader(one.fileno())
    for _ in range(_TURNS_TO_CONNECT):
        await asyncio.sleep(0)
    server.close()


def _with_large_body(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_BODY_BYTES)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
