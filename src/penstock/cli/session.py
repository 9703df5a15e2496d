"""One command's session: its config, its client, the signals it hears."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import ConfigError, StoreMissing, UsageError

if TYPE_CHECKING:
    import typer

    from penstock.cli.logs import Log
    from penstock.client import Client
    from penstock.config import Config
    from penstock.telemetry.facts import Listener
    from penstock.wiring import Dispatching

T = TypeVar("T")

# A Ctrl-C reaches a command twice where `timeout` or a script that started it passes it on as well.
APART_S = 0.1
INTERRUPTED = 130  # the exit status of a command that was
TASK_HELP = "Its id, or the beginning of it; or the id of its issue or request."


@dataclass(slots=True)
class Settings:
    """The options that every command has."""

    config: Path | None = None
    settings: list[str] = field(default_factory=list)

    def read(self, options: Mapping[str, tuple[str, str]] | None = None) -> Config:
        """`options` are keys that options of a command have set: name of the option -> key and value."""
        from penstock.wiring import read_config

        given = dict(map(pair, self.settings))
        names = {key: name for name, (key, _) in (options or {}).items()}
        try:
            return read_config(self.config, {**given, **dict((options or {}).values())})
        except ConfigError as error:
            raise ConfigError([_by_option(line, names) for line in error.problems]) from None

    def command(self, text: str) -> str:
        """A command line to be typed after this one: it opens the same config."""
        import shlex

        options = [] if self.config is None else ["-c", str(self.config)]
        for one in self.settings:
            options += ["--set", one]
        return " ".join(["penstock", *map(shlex.quote, options), text])


def _by_option(problem: str, names: Mapping[str, str]) -> str:
    """A problem of a setting, blamed on the option that was typed."""
    for key, name in names.items():
        if problem.startswith(f"--set: {key}: "):
            return problem.replace(f"--set: {key}", name, 1)
    return problem


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set: {text!r} must be KEY=VALUE, such as --set hosts.fenrir.slots=4")
    return key.strip(), value.strip()


def whole(option: str, text: str, least: int = 1) -> int:
    """An option's whole number."""
    if not text.isdecimal() or int(text) < least:
        raise UsageError(f"{option}: {text!r} must be a whole number, at least {least}")
    return int(text)


def seconds(option: str, text: str, least: float, most: float) -> float:
    """An option's number of seconds."""
    try:
        given = float(text)
    except ValueError:
        given = -1.0
    if not least <= given <= most:
        raise UsageError(f"{option}: {text!r} must be a number of seconds from {least:g} to {most:g}")
    return given


def one_of(option: str, text: str, choices: Sequence[str]) -> str:
    """An option's word out of a few."""
    if text not in choices:
        from penstock.config.problems import meant

        raise UsageError(f"{option}: there is no {text!r}{meant(text, choices, 'choose')}")
    return text


def config_of(context: typer.Context) -> Config:
    settings: Settings = context.obj
    return settings.read()


@asynccontextmanager
async def opened(
    config: Config,
    *,
    dispatch: bool = False,
    dispatching: Dispatching | None = None,
    listeners: Sequence[Listener] = (),
    makes: bool = False,
    stand_in: bool = True,
) -> AsyncIterator[Client]:
    """With `dispatching`, tasks run in this process, in that way.

    Where there is no store yet, who dispatches makes it, and so does who has something to keep (`makes`). Others
    only look, maybe at a place that was mistyped: nothing is left there. They look at an empty one and are told so;
    what they name that could only be in a store, and all without `stand_in`, is StoreMissing.
    """
    from contextlib import AsyncExitStack

    import penstock.client
    from penstock.wiring import Dispatching

    how = dispatching or Dispatching()
    dispatch = dispatch or dispatching is not None
    opening = penstock.client.open(
        config,
        dispatch=dispatch,
        dispatcher=how.dispatcher,
        on_stop=how.on_stop,
        command=how.command,
        only_run=how.only_run,
        listeners=listeners,
        makes=makes or dispatch,
    )
    async with AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(opening)
        except StoreMissing as missing:
            if not stand_in:
                raise
            client = await stack.enter_async_context(_empty(config, missing))
        if dispatching is not None and not client.dispatches:
            await _tell_who_does(client, dispatching)
        yield client


async def _tell_who_does(client: Client, ours: Dispatching) -> None:
    """What this command wanted of its own dispatcher, and does not get of the one that is there."""
    import logging

    log = logging.getLogger("penstock.cli")
    epoch = (await client.snapshot()).epoch
    if unused := ours.options():
        who = "another process" if epoch is None else f"process {epoch.owner.pid} ({epoch.owner.command})"
        log.warning("%s dispatches; %s has no effect", who, unused)
    if epoch is not None and epoch.owner.only_run not in ("", ours.only_run):
        log.warning("%s; this command goes on when that has ended", epoch.owner.apart)
    if differs := await client.config_difference():
        log.warning("%s", differs.told(client.config))


@asynccontextmanager
async def _empty(config: Config, missing: StoreMissing) -> AsyncIterator[Client]:
    """A store that has nothing, for who looks where there is none."""
    from dataclasses import replace

    import penstock.client
    from penstock.cli import render
    from penstock.errors import UnknownTask

    async with penstock.client.open(replace(config, store=":memory:"), dispatch=False) as client:
        try:
            yield client
        except UnknownTask:
            raise missing from None
    render.note(str(missing))


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end."""
    import asyncio

    return asyncio.run(work)


class Interrupts:
    """Ctrl-C and SIGTERM from `open()` on: kept until somebody hears them, then told as they come.

    Opened before anything is dispatched, so that there is no moment in which one would be taken for the usual
    end of a program.
    """

    def __init__(self, apart_s: float = 0.0) -> None:
        self._apart_s = apart_s
        self._last_at = -math.inf
        self._waiting: list[int] = []
        self._hear: Callable[[int], None] | None = None

    def open(self) -> None:
        import asyncio
        import signal

        self._loop = asyncio.get_running_loop()
        # What was to be ignored when this began is left so: a job in the background is no matter of Ctrl-C.
        usual = (signal.SIGINT, signal.SIGTERM)
        self._numbers = [one for one in usual if signal.getsignal(one) is not signal.SIG_IGN]
        for number in self._numbers:
            self._loop.add_signal_handler(number, self._come, number)

    def tell(self, hear: Callable[[int], None]) -> None:
        """From now on they go there, those that have come already first."""
        self._hear = hear
        waiting, self._waiting = self._waiting, []
        for number in waiting:
            hear(number)

    def close(self) -> None:
        """They end the program again."""
        for number in self._numbers:
            self._loop.remove_signal_handler(number)

    def _come(self, number: int) -> None:
        last_at, self._last_at = self._last_at, self._loop.time()
        if self._last_at - last_at < self._apart_s:
            return
        if self._hear is None:
            self._waiting.append(number)
        else:
            self._hear(number)


@contextmanager
def hearing_interrupts(apart_s: float = 0.0) -> Iterator[Interrupts]:
    """Those that come within `apart_s` of each other are one."""
    interrupts = Interrupts(apart_s)
    interrupts.open()
    try:
        yield interrupts
    finally:
        interrupts.close()


# What a second stop does to what runs, and that it is being done, by `on_stop`.
STOP_WORDS = {
    "requeue": ("puts it back", "putting back what runs"),
    "block": ("blocks it", "blocking what runs"),
}


class Stops:
    """What a command that dispatches makes of interrupts: finish what runs; the second time, end it."""

    def __init__(
        self, log: Log, stop: Callable[[], None], stands_by: Callable[[], bool], on_stop: str = "requeue"
    ) -> None:
        self._log = log
        self._stop = stop
        self._stands_by = stands_by
        self.stood_by = False  # when it was told to stop: it runs nothing, and the queue is another's
        self._does, self._doing = STOP_WORDS[on_stop]
        self.heard: list[int] = []

    def __call__(self, number: int) -> None:
        self.heard.append(number)
        if len(self.heard) == 1:
            self.stood_by = self._stands_by()
        if self.stood_by:
            pass
        elif len(self.heard) == 1:
            self._log.line("stopping", detail=f"finishing what runs; once more {self._does}")
        elif len(self.heard) == 2:
            self._log.line("stopping", detail=self._doing)
        self._stop()
