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
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.clock import SystemClock
from penstock.config import Config
from penstock.council.live import Hub
from penstock.diagnosis.history import Epoch, Owner
from penstock.dispatcher.chores import beat, prune, watch_heirs, watch_store
from penstock.dispatcher.doorway import Doorway
from penstock.dispatcher.garbage import seldom_swept
from penstock.dispatcher.health import DETAIL_CHARS, HealthBook, watch_health
from penstock.dispatcher.inner import Inner, Ways
from penstock.dispatcher.launching import Launcher
from penstock.dispatcher.mailbox import Mailbox, states_of
from penstock.dispatcher.payloads import Payloads
from penstock.dispatcher.probes import Probes
from penstock.dispatcher.recovery import restore, unswept
from penstock.dispatcher.requests import Desk, OnTokens
from penstock.dispatcher.unwritten import Unwritten
from penstock.engine.base import MakeEngine, Stall
from penstock.errors import DispatcherError, StoreError, TaskError, Unreachable
from penstock.hosts.base import Job
from penstock.hosts.own_door import Entrance
from penstock.hosts.relay import Relay
from penstock.model import OnCrash, OnStop, Outcome, Task, Verdict
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
    Refuse,
    Reprioritize,
    Requeue,
    Restored,
    Start,
    Stop,
    Submitted,
)
from penstock.scheduling.scheduler import Scheduler
from penstock.store.base import Bell, Store
from penstock.telemetry.story import Stalled, Story

if TYPE_CHECKING:
    from penstock.telemetry.traces import Traces

log = logging.getLogger("penstock.dispatcher")

_CLASSES_PER_EPOCH = 1_000_000  # ids of classes must not repeat in a store
_PUT_BACK_S = 10.0
_FLUSH_S = 10.0
_DETACHED_S = 0.1  # between looks at what can be left to the next dispatcher


class Dispatcher:
    """Owns a store from `run()` to its end. All methods belong to the loop that runs it."""

    def __init__(
        self,
        config: Config,
        store: Store,
        make_engine: MakeEngine,
        owner: Owner,
        traces: Traces | None = None,
        on_stop: OnStop = OnStop.REQUEUE,
        doorway: Doorway | None = None,
    ) -> None:
        self._config = config
        self._blocks = on_stop is OnStop.BLOCK
        self._store = store
        self._owner = owner
        self.epoch: Epoch | None = None  # from when the store is ours
        self._clock = SystemClock()
        self._engine = make_engine(self._report, self._on_stall)
        self._traces = traces
        self._doorway = doorway or Doorway()
        self.live = Hub(self._clock)  # what is heard of questions while they are answered
        ways = Ways(self, self._tell, lambda task: self._scheduler.knows(task))
        desk = self._doorway.desk
        self._inner = None if desk is None else Inner(config, store, self.live, ways)
        tap = None if self._inner is None else self._inner.tap
        recorded_first = self._engine.detaches or store.elects
        self._payloads = Payloads(store, tap, traced=traces is not None, recorded_first=recorded_first)
        self._events: list[Event] = []
        self._stepping = False  # a step is scheduled
        self._first_step = True  # in which all that is live comes in
        self._unwritten = Unwritten(store, self._tell, self._poke, self._fail)
        self._took_over = False  # before that nothing is decided
        self._awaiting_step: list[asyncio.Future[None]] = []
        self.story = Story(self.task, lambda task: self._scheduler.met_at(task), self._clock.now)
        if traces is not None:
            self.story.listen(traces)
        self._launcher = Launcher(
            self._engine, self._payloads, self._tell, self._own, self.story.begun, self._clock.now
        )
        self._probes: Probes | None = None
        self._bell: Bell | None = None
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._draining = False
        self._asked_to_stop = asyncio.Event()
        self._putting_back = False
        self._until_empty = False
        self._stopped = asyncio.Event()
        self._failure: BaseException | None = None
        self._calls: dict[str, asyncio.Future[End]] = {}  # those whose callers wait
        self.deposed = (
            asyncio.Event()
        )  # the store is another's: nothing starts and nothing is recorded any more
        self.health = HealthBook(lambda host: self._scheduler.wanted(host))

    # ---- life

    async def run(
        self,
        *,
        until_empty: bool = False,
        answer_only: bool = False,
        on_ready: Callable[[], None] | None = None,
        on_decisions: Callable[[Sequence[Decision]], None] | None = None,
        on_tokens: OnTokens | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        """Dispatch until stopped, until nothing is left to do, or just until every request is answered.

        `on_decisions` hears of everything that was decided, before those who listen to the story; `on_tokens` that
        the store's tokens are others than before, and whoever changed them waits for it. `entrance` is where
        attempts that call models find those of this dispatcher; for want of one it opens its own.
        """
        self._loop = asyncio.get_running_loop()
        self._on_decisions = on_decisions
        self._on_tokens = on_tokens
        # Who only answers does not wait for what it found running; others leave it to one that stands by.
        self._leaves = self._answers_only = answer_only
        owner = replace(self._owner, answers_only=answer_only)
        epoch, before = await self._store.acquire(owner, self._clock.now(), self._config.plant)
        self.epoch = epoch
        try:
            async with (
                self._doorway.opened(self, entrance, answer_only=answer_only),
                self._closing_at_the_end(),
                self._opened_desk(),
                asyncio.TaskGroup() as self._tasks,
            ):
                bell, seen = await self._opened(epoch, before, answer_only)
                self._until_empty = until_empty
                wanted = [
                    ("penstock intake", self._mailbox.read(bell, seen)),
                    (
                        "penstock heartbeat",
                        beat(self._store, epoch.number, self._config.heartbeat_s, self._clock, self._tell),
                    ),
                    ("penstock retention", prune(self._store, self._config.keep_days, self._clock)),
                    ("penstock store", watch_store(self._store, self._unwritten.look)),
                ]
                if self._engine.detaches and not answer_only:
                    heirs = watch_heirs(self._store, owner, self._asked_to_stop, self._has_heirs)
                    wanted.append(("penstock heirs", heirs))
                if not answer_only:
                    wanted.append(
                        ("penstock health", watch_health(self._engine, self._tell, self._clock, self.health))
                    )
                chores = [
                    self._tasks.create_task(self._unless_deposed(chore), name=name) for name, chore in wanted
                ]
                if on_ready is not None:
                    on_ready()
                self._poke()
                if answer_only:
                    await self._mailbox.emptied.wait()
                    self.stop()
                await self._stopped.wait()
                if self._failure is None:
                    await self._mailbox.finish_answering(_FLUSH_S)
                for chore in (*chores, *self._launcher.pending):
                    chore.cancel()
        except BaseExceptionGroup as group:
            raise self._failure or group.exceptions[0] from None
        finally:
            with suppress(DispatcherError):  # it is another's by now
                await self._store.release(epoch.number, self._clock.now())
            if self._traces is not None:
                await self._traces.close()
        if self._failure is not None:
            raise self._failure

    async def prepare(self) -> None:
        """It stands by, and may be told to run at any moment; or never, and then it is told to `forgo` that."""
        await self._engine.prepare()

    async def forgo(self) -> None:
        await self._engine.close()

    @asynccontextmanager
    async def _opened_desk(self) -> AsyncIterator[None]:
        if self._inner is None or self._doorway.desk is None:
            yield
            return
        with self._inner.opened(self._doorway.desk):
            yield

    def stop(self) -> None:
        """Drain: finish what runs, start nothing. The second time: put back what runs, or block it, now.

        Where another dispatcher stands by, attempts that outlive this one are left to it. Those that still wait for
        a worker elsewhere are put back at once.
        """
        if not self._draining:
            self._draining = True
            self._asked_to_stop.set()
            self._engine.withdraw(self._doorway.lanes)
            self._tell(Drain(except_lanes=self._doorway.lanes))
        elif not self._putting_back:
            self._putting_back = True
            self._tell(Drain())
            for task, attempt in self._scheduler.running():
                self._launcher.stop(task, attempt, put_back=True)
            self._loop.call_later(_PUT_BACK_S, self._stopped.set)

    def call(self, task: Task, relay: Relay) -> asyncio.Future[End]:
        """Take in a task whose caller waits here for its end, and whose answer goes through `relay`.

        The scheduler hears of it at once; the store is told as well, but nobody waits for the disk. It ends as
        cancelled when the dispatcher does: the way back to its caller is gone.
        """
        if self.deposed.is_set():
            raise Unreachable("another dispatcher took over; ask again")
        if self._closing or (self._draining and not self._is_of_a_run(task)):
            raise Unreachable("the dispatcher is stopping; ask again when it is back")
        if self._unwritten.away is not None:
            raise StoreError(f"nothing starts until it can be recorded: {self._unwritten.away}")
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

    def hosts_down(self, task: Task) -> bool:
        """Whether all hosts that may take such a task are down."""
        return self._scheduler.hosts_down(task)

    def waits_for_hosts(self, task: Task) -> bool:
        """Whether a task has not ended and waits while all hosts that may take it are down."""
        return self._scheduler.waiting_reason(task.id) is not None and self._scheduler.hosts_down(task)

    def why_down(self, task: Task) -> str:
        """Why the hosts are down that a task waits for; empty where it does not wait for such."""
        return self._scheduler.waiting_detail(task.id) if self.waits_for_hosts(task) else ""

    @property
    def owner(self) -> Owner:
        """Who we are, to those who ask."""
        return self._owner

    @property
    def now(self) -> float:
        """The time as the dispatcher reckons it."""
        return self._clock.now()

    @property
    def is_traced(self) -> bool:
        """Whether tasks have spans of ours."""
        return self._traces is not None

    @property
    def is_stopping(self) -> bool:
        return self._draining or self._closing

    def task(self, task_id: str) -> Task | None:
        """A live task, if it is among those kept in memory; its payload is left out."""
        return self._payloads.task(task_id)

    @property
    def statistics(self) -> Statistics:
        return self._scheduler.statistics()

    async def _opened(self, epoch: Epoch, before: Epoch | None, answer_only: bool) -> tuple[Bell, int]:
        try:
            return await self._open(epoch, before, answer_only)
        except DispatcherError as error:
            self._fail(error)
            raise

    async def _open(self, epoch: Epoch, before: Epoch | None, answer_only: bool) -> tuple[Bell, int]:
        """Take over where the store is; returns what rings for arrivals, and the number of the last."""
        self._scheduler = scheduler = Scheduler(
            self._config.plant, first_class=epoch.number * _CLASSES_PER_EPOCH
        )
        store = self._store
        desk = Desk(
            store, scheduler, self._config.plant, partial(states_of, store, scheduler), self._on_tokens
        )
        self._mailbox = Mailbox(store, scheduler, self._payloads, desk, self._tell_first, self._settled)
        await self._engine.open(epoch.number)
        first: list[Event] = [Drain(answering=True)] if answer_only else []
        events, seen = await restore(
            store, self._engine, self._payloads, self._config.plant, before, self._clock.now()
        )
        first += [e for e in events if not isinstance(e, PauseSet) or self._has(e)]
        self.health.down = self._engine.down()
        for host, why in self.health.down.items():
            scheduler.begins_down(host, why[:DETAIL_CHARS])
        if self._inner is not None:
            first += self._inner.restored([e for e in events if isinstance(e, Restored)])
        self._events[:0] = first  # what was adopted may have ended already
        if self.story.is_heard:
            live = [record for e in events if isinstance(e, Restored) for record in e.records]
            died_at = None if before is None else before.ended_at
            self.story.took_over(epoch.started_at, died_at, live, answers_only=answer_only)
        self._bell = bell = store.wake_bell()
        beside = [str(self._config.path.parent)] if self._config.path is not None else []
        self._probes = Probes(self._config.plant.gates, self._tell, search_path=beside)
        await self._probes.open()
        self._took_over = True
        return bell, seen

    def _has(self, pause: PauseSet) -> bool:
        """Whether what was paused is still in the config."""
        return pause.scope != "host" or any(h.name == pause.name for h in self._config.plant.hosts)

    @asynccontextmanager
    async def _closing_at_the_end(self) -> AsyncIterator[None]:
        """However it ends: nothing we started goes on, and what ran is put back."""
        with seldom_swept():
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
        if not self._putting_back or self.deposed.is_set():  # the next dispatcher finds them
            left = len(self._engine.detached())
            if left and not self.deposed.is_set() and not self._answers_only:
                are = "1 attempt is" if left == 1 else f"{left} attempts are"
                log.info("%s left running on the cluster for the next dispatcher", are)
            self._engine.leave()
        self._putting_back = True
        self._events += [PutBack(task, attempt) for task, attempt in self._launcher.unbegun]
        if self.deposed.is_set():
            await self._engine.close(at_once=True)
            for call in self._calls.values():  # who waits is told to ask again, and nothing is recorded
                call.cancel()
            self._calls.clear()
        else:
            await self._engine.close()
        self._events += [CancelAsked(task) for task in self._calls]
        while self._events and self._failure is None and self._scheduler.live:
            self._events.insert(0, Drain())
            self._step()  # what has ended may take tasks of its own with it, by the next
        if not self.deposed.is_set():
            # What was recorded before is on the disk when this is; a disk that stays full must not keep us.
            flushed, _ = await asyncio.wait({_heard(self._store.record([]))}, timeout=_FLUSH_S)
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
        if self._inner is not None:
            new = [task for event in events if isinstance(event, Submitted) for task in event.tasks]
            events = [*events, *self._inner.taken_in(new)]
        self._events[:0] = events
        self._poke()

    def _poke(self) -> None:
        """Have a step soon; what comes until then is in it."""
        if self._took_over and not self._stepping and not self._unwritten.holds and not self._closing:
            self._stepping = True
            self._loop.call_soon(self._run_step)

    def _report(self, ended: Sequence[tuple[Job, Outcome]]) -> None:
        chance = random.random
        for job, outcome in ended:
            if outcome.verdict is Verdict.HOST or outcome.host_fault:
                self.health.doubt(job.host)
            if self._putting_back and outcome.verdict is Verdict.CANCELLED and job.task not in self._calls:
                self._events.append(
                    PutBack(job.task, job.attempt, outcome.tokens, outcome.cost_usd, self._blocks)
                )
            elif self._putting_back and job.task in self._calls:  # nobody waits for it any more
                self._events += (CancelAsked(job.task), Finished(job.task, job.attempt, outcome))
            elif outcome.unbegun:
                self._events.append(PutBack(job.task, job.attempt, why=outcome.error))
            elif outcome.orphaned and self._must_not_run_twice(job.task):
                why = f"{outcome.error}; on_crash = block"
                self._events.append(PutBack(job.task, job.attempt, block=True, why=why))
            else:
                self._events.append(Finished(job.task, job.attempt, outcome, chance()))
        self._poke()

    def _must_not_run_twice(self, task_id: str) -> bool:
        task = self._payloads.task(task_id)
        return task is not None and task.on_crash is OnCrash.BLOCK

    def _on_stall(self, stall: Stall) -> None:
        data = {"host": stall.host, "seconds": stall.seconds, "stack": stall.stack}
        now = self._clock.now()
        self.story.stalled(Stalled(stall.host, stall.task, stall.attempt, now, stall.seconds, stall.over))
        if not self._closing:
            self._own(self._store.note("Stall", now, stall.task, stall.attempt, data))

    async def _settled(self) -> None:
        """Until everything told so far has been stepped over and written."""
        if self._events:
            stepped = self._loop.create_future()
            self._awaiting_step.append(stepped)
            await stepped
        await self._store.record([])

    # ---- the step

    def _run_step(self) -> None:
        self._stepping = False
        if self._closing or self._failure is not None:
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
        with unswept() if self._first_step else nullcontext():
            decisions = self._scheduler.apply_all(events, now)
        self._first_step = False
        if decisions:
            self._act(decisions, now)
        for stepped in self._awaiting_step:
            stepped.set_result(None)
        self._awaiting_step.clear()
        self._set_timer(now)
        if self._draining or self._until_empty:
            self._let_calls_go()
            self._maybe_stop()

    def _let_calls_go(self) -> None:
        """What waits when the dispatcher stops will never begin: its callers need not wait for that."""
        if self._draining and not self._closing:
            for id in self._calls:
                task = self._payloads.task(id)
                goes_on = task is not None and self._is_of_a_run(task)
                if not goes_on and self._scheduler.waiting_reason(id) is not None:
                    self._tell(CancelAsked(id))

    def _is_of_a_run(self, call: Task) -> bool:
        """What runs is finished before the dispatcher stops, and cannot be without its own calls."""
        return call.lane in self._doorway.lanes and not self._putting_back

    def _act(self, decisions: list[Decision], now: float) -> None:
        written = self._unwritten.record(decisions, now)
        if self._on_decisions is not None:
            self._on_decisions(decisions)
        if self.story.is_heard:
            # Where another may have taken over, what was not recorded has not happened.
            self.story.decided(decisions, partial(_once, written) if self._store.elects else None)
        told_later = partial(_once, written) if self._unwritten.away is not None else None
        if self._inner is not None:
            _now_or(told_later, partial(self._inner.decided, decisions))
        if self._engine.detaches:
            written.add_done_callback(partial(self._ends_written, decisions))
        starts = []
        for decision in decisions:
            if isinstance(decision, Start):
                starts.append(decision)
            elif isinstance(decision, End):
                self._payloads.forget(decision.task)
                if self._calls and decision.task in self._calls:
                    _now_or(told_later, partial(self._answer, decision))
            elif isinstance(decision, Stop):
                self._launcher.stop(decision.task, decision.attempt, put_back=self._putting_back)
            elif isinstance(decision, Reprioritize):
                self._payloads.reprioritize(decision.task, decision.priority)
            elif isinstance(decision, Requeue) and decision.task in self._calls:
                self._payloads.relay(decision.task).requeued(decision.error, decision.at)
        if starts:
            self._launcher.launch(starts, written)

    def _answer(self, end: End) -> None:
        """Whoever waits for a call. While the store is away nobody is told what may never be recorded."""
        ended = self._calls.pop(end.task, None)
        if ended is not None and not ended.done():
            ended.set_result(end)

    def _ends_written(self, decisions: Sequence[Decision], written: asyncio.Future[None]) -> None:
        if not written.cancelled() and written.exception() is None:
            over = (d for d in decisions if isinstance(d, End | Requeue | Refuse))
            if ended := [(d.task, d.attempt) for d in over if d.attempt]:
                self._engine.recorded(ended)

    def _accepted(self, accepted: asyncio.Future[list[str]]) -> None:
        if not accepted.cancelled() and isinstance(accepted.exception(), TaskError):
            log.error("a call is not in the history: %s", accepted.exception())  # two ids by chance the same
        else:
            self._unwritten.written(accepted)

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unwritten.is_too_much():
            return
        self._unwritten.look()
        if self._events:
            self._poke()
        wake = self._scheduler.next_wake()
        if wake is not None:
            self._timer = self._loop.call_later(max(0.0, wake - now), self._poke)

    def _maybe_stop(self) -> None:
        if self._unwritten.away is not None:  # what ended is yet to be recorded
            return
        if (self._draining and not self._awaited()) or (self._until_empty and not self._scheduler.live):
            self._stopped.set()

    def _awaited(self) -> Collection[tuple[str, int]]:
        """Attempts that this dispatcher cannot go without."""
        running = self._scheduler.running()
        if not (self._engine.detaches and self._leaves) or self._putting_back:
            return running
        if left := set(running).difference(self._engine.detached()):
            self._loop.call_later(_DETACHED_S, self._poke)  # they may be about to begin elsewhere
        return left

    def _has_heirs(self, is_so: bool) -> None:
        self._leaves = is_so
        self._poke()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        if isinstance(error, DispatcherError):
            self.deposed.set()
        self._stopped.set()

    async def _unless_deposed(self, work: Coroutine[Any, Any, None]) -> None:
        """To its end; a store that is another's by now ends all of us, not this alone."""
        try:
            await work
        except DispatcherError as error:
            self._fail(error)

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.create_task(self._unless_deposed(work))


def _once(written: asyncio.Future[Any], tell: Callable[[], None]) -> None:
    written.add_done_callback(
        lambda written: None if written.cancelled() or written.exception() is not None else tell()
    )


def _now_or(later: Callable[[Callable[[], None]], None] | None, tell: Callable[[], None]) -> None:
    if later is None:
        tell()
    else:
        later(tell)


def _heard(written: asyncio.Future[None]) -> asyncio.Future[None]:
    """Whatever comes of it: who stops does not wait for ever, and the store says itself what it lost."""
    written.add_done_callback(lambda written: written.cancelled() or written.exception())
    return written
