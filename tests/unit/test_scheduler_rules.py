"""The rules of order, one by one, in examples that a person can follow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from penstock.errors import IllegalStep
from penstock.lifecycle import step
from penstock.model import (
    BreakerRule,
    Fallback,
    Fault,
    Gate,
    Host,
    Lane,
    Outcome,
    Plant,
    Rate,
    RetryRule,
    State,
    Task,
    TaskRecord,
    Verdict,
)
from penstock.scheduling import messages as m
from penstock.scheduling import world
from penstock.scheduling.capacity import Needs
from penstock.scheduling.scheduler import Scheduler

DONE = Outcome(Verdict.DONE)
GOOD_RETRY = RetryRule(retries=2, base_s=1.0, max_s=60.0, host_faults=3)


def plant(*hosts: Host, **more: Any) -> Plant:
    return Plant(hosts or (Host("h", "none"),), **more)


def started(decisions: Iterable[m.Decision]) -> list[str]:
    return [d.task for d in decisions if isinstance(d, m.Start)]


def placed(decisions: Iterable[m.Decision]) -> dict[str, str]:
    return {d.task: d.host for d in decisions if isinstance(d, m.Start)}


def ended(decisions: Iterable[m.Decision]) -> dict[str, State]:
    return {d.task: d.state for d in decisions if isinstance(d, m.End)}


def tasks(*ids: str, kind: str = "k", **more: Any) -> list[Task]:
    return [Task(kind, id=i, **more) for i in ids]


def failed(verdict: Verdict, **more: Any) -> Outcome:
    return Outcome(verdict, error="it failed", **more)


def test_all_tasks_are_queued_at_once_and_start_as_room_allows() -> None:
    """A1, C1: submitting never waits for running; slots are kept full and never over-full."""
    s = Scheduler(plant(Host("surtr", "none", 2), Host("fenrir", "none", 3)))
    first = s.apply(m.Submitted(tasks(*"abcdefgh")), 1.0)
    assert len(started(first)) == 5
    assert s.live == 8
    assert started(s.apply(m.Finished("a", 1, DONE), 2.0)) == ["f"]


def test_priority_holds_to_the_very_start() -> None:
    """C2: what is urgent goes first even when it came last."""
    s = Scheduler(plant())
    s.apply(m.Submitted(tasks("running")), 1.0)
    for priority in (4, 2, 0, 3, 1):
        s.apply(m.Submitted(tasks(f"p{priority}", priority=priority)), 2.0)
    order = []
    running = "running"
    for at in range(3, 8):
        (running,) = started(s.apply(m.Finished(running, 1, DONE), float(at)))
        order.append(running)
    assert order == ["p0", "p1", "p2", "p3", "p4"]


def test_waiting_counts_as_urgency() -> None:
    """C2: a task of priority 4 that has waited four levels goes before a new one of priority 1."""
    s = Scheduler(plant(aging_s=10.0))
    s.apply(m.Submitted(tasks("running")), 0.5)
    s.apply(m.Submitted(tasks("old", priority=4)), 1.0)
    s.apply(m.Submitted(tasks("new", priority=1)), 41.0)
    assert started(s.apply(m.Finished("running", 1, DONE), 41.0)) == ["old"]


def test_lanes_are_walled_off() -> None:
    """A3, A4: a lane never runs more than its limit, and a huge one cannot take another's reserve."""
    s = Scheduler(
        plant(
            Host("h", "none", 4),
            lanes=(Lane("fpf"), Lane("ma", max_running=1, reserve={"h": {"slots": 1.0}})),
        )
    )
    flood = s.apply(m.Submitted(tasks(*(f"f{i}" for i in range(50)), lane="fpf")), 1.0)
    assert len(started(flood)) == 3
    assert started(s.apply(m.Submitted(tasks("m1", "m2", lane="ma")), 2.0)) == ["m1"]
    assert s.waiting_reason("m2") == "lane:ma"
    assert s.waiting_reason("f10") == "slots:h"


def test_lanes_share_by_weight() -> None:
    """Rule 2: of two lanes with work the one that runs least for its weight goes first."""
    s = Scheduler(plant(Host("h", "none", 6), lanes=(Lane("a", weight=2.0), Lane("b", weight=1.0))))
    both = tasks(*(f"a{i}" for i in range(20)), lane="a") + tasks(*(f"b{i}" for i in range(20)), lane="b")
    lanes = [t[0] for t in started(s.apply(m.Submitted(both), 1.0))]
    assert (lanes.count("a"), lanes.count("b")) == (4, 2)


def test_a_gate_looks_at_another_family() -> None:
    """A2, A5: closed while running(fpf) > 1, on starting only, and what it held starts as it opens."""
    gate = Gate("headroom", lane="fpf", max_running=1, holds_lanes=("gptr",))
    s = Scheduler(plant(Host("h", "none", 9), lanes=(Lane("fpf"), Lane("gptr")), gates=(gate,)))
    s.apply(m.Submitted(tasks("f1", "f2", lane="fpf")), 1.0)
    held = s.apply(m.Submitted(tasks("g", lane="gptr")), 2.0)
    assert not started(held)
    assert s.waiting_reason("g") == "gate:headroom"
    assert started(s.apply(m.Finished("f1", 1, DONE), 3.0)) == ["g"]


def test_a_probe_gate_is_closed_until_it_has_spoken() -> None:
    """A2: a gate on a sampled value opens and closes with what is read; a failed reading is as configured."""
    gate = Gate("cpu", probe="psutil:cpu_percent", max=80.0, holds_hosts=("h",))
    s = Scheduler(plant(Host("h", "none", 1), gates=(gate,)))
    assert not started(s.apply(m.Submitted(tasks("a", "b")), 1.0))
    assert s.waiting_reason("a") == "gate:cpu"
    assert started(s.apply(m.GateRead("cpu", 20.0), 2.0)) == ["a"]
    s.apply(m.GateRead("cpu", None, "no answer"), 3.0)
    assert not started(s.apply(m.Finished("a", 1, DONE), 4.0))
    assert started(s.apply(m.GateRead("cpu", 20.0), 5.0)) == ["b"]


@pytest.mark.parametrize("holds", [{"holds_hosts": ("h",)}, {"holds_lanes": ("default",)}], ids=str)
def test_why_and_status_hear_of_a_failed_reading(holds: dict[str, Any]) -> None:
    """E1, E5: a closed gate that stays closed because its probe fails says so, once per kind of failure."""
    gate = Gate("cpu", probe="psutil:cpu_percent", max=80.0, **holds)
    s = Scheduler(plant(Host("h", "none", 1), gates=(gate,)))
    s.apply(m.Submitted(tasks("a")), 1.0)
    told: list[tuple[str, str]] = []
    for at, reading in enumerate(
        [
            m.GateRead("cpu", 90.0),
            m.GateRead("cpu", 91.0),
            m.GateRead("cpu", None, "no answer for 5 s"),
            m.GateRead("cpu", None, "no answer for 6 s"),
            m.GateRead("cpu", None, "refused"),
            m.GateRead("cpu", 92.0),
        ],
        2,
    ):
        decisions = s.apply(reading, float(at))
        changes = [d.detail for d in decisions if isinstance(d, m.GateChange)]
        waits = [d.detail for d in decisions if isinstance(d, m.WaitChange)]
        assert changes == waits
        told += [(f"{at}", detail) for detail in changes]
        assert s.waiting_reason("a") == "gate:cpu"
    failed = "psutil:cpu_percent failed:"
    assert told == [
        ("2", "psutil:cpu_percent = 90 > 80"),
        ("4", f"{failed} no answer for 5 s; on_error = closed"),
        ("6", f"{failed} refused; on_error = closed"),
        ("7", "psutil:cpu_percent = 92 > 80"),
    ]


def test_an_open_gate_tells_that_its_reading_failed() -> None:
    """E5: `on_error = "open"` leaves it open, and it says why it is."""
    gate = Gate("cpu", probe="psutil:cpu_percent", max=80.0, on_error="open", holds_hosts=("h",))
    s = Scheduler(plant(Host("h", "none", 2), gates=(gate,)))
    assert started(s.apply(m.Submitted(tasks("a")), 1.0)) == ["a"]
    assert s.apply(m.GateRead("cpu", 20.0), 2.0) == [m.GateChange("cpu", 2.0, True, "")]
    (told,) = s.apply(m.GateRead("cpu", None, "no answer"), 3.0)
    assert told == m.GateChange("cpu", 3.0, True, "psutil:cpu_percent failed: no answer; on_error = open")
    assert not s.apply(m.GateRead("cpu", None, "no answer"), 4.0)
    assert s.apply(m.GateRead("cpu", 21.0), 5.0) == [m.GateChange("cpu", 5.0, True, "")]


def test_units_limit_what_runs_together() -> None:
    """C7: two tasks of 16 GB do not fit into 24, whatever slots there are."""
    s = Scheduler(plant(Host("h", "none", 4, units={"vram_gb": 24.0})))
    big = tasks("a", "b", needs={"vram_gb": 16.0})
    assert started(s.apply(m.Submitted(big), 1.0)) == ["a"]
    assert started(s.apply(m.Submitted(tasks("c", needs={"vram_gb": 8.0})), 2.0)) == ["c"]
    assert started(s.apply(m.Finished("a", 1, DONE), 3.0)) == ["b"]


def test_a_host_without_the_units_is_no_reason_to_wait() -> None:
    """E1: its gate holds the only host that can ever take it; that another has free slots is nothing to it."""
    gate = Gate("mem", probe="python:x", min=3.0, holds_hosts=("surtr",))
    s = Scheduler(
        plant(
            Host("surtr", "none", units={"vram_gb": 24.0}),
            Host("cloud", "none", slots=8, fallback=Fallback(after_s=3.0)),
            gates=(gate,),
        )
    )
    assert not started(
        s.apply_all([m.GateRead("mem", 1.0), m.Submitted(tasks("big", needs={"vram_gb": 20.0}))], 1.0)
    )
    assert not started(s.apply(m.Tick(), 10.0))
    assert s.waiting_reason("big") == "gate:mem"
    assert started(s.apply(m.GateRead("mem", 4.0), 11.0)) == ["big"]


def test_a_big_task_is_passed_only_until_it_has_waited_long_enough() -> None:
    """Rule 3: after `aging_s` the slots that become free are kept for it, and the others know."""
    s = Scheduler(plant(Host("h", "none", 2), aging_s=10.0))
    s.apply(m.Submitted(tasks("s1", "s2")), 1.0)
    s.apply(m.Submitted(tasks("big", needs={"slots": 2})), 1.0)
    s.apply(m.Submitted(tasks("s3", "s4", "s5")), 2.0)
    assert started(s.apply(m.Finished("s1", 1, DONE), 3.0)) == ["s3"]
    s.apply(m.Tick(), 11.0)
    assert not started(s.apply(m.Finished("s3", 1, DONE), 12.0))
    assert s.waiting_reason("s4") == "order"
    assert started(s.apply(m.Finished("s2", 1, DONE), 13.0)) == ["big"]


def test_the_host_with_the_most_free_share_is_chosen() -> None:
    """Rule 4."""
    s = Scheduler(plant(Host("small", "none", 2), Host("large", "none", 8)))
    where = list(placed(s.apply(m.Submitted(tasks(*"abcdef")), 1.0)).values())
    assert where.count("large") == 4
    assert where.count("small") == 2


def test_a_task_that_names_its_host_or_model_waits_for_it() -> None:
    s = Scheduler(plant(Host("a", "none", 1, model="m1"), Host("b", "none", 1, model="m2")))
    assert placed(s.apply(m.Submitted(tasks("x", "y", host="b")), 1.0)) == {"x": "b"}
    assert placed(s.apply(m.Submitted(tasks("z", model="m1")), 2.0)) == {"z": "a"}
    assert s.waiting_reason("y") == "slots:b"


def test_fallback_opens_after_its_time_and_when_own_hosts_are_down() -> None:
    """Rule 4: own hosts first; the cloud when a task has waited, or at once when nothing else is up."""
    own, cloud = Host("own", "none", 1), Host("cloud", "none", 9, fallback=Fallback(after_s=30.0))
    s = Scheduler(plant(own, cloud))
    assert placed(s.apply(m.Submitted(tasks("a", "b")), 1.0)) == {"a": "own"}
    assert s.next_wake() == pytest.approx(31.0)
    assert placed(s.apply(m.Tick(), 31.0)) == {"b": "cloud"}
    assert not placed(s.apply(m.Submitted(tasks("c")), 32.0))
    assert placed(s.apply(m.HostHealth("own", False, "gone"), 33.0)) == {"c": "cloud"}


def test_a_rate_is_kept_and_named() -> None:
    s = Scheduler(plant(Host("h", "none", 9, rate=Rate(requests_per_min=2))))
    assert started(s.apply(m.Submitted(tasks(*"abc")), 1.0)) == ["a", "b"]
    assert s.waiting_reason("c") == "rate:h"
    assert s.next_wake() == 61.0
    assert started(s.apply(m.Tick(), 61.0)) == ["c"]


def test_temporary_failures_are_tried_again_after_a_backoff() -> None:
    """Rule 5: doubling, half of it by chance, at least what the host asked for, and only so often."""
    s = Scheduler(plant(retry=GOOD_RETRY))
    s.apply(m.Submitted(tasks("a")), 0.5)
    again = s.apply(m.Finished("a", 1, failed(Verdict.TEMPORARY), 1.0), 1.0)
    assert [d.retry_at for d in again if isinstance(d, m.Requeue)] == [2.0]
    assert s.waiting_reason("a") == "scheduled"
    assert started(s.apply(m.Tick(), 2.0)) == ["a"]
    s.apply(m.Finished("a", 2, failed(Verdict.TEMPORARY, retry_after_s=30.0), 0.0), 3.0)
    assert s.next_wake() == 33.0
    assert started(s.apply(m.Tick(), 33.0)) == ["a"]
    assert ended(s.apply(m.Finished("a", 3, failed(Verdict.TEMPORARY), 0.0), 34.0)) == {"a": State.FAILED}


def test_permanent_failures_are_not() -> None:
    s = Scheduler(plant(retry=GOOD_RETRY))
    s.apply(m.Submitted(tasks("a")), 1.0)
    assert ended(s.apply(m.Finished("a", 1, failed(Verdict.PERMANENT)), 2.0)) == {"a": State.FAILED}


def test_a_host_at_fault_is_left_for_another_and_tried_by_one_task() -> None:
    """Rule 5: another host at once, no retry spent; the breaker opens, and one probe closes it."""
    bad = Host("bad", "none", 4, breaker=BreakerRule(failures=1, reset_s=5.0))
    s = Scheduler(plant(bad, Host("good", "none", 1), retry=GOOD_RETRY))
    assert placed(s.apply(m.Submitted(tasks("a")), 1.0)) == {"a": "bad"}
    assert placed(s.apply(m.Finished("a", 1, failed(Verdict.HOST)), 2.0)) == {"a": "good"}
    s.apply(m.Submitted(tasks("b", "c", "d", host="bad")), 3.0)
    assert s.waiting_reason("b") == "host-down"
    assert placed(s.apply(m.Tick(), 7.0)) == {"b": "bad"}
    assert s.waiting_reason("c") == "host-down"
    assert started(s.apply(m.Finished("b", 1, DONE), 8.0)) == ["c", "d"]


def test_a_fault_in_the_midst_of_an_answer_ends_the_task_and_still_counts_for_the_host() -> None:
    """Rule 5: no other attempt can help a client that has a part of its answer, but the breaker opens."""
    s = Scheduler(plant(Host("bad", "none", 4, breaker=BreakerRule(failures=2)), retry=GOOD_RETRY))
    s.apply(m.Submitted(tasks("a", "b", "c")), 1.0)
    broke_off = Outcome(Verdict.PERMANENT, error="it broke off", host_fault=True)
    assert ended(s.apply(m.Finished("a", 1, broke_off), 2.0)) == {"a": State.FAILED}
    s.apply(m.Finished("b", 1, broke_off), 2.0)
    s.apply(m.Submitted(tasks("d")), 3.0)
    assert s.waiting_reason("d") == "host-down"


def test_the_same_fault_told_by_many_attempts_counts_once() -> None:
    """Rule 5: a container that takes its attempts with it is one fault; who tries the host again must hear it."""
    s = Scheduler(plant(Host("h", "none", 4, breaker=BreakerRule(failures=2, reset_s=9.0)), retry=GOOD_RETRY))
    s.apply(m.Submitted(tasks("a", "b", "c")), 1.0)
    lost = Outcome(Verdict.HOST, error="its container is lost")
    s.apply(m.Finished("a", 1, lost), 2.0)
    for task in ("b", "c"):
        s.apply(m.Finished(task, 1, replace(lost, known_fault=True)), 2.0)
    assert started(s.apply(m.Submitted(tasks("d")), 2.0)) == ["d"]
    s.apply(m.Finished("d", 1, lost), 2.0)
    s.apply(m.Submitted(tasks("e")), 3.0)
    assert s.waiting_reason("e") == "host-down"
    (tried,) = started(s.apply(m.Tick(), 12.0))
    s.apply(m.Finished(tried, 1 if tried == "e" else 2, replace(lost, known_fault=True)), 12.0)
    s.apply(m.Submitted(tasks("f")), 12.5)
    assert s.waiting_reason("f") == "host-down"


def test_a_throttled_host_is_asked_for_less_and_costs_no_retry() -> None:
    """Rule 5: 429 lowers the slots; they come back with time."""
    s = Scheduler(plant(Host("h", "none", 4), retry=RetryRule(retries=0)))
    s.apply(m.Submitted(tasks(*"abcd")), 1.0)
    s.apply(m.Finished("a", 1, failed(Verdict.THROTTLED, retry_after_s=7.0)), 2.0)
    assert s.statistics().hosts["h"].slots == 2
    assert s.waiting_reason("a") == "rate:h"
    s.apply_all([m.Finished(t, 1, DONE) for t in "bcd"], 3.0)
    assert started(s.apply(m.Tick(), 9.0)) == ["a"]
    s.apply(m.Tick(), 200.0)
    assert s.statistics().hosts["h"].slots == 4


def test_dependants_wait_and_share_the_fate_of_what_they_wait_for() -> None:
    """A failed dependency fails its dependants, however long the chain, and says so."""
    s = Scheduler(plant(Host("h", "none", 9)))
    chain = [Task("k", id="t0"), *(Task("k", id=f"t{i}", after=(f"t{i - 1}",)) for i in range(1, 2000))]
    assert started(s.apply(m.Submitted(chain), 1.0)) == ["t0"]
    assert s.waiting_reason("t5") == "dependency"
    assert started(s.apply(m.Finished("t0", 1, DONE), 2.0)) == ["t1"]
    decisions = s.apply(m.Finished("t1", 1, failed(Verdict.PERMANENT)), 3.0)
    fates = ended(decisions)
    assert len(fates) == 1999
    assert set(fates.values()) == {State.FAILED}
    assert (
        next(d.error for d in decisions if isinstance(d, m.End) and d.task == "t2") == "dependency t1: failed"
    )


def test_a_dependency_that_ended_before_is_taken_as_told() -> None:
    s = Scheduler(plant(Host("h", "none", 9)))
    after_done = s.apply(m.Submitted(tasks("a", after=("x",)), {"x": State.DONE}), 1.0)
    assert started(after_done) == ["a"]
    after_cancelled = s.apply(m.Submitted(tasks("b", after=("y",)), {"y": State.CANCELLED}), 2.0)
    assert ended(after_cancelled) == {"b": State.CANCELLED}


def test_not_before_and_deadline() -> None:
    s = Scheduler(plant())
    assert not started(s.apply(m.Submitted(tasks("later", not_before=10.0)), 1.0))
    assert s.waiting_reason("later") == "scheduled"
    assert started(s.apply(m.Tick(), 10.0)) == ["later"]
    s.apply(m.Submitted(tasks("late", deadline=20.0)), 11.0)
    assert ended(s.apply(m.Tick(), 20.0)) == {"late": State.FAILED}


def test_pause_and_resume() -> None:
    s = Scheduler(plant(lanes=(Lane("default"), Lane("x"))))
    s.apply(m.PauseSet("lane", "x", True), 1.0)
    assert not started(s.apply(m.Submitted(tasks("a", lane="x")), 2.0))
    assert s.waiting_reason("a") == "paused"
    assert started(s.apply(m.PauseSet("lane", "x", False), 3.0)) == ["a"]


def test_cancel_in_the_queue_and_while_running() -> None:
    """A running task's room is held until it is really gone."""
    s = Scheduler(plant())
    s.apply(m.Submitted(tasks("a", "b", "c")), 1.0)
    assert ended(s.apply(m.CancelAsked("b"), 2.0)) == {"b": State.CANCELLED}
    stopping = s.apply(m.CancelAsked("a"), 3.0)
    assert [d.task for d in stopping if isinstance(d, m.Stop)] == ["a"]
    assert not started(stopping)
    gone = s.apply(m.Finished("a", 1, Outcome(Verdict.CANCELLED)), 4.0)
    assert ended(gone) == {"a": State.CANCELLED}
    assert started(gone) == ["c"]


def test_late_and_double_results_are_refused() -> None:
    """Promise 1: the attempt's number is the fence, and a slot given back twice is given back once."""
    s = Scheduler(plant(retry=GOOD_RETRY))
    s.apply(m.Submitted(tasks("a", "b", "c")), 1.0)
    assert started(s.apply(m.Finished("a", 1, DONE), 2.0)) == ["b"]
    again = s.apply(m.Finished("a", 1, DONE), 3.0)
    assert not started(again)
    assert [d.task for d in again if isinstance(d, m.Refuse)] == ["a"]
    s.apply(m.Finished("b", 1, failed(Verdict.TEMPORARY), 0.0), 4.0)
    s.apply(m.Finished("c", 1, DONE), 5.0)
    stale = s.apply(m.Finished("b", 1, DONE), 6.0)
    assert not ended(stale)


def test_slots_change_while_running() -> None:
    s = Scheduler(plant(Host("h", "none", 1)))
    s.apply(m.Submitted(tasks(*"abcd")), 1.0)
    assert started(s.apply(m.SlotsSet("h", 3), 2.0)) == ["b", "c"]
    s.apply(m.SlotsSet("h", 1), 3.0)
    assert not started(s.apply(m.Finished("a", 1, DONE), 4.0))
    assert not started(s.apply(m.Finished("b", 1, DONE), 5.0))
    assert started(s.apply(m.Finished("c", 1, DONE), 6.0)) == ["d"]


def test_a_revived_task_starts_over() -> None:
    s = Scheduler(plant(retry=RetryRule(retries=0)))
    record = TaskRecord(Task("k", id="a", queued_at=1.0), 1, State.FAILED, attempts=1, tries=1, ended_at=2.0)
    decisions = s.apply(m.RetryAsked([record]), 3.0)
    assert [d.attempt for d in decisions if isinstance(d, m.Start)] == [2]
    assert [d.task for d in decisions if isinstance(d, m.Revive)] == ["a"]
    with pytest.raises(IllegalStep):
        step(State.DONE, "retry")


def test_draining_starts_nothing() -> None:
    s = Scheduler(plant(Host("h", "none", 2)))
    s.apply(m.Submitted(tasks("a")), 1.0)
    s.apply(m.Drain(), 2.0)
    assert not started(s.apply(m.Submitted(tasks("b")), 3.0))
    assert s.waiting_reason("b") == "paused"


def test_a_kind_that_nobody_serves_any_more_says_so() -> None:
    s = Scheduler(plant(Host("h", "none", serves=("other",))))
    s.apply(m.Submitted(tasks("a")), 1.0)
    assert s.waiting_reason("a") == "host-down"


def test_ever_new_models_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a host takes any model, clients may ask for one after the other."""
    monkeypatch.setattr(world, "_MOST_KEYS", 10)
    scheduler = Scheduler(Plant(hosts=(Host("any", "openai", models=("*",)),)))
    for number in range(35):
        task = Task("chat", model=f"m{number}", id=f"t{number}", queued_at=float(number))
        decisions = scheduler.apply(m.Submitted([task]), float(number))
        assert [d for d in decisions if isinstance(d, m.Start)]
        scheduler.apply(m.Finished(task.id, 1, Outcome(Verdict.DONE)), float(number))
    assert len(scheduler._world._shapes) <= 10
    assert len(scheduler._world._by_content) == 1


def test_a_deadline_tells_what_the_task_waited_for() -> None:
    scheduler = Scheduler(Plant(hosts=(Host("one", "simulated"),)))
    scheduler.apply(m.Submitted([Task("k", id="first")]), 0.0)
    scheduler.apply(m.Submitted([Task("k", id="late", deadline=5.0, queued_at=1.0)]), 1.0)
    (end,) = [d for d in scheduler.apply(m.Tick(), 5.0) if isinstance(d, m.End)]
    assert (end.step, end.waited_for) == ("expire", "slots:one")
    assert (end.error or "").startswith("its deadline passed before it could start; it waited for slots:one")


def test_whether_all_hosts_for_a_task_are_down() -> None:
    hosts = (Host("a", "openai", models=("m",)), Host("b", "openai", models=("m", "n")))
    scheduler = Scheduler(Plant(hosts=hosts))
    scheduler.apply(m.HostHealth("a", False), 0.0)
    asked = {model: Task("chat", model=model) for model in "mnx"}
    assert [scheduler.hosts_down(asked[model]) for model in "mnx"] == [False, False, False]
    scheduler.apply(m.HostHealth("b", False), 1.0)
    for _ in range(2):  # by looking at all hosts, and by the shape once such a task has come
        assert [scheduler.hosts_down(asked[model]) for model in "mnx"] == [True, True, False]
        scheduler.apply(m.Submitted([Task("chat", model=x, id=x) for x in "mn"]), 2.0)


def test_needs_are_told_as_people_say_them() -> None:
    assert str(Needs(1, (("vram_gb", 8),))) == "1 slot, 8 vram_gb"
    assert str(Needs(2)) == "2 slots"


# ---- changes of priority


def test_a_queued_task_moves_to_its_place_and_its_age_counts() -> None:
    """D6, rule 2: among those of its new priority it stands as if it had had it from the start."""
    s = Scheduler(plant(Host("h", "none", 1), aging_s=100.0))
    s.apply(m.Submitted(tasks("run", queued_at=1.0)), 1.0)
    s.apply(m.Submitted(tasks("old", priority=3, queued_at=2.0)), 2.0)
    s.apply(m.Submitted(tasks("first", "second", priority=1, queued_at=10.0)), 10.0)
    assert s.apply(m.PriorityAsked("old", 1), 20.0) == [m.Reprioritize("old", 20.0, 3, 1)]
    assert s.apply(m.PriorityAsked("old", 1), 20.0) == [], "it has it already"
    s.apply(m.PriorityAsked("first", 3), 20.0)
    order = []
    for at, task in ((21.0, "run"), (22.0, "old"), (23.0, "second"), (24.0, "first")):
        order += started(s.apply(m.Finished(task, 1, DONE), at))
    assert order == ["old", "second", "first"]
    assert s.live == 0


def test_a_running_task_has_the_priority_for_its_next_attempt() -> None:
    s = Scheduler(plant(Host("h", "none", 1), retry=RetryRule(retries=1, base_s=1.0)))
    s.apply(m.Submitted(tasks("a", queued_at=1.0)), 1.0)
    s.apply(m.Submitted(tasks("b", priority=1, queued_at=1.0)), 1.0)
    assert s.apply(m.PriorityAsked("a", 0), 2.0) == [m.Reprioritize("a", 2.0, 2, 0)]
    assert s.running() == [("a", 1)], "what runs is left alone"
    s.apply(m.PauseSet("all", "", True), 2.0)
    s.apply(m.Finished("a", 1, failed(Verdict.TEMPORARY), 0.0), 3.0)
    s.apply(m.Tick(), 60.0)
    assert started(s.apply(m.PauseSet("all", "", False), 61.0)) == ["a"]


def test_an_ended_or_unknown_task_has_no_priority_to_change() -> None:
    s = Scheduler(plant())
    s.apply(m.Submitted(tasks("a")), 1.0)
    s.apply(m.Finished("a", 1, DONE), 2.0)
    assert s.apply(m.PriorityAsked("a", 0), 3.0) == []
    assert s.apply(m.PriorityAsked("nobody", 0), 3.0) == []
    assert s.priority("a") is None


def test_a_class_that_waits_for_its_full_lane_competes_with_its_new_head() -> None:
    """Two classes of one lane, one slot between them: the lane's line must not remember the old key."""
    hosts = (Host("h1", "none", 1, serves=("a",)), Host("h2", "none", 1, serves=("b",)))
    for moved, first in (("slow", "slow"), ("soon", "slow")):
        s = Scheduler(plant(*hosts, lanes=(Lane("default", max_running=1),), aging_s=100.0))
        s.apply(m.Submitted([Task("a", id="run", queued_at=1.0)]), 1.0)
        s.apply(m.Submitted([Task("a", id="soon", priority=2, queued_at=2.0)]), 2.0)
        s.apply(m.Submitted([Task("b", id="slow", priority=3, queued_at=2.0)]), 2.0)
        s.apply(m.PriorityAsked(moved, 0 if moved == "slow" else 4), 3.0)
        assert started(s.apply(m.Finished("run", 1, DONE), 4.0)) == [first], f"{moved} was moved"


def test_a_task_is_moved_there_and_back_as_often_as_somebody_likes() -> None:
    """What it left behind in a place must not be compared with it when it comes back to it."""
    s = Scheduler(plant(Host("h", "none", 1)))
    s.apply(m.Submitted(tasks("run", "first", "second", queued_at=1.0)), 1.0)
    s.apply(m.Submitted(tasks("third", priority=1, queued_at=1.0)), 1.0)
    for task, priority in (("first", 1), ("second", 1), *((("second", 2), ("second", 1)) * 3)):
        s.apply(m.PriorityAsked(task, priority), 2.0)
    order = []
    for task in ("run", "first", "second", "third"):
        order += started(s.apply(m.Finished(task, 1, DONE), 3.0))
    assert order == ["first", "second", "third"]


def test_a_task_made_more_urgent_than_a_claim_goes_at_once() -> None:
    """Nothing else happens in that moment: the change itself must have it looked at."""
    s = Scheduler(plant(Host("h", "none", 2), aging_s=10.0))
    s.apply(m.Submitted(tasks("run", queued_at=1.0)), 1.0)
    s.apply(m.Submitted(tasks("big", priority=3, needs={"slots": 2}, queued_at=1.0)), 1.0)
    s.apply(m.Tick(), 12.0)  # it has waited for long: what is free is kept for it
    assert started(s.apply(m.Submitted(tasks("small", priority=4, queued_at=12.0)), 12.0)) == []
    assert started(s.apply(m.PriorityAsked("small", 0), 13.0)) == ["small"]


def test_a_moved_task_still_keeps_its_deadline() -> None:
    s = Scheduler(plant(Host("h", "none", 1)))
    s.apply(m.Submitted(tasks("run", queued_at=1.0)), 1.0)
    s.apply(m.Submitted(tasks("late", queued_at=1.0, deadline=9.0)), 1.0)
    s.apply(m.PriorityAsked("late", 0), 2.0)
    assert s.next_wake() == 9.0
    assert ended(s.apply(m.Tick(), 9.0)) == {"late": State.FAILED}


# ---- hosts that need a fix


def changes_of(decisions: Iterable[m.Decision]) -> list[m.HostChange]:
    return [d for d in decisions if isinstance(d, m.HostChange)]


def test_a_host_that_needs_a_fix_is_down_at_its_first_fault_and_says_why_until_one_succeeds() -> None:
    """E9: also while it is tried again."""
    s = Scheduler(plant(Host("h", "none", slots=2, breaker=BreakerRule(reset_s=5.0))))
    s.apply(m.Submitted(tasks("a", "b")), 0.0)
    broken = Outcome(Verdict.HOST, error="no such program; install it", needs_fix=True)
    change = changes_of(s.apply(m.Finished("a", 1, broken), 1.0))[-1]
    fault = Fault("no such program; install it", needs_fix=True)
    assert (change.state, change.fault) == ("down", fault)
    assert change.detail == "h failed once: no such program; install it"
    assert s.needed_fix(tasks("c")[0]) == fault.error
    tried = s.apply(m.Tick(), 7.0)
    assert started(tried) == ["a"]
    assert [(c.state, c.fault) for c in changes_of(tried)][-1] == ("probing", fault)
    again = changes_of(s.apply(m.Finished("a", 2, broken), 8.0))[-1]
    assert (again.state, again.fault) == ("down", fault)
    s.apply(m.Tick(), 30.0)
    well = changes_of(s.apply(m.Finished("a", 3, DONE), 31.0))[-1]
    assert (well.state, well.fault) == ("up", None)
    assert s.needed_fix(tasks("c")[0]) is None


def test_a_task_needs_a_fix_only_where_each_of_its_hosts_does() -> None:
    s = Scheduler(plant(Host("h", "none"), Host("spare", "none", fallback=Fallback())))
    s.apply(m.HostHealth("h", False, "wrong key", needs_fix=True), 0.0)
    assert s.needed_fix(tasks("c")[0]) is None
    s.apply(m.HostHealth("spare", False, "refused"), 0.0)
    assert s.needed_fix(tasks("c")[0]) is None, "it may come back by itself"
    s.apply(m.HostHealth("spare", False, "no money", needs_fix=True), 0.0)
    assert s.needed_fix(tasks("c")[0]) == "wrong key"
    assert s.needed_fix(tasks("c", kind="k", host="spare")[0]) == "no money"


def test_a_host_keeps_its_fault_while_others_trust_it() -> None:
    """One fault of three: it is up, and the fault is known; a health check's word goes with the check."""
    s = Scheduler(plant(Host("h", "none")))
    s.apply(m.Submitted(tasks("a")), 0.0)
    (change,) = changes_of(s.apply(m.Finished("a", 1, failed(Verdict.HOST)), 1.0))
    assert (change.state, change.fault) == ("up", Fault("it failed"))
    (down,) = changes_of(s.apply(m.HostHealth("h", False, "refused"), 2.0))
    assert (down.state, down.detail, down.fault) == ("down", "refused", Fault("refused"))
    (up,) = changes_of(s.apply(m.HostHealth("h", True), 3.0))
    assert (up.state, up.fault) == ("up", None)


def test_units_are_kept_only_as_long_as_the_one_they_are_kept_for_waits() -> None:
    """Another of its class has not waited so long: smaller ones may pass it."""
    s = Scheduler(plant(Host("h", "none", 2), aging_s=10.0))
    s.apply(m.Submitted(tasks("run", queued_at=1.0)), 1.0)
    s.apply(m.Submitted(tasks("old", priority=0, needs={"slots": 2}, queued_at=1.0)), 1.0)
    s.apply(m.Tick(), 11.0)
    s.apply(m.Submitted(tasks("young", priority=0, needs={"slots": 2}, queued_at=12.0)), 12.0)
    assert started(s.apply(m.Submitted(tasks("small", queued_at=12.0)), 12.0)) == []
    assert s.waiting_reason("small") == "order"
    assert started(s.apply(m.CancelAsked("old"), 13.0)) == ["small"]


def test_no_units_are_kept_for_who_waits_for_its_lane() -> None:
    """It could not take them; and what fills its lane may wait for them."""
    lanes = (Lane("default"), Lane("x", max_running=1))
    hosts = (Host("h", "none", 2, serves=("a",)), Host("other", "none", 1, serves=("b",)))
    s = Scheduler(plant(*hosts, lanes=lanes, aging_s=10.0))
    s.apply(m.Submitted(tasks("run", kind="a", queued_at=1.0)), 1.0)
    s.apply(m.Submitted(tasks("big", kind="a", lane="x", needs={"slots": 2}, queued_at=1.0)), 1.0)
    s.apply(m.Tick(), 11.0)
    assert started(s.apply(m.Submitted(tasks("small", kind="a", queued_at=12.0)), 12.0)) == []
    fills = s.apply(m.Submitted(tasks("fills", kind="b", lane="x", queued_at=13.0)), 13.0)
    assert started(fills) == ["fills", "small"]
    assert s.waiting_reason("big") == "lane:x"


def test_a_task_made_less_urgent_behind_a_gate_does_not_keep_its_old_place() -> None:
    """Where it stood when the gate closed must not count again when it opens."""
    gate = Gate("g", probe="psutil:cpu_percent", max=90.0, on_error="open", holds_kinds=("b",))
    s = Scheduler(plant(gates=(gate,), lanes=(Lane("default"), Lane("x", max_running=1)), aging_s=100.0))
    s.apply(m.Submitted(tasks("run", lane="x", queued_at=1.0)), 1.0)
    s.apply(m.Submitted(tasks("moved", kind="b", lane="x", priority=1, queued_at=2.0)), 2.0)
    s.apply(m.GateRead("g", 95.0), 3.0)
    s.apply(m.PriorityAsked("moved", 4), 4.0)
    s.apply(m.Submitted(tasks("urgent", priority=2, queued_at=5.0)), 5.0)
    s.apply(m.GateRead("g", 50.0), 6.0)
    assert started(s.apply(m.Finished("run", 1, DONE), 7.0)) == ["urgent"]


def test_the_line_of_a_full_lane_does_not_grow_with_what_opens_and_closes() -> None:
    gate = Gate("g", probe="psutil:cpu_percent", max=90.0, on_error="open", holds_kinds=("b",))
    s = Scheduler(plant(gates=(gate,), lanes=(Lane("default", max_running=1),)))
    s.apply(m.Submitted(tasks("run", queued_at=1.0)), 1.0)
    s.apply(m.Submitted(tasks("b1", "b2", kind="b", queued_at=1.0)), 1.0)
    for n in range(1000):
        s.apply(m.GateRead("g", 95.0 if n % 2 else 50.0), 2.0 + n)
    assert len(s._world.lane("default").line) <= 100
    s.apply(m.GateRead("g", 50.0), 2000.0)
    assert started(s.apply(m.Finished("run", 1, DONE), 2001.0)) == ["b1"]


def test_a_host_that_was_paused_and_is_down_says_why_it_is_down() -> None:
    s = Scheduler(plant())
    s.apply(m.PauseSet("host", "h", True), 1.0)
    s.apply(m.HostHealth("h", False, "connection refused"), 2.0)
    s.apply(m.Submitted(tasks("a")), 3.0)
    s.apply(m.PauseSet("host", "h", False), 4.0)
    assert (s.waiting_reason("a"), s.waiting_detail("a")) == ("host-down", "connection refused")
