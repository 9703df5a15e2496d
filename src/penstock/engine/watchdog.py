"""Names user code that keeps a loop from turning, while it does so: host, task, seconds and stack.

One daemon thread asks every watched loop to answer, several times a second, as long as attempts run on user
loops or in threads; otherwise it sleeps and costs nothing. A loop that does not answer for `stall_s` is
stalled: that is told once when it is noticed, with the stack at that moment, and once when it is over, with
its full length.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from penstock.engine.attempts import Run, not_returned
from penstock.engine.base import Stall

T = TypeVar("T")

_log = logging.getLogger("penstock.watchdog")

# Frames in these folders are ours and asyncio's: below the last of them on a stack begins user code.
_FRAMEWORK = (os.path.dirname(__file__) + os.sep, os.path.dirname(asyncio.__file__) + os.sep)

# Tasks that attempts made, and the attempts' names.
_owners: WeakKeyDictionary[asyncio.Task[Any], str] = WeakKeyDictionary()


@dataclass(slots=True, eq=False)
class Watched:
    """A loop under watch. Only the watchdog's thread writes to it, but for `answered` and `gone`."""

    loop: asyncio.AbstractEventLoop
    name: str
    thread: int
    busy: Callable[[], bool]
    asked: float | None = None
    answered: float | None = None
    stall: Stall | None = None
    gone: bool = False

    def answer(self) -> None:
        self.answered = time.monotonic()


class Watchdog:
    """`on_stall` is called on the watchdog's thread; it must not block."""

    def __init__(
        self, on_stall: Callable[[Stall], None], stall_s: float = 0.25, period_s: float = 0.1
    ) -> None:
        self._on_stall = on_stall
        self._stall_s = stall_s
        self._period_s = period_s
        self._watched: list[Watched] = []
        self._busy: list[Callable[[], bool]] = []
        self._overdue: deque[tuple[Run, int]] = deque()
        self._roused = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def watch(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        thread: int | None = None,
        busy: Callable[[], bool] = lambda: False,
    ) -> Watched:
        """Watch a loop that turns on `thread` (default: the caller's). It alone keeps the watchdog awake
        only while `busy`."""
        watched = Watched(loop, name, threading.get_ident() if thread is None else thread, busy)
        with self._lock:
            self._watched.append(watched)
        return watched

    def unwatch(self, watched: Watched) -> None:
        """A stall that is still going on is told to its end as of now."""
        watched.gone = True
        self.rouse()

    def awake_while(self, busy: Callable[[], bool]) -> None:
        """Something without a loop, whose code may stall the loops of others."""
        with self._lock:
            self._busy.append(busy)

    def rouse(self) -> None:
        """Attempts have begun. Cheap: it is called for every batch."""
        if self._roused.is_set():
            return
        self._roused.set()
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._main, name="penstock watchdog", daemon=True)
                self._thread.start()

    def report_overdue(self, run: Run, thread: int) -> None:
        """A function that must end and cannot be made to: say where it stands."""
        self._overdue.append((run, thread))
        self.rouse()

    def close(self) -> None:
        with self._lock:
            self._closing.set()
            thread = self._thread
        self._roused.set()
        if thread is not None:
            thread.join()

    def _main(self) -> None:
        while not self._closing.is_set():
            self._roused.wait()
            if self.tick(time.monotonic()):
                self._closing.wait(self._period_s)
                continue
            self._roused.clear()
            # Work that began between the look and the clearing would go unwatched.
            if self._is_needed():
                self._roused.set()

    def tick(self, now: float) -> bool:
        """Ask, and see who has not answered; whether to look again soon."""
        while self._overdue:
            self._tell_overdue(*self._overdue.popleft())
        with self._lock:
            watched_now = list(self._watched)
        needed = self._is_needed()
        for watched in watched_now:
            self._look(watched, now, needed)
        return needed

    def _is_needed(self) -> bool:
        with self._lock:
            return (
                bool(self._overdue)
                or any(w.stall is not None or w.gone or w.busy() for w in self._watched)
                or any(busy() for busy in self._busy)
            )

    def _look(self, watched: Watched, now: float, needed: bool) -> None:
        answered = watched.answered
        if watched.asked is not None and (answered is not None or watched.gone):
            if watched.stall is not None:
                self._tell_end(watched, (now if answered is None else answered) - watched.asked)
            watched.asked = watched.answered = None
        if watched.gone:
            with self._lock:
                self._watched.remove(watched)
        elif watched.asked is None:
            if needed:
                self._ask(watched, now)
        elif watched.stall is None and now - watched.asked >= self._stall_s:
            self._tell_start(watched, now - watched.asked)

    def _ask(self, watched: Watched, now: float) -> None:
        watched.asked = now
        try:
            watched.loop.call_soon_threadsafe(watched.answer)
        except RuntimeError:  # the loop is closed
            watched.gone = True

    def _tell_start(self, watched: Watched, seconds: float) -> None:
        task, attempt = running_attempt(watched.loop)
        stack = stack_of(watched.thread)
        if watched.answered is not None:
            return  # it went on while we looked, and the stack may be of something else
        if is_waiting(watched.thread):
            return  # nothing blocks it: the machine is too busy to let it run
        watched.stall = Stall(watched.name, task, attempt, seconds, stack)
        who = f"task {task}, attempt {attempt}," if task is not None else "something"
        _log.warning(
            "host %s: %s blocks the loop, for %.2f s so far; use async calls, a sync function or "
            'isolation = "process". It stands at\n%s',
            watched.name,
            who,
            seconds,
            stack,
        )
        self._on_stall(watched.stall)

    def _tell_end(self, watched: Watched, seconds: float) -> None:
        assert watched.stall is not None
        stall = replace(watched.stall, seconds=seconds, over=True)
        watched.stall = None
        _log.warning("host %s: the loop was blocked for %.2f s by task %s", stall.host, seconds, stall.task)
        self._on_stall(stall)

    def _tell_overdue(self, run: Run, thread: int) -> None:
        stack = stack_of(thread)
        if run.where != thread:
            return  # it has just returned, and the stack may be of the next one
        _log.warning("%s. It stands at\n%s", not_returned(run), stack)


def owned_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, T] | Generator[Any, None, T],
    **options: Any,
) -> asyncio.Task[T]:
    """A task factory for user loops: a stall in a task that an attempt made is the attempt's."""
    task: asyncio.Task[T] = asyncio.Task(coroutine, loop=loop, **options)
    maker = asyncio.current_task(loop)
    if maker is not None:
        _owners[task] = _owners.get(maker) or maker.get_name()
    return task


def running_attempt(loop: asyncio.AbstractEventLoop) -> tuple[str | None, int | None]:
    """The attempt whose code a loop is in, asked from another thread. Its own task is named `task/attempt`."""
    current = asyncio.current_task(loop)
    if current is None:
        return None, None
    task, _, attempt = (_owners.get(current) or current.get_name()).rpartition("/")
    return (task, int(attempt)) if task and attempt.isdigit() else (None, None)


def is_waiting(thread: int) -> bool:
    """Whether a loop's thread is in the loop itself, where it waits for something to do.

    User code can wait in a selector as well (`subprocess.run` does), but it is always called by a handle.
    """
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code.co_filename == asyncio.events.__file__:
            return False
        if frame.f_code.co_filename == asyncio.base_events.__file__:
            return frame.f_code.co_name == "_run_once"
        frame = frame.f_back
    return False


def stack_of(thread: int) -> str:
    """Where a thread stands, from the first line of user code on."""
    frame: FrameType | None = sys._current_frames().get(thread)
    if frame is None:
        return ""
    entries = traceback.extract_stack(frame)
    ours = [number for number, entry in enumerate(entries) if entry.filename.startswith(_FRAMEWORK)]
    first = ours[-1] + 1 if ours else 0
    return "".join(traceback.format_list(entries[first:] or entries)).rstrip()
