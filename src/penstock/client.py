"""The one door: submit, watch, cancel, explain. Commands, the HTTP service and Python code all come through here.

A client talks to the store alone. A dispatcher, in this process or another, is woken by what is left there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import Config, TaskChecker
from penstock.config.problems import nearest
from penstock.errors import TaskError, UnknownTask, Unreachable, UsageError
from penstock.lifecycle import ENDED
from penstock.model import DEFAULT_LANE, DEFAULT_PRIORITY, Attempt, OnCrash, Result, State, Task, TaskRecord
from penstock.store.base import (
    Answer,
    Bell,
    Lately,
    Maker,
    Request,
    RunCount,
    Snapshot,
    Store,
    StoredEvent,
    TaskCount,
    TaskFilter,
    TaskPage,
    Token,
)
from penstock.store.joining import joining
from penstock.store.standbys import Standby, standbys
from penstock.telemetry.ambient import current as current_trace
from penstock.wiring import Dispatching, make_dispatcher, open_store, read_config

if TYPE_CHECKING:
    from penstock.council.library.ingested import Ingested
    from penstock.council.live import Hub
    from penstock.diagnosis.history import History
    from penstock.diagnosis.recording import Recording
    from penstock.diagnosis.summary import Summary
    from penstock.diagnosis.waits import Explainer, Stay
    from penstock.diagnosis.why.answer import Why
    from penstock.diagnosis.why.prediction import Prediction
    from penstock.diagnosis.why.waiting import Waiting
    from penstock.dispatcher.background import BackgroundDispatcher
    from penstock.dispatcher.loop import Dispatcher
    from penstock.questions import Asking
    from penstock.store.now import Now, WaitsFor
    from penstock.telemetry.story import Listener

_BATCH = 5_000  # tasks that are looked up together
_LOOK_S = 1.0  # how often a waiting client makes sure that somebody dispatches
_ANSWER_S = 30.0
_RECENT_TASKS = 1_000  # whose runs a misspelt name may mean


class Client:
    """Open it with `penstock.open()`; it belongs to the loop that opened it."""

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        dispatch: bool,
        answers: bool = True,
        listeners: Sequence[Listener] = (),
        dispatching: Dispatching = Dispatching(),  # noqa: B008 - frozen
    ) -> None:
        """`answers`: what it asks it does by itself where nobody dispatches."""
        self.config = config
        self._answers = answers
        self._dispatching = dispatching
        self._listeners = listeners  # to the story of a dispatcher of our own
        self._store = store
        self._check = TaskChecker(config).check
        self._dispatch = dispatch
        self._background: BackgroundDispatcher | None = None

    # ---- submitting

    async def submit(self, task: Task) -> str:
        """Keep one task; its id once it is durable."""
        run = await self.submit_many([task])
        return run.task_ids[0]

    async def submit_many(
        self, tasks: Iterable[Task], *, run: str | None = None, trace: str | None = None, join: bool = False
    ) -> Run:
        """Keep these tasks as one run, all or none; they are durable when this returns.

        Those that bring no trace belong to `trace`, or to the OpenTelemetry span that they are submitted in.
        With `join` an output that a task of the store is about to make is not made twice: that task is waited for.
        """
        tasks = list(tasks)
        trace = current_trace() if trace is None else trace
        if trace is not None:
            tasks = [task if task.trace is not None else replace(task, trace=trace) for task in tasks]
        if not tasks:
            raise TaskError("there is no task to submit; give at least one")
        for task in tasks:
            self._check(task)
        if join:
            tasks = await joining(self._store, tasks)
        if self.config.on_crash is OnCrash.BLOCK:
            tasks = [replace(task, on_crash=OnCrash.BLOCK) for task in tasks]
        name = run or tasks[0].run or _new_run()
        ids = await self._store.submit(tasks, name)
        if self._dispatch:
            await self._ensure_dispatcher()
        # A key may have led to a task of an older run, and a task may name a run of its own.
        doubtful = [
            i
            for i, task in zip(ids, tasks, strict=True)
            if task.key is not None or task.run not in ("", name)
        ]
        return Run(self, name, ids, doubtful)

    # ---- reading

    async def get(self, task_id: str) -> TaskRecord:
        """A task by its id, by the name that its user knows it by (an issue's, a request's, its key), or by the
        beginning of an id.
        """
        record = await self._store.get(task_id)
        if record is not None:
            return record
        matches = await self.ids_like(task_id)
        if len(matches) == 1:
            found = await self._store.get(matches[0])
            if found is not None:
                return found
        if matches:
            raise UnknownTask(f"{task_id!r} could be {', '.join(matches[:5])}; give more of the id")
        raise UnknownTask(f"there is no task {task_id!r}; `penstock tasks` lists them")

    async def ids_like(self, name: str) -> list[str]:
        """At most ten ids of tasks that a name, or the beginning of an id, could mean."""
        return await self._store.find_called(name) or await self._store.find(name)

    async def result(self, task_id: str) -> Result:
        """A task with its waits, whatever state it is in."""
        record = await self.get(task_id)
        explainer = await self._explainer(task=record.task.id)
        return explainer.result(record)

    async def results(self, run: str) -> list[Result]:
        """Every task of a run with its waits, in order of arrival."""
        records = await self._store.tasks(TaskFilter(run=run))
        if not records:
            raise UnknownTask(f"there is no run {run!r}; `penstock tasks` lists tasks with their runs")
        explainer = await self._explainer(run=run)
        return [explainer.result(record) for record in records]

    async def run_named(self, name: str) -> str:
        """A run by its name, or by the beginning of one, or by one of its tasks; `last` is that of the newest."""
        if await self._store.tasks(TaskFilter(run=name, limit=1)):
            return name
        if name == "last":
            newest = await self._store.tasks(TaskFilter(limit=1, newest=True))
            if newest:
                return await self._caller_of(newest[0].task.run)
        matches = await self._store.find_runs(name) if name else []
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UnknownTask(f"run {name!r} could be {', '.join(matches[:5])}; give more of the name")
        if name and (found := await self._store.get(name) or await self._begins_with(name)):
            return await self._caller_of(found.task.run)
        recent = await self._store.tasks(TaskFilter(limit=_RECENT_TASKS, newest=True))
        if near := nearest(name, {record.task.run for record in recent}):
            raise UnknownTask(f"there is no run {name!r}; did you mean {near!r}?")
        raise UnknownTask(f"there is no run {name!r}; `penstock tasks --json` tells the runs of all tasks")

    async def _begins_with(self, id: str) -> TaskRecord | None:
        matches = await self._store.find(id)
        return await self._store.get(matches[0]) if len(matches) == 1 else None

    async def _caller_of(self, run: str) -> str:
        """The run whose own calls a run consists of, or that run itself."""
        from penstock.config.own_calls import RUNS

        caller = run.removeprefix(RUNS)
        if caller != run and await self._store.tasks(TaskFilter(run=caller, limit=1)):
            return caller
        return run

    async def states_in_run(self, run: str) -> dict[State, int]:
        """How many tasks of a run are in each state; empty when there is no such run."""
        return await self._store.states_in_run(run)

    async def recording(self, run: str, *, newest: int | None = None) -> Recording:
        """A run as it was, or has been so far: for its timeline, for diagnosis, for a replay.

        `newest`: of a larger one only so many tasks.
        """
        from penstock.diagnosis.recording import recording_of

        if newest is None or sum((await self._store.states_in_run(run)).values()) <= newest:
            history = await self._store.history(run=run)
        else:
            history = await self._store.history(chosen=TaskFilter(run=run, limit=newest, newest=True))
            history = replace(history, records=history.records[::-1])  # in order of arrival
        return await asyncio.to_thread(recording_of, history, self.config.plant, time.time())

    async def lately(self, within_s: float, most: int) -> tuple[Recording, Lately]:
        """What lived of late, of all runs, as far as `most` tasks go; and how much there was."""
        from penstock.diagnosis.recording import recording_of

        now = time.time()
        lately = await self._store.lately(now - within_s, most)
        history = await self._store.history(ids=lately.ids, others=False)
        made = await asyncio.to_thread(recording_of, history, self.config.plant, time.time())
        return replace(made, name=""), lately

    async def runs(self, most: int = 50) -> list[RunCount]:
        """The newest first, with how many tasks they have."""
        return await self._store.newest_runs(most)

    async def runs_beginning(self, prefix: str) -> list[str]:
        """Names of runs that begin so, in order; up to ten."""
        return await self._store.find_runs(prefix)

    async def is_settled(self, run: str, since: int) -> bool:
        """Whether all of a run has ended, and nothing of it after this event."""
        return not await self._store.live_in_run(run) and not await self._store.ended_in_run(run, since)

    async def tasks(self, chosen: TaskFilter = TaskFilter()) -> list[TaskRecord]:  # noqa: B008 - frozen
        return await self._store.tasks(chosen)

    async def page(self, chosen: TaskFilter) -> TaskPage:
        """The next tasks that fit, without payload and value, soon: a page may be short and still have a `next`."""
        return await self._store.page(chosen)

    async def count(self, chosen: TaskFilter) -> TaskCount:
        """How many tasks fit: exactly, or at least so many where it would take long to know."""
        return await self._store.count(chosen)

    async def states(self, task_ids: Iterable[str]) -> dict[str, State]:
        """Where these tasks are; those that are not known are left out."""
        return await self._store.states(task_ids)

    async def attempts(self, task_id: str) -> list[Attempt]:
        return await self._store.attempts(task_id)

    async def events(
        self, after: int = 0, *, task: str | None = None, limit: int = 1000
    ) -> list[StoredEvent]:
        return await self._store.events(after, task=task, limit=limit)

    async def last_event(self) -> int:
        """The number of the newest event: `events` after it are those to come."""
        return await self._store.last_event()

    async def snapshot(self) -> Snapshot:
        return await self._store.snapshot(time.time())

    async def standbys(self) -> list[Standby]:
        """Dispatchers that would take over; none where the store does not elect."""
        return await standbys(self._store)

    async def now(self, seen: Now | None = None) -> Now:
        """What runs, what waits and what has ended of late. A later look costs less with the one before it."""
        return await self._store.now(time.time(), seen)

    async def waits_now(self, routes: Iterable[str]) -> dict[str, WaitsFor]:
        """What queued tasks of these routes wait for, but for their dependencies and their times."""
        return await self._store.waits_now(routes)

    async def stays(self, records: Sequence[TaskRecord]) -> list[Stay]:
        """How long each of these waited and ran, in all its attempts, and since when it does what it does."""
        from penstock.diagnosis.waits import Explainer

        history = await self._store.stays([record.task.id for record in records])
        explainer = Explainer(history, time.time())
        return [explainer.stay(record) for record in records]

    async def waits_of_late(self, *, within_s: float = 3600.0) -> Waiting:
        """What tasks waited for, of late; of very many only the newest are looked at."""
        from penstock.store.outlook import why_all

        now = time.time()
        return await why_all(self._store, self.config.plant, now - within_s, now)

    async def summary(self, run: str, *, since: float = 0.0) -> Summary:
        """What a run achieved, from then on, against what was possible."""
        from penstock.diagnosis.summary import summarize
        from penstock.store.outlook import calls_of

        history = await self._store.history(run=run)
        calls = await calls_of(self._store, self.config.plant, run)
        return summarize(history, self.config.plant, time.time(), since, calls)

    async def why(self, task_id: str) -> Why:
        """Why a task waits or waited, who held what it waits for, and when it will start or end.

        `last` is the newest that somebody asked for: no call of a run and no step of a council's question.
        """
        from penstock.store.outlook import why_task

        record = (await self._newest() if task_id == "last" else None) or await self.get(task_id)
        return await why_task(self._store, self.config.plant, record, time.time())

    async def _newest(self) -> TaskRecord | None:
        from penstock.config.own_calls import own_lanes

        inner = own_lanes(self.config.plant)
        recent = await self._store.tasks(TaskFilter(limit=_RECENT_TASKS, newest=True))
        return next((record for record in recent if record.task.lane not in inner), None)

    async def why_run(self, run: str) -> Waiting:
        """Where the waiting of a run went, what would help most, and when it will end."""
        from penstock.store.outlook import why_run

        return await why_run(self._store, self.config.plant, run, time.time())

    async def why_lane(self, lane: str, *, within_s: float = 3600.0) -> Waiting:
        """What the tasks of a lane waited for, of late."""
        from penstock.store.outlook import why_lane

        now = time.time()
        return await why_lane(self._store, self.config.plant, lane, now - within_s, now)

    async def why_host(self, host: str, *, within_s: float = 3600.0) -> Waiting:
        """What waited for a host, of late."""
        from penstock.store.outlook import why_host

        now = time.time()
        return await why_host(self._store, self.config.plant, host, now - within_s, now)

    async def past_of_kinds(self, kinds: Iterable[str]) -> list[History]:
        """What was done of these kinds of late: what others like it will cost, and how long they take."""
        from penstock.store.outlook import past_of_kinds

        return await past_of_kinds(self._store, kinds)

    async def makers_of_outputs(self, outputs: Sequence[str]) -> dict[str, Maker]:
        """Of each of these outputs the task that is about to make it, if there is one that can be joined."""
        return await self._store.makers_of_outputs(outputs)

    async def foresee_end(self, tasks: Sequence[Task], joined: Collection[str] = ()) -> Prediction:
        """When the last of these would end, were they submitted now, and of those that are `joined`; nothing is."""
        from penstock.store.outlook import foresee_end

        return await foresee_end(self._store, self.config.plant, tasks, time.time(), joined)

    async def wait(self, task_id: str) -> Result:
        """The result of one task, when it has ended."""
        async with self.watching() as watch:
            while True:
                record = await self.get(task_id)
                if record.state in ENDED:
                    return await self.result(record.task.id)
                await watch()

    # ---- councils

    async def ask(self, council: str | None, query: str, **how: Any) -> dict[str, Any]:
        """A question's record, when it is over. `how` is as in `asking`; QuestionError where there is no record."""
        return await self.asking(council, query, **how).record()

    def asking(
        self,
        council: str | None,
        query: str,
        *,
        mode: str | None = None,
        members: Sequence[str] | None = None,
        use_rag: bool | None = None,
        conversation: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        lane: str = DEFAULT_LANE,
    ) -> Asking:
        """A question whose events can be iterated over while it is answered; None: the only council.

        It is kept with the first event; what is wrong with it is told before. `cancel()` of what is given ends it.
        """
        from penstock.council.asking import Wish
        from penstock.questions import Asking, Sources

        wish = Wish(query, mode, members, use_rag, conversation, priority, lane)
        return Asking(self, council, wish, Sources(self._store, self._hub, self._ensure_if_ours))

    def _hub(self) -> Hub | None:
        """Live events of questions that our own dispatcher answers."""
        return None if self._background is None else self._background.live

    # ---- asking

    async def cancel(self, *task_ids: str) -> Answer:
        return await self._ask("cancel", {"tasks": await self._full_ids(task_ids)})

    async def cancel_run(self, run: str) -> Answer:
        states = [str(State.QUEUED), str(State.RUNNING)]
        return await self._ask("cancel", {"run": run, "states": states})

    async def retry(self, *task_ids: str) -> Answer:
        return await self._ask("retry", {"tasks": await self._full_ids(task_ids)})

    async def retry_run(self, run: str) -> Answer:
        """Queue again whatever of a run failed, was cancelled or is blocked."""
        states = [str(s) for s in (State.FAILED, State.CANCELLED, State.BLOCKED)]
        return await self._ask("retry", {"run": run, "states": states})

    async def set_priority(self, *task_ids: str, priority: int) -> Answer:
        """Make tasks more urgent (0) or less (4).

        Queued ones move to their place, running ones have it for their next attempt. What they have waited counts.
        """
        return await self._ask("priority", {"tasks": await self._full_ids(task_ids), "priority": priority})

    async def change(self, do: str, task_ids: Sequence[str], *, priority: int | None = None) -> Answer:
        """`"cancel"`, `"retry"` or `"priority"` for many tasks at once, by their whole ids."""
        asked = {"tasks": list(task_ids)} | ({} if priority is None else {"priority": priority})
        return await self._ask(do, asked)

    async def set_run_priority(self, run: str, priority: int) -> Answer:
        """The same for whatever of a run has not ended."""
        states = [str(State.QUEUED), str(State.RUNNING)]
        return await self._ask("priority", {"run": run, "states": states, "priority": priority})

    async def pause(self, scope: str = "all", name: str = "") -> Answer:
        return await self._ask("pause", {"scope": scope, "name": name})

    async def resume(self, scope: str = "all", name: str = "") -> Answer:
        return await self._ask("resume", {"scope": scope, "name": name})

    async def set_slots(self, host: str, slots: int) -> Answer:
        return await self._ask("slots", {"host": host, "slots": slots})

    # ---- the library of councils

    async def ingest(
        self,
        folder: Path | str,
        *,
        council: str | None = None,
        by: str = "words",
        chunk_words: int | None = None,
        overlap_words: int | None = None,
        name: str | None = None,
        dry_run: bool = False,
        may_empty: bool = False,
    ) -> Ingested:
        """Put what changed of a folder's documents into a council's collection, as `council ingest` does."""
        from penstock.council.library.chunks import By
        from penstock.council.library.door import council_of
        from penstock.council.library.ingested import make_options
        from penstock.council.library.ingesting import Ingestion

        if by not in list(By):
            raise UsageError(f"by: {by!r} must be words or headings")
        chosen = council_of(self.config.councils, council)
        options = make_options(
            chosen,
            self.config.payload_limit_bytes,
            by=by,
            chunk_words=chunk_words,
            overlap_words=overlap_words,
            name=name,
            dry_run=dry_run,
            may_empty=may_empty,
        )
        return await Ingestion(self, chosen, Path(folder), options).run()

    # ---- tokens

    async def tokens(self) -> list[Token]:
        return await self._store.tokens()

    async def add_token(self, token: Token) -> bool:
        """Let somebody in; False when the name is taken. A running `serve` knows it when this returns."""
        return await self._store.save_token(token) and await self._tokens_changed()

    async def revoke_token(self, name: str) -> bool:
        """Shut somebody out; False when there is none of that name. `serve` refuses it when this returns."""
        return await self._store.revoke_token(name) and await self._tokens_changed()

    async def _tokens_changed(self) -> bool:
        # One that starts from now on reads them after it has become the dispatcher.
        if await self._store.owned_by() is not None:
            await self._ask("tokens", {})
        return True

    # ---- runs from store to store

    async def export_run(self, run: str) -> AsyncIterator[Mapping[str, Any]]:
        async for line in self._store.export_run(run):
            yield line

    async def import_run(self, lines: Iterable[Mapping[str, Any]]) -> str:
        return await self._store.import_run(lines)

    async def _ask(self, verb: str, args: Mapping[str, Any]) -> Answer:
        """Leave a request and wait for its answer; where nobody dispatches, do it ourselves and leave again."""
        bell = self._store.bell()
        try:
            number = await self._store.ask(Request(verb, args))
            await self._answer_if_nobody_does()
            deadline = time.monotonic() + _ANSWER_S
            while (answer := await self._store.answer_to(number)) is None:
                if time.monotonic() > deadline:
                    raise Unreachable(
                        f"the dispatcher has not answered for {_ANSWER_S:g} s; the request stands, "
                        "see `penstock status` for who dispatches"
                    )
                if not await bell.wait(_LOOK_S):
                    await self._answer_if_nobody_does()
            return answer
        finally:
            bell.close()

    async def _answer_if_nobody_does(self) -> None:
        if self._background is not None or not self._answers or await self._store.owned_by() is not None:
            return
        if await standbys(self._store):  # one of them leads in a moment
            return
        from penstock.errors import AlreadyOwned

        dispatcher = make_dispatcher(self.config, self._store, "answering a request", traced=False)
        with suppress(AlreadyOwned):  # one has just begun: it answers
            await dispatcher.run(answer_only=True)

    async def _full_ids(self, task_ids: Sequence[str]) -> list[str]:
        return [(await self.get(t)).task.id for t in task_ids]

    async def _explainer(self, *, task: str | None = None, run: str | None = None) -> Explainer:
        from penstock.diagnosis.waits import Explainer

        history = await self._store.history(task=task, run=run)
        return Explainer(history, time.time())

    # ---- dispatching

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Waits that end when something was recorded, or after a moment, making sure that somebody dispatches."""
        bell = self._store.bell()

        async def watch() -> None:
            if not await bell.wait(_LOOK_S):
                await self._ensure_if_ours()

        try:
            yield watch
        finally:
            bell.close()

    def bell(self) -> Bell:
        """Rung when something was recorded, in whatever process; to be closed by whoever asked for it."""
        return self._store.bell()

    async def _ensure_if_ours(self) -> None:
        """Where this client dispatches: so that somebody does."""
        if self._dispatch:
            await self._ensure_dispatcher()

    async def _ensure_dispatcher(self) -> None:
        """Have a dispatcher: another process's if there is one, else our own in a thread of its own."""
        from penstock.dispatcher.background import BackgroundDispatcher
        from penstock.errors import AlreadyOwned

        if self._background is not None and self._is_alive(self._background):
            return
        self._background = None
        if await self._store.owned_by() is not None or await standbys(self._store):
            return
        background = BackgroundDispatcher(self._parts)
        try:
            await background.start()
        except AlreadyOwned:
            return
        self._background = background

    def _is_alive(self, background: BackgroundDispatcher) -> bool:
        """Raises what ended it, unless another took over: that one goes on with the work."""
        from penstock.errors import DispatcherError

        try:
            return background.is_alive()
        except DispatcherError:
            if not self._store.elects:
                raise
            return False

    def _parts(self) -> tuple[Store, Dispatcher]:
        store = open_store(self.config)
        dispatcher = make_dispatcher(self.config, store, self._dispatching.command, self._dispatching)
        for listener in self._listeners:
            dispatcher.story.listen(listener)
        return store, dispatcher

    @property
    def dispatches(self) -> bool:
        """Whether tasks run in this process."""
        return self._background is not None

    @property
    def on_stop(self) -> str:
        """What becomes of tasks that a stop of our own dispatcher ends: requeue or block."""
        return self._dispatching.on_stop

    async def stop_dispatching(self, *, put_back: bool = False) -> None:
        """Our own dispatcher finishes what runs, or puts it back, and starts nothing more; the client stays.

        What is put back is blocked instead where `on_stop` says so. May be called again with `put_back` while
        the first call waits.
        """
        self._dispatch = False
        if self._background is not None:
            from penstock.errors import DispatcherError

            try:
                await self._background.stop(put_back=put_back)
            except DispatcherError:
                if not self._store.elects:  # else another has taken over, and goes on with what ran
                    raise
            finally:
                self._background = None

    async def aclose(self, *, put_back: bool = False) -> None:
        """Leave; our own dispatcher finishes what runs, or puts it back, and starts nothing more."""
        await self.stop_dispatching(put_back=put_back)
        await self._store.close()


class Run:
    """Tasks submitted together. `doubtful` are those that may belong to another run."""

    def __init__(
        self, client: Client, name: str, task_ids: Sequence[str], doubtful: Sequence[str] = ()
    ) -> None:
        self._client = client
        self._doubtful = tuple(doubtful)
        self.name = name
        self.task_ids = tuple(task_ids)

    async def results(self) -> AsyncGenerator[Result, None]:
        """Each task's result as it ends. Their waits are complete; `Client.results` gives them in order."""
        async for record in self.records():
            yield await self._client.result(record.task.id)

    async def records(self) -> AsyncGenerator[TaskRecord, None]:
        """Each task as it ends, without its waits: cheaper for many."""
        endings = self.endings()
        async with self._client.watching() as watch:
            while endings.left:
                ended = await endings.take()
                for record in ended:
                    yield record
                if not ended:
                    await watch()

    def endings(self) -> Endings:
        """For those who do other things between two looks."""
        return Endings(self._client._store, self.name, self.task_ids, self._doubtful)

    async def wait(self) -> list[Result]:
        """Every result, in the order of submission, when all have ended."""
        async for _ in self.records():
            pass
        by_id = {r.task_id: r for r in await self._client.results(self.name)}
        return [by_id.get(t) or await self._client.result(t) for t in self.task_ids]


class Endings:
    """The tasks of a run as they end, each once."""

    def __init__(self, store: Store, run: str, task_ids: Iterable[str], doubtful: Sequence[str]) -> None:
        self._store = store
        self._run = run
        self._wanted = set(task_ids)
        self._doubtful = doubtful
        self._elsewhere: list[str] = []  # tasks of other runs
        self._seen = 0

    @property
    def left(self) -> int:
        """How many have not been taken."""
        return len(self._wanted)

    def add(self, task_ids: Iterable[str]) -> None:
        """More tasks of the same run, before the next `take`."""
        self._wanted.update(task_ids)

    async def take(self) -> list[TaskRecord]:
        """Those that ended since the last time, in the order in which they did; none is normal."""
        if self._doubtful:
            self._elsewhere = await self._of_other_runs(self._doubtful)
            self._doubtful = ()
        taken: list[TaskRecord] = []
        for number, record in await self._store.ended_in_run(self._run, self._seen):
            self._seen = number
            taken.append(record)
        if self._elsewhere:
            states = await self._store.states(self._elsewhere)
            ended = {t for t in self._elsewhere if states.get(t) in ENDED}
            found = [await self._store.get(t) for t in ended]
            taken += [record for record in found if record is not None]
            self._elsewhere = [t for t in self._elsewhere if t not in ended]
        taken = [record for record in taken if record.task.id in self._wanted]
        self._wanted.difference_update(record.task.id for record in taken)
        return taken

    async def _of_other_runs(self, task_ids: Sequence[str]) -> list[str]:
        found: list[str] = []
        for start in range(0, len(task_ids), _BATCH):
            arrivals = await self._store.fetch(task_ids[start : start + _BATCH])
            found += [a.record.task.id for a in arrivals if a.record.task.run != self._run]
        return found


@asynccontextmanager
async def open(
    config: Config | Path | str | None = None,
    *,
    dispatch: bool = True,
    dispatcher: str = "async",
    on_stop: str = "requeue",
    command: str = "a client",
    listeners: Sequence[Listener] = (),
) -> AsyncIterator[Client]:
    """A client for a config: its path, a Config, or the file found from here.

    With `dispatch`, and where no other process does, tasks run in this process, on threads of their own, until
    the client is closed; what is then unfinished stays in the store. `dispatcher` is "async", or "threads" for one
    thread per kind that runs one task at a time; `on_stop` says what becomes of tasks that are stopped before their
    end: "requeue" or "block". `command` is what `status` says of who dispatches. `listeners` are told, on one of
    those threads, what happens there.
    """
    dispatching = Dispatching(dispatcher, on_stop, command)
    if not isinstance(config, Config):
        config = read_config(Path(config) if config is not None else None)
    store = open_store(config)
    await store.open()
    client = Client(config, store, dispatch=dispatch, listeners=listeners, dispatching=dispatching)
    try:
        if dispatch:
            await client._ensure_dispatcher()
        yield client
    finally:
        await client.aclose()


def _new_run() -> str:
    from penstock.store.ids import new_ids

    return f"r-{new_ids(1)[0]}"
