"""`--set hosts.fenrir.slots=4`, `--unset gates.vram`: single keys of a document, set or left out before it is read.

What they make of the config is checked like a file; only what would be mistaken there for a new host
or lane is refused here.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.config.councils import COUNCIL_PREFIX
from penstock.config.keys import ALIASES
from penstock.config.places import KeyPath
from penstock.config.problems import Near, Problems, file_shown, quoted
from penstock.errors import ConfigError
from penstock.model import DEFAULT_LANE

_NAMED = ("hosts", "lanes", "gates", "agents", "councils")
# One of these is what a new one cannot be without.
_NEEDED = {"hosts": ("type",), "agents": ("image", "path"), "councils": ("members",)}


def apply_settings(
    document: dict[str, Any], settings: Mapping[str, Any]
) -> tuple[dict[str, Any], list[KeyPath]]:
    """The document with every setting in its place, and those places."""
    problems = Problems()
    paths: list[KeyPath] = []
    changed = dict(document)
    for key, value in settings.items():
        path = _path_of(key, document)
        if path is None:
            problems.add((key,), "is not a key like hosts.NAME.slots")
        elif not _put(changed, path, _value_of(value)):
            problems.add(path, "is not a table, so nothing in it can be set")
        else:
            paths.append(path)
    for path in paths:
        _refuse_newcomer(path, paths, document, problems)
    if problems:
        raise ConfigError(problems.told(file_shown(None), dict, [(), *paths]))
    return changed, paths


def leave_out(document: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The document without these keys, or without a whole host, lane or gate."""
    problems = Problems()
    changed = dict(document)
    for key in keys:
        path = _path_of(key, document)
        if path is None:
            problems.add((key,), "is not a key like gates.NAME")
        else:
            _take(changed, path, problems)
    if problems:
        raise ConfigError(problems.told("--unset", dict))
    return changed


def _take(table: dict[str, Any], path: KeyPath, problems: Problems) -> None:
    for length, part in enumerate(path[:-1]):
        inner = table.get(str(part))
        if not isinstance(inner, Mapping):
            problems.add(path[: length + 1], "there is nothing to leave out", Near(part, table, "there are"))
            return
        table[str(part)] = table = dict(inner)
    if table.pop(str(path[-1]), None) is None:
        problems.add(path, "there is nothing to leave out", Near(path[-1], table, "there are"))


def _path_of(key: str, document: Mapping[str, Any]) -> KeyPath | None:
    """The parts of a dotted key. The names of hosts, lanes and gates may themselves have dots."""
    parts = _split(key) or _split_at_name(key, document)
    if parts is None:
        return None
    if parts[0] in _NAMED:
        names = document.get(parts[0], {})
        for length in range(len(parts) - 1, 1, -1):
            if (name := ".".join(parts[1 : 1 + length])) in names and len(parts) > 1 + length:
                parts[1 : 1 + length] = [name]
                break
    return tuple(ALIASES.get(part, part) for part in parts)


def _split(key: str) -> list[str] | None:
    import tomllib

    try:
        inner: Any = tomllib.loads(f"{key} = 0")
    except (ValueError, RecursionError):
        return None
    parts: list[str] = []
    while isinstance(inner, dict):
        if len(inner) != 1:
            return None
        part, inner = next(iter(inner.items()))
        parts.append(part)
    return parts


def _split_at_name(key: str, document: Mapping[str, Any]) -> list[str] | None:
    """A key with the name of a host, lane or gate in it that would need quotes, such as `celery@gpu1`."""
    section, _, rest = key.strip().partition(".")
    if section not in _NAMED:
        return None
    for name in sorted(document.get(section, {}), key=len, reverse=True):
        if rest == name:
            return [section, name]
        if rest.startswith(f"{name}.") and (inner := _split(rest.removeprefix(f"{name}."))):
            return [section, name, *inner]
    return None


def _value_of(value: Any) -> Any:
    """Text is read as TOML would; what is no TOML value is the text itself."""
    if not isinstance(value, str):
        return value
    import tomllib

    try:
        document = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        return value
    found = document.get("value")
    dated = isinstance(found, datetime.date | datetime.time)  # no key of ours takes one: it is a name
    return value if dated or len(document) != 1 else found


def _put(table: dict[str, Any], path: KeyPath, value: Any) -> bool:
    """Set a value deep inside, on copies, so that the document it came from stays as it was."""
    for part in path[:-1]:
        inner = table.get(str(part), {})
        if not isinstance(inner, Mapping):
            return False
        table[str(part)] = table = dict(inner)
    table[str(path[-1])] = value
    return True


def _refuse_newcomer(
    path: KeyPath, paths: list[KeyPath], document: Mapping[str, Any], problems: Problems
) -> None:
    """A misspelt name would quietly make a lane nobody uses, or a host without a type."""
    if len(path) < 3 or path[0] not in ("hosts", "lanes", "agents", "councils"):
        return
    section, name = str(path[0]), str(path[1])
    known = document.get(section, {})
    if name in known or (section == "lanes" and name == DEFAULT_LANE):
        return
    if section == "hosts" and (council := name.removeprefix(COUNCIL_PREFIX)) in document.get("councils", {}):
        problems.add(path, f"that host has no table of its own; what can be set is councils.{council}.slots")
        return
    if not any((section, name, key) in paths for key in _NEEDED.get(section, ())):
        what = section[:-1]
        problems.add(path, f"no {what} {quoted(name)}", Near(name, known, section))
