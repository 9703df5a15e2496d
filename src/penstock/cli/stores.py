"""What is done to a store as a whole: `store copy`."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import render
from penstock.cli.app import Family
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.store.copying import Copy, Progress
    from penstock.store.database import Database

app = typer.Typer(
    cls=Family,
    help="The store as a whole: move it between a file and PostgreSQL.",
    epilog="\b\nExamples:\n  penstock store copy penstock.db postgresql://penstock@db/penstock",
    add_completion=False,
    rich_markup_mode=None,
)

_TOLD_EVERY_S = 5.0  # in a log
_DRAWN_EVERY_S = 0.1  # on a terminal


@app.callback()
def family() -> None:
    """Several commands, although there is one."""


@app.command(
    "copy",
    epilog="\b\nExamples:\n"
    "  penstock store copy penstock.db postgresql://penstock@db/penstock\n"
    "  penstock store copy 'postgresql://penstock@db/penstock?schema=lab' lab.db --json",
)
def copy(
    source: Annotated[
        str,
        typer.Argument(metavar="FROM", help="A file, or a postgresql:// URL, as in `store` of the config."),
    ],
    target: Annotated[str, typer.Argument(metavar="TO", help="The same; it must be new or empty.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Copy a whole store, history included, and verify it.

    Nobody may dispatch from either of them meanwhile, and what is submitted to FROM has to wait. TO gets all of
    it or nothing: that is decided when every table was read back from it and has the rows and the hash of FROM's.
    Where tasks are running TO goes on with those on a Ray cluster: then FROM must not dispatch there any more.
    """
    from penstock.store.copying import copy_store

    begun = time.monotonic()
    databases = _database(source), _database(target)
    if databases[0].name == databases[1].name:
        raise UsageError(f"FROM and TO are the same store, {databases[0].name}; name another one to copy to")
    display = _Display(is_quiet=as_json and not sys.stderr.isatty())
    try:
        copied = copy_store(*databases, display.update)
    finally:
        display.close()
    _tell(databases, copied, time.monotonic() - begun, as_json)
    return 0


def _database(place: str) -> Database:
    from penstock.config.postgres_place import mistyped
    from penstock.wiring import open_database

    if "://" not in place and not mistyped(place):
        place = os.path.abspath(os.path.expanduser(place))
    return open_database(place)


def _tell(databases: tuple[Database, Database], copied: Copy, took_s: float, as_json: bool) -> None:
    source, target = databases
    tables = copied.tables
    if as_json:
        render.emit(
            {
                "from": source.name,
                "to": target.name,
                "rows": sum(table.rows for table in tables),
                "seconds": round(took_s, 3),
                "tables": {table.table: {"rows": table.rows, "sha256": table.sha256} for table in tables},
                "takes_ray_workers": copied.takes_workers,
            }
        )
        return
    rows = {table.table: table.rows for table in tables}
    tasks, events = render.counted(rows["tasks"], "task"), render.counted(rows["events"], "event")
    others = render.counted(sum(rows.values()) - rows["tasks"] - rows["events"], "other row")
    render.say(
        f"copied {tasks}, {events} and {others}"
        f" to {target.name} in {render.seconds(took_s)}; all were read back and are the same"
    )
    if copied.takes_workers:
        render.say(
            f"what runs on a Ray cluster goes on with {target.name};"
            f" let nobody dispatch there from {source.name} any more"
        )


class _Display:
    """How far it is: a line that moves on a terminal, a line now and then elsewhere."""

    def __init__(self, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._moves = sys.stderr.isatty()
        self._told_at = time.monotonic()
        self._is_drawn = False

    def update(self, progress: Progress) -> None:
        now = time.monotonic()
        if self._is_quiet or now - self._told_at < (_DRAWN_EVERY_S if self._moves else _TOLD_EVERY_S):
            return
        self._told_at = now
        share = render.percent(progress.done / progress.total if progress.total else 1.0)
        text = f"{progress.step} {progress.table}: {progress.done:,} of {progress.total:,} rows ({share})"
        if self._moves:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._is_drawn = True
        else:
            render.note(text)

    def close(self) -> None:
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
