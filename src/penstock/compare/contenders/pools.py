"""A pool for each host, as large as the host has slots: threads or processes, the rest is the same.

A task is given to the host of its kind with the least waiting per slot when it comes. When a call fails it is
given to another host, or after a pause to the same again, until its tries are used up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from penstock.compare.contenders.calls import CallFailed, ask
from penstock.compare.contenders.computing import compute_work
from penstock.compare.plan import Ending, Place, Plan, Report, Runner, Work


def perform(plan_cpu_bound: bool, place: Place, work: Work, timeout_s: float, pause_s: float) -> Any:
    """Runs in a worker; a pause before a repeated try keeps its slot, as a worker that waits does."""
    if pause_s:
        time.sleep(pause_s)
    return compute_work(work) if plan_cpu_bound else ask(place, work, timeout_s)


@contextmanager
def opened_pools(plan: Plan, make: Callable[[Place], Executor]) -> Iterator[Runner]:
    with ExitStack() as stack:
        pools = {place.name: stack.enter_context(make(place)) for place in plan.places}
        yield lambda: _Round(plan, pools).run()


class _Try(NamedTuple):
    work: Work
    place: Place
    number: int


class _Round:
    def __init__(self, plan: Plan, pools: dict[str, Executor]) -> None:
        self._plan = plan
        self._pools = pools
        self._pending: dict[Future[Any], _Try] = {}
        self._endings: list[Ending] = []

    def run(self) -> Report:
        began = time.monotonic()
        for at_s, works in self._plan.arrivals():
            self._collect_until(began + at_s)
            for work in works:
                place = min(self._plan.places_for(work.kind), key=self._load)
                self._submit(_Try(work, place, 1))
        while self._pending:
            self._collect(None)
        return Report(tuple(self._endings))

    def _submit(self, tried: _Try, pause_s: float = 0.0) -> None:
        plan, (work, place, _) = self._plan, tried
        future = self._pools[place.name].submit(perform, plan.cpu_bound, place, work, plan.timeout_s, pause_s)
        self._pending[future] = tried

    def _load(self, place: Place) -> float:
        return sum(tried.place is place for tried in self._pending.values()) / place.slots

    def _collect_until(self, moment: float) -> None:
        while (left_s := moment - time.monotonic()) > 0:
            if self._pending:
                self._collect(left_s)
            else:
                time.sleep(left_s)

    def _collect(self, timeout_s: float | None) -> None:
        done, _ = wait(self._pending, timeout_s, FIRST_COMPLETED)
        for future in done:
            tried = self._pending.pop(future)
            try:
                self._endings.append(Ending(tried.work.id, future.result(), tries=tried.number))
            except CallFailed as error:
                self._failed(tried, str(error))

    def _failed(self, tried: _Try, error: str) -> None:
        work, place, number = tried
        if number > self._plan.retries:
            self._endings.append(Ending(work.id, error=error, tries=number))
            return
        others = [other for other in self._plan.places_for(work.kind) if other is not place]
        if others:
            self._submit(_Try(work, min(others, key=self._load), number + 1))
        else:
            self._submit(_Try(work, place, number + 1), self._plan.pause_before_s(number))
