"""The newest runs of a store, with how many tasks they have: what a person chooses from.

Read from the newest task backwards, a page at a time. A page of one run alone is a large one, whose other tasks are
passed over by its index; what was submitted amid those is not seen.
"""

from __future__ import annotations

from penstock.model import id_in_run
from penstock.store.base import RunCount
from penstock.store.rows import json_text
from penstock.store.session import Session

_PAGE = 1000
_MOST_PAGES = 100
_MOST_NAMED = 200  # runs in which a name is looked for


def read_newest_runs(session: Session, most: int) -> list[RunCount]:
    return [_counted(session, run) for run in _newest(session, most)]


def read_named(session: Session, name: str) -> str | None:
    """The id of the task that has this name within its run: in the newest run that has such a task."""
    ids = [id_in_run(run, name) for run in _newest(session, _MOST_NAMED)]
    there = {id for (id,) in session.rows("known_ids", json_text(ids))}
    return next((id for id in ids if id in there), None)


def _newest(session: Session, most: int) -> list[str]:
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
    return list(names)[:most]


def _counted(session: Session, run: str) -> RunCount:
    ((tasks, ended, queued_at),) = session.rows("run_count", run)
    return RunCount(run, tasks, tasks - ended, queued_at)
