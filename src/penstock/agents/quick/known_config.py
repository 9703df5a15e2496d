"""What a config says of an agent, for a call that has no time to read the config.

Whoever has read it notes beside the agent's endpoints what a call needs, with the files that it came from as they
were then. Files that are still the same still say the same; anything else is no note.

    AGENTS/NAME/config.json     {"version", "files": [[path, time, size], …], "fingerprint", …}

The standard library alone: a warm `agent call` imports it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

CONFIG_NAME = "penstock.toml"  # as config/files.py, which costs more to import than a call
CONFIG_VARIABLE = "PENSTOCK_CONFIG"
DEFAULT_STORE = "penstock.db"
_VERSION = 2
_FILE = "config.json"
_MOST_BYTES = 100_000

Stamp = tuple[str, int, int]  # a file's path, its time in ns, its size


class Known(NamedTuple):
    """Of one agent."""

    fingerprint: str
    health: str
    plain: bool
    start_s: float  # as long as a container may take until it answers
    queue_s: float = 60.0  # for how long one that is full is asked again
    max_tasks: int | None = None
    max_age_s: float | None = None
    image: str = ""
    ends_itself: bool = False  # a container of it that nobody calls


def is_spent(max_tasks: int | None, max_age_s: float | None, done: int, created_at: float) -> bool:
    """Whether another container has to take the place of one that did so many tasks, and was made then."""
    is_old = max_age_s is not None and time.time() - created_at >= max_age_s
    return is_old or (max_tasks is not None and done >= max_tasks)


def found_config(given: str | None, start: str) -> str | None:
    """The config that a command in that folder uses, by the rules of config/files.py."""
    if given is not None:
        return _placed(given, start)
    folder = start
    while True:
        path = os.path.join(folder, CONFIG_NAME)
        if os.path.isfile(path):
            return path
        parent = os.path.dirname(folder)
        if parent == folder:
            break
        folder = parent
    if named := os.environ.get(CONFIG_VARIABLE):
        return _placed(os.path.expanduser(named), start)
    base = os.environ.get("XDG_CONFIG_HOME", "")
    home = base if os.path.isabs(base) else os.path.expanduser("~/.config")
    path = os.path.join(home, "penstock", CONFIG_NAME)
    return path if os.path.isfile(path) else None


def _placed(path: str, start: str) -> str:
    whole = os.path.join(start, path)
    folder, name = os.path.split(whole)
    return (
        os.path.join(os.path.realpath(folder), name) if ".." in whole.split("/") else os.path.normpath(whole)
    )


def usual_agents_dir(config: str) -> str:
    """Where agents are known when the config names no store."""
    return os.path.join(os.path.dirname(config), f"{DEFAULT_STORE}.agents")


def named_agents_dir(config: str, agent: str) -> str | None:
    """Where they are known by what the config says; None: leave it to who reads all of it."""
    import tomllib

    try:
        with open(config, "rb") as file:
            document = tomllib.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    agents, store = document.get("agents"), document.get("store", DEFAULT_STORE)
    if not isinstance(agents, dict) or agent not in agents or not isinstance(store, str) or "://" in store:
        return None
    path = os.path.normpath(os.path.join(os.path.dirname(config), os.path.expanduser(store)))
    return f"{os.path.abspath(path)}.agents"


def is_name(text: str) -> bool:
    """Whether a text can be an agent's name; surely not what leads to another folder."""
    return text[:1].isalnum() and all(c.isalnum() or c in "_-." for c in text) and len(text) < 200


def stamp(path: str) -> Stamp:
    """How a file is now; also that there is none is something to remember."""
    try:
        seen = os.stat(path)
    except OSError:
        return path, -1, -1
    return path, seen.st_mtime_ns, seen.st_size


def read(agents_dir: str, agent: str, config: str) -> Known | None:
    """What was noted of this agent, if it was read from this config as it is."""
    try:
        with open(os.path.join(agents_dir, agent, _FILE), "rb") as file:
            document = json.loads(file.read(_MOST_BYTES))
        if document["version"] != _VERSION or document["files"][0][0] != config:
            return None
        if any(stamp(one[0]) != tuple(one) for one in document["files"]):
            return None
        return Known(**document["known"])
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None


def note(agents_dir: str, agent: str, files: Sequence[Stamp], known: Known) -> None:
    """`files`, the config first, were seen before they were read; those that changed meanwhile are not noted."""
    if any(stamp(one[0]) != one for one in files):
        return
    folder = os.path.join(agents_dir, agent)
    document: dict[str, Any] = {"version": _VERSION, "files": list(files), "known": known._asdict()}
    draft = os.path.join(folder, f"{_FILE}.{os.getpid()}")
    with suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w") as opened:
            json.dump(document, opened)
        os.replace(draft, os.path.join(folder, _FILE))
