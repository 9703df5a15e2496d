"""E7: what the page of a task says of its state."""

from __future__ import annotations

import pytest

from penstock.diagnosis.waits import Stay
from penstock.diagnosis.why.answer import HostDown, Why
from penstock.model import State, Task, TaskRecord
from penstock.web.board.sheet import elapsed, moment
from penstock.web.board.task_reading import Seen
from penstock.web.board.task_words import _meaning


@pytest.mark.parametrize(
    ("down", "told"),
    [
        (None, ["."]),
        (
            HostDown(8.0, "the cluster cannot be reached"),
            [
                ".",
                " That is down since ",
                moment(8.0),
                " (the cluster cannot be reached): how it fares is known when it is back.",
            ],
        ),
    ],
)
def test_one_that_runs_where_nobody_can_look_says_so(down: HostDown | None, told: list[object]) -> None:
    record = TaskRecord(Task("k", id="a"), 1, State.RUNNING, 1, host="far", started_at=2.0)
    seen = Seen(record, [], [], Why(record, 9.0, (), host_down=down), Stay(1.0, 7.0, 2.0))
    assert list(_meaning(seen))[2:] == told


def test_one_that_was_told_to_end_says_so() -> None:
    record = TaskRecord(Task("k", id="a"), 1, State.RUNNING, 1, host="far", started_at=2.0)
    seen = Seen(record, [], [], Why(record, 9.0, (), stopping_since=8.0), Stay(1.0, 7.0, 2.0))
    assert list(_meaning(seen))[3:] == [" It was told to end ", elapsed(8.0), " ago, and does when it can."]


def test_one_that_goes_on_while_nobody_dispatches_says_so() -> None:
    record = TaskRecord(Task("k", id="a"), 1, State.RUNNING, 1, host="far", started_at=2.0)
    seen = Seen(record, [], [], Why(record, 9.0, (), undispatched_since=8.0), Stay(1.0, 7.0, 2.0))
    assert list(_meaning(seen))[3:5] == [" Nobody dispatches since ", moment(8.0)]
