"""Gate probes: what they read is sampled here, outside the core, and told to the dispatcher as `GateRead`.

A probe may be a user's function or a driver, and may hang. So each source (`readings.py`) has a daemon thread of
its own: a thread that does not come back blocks nobody and dies with the process. The loop only asks and listens.

    loop    ask ──► wait, at most `every_s * 3` ──► on_reading ──► sleep every_s ──► ask …
    thread  take the request, read, hand the reading to the loop
"""

from __future__ import annotations

import asyncio
import math
import queue
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from penstock.clock import Clock, SystemClock
from penstock.dispatcher.readings import Read, Source, make_source, source_name
from penstock.engine.outcomes import failure, one_line
from penstock.model import Gate
from penstock.scheduling.messages import GateRead

_LEAST_PATIENCE_S = 5.0
_GOODBYE_S = 1.0  # how long a reading in progress may take when the probes are closed
_MAX_ERROR = 200


class _Request(NamedTuple):
    gate: Gate
    reading: asyncio.Future[tuple[float | None, str]]


class Probes:
    """Samples the gates that have a probe, from `open()` to `close()`.

    `on_reading` is called on the loop that opened them: for every reading, and once for one that hangs.
    Modules named by `python:` probes are also looked for in `search_path`.
    """

    def __init__(
        self,
        gates: Iterable[Gate],
        on_reading: Callable[[GateRead], None],
        *,
        clock: Clock | None = None,
        search_path: Iterable[str] = (),
    ) -> None:
        self._gates = [gate for gate in gates if gate.probe is not None]
        self._on_reading = on_reading
        self._clock = clock or SystemClock()
        self._search_path = tuple(search_path)
        self._sampling: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start sampling; every first reading is asked for at once, none is waited for."""
        if not self._gates or self._sampling is not None:
            return
        sys.path.extend(folder for folder in self._search_path if folder not in sys.path)
        self._sampling = asyncio.create_task(self._sample_all(), name="probes")

    async def close(self) -> None:
        """Stop sampling. Threads end with it, but for those stuck in a user's function."""
        if self._sampling is None:
            return
        sampling, self._sampling = self._sampling, None
        sampling.cancel()
        try:
            await sampling
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise

    async def _sample_all(self) -> None:
        readers: dict[str, _Reader] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for gate in self._gates:
                    reader = _reader_of(gate, readers, self._clock)
                    group.create_task(self._sample(gate, reader), name=f"probe {gate.name}")
        finally:
            await _dismiss(list(readers.values()))

    async def _sample(self, gate: Gate, reader: _Reader) -> None:
        patience_s = max(_LEAST_PATIENCE_S, 3 * gate.every_s)
        while True:
            reading = reader.ask(gate)
            if not await self._comes_within(reading, patience_s):
                self._on_reading(GateRead(gate.name, None, f"no reading for {patience_s:g} s"))
            value, error = await reading
            self._on_reading(GateRead(gate.name, value, error))
            await self._clock.sleep(gate.every_s)

    async def _comes_within(self, reading: asyncio.Future[Any], seconds: float) -> bool:
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._nap(seconds))
            await asyncio.wait({reading, timer}, return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
        return reading.done()

    async def _nap(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


async def read_once(
    gates: Iterable[Gate], within_s: float, *, search_path: Iterable[str] = ()
) -> list[GateRead]:
    """One reading of each gate's probe; what has not come by then has failed."""
    sys.path.extend(folder for folder in search_path if folder not in sys.path)
    readers: dict[str, _Reader] = {}
    clock = SystemClock()
    asked = [(g, _reader_of(g, readers, clock).ask(g)) for g in gates if g.probe is not None]
    try:
        if asked:
            await asyncio.wait([reading for _, reading in asked], timeout=within_s)
        late = None, f"no reading for {within_s:g} s"
        return [GateRead(g.name, *(reading.result() if reading.done() else late)) for g, reading in asked]
    finally:
        await _dismiss(list(readers.values()))


def _reader_of(gate: Gate, readers: dict[str, _Reader], clock: Clock) -> _Reader:
    name = source_name(gate)
    if name not in readers:
        readers[name] = _Reader(name, asyncio.get_running_loop(), clock)
    return readers[name]


async def _dismiss(readers: list[_Reader]) -> None:
    """End the threads that can end."""
    for reader in readers:
        reader.stop()
    if readers:
        await asyncio.wait([reader.gone for reader in readers], timeout=_GOODBYE_S)
    for reader in readers:
        if reader.gone.done():
            reader.join()


class _Reader:
    """A thread that reads the probes of one source when asked."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._source: Source | None = None
        self._reads: dict[str, Read] = {}
        self._own: asyncio.Runner | None = None  # for async functions; theirs alone
        self._awaiting: asyncio.Task[Any] | None = None
        self.gone: asyncio.Future[None] = loop.create_future()
        self._thread = threading.Thread(target=self._work, name=f"probe {name}", daemon=True)
        self._thread.start()

    # ---- called on the dispatcher's loop

    def ask(self, gate: Gate) -> asyncio.Future[tuple[float | None, str]]:
        request = _Request(gate, self._loop.create_future())
        self._requests.put(request)
        return request.reading

    def stop(self) -> None:
        self._stopping.set()
        self._requests.put(None)
        awaiting = self._awaiting
        if awaiting is not None:
            try:
                awaiting.get_loop().call_soon_threadsafe(awaiting.cancel)
            except RuntimeError:  # it ended meanwhile, and its loop with it
                return

    def join(self) -> None:
        self._thread.join(_GOODBYE_S)

    # ---- the thread

    def _work(self) -> None:
        try:
            while (request := self._requests.get()) is not None and not self._stopping.is_set():
                self._tell(_settle, request.reading, self._reading(request.gate))
            if self._source is not None:
                self._source.close()
            if self._own is not None:
                self._own.close()
        finally:
            self._tell(_settle, self.gone, None)

    def _reading(self, gate: Gate) -> tuple[float | None, str]:
        try:
            if self._source is None:
                self._source = make_source(gate, self._clock)
            if gate.name not in self._reads:
                self._reads[gate.name] = self._source.read_of(gate)
            return _number(self._finished(self._reads[gate.name]())), ""
        except BaseException as raised:  # noqa: BLE001 - user code: whatever it throws is a failed reading
            return None, one_line(failure(raised).error or type(raised).__name__, _MAX_ERROR)

    def _finished(self, value: Any) -> Any:
        """The value itself, or what its coroutine comes to."""
        if not hasattr(value, "__await__"):
            return value
        if self._own is None:
            self._own = asyncio.Runner()
        return self._own.run(self._await(value))

    async def _await(self, value: Awaitable[Any]) -> Any:
        self._awaiting = current = asyncio.current_task()
        try:
            if self._stopping.is_set() and current is not None:
                current.cancel()  # `stop()` came too early to see it
            return await value
        finally:
            self._awaiting = None

    def _tell(self, call: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop has closed: nobody is left to hear it
            return


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _number(value: Any) -> float:
    """A reading; true is 1 and false 0."""
    if not hasattr(value, "__float__"):
        raise TypeError(f"a probe returns a number or true or false, not {type(value).__name__}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a probe returns a finite number, not {number}")
    return number
