"""Which council is meant, and which task is a question of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.config.councils import Council
from penstock.config.problems import meant
from penstock.errors import TaskError, UnknownTask
from penstock.model import TaskRecord

EXAMPLE = """[councils.shenron]
members = [
  { name = "GOKU", emoji = "🥋", role = "the direct thinker", model = "MODEL" },
  { name = "VEGETA", emoji = "👑", role = "the critic", model = "MODEL" },
]"""


def council_named(councils: Mapping[str, Council], name: str | None, remedy: str = "name one") -> Council:
    """That one; without a name the only one. TaskError says what is wrong, and `remedy` how to name one."""
    if not councils:
        raise TaskError("there is no council in this config; add a table [councils.NAME] to it")
    if name is None:
        if len(councils) > 1:
            raise TaskError(f"which council? There are {', '.join(councils)}; {remedy}")
        return next(iter(councils.values()))
    if name not in councils:
        raise TaskError(f"there is no council {name!r}{meant(name, list(councils), 'councils')}")
    return councils[name]


def must_be_question(record: TaskRecord, councils: Mapping[str, Council]) -> Council | None:
    """The council that was asked; None where the config has it no more."""
    kind = record.task.kind
    found = next((one for one in councils.values() if one.kind == kind), None)
    if found is None and not is_record(record.value):
        raise UnknownTask(
            f"{record.task.id!r} is a task of kind {kind!r}, no question; `penstock council history` lists those"
        )
    return found


def is_record(value: Any) -> bool:
    return isinstance(value, Mapping) and "query" in value and "responses" in value


def disputes_in(record: Mapping[str, Any]) -> int | None:
    """How many points the chair found in dispute; None where it gave no list, or there is no such record."""
    agreement = record.get("agreement")
    disputes = agreement.get("disputes") if isinstance(agreement, Mapping) else None
    return len(disputes) if isinstance(disputes, list | tuple) else None
