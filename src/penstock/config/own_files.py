"""Penstock's own files: what no task may have read to a model, and no result may replace. One list for both.

They are the config, the store and all whose names are its with more behind a dot or a dash, the folders that hosts
work in, those of councils' collections, the files with keys, those that a database's URL names too, and
`penstock.env` beside the config, where a service has its secrets. Folders are compared as what they are, not by
their names, so that it does not matter which links a path was written with.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from penstock.config.document import Config
from penstock.config.postgres_place import secret_files
from penstock.config.store_place import LIBRARY_FOLDER, beside_store, tag_of
from penstock.model import Host

SECRETS_FILE = "penstock.env"


class _Own(NamedTuple):
    folder: str
    name: str  # in lower case: some file systems tell no case apart
    is_beginning: bool  # of the names of all its files


class OwnFiles:
    def __init__(self, config: Config) -> None:
        whole: dict[str, bool] = {}
        for path, is_beginning in _paths(config):
            # Where it is named, and where a link in that place leads.
            whole |= dict.fromkeys((path, os.path.realpath(path)), is_beginning)
        self._paths = tuple(whole)
        self._own = tuple(
            _Own(os.path.dirname(path), os.path.basename(path).casefold(), is_beginning)
            for path, is_beginning in whole.items()
        )

    def has(self, folder: int | str, name: str) -> bool:
        """Whether a name in a folder, open or by its path, is one of ours."""
        told = name.casefold()
        for own in self._own:
            fits = told == own.name or (
                own.is_beginning and told.startswith((f"{own.name}.", f"{own.name}-"))
            )
            if fits and _is_same(folder, own.folder):
                return True
        return False

    def reached_by(self, path: str) -> str | None:
        """One of ours that a folder or file is, holds, or lies in; rather one that is there."""
        if "\0" in path:
            return None  # it is none at all
        real = os.path.realpath(path)
        for own in sorted(self._paths, key=os.path.exists, reverse=True):
            held = os.path.join(os.path.realpath(os.path.dirname(own)), os.path.basename(own))
            if os.path.commonpath((real, held)) == real:
                return own
        while os.path.dirname(real) != real:
            if self.has(os.path.dirname(real), os.path.basename(real)):
                return real
            real = os.path.dirname(real)
        return None

    def is_one(self, file: int) -> bool:
        """Whether an open file is one of ours, whatever name it was opened by."""
        return any(_is_same(file, path) for path in self._paths)


def work_dir(config: Config, host: Host) -> str:
    """Where a host's attempts have their folders and logs: beside the store, or apart from other stores'."""
    given = host.options.get("work_dir")
    return beside_store(config.store, "work") if given is None else os.path.join(given, store_tag(config))


def agents_dir(config: Config) -> str:
    """Where what is known of container agents lies: beside the store, or in the user's own folder."""
    return beside_store(config.store, "agents")


def library_dir(config: Config) -> str:
    """Where the library keeps what it knows of collections that are on servers."""
    return beside_store(config.store, LIBRARY_FOLDER)


def store_tag(config: Config) -> str:
    """Marks the processes of this store's dispatchers, so that a new one finds what a killed one left."""
    return tag_of(config.store)


def folder_of(config: Config) -> str:
    """That of the config, or where we are when it came from no file."""
    return os.getcwd() if config.path is None else str(config.path.absolute().parent)


def kept_here(config: Config, folder: str) -> tuple[str, ...]:
    """Those of them that lie in a folder, as .gitignore would name them: they go to no other machine."""
    found: dict[str, None] = {}
    root = os.path.realpath(folder)
    for path, is_beginning in _paths(config):
        for named in (os.path.abspath(path), os.path.realpath(path)):
            held = os.path.join(os.path.realpath(os.path.dirname(named)), os.path.basename(named))
            inside = os.path.relpath(held, root)
            if inside == os.curdir or inside.split(os.sep)[0] == os.pardir:
                continue
            word = "/" + re.sub(r"([\\*?\[\]!# ])", r"\\\1", inside)
            found |= dict.fromkeys((word, f"{word}.*", f"{word}-*") if is_beginning else (word,))
    return tuple(found)


def _paths(config: Config) -> Iterator[tuple[str, bool]]:
    """Absolute, each with whether it is but the beginning of names."""
    home = folder_of(config)
    yield os.path.join(home, SECRETS_FILE), False
    if config.path is not None:
        yield os.path.abspath(config.path), False
    if "://" not in config.store:
        yield os.path.abspath(config.store), True
    else:
        yield agents_dir(config), False
        for path in secret_files(config.store):
            yield os.path.abspath(path), False
    for council in config.councils.values():
        if council.retrieval is not None and council.retrieval.path:
            yield council.retrieval.path, False
    for host in config.plant.hosts:
        if isinstance(key := host.options.get("key_file"), str):
            yield os.path.normpath(os.path.join(home, os.path.expanduser(key))), False
        if isinstance(host.options.get("work_dir"), str):
            yield os.path.normpath(os.path.join(home, work_dir(config, host))), False


def _is_same(one: int | str, other: str) -> bool:
    try:
        return os.path.samestat(os.stat(one), os.stat(other))
    except OSError:  # one is not there yet
        return one == other
