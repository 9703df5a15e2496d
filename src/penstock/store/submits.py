"""Writing submitted tasks, many submits at once: each of them is kept whole or refused whole.

Runs inside the writer's transaction, where nobody else can add a task. So all that the batches ask of the
database (known keys, taken ids, tasks to come after) is read first, the refusals are decided, and what is
left is written in few statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from penstock.errors import TaskError, TaskRefused
from penstock.store.admission import AFTER, ID, KEY, QUEUED_AT, ROW_WIDTH, RUN, Batch, Row, refuse_cycles
from penstock.store.rows import json_text, names_text
from penstock.store.session import Session

_SUBMITTED_WIDTH = 6  # at, task, run, count, first, last


class _Known:
    """What the store holds of all that the batches name; grows with each batch that is let in."""

    def __init__(self, keys: dict[str, str], ids: set[str]) -> None:
        self.keys = keys
        self.ids = ids


def write_submits(
    session: Session, batches: Sequence[Batch], check_all: bool = False
) -> list[list[str] | TaskError]:
    """For each batch its ids, or why it is refused. With `check_all` even ids made here are looked up."""
    number, event = session.row("from_here")
    known = _look_up(session, batches, check_all)
    results: list[list[str] | TaskError] = []
    accepted: list[list[Row]] = []
    long_payloads: list[tuple[int, str]] = []
    log: list[object] = []
    begins: list[int] = []
    files: dict[str, str] = {}  # task file -> its newest run
    for batch in batches:
        try:
            rows, ids, places = _let_in(batch, known, check_all)
        except TaskError as refusal:
            results.append(refusal)
            continue
        results.append(ids)
        if not rows:
            continue
        begins += (number + 1, event + len(log) // _SUBMITTED_WIDTH + 1)
        log += _events(rows, number)
        accepted.append(rows)
        if batch.file:
            files[batch.file] = batch.run
        if batch.long_payloads:
            numbers = enumerate(range(len(rows)) if places is None else places, number + 1)
            long_payloads += [
                (n, batch.long_payloads[place]) for n, place in numbers if place in batch.long_payloads
            ]
        number += len(rows)
    if accepted:
        values = list(chain.from_iterable(chain.from_iterable(accepted)))
        session.bulk("add_tasks", ROW_WIDTH, values)
        if long_payloads:
            session.many("add_payload_here", long_payloads)
        session.bulk("add_batches_here", 2, begins)
        session.bulk("add_submitted", _SUBMITTED_WIDTH, log)
        if files:
            session.many("set_file_run", list(files.items()))
    return results


def _look_up(session: Session, batches: Sequence[Batch], check_all: bool) -> _Known:
    keys: set[str] = set()
    ids: set[str] = set()
    for batch in batches:
        ids |= batch.given
        ids.update(*batch.after.values())
        if check_all:
            ids.update(batch.ids)
        if batch.keyed:
            keys.update(row[KEY] for row in batch.rows if row[KEY] is not None)
    known_keys = dict(session.rows("known_keys", json_text(list(keys)))) if keys else {}
    known_ids = {id for (id,) in session.rows("known_ids", json_text(list(ids)))} if ids else set()
    return _Known(known_keys, known_ids)


def _let_in(batch: Batch, known: _Known, check_all: bool) -> tuple[list[Row], list[str], list[int] | None]:
    """The rows to write, the ids to answer with, and the places of the rows in the batch (None: all)."""
    if not (batch.keyed or batch.after or batch.given or check_all):
        return batch.rows, batch.ids, None
    rows: list[Row] = []
    places: list[int] = []
    ids = list(batch.ids)
    own: dict[str, int] = {}
    keys: dict[str, str] = {}
    aliases: dict[str, str] = {}
    for place, row in enumerate(batch.rows):
        id, key = row[ID], row[KEY]
        if key is not None:
            same = known.keys.get(key) or keys.get(key)
            if same is not None:
                aliases[id] = ids[place] = same
                continue
            keys[key] = id
        if id in own:
            what = f"another task of this submit has the id {id}; give each its own"
            raise TaskRefused(place, len(batch.rows), what, "id")
        if id in known.ids and (check_all or id in batch.given):
            what = f"the store already has a task {id}; leave the id out, or use a key"
            raise TaskRefused(place, len(batch.rows), what, "id")
        own[id] = len(rows)
        rows.append(row)
        places.append(place)
    if batch.after:
        _tie(batch, rows, places, own, aliases, known)
    known.keys.update(keys)
    known.ids.update(own)
    return rows, ids, places


def _tie(
    batch: Batch,
    rows: list[Row],
    places: list[int],
    own: dict[str, int],
    aliases: dict[str, str],
    known: _Known,
) -> None:
    """Check every `after`, and point those at a task whose key was known to the one that is kept."""
    kept = set(aliases.values())
    tied: dict[int, tuple[str, ...]] = {}
    for at, place in enumerate(places):
        names = batch.after.get(place)
        if names is None:
            continue
        names = tuple(aliases.get(name, name) for name in names)
        for name in names:
            if name not in own and name not in known.ids and name not in kept:
                what = f"after names {name[:80]!r}, which no task of the store or of this submit has"
                raise TaskRefused(place, len(batch.rows), what, "after")
        tied[at] = names
        row = rows[at]
        rows[at] = (*row[:AFTER], names_text(names), *row[AFTER + 1 :])
    if aliases:  # two tasks that became one may have closed a circle
        refuse_cycles([row[ID] for row in rows], tied)


def _events(rows: list[Row], before: int) -> list[object]:
    """One `submitted` event per run, with the numbers its tasks got."""
    runs: dict[str, list[int]] = {}
    first_run = rows[0][RUN]
    if all(row[RUN] == first_run for row in rows):
        runs[first_run] = [len(rows), before + 1, before + len(rows)]
    else:
        for number, row in enumerate(rows, before + 1):
            span = runs.setdefault(row[RUN], [0, number, number])
            span[0] += 1
            span[2] = number
    log: list[object] = []
    for run, (count, first, last) in runs.items():
        row = rows[last - before - 1]
        log += (row[QUEUED_AT], row[ID] if count == 1 else None, json_text(run), count, first, last)
    return log
