"""What a contender's processes take while it runs, watched from outside: memory, threads, context switches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from penstock.compare.judge import Taken

_EVERY_S = 0.02
# Samples between two looks for new processes: each reads about every process there is.
_LOOK_FOR_CHILDREN = 10
_OWN_THREADS = 1  # the contender's process hears its orders in one, which is none of its way's


class Meter:
    def __init__(self, pid: int) -> None:
        self._main = psutil.Process(pid)
        self._memory = self._threads = self._processes = 0
        self._first: dict[int, tuple[int, float]] = {}
        self._last: dict[int, tuple[int, float]] = {}
        self._children: list[psutil.Process] = []
        self._over = threading.Event()
        self._begun = False

    @property
    def taken(self) -> Taken:
        switches, cpu_s = 0, 0.0
        for pid, (count, seconds) in self._last.items():
            before = self._first[pid]
            switches += count - before[0]
            cpu_s += seconds - before[1]
        return Taken(self._memory, self._threads, self._processes, switches, cpu_s)

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._look(True)
        self._begun = True
        thread = threading.Thread(target=self._watch, name="meter")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._look(True)

    def _watch(self) -> None:
        number = 0
        while not self._over.wait(_EVERY_S):
            number += 1
            self._look(number % _LOOK_FOR_CHILDREN == 0)

    def _look(self, for_children: bool) -> None:
        memory = threads = processes = 0
        with suppress(psutil.Error):  # it may be gone by now
            if for_children:
                self._children = self._main.children(recursive=True)
        for process in (self._main, *self._children):
            with suppress(psutil.Error), process.oneshot():
                memory += process.memory_info().rss
                threads += process.num_threads()
                processes += 1
                if process is not self._main:
                    self._note(process)
        self._memory = max(self._memory, memory)
        self._threads = max(self._threads, threads - _OWN_THREADS)
        self._processes = max(self._processes, processes)

    def _note(self, process: psutil.Process) -> None:
        switched, times = process.num_ctx_switches(), process.cpu_times()
        seen = (switched.voluntary + switched.involuntary, times.user + times.system)
        # Whoever was there before the start is counted from then on; whoever came after it, from its birth.
        self._first.setdefault(process.pid, (0, 0.0) if self._begun else seen)
        self._last[process.pid] = seen
