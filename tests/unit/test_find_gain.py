"""What findings foretell (E2): how soon a run could have ended, had its tasks been dealt out without the fault."""

from __future__ import annotations

import pytest

from penstock.diagnosis.finders import ideal
from penstock.diagnosis.finders.scene import Scene
from penstock.model import Host, Lane, Plant
from tests.unit.recording_rig import Row, recording

STAIRS = [Row(f"t{i}", 10.0 * i, 10.0 * i + 10, host="a", queued=0.0) for i in range(6)]


def scene(rows: list[Row], *, slots: int = 3, lanes: tuple[Lane, ...] = ()) -> Scene:
    return Scene(recording(rows, plant=Plant((Host("a", "python", slots),), lanes)))


def test_work_is_done_by_all_slots() -> None:
    one = scene(STAIRS)
    assert ideal.gain_s(one, ideal.pieces(one)) == pytest.approx(60 - 20)
    assert ideal.gain_s(one, ideal.pieces(one), slots={"a": 6}) == pytest.approx(60 - 10)


def test_a_run_cannot_end_before_its_last_task_has_come_and_run() -> None:
    one = scene([*STAIRS[:5], Row("late", 50.0, 60.0, host="a", queued=50.0)])
    assert ideal.gain_s(one, ideal.pieces(one)) == 0.0


def test_a_lane_keeps_its_limit_unless_that_is_the_fault() -> None:
    one = scene(STAIRS, lanes=(Lane("default", max_running=1),))
    assert ideal.gain_s(one, ideal.pieces(one)) == 0.0
    assert ideal.gain_s(one, ideal.pieces(one), lifted=["default"]) == pytest.approx(40)


def test_other_durations_and_attempts_that_need_not_have_been() -> None:
    one = scene(STAIRS, slots=1)
    assert ideal.gain_s(one, ideal.pieces(one, seconds=lambda t: 5.0)) == pytest.approx(30)
    kept = ideal.pieces(one, seconds=lambda t: None if t.task.id == "t0" else 10.0)
    assert ideal.gain_s(one, kept) == pytest.approx(10)


def test_on_another_host_work_takes_what_it_takes_there() -> None:
    """Six wait for the quick one; the slow one takes three times as long for the same."""
    rows = [Row(f"q{i}", 10.0 * i, 10.0 * i + 10, host="a", queued=0.0) for i in range(8)]
    rows += [Row(f"s{i}", 30.0 * i, 30.0 * i + 30, host="b", queued=30.0 * i) for i in range(3)]
    one = Scene(recording(rows))
    assert ideal.gain_s(one, ideal.pieces(one)) == pytest.approx(0.0, abs=10.0)
    assert ideal.able(one, one.turns[0]) == ("a", "b")
