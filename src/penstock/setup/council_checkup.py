"""Who can answer in each council, who of them cannot now, and whether there is anything to look up."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

from penstock.config import Config
from penstock.config.called import hosts_of
from penstock.config.councils import Council, Member, Retrieval
from penstock.config.own_files import library_dir
from penstock.council.library.embedding import missing
from penstock.council.library.passages import is_there
from penstock.council.library.vectors import Shelf
from penstock.errors import PermanentError
from penstock.hosts.library_orders import place
from penstock.setup.agent_checkup import WARNING, WELL, WRONG

_MOST_HOSTS = 4  # named for one member
_PATIENCE_S = 1.0  # for a file that somebody is writing to


def findings(config: Config, down: Collection[str] = ()) -> Iterator[tuple[str, str, str]]:
    """The council's name, how bad it is, and what it is with what to do. `down` are hosts that do not answer."""
    for council in config.councils.values():
        yield council.name, WELL, _speakers(council, config)
        if (lost := _out_of_reach(council, config, down)) is not None:
            yield council.name, *lost
        if (crowd := _crowded(council, config)) is not None:
            yield council.name, WARNING, crowd
        if council.retrieval is not None:
            yield council.name, *_collection(council.retrieval, library_dir(config))


def _speakers(council: Council, config: Config) -> str:
    told = []
    for member in council.members:
        names = [host.name for host in hosts_of(member, config)]
        more = ", …" if len(names) > _MOST_HOSTS else ""
        told.append(f"{member.name} by {', '.join(names[:_MOST_HOSTS])}{more}")
    return f"chair {council.chair.name}; {'; '.join(told)}"


def _out_of_reach(council: Council, config: Config, down: Collection[str]) -> tuple[str, str] | None:
    """Who cannot be asked, for all hosts that could answer are down."""
    lost = [one.name for one in council.members if _is_lost(one, config, down)]
    left = len(council.members) - len(lost)
    if not lost and not _is_lost(council.chair, config, down):
        return None
    if not lost:
        chair = f"the chair, {council.chair.name}, cannot be asked now: a member sums up instead"
        return WARNING, f"{chair}; see to its hosts above"
    told = f"{left} of {len(council.members)} members can be asked now, not {', '.join(lost)}"
    if left >= council.min_answers:
        return WARNING, f"{told}; see to their hosts above"
    return WRONG, f"{told}; {council.min_answers} answers make its quorum: see to their hosts above"


def _is_lost(one: Member, config: Config, down: Collection[str]) -> bool:
    return all(host.name in down for host in hosts_of(one, config))


def _crowded(council: Council, config: Config) -> str | None:
    """Members who cannot all answer at once, whatever else is at work."""
    hosts = {host.name: host for member in council.members for host in hosts_of(member, config)}
    slots = sum(host.slots if host.auto is None else host.auto.max for host in hosts.values())
    if slots >= len(council.members):
        return None
    told = f"{slots} {'slot' if slots == 1 else 'slots'} of {', '.join(hosts)}"
    return (
        f"{len(council.members)} members share {told}: some wait for others; raise the slots if the server can do "
        "more at a time"
    )


def _collection(retrieval: Retrieval, folder: str) -> tuple[str, str]:
    where = place(retrieval, folder)
    if (wanting := missing()) is not None:
        known = "passages are found by words alone" if is_there(where.words) else "members get no passages"
        return WARNING, f"{known}: {wanting}"
    shelf = where.stand().shelf
    if retrieval.url is not None:
        try:
            shelf.headers()
        except PermanentError as error:
            return WARNING, f"vectors cannot be searched: {error}"
        return WELL, f"passages come from {shelf}, which was not asked"
    is_made = is_collection(shelf)
    if is_made is None:
        return WARNING, f"{shelf} cannot be read; see to its files"
    if not is_made:
        return (
            WARNING,
            f"there is no {shelf}, so members get no passages; fill it with `penstock council ingest`",
        )
    return WELL, f"passages come from {shelf}"


def is_collection(shelf: Shelf) -> bool | None:
    """By Chroma's own table, read without Chroma, whose start takes seconds; None where that cannot be told."""
    if not os.path.exists(shelf.file):
        return False
    address = f"{Path(shelf.file).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE_S)) as file:
            query = "SELECT count(*) FROM collections WHERE name = ?"
            return bool(file.execute(query, (shelf.collection,)).fetchone()[0])
    except sqlite3.Error:
        return None
