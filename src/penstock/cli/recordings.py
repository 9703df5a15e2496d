"""What a command that looks back means by RUN: a run of the store, by name or beginning or as `last`, or a file.

A file is an export of ours or a start/end log of any system, and needs no config; where there is one, it tells
of the hosts that the log names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.render import note
from penstock.cli.session import Settings, opened, whole
from penstock.errors import ConfigError, StoreMissing, UnknownTask, UsageError

if TYPE_CHECKING:
    from penstock.diagnosis.recording import Recording
    from penstock.intake.logs.hosts import Source
    from penstock.model import Plant

STDIN = "-"

# What such commands take.
RunOrFile = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Its name, the beginning of one, or `last`; or a file: an export, or a log of starts and ends; "
        "- is stdin.",
    ),
]
Maps = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN",
        help="Of a log: which column is what, like started=launch_ts. May be repeated.",
    ),
]
HostSlots = Annotated[
    list[str] | None,
    typer.Option(
        "--slots",
        metavar="HOST=N",
        help="Of a log: how many tasks a host of it may run at once. May be repeated.",
    ),
]
# Where the help of such a command ends: options that stand in no list of its own.
EVERY_COMMAND = "Of every command: --config FILE names a config, --set KEY=VALUE sets one key of it."
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


async def recording_for(
    settings: Settings, run: str, *, maps: Sequence[str] | None = None, slots: Sequence[str] | None = None
) -> Recording:
    """The run as it was, or has been so far. `maps` and `slots` are for logs: what their columns and hosts are."""
    told = dict(map(_slots, slots or ()))
    if is_file(run):
        from penstock.intake.logs.file import read_log

        plant, source = _plant(settings)
        log = read_log(run, maps=maps or (), plant=plant, slots=told, source=source)
        for words in log.notes:
            note(words)
        return log.recording
    if maps or slots:
        raise UsageError(f"there is no file {run!r}; --map and --slots are for files that hold a log")
    try:
        async with opened(settings.read()) as client:
            return await client.recording(await client.run_named(run))
    except (ConfigError, StoreMissing, UnknownTask):
        if _looks_like_file(run):
            raise UsageError(f"there is no file {run}; nor a run of that name") from None
        raise


def _slots(text: str) -> tuple[str, int]:
    host, equals, count = text.rpartition("=")
    if not equals or not host.strip():
        raise UsageError(f"--slots: {text!r} must be HOST=N, such as --slots gpu1=4")
    return host.strip(), whole(f"--slots {host.strip()}", count.strip())


def is_file(run: str) -> bool:
    """Whether a file is meant. A run of the same name is had by its export, or from another folder."""
    return run == STDIN or Path(run).is_file()


def _looks_like_file(run: str) -> bool:
    """Whether its writer meant one: it has a folder in it, or ends as files do."""
    return "/" in run or "\\" in run or Path(run).suffix[1:].isalpha()


def _plant(settings: Settings) -> tuple[Plant | None, Source]:
    """That of the config, if there is one."""
    from penstock.config.files import find
    from penstock.config.problems import file_shown
    from penstock.intake.logs.hosts import Source

    is_named = settings.config is not None or bool(settings.settings)
    if not is_named and find(Path.cwd()) is None:
        return None, Source()
    config = settings.read()
    return config.plant, Source(file_shown(config.path), is_named)
