"""A6: a run as bars: what every piece is, what lies underneath, what stands out, and how many fold into one row."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from penstock.diagnosis.history import Stalled
from penstock.diagnosis.timeline.axis import label, step_s, ticks
from penstock.diagnosis.timeline.bars import Bar, Piece, Sort, task_entry, timeline_of, timeline_record
from penstock.diagnosis.timeline.folding import chosen, fold, means
from penstock.diagnosis.timeline.outliers import far_beyond
from penstock.diagnosis.timeline.palette import WAITS, host_looks, wait_looks
from penstock.diagnosis.waits import REASONS
from penstock.model import Attempt, Host, State, Task, Verdict
from penstock.scheduling.messages import HostChange
from tests.unit.timeline_rig import BEGIN, attempt, huge, record, recording, small, task, wait


def told(bar: Bar) -> list[tuple[str, float, float, str]]:
    return [(p.sort.value, p.start - BEGIN, p.end - BEGIN, p.what) for p in bar.pieces]


def since(steps: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    return [(at - BEGIN, value) for at, value in steps]


# ---- bars


def test_a6_a_bar_has_each_wait_and_each_attempt() -> None:
    first, second, third = timeline_of(small()).bars
    assert told(first) == [("running", 0, 10, "surtr")]
    assert told(second) == [
        ("waiting", 0, 8, "slots:fenrir"),
        ("running", 8, 12, "fenrir"),
        ("waiting", 12, 16, "scheduled"),
        ("running", 16, 20, "surtr"),
    ]
    assert second.pieces[0].detail == "held by lane default ×1"
    assert [(p.attempt, p.verdict, p.detail) for p in second.pieces if p.sort is Sort.RUNNING] == [
        (1, "temporary", "server error 500"),
        (2, "done", ""),
    ]
    assert told(third) == [("waiting", 5, 25, "gate:vram")]
    assert (second.waited_s, second.ran_s) == (12, 8)


def test_what_still_runs_and_what_was_interrupted_are_told_apart() -> None:
    made = timeline_of(
        recording(
            [record(task("t"), 1, State.RUNNING, 6, None)],
            [attempt("t", 1, "surtr", 1, 4, None), attempt("t", 2, "surtr", 6, None)],
            {"t": [wait("order", 0, 1), wait("dispatcher-down", 4, 6)]},
            end=9,
        )
    )
    (bar,) = made.bars
    assert [p.verdict for p in bar.pieces] == ["", "interrupted", "", "running"]
    assert made.is_live
    assert (bar.end - BEGIN, bar.ran_s) == (9, 6)


def test_a_log_without_reasons_has_waits_without_reasons() -> None:
    made = timeline_of(
        recording(
            [record(task("t"), 1, State.DONE, 3, 9), record(task("u"), 2, State.CANCELLED, None, 7)],
            [attempt("t", 1, "x", 1, 2, Verdict.TEMPORARY), attempt("t", 2, "y", 3, 9)],
            {},
            end=9,
            hosts=None,
        )
    )
    assert told(made.bars[0]) == [
        ("waiting", 0, 1, ""),
        ("running", 1, 2, "x"),
        ("waiting", 2, 3, ""),
        ("running", 3, 9, "y"),
    ]
    assert told(made.bars[1]) == [("waiting", 0, 7, "")]
    assert [(use.host, use.available, use.peak) for use in made.hosts] == [("x", (), 1), ("y", (), 1)]
    assert made.reasons == {"": 9}


def test_a_log_that_names_no_host_says_so() -> None:
    made = timeline_of(
        recording(
            [record(task("t"), 1, State.DONE, 0, 9)], [attempt("t", 1, "", 0, 9)], {}, end=9, hosts=None
        )
    )
    assert told(made.bars[0]) == [("running", 0, 9, "host not told")]
    assert [use.host for use in made.hosts] == ["host not told"]


def test_the_time_between_an_end_and_a_revival_is_no_wait() -> None:
    (bar,) = timeline_of(
        recording(
            [record(task("t"), 1, State.DONE, 20, 22)],
            [attempt("t", 1, "surtr", 0, 2, Verdict.PERMANENT), attempt("t", 2, "surtr", 20, 22)],
            {"t": [wait("order", 18, 20)]},
            end=22,
        )
    ).bars
    assert told(bar)[1] == ("resting", 2, 18, "")
    assert bar.waited_s == 2


def test_attempts_that_overlap_in_a_log_follow_each_other() -> None:
    (bar,) = timeline_of(
        recording(
            [record(task("t", queued=1), 1, State.DONE, 0, 8)],
            [attempt("t", 1, "x", 0, 6), attempt("t", 2, "y", 4, 8), attempt("t", 3, "z", 5, 5)],
            {},
            end=8,
            hosts=None,
        )
    ).bars
    assert told(bar) == [
        ("running", 0, 6, "x"),
        ("running", 6, 8, "y"),
        ("running", 8, 8, "z"),
    ]


def test_no_task_is_an_empty_timeline() -> None:
    made = timeline_of(replace(small(), tasks=[], attempts=[], waits={}))
    assert (made.bars, made.reasons) == ((), {})
    assert made.seconds == 25


# ---- underneath


def test_slots_in_use_and_those_there_are() -> None:
    others = [Attempt("else", 1, "surtr", "x", BEGIN - 5, 1, BEGIN + 3, Verdict.DONE)]
    changes = [
        HostChange("surtr", BEGIN - 9, "up", 2, ""),
        HostChange("surtr", BEGIN + 12, "down", 2, "no answer"),
        HostChange("surtr", BEGIN + 14, "half-open", 2, ""),
        HostChange("surtr", BEGIN + 15, "up", 3, ""),
        HostChange("surtr", BEGIN + 99, "up", 9, "after its end"),
    ]
    surtr, fenrir = timeline_of(replace(small(), others=others, changes=changes)).hosts
    assert since(surtr.used) == [(0, 1), (10, 0), (16, 1), (20, 0)]
    assert since(surtr.others) == [(0, 1), (3, 0)]
    assert surtr.peak == 2
    assert since(surtr.available) == [(0, 2), (12, 0), (14, 1), (15, 3)]
    assert since(fenrir.available) == [(0, 1)]
    assert since(fenrir.used) == [(0, 0), (8, 1), (12, 0)]


def test_a_task_takes_as_many_slots_as_it_needs() -> None:
    wide = replace(task("t"), needs={"slots": 3, "vram_gb": 8})
    made = timeline_of(
        recording(
            [record(wide, 1, State.DONE, 1, 2)],
            [attempt("t", 1, "big", 1, 2)],
            {"t": [wait("order", 0, 1)]},
            end=2,
            hosts=[Host("big", "simulated", slots=4)],
        )
    )
    assert made.hosts[0].peak == 3


def test_the_queue_counts_those_who_wait() -> None:
    made = timeline_of(small())
    assert since(made.queue) == [(0, 1), (5, 2), (8, 1), (12, 2), (16, 1), (25, 0)]
    assert made.reasons == {"gate:vram": 20, "slots:fenrir": 8, "scheduled": 4}


# ---- what stands out


def kinds(*seconds: float, kind: str = "a") -> list[tuple[str, float]]:
    return [(kind, amount) for amount in seconds]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([1.0] * 9 + [10.0], 1),
        ([1.0, 1.1, 0.9] * 4 + [1.8], 0),  # not twice the median
        ([1.0] * 6 + [10.0], 0),  # of seven nobody knows what is usual
        ([float(n) for n in range(1, 30)], 0),  # a queue that is worked off: each waits a little longer
        ([0.0] * 20 + [0.5], 0),  # less than a hundredth of the run
        ([0.0] * 20 + [5.0], 1),
    ],
)
def test_a6_outliers_stand_out(seconds: list[float], expected: int) -> None:
    found = far_beyond(kinds(*seconds), makespan_s=100)
    assert sum(one is not None for one in found) == expected
    assert all(one is None for one in found[:-1])


def test_a_kind_is_held_against_its_own_only() -> None:
    amounts = kinds(*[1.0] * 10) + kinds(*[60.0] * 10, kind="b")
    assert far_beyond(amounts, 100) == [None] * 20


def test_tasks_that_have_yet_to_run_make_no_outliers_of_those_that_did() -> None:
    ran = [record(task(f"t{n}"), n, State.DONE, 0, 5) for n in range(9)]
    waiting = [record(task(f"w{n}"), 100 + n, State.QUEUED, None, None) for n in range(200)]
    attempts = [attempt(f"t{n}", 1, "surtr", 0, 5) for n in range(9)]
    assert not timeline_of(recording([*ran, *waiting], attempts, {}, end=50)).outliers


def test_outliers_say_what_is_usual() -> None:
    quick = [record(task(f"t{n}"), n, State.DONE, 0, 1) for n in range(9)]
    made = timeline_of(
        recording(
            [*quick, record(task("slow"), 10, State.DONE, 0, 50)],
            [attempt(f"t{n}", 1, "surtr", 0, 1) for n in range(9)] + [attempt("slow", 1, "surtr", 0, 50)],
            {},
            end=50,
        )
    )
    (slow,) = made.outliers
    assert slow.record.task.id == "slow"
    assert slow.outliers == ("ran 50 s; half of its kind ran at most 1 s",)


# ---- folding


def pieces(*spans: tuple[Sort, float, float, str]) -> Bar:
    return Bar(record(task("t"), 1, State.DONE, 0, 0), tuple(Piece(*span) for span in spans))


def test_a_folded_row_shows_what_most_did_and_how_many_were_there() -> None:
    rows = [
        pieces((Sort.WAITING, 0, 4, "order"), (Sort.RUNNING, 4, 6, "x")),
        pieces((Sort.WAITING, 0, 2, "order"), (Sort.RESTING, 2, 4, ""), (Sort.RUNNING, 4, 5, "x")),
        pieces((Sort.WAITING, 0, 6, "order"), (Sort.RUNNING, 6, 8, "x")),
        pieces((Sort.RUNNING, 0, 1, "y")),
    ]
    row = fold(rows, 0, 10, 5)
    assert [cell and cell.what for cell in row] == ["order", "order", "x", "x", None]
    assert [cell.share for cell in row if cell] == pytest.approx([7 / 8, 4 / 8, 5 / 8, 2 / 8])
    assert row[0] is not None
    assert row[0].sort is Sort.WAITING


def test_nothing_to_fold_is_an_empty_row() -> None:
    assert fold([], 0, 10, 3) == [None] * 3
    assert fold([pieces((Sort.RUNNING, 0, 0, "x"))], 0, 0, 2) == [None] * 2


def test_means_of_steps() -> None:
    assert means(((0, 2), (5, 4), (7.5, 0)), 0, 10, 4) == pytest.approx([2, 2, 4, 0])
    assert means(((0, 2), (5, 4)), 0, 10, 1) == pytest.approx([3])
    assert means((), 0, 10, 2) == [0, 0]


def test_the_most_telling_tasks_keep_rows_of_their_own() -> None:
    made = timeline_of(huge(300, hosts=2))
    marked = {bar.record.task.id for bar in made.outliers}
    bars, folds = chosen(made, len(marked) + 10)
    assert marked <= {bar.record.task.id for bar in bars}
    assert [bar.record.number for bar in bars] == sorted(bar.record.number for bar in bars)
    assert len(bars) + sum(len(one.bars) for one in folds) == 300
    assert {(one.lane, one.kind) for one in folds} == {
        (bar.record.task.lane, bar.record.task.kind) for one in folds for bar in one.bars
    }
    assert chosen(made, 300) == (list(made.bars), [])


# ---- axis and looks


@pytest.mark.parametrize("span", [1e-4, 0.03, 0.97, 1, 7, 59, 100, 3601, 90_000, 5e6, 1e9])
def test_an_axis_has_round_marks_and_never_too_many(span: float) -> None:
    marks = list(ticks(span, 10))
    assert 1 <= len(marks) <= 11
    assert len({words for _, words in marks}) == len(marks)
    assert marks[0] == (0, "0")
    assert marks[-1][0] <= span * (1 + 1e-9)


def test_marks_are_written_as_people_do() -> None:
    assert (step_s(1, 10), step_s(0.97, 10), step_s(100, 10), step_s(0, 5)) == (0.1, 0.1, 10, 1e-9)
    labels = [label(at, step, at) for at, step in ((0.25, 0.05), (40, 10), (150, 30), (600, 60), (7500, 300))]
    assert labels == ["0.25 s", "40 s", "2m30s", "10 min", "2h05m"]


@pytest.mark.parametrize(
    ("span", "form"),
    [
        (119, r"\d+ s"),
        (130, r"\d+m\d\ds"),
        (3500, r"\d+ min"),
        (5000, r"\d+h\d\dm"),
        (100_000, r"\d+d\d\dh"),
    ],
)
def test_all_marks_of_an_axis_have_one_form(span: float, form: str) -> None:
    marks = [words for _, words in ticks(span, 10)][1:]
    assert len(marks) > 3
    assert [words for words in marks if not re.fullmatch(form, words)] == []


def test_every_reason_has_a_look_and_no_two_the_same() -> None:
    assert {reason.partition(":")[0] for reason in REASONS} == set(WAITS) - {""}
    assert len({look.letter for look in WAITS.values()}) == len(WAITS)
    assert len({(look.pattern, look.colour) for look in WAITS.values()}) == len(WAITS)
    assert wait_looks(["gate:fpf", "a plug-in's own"]) == {
        "gate:fpf": WAITS["gate"],
        "a plug-in's own": WAITS[""],
    }


def test_waits_of_one_family_are_told_apart() -> None:
    looks = wait_looks(["slots:a", "lane:x", *(f"slots:h{n}" for n in range(11))])
    slots = [look for reason, look in looks.items() if reason.startswith("slots")]
    assert [look.letter for look in slots] == [f"s{n}" for n in range(1, 13)]
    assert looks["lane:x"].letter == "l", "alone in its family"
    for colour in ("colour", "dark"):
        assert len({(getattr(look, colour), look.tile) for look in slots}) == 12
        assert getattr(slots[0], colour) != getattr(slots[1], colour)
    assert {look.pattern for look in slots} == {"rising-thin"}


def test_hosts_have_colours_of_their_own() -> None:
    looks = host_looks(f"h{n}" for n in range(24))
    assert len({look.colour for look in looks.values()}) == 24
    assert len({look.letter for look in looks.values()}) == 24


# ---- as data


def test_the_data_are_those_of_the_http_api_and_more() -> None:
    source = small()
    source = replace(source, costs={("second", 1): 0.25, ("second", 2): 0.5})
    told = timeline_record(timeline_of(source), source)
    second = told["tasks"][1]
    own = [one for one in source.attempts if one.task == "second"]
    entry = task_entry(source.tasks[1], source.waits["second"], own)
    assert {name: second[name] for name in entry} == entry
    assert set(second) - set(entry) == {"outliers", "cost_usd"}
    assert second["cost_usd"] == 0.75
    assert "value" not in second
    assert told["waited_s"] == {"gate:vram": 20, "slots:fenrir": 8, "scheduled": 4}
    assert [host["host"] for host in told["hosts"]] == ["surtr", "fenrir"]
    assert (told["run"], told["next"]) == ("nightly", None)


def test_stalls_are_kept() -> None:
    stall = Stalled("t", 1, "surtr", BEGIN + 3, 2.0, "")
    assert timeline_of(replace(small(), stalls=[stall])).stalls == (stall,)


def test_a_task_is_not_asked_for_more_than_it_has() -> None:
    bare = Bar(record(Task("a", id="x", queued_at=BEGIN), 1, State.QUEUED, None, None), ())
    assert (bar_times(bare), bare.waited_s) == ((BEGIN, BEGIN), 0)


def bar_times(bar: Bar) -> tuple[float, float]:
    return bar.start, bar.end
