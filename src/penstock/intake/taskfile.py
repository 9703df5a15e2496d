"""A task file → tasks: JSONL, YAML, TOML or JSON; all of its tasks, or one error that tells what is wrong.

JSONL is read line by line and may be huge; the others are read whole. A plain JSONL line goes straight
into its task; a line that is not plain takes the way of all other formats (`entries.read_entry`), which
also says what is wrong with it.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import replace
from os.path import dirname, normpath
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import msgspec

from penstock.clock import SystemClock
from penstock.config import TaskChecker
from penstock.config.keys import ID_RULE
from penstock.config.places import KeyPath, Lines, place
from penstock.config.problems import Problem, dotted, file_shown, kind_of, meant, quoted
from penstock.config.tasks import MAX_AFTER, find_circle
from penstock.errors import TaskError
from penstock.intake import fpf
from penstock.intake.documents import Document, json_error, no_collecting, opened, read_document
from penstock.intake.entries import FIELDS, SINGLE_FIELDS, Setting, read_copies
from penstock.intake.skipping import without_outputs
from penstock.model import DEFAULT_LANE, DEFAULT_PRIORITY, OnCrash, Task, id_in_run, name_in_run

MAX_PROBLEMS = 20
MAX_TASKS = 5_000_000
MAX_STREAM_BYTES = 1024**3
MAX_LINE_BYTES = 64 * 1024**2
STDIN = "-"
_MOST_ID = 200  # characters

# Where an entry stands: a line of JSONL, or a path in a document whose line is looked up when it is needed.
Place: TypeAlias = int | KeyPath


class TaskFile(NamedTuple):
    """The tasks of a file.

    `patterns` has, by output, what the outputs are known by that have a uid: any will do.
    """

    tasks: list[Task]
    patterns: dict[str, str]
    places: Places


class Places:
    """Where the tasks of a file stand in it."""

    def __init__(self, name: str, places: Sequence[Place], lines: Callable[[], Lines]) -> None:
        self._name = name
        self._places = places
        self._lines = lines

    def of(self, task: int, field: str = "") -> str:
        """FILE:LINE of that task, or of its field; counted from 0, in the order of the file."""
        where = self._places[task]
        line = where if isinstance(where, int) else _line(self._lines(), where, (field,) if field else ())
        return self._name if line is None else f"{self._name}:{line}"


def read(path: Path | str, **options: Any) -> list[Task]:
    """The tasks of a file, in its order; the options are those of `read_file`."""
    return read_file(path, **options).tasks


def read_file(
    path: Path | str,
    *,
    run: str | None = None,
    checker: TaskChecker | None = None,
    on_crash: OnCrash = OnCrash.RETRY,
    now: float | None = None,
) -> TaskFile:
    """The tasks of a file, in its order; `-` is JSONL on standard input, whose inputs lie in the current folder.

    `run` and `on_crash` are for tasks that do not say. An `id` in the file is a name within that run; without a run
    it is the task's id. `checker` holds the tasks to a config, so that a wrong lane is told with its line; `now` is
    where relative times start.
    """
    path = Path(path)
    setting = Setting(
        now=SystemClock().now() if now is None else now,
        run=run or "",
        on_crash=on_crash,
        checker=checker or TaskChecker(),
        folder=Path() if str(path) == STDIN else path.parent,
    )
    if str(path) == STDIN:
        return _Reading("<stdin>", setting).read_lines(sys.stdin.buffer)
    file = _Reading(file_shown(path), setting)
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        with opened(path, file.name) as lines, no_collecting():
            return file.read_lines(lines)
    document = read_document(path, file.name)
    if document is None:
        raise TaskError(f"{file.name}: must end in .jsonl, .yaml, .toml or .json, so that its form is known")
    return file.read_document(fpf.as_tasks(document))


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """The plain form of an entry: no matrix, times as numbers."""

    kind: str
    payload: Any = None
    priority: int = DEFAULT_PRIORITY
    lane: str = DEFAULT_LANE
    run: str | None = None
    after: tuple[str, ...] = ()
    needs: dict[str, float] | None = None
    host: str | None = None
    model: str | None = None
    timeout_s: float | None = None
    deadline: float | None = None
    not_before: float | None = None
    retries: int | None = None
    key: str | None = None
    on_crash: OnCrash | None = None
    output: str | None = None
    id: str = ""


_BRACES = frozenset("{}")
_decode_line = msgspec.json.Decoder(_Line).decode


class _Enough(Exception):
    """As many problems as are worth telling."""


class _Found(NamedTuple):
    where: Place
    problem: Problem
    other: Place | None = None  # another entry that has to do with it


# Fields that name something of the config.
_NAMES = (("lane",), ("kind",), ("host",), ("model",))


class _Reading:
    """The tasks of one file as they are gathered, and what is wrong with them."""

    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self._setting = setting
        self._tasks: list[Task] = []
        self._where: MutableSequence[Any] = []  # of each task, its entry
        self._patterns: dict[str, str] = {}
        self._found: list[_Found] = []
        self._places: dict[str, Place] = {}  # name of a task -> its entry
        self._elsewhere: dict[str, str] = {}  # name of a task -> its run, where that is not the file's
        self._outputs: dict[str, Place] = {}  # output -> its entry
        self._output_folders: dict[str, Place] = {}  # folder of outputs -> the first entry that needs it
        self._copies: dict[str, tuple[str, ...]] = {}  # id of an entry with a matrix -> its tasks
        self._waiting = False  # some task waits for another
        self._again: dict[
            Problem, int
        ] = {}  # what the config does not have -> how many more tasks ask for it

    # ---- JSONL

    def read_lines(self, file: IO[bytes]) -> TaskFile:
        self._where = array("L")  # of a file with millions, numbers are all that is kept
        try:
            for number, line in self._lines(file):
                self._add_line(line, number)
            self._finish()
        except _Enough:
            pass
        return self._tasks_or_error(dict)

    def _lines(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        total = number = 0
        while True:
            try:
                line = file.readline(MAX_LINE_BYTES + 1)
            except OSError as error:
                raise TaskError(f"{self.name}: cannot be read: {error.strerror or error}") from None
            if not line:
                return
            number += 1
            total += len(line)
            if len(line) > MAX_LINE_BYTES:
                size = f"{MAX_LINE_BYTES // 1024**2} MiB"
                raise TaskError(
                    f"{self.name}:{number}: is over {size}; put large things in a file of their own"
                )
            if total > MAX_STREAM_BYTES:
                raise TaskError(f"{self.name}: is over {MAX_STREAM_BYTES // 1024**3} GiB; split it")
            yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line

    def _add_line(self, line: bytes, number: int) -> None:
        try:
            entry = _decode_line(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._add_odd_line(line, number)
            return
        setting = self._setting
        name = entry.id
        run = setting.run if entry.run is None else entry.run
        task = Task(
            entry.kind,
            entry.payload,
            entry.priority,
            entry.lane,
            run,
            entry.after,
            entry.needs,
            entry.host,
            entry.model,
            entry.timeout_s,
            entry.deadline,
            entry.not_before,
            entry.retries,
            entry.key,
            setting.on_crash if entry.on_crash is None else entry.on_crash,
            f"{run}:{name}" if name and run else name,
            output=entry.output,
        )
        is_template = entry.output is not None and not _BRACES.isdisjoint(entry.output)
        if is_template or name in entry.after or setting.checker.problems(task):
            self._add_odd_line(line, number)
        else:
            self._keep(task, name, number)

    def _add_odd_line(self, line: bytes, number: int) -> None:
        """A line that is blank, wrong, or an entry in a form that only files have."""
        text = line.strip()
        if not text:
            return
        if text.startswith(b"#"):
            self._refuse(number, Problem((), "JSONL has no comments; remove the line, or use YAML"))
            return
        try:
            raw = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            self._refuse(number, Problem((), json_error(str(error), text)[1]))
        except UnicodeDecodeError:
            self._refuse(number, Problem((), "is not UTF-8 text; save the file as UTF-8"))
        except RecursionError:
            self._refuse(number, Problem((), "is nested too deeply; flatten it"))
        else:
            self._add_entry(raw, number)

    # ---- documents

    def read_document(self, document: Document) -> TaskFile:
        try:
            data = document.data
            if isinstance(data, Mapping):
                self._add_tables(data)
            elif isinstance(data, list):
                for index, raw in enumerate(data):
                    self._add_entry(raw, (index,))
            elif data is not None:
                self._refuse((), Problem((), f"must be a list of tasks, not {kind_of(data)}"))
            self._finish()
        except _Enough:
            pass
        return self._tasks_or_error(document.lines)

    def _add_tables(self, data: Mapping[str, Any]) -> None:
        for key in data:
            if key not in ("defaults", "tasks"):
                hint = meant(key, ("defaults", "tasks"))
                self._refuse((), Problem((str(key),), f"unknown key{hint}"))
        defaults = data.get("defaults") or {}
        if not isinstance(defaults, Mapping):
            self._refuse((), Problem(("defaults",), f"must be a table, not {kind_of(defaults)}"))
            defaults = {}
        for key in defaults:
            if key in SINGLE_FIELDS:
                what = f"two tasks cannot have the same {key}; give it in the task"
                self._refuse((), Problem(("defaults", key), what))
            elif key not in FIELDS:
                what = f"unknown field{meant(key, FIELDS, 'fields')}"
                self._refuse((), Problem(("defaults", str(key)), what))
        usable = {key: value for key, value in defaults.items() if key in FIELDS and key not in SINGLE_FIELDS}
        tasks = data.get("tasks")
        if not isinstance(tasks, list):
            what = (
                "is missing; the tasks are a list under it"
                if tasks is None
                else f"must be a list, not {kind_of(tasks)}"
            )
            self._refuse((), Problem(("tasks",), what))
            return
        for index, raw in enumerate(tasks):
            self._add_entry(raw, ("tasks", index), usable)

    # ---- entries

    def _add_entry(self, raw: object, where: Place, defaults: Mapping[str, Any] | None = None) -> None:
        entry = {**defaults, **raw} if defaults and isinstance(raw, Mapping) else raw
        made, problems = read_copies(entry, self._setting)
        if any(copy.input is not None and copy.task.output is not None for copy in made):
            made, problems = without_outputs(made, self._setting.checker)
        for problem in problems:
            field = problem.path[0] if problem.path else None
            if defaults and field in defaults and isinstance(raw, Mapping) and field not in raw:
                self._refuse((), Problem(("defaults", *problem.path), problem.message))
            else:
                self._refuse(where, problem)
        if made and isinstance(entry, Mapping) and entry.get("matrix") and entry.get("id"):
            self._name_copies(entry["id"], [copy.task.id for copy in made], where)
        for copy in made:
            task, name = copy.task, copy.task.id
            if copy.pattern is not None and task.output is not None:
                self._patterns[task.output] = copy.pattern
            if name and task.run:
                task = replace(task, id=id_in_run(task.run, name))
            self._keep(task, name, where)

    def _name_copies(self, base: str, names: Sequence[str], where: Place) -> None:
        if self._is_name(base, where):
            self._copies[base] = tuple(names)

    def _keep(self, task: Task, name: str, where: Place) -> None:
        if name and not self._is_name(name, where):
            return
        if len(task.id) > _MOST_ID:
            what = f"with the name of its run it is longer than {_MOST_ID} characters; shorten one of them"
            self._refuse(where, Problem(("id",), what))
            return
        if task.run != self._setting.run:
            self._elsewhere[name] = task.run
        if task.output is not None and not self._is_own(task.output, where):
            return
        if task.after:
            self._waiting = True
        self._tasks.append(task)
        self._where.append(where)
        if len(self._tasks) > MAX_TASKS:
            raise TaskError(f"{self.name}: has over {MAX_TASKS} tasks; split it")

    def _is_name(self, task_id: str, where: Place) -> bool:
        """Whether it can be the name of one task in a run."""
        if ":" in task_id:  # all else is looked at by the checker
            self._refuse(where, Problem(("id",), f"{quoted(task_id)} cannot be used: {ID_RULE}"))
            return False
        first = self._places.setdefault(task_id, where)
        if first != where:
            self._refuse(where, Problem(("id",), f"{task_id!r} is already the id of a task"), first)
            return False
        return True

    def _is_own(self, output: str, where: Place) -> bool:
        """Nobody would know which of two results he reads."""
        path = self._setting.checker.saved_at(output) or normpath(output)
        if path not in self._outputs:
            self._outputs[path] = where
            return self._fits_beside(output, path, where)
        first = self._outputs[path]
        if first == where:
            what = f"two of its tasks have {output!r}; tell them apart: {{n}}, {{model}}, {{dir}} or {{uid}}"
            self._refuse(where, Problem(("output",), what))
        else:
            self._refuse(where, Problem(("output",), f"{output!r} is already the output of a task"), first)
        return False

    def _fits_beside(self, output: str, path: str, where: Place) -> bool:
        """What is one task's file cannot be another's folder."""
        if (other := self._output_folders.get(path)) is not None:
            what = f"{output!r} is the folder of the output of a task"
            self._refuse(where, Problem(("output",), what), other)
            return False
        folder = dirname(path)
        while folder not in self._output_folders:
            if (other := self._outputs.get(folder)) is not None:
                what = f"{output!r} lies below the output of a task"
                self._refuse(where, Problem(("output",), what), other)
                return False
            self._output_folders[folder] = where
            folder = dirname(folder)
        return True

    def _finish(self) -> None:
        """What can be said only when every task is known."""
        if not self._waiting:
            return
        self._tasks = [self._tied(task) if task.after else task for task in self._tasks]
        if circle := [name_in_run(task, self._setting.run) for task in find_circle(self._tasks)]:
            way = " → ".join(circle if len(circle) <= 8 else (*circle[:4], "…", *circle[-3:]))
            what = f"these tasks wait for each other, so none could start: {way}; take one out of `after`"
            self._refuse(self._places[circle[0]], Problem(("after",), what))

    def _tied(self, task: Task) -> Task:
        """Waiting for the tasks of this file by their ids; for an entry with a matrix that is for all its tasks."""
        names = (one for other in task.after for one in self._copies.get(other, (other,)))
        after = tuple(self._id_of(name) if name in self._places else name for name in names)
        if len(after) > MAX_AFTER:
            what = f"{len(after)} tasks to wait for are too many; at most {MAX_AFTER}"
            self._refuse(self._places.get(name_in_run(task.id, task.run), ()), Problem(("after",), what))
            return task
        return task if after == task.after else replace(task, after=after)

    def _id_of(self, name: str) -> str:
        run = self._elsewhere.get(name, self._setting.run)
        return id_in_run(run, name) if run else name

    # ---- problems

    def _refuse(self, where: Place, problem: Problem, other: Place | None = None) -> None:
        if problem.path in _NAMES:  # in the config it is missing once, however many tasks ask for it
            self._again[problem] = self._again.get(problem, -1) + 1
            if self._again[problem]:
                return
        found = _Found(where, problem, other)
        if found not in self._found:  # a wrong default is wrong in every entry
            self._found.append(found)
        if len(self._found) >= MAX_PROBLEMS:
            raise _Enough

    def _tasks_or_error(self, lines_of: Callable[[], Lines]) -> TaskFile:
        if not self._found:
            return TaskFile(self._tasks, self._patterns, Places(self.name, self._where, lines_of))
        lines = lines_of()
        told = []
        for where, (path, message), other in self._found:
            line = _line(lines, where, path)
            if other is not None:
                first = _line(lines, other, path)
                message += ("" if first is None else f" on line {first}") + "; give another"
            if again := self._again.get(Problem(path, message)):
                message += f" ({again} more {'asks' if again == 1 else 'ask'} for it)"
            start = self.name if line is None else f"{self.name}:{line}"
            told.append(f"{start}: {dotted(path)}: {message}" if path else f"{start}: {message}")
        if len(told) >= MAX_PROBLEMS:
            told.append(f"{self.name}: there may be more; these are the first {MAX_PROBLEMS} problems")
        raise TaskError("\n".join(told))


def _line(lines: Lines, where: Place, path: KeyPath) -> int | None:
    return where if isinstance(where, int) else place(lines, (*where, *path))
