"""Where a worker runs its attempts: the local engine with one host, on a loop thread of its own.

What the engine of one machine does well (loops, threads, worker processes, process trees, time limits) happens here
unchanged, on whatever node the worker is. What must outlive nobody is watched by a guard, should the worker die.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import msgspec

from penstock.clock import SystemClock
from penstock.config.agents import Agent
from penstock.engine.attempts import Place, Reason, Run
from penstock.engine.base import Delay, Ended, Key, Overdue, Stall
from penstock.engine.calls import invoke, is_async, load
from penstock.engine.cluster import guard
from penstock.engine.cluster.letters import Hiring
from penstock.engine.local import LocalEngine
from penstock.engine.outcomes import failure, stopped, timed_out
from penstock.engine.threads import UNKILLABLE, Threads
from penstock.engine.trees import prefix
from penstock.hosts.base import Adapter, Call, Job, OwnCoroutine
from penstock.hosts.own_door import Access
from penstock.hosts.python import shares_process
from penstock.hosts.workspace import log_path
from penstock.model import Host, Outcome, Verdict

_JOIN_S = 5.0


class GivenDoor:
    """The way back to the dispatcher's models, as each attempt was given it."""

    def __init__(self) -> None:
        self._given: dict[Key, Access] = {}

    def give(self, key: Key, access: Access) -> None:
        self._given[key] = access

    def take_back(self, key: Key) -> None:
        self._given.pop(key, None)

    def admit(self, job: Job, lane: str) -> Access:
        return self._given[job.task, job.attempt]


class Shop:
    """Its methods may be called from any thread; `over` and `stalled` are called on its own."""

    def __init__(
        self, hired: Hiring, over: Callable[[Key, Outcome, bool], None], stalled: Callable[[Stall], None]
    ) -> None:
        self.door = GivenDoor()
        self._hired = hired
        self._over = over
        self._stalled = stalled
        self._guard: subprocess.Popen[bytes] | None = None
        self._keeps = hired.host.options.get("keep", "none") != "none"
        self._folder = ""
        if hired.keeps_logs:
            self._folder = tempfile.mkdtemp(prefix="penstock-worker-")
            self._guarded()  # or it would stay behind when the worker is killed
        self._adapter = _adapter(_placed(hired, self._folder, self.door), hired.make)
        # Plain functions need no loop: to hand them over and back would take as long as many of them take.
        self.may_call = shares_process(hired.host)
        self._functions: dict[str, tuple[Callable[[Any], Any], bool]] = {}
        # Those that the engine has not yet, or never will: their code is being imported, or they are called here;
        # and why they should end.
        self._apart: dict[Key, Reason | None] = {}
        self._giving = threading.Lock()  # an attempt is in one of the two places, for whoever is to end it
        self._engine = _Inner(
            {hired.host.name: self._adapter},
            {hired.host.name: hired.capacity},
            self._report,
            self._noticed,
            SystemClock(),
            None,
            hired.tag,
            hired.limits,
        )
        self._engine.needs_guard = self._guarded
        self._loop = asyncio.new_event_loop()
        opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, args=(opened,), name="shop", daemon=True)
        self._thread.start()
        opened.result()

    def expect(self, key: Key) -> None:
        """From now on it can be told to end; it is begun, or dismissed, next."""
        with self._giving:
            self._apart[key] = None

    def dismiss(self, key: Key) -> None:
        """It never begins, or is over."""
        with self._giving:
            self._apart.pop(key, None)
        self.door.take_back(key)

    def begin(self, job: Job) -> Outcome | None:
        """Begin an attempt. That of a plain function runs here and now, in the caller's thread: the answer is its
        end, or that of one which was told to end before. None: the end is told when it comes."""
        began = time.monotonic()
        key = (job.task, job.attempt)
        try:
            plain = self._plain(job) if self.may_call else None
            outcome = None
        except BaseException as error:  # noqa: BLE001 - the beginning of an attempt: the import is user code
            plain, outcome = None, _blaming(failure(error))
        with self._giving:
            reason = self._reason(job, began)
            if plain is None and outcome is None and reason is None:
                del self._apart[key]
                self._loop.call_soon_threadsafe(self._engine.start, [job])
                return None
        if plain is not None and reason is None:
            outcome = plain()
            reason = self._reason(job, began)
        self.dismiss(key)
        if reason is None:
            return outcome
        if reason is Reason.TIMED_OUT:
            return timed_out(job.timeout_s, UNKILLABLE if self.may_call else "")
        return stopped()

    def _plain(self, job: Job) -> Callable[[], Outcome] | None:
        """The call of a plain function, which is imported if it is the first; None: it is none."""
        work = self._adapter.work(job)
        assert isinstance(work, Call)
        known = self._functions.get(work.target)
        if known is None:
            known = self._functions[work.target] = _known(work)
        function, is_sync = known
        return partial(invoke, function, work.payload, work.trace) if is_sync else None

    def _reason(self, job: Job, began: float) -> Reason | None:
        """Why one that the engine has not should end: it was told to, or is out of time."""
        reason = self._apart[job.task, job.attempt]
        if reason is None and job.timeout_s is not None and time.monotonic() - began > job.timeout_s:
            return Reason.TIMED_OUT
        return reason

    def end(self, key: Key, *, timed_out: bool) -> float | None:
        """Make an attempt end; by when it will have. None: nobody can, but one that has not begun will not."""
        reason = Reason.TIMED_OUT if timed_out else Reason.STOPPED
        done: Future[float | None] = Future()

        def ask() -> None:
            done.set_result(self._engine.end(key, reason))

        with self._giving:
            if key in self._apart:
                self._apart[key] = reason
                return None
            self._loop.call_soon_threadsafe(ask)  # if it was just begun the engine has it by then
        return done.result()

    def log_of(self, key: Key) -> str:
        """The file of what an attempt says."""
        return str(log_path(self._folder, self._hired.host.name, *key))

    def close(self) -> None:
        """Leave nothing behind on this machine."""
        asyncio.run_coroutine_threadsafe(self._engine.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_S)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.communicate(b"the worker ends in order\n")
        if self._folder and not self._keeps:
            shutil.rmtree(self._folder, ignore_errors=True)

    # ---- on its thread

    def _main(self, opened: Future[None]) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._engine.open())
        except BaseException as error:  # noqa: BLE001 - handed to whoever makes the worker, who waits for it
            opened.set_exception(error)
        else:
            opened.set_result(None)
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _report(self, ended: Ended) -> None:
        for job, outcome in ended:
            key = (job.task, job.attempt)
            self.door.take_back(key)
            in_thread = key in self._engine.in_threads
            self._engine.in_threads.discard(key)
            self._over(key, outcome, in_thread)

    def _noticed(self, notice: Stall | Delay | Overdue) -> None:
        if isinstance(notice, Stall):  # whose time is up the dispatcher's engine knows itself
            self._stalled(notice)

    def _guarded(self) -> None:
        if self._guard is None:
            folder = [self._folder] if self._folder and not self._keeps else []
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, prefix(self._hired.tag), *folder],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
            # It leaves its first process at once, so as not to be a child of this one.
            threading.Thread(target=self._guard.wait, name="guard", daemon=True).start()


class _Inner(LocalEngine):
    """The local engine, which also tells where an attempt ran and ends one for either reason."""

    needs_guard: Callable[[], None]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.in_threads: set[Key] = set()

    def end(self, key: Key, reason: Reason) -> float | None:
        run = self._live.get(key)
        if run is None:
            return 0.0
        self._end(run, reason)
        if isinstance(run.place, Threads) and run.where is not None:
            return None
        return 0.0 if run.place is None else run.place.grace_s or self._limits.grace_s

    def _assign(self, run: Run) -> Place:
        place = super()._assign(run)
        work = run.work
        if not isinstance(work, OwnCoroutine) and not (isinstance(work, Call) and not work.isolated):
            self.needs_guard()
        return place

    def _finished(self, run: Run, outcome: Outcome | None) -> None:
        if isinstance(run.place, Threads):
            self.in_threads.add((run.job.task, run.job.attempt))
        super()._finished(run, None if outcome is None else _blaming(outcome))


def _blaming(outcome: Outcome) -> Outcome:
    """Code that the node lacks is its host's fault: the next task of the queue would do no better here."""
    if not outcome.unloaded:
        return outcome
    remedy = f"{outcome.error}; on a node it comes by working_dir, py_modules or pip of [engine]"
    return replace(outcome, verdict=Verdict.HOST, error=remedy)


def _placed(hired: Hiring, folder: str, door: GivenDoor) -> Host:
    """The host with what its adapter must know of the machine it is on."""
    options = dict(hired.host.options)
    if hired.keeps_logs:
        options |= {"work_dir": folder, "door": door}
    if hired.agent is not None:
        from penstock.hosts.agent import Placement

        beside = agents_dir(hired.tag.rpartition(":")[0])
        options["placement"] = Placement(msgspec.convert(hired.agent, Agent), beside)
    return replace(hired.host, options=options)


def agents_dir(store_tag: str) -> str:
    """One for all workers of a store on this machine: containers outlive them."""
    store = hashlib.sha256(store_tag.encode()).hexdigest()[:16]
    return os.path.join(tempfile.gettempdir(), f"penstock-agents-{os.getuid()}-{store}")


def _known(call: Call) -> tuple[Callable[[Any], Any], bool]:
    function = load(call.target, call.search_path)
    return function, not is_async(function)


def _adapter(host: Host, make: str) -> Adapter:
    module, _, name = make.partition(":")
    made: Adapter = getattr(import_module(module), name)(host, SystemClock())
    return made
