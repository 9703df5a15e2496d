"""The dispatcher's loop: collect events, ask the scheduler, record the decisions, act on them.

A step is synchronous and short. Whatever waits (the store, the engine, the clients) happens around it and comes
back as an event. Nothing polls: a step follows an event or a timer that the scheduler asked for.

    outcomes, arrivals, requests, probes, timers ──► step ──► scheduler ──► decisions
                                                                              ├─► store (one transaction)
                                                                              └─► engine (starts, stops)
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from penstock.clock import SystemClock
from penstock.config import Config
from penstock.diagnosis.history import Epoch, Owner
from penstock.dispatcher.health import watch_health
from penstock.dispatcher.payloads import Payloads
from penstock.dispatcher.probes import Probes
from penstock.dispatcher.recovery import restore
from penstock.dispatcher.requests import Desk, OnTokens
from penstock.engine.base import Engine, Report, Stall
from penstock.errors import StoreError, StoreFull, StoreLocked, TaskError, Unreachable
from penstock.hosts.base import Job
from penstock.hosts.relay import Relay
from penstock.model import OnCrash, Outcome, State, Task, Verdict
from penstock.scheduling.figures import Statistics
from penstock.scheduling.messages import (
    CancelAsked,
    Decision,
    Drain,
    End,
    Event,
    Finished,
    PauseSet,
    PutBack,
    Start,
    Stop,
    Submitted,
    Tick,
)
from penstock.scheduling.scheduler import Scheduler
from penstock.store.base import Answer, Arrival, Bell, Request, Store

log = logging.getLogger("penstock.dispatcher")

_UNWRITTEN = 20_000  # decisions in memory before the loop waits for the disk
_CLASSES_PER_EPOCH = 1_000_000  # ids of classes must not repeat in a store
_PRUNE_EVERY_S = 6 * 3600.0
_PUT_BACK_S = 10.0
_FLUSH_S = 10.0
_PAGE = 10_000  # arrivals taken in at a time

MakeEngine = Callable[[Report, Callable[[Stall], None]], Engine]


class Dispatcher:
    """Owns a store from `run()` to its end. All methods belong to the loop that runs it."""

    def __init__(self, config: Config, store: Store, make_engine: MakeEngine, owner: Owner) -> None:
        self._config = config
        self._store = store
        self._owner = owner
        self._clock = SystemClock()
        self._engine = make_engine(self._report, self._on_stall)
        self._payloads = Payloads(store)
        self._events: list[Event] = []
        self._unwritten = 0
        self._stepping = False  # a step is scheduled
        self._held = False  # the loop waits for the disk
        self._awaiting_step: list[asyncio.Future[None]] = []
        self._unbegun: dict[tuple[str, int], None] = {}  # attempts that wait for the disk before they begin
        self._launching: set[asyncio.Task[None]] = set()
        self._probes: Probes | None = None
        self._bell: Bell | None = None
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._seen = 0  # number of the last arrival
        self._draining = False
        self._putting_back = False
        self._until_empty = False
        self._stopped = asyncio.Event()
        self._answering = asyncio.Lock()  # held while a request is acted on
        self._answered = asyncio.Event()  # no request was left at the last look
        self._failure: BaseException | None = None
        self._calls: dict[str, asyncio.Future[End]] = {}  # those whose callers wait
        self.models: dict[str, tuple[str, ...]] = {}  # of hosts that told them when they were checked

    # ---- life

    async def run(
        self,
        *,
        until_empty: bool = False,
        answer_only: bool = False,
        on_ready: Callable[[], None] | None = None,
        on_start: Callable[[Sequence[Job]], None] | None = None,
        on_decisions: Callable[[Sequence[Decision]], None] | None = None,
        on_tokens: OnTokens | None = None,
    ) -> None:
        """Dispatch until stopped, until nothing is left to do, or just until every request is answered.

        `on_start` hears of attempts just before they begin, `on_decisions` of everything that was decided,
        `on_tokens` that the store's tokens are others than before; whoever changed them waits for it.
        """
        self._loop = asyncio.get_running_loop()
        self._on_start = on_start
        self._on_decisions = on_decisions
        self._on_tokens = on_tokens
        epoch, before = await self._store.acquire(self._owner, self._clock.now())
        try:
            async with self._closing_at_the_end(), asyncio.TaskGroup() as self._tasks:
                await self._open(epoch, before, answer_only)
                self._until_empty = until_empty
                wanted = [
                    ("penstock intake", self._take_in()),
                    ("penstock heartbeat", self._beat(epoch.number)),
                    ("penstock retention", self._prune()),
                ]
                if not answer_only:
                    wanted.append(
                        ("penstock health", watch_health(self._engine, self._tell, self._clock, self.models))
                    )
                chores = [self._tasks.create_task(chore, name=name) for name, chore in wanted]
                if on_ready is not None:
                    on_ready()
                self._poke()
                if answer_only:
                    await self._answered.wait()
                    self.stop()
                await self._stopped.wait()
                await self._finish_answering()
                for chore in (*chores, *self._launching):
                    chore.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            await self._store.release(epoch.number, self._clock.now())
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Drain: finish what runs, start nothing. The second time: put back what runs, now."""
        if not self._draining:
            self._draining = True
            self._tell(Drain())
            for task in self._calls:  # what has not begun by now never would
                if self._scheduler.waiting_reason(task) is not None:
                    self._tell(CancelAsked(task))
        elif not self._putting_back:
            self._putting_back = True
            for task, attempt in self._scheduler.running():
                self._stop_attempt(task, attempt)
            self._loop.call_later(_PUT_BACK_S, self._stopped.set)

    def call(self, task: Task, relay: Relay) -> asyncio.Future[End]:
        """Take in a task whose caller waits here for its end, and whose answer goes through `relay`.

        The scheduler hears of it at once; the store is told as well, but nobody waits for the disk. It ends as
        cancelled when the dispatcher does: the way back to its caller is gone.
        """
        if self._draining or self._closing:
            raise Unreachable("the dispatcher is stopping; ask again when it is back")
        if self._held and self._store.trouble is not None:
            raise StoreError(f"nothing starts until it can be recorded: {self._store.trouble}")
        if task.on_crash is not OnCrash.CANCEL or not task.id:
            raise ValueError("a call has an id, and on_crash = cancel")
        self._store.accept([task]).add_done_callback(self._accepted)  # raises for what cannot be kept
        self._payloads.keep_call(task, relay)
        ended = self._calls[task.id] = self._loop.create_future()
        self._tell(Submitted([task]))
        return ended

    def cancel_call(self, task_id: str) -> None:
        """Its caller has left."""
        if task_id in self._calls:
            self._tell(CancelAsked(task_id))

    def predicted_wait_s(self, task: Task) -> float | None:
        """About how long a task that came now would wait; None when that cannot be told."""
        return self._scheduler.predicted_wait_s(task, self._clock.now())

    @property
    def now(self) -> float:
        """The time as the dispatcher reckons it."""
        return self._clock.now()

    @property
    def is_stopping(self) -> bool:
        return self._draining or self._closing

    def task(self, task_id: str) -> Task | None:
        """A live task, if it is among those kept in memory; its payload is left out."""
        return self._payloads.task(task_id)

    @property
    def statistics(self) -> Statistics:
        return self._scheduler.statistics()

    async def _open(self, epoch: Epoch, before: Epoch | None, answer_only: bool) -> None:
        self._scheduler = Scheduler(self._config.plant, first_class=epoch.number * _CLASSES_PER_EPOCH)
        self._desk = Desk(self._store, self._scheduler, self._config.plant, self._states_of, self._on_tokens)
        await self._engine.open()
        if answer_only:
            self._events.append(Drain())
        events, self._seen = await restore(
            self._store, self._engine, self._payloads, before, self._clock.now()
        )
        self._events += [e for e in events if not isinstance(e, PauseSet) or self._has(e)]
        self._bell = self._store.wake_bell()
        beside = [str(self._config.path.parent)] if self._config.path is not None else []
        self._probes = Probes(self._config.plant.gates, self._tell, search_path=beside)
        await self._probes.open()

    def _has(self, pause: PauseSet) -> bool:
        """Whether what was paused is still in the config."""
        return pause.scope != "host" or any(h.name == pause.name for h in self._config.plant.hosts)

    @asynccontextmanager
    async def _closing_at_the_end(self) -> AsyncIterator[None]:
        """However it ends: nothing we started goes on, and what ran is put back."""
        try:
            yield
        finally:
            self._closing = True
            await self._close()

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._probes is not None:
            await self._probes.close()
        self._putting_back = True
        self._events += [PutBack(task, attempt) for task, attempt in self._unbegun]
        await self._engine.close()
        self._events += [CancelAsked(task) for task in self._calls]
        if self._events and self._failure is None and self._scheduler.live:
            self._events.insert(0, Drain())
            self._step()
        # What was recorded before is on the disk when this is; a disk that stays full must not keep us for ever.
        flushed, _ = await asyncio.wait({self._store.record([])}, timeout=_FLUSH_S)
        for written in flushed:
            if written.exception() is not None:
                log.error("what ended last may not be recorded: %s", written.exception())
        for ended in self._calls.values():
            ended.cancel()
        if self._bell is not None:
            self._bell.close()

    # ---- events come in

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        self._poke()

    def _tell_first(self, events: Sequence[Event]) -> None:
        """Before all that waits to be stepped over: they speak of tasks as they are now."""
        self._events[:0] = events
        self._poke()

    def _poke(self) -> None:
        """Have a step soon; what comes until then is in it."""
        if not self._stepping and not self._held and not self._closing:
            self._stepping = True
            self._loop.call_soon(self._run_step)

    def _report(self, ended: Sequence[tuple[Job, Outcome]]) -> None:
        chance = random.random
        for job, outcome in ended:
            if self._putting_back and outcome.verdict is Verdict.CANCELLED:
                self._events.append(PutBack(job.task, job.attempt))
            else:
                self._events.append(Finished(job.task, job.attempt, outcome, chance()))
        self._poke()

    def _on_stall(self, stall: Stall) -> None:
        data = {"host": stall.host, "seconds": stall.seconds, "stack": stall.stack}
        if not self._closing:
            self._own(self._store.note("Stall", self._clock.now(), stall.task, stall.attempt, data))

    async def _take_in(self) -> None:
        """Read what clients left, each time they ring."""
        assert self._bell is not None
        while True:
            # Requests are read first: whatever one is about is then among the arrivals, or was taken in before.
            requests, arrivals = await asyncio.gather(
                self._store.requests(), self._store.arrivals(self._seen, _PAGE)
            )
            arrived = bool(arrivals)
            while arrivals:
                await self._take_in_page(arrivals)
                arrivals = await self._store.arrivals(self._seen, _PAGE) if len(arrivals) == _PAGE else []
            for request in requests:
                async with self._answering:
                    await self._settled()  # and the state of what it is about is on the disk
                    await self._serve(request)
            if not arrived and not requests:
                self._answered.set()
                await self._bell.wait()

    async def _take_in_page(self, arrivals: Sequence[Arrival]) -> None:
        self._seen = arrivals[-1].record.number
        # A task whose retry was asked for is live again under its old number: the scheduler knows it.
        # A call was told to the scheduler when it came; its row may still look live when it has ended.
        new = [
            a
            for a in arrivals
            if not self._scheduler.knows(a.record.task.id) and a.record.task.on_crash is not OnCrash.CANCEL
        ]
        self._payloads.keep(new)
        ended = await self._states_of({n for a in new for n in a.record.task.after})
        self._tell_first([Submitted([a.record.task for a in new], ended)])

    async def _serve(self, request: Request) -> None:
        try:
            answer, events = await self._desk.handle(request)
        except (TypeError, ValueError) as error:  # left by a client that is not ours, or not of this version
            answer, events = Answer(False, f"{request.verb}: not understood: {error}"), []
        self._tell_first(events)
        await self._settled()
        await self._store.answer(request.number, answer)

    async def _finish_answering(self) -> None:
        """A request that was acted on is answered before we go; a disk that stays full must not keep us."""
        if self._failure is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_S), self._answering:
                    pass

    async def _states_of(self, needed: Collection[str]) -> dict[str, State]:
        """The states of tasks that others wait after, but for those the scheduler still holds.

        One that ends while we ask is asked for again, when its end is on the disk. When this returns every task is
        known to one of the two, as long as nothing else happens first: hence `_tell_first`.
        """
        states: dict[str, State] = {}
        while missing := {n for n in needed if n not in states and not self._scheduler.knows(n)}:
            await self._store.record([])
            states |= dict.fromkeys(missing, State.FAILED) | await self._store.states(missing)
        return states

    async def _settled(self) -> None:
        """Until everything told so far has been stepped over and written."""
        if self._events:
            stepped = self._loop.create_future()
            self._awaiting_step.append(stepped)
            await stepped
        await self._store.record([])

    async def _beat(self, epoch: int) -> None:
        while True:
            await asyncio.sleep(self._config.heartbeat_s)
            leapt = self._clock.follow()
            if leapt:
                log.warning("the clock leapt forward by %.1f s", leapt)
                self._tell(Tick())
            await self._store.heartbeat(epoch, self._clock.now())

    async def _prune(self) -> None:
        keep_days = self._config.keep_days
        while keep_days is not None:
            try:
                forgotten = await self._store.prune(self._clock.now() - keep_days * 86400)
            except (StoreFull, StoreLocked) as error:
                log.warning("old tasks are kept a while longer: %s", error)
                forgotten = 0
            if forgotten:
                log.info("forgot %d tasks that ended more than %g days ago", forgotten, keep_days)
            await asyncio.sleep(_PRUNE_EVERY_S)

    # ---- the step

    def _run_step(self) -> None:
        self._stepping = False
        if self._closing:
            return  # the last step is taken when all has come to rest
        try:
            self._step()
        except BaseException as error:  # a defect of ours: stop at once; the store has the truth
            self._failure = error
            self._stopped.set()
            raise

    def _step(self) -> None:
        events, self._events = self._events, []
        now = self._clock.now()
        decisions = self._scheduler.apply_all(events, now)
        if decisions:
            self._act(decisions)
        for stepped in self._awaiting_step:
            stepped.set_result(None)
        self._awaiting_step.clear()
        self._set_timer(now)
        if self._draining or self._until_empty:
            self._maybe_stop()

    def _act(self, decisions: list[Decision]) -> None:
        written = self._store.record(decisions)
        self._unwritten += len(decisions)
        written.add_done_callback(partial(self._written, len(decisions)))
        if self._on_decisions is not None:
            self._on_decisions(decisions)
        starts = []
        for decision in decisions:
            if isinstance(decision, Start):
                starts.append(decision)
            elif isinstance(decision, End):
                self._payloads.forget(decision.task)
                if self._calls and (ended := self._calls.pop(decision.task, None)) and not ended.done():
                    ended.set_result(decision)
            elif isinstance(decision, Stop):
                self._stop_attempt(decision.task, decision.attempt)
        if starts:
            self._launch(starts, written)

    def _launch(self, starts: list[Start], written: asyncio.Future[None]) -> None:
        """Start attempts at once; those that must not run twice only when their start is on the disk."""
        jobs, careful, unknown = self._payloads.make(starts)
        if jobs:
            self._begin(jobs)
        if careful or unknown:
            self._unbegun |= dict.fromkeys((job.task, job.attempt) for job in careful)
            self._unbegun |= dict.fromkeys((start.task, start.attempt) for start in unknown)
            launching = self._own(self._launch_later(careful, unknown, written))
            self._launching.add(launching)
            launching.add_done_callback(self._launching.discard)

    async def _launch_later(
        self, careful: list[Job], unknown: list[Start], written: asyncio.Future[None]
    ) -> None:
        if unknown:
            jobs, more = await self._payloads.fetch(unknown)
            careful += more
            self._begin_those_still_wanted(jobs)
        if careful:
            await written
            self._begin_those_still_wanted(careful)

    def _begin_those_still_wanted(self, jobs: Sequence[Job]) -> None:
        wanted = [job for job in jobs if (job.task, job.attempt) in self._unbegun]
        for job in wanted:
            del self._unbegun[job.task, job.attempt]
        if wanted:
            self._begin(wanted)

    def _stop_attempt(self, task: str, attempt: int) -> None:
        """End an attempt; one that has not begun ends here, and never begins."""
        if (task, attempt) not in self._unbegun:
            self._engine.stop(task, attempt)
            return
        del self._unbegun[task, attempt]
        stopped = Outcome(Verdict.CANCELLED, error="stopped before it began")
        self._tell(PutBack(task, attempt) if self._putting_back else Finished(task, attempt, stopped))

    def _begin(self, jobs: Sequence[Job]) -> None:
        if self._on_start is not None:
            self._on_start(jobs)
        self._engine.start(jobs)

    def _written(self, count: int, written: asyncio.Future[Any]) -> None:
        if not written.cancelled() and (error := written.exception()) is not None:
            self._failure = error  # nothing can be recorded any more: a damaged file
            self._stopped.set()
            return
        self._unwritten -= count
        if self._held and (
            (self._unwritten < _UNWRITTEN // 2 and self._store.trouble is None) or not self._unwritten
        ):
            self._held = False
            self._poke()

    def _accepted(self, accepted: asyncio.Future[list[str]]) -> None:
        if not accepted.cancelled() and isinstance(accepted.exception(), TaskError):
            log.error("a call is not in the history: %s", accepted.exception())  # two ids by chance the same
        else:
            self._written(0, accepted)

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unwritten > _UNWRITTEN or (self._unwritten and self._store.trouble is not None):
            self._held = True  # nothing starts that could not be recorded
            return
        if self._events:
            self._poke()
        wake = self._scheduler.next_wake()
        if wake is not None:
            self._timer = self._loop.call_later(max(0.0, wake - now), self._poke)

    def _maybe_stop(self) -> None:
        if (self._draining and not self._scheduler.running()) or (
            self._until_empty and not self._scheduler.live
        ):
            self._stopped.set()

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.create_task(work)
