"""Where results may be saved: a path that stays inside the folder for outputs, and is no file of ours."""

from __future__ import annotations

import os

from penstock.config.document import Config
from penstock.config.problems import kind_of, quoted

MAX_PATH = 1024
MAX_NAME_BYTES = 255  # what file systems take


def output_problem(output: object, config: Config | None = None) -> str | None:
    """What is wrong with a task's `output`; without a config, only what holds under any."""
    if not isinstance(output, str) or not output:
        return f"must be the path of a file, not {kind_of(output)}"
    if len(output) > MAX_PATH:
        return f"is {len(output)} characters long; at most {MAX_PATH}"
    if not output.isprintable():
        return "must be one line without control characters"
    name = os.path.basename(output)
    if name in ("", ".", ".."):
        return f"{quoted(output)} is a folder; name a file in it"
    try:
        longest = max(len(part.encode()) for part in output.split("/"))
    except UnicodeEncodeError:
        return "is not UTF-8 text"
    if longest > MAX_NAME_BYTES:
        return f"has a name of {longest} bytes; at most {MAX_NAME_BYTES}"
    return None if config is None else _misplaced(output, config)


def _misplaced(output: str, config: Config) -> str | None:
    root = config.outputs
    path = saved_at(output, root)
    if not is_inside(path, root):
        return f"{quoted(output)} is outside of {root}; write a path inside it, or set `output_root`"
    if path in own_files(config):
        return f"{quoted(output)} is a file of Penstock's own; choose another"
    return None


def saved_at(output: str, root: str) -> str:
    """The path of an output, absolute and without dots."""
    return os.path.normpath(os.path.join(root, output))


def is_inside(path: str, root: str) -> bool:
    """Both absolute and without dots. The root itself is not inside."""
    return path.startswith(root if root.endswith(os.sep) else root + os.sep)


def own_files(config: Config) -> frozenset[str]:
    """The config and the store: what nobody's result may take the place of."""
    store = config.store
    ours = (
        {store, *(f"{store}{end}" for end in ("-wal", "-shm", "-journal"))} if "://" not in store else set()
    )
    if config.path is not None:
        ours.add(os.path.normpath(config.path.absolute()))
    return frozenset(ours)
