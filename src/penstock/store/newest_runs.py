"""The newest runs of a store, with how many tasks they have: what a person chooses from.

Read from the newest task backwards, a page at a time. A page of one run alone is a large one, whose other tasks are
passed over by its index; what was submitted amid those is not seen.
"""

from __future__ import annotations

from penstock.store.base import RunCount
from penstock.store.session import Session

_PAGE = 1000
_MOST_PAGES = 100


def read_newest_runs(session: Session, most: int) -> list[RunCount]:
    names: dict[str, None] = {}
    before: int | None = None
    for _ in range(_MOST_PAGES):
        page = session.rows("runs_backwards", before, _PAGE)
        if not page:
            break
        for _, run in page:
            names.setdefault(run)
        if len(names) >= most:
            break
        before = page[-1][0]
        runs = {run for _, run in page}
        if len(runs) == 1:
            ((before,),) = session.rows("first_of_run", page[0][1])
    return [_counted(session, run) for run in list(names)[:most]]


def _counted(session: Session, run: str) -> RunCount:
    ((tasks, ended, queued_at),) = session.rows("run_count", run)
    return RunCount(run, tasks, tasks - ended, queued_at)
