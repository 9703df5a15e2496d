"""C3: the readiness rules of Beads as a table, and an issue as any version may write it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.intake.beads.issues import BadIssue, Dependency, Issue, epoch, read_issue, stamp
from penstock.intake.beads.readiness import NO_WORK, ready

NOW = 1_800_000_000.0
LATER, BEFORE = stamp(NOW + 60), stamp(NOW - 60)


def issue(id: str = "bd-1", **fields: Any) -> dict[str, Any]:
    return {"id": id, "title": id, "status": "open", "priority": 2, "issue_type": "task", **fields}


def on(other: str, type: str = "blocks") -> dict[str, Any]:
    return {"issue_id": "bd-1", "depends_on_id": other, "type": type, "created_at": BEFORE, "created_by": "x"}


def blocked_by(status: str, type: str = "blocks") -> list[dict[str, Any]]:
    return [issue(dependencies=[on("bd-2", type)]), issue("bd-2", status=status)]


def child_of(parent: dict[str, Any], *others: dict[str, Any]) -> list[dict[str, Any]]:
    return [issue(dependencies=[on("bd-2", "parent-child")]), {**issue("bd-2"), **parent}, *others]


# What there is; whether bd-1 is ready, or a word of what keeps it (None: it is not even open).
RULES: list[tuple[str, list[dict[str, Any]], bool | str | None]] = [
    ("open", [issue()], True),
    *[
        (f"status {status}", [issue(status=status)], None)
        for status in ("in_progress", "blocked", "deferred", "closed", "pinned", "hooked", "tombstone", "review")
    ],
    ("pinned", [issue(pinned=True)], "pinned"),
    ("not pinned", [issue(pinned=False)], True),
    ("ephemeral", [issue(ephemeral=True)], "ephemeral"),
    *[(f"type {type}", [issue(issue_type=type)], type) for type in sorted(NO_WORK)],
    *[
        (f"type {type}", [issue(issue_type=type)], True)
        for type in ("bug", "feature", "task", "epic", "chore", "decision", "own")
    ],
    ("put off", [issue(defer_until=LATER)], "put off"),
    ("put off no longer", [issue(defer_until=BEFORE)], True),
    ("put off until now", [issue(defer_until=stamp(NOW))], True),
    ("put off until nobody knows", [issue(defer_until="soon")], True),
    *[
        (f"blocked by {status}", blocked_by(status), "bd-2")
        for status in ("open", "in_progress", "blocked", "deferred", "hooked", "review")
    ],
    *[(f"blocked by {status}", blocked_by(status), True) for status in ("closed", "pinned", "tombstone")],
    ("conditionally blocked", blocked_by("open", "conditional-blocks"), "bd-2"),
    *[
        (f"{type} blocks nobody", blocked_by("open", type), True)
        for type in ("related", "discovered-from", "waits-for-nobody")
    ],
    ("blocked by what is missing", [issue(dependencies=[on("bd-9")])], True),
    ("one of two blockers is left", [issue(dependencies=[on("bd-2"), on("bd-3")]), issue("bd-2", status="closed"),
                                     issue("bd-3")], "bd-3"),
    ("child of an open parent", child_of({}), True),
    ("child of a closed parent", child_of({"status": "closed"}), True),
    ("child of a parent put off", child_of({"defer_until": LATER}), "bd-2"),
    ("child of a parent put off no longer", child_of({"defer_until": BEFORE}), True),
    ("child of a parent that waits", child_of({"dependencies": [on("bd-3")]}, issue("bd-3")), "bd-2"),
    ("child of a parent that waited", child_of({"dependencies": [on("bd-3")]}, issue("bd-3", status="closed")),
     True),
    ("child of a blocked parent", child_of({"status": "blocked"}), "bd-2"),
    ("child of a missing parent", [issue(dependencies=[on("bd-9", "parent-child")])], True),
    (
        "grandchild of a parent put off",
        child_of({"dependencies": [on("bd-3", "parent-child")]}, issue("bd-3", defer_until=LATER)),
        "bd-3",
    ),
    (
        "grandchild of a parent that waits",
        child_of({"dependencies": [on("bd-3", "parent-child")]}, issue("bd-3", dependencies=[on("bd-4")]),
                 issue("bd-4")),
        "bd-3",
    ),
    ("its own parent", [issue(dependencies=[on("bd-1", "parent-child")])], True),
    (
        "parents in a circle",
        child_of({"dependencies": [on("bd-1", "parent-child")]}),
        True,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("there", "expected"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
def test_c3_readiness(there: list[dict[str, Any]], expected: bool | str | None) -> None:
    """C3: ready is what the rules of Beads call ready, and what is open and not ready says why."""
    found = ready(map(read_issue, there), NOW)
    is_ready = "bd-1" in [one.id for one in found.ready]
    assert is_ready == (expected is True)
    reason = found.held.get("bd-1")
    if isinstance(expected, str):
        assert reason is not None
        assert expected in reason
    else:
        assert reason is None


def test_c3_a_circle_of_parents_hides_no_deferral() -> None:
    """C3: whoever is asked first, all in the circle hear of it."""
    circle = [
        issue("bd-1", dependencies=[on("bd-2", "parent-child")]),
        issue("bd-2", dependencies=[on("bd-1", "parent-child"), on("bd-3", "parent-child")]),
        issue("bd-3", defer_until=LATER),
    ]
    for some in (circle, circle[::-1]):
        assert set(ready(map(read_issue, some), NOW).held) == {"bd-1", "bd-2", "bd-3"}


def test_c3_the_most_urgent_comes_first_and_due_dates_decide_between_equals() -> None:
    """C3: priorities and due dates are kept."""
    there = [
        issue("bd-1", created_at=BEFORE),
        issue("bd-2", created_at=stamp(NOW - 90)),
        issue("bd-3", due_at=LATER),
        issue("bd-4", due_at=stamp(NOW + 30)),
        issue("bd-5", priority=0),
        issue("bd-6", priority=4, due_at=BEFORE),
    ]
    found = ready(map(read_issue, there), NOW)
    assert [one.id for one in found.ready] == ["bd-5", "bd-4", "bd-3", "bd-2", "bd-1", "bd-6"]


def test_c3_when_to_look_again() -> None:
    """C3: the next deferral ends the wait, without polling."""
    there = [issue("bd-1", defer_until=LATER), issue("bd-2", defer_until=stamp(NOW + 5)), issue("bd-3")]
    assert ready(map(read_issue, there), NOW).next_at == NOW + 5
    assert ready([], NOW).next_at is None


def test_c3_deep_parents_are_no_trouble() -> None:
    """C3: a chain of ten thousand parents is walked, not recursed."""
    chain = [
        Issue(f"bd-{n}", dependencies=(Dependency(f"bd-{n + 1}", "parent-child"),)) for n in range(10_000)
    ]
    assert len(ready(chain, NOW).ready) == 10_000
    assert not ready([*chain, Issue("bd-10000", defer_until=NOW + 1)], NOW).ready


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-01T00:00:00Z", 1767225600.0),
        ("2026-01-01T01:00:00+01:00", 1767225600.0),
        ("2026-01-01T00:00:00.5Z", 1767225600.5),
        ("2026-01-01T00:00:00.123456789Z", 1767225600.123456),
        ("2025-12-31T16:00:00.1-08:00", 1767225600.1),
        ("2026-01-01T00:00:00", 1767225600.0),
        ("2026-01-01", 1767225600.0),
        ("", None),
        ("tomorrow", None),
        ("0001-01-01T00:00:00Z", -62135596800.0),
        (5, None),
    ],
)
def test_c3_times_of_every_form(text: Any, seconds: float | None) -> None:
    """C3: Go's nanoseconds, any zone, or none."""
    assert epoch(text) == seconds


def test_c3_what_is_written_is_read() -> None:
    """C3."""
    assert epoch(stamp(NOW + 0.25)) == NOW + 0.25


@pytest.mark.parametrize(
    "strange",
    [
        {
            "priority": "high",
            "labels": "docs",
            "dependencies": {"a": 1},
            "metadata": [1],
            "title": 5,
            "pinned": "no",
        },
        {
            "priority": 9,
            "labels": [1, None, ""],
            "dependencies": [1, {"type": "blocks"}, {"depends_on_id": 4}],
        },
        {
            "priority": True,
            "due_at": 17,
            "defer_until": {},
            "created_at": None,
            "status": None,
            "issue_type": "",
        },
        {},
    ],
)
def test_c3_strange_fields_have_a_plain_meaning(strange: dict[str, Any]) -> None:
    """C3: only the id is indispensable."""
    assert read_issue({"id": "bd-1", **strange}) == Issue("bd-1", title="")


@pytest.mark.parametrize(
    "bad", [None, [], "bd-1", {}, {"id": 1}, {"id": ""}, {"id": "--help"}, {"id": "a\nb"}, {"id": "x" * 201}]
)
def test_c3_what_has_no_usable_id_is_no_issue(bad: Any) -> None:
    """C3: an id becomes an argument of a program and part of a key."""
    with pytest.raises(BadIssue):
        read_issue(bad)


def test_c3_dependencies_as_show_tells_them() -> None:
    """C3: `bd show` gives the other issue itself."""
    found = read_issue(
        {"id": "bd-1", "dependencies": [{"id": "bd-2", "status": "open", "dependency_type": "blocks"}]}
    )
    assert found.dependencies == (Dependency("bd-2", "blocks"),)
