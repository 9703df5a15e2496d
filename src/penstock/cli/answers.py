"""`results`: what the tasks of a run came to, as text, as records or as files; and how `run` ends on a terminal.

Results are read a page at a time, so that a run of any size fits into memory.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import render
from penstock.cli.session import config_of, finish, opened
from penstock.errors import UnknownTask, UsageError
from penstock.lifecycle import LIVE
from penstock.model import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from penstock.client import Client
    from penstock.config import Config
    from penstock.model import TaskRecord
    from penstock.store.base import TaskFilter

app = typer.Typer()

_PAGE = 200  # tasks, with their values
_MOST_LINES = 24  # of answers at the end of `run`
_MARK = ".penstock-run"  # a folder of results has it, with the name of their run
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_STEM = 150
_MARKDOWN = re.compile(r"^(#{1,6} |```|> |\* \*|- \[|\|.*\|\s*$)|\*\*\S", re.MULTILINE)
_COLUMNS = (
    "task_id name kind lane priority state host attempts queued_at started_at ended_at text error output"
)


@app.command(
    "results",
    epilog="\b\nExamples:\n"
    "  penstock results last\n"
    "  penstock results nightly --jsonl | jq -r .text\n"
    "  penstock results nightly --files answers\n"
    "  penstock results nightly:heat > heat.md",
)
def results(
    context: typer.Context,
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Its name, the beginning of it, or `last`; or one task: RUN:NAME, its name or id.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one list of records.")] = False,
    as_lines: Annotated[bool, typer.Option("--jsonl", help="Print a record per line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a table of comma-separated values.")] = False,
    files: Annotated[
        str | None,
        typer.Option(
            "--files", metavar="DIR", help="Write each result into a file of its own, named by its task."
        ),
    ] = None,
) -> int:
    """Print what the tasks of a run came to, also while it goes on.

    The text of a result is the model's answer, or what the program or function gave; anything without a text
    is shown as JSON. The records have it as `text`. Exit status 1 when one task is named that is not done.
    """
    given = [as_json, as_lines, as_csv, files is not None]
    if sum(given) > 1:
        raise UsageError("results: --json, --jsonl, --csv and --files cannot be used together; choose one")
    config = config_of(context)
    if files is not None:
        return finish(_as_files(config, run, Path(files)))
    show = _json if as_json else _lines if as_lines else _csv if as_csv else _texts
    return finish(_shown(config, run, show))


async def _shown(config: Config, name: str, show: Callable[..., Any]) -> int:
    async with opened(config) as client:
        chosen, only = await _chosen(client, name)
        await show(_records(client, chosen, only), only is not None)
    return 0 if only is None or only.state is State.DONE else 1


async def _chosen(client: Client, name: str) -> tuple[TaskFilter, TaskRecord | None]:
    """The tasks that are meant: a run, or one task of it."""
    from penstock.store.base import TaskFilter

    if name == "last" or await client.tasks(TaskFilter(run=name, limit=1)):
        return TaskFilter(run=await client.run_named(name)), None
    task = await client.task_called(name)
    if task is None and len(await client.runs_beginning(name)) != 1:
        with suppress(UnknownTask):
            task = await client.get(name)
    if task is not None:
        return TaskFilter(run=task.task.run), task
    return TaskFilter(run=await client.run_named(name)), None


async def _records(client: Client, chosen: TaskFilter, only: TaskRecord | None) -> AsyncIterator[TaskRecord]:
    if only is not None:
        yield only
        return
    async for page in client.pages(chosen, _PAGE):
        for record in page:
            yield record


# ---- as text


async def _texts(records: AsyncIterator[TaskRecord], is_one: bool) -> None:
    """Each under a line that says whose it is; of one task nothing but its text."""
    states: Counter[State] = Counter()
    async for record in records:
        if is_one:
            _print_only(record)
            return
        if states:
            render.say()
        states[record.state] += 1
        render.say(_heading(record))
        if record.state is State.DONE and record.value is not None:
            render.answer(record.value)
    _note_unfinished(states)


def _print_only(record: TaskRecord) -> None:
    if record.state is State.DONE:
        if record.value is not None:
            render.answer(record.value)
        return
    render.note(f"task {record.task.name or record.task.id} is {_standing(record)}")


def _heading(record: TaskRecord) -> str:
    name = record.task.name or record.task.id
    if record.state is not State.DONE:
        return f"── {name}: {_standing(record)}"
    took_s = (
        None if record.started_at is None or record.ended_at is None else record.ended_at - record.started_at
    )
    took = "" if took_s is None else f", {render.seconds(took_s)}"
    return f"── {name}: {record.task.kind} on {record.host}{took}"


def _standing(record: TaskRecord) -> str:
    why = f": {render.one_line(record.error)}" if record.error and record.state not in LIVE else ""
    return f"{record.state}{why}"


def _note_unfinished(states: Counter[State]) -> None:
    if live := sum(states[state] for state in LIVE):
        render.note(f"{live} of {render.counted(states.total(), 'task')} not ended yet")


# ---- as data


def _record_of(record: TaskRecord) -> dict[str, Any]:
    from penstock.answers import text_of

    text = text_of(record.value) if record.state is State.DONE and record.value is not None else None
    return record.as_record() | {"label": record.task.label, "text": text}


async def _json(records: AsyncIterator[TaskRecord], is_one: bool) -> None:
    import msgspec

    if is_one:
        async for record in records:
            render.emit(_record_of(record))
        return
    start = b"["
    async for record in records:
        sys.stdout.buffer.write(start + msgspec.json.encode(_record_of(record)))
        start = b",\n "
    render.write(b"[]" if start == b"[" else b"]")


async def _lines(records: AsyncIterator[TaskRecord], is_one: bool) -> None:
    async for record in records:
        render.emit_line(_record_of(record))


async def _csv(records: AsyncIterator[TaskRecord], is_one: bool) -> None:
    import csv

    writer = csv.DictWriter(sys.stdout, _COLUMNS.split(), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    async for record in records:
        told = _record_of(record)
        writer.writerow(told | {name: render.shown(told[name]) for name in ("text", "error") if told[name]})


# ---- as files


async def _as_files(config: Config, name: str, folder: Path) -> int:
    async with opened(config, stand_in=False) as client:
        chosen, only = await _chosen(client, name)
        files = _Files(folder, chosen.run or "")
        states: Counter[State] = Counter()
        async for record in _records(client, chosen, only):
            states[record.state] += 1
            if record.state is State.DONE:
                files.write(record)
    without = ", ".join(
        f"{states[state]} {state}" for state in State if state is not State.DONE and states[state]
    )
    rest = f"; without a result: {without}" if without else ""
    render.say(f"{render.counted(files.written, 'file')} in {folder}{rest}")
    return 0


class _Files:
    """A folder of results: one that is new, empty, or has those of the same run already."""

    def __init__(self, folder: Path, run: str) -> None:
        self.written = 0
        self._folder = folder
        self._stems: set[str] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"--files: {folder} cannot be a folder of results: {error.strerror}; name another"
            ) from None
        mark = folder / _MARK
        known = mark.read_text(errors="replace").strip() if mark.is_file() else None
        if known is None and any(folder.iterdir()):
            raise UsageError(f"--files: {folder} has other files in it; name a new or an empty folder")
        if known not in (None, run):
            raise UsageError(f"--files: {folder} has the results of run {known}; name another folder")
        mark.write_text(run + "\n")

    def write(self, record: TaskRecord) -> None:
        from penstock.answers import answer_in, text_of

        text = answer_in(record.value)
        ending = ".json" if text is None else _ending(text)
        data = text_of(record.value) if text is None else text
        path = self._folder / (self._stem(record.task.name or record.task.id) + ending)
        # A link that lies there is not followed: nothing is written outside of the folder.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            opened_file = os.open(path, flags, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UsageError(f"--files: {path} is a link; remove it, or name another folder") from None
            raise
        with os.fdopen(opened_file, "wb") as file:
            file.write(data.encode("utf-8", "surrogatepass") + (b"" if data.endswith("\n") else b"\n"))
        self.written += 1

    def _stem(self, name: str) -> str:
        """A name for a file, which no other of this folder has, whatever the case of its letters."""
        stem = begin = _UNSAFE.sub("-", name).lstrip(".")[:_MOST_STEM] or "task"
        number = 1
        while stem.casefold() in self._stems:
            number += 1
            stem = f"{begin}-{number}"
        self._stems.add(stem.casefold())
        return stem


def _ending(text: str) -> str:
    """By what is in it: data, Markdown, or plain text."""
    if text.lstrip()[:1] in ("{", "["):
        import msgspec

        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
            return ".json"
    return ".md" if _MARKDOWN.search(text) else ".txt"


# ---- the end of `run`


def _cut(line: str, most: int) -> str:
    return line if len(line) <= most else line[: most - 1] + "…"


async def print_beginnings(client: Client, run: str, command: Callable[[str], str]) -> None:
    """The first lines of each answer of a short run, and how to read the rest."""
    from penstock.store.base import TaskFilter

    states = await client.states_in_run(run)
    done = states.get(State.DONE, 0)
    if not done:
        return
    render.say()
    is_whole = False
    if sum(states.values()) <= _MOST_LINES:
        records = await client.tasks(TaskFilter(run=run))
        is_whole = _print_short([r for r in records if r.state is State.DONE and r.value is not None])
    how = command(f"results {run}")
    render.say(f"answers as files: `{how} --files DIR`" if is_whole else f"all of it: `{how}`")


def _print_short(records: list[TaskRecord]) -> bool:
    """Whether that is all there is."""
    from penstock.answers import text_of

    if not records:
        return True
    width = render.console().width
    each = max(1, _MOST_LINES // len(records))
    names = [record.task.name or record.task.id for record in records]
    indent = max(map(len, names)) + 2
    is_whole = True
    for name, record in zip(names, records, strict=True):
        lines = render.shown(text_of(record.value)).strip("\n").splitlines() or [""]
        is_whole = is_whole and len(lines) <= each and all(len(line) <= width - indent for line in lines)
        for number, line in enumerate(lines[:each]):
            begin = name if number == 0 else ""
            is_last = number == each - 1 and len(lines) > each
            line = f"{line.rstrip()} …" if is_last else line
            render.say((begin.ljust(indent) + _cut(line, max(20, width - indent))).rstrip())
    return is_whole
