"""Files that tasks name in their payloads: which of them are not there, as seen from this machine.

What a task of the same file makes is not missing. Hosts say best what is wrong with a file that is there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from penstock.config import Config
from penstock.config.keys import FILE_FIELDS
from penstock.config.outputs import saved_at
from penstock.model import Host, Task

_READER = "file_prompt"


def missing_files(config: Config, tasks: Sequence[Task]) -> dict[str, int]:
    """The paths that are not there, each with how many of the tasks name it."""
    if not any(host.type == _READER for host in config.plant.hosts):
        return {}
    made = {saved_at(task.output, config.outputs) for task in tasks if task.output is not None}
    roots: dict[tuple[str, str | None, str | None], list[str]] = {}
    there: dict[str, bool] = {}
    missing: Counter[str] = Counter()
    for task in tasks:
        route = (task.kind, task.host, task.model)
        if route not in roots:
            roots[route] = _roots(config, config.plant.hosts_for(*route))
        for name in _named(task) if roots[route] else ():
            paths = [os.path.normpath(os.path.join(root, name)) for root in roots[route]]
            for path in paths:
                if path not in there:
                    there[path] = path in made or _exists(path)
            if not any(there[path] for path in paths):
                missing[paths[0]] += 1
    return dict(missing)


def _named(task: Task) -> list[str]:
    payload = task.payload if isinstance(task.payload, dict) else {}
    given = (payload.get(field) for field in FILE_FIELDS)
    return [name for name in given if isinstance(name, str) and name]


def _roots(config: Config, hosts: Sequence[Host]) -> list[str]:
    """Where the hosts that may take a task look for its files; none when some of them do not read any."""
    if not all(host.type == _READER for host in hosts):
        return []
    folder = os.getcwd() if config.path is None else str(config.path.parent)
    return [os.path.join(folder, str(host.options.get("root") or "")) for host in hosts]


def _exists(path: str) -> bool:
    try:
        return os.path.exists(path)
    except ValueError:  # no path at all
        return False
