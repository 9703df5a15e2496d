"""A task's value as a file: there whole or not at all, and nowhere but inside the folder for outputs.

It is saved before the attempt is reported, so a task that is done has its file. One that could not be saved ends
as failed and keeps its value: what it took to make is not thrown away.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from penstock.config.outputs import is_inside, saved_at
from penstock.model import Outcome, Verdict

TEXT = "text"  # the field of a table that is saved alone
_MODE = 0o644  # what comes from `mkstemp` is for its owner alone; results are for reading


class Outputs:
    def __init__(self, root: str, own_files: Collection[str] = ()) -> None:
        self._root = root
        self._own_files = own_files

    def kept(self, output: str, outcome: Outcome) -> Outcome:
        """The outcome when its value has been saved, or the failure to do so."""
        try:
            self._save(output, as_bytes(outcome.value))
        except OSError as error:
            what = error.strerror or str(error)
            return replace(
                outcome,
                verdict=Verdict.PERMANENT,
                error=f"it was done, but {output!r} could not be written: {what}; its value is kept, see "
                "`penstock show`",
            )
        return outcome

    def _save(self, output: str, content: bytes) -> None:
        path = saved_at(output, self._root)
        root = os.path.realpath(self._root)
        folder = os.path.realpath(os.path.dirname(path))  # where links lead, also before the folder is made
        if folder != root and not is_inside(folder, root):
            raise OSError(f"it is outside of {self._root}")
        target = os.path.join(folder, os.path.basename(path))
        if path in self._own_files or target in self._own_files:
            raise OSError("it is a file of Penstock's own")
        if os.path.isdir(target):
            raise OSError("there is a folder of that name")
        os.makedirs(folder, exist_ok=True)
        _replace(folder, target, content)


def _replace(folder: str, target: str, content: bytes) -> None:
    handle, beside = tempfile.mkstemp(prefix=".penstock-", suffix=".part", dir=folder)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), _MODE)
        os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    _sync(folder)


def _sync(folder: str) -> None:
    """The name too survives a power loss."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def as_bytes(value: Any) -> bytes:
    """Text as it is; of a table with a `text`, that; anything else as JSON people can read."""
    text = value.get(TEXT) if isinstance(value, dict) else value
    if isinstance(text, str):
        return text.encode("utf-8", "surrogatepass") + (b"" if text.endswith("\n") else b"\n")
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
