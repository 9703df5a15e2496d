"""Working: `run` does a task file from submit to summary, `work` is the dispatcher alone."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from penstock.cli import planning, render
from penstock.cli.dispatching import (
    DispatcherOption,
    LogFormatOption,
    OnStopOption,
    QuietOption,
    dispatching_of,
    last_word,
    tell_standby,
    warn_of_config,
)
from penstock.cli.session import (
    INTERRUPTED,
    Interrupts,
    Stops,
    config_of,
    finish,
    hearing_interrupts,
    one_of,
    opened,
)
from penstock.trace import of_environment

if TYPE_CHECKING:
    from penstock.cli.logs import Log
    from penstock.cli.progress import Display
    from penstock.cli.tally import Tally
    from penstock.client import Client, Run
    from penstock.config import Config
    from penstock.dispatcher.loop import Dispatcher
    from penstock.intake.plans import Plan
    from penstock.model import Result, Task, TaskRecord
    from penstock.store.base import Epoch
    from penstock.wiring import Dispatching

app = typer.Typer()

Tell: TypeAlias = "Callable[[Mapping[str, Any]], None]"  # a result record, to who wants it

_REST = 10.0  # of the time between two looks at what runs, looking takes at most a tenth


# ---- run


@app.command(
    "run",
    epilog="\b\nExamples:\n"
    "  penstock run tasks.jsonl\n"
    "  penstock run tasks.yaml --run nightly --out results.jsonl\n"
    "  penstock run tasks.toml --dry-run\n"
    "  penstock run tasks.jsonl --resume\n"
    "  make-tasks | penstock run - --json | jq .value",
)
def run(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Tasks as .jsonl, .yaml, .toml or .json; - is JSONL on stdin."),
    ],
    name: Annotated[str | None, typer.Option("--run", metavar="RUN", help="The name of this run.")] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the result records there when all is done."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a result record per line as tasks end; no summary.")
    ] = False,
    log_format: Annotated[
        str | None,
        typer.Option("--log-format", metavar="text|json", help="Lines on stderr instead of progress."),
    ] = None,
    redo: Annotated[bool, typer.Option("--redo", help=planning.REDO)] = False,
    resume: Annotated[bool, typer.Option("--resume", help=planning.RESUME)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=planning.DRY_RUN)] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no summary, only failures.")
    ] = False,
    dispatcher: DispatcherOption = "async",
    on_stop: OnStopOption = "requeue",
) -> int:
    """Submit a task file and work until all of it has ended.

    Where another process dispatches, it does the work and this command watches. Ctrl-C once finishes what
    runs, twice puts it back or blocks it; the rest stays queued. The same file again is
    a new run; --resume goes on with its newest one. A task whose output is there is skipped. Exit status 1 when
    a task failed, and when no host can run what is left until somebody fixes one.
    """
    dispatching = dispatching_of("run", dispatcher, on_stop)
    config = config_of(context)
    log = None if log_format is None else _log_of(config, log_format, quiet)
    plan = planning.read_plan(config, file, name, redo=redo, resume=resume)
    if dry_run:
        return planning.show(config, file, plan, as_json=as_json)
    return finish(
        _run(
            config,
            plan,
            _go_on(file, name if resume else None),
            Path(out) if out else None,
            log,
            dispatching,
            context.obj.command,
            as_json=as_json,
            quiet=quiet,
        )
    )


def _go_on(file: str, run: str | None) -> str:
    """The command that goes on with what is left; a run that was named need not be the newest of its file."""
    if file == "-":
        return "work --drain"
    return f"run {shlex.quote(file)} --resume" + ("" if run is None else f" --run {run}")


def _log_of(config: Config, log_format: str, quiet: bool) -> Log:
    from penstock.cli.logs import Log
    from penstock.wiring import are_traced

    as_json = one_of("--log-format", log_format, ("text", "json")) == "json"
    return Log(as_json=as_json, quiet=quiet, traced=are_traced(config))


async def _run(
    config: Config,
    plan: Plan,
    go_on: str,
    out: Path | None,
    log: Log | None,
    dispatching: Dispatching,
    command: Callable[[str], str],
    *,
    as_json: bool,
    quiet: bool,
) -> int:
    from penstock.cli.answers import print_beginnings
    from penstock.cli.files import replacing
    from penstock.cli.logs import telling
    from penstock.cli.progress import Logged, choose

    with ExitStack() as stack:
        tells: list[Tell] = []
        if as_json:
            tells.append(render.emit_line)
        if out is not None:  # opened first: what cannot be written is found out before anything is done
            tells.append(_record_writer(stack.enter_context(replacing(out)).write))
        if not quiet:
            planning.tell_there(plan)
            planning.tell_missing(config, plan)
        for record in map(planning.skipped_record, plan.there) if tells else ():
            for write in tells:
                write(record)
        if plan.resumed is not None and plan.resumed.done and tells:
            await _tell_done(config, plan.run, plan.resumed.done, tells)
        if not plan.tasks:
            return 0
        interrupts = stack.enter_context(hearing_interrupts())
        displays: list[Display] = []

        def tell_people(text: str) -> None:
            (displays[0].tell if displays else render.note)(text)

        stack.enter_context(telling(tell_people, of_hosts=False))
        async with opened(config, dispatching=dispatching, listeners=() if log is None else [log]) as client:
            since = time.time()
            run = await planning.begin(plan, client, of_environment(os.environ))
            on_terminal = as_json and sys.stdout.isatty()
            display: Display = (
                choose(run.name, config.plant.hosts, quiet=quiet, records_on_terminal=on_terminal)
                if log is None
                else Logged(log)
            )
            displays.append(display)
            worker = _RunWorker(client, run, plan.tasks, display, tells, since)
            if not await worker.work(interrupts):
                if worker.hosts.stuck is None:
                    await _say_what_is_left(client, run, worker.tally, command(go_on))
                else:
                    cancel = command(f"cancel --run {run.name}")
                    render.note(worker.hosts.way_on(run.name, command(go_on), cancel))
                _say_not_written(run, out, command)
                raise typer.Exit(
                    INTERRUPTED if worker.hosts.stuck is None else 1
                )  # leaves the file as it was
            if not quiet and log is None:
                await _sum_up(client, run, since, stderr=as_json)
                if sys.stdout.isatty() and not as_json:
                    await print_beginnings(client, run.name, command)
    return 1 if any(worker.tally.unwell.values()) else 0


async def _tell_done(config: Config, run: str, done: Sequence[str], tells: Sequence[Tell]) -> None:
    """The results that a run had before it was gone on with."""
    async with opened(config) as client:
        known = {result.task_id: result for result in await client.results(run)}
        for id in done:
            record = (known.get(id) or await client.result(id)).as_record()
            for tell in tells:
                tell(record)


async def _sum_up(client: Client, run: Run, since: float, *, stderr: bool) -> None:
    from penstock.cli.summary import print_summary
    from penstock.errors import UnknownTask

    try:
        summary = await client.summary(run.name, since=since)
    except UnknownTask:  # a key led every task to one of another run
        joined = len(run.task_ids)
    else:
        joined = len(run.task_ids) - summary.tasks
        print_summary(summary, stderr=stderr)
    if joined > 0:
        what = f"{joined} of {render.counted(len(run.task_ids), 'task')}"
        render.note(f"{what} had been submitted before, and {'has' if joined == 1 else 'have'} ended as well")


def _record_writer(write: Callable[[bytes], object]) -> Tell:
    import msgspec

    encode = msgspec.json.Encoder().encode

    def tell(record: Mapping[str, Any]) -> None:
        write(encode(record) + b"\n")

    return tell


class _RunWorker:
    """Follows a run with a display, and hands its results to those who want them."""

    def __init__(
        self,
        client: Client,
        run: Run,
        tasks: Sequence[Task],
        display: Display,
        tells: Sequence[Tell],
        since: float,
    ) -> None:
        from penstock.cli.host_watch import HostWatch
        from penstock.cli.results import ResultLines
        from penstock.cli.tally import Tally

        self._client = client
        self._run = run
        self._display = display
        self._tells = tells
        self._lines = ResultLines(client, run, self._tell)
        by_id = dict(zip(run.task_ids, tasks, strict=True))
        self.tally: Tally = Tally(by_id)
        self.hosts = HostWatch(client, by_id, display.tell, since)

    async def work(self, interrupts: Interrupts) -> bool:
        """Whether all has ended."""
        from penstock.cli.following import follow

        try:
            async with self._shown():
                ended = await follow(
                    self._client, self._run, interrupts, self._on_ended, self._on_stop, self.hosts
                )
            await self._lines.flush()
        except BrokenPipeError:  # whoever read our records has left
            await self._client.stop_dispatching()
            return False
        return ended

    async def _on_ended(self, records: Sequence[TaskRecord]) -> None:
        from penstock.cli.progress import failure_line
        from penstock.model import State

        self.tally.add_ended(records)
        for record in records:
            if record.state is not State.DONE and not self._display.has_told(record):
                self._display.tell(failure_line(record))
        if self._tells:
            await self._lines.add(records)

    def _on_stop(self, text: str) -> None:
        self.tally.draining = True
        self._display.tell(text)

    def _tell(self, result: Result) -> None:
        record = result.as_record()
        for tell in self._tells:
            tell(record)

    @asynccontextmanager
    async def _shown(self) -> AsyncIterator[None]:
        import asyncio

        display = self._display
        display.open()
        try:
            async with asyncio.TaskGroup() as group:
                ticking = group.create_task(self._tick())
                try:
                    yield
                finally:
                    ticking.cancel()
            if display.every_s is not None:
                await self._look()
        except BaseExceptionGroup as error:
            raise error.exceptions[0] from None
        finally:
            display.close()

    async def _tick(self) -> None:
        import asyncio

        every_s = self._display.every_s
        while every_s is not None:
            began = time.monotonic()
            await self._look()
            await asyncio.sleep(max(every_s, _REST * (time.monotonic() - began)))

    async def _look(self) -> None:
        from penstock.model import State
        from penstock.store.base import TaskFilter

        self.tally.set_running(await self._client.tasks(TaskFilter(states=(State.RUNNING,))))
        self.tally.outages = self.hosts.outages
        self._display.update(self.tally, time.time())


async def _say_what_is_left(client: Client, run: Run, tally: Tally, go_on: str) -> None:
    dispatched = (await client.snapshot()).epoch is not None
    how = "another dispatcher goes on with it" if dispatched else f"go on with `{go_on}`"
    render.note(f"interrupted; {render.counted(tally.left, 'task')} of run {run.name} left; {how}")


def _say_not_written(run: Run, out: Path | None, command: Callable[[str], str]) -> None:
    if out is not None:
        render.note(f"{out} was not written; `{command(f'tasks --run {run.name} --json')}` has what ended")


# ---- work


@app.command(
    "work",
    epilog="\b\nExamples:\n"
    "  penstock work\n"
    "  penstock work --drain --quiet\n"
    "  penstock work --log-format json 2>> penstock.log",
)
def work(
    context: typer.Context,
    drain: Annotated[
        bool, typer.Option("--drain", help="Until the queue is empty, so also what a crash left.")
    ] = False,
    log_format: LogFormatOption = "text",
    quiet: QuietOption = False,
    dispatcher: DispatcherOption = "async",
    on_stop: OnStopOption = "requeue",
) -> int:
    """Dispatch: take tasks from the queue and run them, until stopped.

    The folder queues of agents are watched as well, but with --drain.
    Ctrl-C or SIGTERM finishes what runs and starts nothing more; the second time what runs is put back,
    or blocked.
    Exit status 1 when --drain ends and a task had failed, 3 when another dispatcher has the store; on a
    PostgreSQL store it stands by then, and takes over when that one is gone, but with --drain.
    """
    config, dispatching, as_json = read_options(context, log_format, dispatcher, on_stop)
    from penstock.dispatcher import precise

    return precise.run(_work(config, dispatching, drain, as_json, quiet))


def read_options(
    context: typer.Context, log_format: str, dispatcher: str, on_stop: str
) -> tuple[Config, Dispatching, bool]:
    """What `work` makes of its options, whoever asks; wrong ones are refused."""
    as_json = one_of("--log-format", log_format, ("text", "json")) == "json"
    dispatching = dispatching_of("work", dispatcher, on_stop)
    return config_of(context), dispatching, as_json


async def _work(config: Config, dispatching: Dispatching, drain: bool, as_json: bool, quiet: bool) -> int:
    from penstock.cli.logs import Log, telling
    from penstock.client import Client
    from penstock.client.config_watch import ConfigEdits, watching
    from penstock.dispatcher.leadership import Heard, Leadership
    from penstock.intake.agent_queues import AgentQueues
    from penstock.wiring import are_traced, end_forsaken, make_dispatcher, open_store

    store = open_store(config)
    command = "penstock work --drain" if drain else "penstock work"
    log = Log(as_json=as_json, quiet=quiet, traced=are_traced(config))

    def make() -> Dispatcher:
        dispatcher = make_dispatcher(config, store, command, dispatching)
        dispatcher.story.listen(log)
        return dispatcher

    def stands_by(leader: Epoch | None, recorded: str | None) -> None:
        interrupts.tell(stop)
        tell_standby(log, store, config, leader, recorded)

    def term(dispatcher: Dispatcher, begun: Callable[[], None]) -> Awaitable[None]:
        def on_ready() -> None:
            begun()
            ready()

        return dispatcher.run(until_empty=drain, on_ready=on_ready)

    heard = Heard(stands_by, tidy=partial(end_forsaken, config))
    leadership = Leadership(store, make, heard, takes_turns=store.elects and not drain)
    queues = AgentQueues(Client(config, store, dispatch=False, answers=not store.elects), log.warning)

    def stop_all() -> None:
        queues.hold()
        leadership.stop()

    stop = Stops(log, stop_all, lambda: leadership.stands_by, dispatching.on_stop)

    def ready() -> None:
        if not drain:  # which ends when the store has nothing more to do
            queues.begin()
        interrupts.tell(stop)  # what came before has been kept
        slots = sum(host.slots for host in config.plant.hosts)
        hosts = render.counted(len(config.plant.hosts), "host")
        detail = f"dispatching {store.name} to {hosts} with {render.counted(slots, 'slot')}"
        log.line("ready", detail=detail + (", one thread per kind" if dispatching.has_threads else ""))
        warn_of_config(log, config)

    await store.open()
    with hearing_interrupts() as interrupts, telling(log.warning):
        if store.elects:  # which may be away just when this one takes over
            interrupts.tell(stop)
        try:
            async with queues.watched():
                with nullcontext() if drain else watching(ConfigEdits(config), config, log.warning):
                    await leadership.run(term)
            left = await last_word(stop, store)
        finally:
            interrupts.tell(stop.heard.append)  # it is as good as stopped
            await store.close()
    log.line("stopped", detail=left)
    if stop.heard and (drain or stop.heard[0] == signal.SIGINT):
        return INTERRUPTED
    return 1 if drain and log.failures else 0
