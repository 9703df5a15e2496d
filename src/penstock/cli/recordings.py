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
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.diagnosis.recording import Recording
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
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


async def recording_for(
    settings: Settings, run: str, *, maps: Sequence[str] | None = None, slots: Sequence[str] | None = None
) -> Recording:
    """The run as it was, or has been so far. `maps` and `slots` are for logs: what their columns and hosts are."""
    told = dict(map(_slots, slots or ()))
    if is_file(run):
        from penstock.intake.logs.file import read_log

        log = read_log(run, maps=maps or (), plant=_plant(settings), slots=told)
        for words in log.notes:
            note(words)
        return log.recording
    if maps or slots:
        raise UsageError(f"there is no file {run!r}; --map and --slots are for files that hold a log")
    async with opened(settings.read()) as client:
        return await client.recording(await client.run_named(run))


def _slots(text: str) -> tuple[str, int]:
    host, equals, count = text.rpartition("=")
    if not equals or not host.strip():
        raise UsageError(f"--slots: {text!r} must be HOST=N, such as --slots gpu1=4")
    return host.strip(), whole(f"--slots {host.strip()}", count.strip())


def is_file(run: str) -> bool:
    """Whether a file is meant. A run of the same name is had by its export, or from another folder."""
    return run == STDIN or Path(run).is_file()


def _plant(settings: Settings) -> Plant | None:
    from penstock.config.files import find

    named = settings.config is not None or settings.settings or find(Path.cwd()) is not None
    return settings.read().plant if named else None
