"""What a command that looks back means by RUN: a run of the store, by name or beginning or as `last`, or a file.

A file is an export of ours or a start/end log of any system, and needs no config; where there is one, it tells
of the hosts that the log names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.render import note
from penstock.cli.session import Settings, opened
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.diagnosis.recording import Recording
    from penstock.model import Plant

STDIN = "-"


async def recording_for(
    settings: Settings, run: str, *, maps: Sequence[str] = (), slots: Mapping[str, int] | None = None
) -> Recording:
    """The run as it was, or has been so far. `maps` and `slots` are for logs: what their columns and hosts are."""
    if is_file(run):
        from penstock.intake.logs.file import read_log

        log = read_log(run, maps=maps, plant=_plant(settings), slots=slots)
        for words in log.notes:
            note(words)
        return log.recording
    if maps or slots:
        raise UsageError(f"there is no file {run!r}; --map and --slots are for files that hold a log")
    async with opened(settings.read()) as client:
        return await client.recording(await client.run_named(run))


def is_file(run: str) -> bool:
    """Whether a file is meant. A run of the same name is had by its export, or from another folder."""
    return run == STDIN or Path(run).is_file()


def _plant(settings: Settings) -> Plant | None:
    from penstock.config.files import find

    named = settings.config is not None or settings.settings or find(Path.cwd()) is not None
    return settings.read().plant if named else None
