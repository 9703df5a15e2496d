"""The newest runs of a SQLite store, with how many tasks they have: what a person chooses from.

Read from the newest task backwards, a page at a time. A page of one run alone is a large one, whose other tasks are
passed over by its index; what was submitted amid those is not seen.
"""

from __future__ import annotations

import sqlite3

from penstock.store.base import RunCount
from penstock.store.sqlite_open import QUERIES

_PAGE = 1000
_MOST_PAGES = 100


def read_newest_runs(connection: sqlite3.Connection, most: int) -> list[RunCount]:
    names: dict[str, None] = {}
    before: int | None = None
    for _ in range(_MOST_PAGES):
        page = connection.execute(QUERIES["runs_backwards"], {"before": before, "most": _PAGE}).fetchall()
        if not page:
            break
        for _, run in page:
            names.setdefault(run)
        if len(names) >= most:
            break
        before = page[-1][0]
        runs = {run for _, run in page}
        if len(runs) == 1:
            ((before,),) = connection.execute(QUERIES["first_of_run"], (page[0][1],))
    return [_counted(connection, run) for run in list(names)[:most]]


def _counted(connection: sqlite3.Connection, run: str) -> RunCount:
    ((tasks, ended, queued_at),) = connection.execute(QUERIES["run_count"], (run,))
    return RunCount(run, tasks, tasks - ended, queued_at)
