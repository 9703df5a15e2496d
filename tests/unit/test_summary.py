"""A6: what a run came to: makespan, a lower bound that is one, slot use, waits and failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.diagnosis.history import Epoch, History, Owner
from penstock.diagnosis.summary import Summary, summarize
from penstock.model import Attempt, AutoSlots, Fallback, Host, Lane, Plant, State, Task, TaskRecord, Verdict

BEGIN = 1000.0


def ran(
    id: str,
    on: str,
    start: float,
    end: float,
    *,
    state: State = State.DONE,
    error: str | None = None,
    **task: object,
) -> tuple[TaskRecord, Attempt]:
    """A task of one attempt on a host, in seconds after the begin."""
    made = replace(Task("a", id=id, run="r", queued_at=BEGIN), **task)  # type: ignore[arg-type]
    record = TaskRecord(
        made,
        number=1,
        state=state,
        attempts=1,
        host=on,
        started_at=BEGIN + start,
        ended_at=BEGIN + end,
        error=error,
    )
    verdict = Verdict.DONE if state is State.DONE else Verdict.PERMANENT
    return record, Attempt(id, 1, on, made.lane, BEGIN + start, 1, BEGIN + end, verdict, error)


def history(
    done: Iterable[tuple[TaskRecord, Attempt]],
    *,
    others: Sequence[Attempt] = (),
    dependencies: Mapping[str, TaskRecord] | None = None,
) -> History:
    pairs = list(done)
    attempts = [attempt for _, attempt in pairs]
    return History(
        records=[record for record, _ in pairs],
        attempts=attempts,
        others=[*attempts, *others],
        dependencies=dependencies or {record.task.id: record for record, _ in pairs},
        routes=[],
        moves=[],
        stretches=[],
        epochs=[Epoch(1, Owner(1, "here", "test"), BEGIN - 1, BEGIN + 1000)],
    )


def plant(*hosts: Host, lanes: Sequence[Lane] = ()) -> Plant:
    return Plant(hosts=hosts, lanes=tuple(lanes))


def sum_up(done: Iterable[tuple[TaskRecord, Attempt]], world: Plant, since: float = 0.0) -> Summary:
    return summarize(history(done), world, BEGIN + 1000, since)


ONE = Host("one", "simulated", slots=1)
TWO = Host("two", "simulated", slots=2)


# ---- the ideal


def test_a_full_host_is_ideal() -> None:
    summary = sum_up([ran("t1", "one", 0, 2), ran("t2", "one", 2, 5)], plant(ONE))
    assert (summary.makespan_s, summary.ideal.seconds, summary.ratio) == (5, 5, 1)
    assert summary.ideal.because == "slots of one"


def test_idle_time_shows_as_a_ratio() -> None:
    summary = sum_up([ran("t1", "one", 1, 3), ran("t2", "one", 6, 8)], plant(ONE))
    assert (summary.makespan_s, summary.ideal.seconds, summary.ratio) == (8, 4, 2)


def test_hosts_that_only_some_tasks_can_use_do_not_help_the_others() -> None:
    only = Host("only", "simulated", slots=1, serves=("b",))
    wide = Host("wide", "simulated", slots=9, serves=("a",))
    done = [ran("t1", "only", 0, 6, kind="b"), ran("t2", "only", 6, 10, kind="b"), ran("t3", "wide", 0, 1)]
    summary = sum_up(done, plant(only, wide))
    assert summary.ideal == (10, "slots of only")


def test_groups_of_hosts_count_together() -> None:
    left = Host("left", "simulated", slots=1, serves=("a", "b"))
    right = Host("right", "simulated", slots=1, serves=("b", "c"))
    far = Host("far", "simulated", slots=50, serves=("d",))
    done = [
        ran("t1", "left", 0, 4, kind="a"),
        ran("t2", "right", 0, 4, kind="c"),
        ran("t3", "left", 4, 10, kind="b"),
        ran("t4", "far", 0, 1, kind="d"),
    ]
    assert sum_up(done, plant(left, right, far)).ideal == (7, "slots of left, right")


def test_groups_that_overlap_count_together() -> None:
    left, middle, right = (
        Host(name, "simulated", slots=1, serves=kinds)
        for name, kinds in (("left", ("a",)), ("middle", ("a", "b")), ("right", ("b",)))
    )
    done = [
        ran("t1", "left", 0, 4, kind="a"),
        ran("t2", "middle", 0, 2, kind="a"),
        ran("t3", "middle", 2, 4, kind="b"),
        ran("t4", "right", 0, 3, kind="b"),
        ran("t5", "right", 3, 4, kind="b"),
    ]
    assert sum_up(done, plant(left, middle, right)).ideal.because == "slots of left, middle, right"


def test_a_task_of_two_slots_is_twice_the_work() -> None:
    done = [ran("t1", "two", 0, 3, needs={"slots": 2.0}), ran("t2", "two", 3, 6, needs={"slots": 2.0})]
    assert sum_up(done, plant(TWO)).ideal.seconds == 6


def test_pins_and_models_narrow_the_hosts() -> None:
    small = replace(ONE, model="small")
    pinned = [ran("t1", "one", 0, 4, host="one"), ran("t2", "one", 4, 8, model="small")]
    assert sum_up(pinned, plant(small, TWO)).ideal == (8, "slots of one")


def test_fallback_hosts_count_only_where_they_were_used() -> None:
    cloud = Host("cloud", "simulated", slots=9, fallback=Fallback())
    own = [ran("t1", "one", 0, 4), ran("t2", "one", 4, 8)]
    assert sum_up(own, plant(ONE, cloud)).ideal == (8, "slots of one")
    both = [ran("t1", "one", 0, 4), ran("t2", "cloud", 2, 8)]
    assert sum_up(both, plant(ONE, cloud)).ideal.seconds == 6


def test_slots_that_tune_themselves_count_at_their_most() -> None:
    auto = replace(ONE, auto=AutoSlots(1, 4))
    done = [ran(f"t{n}", "one", 0, 2) for n in range(4)]
    assert sum_up(done, plant(auto)).ideal.seconds == 2


def test_a_lane_s_cap_is_a_limit_too() -> None:
    lane = Lane("slow", max_running=1)
    done = [ran("t1", "two", 0, 2, lane="slow"), ran("t2", "two", 2, 5, lane="slow")]
    assert sum_up(done, plant(TWO, lanes=[lane])).ideal == (5, "max_running = 1 of lane slow")


def test_the_longest_chain_cannot_be_shortened() -> None:
    done = [
        ran("t1", "two", 0, 3),
        ran("t2", "two", 3, 5, after=("t1",)),
        ran("t3", "two", 5, 6, after=("t2", "elsewhere")),
    ]
    assert sum_up(done, plant(Host("two", "simulated", slots=20))).ideal == (
        6,
        "task t3 and what must be done before it",
    )


def test_a_very_long_chain_is_no_trouble() -> None:
    count = 5000
    done = [ran("t0", "one", 0, 1)]
    done += [ran(f"t{n}", "one", n, n + 1, after=(f"t{n - 1}",)) for n in range(1, count)]
    assert sum_up(reversed(done), plant(Host("one", "simulated", slots=10))).ideal.seconds == count


def test_a_task_cannot_end_before_it_may_start() -> None:
    done = [ran("t1", "one", 5, 7, not_before=BEGIN + 5)]
    assert sum_up(done, plant(ONE)).ideal == (7, "task t1 alone")


def test_a_task_of_another_run_is_waited_for() -> None:
    mine = ran("t1", "one", 4, 5, after=("old",))
    old, _ = ran("old", "one", 0, 4)
    old = replace(old, task=replace(old.task, run="older"))
    summary = summarize(history([mine], dependencies={"old": old}), plant(ONE), BEGIN + 1000)
    assert summary.ideal == (5, "task t1 and what must be done before it")


def test_a_task_waits_until_the_hosts_have_done_all_that_it_comes_after() -> None:
    parts = [ran(f"t{n}", "two", n // 2 * 2, n // 2 * 2 + 2) for n in range(4)]
    last = ran("all", "two", 4, 5, after=("t0", "t1", "t2", "t3"))
    summary = sum_up([*parts, last], plant(TWO))
    assert summary.ideal == (5, "task all and what must be done before it")
    assert summary.ratio == 1


def test_every_attempt_of_a_task_counts() -> None:
    record, last = ran("t1", "one", 3, 4)
    first = replace(last, started_at=BEGIN, ended_at=BEGIN + 2, verdict=Verdict.TEMPORARY)
    told = replace(history([(record, replace(last, number=2))]), attempts=[first, replace(last, number=2)])
    summary = summarize(told, plant(ONE), BEGIN + 1000)
    assert summary.ideal.seconds == 3
    assert summary.hosts[0].attempts == 2


def test_a_run_in_which_nothing_ran() -> None:
    record, _ = ran("t1", "one", 0, 1, state=State.CANCELLED)
    idle = replace(record, attempts=0, host=None, started_at=None)
    summary = summarize(replace(history([]), records=[idle]), plant(ONE), BEGIN + 1000)
    assert (summary.ideal.seconds, summary.ratio, summary.states) == (0, None, {State.CANCELLED: 1})


def test_a_host_that_is_no_longer_configured_still_counts() -> None:
    assert sum_up([ran("t1", "gone", 0, 4, kind="z")], plant(TWO)).ideal.seconds == 4


@st.composite
def schedules(draw: st.DrawFn) -> tuple[list[tuple[TaskRecord, Attempt]], Plant]:
    """Tasks of several kinds, placed one after the other into the slots of hosts that serve them."""
    kinds = ("a", "b", "c")
    hosts = [
        Host(
            f"h{n}",
            "simulated",
            slots=draw(st.integers(1, 3)),
            serves=tuple(draw(st.sets(st.sampled_from(kinds), min_size=1))),
        )
        for n in range(draw(st.integers(1, 4)))
    ]
    free = {host.name: [0.0] * host.slots for host in hosts}
    served = sorted({kind for host in hosts for kind in host.serves})
    done: list[tuple[TaskRecord, Attempt]] = []
    ends: dict[str, float] = {}
    for n in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(served))
        host = draw(st.sampled_from([h for h in hosts if h.serves_kind(kind)]))
        after = tuple(draw(st.sets(st.sampled_from(sorted(ends)), max_size=2))) if ends else ()
        slot = draw(st.integers(0, host.slots - 1))
        start = max([free[host.name][slot], *(ends[task] for task in after)]) + draw(st.integers(0, 2))
        end = start + draw(st.integers(1, 5))
        free[host.name][slot] = ends[f"t{n}"] = end
        done.append(ran(f"t{n}", host.name, start, end, kind=kind, after=after))
    return done, plant(*hosts)


@given(schedules())
def test_no_schedule_beats_the_ideal(drawn: tuple[list[tuple[TaskRecord, Attempt]], Plant]) -> None:
    """A6: the ideal is a lower bound of every makespan."""
    summary = sum_up(*drawn)
    assert summary.ideal.seconds <= summary.makespan_s + 1e-6
    assert summary.ratio is not None
    assert summary.ratio >= 1 - 1e-9
    assert all(0 <= use.share <= 1 + 1e-9 for use in summary.hosts)


# ---- calls through Penstock itself


def test_the_ideal_of_attempts_that_wait_for_their_calls_is_that_of_the_calls() -> None:
    """Four prompts at once, each as long as the one slot of the model lets it be: 4 × 2 s, not 20 s of prompts."""
    prompts = Host("prompts", "file_prompt", slots=4)
    done = [ran(f"t{n}", "prompts", 0, 2.0 * n + 2) for n in range(4)]
    calls = history([ran(f"c{n}", "one", 2.0 * n, 2.0 * n + 2, host="one") for n in range(4)])
    told = history(done, others=calls.attempts)
    alone = summarize(told, plant(ONE, prompts), BEGIN + 1000)
    assert (alone.ideal.because, {use.host: use.attempts for use in alone.hosts}["one"]) == (
        "task t3 alone",
        0,
    )
    summary = summarize(told, plant(ONE, prompts), BEGIN + 1000, calls=calls)
    assert summary.ideal == (8.0, "slots of one")
    assert summary.ratio == pytest.approx(1.0)
    use = {use.host: use for use in summary.hosts}
    assert (use["one"].attempts, use["one"].others_s) == (4, 0.0)
    assert use["one"].share == pytest.approx(1.0)
    assert summary.tasks == 4, "calls are no tasks of the run"


# ---- hosts, waits, failures


def test_slot_use_tells_own_work_from_that_of_others() -> None:
    mine = [ran("t1", "two", 0, 4), ran("t2", "two", 0, 2)]
    _, other = ran("x", "two", 2, 10)
    summary = summarize(history(mine, others=[other]), plant(TWO), BEGIN + 1000)
    assert summary.hosts == (("two", 2, 2, 6, 2, 0.75),)


def test_waits_are_shares_of_all_waiting() -> None:
    """E1: what tasks waited is summed up by reason, and the shares add up."""
    done = [ran("t1", "one", 1, 2), ran("t2", "one", 2, 4, not_before=BEGIN + 2)]
    summary = sum_up(done, plant(ONE))
    assert [(wait.reason, wait.seconds) for wait in summary.waits] == [("scheduled", 2), ("order", 1)]
    assert summary.waited_s == 3
    assert sum(wait.share for wait in summary.waits) == pytest.approx(1)


def test_failures_are_told_in_their_order_and_not_without_end() -> None:
    done = [ran(f"t{n}", "one", n, n + 1, state=State.FAILED, error=f"no {n}") for n in reversed(range(12))]
    summary = sum_up([*done, ran("good", "one", 20, 21)], plant(ONE))
    assert [failure.error for failure in summary.failures] == [f"no {n}" for n in range(10)]
    assert summary.states == {State.FAILED: 12, State.DONE: 1}


def test_an_older_submit_of_the_same_run_is_left_out() -> None:
    old = ran("old", "one", 0, 50)
    new = ran("new", "one", 100, 104, queued_at=BEGIN + 100)
    summary = sum_up([old, new], plant(ONE), since=BEGIN + 100)
    assert (summary.tasks, summary.makespan_s, summary.ideal.seconds) == (1, 4, 4)
    assert summary.hosts[0].busy_s == 4
