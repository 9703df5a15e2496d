"""The tasks of a store that lived of late, as many as a picture can show: those that run, those that ended
last, and those that have been queued longest.

What ended is found through the log from its newest event backwards, so that it costs what happened of late and
not what is stored.
"""

from __future__ import annotations

from penstock.store.base import Lately
from penstock.store.session import Session

_MOST_EVENTS = 400_000  # of the log that is counted: half a second
# Of what is shown, one in so many may be queued where more have ended than there is room for.
_SHARE_QUEUED = 5


def read_lately(session: Session, since: float, most: int) -> Lately:
    found = session.row("last_event")
    newest = 0 if found is None else found[0]
    imported = first_imported_event(session, since)
    first = _first_since(session, since, newest if imported is None else imported - 1)
    here = "" if imported is None else "_here"
    counted_from = max(first, newest - _MOST_EVENTS)
    running = _ids(session, "lately_running", most)
    ((live,),) = session.rows("lately_live")
    ((ended,),) = session.rows(f"lately_ended_count{here}", counted_from, since)
    ((under_way,),) = session.rows("lately_running_count")
    queued = live - under_way
    room = most - len(running)
    waiting = min(queued, max(room // _SHARE_QUEUED, room - ended))
    chosen = [
        *running,
        *_ids(session, f"lately_ended{here}", counted_from, since, room - waiting),
        *_ids(session, "lately_queued", waiting),
    ]
    return Lately(tuple(dict.fromkeys(chosen)), under_way, ended, queued, counted_from > first)


def _ids(session: Session, query: str, *parameters: float) -> list[str]:
    return [id for (id,) in session.rows(query, *parameters)]


def first_imported_event(session: Session, since: float) -> int | None:
    """The first event of the runs that were imported since then, if any were.

    An import's events have the times of where it ran and numbers of here: time does not grow with the numbers
    from there on. Those of earlier imports are older than that, and so are those that stand before them.
    """
    found: int | None = session.row("first_imported_event", since)[0]
    return found


def _first_since(session: Session, since: float, last: int) -> int:
    """The first event since then, or the one after `last`, by halving: up to there numbers grow with time."""
    low, high = 1, last + 1
    while low < high:
        middle = (low + high) // 2
        found = session.row("event_at", middle)
        if found is not None and found[0] < since:
            low = middle + 1
        else:
            high = middle
    return low
