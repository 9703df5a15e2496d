"""The dispatcher's side of its inner desk: tasks that its own attempts ask for, and what becomes of them.

What a question asks for is kept in the store and taken in as any client's tasks are. Its end is heard from the
dispatcher's own decisions, or read from the store where it lies in an earlier life. A question that has ended in
any way takes its live tasks with it; one that was put back leaves them, and finds them when it runs again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.config import Config, TaskChecker
from penstock.config.councils import LIBRARY, STEP_KEYS
from penstock.config.names import Names
from penstock.config.own_calls import own_lanes
from penstock.council.live import Hub
from penstock.council.plan.steps import NO_HOST, StepEnd
from penstock.dispatcher.inner_call import call_through
from penstock.errors import TaskError
from penstock.hosts.inner_desk import Asked, InnerDesk, Listener
from penstock.lifecycle import ENDED
from penstock.model import State, Task, TaskRecord
from penstock.scheduling.messages import (
    Begin,
    CancelAsked,
    Decision,
    End,
    Event,
    HostChange,
    Requeue,
    Restored,
    RetryAsked,
    Spend,
    Start,
    WaitChange,
)
from penstock.store.base import Store
from penstock.store.rows import encode

if TYPE_CHECKING:
    from penstock.dispatcher.loop import Dispatcher

_LIBRARY_DOWN_S = 2.0  # its process does not start: there is no other, and a question does without
_LOOKS = 8  # at its hosts, for as long as a task may wait for them while they are down
_FINAL = {State.DONE: "done", State.CANCELLED: "cancelled"}


@dataclass(slots=True)
class _Watch:
    """What is known of a task that somebody waits for."""

    task: Task
    listener: Listener
    started_at: float | None = None
    host: str | None = None
    attempts: int = 0
    tokens: float | None = None
    cost_usd: float | None = None
    down_since: float | None = None  # its hosts, as far as was looked; the loop's time
    is_running: bool = False
    error: str | None = None  # of its last attempt that came to nothing
    last: str | None = None  # what it was at when we cancelled it
    why_failed: str | None = None  # we ended it, and why

    @property
    def is_library(self) -> bool:
        return self.task.kind == LIBRARY


@dataclass(frozen=True, slots=True)
class Ways:
    """What the inner desk may do with its dispatcher."""

    dispatcher: Dispatcher
    tell: Callable[[Event], None]
    knows: Callable[[str], bool]


class Inner:
    """All of it belongs to the dispatcher's loop."""

    def __init__(self, config: Config, store: Store, live: Hub, ways: Ways) -> None:
        self.live = live
        self._store = store
        self._ways = ways
        self._names = Names(config)
        self._checker = TaskChecker(config, own_calls=True)
        self._lanes = frozenset(own_lanes(config.plant))
        self._patience_s = config.server.down_patience_s
        self._call_patience_s = config.server.patience_s
        self._watched: dict[str, _Watch] = {}
        self._own: dict[str, dict[str, None]] = {}  # the live tasks of each question
        self._texts: dict[
            str, list[str]
        ] = {}  # live tasks of questions: what their attempts have said so far
        self._unwanted: set[str] = set()  # cancelled before the scheduler knew them
        self._looks: dict[
            bool, asyncio.TimerHandle
        ] = {}  # at the hosts of the library's tasks, and of all others

    @contextmanager
    def opened(self, desk: InnerDesk) -> Iterator[None]:
        desk.open(self)
        try:
            yield
        finally:
            desk.close()
            for look in self._looks.values():
                look.cancel()

    # ---- for attempts

    async def submit(
        self, question: str, tasks: Sequence[Task], listener: Listener, since: float = 0.0
    ) -> list[Asked]:
        now = self._ways.dispatcher.now
        asked: dict[str, Asked] = {}
        fitting: list[Task] = []
        for task in tasks:
            task = replace(self._known_by(task), queued_at=task.queued_at or now)
            if found := self._checker.problems(task):
                told = "; ".join(f"{field}: {what}" for field, what in found)
                asked[task.id] = _refused(task, now, told)
            else:
                fitting.append(task)
                self._watch(task, listener)
        known: list[tuple[Task, str]] = []
        for task, kept in zip(fitting, await self._kept(fitting), strict=True):
            if isinstance(kept, TaskError):
                self._watched.pop(task.id, None)
                asked[task.id] = _refused(task, now, str(kept))
            elif kept == task.id:
                asked[task.id] = Asked(task.id, task.queued_at)
            else:
                self._watched.pop(task.id, None)
                known.append((task, kept))
        for task, id in known:
            asked[task.id] = await self._joined(question, task, id, listener, since)
        return [asked[task.id] for task in tasks]

    def cancel(self, tasks: Iterable[str]) -> None:
        for task in tasks:
            if (watch := self._watched.get(task)) is not None:
                watch.last = self._at(watch)
            if self._is_taken_in(task):
                self._ways.tell(CancelAsked(task))
            elif task in self._watched:
                self._unwanted.add(task)

    def _is_taken_in(self, task: str) -> bool:
        """The scheduler knows it, or will before it hears what is told it from now on."""
        return self._ways.knows(task) or task in self._texts

    def _at(self, watch: _Watch) -> str:
        """What a task is at that is given up, in words for its record."""
        if watch.is_running:
            now = f"it was answering on {watch.host}"
        elif why := self._ways.dispatcher.why_down(watch.task):
            return f"its host is down: {why}"
        else:
            now = "it waited to be tried again" if watch.error else "it waited for a slot"
        return f"{now}; its last attempt: {watch.error}" if watch.error else now

    def leave(self, listener: Listener) -> None:
        for task in [id for id, watch in self._watched.items() if watch.listener is listener]:
            del self._watched[task]

    def said(self, task: str) -> str:
        return "".join(self._texts.get(task, ()))

    async def call(self, task: Task, endpoint: str, body: bytes) -> bytes:
        task = self._known_by(task)
        if task.deadline is None:  # nobody waits for ever for a host that is busy or down
            task = replace(task, deadline=self._ways.dispatcher.now + self._call_patience_s)
        return await call_through(self._ways.dispatcher, self._checker, task, endpoint, body)

    def _known_by(self, task: Task) -> Task:
        """With the model as hosts are asked for it: a config's names may stand for another."""
        if task.model is None:
            return task
        meant = self._names.asked(task.model) if task.is_call else self._names.meant(task.model)
        return replace(task, model=meant or task.model)

    async def _kept(self, tasks: Sequence[Task]) -> list[str | TaskError]:
        """Their ids, or why the store does not take one."""
        if not tasks:
            return []
        try:
            return list(await self._store.submit(tasks))
        except TaskError as refusal:
            if len(tasks) == 1:
                return [refusal]
        return [kept for task in tasks for kept in await self._kept([task])]

    async def _joined(self, question: str, wanted: Task, id: str, listener: Listener, since: float) -> Asked:
        """A task that was asked for in an earlier life."""
        await self._store.record([])  # and what was decided of it is on the disk
        record = await self._store.get(id)
        assert record is not None, f"the store lost {id}"
        watch = self._watch(record.task, listener)
        watch.host, watch.started_at, watch.attempts = record.host, record.started_at, record.attempts
        await self._count_before(watch)
        if not self._ways.knows(id):
            # It may have ended while we read, or wait to be taken in: the disk tells which.
            await self._store.record([])
            record = await self._store.get(id)
            assert record is not None, f"the store lost {id}"
        queued_at = record.task.queued_at
        if record.state not in ENDED or id not in self._watched:  # its end will be heard, or was
            return Asked(id, queued_at)
        is_before = (record.ended_at or 0.0) <= since
        if record.state is not State.DONE and is_before and _asks_the_same(record.task, wanted):
            self._revive(question, record)
            return Asked(id, since)
        del self._watched[id]
        return Asked(id, queued_at, _end_of_record(record, watch))

    def _revive(self, question: str, record: TaskRecord) -> None:
        self._own.setdefault(question, {})[record.task.id] = None
        self._texts[record.task.id] = []
        self._ways.tell(RetryAsked([record], dict.fromkeys(record.task.after, State.DONE)))

    async def _count_before(self, watch: _Watch) -> None:
        """What its attempts have used so far."""
        for event in await self._store.events(task=watch.task.id):
            if event.type in ("requeued", "ended"):
                watch.tokens = _more(watch.tokens, event.data.get("tokens"))
                watch.error = event.data.get("error") or watch.error
            elif event.type == "spent":
                watch.cost_usd = _more(watch.cost_usd, event.data.get("usd"))

    def _watch(self, task: Task, listener: Listener) -> _Watch:
        watch = self._watched[task.id] = _Watch(task, listener)
        if watch.is_library not in self._looks:
            self._look_later(watch.is_library)
        return watch

    # ---- for the dispatcher

    def tap(self, task: str) -> Callable[[str], None] | None:
        """Who hears the text of a task's answer as it comes. It is kept for a question that is begun again."""
        if task not in self._texts:
            return None
        said = self._texts[task] = []

        def told(piece: str) -> None:
            if self._texts.get(task) is not said:
                return  # of an attempt that is over
            said.append(piece)
            if (watch := self._watched.get(task)) is not None:
                watch.listener.text(task, piece)

        return told

    def taken_in(self, tasks: Iterable[Task], live: Callable[[str], bool] | None = None) -> list[Event]:
        """The scheduler is about to know these. Those whose question is gone are cancelled."""
        cancelled: list[Event] = []
        is_live = live or self._ways.knows
        for task in tasks:
            question = self._question_of(task)
            if question is None:
                continue
            if task.id in self._unwanted or not is_live(question):
                self._unwanted.discard(task.id)
                cancelled.append(CancelAsked(task.id))
            else:
                self._own.setdefault(question, {})[task.id] = None
                self._texts[task.id] = []
        return cancelled

    def restored(self, events: Sequence[Restored]) -> list[Event]:
        """A dispatcher begins with these. Steps of questions have records, since their lanes are set apart."""
        tasks = [record.task for event in events for record in event.records]
        steps = [task for task in tasks if self._question_of(task) is not None]
        if not steps:
            return []
        live = {task.id for task in tasks}
        live.update(id for event in events for backlog in event.queued for id in backlog.ids)
        return self.taken_in(steps, live.__contains__)

    def decided(self, decisions: Sequence[Decision]) -> None:
        watched = self._watched
        for decision in decisions:
            if isinstance(decision, Start):
                if (watch := watched.get(decision.task)) is not None:
                    watch.host, watch.attempts = decision.host, decision.attempt
                    watch.started_at, watch.is_running = decision.at, True
                    watch.listener.started(decision.task, decision.host, decision.attempt, decision.at)
            elif isinstance(decision, Begin):
                if (watch := watched.get(decision.task)) is not None:
                    watch.started_at = decision.at
            elif isinstance(decision, Spend):
                if (watch := watched.get(decision.task)) is not None:
                    watch.cost_usd = _more(watch.cost_usd, decision.usd)
            elif isinstance(decision, Requeue):
                if decision.task in self._texts:
                    self._texts[decision.task] = []  # what it said is void
                if (watch := watched.get(decision.task)) is not None:
                    watch.tokens = _more(watch.tokens, decision.tokens)
                    watch.is_running, watch.error = False, decision.error or watch.error
        is_down = False
        for decision in decisions:  # what it cost is told before or after it
            if isinstance(decision, End):
                self._ended(decision)
            elif isinstance(decision, HostChange):
                is_down = is_down or (decision.fault is not None and decision.fault.needs_fix)
            elif isinstance(decision, WaitChange):
                is_down = is_down or decision.reason == "host-down"
        if is_down and watched:
            self._give_up(watched.values(), asyncio.get_running_loop().time())

    def _ended(self, end: End) -> None:
        self._unwanted.discard(end.task)
        self._texts.pop(end.task, None)
        for task in self._own.pop(end.task, ()):
            if self._is_taken_in(task):
                self._ways.tell(CancelAsked(task))
        if (watch := self._watched.pop(end.task, None)) is not None:
            self._forget(watch.task)
            watch.listener.ended(end.task, _end(end, watch))
        value = None if end.outcome is None else end.outcome.value
        final = {"event": _FINAL.get(end.state, "failed"), "error": end.error, "record": value}
        self.live.over(end.task, final)

    def _forget(self, task: Task) -> None:
        question = self._question_of(task)
        if question is not None and (own := self._own.get(question)) is not None:
            own.pop(task.id, None)

    def _question_of(self, task: Task) -> str | None:
        """Whose task it is; only questions have any in a lane of calls that go by such a key."""
        if task.key is None or task.lane not in self._lanes or not task.key.startswith(STEP_KEYS):
            return None
        return task.key.removeprefix(STEP_KEYS).partition("/")[0]

    # ---- hosts that stay down

    def _look_later(self, is_library: bool) -> None:
        loop, delay_s = asyncio.get_running_loop(), self._patience_with(is_library) / _LOOKS
        self._looks[is_library] = loop.call_later(delay_s, self._look_at_hosts, is_library)

    def _patience_with(self, is_library: bool) -> float:
        return min(_LIBRARY_DOWN_S, self._patience_s) if is_library else self._patience_s

    def _look_at_hosts(self, is_library: bool) -> None:
        del self._looks[is_library]
        watched = [one for one in self._watched.values() if one.is_library is is_library]
        self._give_up(watched, asyncio.get_running_loop().time())
        if watched:
            self._look_later(is_library)

    def _give_up(self, watched: Iterable[_Watch], now: float) -> None:
        """Down until somebody fixes it, or at every look of the patience, and nothing of it under way."""
        dispatcher = self._ways.dispatcher
        for watch in watched:
            if not dispatcher.waits_for_hosts(watch.task):
                watch.down_since = None
                continue
            if watch.down_since is None:
                watch.down_since = now
            fix = dispatcher.needed_fix(watch.task)
            is_late = now - watch.down_since >= self._patience_with(watch.is_library)
            if (fix is not None or is_late) and watch.why_failed is None:
                why = fix or dispatcher.why_down(watch.task)
                watch.why_failed = f"{NO_HOST}: {why}" if why else NO_HOST
                self._ways.tell(CancelAsked(watch.task.id))


def _end(end: End, watch: _Watch) -> StepEnd:
    outcome = end.outcome
    failed = end.state is State.CANCELLED and watch.why_failed is not None
    cost_usd = watch.cost_usd
    if cost_usd is None and outcome is not None:
        cost_usd = outcome.cost_usd
    return StepEnd(
        state=State.FAILED if failed else end.state,
        queued_at=watch.task.queued_at,
        ended_at=end.at,
        started_at=watch.started_at,
        value=None if outcome is None else outcome.value,
        error=watch.why_failed if failed else end.error,
        host=watch.host,
        attempts=end.attempt or watch.attempts,
        tokens=_more(watch.tokens, None if outcome is None else outcome.tokens),
        cost_usd=cost_usd,
        last=watch.last if end.state is State.CANCELLED else None,
    )


def _end_of_record(record: TaskRecord, watch: _Watch) -> StepEnd:
    return StepEnd(
        state=record.state,
        queued_at=record.task.queued_at,
        ended_at=record.ended_at or record.task.queued_at,
        started_at=record.started_at,
        value=record.value,
        error=record.error,
        host=record.host,
        attempts=record.attempts,
        tokens=watch.tokens,
        cost_usd=watch.cost_usd,
    )


def _asks_the_same(kept: Task, wanted: Task) -> bool:
    """Of tasks with one key: a config that was mended asks something else of the same member."""
    kept_as, wanted_as = ((t.kind, t.model, t.host, t.timeout_s, t.retries, t.lane) for t in (kept, wanted))
    return kept_as == wanted_as and encode(kept.payload) == encode(wanted.payload)


def _refused(task: Task, now: float, why: str) -> Asked:
    return Asked(task.id, now, StepEnd(State.FAILED, now, now, error=f"cannot be asked: {why}"))


def _more(so_far: float | None, amount: Any) -> float | None:
    """Nothing where nothing is known."""
    if not isinstance(amount, int | float):
        return so_far
    return amount + (so_far or 0.0)
