"""E9: after a crash the next dispatcher names what was running, and who may have caused it."""

from __future__ import annotations

from dataclasses import replace

from penstock.clock import SystemClock
from penstock.council.live import Hub
from penstock.diagnosis.history import Owner
from penstock.dispatcher.payloads import Payloads
from penstock.dispatcher.recovery import _run_inside, interruption
from penstock.model import Host, OnCrash, Plant, State, Task, TaskRecord
from penstock.scheduling.messages import Start
from penstock.store.base import Arrival


def test_what_was_running_at_a_crash_is_named_with_who_may_have_caused_it() -> None:
    crashing = {"in"}
    lost = Owner(42, "box", "penstock run")

    def record(id: str, host: str, on_crash: OnCrash = OnCrash.RETRY) -> TaskRecord:
        return TaskRecord(Task("k", id=id, on_crash=on_crash), 1, State.RUNNING, attempts=1, host=host)

    others = [record(f"c{n}", "c") for n in range(6)]
    assert interruption(others, crashing, lost) == (
        "6 tasks were running when the last dispatcher was lost (process 42 on box, penstock run): "
        "c0 (k on c, runs again), c1 (k on c, runs again), c2 (k on c, runs again), c3 (k on c, runs again), "
        "c4 (k on c, runs again) and 1 more"
    )
    suspect = record("t", "in", OnCrash.BLOCK)
    told = interruption([*others, record("p", "apart"), suspect], crashing, lost)
    assert "penstock run): t (k on in, is blocked), c0 (k on c, runs again)" in told
    assert told.endswith(
        " and 3 more; if that happens again, suspect t: a Python function can crash the process that it runs in, "
        'and isolation = "process" in [hosts.in] gives it another one'
    )
    assert "suspect" not in interruption([suspect], (), None), "it stopped by itself"


def test_only_functions_in_the_process_of_the_dispatcher_can_crash_it() -> None:
    inside = Host("in", "python", options={"call": "m:f"})
    apart = Host("apart", "python", options={"call": "m:f", "isolation": "process"})
    plant = Plant((inside, apart, Host("c", "command")))
    assert _run_inside(plant) == {"in"}
    assert _run_inside(replace(plant, outliving=("in",))) == set(), "it runs on a cluster"


def test_what_a_crash_left_begins_where_it_may_crash_again_when_that_is_recorded() -> None:
    """Or the next dispatcher would not know whom to name."""
    payloads = Payloads(None, Hub(SystemClock()))  # type: ignore[arg-type]
    tasks = [Task("k", id="old", queued_at=1.0), Task("k", id="new", queued_at=9.0)]
    payloads.keep(Arrival(TaskRecord(task, 1, State.QUEUED), b"1") for task in tasks)

    def careful(host: str) -> list[str]:
        _, jobs, _ = payloads.make([Start(task.id, 1, host, "default", 1, 9.0) for task in tasks])
        return [job.task for job in jobs]

    assert careful("in") == []
    payloads.doubt(5.0, {"in"})
    assert careful("in") == ["old"]
    assert careful("apart") == []
