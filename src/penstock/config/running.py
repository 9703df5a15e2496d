"""With what config a dispatcher runs: kept when it begins, so that any command can say how another differs from it.

What is kept are the names of keys, and of each value a digest under a key of its own: whoever reads it learns which
keys differ, and no value. What the options of a command line have set differs from no file: it would be set again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.config.document import Config, as_document
from penstock.config.places import KeyPath
from penstock.config.problems import dotted, file_shown
from penstock.config.wording import NOT_KNOWN, quoted, some
from penstock.model import Plant, Task

# of names that users choose
_SECTIONS = ("hosts", "lanes", "gates", "agents", "councils", "prices", "models")
# Both have the same store, however each of them writes its place; and each server has an address of its own.
_NOT_COMPARED = (("store",), ("server", "advertise"))
_DIGEST_BYTES = 6
_MOST_NAMED = 8
_BY_OPTION = ""


class _Kept(msgspec.Struct):
    salt: str
    groups: dict[str, dict[str, str]]  # hosts.NAME, …, or "" for the rest -> key -> digest of its value


@dataclass(frozen=True, slots=True)
class Difference:
    """Names of keys in which a config differs from that of the running dispatcher."""

    added: tuple[str, ...] = ()  # whole hosts, lanes, …: only this config has them
    removed: tuple[str, ...] = ()  # only the dispatcher has them
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        told = (
            *(f"{name} is new" for name in self.added),
            *(f"{name} is gone" for name in self.removed),
            *(f"{name} differs" for name in self.changed),
        )
        return some(told, _MOST_NAMED)

    def as_record(self) -> dict[str, list[str]]:
        return {"added": list(self.added), "removed": list(self.removed), "changed": list(self.changed)}

    def told(self, config: Config) -> str:
        """The one line that every command says of it."""
        file = file_shown(config.path)
        return f"the running dispatcher has another config than {file}: {self}; restart it to apply {file}"


def record_config(config: Config) -> str:
    """What is kept of a config."""
    salt = secrets.token_hex(8)
    return msgspec.json.encode(_Kept(salt, _groups(config, salt))).decode()


def compare_config(config: Config, recorded: str) -> Difference:
    """How a config differs from the one that was recorded."""
    kept = msgspec.json.decode(recorded, type=_Kept)
    here, there = _groups(config, kept.salt), kept.groups
    return Difference(
        added=tuple(sorted(_only(here, there))),
        removed=tuple(sorted(_only(there, here))),
        changed=tuple(
            sorted(
                f"{group}.{key}".strip(".")
                for group in here.keys() & there.keys()
                for key in _changed(here[group], there[group])
            )
        ),
    )


def _only(here: Mapping[str, Mapping[str, str]], there: Mapping[str, object]) -> Iterator[str]:
    return (name for name, keys in here.items() if name not in there and _BY_OPTION not in keys.values())


def _changed(here: Mapping[str, str], there: Mapping[str, str]) -> Iterator[str]:
    for key in here.keys() | there.keys():
        one, other = here.get(key), there.get(key)
        if one != other and _BY_OPTION not in (one, other):
            yield key


def _groups(config: Config, salt: str) -> dict[str, dict[str, str]]:
    groups: dict[str, dict[str, str]] = {"": {}}

    def put(path: KeyPath, digest: str) -> None:
        if path[0] in _SECTIONS:
            groups.setdefault(dotted(path[:2]), {})[dotted(path[2:3])] = digest
        else:
            groups[""][dotted(path[:2])] = digest

    for path, value in _keys(as_document(config)):
        if path not in _NOT_COMPARED:
            put(path, _digest(value, salt))
    for path in config.settings:
        put(path, _BY_OPTION)
    return groups


def _keys(document: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Any]]:
    """Each key with its value: `hosts.NAME.slots`, `retry.base_s`, `aging_s`; what lies deeper belongs to these."""
    for key, value in document.items():
        if key in _SECTIONS:
            for name, inner in value.items():
                if isinstance(inner, Mapping):
                    yield from (((key, name, option), one) for option, one in inner.items())
                else:
                    yield (key, name), inner
        elif isinstance(value, Mapping):
            yield from (((key, option), one) for option, one in value.items())
        else:
            yield (key,), value


def _digest(value: Any, salt: str) -> str:
    text = msgspec.json.encode(value, order="deterministic")
    return hashlib.blake2b(text, key=salt.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def knows_all(plant: Plant, ours: Plant) -> bool:
    """Whether a dispatcher has every lane, host and kind that we could ask it for."""
    hosts = {host.name: host for host in plant.hosts}
    return {lane.name for lane in ours.lanes} <= {lane.name for lane in plant.lanes} and all(
        host.name in hosts and all(kind in hosts[host.name].serves for kind in host.serves)
        for host in ours.hosts
    )


def unknown_there(tasks: Iterable[Task], plant: Plant) -> Iterator[str]:
    """What tasks ask for that a running dispatcher does not have, told once for each name."""
    lanes = {lane.name for lane in plant.lanes}
    hosts = {host.name for host in plant.hosts}
    seen: set[object] = set()
    for task in tasks:
        shape = (task.lane, task.kind, task.host)
        if shape in seen:
            continue
        seen.add(shape)
        if task.lane not in lanes:
            unknown = ("lane", task.lane)
        elif task.host is not None and task.host not in hosts:
            unknown = ("host", task.host)
        elif not plant.hosts_for(task.kind, task.host):
            unknown = ("kind", task.kind)
        else:
            continue
        if unknown not in seen:
            seen.add(unknown)
            yield f"{unknown[0]} {quoted(unknown[1])}: {NOT_KNOWN}"
