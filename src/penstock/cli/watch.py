"""`watch`: a folder as a queue, from the command line: what it is told, what a person sees, how it ends."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import render
from penstock.cli.dispatching import DispatcherOption, OnStopOption, dispatching_of
from penstock.cli.session import (
    INTERRUPTED,
    STOP_WORDS,
    Interrupts,
    config_of,
    finish,
    hearing_interrupts,
    opened,
    seconds,
)
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.config import Config
    from penstock.intake.folder.loop import FolderQueue
    from penstock.intake.folder.taking import WatchOptions
    from penstock.intake.folder.telling import Counts
    from penstock.wiring import Dispatching

app = typer.Typer()

_LEAST_INTERVAL_S, _MOST_INTERVAL_S = 0.05, 86_400.0

_ERROR_WIDTH = 200
_LINE_EVERY_S = 0.1  # on a terminal
_LINES_EVERY_S = 1.0  # elsewhere


@app.command(
    "watch",
    epilog="\b\nExamples:\n"
    "  penstock watch inbox\n"
    "  penstock watch .tasks --agent reports\n"
    "  penstock watch inbox --once --json | jq .value",
)
def watch(
    context: typer.Context,
    folder: Annotated[
        str,
        typer.Argument(metavar="DIR", help="Holds requests/ or tasks/, itself or below .tasks/ or queue/."),
    ],
    once: Annotated[bool, typer.Option("--once", help="Answer what is there, then end.")] = False,
    interval: Annotated[
        str,
        typer.Option("--interval", metavar="SECONDS", help="Look this often where no change is told."),
    ] = "2",
    lane: Annotated[str | None, typer.Option("--lane", help="Of requests that name none.")] = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="COMMAND=KIND",
            help="The kind of a command, else the command itself; * is every other. May be repeated.",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME", help="All requests are commands of this container agent."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each answer, one per line.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only what went wrong.")] = False,
    dispatcher: DispatcherOption = "async",
    on_stop: OnStopOption = "requeue",
) -> int:
    """Answer the requests in a folder: requests/ID gives responses/ID or errors/ID; urgent/ID cancels.

    Where another process dispatches, it does the work. Ctrl-C or SIGTERM takes in nothing more and finishes
    what runs, the second time it is put back or blocked; requests without an answer are left to the next one.
    Exit status 1 when --once gave an error.
    """
    config, options, dispatching = read_options(
        context, folder, interval, lane, kinds, dispatcher, on_stop, agent
    )
    view = _View(as_json=as_json, quiet=quiet)
    return finish(_watch(config, Path(folder), options, dispatching, view, once=once))


def read_options(
    context: typer.Context,
    folder: str,
    interval: str,
    lane: str | None,
    kinds: Sequence[str] | None,
    dispatcher: str,
    on_stop: str,
    agent: str | None = None,
) -> tuple[Config, WatchOptions, Dispatching]:
    """What `watch` makes of its options, whoever asks; wrong ones are refused."""
    from penstock.intake.folder.layout import find_layout
    from penstock.intake.folder.taking import WatchOptions

    dispatching = dispatching_of("watch", dispatcher, on_stop)
    config = config_of(context)
    options = WatchOptions(
        run=time.strftime("watch-%Y%m%d-%H%M%S"),
        lane=_lane(config, lane),
        kinds=_kinds(kinds or ()),
        agent_kind=_agent_kind(config, agent, kinds),
        interval_s=seconds("--interval", interval, _LEAST_INTERVAL_S, _MOST_INTERVAL_S),
    )
    find_layout(Path(folder))
    return config, options, dispatching


def _lane(config: Config, lane: str | None) -> str:
    from penstock.config.problems import meant
    from penstock.model import DEFAULT_LANE

    known = [one.name for one in config.plant.lanes]
    if lane is not None and lane not in known:
        raise UsageError(f"--lane: there is no lane {lane!r}{meant(lane, known, 'lanes')}")
    return lane or DEFAULT_LANE


def _agent_kind(config: Config, agent: str | None, kinds: Sequence[str] | None) -> str | None:
    from penstock.config.agent_hosts import agents_kind
    from penstock.config.problems import meant

    if agent is None:
        return None
    if agent not in config.agents:
        raise UsageError(f"--agent: there is no agent {agent!r}{meant(agent, config.agents, 'agents')}")
    if kinds:
        raise UsageError("--kind: with --agent every command is of the agent's kind; leave one of them out")
    return agents_kind(agent, config.plant.hosts)


def _kinds(pairs: Sequence[str]) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for text in pairs:
        command, equals, kind = text.partition("=")
        if not (command and equals and kind):
            raise UsageError(f"--kind: {text!r} must be COMMAND=KIND, such as --kind report=research")
        kinds[command] = kind
    return kinds


async def _watch(
    config: Config, folder: Path, options: WatchOptions, dispatching: Dispatching, view: _View, *, once: bool
) -> int:
    from penstock.cli.logs import telling
    from penstock.intake.folder.loop import FolderQueue

    with ExitStack() as stack:
        interrupts = stack.enter_context(hearing_interrupts())
        stack.callback(view.close)
        stack.enter_context(telling(view.note))
        async with opened(config, dispatching=dispatching) as client:
            queue = FolderQueue(client, folder, options, view)
            view.begin(f"{queue.layout.base / queue.layout.requests}")
            stopper = _Stopper(client, queue, view)
            await stopper.watch(interrupts, once)
        view.end(queue.counts)
    if stopper.heard and (once or stopper.heard[0] == signal.SIGINT):
        return INTERRUPTED
    return 1 if once and queue.counts.errors else 0


class _Stopper:
    """Runs the queue; the first signal lets what runs finish, the second puts it back."""

    def __init__(self, client: Client, queue: FolderQueue, view: _View) -> None:
        self._client = client
        self._queue = queue
        self._view = view
        self.heard: list[int] = []

    async def watch(self, interrupts: Interrupts, once: bool) -> None:
        try:
            async with asyncio.TaskGroup() as self._group:
                interrupts.tell(self._interrupt)
                try:
                    await self._queue.run(once=once)
                except BrokenPipeError:  # whoever read our answers has left
                    self.heard.append(signal.SIGINT)
                finally:
                    interrupts.tell(self.heard.append)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def _interrupt(self, number: int) -> None:
        self.heard.append(number)
        if len(self.heard) == 1:
            self._queue.hold()
            stopping = self._group.create_task(self._stop(put_back=False))
            if self._client.dispatches:  # one may have begun that is not counted yet
                does = STOP_WORDS[self._client.on_stop][0]
                told = f"finishing what runs, taking in nothing more; Ctrl-C again {does}"
                # Said when the dispatcher has been told: nothing begins from then on.
                stopping.get_loop().call_soon(self._view.note, told)
        elif len(self.heard) == 2:
            self._view.note(STOP_WORDS[self._client.on_stop][1])
            self._group.create_task(self._stop(put_back=True))

    async def _stop(self, *, put_back: bool) -> None:
        await self._client.stop_dispatching(put_back=put_back)
        self._queue.stop()


class _View:
    """What a person sees on stderr: a line that is written over, or a line a second where there is no terminal."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self._as_json = as_json
        self._quiet = quiet
        self._moves = sys.stderr.isatty() and not (as_json and sys.stdout.isatty())
        self._shown = ""
        self._next = 0.0

    def begin(self, place: str) -> None:
        if not self._quiet:
            render.note(f"watching {place}")

    # ---- as the queue's teller

    def answered(self, body: Mapping[str, Any]) -> None:
        if body["state"] != "done":
            self.note(
                f"{body['state']} {render.one_line(body['id'])}: {render.one_line(body['error'], _ERROR_WIDTH)}"
            )
        if self._as_json:
            self._wipe()
            render.emit_line(body)

    def note(self, text: str) -> None:
        self._wipe()
        render.note(render.one_line(text))

    def trouble(self, text: str | None) -> None:
        self.note("it works again" if text is None else f"{text}; trying again")

    def counted(self, counts: Counts) -> None:
        now = time.monotonic()
        if self._quiet or (now < self._next and counts.under_way):
            return
        self._next = now + (_LINE_EVERY_S if self._moves else _LINES_EVERY_S)
        self._show(counts)

    # ----

    def end(self, counts: Counts) -> None:
        self._wipe()
        if self._quiet:
            return
        left = render.counted(counts.under_way, "request")
        render.note(
            f"stopped; {_answered(counts)}" + (f"; {left} left for the next time" if counts.under_way else "")
        )

    def close(self) -> None:
        self._wipe()

    def _show(self, counts: Counts) -> None:
        text = _told(counts)
        if counts.unfinished:
            text += f", {render.counted(counts.unfinished, 'file')} not whole yet"
        if text == self._shown:
            return
        self._shown = text
        if self._moves:
            sys.stderr.write(f"\r\x1b[K{text}")
        elif counts.answered or counts.under_way or counts.unfinished:
            sys.stderr.write(f"penstock: {text}\n")
        sys.stderr.flush()

    def _wipe(self) -> None:
        if self._moves and self._shown:
            self._shown = ""
            self._next = 0.0  # it is written again at once
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _told(counts: Counts) -> str:
    return f"{_answered(counts)}, {counts.under_way} waiting or running"


def _answered(counts: Counts) -> str:
    errors = f", {render.counted(counts.errors, 'error')} among them" if counts.errors else ""
    return f"{counts.answered} answered{errors}"
