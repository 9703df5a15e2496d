"""The watchdog: who stalls a loop, told once when it is noticed and once when it is over."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from penstock.dispatcher import precise
from penstock.engine.base import Stall
from penstock.engine.watchdog import Watchdog, is_waiting, stack_of
from tests.conformance.engine_rig import Rig, python_host
from tests.conformance.host_phone import PATIENCE_S, Phone


class Still:
    """A loop on a thread of its own that can be held."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def hold(self) -> Callable[[], None]:
        """Block it; the answer lets it go, and returns when it turns again."""
        held, let_go = threading.Event(), threading.Event()

        async def block() -> None:
            held.set()
            let_go.wait(PATIENCE_S)

        async def named() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.set_name("some/task/7")
            await block()

        future = asyncio.run_coroutine_threadsafe(named(), self.loop)
        held.wait(PATIENCE_S)

        def release() -> None:
            let_go.set()
            future.result(PATIENCE_S)
            self.turn()

        return release

    def turn(self) -> None:
        """Until what was asked of the loop so far is done."""
        turned = threading.Event()
        self.loop.call_soon_threadsafe(turned.set)
        assert turned.wait(PATIENCE_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def still() -> Iterator[Still]:
    still = Still()
    yield still
    still.close()


class Bench:
    """A watchdog without its thread: the test turns the clock."""

    def __init__(self, still: Still, busy: bool = True) -> None:
        self.stalls: list[Stall] = []
        self.busy = busy
        self.dog = Watchdog(self.stalls.append, stall_s=0.25)
        self.watched = self.dog.watch(still.loop, "host", still.thread.ident, lambda: self.busy)


def test_a_loop_that_answers_is_left_alone(still: Still) -> None:
    bench = Bench(still)
    for tick in range(20):
        assert bench.dog.tick(tick * 0.1)
        still.turn()
    assert bench.stalls == []


def test_a_stall_is_told_at_its_beginning_and_its_end(still: Still, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(still)
    release = still.hold()
    for now in (0.0, 0.1, 0.2):
        bench.dog.tick(now)
    assert bench.stalls == []
    for now in (0.3, 0.4, 0.5, 2.0):
        bench.dog.tick(now)
    (stall,) = bench.stalls
    assert (stall.host, stall.task, stall.attempt) == ("host", "some/task", 7)
    assert stall.seconds == pytest.approx(0.3)
    assert stall.stack.splitlines()[0].endswith("in named")
    assert "let_go.wait" in stall.stack
    assert "asyncio" not in stall.stack
    assert "task some/task, attempt 7, blocks the loop" in caplog.text
    release()
    assert bench.watched.answered is not None
    bench.watched.answered = 2.5
    bench.dog.tick(3.0)
    bench.dog.tick(3.1)
    assert len(bench.stalls) == 2
    assert bench.stalls[1].seconds == pytest.approx(2.5)
    assert bench.stalls[1].stack == stall.stack


def test_nothing_is_asked_while_nothing_runs(still: Still) -> None:
    bench = Bench(still, busy=False)
    assert not bench.dog.tick(0.0)
    assert bench.watched.asked is None


def test_something_else_that_is_busy_keeps_it_awake(still: Still) -> None:
    bench = Bench(still, busy=False)
    bench.dog.awake_while(lambda: True)
    assert bench.dog.tick(0.0)
    assert bench.watched.asked is not None


def test_a_loop_that_is_given_up_ends_its_stall(still: Still) -> None:
    bench = Bench(still)
    release = still.hold()
    bench.dog.tick(0.0)
    bench.dog.tick(1.0)
    bench.watched.gone = True
    assert bench.dog.tick(4.0)
    assert [stall.seconds for stall in bench.stalls] == [1.0, 4.0]
    assert not bench.dog.tick(5.0)
    release()


def test_a_closed_loop_is_forgotten() -> None:
    still = Still()
    bench = Bench(still)
    still.close()
    bench.dog.tick(0.0)
    assert bench.watched.gone
    bench.dog.tick(1.0)
    assert bench.stalls == []


@pytest.mark.parametrize("timer_s", [None, 1000.0], ids=["idle", "with a timer"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, precise.new_loop], ids=["asyncio", "precise"])
def test_a_loop_that_waits_for_work_is_not_stalled(
    new_loop: Callable[[], asyncio.AbstractEventLoop], timer_s: float | None
) -> None:
    """Its answer may be late because the machine is busy with others."""
    still = Still(new_loop())
    bench = Bench(still)
    if timer_s is not None:
        still.loop.call_soon_threadsafe(still.loop.call_later, timer_s, print)
    still.turn()
    while "select" not in innermost(still.thread):
        pass
    assert is_waiting(still.thread.ident or 0)
    bench.watched.asked = 0.0  # as if it had been asked, and had had no chance to answer
    bench.dog.tick(5.0)
    assert bench.stalls == []
    still.close()


def innermost(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame.f_code.co_name if frame is not None else ""


async def test_user_code_that_waits_in_a_selector_of_its_own_is_named() -> None:
    """C4: `subprocess.run` in an async function, the fault that froze the report runner."""
    async with Phone() as phone, Rig(python_host("host", "on_loop")) as rig:
        rig.start("host", {"act": "block in a selector", "port": phone.port}, "runner")
        (caller,) = await phone.callers(1)
        (stall,) = await rig.stalled(1)
        assert stall.task == "runner"
        assert "selector.select()" in stall.stack
        caller.say("go")
        assert (await rig.outcome("runner")).value == "go"


def test_a_stack_of_no_thread_is_empty() -> None:
    assert stack_of(-1) == ""


def test_the_thread_starts_with_work_and_ends_with_the_watchdog(still: Still) -> None:
    told = threading.Event()
    dog = Watchdog(lambda stall: told.set(), stall_s=0.01, period_s=0.005)
    dog.watch(still.loop, "host", still.thread.ident, lambda: True)
    names = {thread.name for thread in threading.enumerate()}
    assert "penstock watchdog" not in names
    release = still.hold()
    dog.rouse()
    assert told.wait(PATIENCE_S)
    release()
    dog.close()
    dog.rouse()
    assert "penstock watchdog" not in {thread.name for thread in threading.enumerate()}


async def test_a_stall_in_a_task_that_an_attempt_made_has_its_name() -> None:
    """C4"""
    async with Phone() as phone, Rig(python_host("host", "on_loop")) as rig:
        rig.start("host", {"act": "block in a task of its own", "port": phone.port}, "maker")
        (caller,) = await phone.callers(1)
        (stall,) = await rig.stalled(1)
        assert (stall.task, stall.attempt) == ("maker", 1)
        assert "in _blocking" in stall.stack
        caller.say("go")
        assert (await rig.outcome("maker")).value == ["go"]


async def test_an_overdue_thread_is_named_with_its_stack() -> None:
    news: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            loop.call_soon_threadsafe(news.put_nowait, record.getMessage())

    listener = Listener()
    logger = logging.getLogger("penstock.watchdog")
    logger.addHandler(listener)
    try:
        async with Phone() as phone, Rig(python_host("host", "sync")) as rig:
            rig.start("host", {"act": "meet", "port": phone.port}, "slow")
            (caller,) = await phone.callers(1)
            rig.engine.stop("slow", 1)
            async with asyncio.timeout(PATIENCE_S):
                said = await news.get()
            caller.say("go")
    finally:
        logger.removeHandler(listener)
    assert said.startswith("host host: task slow, attempt 1, is stopped and its function has not returned")
    assert "in sync" in said
    assert "in ring" in said


async def test_the_dispatchers_own_loop_is_watched() -> None:
    async with Phone() as phone, Rig(python_host("host", "sync")) as rig:
        rig.start("host", {"act": "meet", "port": phone.port})
        (caller,) = await phone.callers(1)
        noticed = threading.Event()

        class Listener(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                noticed.set()

        listener = Listener()
        logging.getLogger("penstock.watchdog").addHandler(listener)
        assert noticed.wait(PATIENCE_S)  # this blocks the loop
        logging.getLogger("penstock.watchdog").removeHandler(listener)
        stall = (await rig.stalled(1))[0]
        assert stall.host == "dispatcher"
        assert "noticed.wait(PATIENCE_S)" in stall.stack
        caller.say("go")
        await rig.outcome()
