"""Which paths a result may take: inside the folder for outputs, and never the place of a file that keeps us going.

Off limits are Penstock's own files, and the folders of Git, of Beads and of a folder queue at any depth. It is
asked before a task is accepted and, with each folder open, once more when its result is saved.
"""

from __future__ import annotations

import os

from penstock.config.document import Config
from penstock.config.own_files import OwnFiles
from penstock.config.problems import kind_of, quoted

MAX_PATH = 1024
MAX_NAME_BYTES = 255  # what file systems take
OFF_LIMITS = frozenset({".git", ".beads", ".penstock"})  # also where file systems tell no case apart


class OutputRules:
    """Where results may be saved: below `root`, which `key` of the config sets."""

    def __init__(self, config: Config, root: str | None = None, key: str = "output_root") -> None:
        self.root = config.outputs if root is None else os.path.abspath(root)
        self._key = key
        self._own = OwnFiles(config)
        self._good_folder = self.root  # the last one without a link: most tasks share theirs

    def problem(self, output: str) -> str | None:
        """Why a path, good as such, cannot be an output."""
        parts = self.parts(output)
        if parts is None:
            return f"{quoted(output)} is outside of {self.root}; write a path inside it, or set `{self._key}`"
        folder = self.root
        for part in parts:
            if (what := self.why_not(folder, part)) is not None:
                return f"{quoted(output)} {what}; choose another"
            folder = os.path.join(folder, part)
        if (link := self._link(parts)) is not None:
            return f"{quoted(output)} goes through {quoted(link)}, which is a link; name the folder itself"
        return None

    def parts(self, output: str) -> tuple[str, ...] | None:
        """The path below the root, name by name; None when it is not below it."""
        path = saved_at(output, self.root)
        if not is_inside(path, self.root):
            return None
        return tuple(path[len(self.root) :].strip(os.sep).split(os.sep))

    def why_not(self, folder: int | str, name: str) -> str | None:
        """What keeps a name in a folder, open or by its path, from being part of an output."""
        told = name.casefold()
        if told in OFF_LIMITS:
            return f"has {quoted(name)} in it, which is no place for results"
        return "is a file of Penstock's own" if self._own.has(folder, name) else None

    def _link(self, parts: tuple[str, ...]) -> str | None:
        """The first folder on the way that is a link: none is followed when the result is saved."""
        folder = os.path.join(self.root, *parts[:-1])
        if folder == self._good_folder:
            return None
        here = self.root
        for part in parts[:-1]:
            here = os.path.join(here, part)
            if os.path.islink(here):
                return part
        self._good_folder = folder
        return None


def output_problem(output: object, rules: OutputRules | None = None) -> str | None:
    """What is wrong with a task's `output`; without rules, only what holds under any config."""
    if not isinstance(output, str) or not output:
        return f"must be the path of a file, not {kind_of(output)}"
    if len(output) > MAX_PATH:
        return f"is {len(output)} characters long; at most {MAX_PATH}"
    if not output.isprintable():
        return "must be one line without control characters"
    name = os.path.basename(output)
    if name in ("", ".", ".."):
        return f"{quoted(output)} is a folder; name a file in it"
    try:
        longest = max(len(part.encode()) for part in output.split("/"))
    except UnicodeEncodeError:
        return "is not UTF-8 text"
    if longest > MAX_NAME_BYTES:
        return f"has a name of {longest} bytes; at most {MAX_NAME_BYTES}"
    return None if rules is None else rules.problem(output)


def why_none_for(whom: str, config: Config) -> str | None:
    """Others than the config's owner name outputs only in a folder that is meant for them, not in the project."""
    if config.output_root is not None:
        return None
    return f"files are written for {whom} only where `output_root` of the config says into which folder"


def saved_at(output: str, root: str) -> str:
    """The path of an output, absolute and without dots."""
    return os.path.normpath(os.path.join(root, output))


def is_inside(path: str, root: str) -> bool:
    """Both absolute and without dots. The root itself is not inside."""
    return path.startswith(root if root.endswith(os.sep) else root + os.sep)
