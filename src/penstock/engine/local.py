"""The engine of one machine: every attempt in the place its work belongs, and one report for each.

It runs on the dispatcher's loop, and that loop runs no user code (C4): async callables go to a loop thread of
their host, sync ones to its threads, isolated ones to its worker processes, programs to a loop of the
engine. Only adapters' own coroutines, which wait on I/O, stay here. Starting and reporting go in batches: one
wake-up of another thread for many attempts, and one back for all that have ended meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeGuard, assert_never

from penstock.clock import Clock
from penstock.engine.attempts import Place, Reason, Run
from penstock.engine.base import Key, Notice, Overdue, Report, Stall
from penstock.engine.callables import Callables
from penstock.engine.loops import HostLoop, OwnLoop
from penstock.engine.outcomes import failure, stopped, timed_out
from penstock.engine.outputs import Outputs
from penstock.engine.programs import Programs
from penstock.engine.threads import Threads
from penstock.engine.timers import Timers
from penstock.engine.trees import kill_orphans, new_marks
from penstock.engine.watchdog import Watchdog
from penstock.errors import HostError
from penstock.hosts.base import Adapter, Call, Health, Job, OwnCoroutine, Program, Standing, Watched, Work
from penstock.machine import lists_processes, shortcomings
from penstock.model import Outcome, Verdict

_HURRY_S = 0.5  # for user code to end that must end at once
_CHORES = 32  # threads for killing and looking; each may have to wait for a process to die

_log = logging.getLogger("penstock.engine")


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How patient the engine is."""

    grace_s: float = 5.0  # from a cancellation to going on without the attempt
    term_grace_s: float = 2.0  # from SIGTERM to SIGKILL
    stall_s: float = 0.25  # a loop that has not answered for so long is stalled
    overdue_s: float = 1.0  # what ends within this after its time is up has ended at once


DEFAULT_LIMITS = EngineLimits()


class LocalEngine:
    """`report` and `notice` are called on the loop that opened the engine.

    The engine opens and closes the adapters. `store_tag` marks the processes it starts, so that the next
    dispatcher of the same store finds what a killed one left: `trees.kill_orphans`.
    """

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        slots: Mapping[str, int],
        report: Report,
        notice: Notice,
        clock: Clock,
        default_timeout_s: float | None,
        store_tag: str,
        limits: EngineLimits = DEFAULT_LIMITS,
        outputs: Outputs | None = None,
    ) -> None:
        self._adapters = adapters
        self._slots = slots
        self._report = report
        self._notice = notice
        self._clock = clock
        self._default_timeout_s = default_timeout_s
        self._tag = store_tag
        self._marks = new_marks(store_tag)
        self._limits = limits
        self._outputs = outputs
        self._live: dict[tuple[str, int], Run] = {}
        self._inbox: deque[tuple[Run, Outcome | None]] = deque()
        self._awaited = False  # a look into the inbox is on its way
        self._open = False

    async def prepare(self) -> None: ...

    async def open(self, term: int = 0) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._chores = ThreadPoolExecutor(_CHORES, thread_name_prefix="penstock chore")
        self._watchdog = Watchdog(self._pass_stall, self._limits.stall_s)
        self._watchdog.watch(self._loop, "dispatcher")
        self._timers = Timers(self._clock, self._time_is_up)
        self._timing = self._loop.create_task(self._timers.run(), name="penstock timers")
        self._timing.add_done_callback(_complain)
        self._own = OwnLoop(self._limits.grace_s, self._finished)
        self._programs = Programs(self._marks, self._limits.term_grace_s, self._finished, self._chores)
        self._callables: dict[str, Place] = {}
        self._processes: dict[str, Place] = {}
        self._empty = asyncio.Event()
        self._open = True
        if not lists_processes():
            _log.warning("%s", shortcomings())
        for name, adapter in self._adapters.items():
            await adapter.open()
            if isinstance(adapter, Standing) and self._stands(name):
                await adapter.stand()

    async def close(self, *, at_once: bool = False) -> None:
        """Stop what runs and wait for it. User code that cannot be stopped is left, and named in the log."""
        if not self._open:
            return
        self._open = False
        if at_once:
            self._programs.hurry()
        for run in list(self._live.values()):
            self._end(run, Reason.STOPPED)
        await self._wait_empty(_HURRY_S if at_once else None)
        for run in list(self._live.values()):
            if not run.ended and run.place is not None:
                run.place.give_up(run)
                self._look_in()
        await asyncio.gather(*(place.close() for place in self._places()))
        self._look_in()
        self._timing.cancel()
        await asyncio.wait({self._timing})
        if self._programs.used or self._processes:
            await self._loop.run_in_executor(self._chores, self._marks.kill_all)
        self._chores.shutdown()
        self._watchdog.close()
        for adapter in self._adapters.values():
            await adapter.close()

    async def sweep(self) -> int:
        return await self._loop.run_in_executor(self._chores, kill_orphans, self._tag)

    def start(self, jobs: Sequence[Job]) -> None:
        if not self._open:
            raise RuntimeError("the engine is not open")
        now = self._clock.now()
        live, default_timeout_s = self._live, self._default_timeout_s
        batches: dict[Place, list[Run]] = {}
        twice: list[Run] = []
        for job in jobs:
            timeout_s = default_timeout_s if job.timeout_s is None else job.timeout_s
            run = Run(job, timeout_s)
            if live.setdefault((job.task, job.attempt), run) is not run:
                twice.append(run)
                continue
            try:
                place = self._assign(run)
            except Exception as error:  # noqa: BLE001 - the attempt begins here, with a payload nobody can use
                self._finished(run, failure(error))
                continue
            batch = batches.get(place)
            if batch is None:
                batches[place] = [run]
            else:
                batch.append(run)
            if timeout_s is not None:
                late_s = run.work.late_s if isinstance(run.work, OwnCoroutine) else 0.0
                self._timers.set(run, now + timeout_s + place.start_s + late_s)
        for place, runs in batches.items():
            place.begin(runs)
        self._timers.sweep(len(live))
        if twice:
            raise ValueError(f"already running: {', '.join(run.name for run in twice)}")

    def stop(self, task: str, attempt: int) -> None:
        run = self._live.get((task, attempt))
        if run is not None:
            self._end(run, Reason.STOPPED)

    # What runs here ends with its dispatcher: there is nothing to adopt or to leave.

    @property
    def detaches(self) -> bool:
        return False

    async def adopt(self, jobs: Sequence[Job]) -> set[Key]:
        return set()

    def detached(self) -> Collection[Key]:
        return ()

    def withdraw(self, but: Collection[str] = ()) -> None: ...

    def leave(self) -> None: ...

    def recorded(self, ended: Iterable[Key]) -> None: ...

    def down(self) -> Mapping[str, str]:
        return {}

    def want(self, host: str) -> None: ...

    def watched(self) -> Mapping[str, float]:
        return {
            name: adapter.check_every_s
            for name, adapter in self._adapters.items()
            if isinstance(adapter, Watched) and adapter.check_every_s > 0
        }

    async def check(self, host: str) -> Health:
        return await self._adapters[host].check()

    # ---- beginning

    def _stands(self, host: str) -> bool:
        """Whether a host's adapter does its work here."""
        return True

    def _places(self) -> Sequence[Place]:
        return (*self._callables.values(), *self._processes.values(), self._programs, self._own)

    def _assign(self, run: Run) -> Place:
        host = run.job.host
        adapter = self._adapters.get(host)
        if adapter is None:
            raise HostError(f"there is no host {host!r}")
        work: Work = adapter.work(run.job)
        run.work = work
        place: Place | None
        if isinstance(work, Call):
            places = self._processes if work.isolated else self._callables
            place = places.get(host)
            if place is None:
                make = self._make_processes if work.isolated else self._make_callables
                place = places[host] = make(host)
        elif isinstance(work, Program):
            place = self._programs
        elif isinstance(work, OwnCoroutine):
            place = self._own
        else:
            assert_never(work)
        run.place = place
        return place

    def _make_callables(self, host: str) -> Place:
        threads = Threads(host, self._slots.get(host, 1), self._finished, self._watchdog)
        loop = HostLoop(host, self._limits.grace_s, self._finished, self._live.values(), self._watchdog)
        return Callables(loop, threads, self._finished, self._loop.call_soon_threadsafe)

    def _make_processes(self, host: str) -> Place:
        from penstock.engine.processes import Processes  # pebble is loaded only where it is used

        return Processes(
            host, self._slots.get(host, 1), self._marks, self._finished, self._restart_time, self._chores
        )

    def _restart_time(self, run: Run) -> None:
        if run.timeout_s is not None and run.reason is None and not run.ended:
            self._timers.set(run, self._clock.now() + run.timeout_s)

    # ---- ending

    def _end(self, run: Run, reason: Reason) -> None:
        asked, run.reason = run.reason is not None, reason
        if asked or run.place is None:
            return
        if run.place.grace_s is None:
            run.due = None
        else:
            self._timers.set(run, self._clock.now() + run.place.grace_s)
        run.place.stop(run)

    def _time_is_up(self, run: Run) -> None:
        if run.reason is None:
            self._end(run, Reason.TIMED_OUT)
            self._loop.call_later(self._limits.overdue_s, self._tell_overdue, run, self._clock.now())
        elif run.place is not None:
            run.place.give_up(run)

    def _tell_overdue(self, run: Run, since: float) -> None:
        if self._open and not run.ended and run.reason is Reason.TIMED_OUT:
            self._notice(Overdue(run.job.task, run.job.attempt, run.job.host, since))

    def _finished(self, run: Run, outcome: Outcome | None) -> None:
        """From any thread. Who finds the flag down raises it and wakes the loop; the others only append."""
        if outcome is not None and outcome.unloaded:
            outcome = _blaming(run.work, outcome)
        self._inbox.append((run, outcome))
        if not self._awaited:
            self._awaited = True
            if threading.get_ident() == self._thread:  # an adapter's own coroutine: nobody has to be woken
                self._loop.call_soon(self._look_in)
                return
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits for this any more
                self._loop.call_soon_threadsafe(self._look_in)

    def _look_in(self) -> None:
        self._awaited = False  # first: what is appended from now on brings its own wake-up
        inbox, live = self._inbox, self._live
        reports: list[tuple[Job, Outcome]] = []
        for _ in range(len(inbox)):
            run, outcome = inbox.popleft()
            if run.ended:
                continue
            job = run.job
            if job.output is not None and not run.saved and _is_done(outcome):
                self._save(run, job.output, outcome)
                continue
            run.ended = True
            del live[job.task, job.attempt]
            reports.append((job, outcome if outcome is not None else _ended(run)))
        if not live:
            self._empty.set()
        if reports:
            self._report(reports)

    def _save(self, run: Run, output: str, outcome: Outcome) -> None:
        """Off the loop: a disk may be slow. The attempt has ended, so nothing can stop it any more."""
        run.saved = True
        run.place = None
        run.due = None
        if self._outputs is None:
            told = "this engine saves no outputs; leave `output` out"
            self._finished(run, Outcome(Verdict.PERMANENT, outcome.value, error=told))
            return
        saving = self._chores.submit(self._outputs.kept, output, outcome)
        saving.add_done_callback(lambda done: self._finished(run, _saved(done)))

    async def _wait_empty(self, most_s: float | None = None) -> None:
        """Until nothing is live, but no longer than its places need to end things."""
        graces = [run.place.grace_s for run in self._live.values() if run.place is not None]
        if not self._live:
            return
        self._empty.clear()
        with contextlib.suppress(TimeoutError):
            longest = max((grace or self._limits.grace_s for grace in graces), default=self._limits.grace_s)
            async with asyncio.timeout(longest if most_s is None else min(longest, most_s)):
                await self._empty.wait()

    def _pass_stall(self, stall: Stall) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._notice, stall)


def _blaming(work: Work, outcome: Outcome) -> Outcome:
    """Code that is not there, and that the host can do nothing without, is no fault of the task."""
    if not isinstance(work, Call) or outcome.unloaded not in work.vital:
        return outcome
    return replace(outcome, verdict=Verdict.HOST, needs_fix=True)


def _is_done(outcome: Outcome | None) -> TypeGuard[Outcome]:
    return outcome is not None and outcome.verdict is Verdict.DONE


def _saved(saving: Future[Outcome]) -> Outcome:
    error = saving.exception()
    return saving.result() if error is None else failure(error)


def _ended(run: Run) -> Outcome:
    outcome = timed_out(run.timeout_s) if run.reason is Reason.TIMED_OUT else stopped()
    if run.spent is None:
        return outcome
    return replace(outcome, tokens=run.spent.tokens, cost_usd=run.spent.cost_usd)


def _complain(timing: asyncio.Task[None]) -> None:
    if not timing.cancelled():
        _log.critical("a defect: time limits no longer hold", exc_info=timing.exception())
