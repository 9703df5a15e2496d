"""From an issue to a task: its kind by labels, title and type, its place by priority, and its payload. Pure.

A due date puts an issue before others of its priority. It fails nobody, unless the config says that it does.
"""

from __future__ import annotations

import re
from typing import Any

from penstock.config.beads import DEADLINE, Beads
from penstock.config.keys import NAME
from penstock.intake.beads.issues import Issue, stamp
from penstock.model import Task

KIND_LABEL = "kind:"  # `kind:summarize` names the kind outright
PAYLOAD = "payload"  # of an issue's metadata: what its task is given, instead of its text
_OUTPUT = re.compile(
    r"^[ \t>*_-]*output path[*_]*[ \t]*:[*_]*[ \t]*(.*?)[ \t]*$", re.IGNORECASE | re.MULTILINE
)


def kind_of(issue: Issue, rules: Beads) -> str | None:
    """The kind of its task; None when no rule knows one."""
    for label in issue.labels:
        named = label.removeprefix(KIND_LABEL)
        if named != label and NAME.fullmatch(named):
            return named
    for label in issue.labels:
        if label in rules.labels:
            return rules.labels[label]
    for pattern, kind in rules.patterns:
        if re.search(pattern, issue.title):
            return kind
    return rules.types.get(issue.issue_type, rules.kind)


def task_of(issue: Issue, kind: str, rules: Beads, key: str, *, with_issue: bool = True) -> Task:
    """The task that does an issue. Without the issue it is a call that any model server takes."""
    return Task(
        kind=kind,
        payload=_payload(issue, with_issue=with_issue),
        priority=issue.priority,
        lane=rules.lane,
        key=key,
        deadline=issue.due_at if rules.due == DEADLINE else None,
    )


def output_path(issue: Issue) -> str | None:
    """Where the description wants the result: `Output path: reports/x.md`."""
    found = _OUTPUT.search(issue.description)
    if found is None:
        return None
    return found[1].strip("`\"'*_ \t") or None


def prompt(issue: Issue) -> str:
    """What is asked, as one text."""
    parts = [issue.title, _OUTPUT.sub("", issue.description)]
    if issue.design.strip():
        parts.append(f"Design:\n{issue.design}")
    if issue.acceptance_criteria.strip():
        parts.append(f"Acceptance criteria:\n{issue.acceptance_criteria}")
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _payload(issue: Issue, *, with_issue: bool) -> Any:
    given = issue.metadata.get(PAYLOAD)
    if given is not None:
        return given
    asked = {"prompt": prompt(issue)}
    return {**asked, "issue": _told(issue)} if with_issue else asked


def _told(issue: Issue) -> dict[str, Any]:
    told = {
        "id": issue.id,
        "title": issue.title,
        "description": issue.description,
        "design": issue.design,
        "acceptance_criteria": issue.acceptance_criteria,
        "notes": issue.notes,
        "type": issue.issue_type,
        "priority": issue.priority,
        "labels": list(issue.labels),
        "dependencies": [{"on": other.on, "type": other.type} for other in issue.dependencies],
        "due_at": None if issue.due_at is None else stamp(issue.due_at),
    }
    return {name: value for name, value in told.items() if value not in ("", None, [])}
