"""Gate probes: what they read, how they fail, and that one that hangs blocks nobody. A2, A5, E5."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.config.keys import PSUTIL_PROBES
from penstock.dispatcher import probes, readings
from penstock.dispatcher.probes import Probes
from penstock.model import Gate
from penstock.scheduling.messages import GateRead

PATIENCE_S = 5.0  # with every_s = 1


class WatchedClock(ManualClock):
    """Tells when somebody goes to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: asyncio.Queue[None] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self.slept.put_nowait(None)
        await super().sleep(seconds)


class Bench:
    """Probes on a clock that moves by hand, and what they told."""

    def __init__(self) -> None:
        self.clock = WatchedClock()
        self.told: asyncio.Queue[GateRead] = asyncio.Queue()
        self.threads: set[int] = set()
        self._probes: list[Probes] = []
        self._others = set(probe_threads())

    async def open(self, *gates: Gate, search_path: tuple[str, ...] = ()) -> Probes:
        opened = Probes(gates, self._on_reading, clock=self.clock, search_path=search_path)
        self._probes.append(opened)
        await opened.open()
        return opened

    def _on_reading(self, reading: GateRead) -> None:
        self.threads.add(threading.get_ident())
        self.told.put_nowait(reading)

    async def next(self) -> GateRead:
        return await asyncio.wait_for(self.told.get(), 10)

    async def wait_until_sleeping(self, until: float) -> None:
        """Until the sampler waits for that moment."""
        while self.clock.next_waking() != until:
            await asyncio.wait_for(self.clock.slept.get(), 10)

    def own_threads(self) -> list[threading.Thread]:
        return [thread for thread in probe_threads() if thread not in self._others]

    async def close(self) -> None:
        for opened in self._probes:
            await opened.close()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.close()
    for thread in made.own_threads():
        thread.join(10)
        assert not thread.is_alive(), "a thread was left behind"


def probe_threads() -> list[threading.Thread]:
    """Of this process: also those of other tests, whose functions hang for a while."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("probe ")]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], str]:
    """Puts a function into a module of the user's; the probe that names it."""
    module = ModuleType("user_gates")
    monkeypatch.setitem(sys.modules, "user_gates", module)

    def add(name: str, value: Any) -> str:
        setattr(module, name, value)
        return f"python:user_gates:{name}"

    return add


def gate(probe: str, name: str = "g", every_s: float = 1.0) -> Gate:
    return Gate(name, probe=probe, min=1, every_s=every_s, holds_lanes=("default",))


async def coroutine() -> int:
    await asyncio.sleep(0)
    return 7


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def failing(error: BaseException) -> Callable[[], float]:
    def fail() -> float:
        raise error

    return fail


async def async_failure() -> float:
    raise ValueError("async boom")


@pytest.mark.parametrize(
    ("function", "value"),
    [(lambda: 3, 3.0), (lambda: 2.5, 2.5), (lambda: True, 1.0), (lambda: False, 0.0), (coroutine, 7.0)],
    ids=["whole", "number", "true", "false", "async"],
)
async def test_e5_any_python_function_is_a_probe(
    bench: Bench, define: Callable[[str, Any], str], function: Any, value: float
) -> None:
    """E5: gates on any Python function, sync or async; the first reading is taken at once."""
    await bench.open(gate(define("probe", function)))
    assert await bench.next() == GateRead("g", value, "")
    assert bench.clock.now() == 0


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (failing(ValueError("boom\nmore")), "ValueError: boom more"),
        (failing(SystemExit(3)), "SystemExit"),
        (failing(Unprintable()), "Unprintable"),
        (async_failure, "ValueError: async boom"),
        (lambda: None, "a probe returns a number or true or false, not NoneType"),
        (lambda: "3", "a probe returns a number or true or false, not str"),
        (lambda: math.nan, "a probe returns a finite number, not nan"),
        (lambda: 10**400, "OverflowError"),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (3, "is not a function"),
    ],
)
async def test_a_failed_reading_says_what_went_wrong(
    bench: Bench, define: Callable[[str, Any], str], function: Any, error: str
) -> None:
    await bench.open(gate(define("probe", function)))
    reading = await bench.next()
    assert reading.value is None
    assert error in reading.error
    assert len(reading.error.splitlines()) == 1
    assert len(reading.error) <= 200


@pytest.mark.parametrize(
    ("probe", "error"),
    [
        ("python:no_such_module_here:f", "No module named 'no_such_module_here'"),
        ("python:math:no_such_function", "no attribute 'no_such_function'"),
        ("psutil:nothing", "unknown psutil probe 'nothing'"),
        ("nothing:x", "unknown probe scheme 'nothing'"),
        ("psutil:disk_free_gb#/no/such/folder", "No such file or directory"),
    ],
)
async def test_a_probe_that_cannot_be_found_fails_its_reading(bench: Bench, probe: str, error: str) -> None:
    await bench.open(gate(probe))
    reading = await bench.next()
    assert reading.value is None
    assert error in reading.error


async def test_readings_come_every_so_often_on_the_loop(
    bench: Bench, define: Callable[[str, Any], str]
) -> None:
    """A2: the core hears of every reading and never asks."""
    values = iter(range(1, 100))
    await bench.open(gate(define("probe", lambda: next(values)), every_s=10))
    for number in (1, 2, 3):
        assert (await bench.next()).value == number
        await bench.wait_until_sleeping(10.0 * number)
        assert bench.told.empty()
        bench.clock.advance(10)
    assert bench.threads == {threading.get_ident()}


async def test_a_probe_that_recovers_is_read_again(bench: Bench, define: Callable[[str, Any], str]) -> None:
    probe = define("probe", None)
    await bench.open(gate(probe))
    assert (await bench.next()).error
    define("probe", lambda: 4)
    await bench.wait_until_sleeping(1.0)
    bench.clock.advance(1)
    assert await bench.next() == GateRead("g", 4.0, "")


async def test_a_hanging_probe_is_told_once_and_blocks_nobody(
    bench: Bench, define: Callable[[str, Any], str]
) -> None:
    """A2, C4: a probe that does not come back fails its own gate only."""
    release = threading.Event()
    stuck = gate(define("stuck", lambda: release.wait(60)), "stuck")
    await bench.open(stuck, gate(define("fine", lambda: 5), "fine"))
    assert await bench.next() == GateRead("fine", 5.0, "")
    await bench.wait_until_sleeping(1.0)
    bench.clock.advance(1)
    assert await bench.next() == GateRead("fine", 5.0, "")
    await bench.wait_until_sleeping(2.0)
    bench.clock.advance(PATIENCE_S - 1)
    assert {await bench.next(), await bench.next()} == {
        GateRead("fine", 5.0, ""),
        GateRead("stuck", None, "no reading for 5 s"),
    }
    for _ in range(5):
        await bench.wait_until_sleeping(bench.clock.now() + 1)
        bench.clock.advance(1)
        assert (await bench.next()).gate == "fine"
    release.set()
    while (reading := await bench.next()).gate != "stuck":
        pass
    assert reading == GateRead("stuck", 1.0, "")


async def test_patience_grows_with_the_interval(bench: Bench, define: Callable[[str, Any], str]) -> None:
    release = threading.Event()
    await bench.open(gate(define("stuck", lambda: release.wait(60)), every_s=4))
    await bench.wait_until_sleeping(12.0)
    bench.clock.advance(12)
    assert await bench.next() == GateRead("g", None, "no reading for 12 s")
    release.set()


async def test_closing_does_not_wait_for_a_hanging_probe(
    bench: Bench, define: Callable[[str, Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_GOODBYE_S", 0.01)
    entered, release = threading.Event(), threading.Event()

    def hang() -> bool:
        entered.set()
        return release.wait(60)

    opened = await bench.open(gate(define("stuck", hang)))
    assert await asyncio.to_thread(entered.wait, 10)
    await opened.close()
    (thread,) = bench.own_threads()
    assert thread.daemon
    release.set()  # it ends quietly, though nobody listens any more
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
    assert bench.told.empty()


async def test_closing_cancels_what_only_waits(bench: Bench, define: Callable[[str, Any], str]) -> None:
    entered = threading.Event()
    ended: list[str] = []

    async def wait_for_ever() -> float:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return 0.0

    opened = await bench.open(gate(define("probe", wait_for_ever)))
    assert await asyncio.to_thread(entered.wait, 10)
    await opened.close()
    assert ended == ["cancelled"]
    assert not bench.own_threads()


async def test_threads_end_with_their_probes(bench: Bench, define: Callable[[str, Any], str]) -> None:
    probe = define("probe", coroutine)
    opened = await bench.open(*(gate(probe, f"g{number}") for number in range(5)))
    for _ in range(5):
        await bench.next()
    assert len(bench.own_threads()) == 5
    await opened.close()
    assert not bench.own_threads()
    await opened.close()  # twice changes nothing
    await opened.open()
    assert (await bench.next()).value == 7


async def test_closing_at_once_is_fine(bench: Bench, define: Callable[[str, Any], str]) -> None:
    opened = await bench.open(gate(define("probe", lambda: 1)))
    await opened.close()
    assert bench.told.empty()


async def test_modules_beside_the_config_are_found(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "gates_beside_config.py").write_text(
        "class Office:\n    @staticmethod\n    def hours():\n        return 1\n"
    )
    await bench.open(gate("python:gates_beside_config:Office.hours"), search_path=(str(tmp_path),))
    assert await bench.next() == GateRead("g", 1.0, "")
    assert sys.path[-1] == str(tmp_path), "a file beside the config takes no library's place"
    monkeypatch.delitem(sys.modules, "gates_beside_config")


@pytest.mark.parametrize("name", PSUTIL_PROBES)
async def test_e5_the_machine_can_be_read(bench: Bench, name: str) -> None:
    """E5: gates on live headroom of CPU, memory and disk; every name the config accepts can be read."""
    await bench.open(gate(f"psutil:{name}"))
    reading = await bench.next()
    assert reading.error == ""
    assert reading.value is not None
    assert reading.value >= 0
    if name.endswith("_percent"):
        assert reading.value <= 100
    if name.endswith("_gb"):
        assert 0 < reading.value < 1e6


async def test_the_first_cpu_reading_is_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first reading of 0 would open a gate on a busy machine."""
    import psutil

    values = iter([0.0, 42.0, 43.0])
    monkeypatch.setattr(readings, "_FIRST_CPU_S", 0)
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: next(values))
    await bench.open(gate("psutil:cpu_percent"))
    assert (await bench.next()).value == 42
    await bench.wait_until_sleeping(1.0)
    bench.clock.advance(1)
    assert (await bench.next()).value == 43


async def test_a_folder_can_be_named(bench: Bench, tmp_path: Path) -> None:
    await bench.open(gate(f"psutil:disk_free_gb#{tmp_path}"))
    assert (await bench.next()).value


async def test_gates_on_lanes_need_no_probe(bench: Bench) -> None:
    await bench.open(Gate("g", lane="fpf", max_running=3, holds_lanes=("default",)))
    assert not bench.own_threads()


def test_what_a_probe_needs_comes_only_with_a_gate_that_needs_it() -> None:
    code = "import sys, penstock.dispatcher.probes; print(bool({'psutil', 'pynvml', 'aiohttp'} & {*sys.modules}))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "False"
