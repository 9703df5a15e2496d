"""A record told as events, and events gathered into as much of a record as there is (D6)."""

from __future__ import annotations

from typing import Any

from penstock.model import State, Task, TaskRecord
from penstock.web.council_events import events_of_record, record_so_far
from tests.unit.course_rig import council

COUNCIL = council("GOKU", "VEGETA")
GOKU = {"name": "GOKU", "fighter": "GOKU", "success": True, "answer": "It scatters."}
VEGETA = {"name": "VEGETA", "fighter": "VEGETA", "success": False, "error": "timed out"}
BALLOT = {"reviewer": "GOKU", "ranks": ["VEGETA"], "state": "counted"}
AGREEMENT = {"measured": True, "score": 0.5, "how": "words"}
SYNTHESIS = {"by": "SHENRON", "text": "It scatters.", "method": "synthesis"}
RETRIEVAL = {"used": True, "passages": [{"n": 1}], "problem": None}


def record(state: State, value: Any = None, **payload: Any) -> TaskRecord:
    task = Task("council-shenron", {"query": "Why?", **payload}, id="q-1", run="c-1", queued_at=5.0)
    return TaskRecord(
        task, 1, state, value=value, ended_at=9.0, error="no" if state is State.FAILED else None
    )


def test_a_record_is_told_in_the_order_of_its_stages() -> None:
    value = {
        "retrieval": RETRIEVAL,
        "responses": [GOKU, VEGETA],
        "review": {"ballots": [BALLOT]},
        "agreement": AGREEMENT,
        "synthesis": SYNTHESIS,
    }
    told = events_of_record(record(State.DONE, value))
    assert [(event["event"], event.get("name")) for event in told] == [
        ("retrieval", None),
        ("answer", "GOKU"),
        ("answer", "VEGETA"),
        ("review", "GOKU"),
        ("agreement", None),
        ("synthesis", None),
        ("done", None),
    ]
    assert {event["at"] for event in told} == {9.0}
    assert told[-1]["record"] == value


def test_whatever_a_store_holds_the_end_is_told() -> None:
    for state, kind in ((State.FAILED, "failed"), (State.CANCELLED, "cancelled"), (State.BLOCKED, "failed")):
        for value in (None, "text", {"responses": "none", "review": [], "agreement": 1, "retrieval": 7}):
            (last,) = events_of_record(record(state, value))
            assert (last["event"], last["record"]) == (kind, value)
    assert last["error"] is None


def test_what_was_heard_so_far_is_a_part_of_a_record() -> None:
    heard: list[dict[str, Any]] = [
        {"event": "stage", "at": 1.0, "stage": "retrieve"},
        {"event": "retrieval", "at": 1.0, "step": "retrieve", **RETRIEVAL},
        {"event": "answer", "at": 2.0, "step": "member/VEGETA", **VEGETA},
        {"event": "answer", "at": 3.0, "step": "member/GOKU", **GOKU},
        {"event": "review", "at": 4.0, "step": "review/GOKU", "name": "GOKU", **BALLOT},
        {"event": "agreement", "at": 4.0, "step": "agreement", **AGREEMENT},
    ]
    found = record_so_far(COUNCIL, record(State.RUNNING, conversation="c-1"), heard)
    assert found["responses"] == [GOKU, VEGETA], "in configured order"
    assert (found["success_count"], found["total_fighters"]) == (1, 2)
    assert found["retrieval"] == RETRIEVAL
    assert found["review"] == {"ballots": [{"name": "GOKU", **BALLOT}]}
    assert (found["agreement"], found["synthesis"]) == (AGREEMENT, None)
    assert (found["id"], found["conversation"], found["mode"]) == ("q-1", "c-1", "council")
    none = record_so_far(COUNCIL, record(State.QUEUED, members=["GOKU"], mode="quick"), [])
    assert (none["responses"], none["review"], none["total_fighters"], none["mode"]) == ([], None, 1, "quick")
