"""Which issues may be worked on, by the rules of Beads, and what keeps the others. Pure: the time is given.

Ready is what is open, neither pinned nor ephemeral, of a type that is work, not put off (nor its parent), not
waiting for an issue that is still alive, and not a child of one that waits. An issue that is not there blocks
nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from penstock.intake.beads.issues import BLOCKED, CLOSED, OPEN, PINNED, Issue, stamp

# What only tells of work, or holds it together.
NO_WORK = frozenset({"merge-request", "gate", "molecule", "message", "agent", "role", "rig"})

BLOCKING = frozenset({"blocks", "conditional-blocks"})
PARENT = "parent-child"
_OVER = frozenset({CLOSED, PINNED})  # blocks nobody any more
_GONE = _OVER | {"tombstone"}  # and what was deleted does not either


class Readiness(NamedTuple):
    ready: tuple[Issue, ...]  # the most urgent first
    held: Mapping[str, str]  # issues that are open, and what keeps each of them
    next_at: float | None  # when the next of them is put off no longer
    strange: Mapping[str, str] = MappingProxyType({})  # what is there and is no issue, and where that is


def ready(issues: Iterable[Issue], now: float) -> Readiness:
    known = {issue.id: issue for issue in issues}
    by_parents = _held_by_parents(known, now)
    found: list[Issue] = []
    held: dict[str, str] = {}
    for issue in known.values():
        if issue.status != OPEN:
            continue
        reason = _own_reason(issue, now) or _blocker(issue, known) or by_parents.get(issue.id)
        if reason is None:
            found.append(issue)
        else:
            held[issue.id] = reason
    later = [i.defer_until for i in known.values() if i.defer_until is not None and i.defer_until > now]
    return Readiness(tuple(sorted(found, key=order)), held, min(later, default=None))


def order(issue: Issue) -> tuple[float, float, float, str]:
    """By priority; of one priority what is due first, then the oldest."""
    due = inf if issue.due_at is None else issue.due_at
    return issue.priority, due, issue.created_at or 0.0, issue.id


def is_work(issue: Issue, now: float) -> bool:
    """Whether an issue alone says that it may be worked on, whatever the others are."""
    return issue.status == OPEN and _own_reason(issue, now) is None


def _own_reason(issue: Issue, now: float) -> str | None:
    if issue.pinned:
        return "it is pinned"
    if issue.ephemeral:
        return "it is ephemeral"
    if issue.issue_type in NO_WORK:
        return f"its type is {issue.issue_type}"
    return _deferral(issue, now)


def _deferral(issue: Issue, now: float) -> str | None:
    if issue.defer_until is not None and issue.defer_until > now:
        return f"it is put off until {stamp(issue.defer_until)}"
    return None


def _blocker(issue: Issue, known: Mapping[str, Issue]) -> str | None:
    for other in issue.dependencies:
        target = known.get(other.on)
        if other.type in BLOCKING and target is not None and target.status not in _GONE:
            return f"it waits for {target.id}, which is {target.status}"
    return None


def _held_by_parents(known: Mapping[str, Issue], now: float) -> dict[str, str]:
    """What the parents of issues, and theirs, say about them: told downwards, so that a circle is no trouble."""
    children: dict[str, list[str]] = {}
    for issue in known.values():
        for other in issue.dependencies:
            if other.type == PARENT and other.on != issue.id:
                children.setdefault(other.on, []).append(issue.id)
    told: dict[str, str] = {}
    for name in children:
        parent = known.get(name)
        if parent is None or parent.status in _GONE:
            continue
        if _deferral(parent, now) is not None:
            _tell_below(name, f"its parent {name} is put off", children, known, told)
        elif parent.status == BLOCKED or _blocker(parent, known) is not None:
            _tell_below(name, f"its parent {name} is blocked", children, known, told)
    return told


def _tell_below(
    top: str, reason: str, children: Mapping[str, list[str]], known: Mapping[str, Issue], told: dict[str, str]
) -> None:
    below = [top]
    while below:
        for child in children.get(below.pop(), ()):
            if child not in told and child != top:
                told[child] = reason
                if known[child].status not in _GONE:  # what is over holds nobody
                    below.append(child)
