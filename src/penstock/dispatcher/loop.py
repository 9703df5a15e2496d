"""The dispatcher's loop: collect events, ask the scheduler, record the decisions, act on them.

A step is synchronous and short. Whatever waits (the store, the engine, the clients) happens around it and comes
back as an event. Nothing polls: a step follows an event or a timer that the scheduler asked for.

    outcomes, arrivals, requests, probes, timers ──► step ──► scheduler ──► decisions
                                                                              ├─► store (one transaction)
                                                                              └─► engine (starts, stops)

The dispatcher here is opened, run and closed, and puts its parts together: `mailbox`, `calls` and `outcomes` are
where events come from, `steps` is the step, `acting` and `launching` what follows from it, `stopping` its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.clock import SystemClock
from penstock.config import Config
from penstock.config.running import record_config
from penstock.council.live import Hub
from penstock.diagnosis.history import Epoch, Owner
from penstock.dispatcher.acting import Acting
from penstock.dispatcher.calls import Calls
from penstock.dispatcher.chores import beat, prune, tell_stopping, watch_heirs, watch_store
from penstock.dispatcher.doorway import Doorway
from penstock.dispatcher.ending import Ending
from penstock.dispatcher.garbage import seldom_swept
from penstock.dispatcher.health import HealthBook, watch_health
from penstock.dispatcher.inner import Inner, Ways
from penstock.dispatcher.launching import Launcher
from penstock.dispatcher.mailbox import Mailbox, states_of
from penstock.dispatcher.others import DeskOfOneRun
from penstock.dispatcher.outcomes import events_of
from penstock.dispatcher.payloads import Payloads
from penstock.dispatcher.probes import Probes
from penstock.dispatcher.recovery import restore
from penstock.dispatcher.requests import Desk, OnTokens
from penstock.dispatcher.steps import Steps
from penstock.dispatcher.stopping import Stopping
from penstock.dispatcher.unwritten import now_or, once
from penstock.engine.base import Delay, MakeEngine, Overdue, Stall
from penstock.errors import DispatcherError
from penstock.hosts.base import Job
from penstock.hosts.own_door import Entrance
from penstock.hosts.relay import Relay
from penstock.model import OnStop, Outcome, Task, Verdict
from penstock.scheduling.details import Detail, short
from penstock.scheduling.figures import Statistics
from penstock.scheduling.messages import (
    Began,
    Decision,
    Delayed,
    Drain,
    End,
    Event,
    Restored,
    Submitted,
)
from penstock.scheduling.scheduler import Scheduler
from penstock.store.base import Bell, Store
from penstock.telemetry.facts import Stalled
from penstock.telemetry.story import Story

if TYPE_CHECKING:
    from penstock.telemetry.traces import Traces

log = logging.getLogger("penstock.dispatcher")

_CLASSES_PER_EPOCH = 1_000_000  # ids of classes must not repeat in a store
_ANSWER_S = 10.0


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
        self._engine = make_engine(self._report, self._notice)
        self._traces = traces
        self._doorway = doorway or Doorway()
        self.live = Hub(self._clock)  # what is heard of questions while they are answered
        ways = Ways(self, self._tell, lambda task: self._scheduler.knows(task))
        desk = self._doorway.desk
        self._inner = None if desk is None else Inner(config, store, self.live, ways)
        tap = None if self._inner is None else self._inner.tap
        recorded_first = self._engine.detaches or store.elects
        self._payloads = Payloads(
            store, self.live, tap, traced=traces is not None, recorded_first=recorded_first
        )
        self._ending = Ending()
        self.deposed = self._ending.deposed
        self._steps = Steps(store, self._clock, self._ending, self._act, self._stepped)
        self._calls = Calls(store, self._payloads, self._steps, self._ending, self._doorway.lanes)
        self.story = Story(self.task, lambda task: self._scheduler.met_at(task))
        if traces is not None:
            self.story.listen(traces)
        self._launcher = Launcher(
            self._engine, self._payloads, self._tell, self._own, self.story.begun, self._clock.now
        )
        self._acting = Acting(self._engine, self._payloads, self._launcher, self._calls, self._ending)
        self._stopping = Stopping(self._ending, self._steps, self._engine, self._launcher, self._calls)
        self._probes: Probes | None = None
        self._bell: Bell | None = None
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
        self._on_decisions = on_decisions
        self._on_tokens = on_tokens
        # Who only answers, or works one run, does not wait for what outlives it; others leave that to a standby.
        self._answers_only = answer_only
        self._stopping.leaves = answer_only or bool(self._owner.only_run)
        owner = replace(self._owner, answers_only=answer_only)
        epoch, before = await self._store.acquire(
            owner, self._clock.now(), self._config.plant, record_config(self._config)
        )
        self.epoch = epoch
        try:
            async with (
                self._doorway.opened(self, entrance, answer_only=answer_only),
                self._closing_at_the_end(),
                self._opened_desk(),
                asyncio.TaskGroup() as self._tasks,
            ):
                bell, seen = await self._opened(epoch, before, answer_only)
                self._stopping.until_empty = until_empty
                wanted = [
                    ("penstock intake", self._mailbox.read(bell, seen)),
                    (
                        "penstock heartbeat",
                        beat(self._store, epoch.number, self._config.heartbeat_s, self._clock, self._tell),
                    ),
                    ("penstock retention", prune(self._store, self._config.keep_days, self._clock)),
                    ("penstock store", watch_store(self._store, self._steps.unwritten.look)),
                ]
                if self._engine.detaches and not self._stopping.leaves:
                    heirs = watch_heirs(
                        self._store, owner, self._ending.asked_to_stop, self._stopping.has_heirs
                    )
                    wanted.append(("penstock heirs", heirs))
                if not answer_only:
                    wanted += [
                        ("penstock health", watch_health(self._engine, self._tell, self._clock, self.health)),
                        (
                            "penstock stopping",
                            tell_stopping(self._store, epoch.number, self._ending.asked_to_stop),
                        ),
                    ]
                chores = [
                    self._tasks.create_task(self._ending.unless_deposed(chore), name=name)
                    for name, chore in wanted
                ]
                if on_ready is not None:
                    on_ready()
                self._steps.poke()
                if answer_only:
                    await self._mailbox.emptied.wait()
                    self.stop()
                await self._ending.stopped.wait()
                if self._ending.failure is None:
                    await self._mailbox.finish_answering(_ANSWER_S)
                for chore in (*chores, *self._launcher.pending):
                    chore.cancel()
        except BaseExceptionGroup as group:
            raise self._ending.failure or group.exceptions[0] from None
        finally:
            with suppress(DispatcherError):  # it is another's by now
                await self._store.release(epoch.number, self._clock.now())
            if self._traces is not None:
                await self._traces.close()
        if self._ending.failure is not None:
            raise self._ending.failure

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
        self._stopping.stop()

    def call(self, task: Task, relay: Relay) -> asyncio.Future[End]:
        """Take in a task whose caller waits here for its end, and whose answer goes through `relay`.

        The scheduler hears of it at once; the store is told as well, but nobody waits for the disk. It ends as
        cancelled when the dispatcher does: the way back to its caller is gone.
        """
        return self._calls.take_in(task, relay)

    def cancel_call(self, task_id: str) -> None:
        """Its caller has left."""
        self._calls.cancel(task_id)

    def predicted_wait_s(self, task: Task) -> float | None:
        """About how long a task that came now would wait; None when that cannot be told."""
        return self._scheduler.predicted_wait_s(task, self._clock.now())

    def hosts_down(self, task: Task) -> bool:
        """Whether all hosts that may take such a task are down."""
        return self._scheduler.hosts_down(task)

    def waits_for_hosts(self, task: Task) -> bool:
        """Whether a task has not ended and waits while all hosts that may take it are down."""
        return self._scheduler.waiting_reason(task.id) is not None and self._scheduler.hosts_down(task)

    def needed_fix(self, task: Task) -> str | None:
        """The error of a host, where all that may take such a task are down until somebody fixes them."""
        return self._scheduler.needed_fix(task)

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
        return self._ending.draining or self._ending.closing

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
            self._ending.fail(error)
            raise

    async def _open(self, epoch: Epoch, before: Epoch | None, answer_only: bool) -> tuple[Bell, int]:
        """Take over where the store is; returns what rings for arrivals, and the number of the last."""
        self._scheduler = self._steps.scheduler = scheduler = Scheduler(
            self._config.plant, first_class=epoch.number * _CLASSES_PER_EPOCH
        )
        store = self._store
        plant, only_run = self._config.plant, self._owner.only_run
        make_desk = partial(DeskOfOneRun, only_run, self._act, self._clock.now) if only_run else Desk
        desk = make_desk(store, scheduler, plant, partial(states_of, store, scheduler), self._on_tokens)
        self._mailbox = Mailbox(
            store, scheduler, self._payloads, desk, self._tell_first, self._steps.settled, only_run
        )
        await self._engine.open(epoch.number)
        first: list[Event] = [Drain(answering=True)] if answer_only else []
        events, seen = await restore(
            store, self._engine, self._payloads, plant, before, self._clock.now(), only_run
        )
        self.health.down = self._engine.down()
        for host, why in self.health.down.items():
            scheduler.begins_down(host, short(why))
        if self.story.is_heard:
            live = [record for e in events if isinstance(e, Restored) for record in e.records]
            died_at = None if before is None else before.ended_at
            self.story.took_over(epoch.started_at, died_at, live, answers_only=answer_only)
        events = [desk.take_over(e) if isinstance(e, Restored) else e for e in events]
        first += events
        if self._inner is not None:
            first += self._inner.restored([e for e in events if isinstance(e, Restored)])
        self._steps.tell_first(first)  # what was adopted may have ended already
        self._bell = bell = store.wake_bell()
        beside = [str(self._config.path.parent)] if self._config.path is not None else []
        self._probes = Probes(self._config.plant.gates, self._tell, search_path=beside)
        await self._probes.open()
        self._steps.took_over()
        return bell, seen

    @asynccontextmanager
    async def _closing_at_the_end(self) -> AsyncIterator[None]:
        """However it ends: nothing we started goes on, and what ran is put back."""
        with seldom_swept():
            try:
                yield
            finally:
                self._ending.closing = True
                await self._close()

    async def _close(self) -> None:
        self._steps.rest()
        if self._probes is not None:
            await self._probes.close()
        await self._stopping.close(quietly=self._answers_only)
        if self._bell is not None:
            self._bell.close()

    # ---- what its parts tell it

    def _tell(self, event: Event) -> None:
        self._steps.tell(event)

    def _tell_first(self, events: Sequence[Event]) -> None:
        if self._inner is not None:
            new = [task for event in events if isinstance(event, Submitted) for task in event.tasks]
            events = [*events, *self._inner.taken_in(new)]
        self._steps.tell_first(events)

    def _report(self, ended: Sequence[tuple[Job, Outcome]]) -> None:
        for job, outcome in ended:
            if outcome.verdict is Verdict.HOST or outcome.host_fault:
                self.health.doubt(job.host)
        putting_back = self._ending.putting_back
        self._steps.tell_all(
            events_of(ended, self.task, self._calls.waiting, putting_back=putting_back, blocks=self._blocks)
        )

    def _notice(self, notice: Stall | Delay | Overdue) -> None:
        """What an engine tells of attempts that are not over."""
        if isinstance(notice, Stall):
            self._stalled(notice)
        elif isinstance(notice, Overdue):
            self._overdue(notice)
        elif notice.began_at is None:
            self._tell(Delayed(notice.task, notice.attempt))
        else:
            self._tell(Began(notice.task, notice.attempt, notice.began_at, Detail.NO_WORKER))

    def _stalled(self, stall: Stall) -> None:
        data = {"host": stall.host, "seconds": stall.seconds, "stack": stall.stack}
        now = self._clock.now()
        self.story.stalled(Stalled(stall.host, stall.task, stall.attempt, now, stall.seconds, stall.over))
        if not self._ending.closing:
            self._own(self._store.note("Stall", now, stall.task, stall.attempt, data))

    def _overdue(self, overdue: Overdue) -> None:
        """It holds its room until it ends, and nothing is decided: only who asks is to know."""
        data = {"why": "timeout", "host": overdue.host, "since": overdue.since}
        if not self._ending.closing:
            now = self._clock.now()
            self._own(self._store.note("stopping", now, overdue.task, overdue.attempt, data))

    def _act(self, decisions: list[Decision], now: float) -> None:
        written = self._steps.unwritten.record(decisions, now)
        if self._on_decisions is not None:
            self._on_decisions(decisions)
        if self.story.is_heard:
            # Where another may have taken over, what was not recorded has not happened.
            self.story.decided(decisions, partial(once, written) if self._store.elects else None)
        told_later = partial(once, written) if self._steps.unwritten.away is not None else None
        if self._inner is not None:
            now_or(told_later, partial(self._inner.decided, decisions))
        self._acting.act(decisions, written, told_later)

    def _stepped(self) -> None:
        self._stopping.look()

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.create_task(self._ending.unless_deposed(work))
