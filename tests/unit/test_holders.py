"""Who held what was waited for, in words that a newcomer understands (E1)."""

from __future__ import annotations

from math import inf, nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.diagnosis.waits import REASONS
from penstock.diagnosis.why.holders import Holder, Holders, held_by
from penstock.diagnosis.why.remedies import STARTS, Case, remedies, starts_when
from penstock.model import Attempt, AutoSlots, Gate, Host, Lane, Plant
from penstock.scheduling.details import Detail


def attempt(task: str, start: float, end: float | None, *, host: str = "h", lane: str = "chat") -> Attempt:
    return Attempt(task, 1, host, lane, start, 1, end)


def test_few_are_named_and_many_are_counted() -> None:
    held = Holders(
        [attempt("a", 0.0, 10.0), attempt("b", 0.0, None), attempt("c", 2.0, 9.0, lane="bulk")], 20.0
    )
    assert held_by(held.on(["h"], 3.0, 6.0)) == (
        "held by 2 tasks of lane chat (a, b) and 1 task of lane bulk (c)"
    )
    assert held_by(held.on(["h"], 3.0, 6.0), named=False) == (
        "held by 2 tasks of lane chat and 1 task of lane bulk"
    )
    assert held_by(held.of("bulk", 0.0, 4.0)) == "held by 1 task of lane bulk (c)"
    many = Holders([attempt(f"t{n}", n, n + 1.0) for n in range(37)], 40.0)
    assert held_by(many.on(["h"], 0.0, 37.0)) == "held by 37 tasks of lane chat (1 at once on average)"
    assert held_by(many.on(["h"], 0.0, 174.0)).endswith("(0.2 at once on average)")


def test_a_stretch_of_a_few_ulps_is_counted_as_truly_as_a_long_one() -> None:
    """Beside all that was held before it, such a stretch is less than the last digit of a float."""
    before = [attempt(f"b{n}", 1000.0, 87_000.1) for n in range(10)]
    begin = end = 87_421.1
    for _ in range(3):
        end = nextafter(end, inf)
    held = Holders([*before, attempt("a", 87_000.3, None), attempt("c", 87_000.7, None)], end)
    assert held.on(["h"], begin, end) == (Holder("chat", 2, 2.0, ("a", "c")),)


def test_who_begins_when_the_wait_ends_held_nothing() -> None:
    held = Holders([attempt("a", 0.0, 5.0), attempt("mine", 5.0, 9.0), attempt("none", 2.0, 2.0)], 20.0)
    assert held.on(["h"], 1.0, 5.0) == (Holder("chat", 1, 1.0, ("a",)),)
    assert held.on(["h"], 5.0, 6.0) == (Holder("chat", 1, 1.0, ("mine",)),)
    assert held.on(["h"], 3.0, 3.0) == held.on(["elsewhere"], 1.0, 5.0) == ()
    assert held_by(()) == ""


def test_hosts_are_taken_together() -> None:
    held = Holders([attempt("a", 0.0, 5.0), attempt("b", 0.0, 5.0, host="i")], 20.0)
    assert held.on(["h", "i"], 0.0, 5.0) == (Holder("chat", 2, 2.0, ("a", "b")),)
    lanes = Holders([attempt(f"t{n}", 0.0, 5.0, lane=f"l{n}") for n in range(5)], 20.0)
    assert held_by(lanes.on(["h"], 0.0, 5.0)).endswith("(t2) and those of 2 more lanes")


@given(
    spans=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), max_size=12),
    window=st.tuples(st.integers(0, 20), st.integers(1, 10)),
)
def test_it_is_as_counting_by_hand(spans: list[tuple[int, int]], window: tuple[int, int]) -> None:
    """E1: names, number and average are those of the attempts that overlap the stretch."""
    attempts = [attempt(f"t{n}", at, at + length) for n, (at, length) in enumerate(spans)]
    start, end = float(window[0]), float(window[0] + window[1])
    inside = {a.task for a in attempts if a.started_at < end and (a.ended_at or 0.0) > start}
    seconds = sum(max(0.0, min(a.ended_at or 0.0, end) - max(a.started_at, start)) for a in attempts)
    found = Holders(attempts, 100.0).on(["h"], start, end)
    if seconds / (end - start) < 0.05:
        assert found == ()
        return
    (holder,) = found
    assert holder.average == pytest.approx(seconds / (end - start))
    assert holder.number == len(inside)
    assert set(holder.tasks) == (inside if len(inside) <= 4 else set())


# ---- what would help

PLANT = Plant(
    (Host("a", "none", 2), Host("b", "none", 1, auto=AutoSlots(1, 8))),
    (Lane("few", max_running=3),),
    gates=(
        Gate("busy", lane="few", max_running=2),
        Gate("vram", probe="p", min=3.0),
        Gate("cpu", probe="p", max=90.0),
    ),
)


def helps(reason: str, plant: Plant, case: Case = Case()) -> str:  # noqa: B008 - frozen
    """All that may help, the least first."""
    return " | ".join(one.text for one in remedies(reason, plant, case))


def test_every_reason_has_an_end_and_a_remedy() -> None:
    """E1: what lets a task start is known for every reason it may wait for, and what would help."""
    assert {reason.partition(":")[0] for reason in REASONS} == set(STARTS)
    for reason in REASONS:
        assert starts_when(reason).startswith("when ")
        assert helps(reason, PLANT)


def test_what_waits_for_a_dispatcher_that_stops_is_not_resumed() -> None:
    """E1: `penstock resume` does nothing there: the next one goes on by itself."""
    assert "resume" in starts_when("paused", "everything is paused")
    assert starts_when("paused", Detail.STOPPING.value).startswith("when the next dispatcher leads")
    assert "resume" not in helps("paused", PLANT, Case(Detail.STOPPING.value))


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("slots:a", "hosts.a.slots = 3"),
        ("slots:a,b", "hosts.b.slots = { auto = true, max = 9 }"),
        ("slots:gone", "more slots there"),
        ("lane:few", "lanes.few.max_running = 4"),
        ("lane:gone", "lanes.gone.max_running = 1"),
        ("gate:busy", "gates.busy.max_running = 3"),
        ("gate:vram", "gates.vram.min below 3"),
        ("gate:cpu", "gates.cpu.max above 90"),
        ("gate:gone", "gates.gone"),
        ("rate:a", "hosts.a.rate"),
        ("worker:a", "hosts.a.ray"),
        ("paused", "`penstock resume`"),
        ("store-down", "a store that can be written"),
        ("dispatcher-down", "`penstock work`"),
    ],
)
def test_a_remedy_names_the_key_or_the_command(reason: str, line: str) -> None:
    assert line in helps(reason, PLANT)


def test_who_waited_for_its_own_start_to_be_recorded_needs_no_priority() -> None:
    assert "store" in helps("order", PLANT, Case(Detail.RECORDED_FIRST.value))
    assert "priority" in helps("order", PLANT)
