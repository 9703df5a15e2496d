"""What is wrong with a file, gathered until everything has been looked at, then told at once.

A problem is one line: the place, the key, what is wrong, what to do. Values that could be a secret are
never repeated, only what kind of thing they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.config.wording import kind_alone as kind_alone
from penstock.config.wording import kind_of as kind_of
from penstock.config.wording import meant as meant
from penstock.config.wording import misfit as misfit
from penstock.config.wording import nearest as nearest
from penstock.config.wording import quoted as quoted
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.config.places import KeyPath, Lines

MAX_TOLD = 200


class Problem(NamedTuple):
    path: KeyPath
    message: str


class WrongOptions(ConfigError):
    """What is wrong with the options of a host, each with the path of its key."""

    def __init__(self, found: Sequence[Problem]) -> None:
        self.found = tuple(found)
        super().__init__([f"{dotted(path)}: {message}" for path, message in found])


class Near(NamedTuple):
    """A wrong word and those it could have been; searched only for problems that are told."""

    word: object
    choices: Collection[str]
    what: str = "known here"


def dotted(path: KeyPath) -> str:
    """A path as the file would write it, on one line whatever the keys hold."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            name = part if _is_bare(part) else quoted(part)
            text += f".{name}" if text else name
    return text


def _is_bare(key: object) -> bool:
    return isinstance(key, str) and key.isascii() and key.replace("_", "").replace("-", "").isalnum()


class Problems:
    """Gathers problems, the first of them in full and the rest as a number."""

    def __init__(self) -> None:
        self._found: list[Problem] = []
        self._untold = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, path: KeyPath, message: str, near: Near | None = None) -> None:
        if len(self._found) >= MAX_TOLD:
            self._untold += 1
            return
        self._found.append(Problem(path, message if near is None else message + meant(*near)))

    def told(
        self, file: str, lines: Callable[[], Lines], settings: Collection[KeyPath] = ()
    ) -> tuple[str, ...]:
        """One line each, in the order of the file; those that a setting brought in name the setting."""
        from penstock.config.places import place

        known = lines()
        told: list[tuple[int, str]] = []
        for path, message in self._found:
            of_setting = [given for given in settings if path[: len(given)] == given]
            line = None if of_setting else place(known, path)
            where = "--set" if of_setting else file if line is None else f"{file}:{line}"
            key = dotted(path)
            told.append((line or 0, f"{where}: {key}: {message}" if key else f"{where}: {message}"))
        told.sort(key=lambda item: item[0])
        if self._untold:
            told.append((0, f"{file}: and {self._untold} more problems"))
        return tuple(text for _, text in told)


def file_shown(path: Path | None) -> str:
    """A file's name as its reader would say it: short when it lies below the current folder."""
    if path is None:
        return "config"
    try:
        inside = os.path.relpath(path)
    except (OSError, ValueError):  # the current folder is gone
        return str(path)
    return str(path) if inside.startswith("..") else inside
