"""How figures are told to people, wherever they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.lifecycle import UNWELL
from penstock.model import State, TaskRecord


def percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.0995 or share == 0 else f"{share * 100:.1f} %"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def count_unwell(records: Iterable[TaskRecord]) -> dict[str, int]:
    """How many tasks failed, were cancelled, and are blocked: three figures that are never added up."""
    states = [record.state for record in records]
    return {str(state): states.count(state) for state in UNWELL}


def name_unwell(counts: Mapping[State, int] | Mapping[str, int]) -> str:
    """Like "17 failed, 9 cancelled"; empty when all is well."""
    by_name = {str(state): count for state, count in counts.items()}
    return ", ".join(f"{by_name[state]} {state}" for state in map(str, UNWELL) if by_name.get(state))
