"""The files that `matrix.input` means: those of a folder or of a glob, in order, and nothing outside of it.

Hidden and temporary files are no inputs, and folders that are links are not entered. A file that is a link counts
where it leads to a file of the same folder; one that leads out of it is told, not read and not passed over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

from penstock.config.outputs import is_inside
from penstock.config.problems import quoted

MAX_INPUTS = 100_000
MAX_LOOKED_AT = 1_000_000  # files and folders
MAX_TEXT_BYTES = 8 * 1024**2
_MAX_PATTERN = 1024
_ANY_DEPTH = "**"
_MAGIC = re.compile(r"[*?\[]")
_TEMPORARY_ENDS = ("~", ".tmp", ".part", ".swp", ".crdownload")
_TEMPORARY_STARTS = (".", "~$", "#")


class NoInputs(Exception):
    """Why there are none, in a line."""


@dataclass(frozen=True, slots=True)
class Input:
    """A file, and where it lies below the folder that the pattern begins with."""

    path: str  # absolute
    inside: str  # relative to that folder, with "/"

    @property
    def name(self) -> str:
        return self.inside.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0] or self.name

    @property
    def dir(self) -> str:
        return self.inside.rpartition("/")[0] or "."

    def text(self) -> str:
        """What is in it; NoInputs when that is no text."""
        try:
            with open(self.path, "rb") as file:
                data = file.read(MAX_TEXT_BYTES + 1)
        except OSError as error:
            raise NoInputs(f"{quoted(self.inside)} cannot be read: {error.strerror or error}") from None
        if len(data) > MAX_TEXT_BYTES:
            size = f"{MAX_TEXT_BYTES // 1024**2} MiB"
            raise NoInputs(f"{quoted(self.inside)} is over {size}; let the host read it: say {{input}}")
        try:
            return data.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            raise NoInputs(f"{quoted(self.inside)} is not UTF-8 text; save it as UTF-8") from None


def find_inputs(pattern: str, folder: Path) -> list[Input]:
    """The files of a folder, of a glob, or the one that is named; NoInputs tells why there is none."""
    if not pattern or len(pattern) > _MAX_PATTERN or not pattern.isprintable():
        raise NoInputs("must be a folder or a glob on one line, such as 'inputs/**/*.md'")
    here = folder.absolute()
    named = os.path.normpath(os.path.join(here, pattern))
    if os.path.isdir(named):
        root, parts = named, [_ANY_DEPTH]
    elif os.path.lexists(named):
        return _checked([os.path.basename(named)], os.path.dirname(named))
    else:
        fixed, parts = _split(pattern)
        root = os.path.normpath(os.path.join(here, fixed))
        if not parts:
            raise NoInputs(f"there is no file or folder {quoted(pattern)} in {here}")
        if not os.path.isdir(root):
            raise NoInputs(f"there is no folder {quoted(fixed)} in {here}")
    found = sorted(_Walk(root, parts).files(), key=lambda inside: inside.split("/"))
    if not found:
        raise NoInputs(f"{quoted(pattern)} matches no file in {here}")
    return _checked(found, root)


def _split(pattern: str) -> tuple[str, list[str]]:
    """The folder that everything lies in, and the parts of the glob below it."""
    parts = pattern.split("/")
    first = next((place for place, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    fixed = "/".join(parts[:first])
    if pattern.startswith("/") and not fixed:
        fixed = "/"
    return fixed or ".", [part for part in parts[first:] if part not in ("", ".")]


def _checked(found: list[str], root: str) -> list[Input]:
    inputs = []
    real_root = os.path.realpath(root)
    for inside in found:
        try:
            inside.encode()
        except UnicodeEncodeError:
            raise NoInputs(f"the file name {inside!r} is not UTF-8; rename it") from None
        path = os.path.join(root, inside)
        if os.path.islink(path) and not is_inside(os.path.realpath(path), real_root):
            raise NoInputs(
                f"{quoted(inside)} is a link that leads out of {root}; copy the file, or remove it"
            )
        if os.path.isfile(path):
            inputs.append(Input(path, inside))
        elif os.path.islink(path):
            raise NoInputs(f"{quoted(inside)} is a link to nothing; remove it, or correct it")
    if not inputs:
        raise NoInputs(f"{quoted(found[0])} is no file")
    return inputs


def _is_left_out(name: str) -> bool:
    return name.startswith(_TEMPORARY_STARTS) or name.endswith(_TEMPORARY_ENDS)


class _Walk:
    """What matches the parts of a glob; each folder is read once, whatever the pattern."""

    def __init__(self, root: str, parts: list[str]) -> None:
        if ".." in parts:
            raise NoInputs("'..' cannot stand behind a '*'; write it at the beginning")
        self._root = root
        self._parts = parts
        self._matchers = [None if part == _ANY_DEPTH else re.compile(translate(part)) for part in parts]
        self._looked_at = 0

    def files(self) -> Iterator[str]:
        count = 0
        left = [("", self._with_skipped({0}))]
        while left:
            inside, places = left.pop()
            for entry in self._entries(inside):
                name = f"{inside}/{entry.name}" if inside else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if deeper := self._beyond(entry.name, places):
                        left.append((name, deeper))
                elif not entry.is_dir() and self._is_end(entry.name, places):
                    count += 1
                    if count > MAX_INPUTS:
                        raise NoInputs(f"matches over {MAX_INPUTS} files; name fewer")
                    yield name

    def _entries(self, inside: str) -> list[os.DirEntry[str]]:
        folder = os.path.join(self._root, inside)
        try:
            with os.scandir(folder) as entries:
                found = [entry for entry in entries if not _is_left_out(entry.name)]
        except OSError as error:
            raise NoInputs(f"the folder {folder} cannot be read: {error.strerror or error}") from None
        self._looked_at += len(found)
        if self._looked_at > MAX_LOOKED_AT:
            raise NoInputs(f"looks through over {MAX_LOOKED_AT} files; name a smaller folder")
        return found

    def _with_skipped(self, places: set[int]) -> set[int]:
        """Any number of folders may be none of them."""
        for place in range(len(self._parts)):
            if place in places and self._matchers[place] is None:
                places.add(place + 1)
        return places

    def _beyond(self, name: str, places: set[int]) -> set[int]:
        """Which parts may come next inside a folder of this name."""
        beyond = set()
        for place in places:
            if place < len(self._parts):
                matcher = self._matchers[place]
                if matcher is None:
                    beyond.add(place)
                elif matcher.match(name):
                    beyond.add(place + 1)
        beyond.discard(len(self._parts))
        return self._with_skipped(beyond)

    def _is_end(self, name: str, places: set[int]) -> bool:
        """Whether a file of this name is matched by the last part."""
        last = len(self._parts) - 1
        matcher = self._matchers[last]
        return last in places and (matcher is None or matcher.match(name) is not None)
