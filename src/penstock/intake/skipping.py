"""What is left to do of a task file: a task whose output is there is done, whoever made it.

An output with a uid is there whatever its uid is: another tool has its own ones.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence

from penstock.config import TaskChecker
from penstock.config.outputs import saved_at
from penstock.config.problems import Problem, quoted
from penstock.intake.matrix import Copy
from penstock.intake.templates import HOLE, IS_UID, UID_LENGTH
from penstock.model import Task


def outputs_there(
    tasks: Sequence[Task], patterns: Mapping[str, str], root: str, joined: Collection[str]
) -> set[int]:
    """The numbers of the tasks whose output is there; one that is being made again (`joined`) is not there yet."""
    files = OutputFiles(root)
    return {
        number
        for number, task in enumerate(tasks)
        if task.output is not None
        and task.output not in joined
        and files.has(patterns.get(task.output, task.output))
    }


class OutputFiles:
    """The files below the folder for outputs. A folder is listed once."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._listed: dict[str, list[str]] = {}

    def has(self, pattern: str) -> bool:
        """Whether there is a file of this path, with anything that could be a uid in its holes."""
        path = saved_at(pattern, self._root)
        if HOLE not in path:
            return os.path.isfile(path)
        folders = [os.sep]
        for part in path.split(os.sep)[1:]:
            folders = [
                os.path.join(folder, name)
                for folder in folders
                for name in ([part] if HOLE not in part else self._matching(folder, part))
            ]
        return any(os.path.isfile(one) for one in folders)

    def _matching(self, folder: str, part: str) -> list[str]:
        names = self._names(folder)
        begin = part[: part.index(HOLE)]
        found = []
        for place in range(bisect_left(names, begin), len(names)):
            name = names[place]
            if not name.startswith(begin):
                break
            if _fits(name, part):
                found.append(name)
        return found

    def _names(self, folder: str) -> list[str]:
        if folder not in self._listed:
            try:
                self._listed[folder] = sorted(os.listdir(folder))
            except OSError:  # not there, or no folder: nothing is in it
                self._listed[folder] = []
        return self._listed[folder]


def _fits(name: str, part: str) -> bool:
    if len(name) != len(part):
        return False
    place = 0
    while place < len(part):
        if part.startswith(HOLE, place):
            if not IS_UID.fullmatch(name, place, place + UID_LENGTH):
                return False
            place += UID_LENGTH
        elif name[place] == part[place]:
            place += 1
        else:
            return False
    return True


def without_outputs(made: list[Copy], checker: TaskChecker) -> tuple[list[Copy], list[Problem]]:
    """The copies without those whose input is what another of them makes: a report is no input of reports.

    One that would take the place of its own input is a mistake.
    """
    makers: dict[str, set[str]] = {}  # what outputs are known by -> the inputs they are made of
    for copy in made:
        known_by = copy.pattern or copy.task.output
        path = None if known_by is None else checker.saved_at(known_by)
        if path is not None and copy.input is not None:
            makers.setdefault(path, set()).add(copy.input)
    with_holes = any(HOLE in path for path in makers)
    inputs = {copy.input for copy in made if copy.input is not None}
    makers_of = {path: _makers_of(path, makers, with_holes) for path in inputs}
    kept = []
    for copy in made:
        of = set() if copy.input is None else makers_of[copy.input]
        if copy.input in of:
            what = f"{quoted(copy.task.output)} would take the place of its own input; name another file"
            return [], [Problem(("output",), what)]
        if not of:
            kept.append(copy)
    if not kept:
        return [], [
            Problem(("matrix", "input"), "matches nothing but outputs of this entry; name its inputs")
        ]
    return kept, []


def _makers_of(path: str, makers: Mapping[str, set[str]], with_holes: bool) -> set[str]:
    found = set(makers.get(path, ()))
    if with_holes:
        for place in range(len(path) - UID_LENGTH + 1):
            if IS_UID.fullmatch(path, place, place + UID_LENGTH):
                found |= makers.get(path[:place] + HOLE + path[place + UID_LENGTH :], set())
    return found
