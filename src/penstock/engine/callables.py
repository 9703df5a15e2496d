"""Where a host's calls go: async callables to its loop, sync ones to its threads, once they are imported.

Whether a callable is async is known only when its module is loaded, and loading it is user code: the first
calls of a target wait while a thread of the host imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from penstock.engine.attempts import Finished, Run
from penstock.engine.calls import is_async, load
from penstock.engine.loops import HostLoop
from penstock.engine.outcomes import failure
from penstock.engine.threads import Threads
from penstock.hosts.base import Call
from penstock.model import Outcome

_Target: TypeAlias = tuple[str, tuple[str, ...]]
Post: TypeAlias = Callable[..., object]  # call this function with these arguments on the engine's loop


class Callables:
    """All calls of one host that stay in this process."""

    grace_s = None  # what waits for an import has begun nothing, and ends at once
    start_s = 0.0

    def __init__(self, loop: HostLoop, threads: Threads, finished: Finished, post: Post) -> None:
        self._loop = loop
        self._threads = threads
        self._finished = finished
        self._post = post
        self._known: dict[_Target, tuple[Callable[[Any], Any], bool]] = {}
        self._importing: dict[_Target, dict[Run, None]] = {}

    def begin(self, runs: Sequence[Run]) -> None:
        to_loop: list[Run] = []
        to_threads: list[Run] = []
        for run in runs:
            call: Call = run.work
            known = self._known.get((call.target, call.search_path))
            if known is None:
                self._import(run, (call.target, call.search_path))
                continue
            run.function, on_loop = known
            if on_loop:
                run.place = self._loop
                to_loop.append(run)
            else:
                run.place = self._threads
                to_threads.append(run)
        if to_loop:
            self._loop.begin(to_loop)
        if to_threads:
            self._threads.begin(to_threads)

    def stop(self, run: Run) -> None:
        call: Call = run.work
        self._importing[call.target, call.search_path].pop(run, None)
        self._finished(run, None)

    def give_up(self, run: Run) -> None:
        self._finished(run, None)

    async def close(self) -> None:
        await self._loop.close()
        await self._threads.close()

    def _import(self, run: Run, target: _Target) -> None:
        waiting = self._importing.get(target)
        if waiting is not None:
            waiting[run] = None
            return
        self._importing[target] = {run: None}

        def work() -> None:
            try:
                function = load(*target)
            except BaseException as error:  # noqa: BLE001 - the beginning of an attempt: the import is user code
                self._post(self._not_imported, target, failure(error))
            else:
                self._post(self._imported, target, function)

        self._threads.errand(work)

    def _imported(self, target: _Target, function: Callable[[Any], Any]) -> None:
        self._known[target] = (function, is_async(function))
        self.begin(list(self._importing.pop(target)))

    def _not_imported(self, target: _Target, outcome: Outcome) -> None:
        for run in self._importing.pop(target):
            self._finished(run, outcome)
