"""The client itself: what it submits, waits for and asks councils, and `open`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.client.explaining import Explaining
from penstock.client.own_dispatcher import OwnDispatcher
from penstock.client.requesting import LOOK_S, Requesting
from penstock.client.runs import Run
from penstock.config import Config, TaskChecker
from penstock.config.running import knows_all, unknown_there
from penstock.errors import TaskError, UsageError
from penstock.lifecycle import ENDED
from penstock.model import DEFAULT_LANE, DEFAULT_PRIORITY, OnCrash, Result, Task
from penstock.store.base import Store
from penstock.store.ids import new_run
from penstock.store.joining import joining
from penstock.store.status import dispatcher_of
from penstock.telemetry.ambient import current as current_trace
from penstock.wiring import Dispatching, open_store, read_config

if TYPE_CHECKING:
    from penstock.council.library.ingested import Ingested
    from penstock.council.live import Hub
    from penstock.questions import Asking
    from penstock.telemetry.facts import Listener


class Client(Explaining, Requesting):
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
        super().__init__(config, store, OwnDispatcher(config, store, dispatching, listeners), answers=answers)
        self._check = TaskChecker(config).check
        self._dispatch = dispatch
        self._is_known = False  # whether all that our config has is known to whoever dispatches

    # ---- submitting

    async def submit(self, task: Task) -> str:
        """Keep one task; its id once it is durable."""
        run = await self.submit_many([task])
        return run.task_ids[0]

    async def submit_many(
        self,
        tasks: Iterable[Task],
        *,
        run: str | None = None,
        file: str = "",
        trace: str | None = None,
        join: bool = False,
    ) -> Run:
        """Keep these tasks as one run, all or none; they are durable when this returns.

        `file` is the task file they come from: the run is its newest from now on.

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
        return await self._keep(tasks, run or tasks[0].run or new_run(), file, join=join)

    async def submit_call(self, task: Task) -> Run:
        """Keep a call of a model, to be followed: it goes to hosts that have the model, whatever they serve."""
        TaskChecker(self.config, calls=True).check(task)
        return await self._keep([task], task.run or new_run())

    async def _keep(self, tasks: list[Task], name: str, file: str = "", *, join: bool = False) -> Run:
        await self._check_known(tasks)
        if join:
            tasks = await joining(self._store, tasks)
        if self.config.on_crash is OnCrash.BLOCK:
            tasks = [replace(task, on_crash=OnCrash.BLOCK) for task in tasks]
        ids = await self._store.submit(tasks, name, file)
        await self._ensure_if_ours()
        # A key may have led to a task of an older run, and a task may name a run of its own.
        doubtful = [
            i
            for i, task in zip(ids, tasks, strict=True)
            if task.key is not None or task.run not in ("", name)
        ]
        return Run(self, name, ids, doubtful)

    async def _check_known(self, tasks: Sequence[Task]) -> None:
        """Refuse what only our own config has: it would wait until the dispatcher is started again."""
        if self._is_known or self._own.runs:
            return
        epoch = await dispatcher_of(self._store)
        if epoch is None or epoch.plant is None:
            self._is_known = True  # whoever begins later reads the config later
        elif unknown := list(unknown_there(tasks, epoch.plant)):
            raise TaskError("\n".join(unknown))
        else:
            self._is_known = knows_all(epoch.plant, self.config.plant)

    # ---- reading

    def run_of(self, run: str, tasks: Mapping[str, str]) -> Run:
        """Tasks that were submitted before, by their ids with their runs, to be followed as one run."""
        return Run(self, run, ()).beside(tasks)

    async def wait(self, task_id: str) -> Result:
        """The result of one task, when it has ended."""
        async with self.watching() as watch:
            while True:
                record = await self.get(task_id)
                if record.state in ENDED:
                    return await self.result(record.task.id)
                await watch()

    def follow(self, task_id: str) -> AsyncGenerator[Mapping[str, Any], None]:
        """A task that asks for a stream, while it is worked on: its `text` as it comes, until it has ended.

        An event `attempt` says that an attempt begins, and that what was heard before is void. Where another
        command dispatches, and does not serve, nothing is heard: the answer is in the store when this ends.
        """
        from penstock.client.following import follow

        return follow(self, task_id)

    def hub(self) -> Hub | None:
        """What our own dispatcher tells live, where this process dispatches."""
        return self._own.live

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
        return Asking(self, council, wish, Sources(self._store, lambda: self._own.live, self._ensure_if_ours))

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

    async def import_run(self, lines: Iterable[Mapping[str, Any]]) -> str:
        return await self._store.import_run(lines)

    # ---- dispatching

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Waits that end when something was recorded, or after a moment, making sure that somebody dispatches."""
        bell = self._store.bell()

        async def watch() -> None:
            if not await bell.wait(LOOK_S):
                await self._ensure_if_ours()

        try:
            yield watch
        finally:
            bell.close()

    async def _ensure_if_ours(self) -> None:
        """Where this client dispatches: so that somebody does."""
        if self._dispatch:
            await self._own.ensure()

    @property
    def dispatches(self) -> bool:
        """Whether tasks run in this process."""
        return self._own.runs

    @property
    def on_stop(self) -> str:
        """What becomes of tasks that a stop of our own dispatcher ends: requeue or block."""
        return self._own.dispatching.on_stop

    async def stop_dispatching(self, *, put_back: bool = False) -> None:
        """Our own dispatcher finishes what runs, or puts it back, and starts nothing more; the client stays.

        What is put back is blocked instead where `on_stop` says so. May be called again with `put_back` while
        the first call waits.
        """
        self._dispatch = False
        await self._own.stop(put_back=put_back)

    async def aclose(self, *, put_back: bool = False) -> None:
        """Leave; our own dispatcher finishes what runs, or puts it back, and starts nothing more."""
        await self.stop_dispatching(put_back=put_back)
        await self._store.close()


@asynccontextmanager
async def open(
    config: Config | Path | str | None = None,
    *,
    dispatch: bool = True,
    dispatcher: str = "async",
    on_stop: str = "requeue",
    command: str = "a client",
    only_run: str = "",
    listeners: Sequence[Listener] = (),
    makes: bool = True,
) -> AsyncIterator[Client]:
    """A client for a config: its path, a Config, or the file found from here.

    With `dispatch`, and where no other process does, tasks run in this process, on threads of their own, until
    the client is closed; what is then unfinished stays in the store. `dispatcher` is "async", or "threads" for one
    thread per kind that runs one task at a time; `on_stop` says what becomes of tasks that are stopped before their
    end: "requeue" or "block". `command` is what `status` says of who dispatches. With `only_run` just that run is
    worked on here: all else stays queued, what this client submits to other runs too. `listeners` are told, on one
    of those threads, what happens there. Where there is no store yet one is made; without `makes` that is
    StoreMissing.
    """
    dispatching = Dispatching(dispatcher, on_stop, command, only_run)
    if not isinstance(config, Config):
        config = read_config(Path(config) if config is not None else None)
    store = open_store(config)
    await store.open(makes=makes)
    client = Client(config, store, dispatch=dispatch, listeners=listeners, dispatching=dispatching)
    try:
        await client._ensure_if_ours()
        yield client
    finally:
        await client.aclose()
