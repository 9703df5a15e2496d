"""[beads]: which kind of task an issue becomes, in which lane, who claims it, and where results may go."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.config import keys
from penstock.config.crosschecks import Parts
from penstock.config.problems import Near, Problems, kind_alone
from penstock.config.tables import Table
from penstock.model import DEFAULT_LANE

ORDER, DEADLINE = "order", "deadline"
_LIKE = '{ match = "(?i)^summar", kind = "summarize" }'


@dataclass(frozen=True, slots=True)
class Beads:
    """What `loop --beads` is told. Labels go before patterns, those before types, and `kind` takes the rest."""

    kind: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    patterns: tuple[tuple[str, str], ...] = ()  # what a title must match -> kind
    types: Mapping[str, str] = field(default_factory=dict)
    lane: str = DEFAULT_LANE
    actor: str = "penstock"
    root: str | None = None  # results may be saved below it; None: below the folder that has .beads
    program: str | None = None  # None: `bd`, or else `br`
    due: str = ORDER
    max_claimed: int | None = None


def read_beads(top: Table, folder: Path) -> Beads:
    default = Beads()
    table = top.table("beads", "[beads]")
    if table is None:
        return default
    table.only(keys.BEADS)
    root, program = table.text("root", None), table.text("program", None)
    return Beads(
        kind=_kind(table, "kind"),
        labels=_kinds(table, "labels"),
        patterns=_patterns(table),
        types=_kinds(table, "types"),
        lane=_name(table, "lane") or default.lane,
        actor=_actor(table, default.actor),
        root=None if root is None else os.path.normpath(folder / os.path.expanduser(root)),
        program=program if program is None or "/" not in program else _placed(folder, program),
        due=table.choice("due", default.due, (ORDER, DEADLINE)),
        max_claimed=table.whole("max_claimed", None, keys.COUNT),
    )


def check_beads(beads: Beads, parts: Parts, problems: Problems) -> None:
    """Its lane and its kinds must exist."""
    lanes = parts.lane_names | parts.lanes.keys()
    if beads.lane not in lanes:
        problems.add(("beads", "lane"), "no such lane", Near(beads.lane, lanes, "lanes"))
    served = {kind for host in parts.hosts.values() for kind in host.serves}
    if "*" in served or len(parts.hosts) < len(parts.host_names):
        return  # what a host serves that could not be read is not known
    for path, kind in _named(beads):
        if kind not in served and not any(host.serves_kind(kind) for host in parts.hosts.values()):
            problems.add(("beads", *path), "no host serves this kind", Near(kind, served, "kinds"))


def beads_document(beads: Beads) -> dict[str, Any]:
    default = Beads()
    table: dict[str, Any] = {
        key: value
        for key in keys.BEADS
        if (value := getattr(beads, key)) != getattr(default, key) and value is not None
    }
    if beads.patterns:
        table["patterns"] = [{"match": match, "kind": kind} for match, kind in beads.patterns]
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in table.items()}


def _named(beads: Beads) -> Iterable[tuple[tuple[str | int, ...], str]]:
    if beads.kind is not None:
        yield ("kind",), beads.kind
    for key, kinds in (("labels", beads.labels), ("types", beads.types)):
        for name, kind in kinds.items():
            yield (key, name), kind
    for number, (_, kind) in enumerate(beads.patterns):
        yield ("patterns", number, "kind"), kind


def _name(table: Table, key: str) -> str | None:
    name = table.text(key, None)
    if name is not None and not keys.NAME.fullmatch(name):
        table.refuse(f"must be a name: {keys.NAME_RULE}", key)
        return None
    return name


_kind = _name


def _kinds(table: Table, key: str) -> dict[str, str]:
    inner = table.table(key, '{ docs = "summarize" }')
    if inner is None:
        return {}
    return {name: kind for name in inner.raw if (kind := _kind(inner, name)) is not None}


def _patterns(table: Table) -> tuple[tuple[str, str], ...]:
    given = table.raw.get("patterns", ())
    if not isinstance(given, list | tuple) or len(given) > keys.MAX_PATTERNS:
        table.refuse(
            f"must be a list of at most {keys.MAX_PATTERNS} tables like {_LIKE}, not {kind_alone(given)}",
            "patterns",
        )
        return ()
    found = []
    for number, one in enumerate(given):
        if not isinstance(one, Mapping):
            table.refuse(f"must be a table like {_LIKE}, not {kind_alone(one)}", "patterns", number)
            continue
        inner = Table(one, (*table.path, "patterns", number), table.problems)
        inner.only(keys.PATTERN)
        match, kind = inner.text("match", None), _kind(inner, "kind")
        if match is not None and not _is_pattern(inner, match):
            continue
        for key in keys.PATTERN:
            if key not in inner:
                inner.refuse(f"has no {key}; give both, like {_LIKE}")
        if match is not None and kind is not None:
            found.append((match, kind))
    return tuple(found)


def _is_pattern(table: Table, text: str) -> bool:
    try:
        re.compile(text)
    except re.error as error:
        table.refuse(f"is not a regular expression: {error}", "match")
        return False
    return True


def _actor(table: Table, default: str) -> str:
    actor = table.text("actor", default)
    if actor.startswith("-") or actor != actor.strip():
        table.refuse("must not begin with a dash, nor begin or end with a blank", "actor")
        return default
    return actor


def _placed(folder: Path, program: str) -> str:
    return os.path.normpath(folder / os.path.expanduser(program))
