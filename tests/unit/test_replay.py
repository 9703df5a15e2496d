"""What a replay takes from the record and what it lets the scheduler decide again (E3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from penstock.diagnosis.history import Epoch, Owner
from penstock.diagnosis.recording import Recording, recording_of
from penstock.diagnosis.simulator import Fate, Simulator
from penstock.diagnosis.waits import TAKEN_IN
from penstock.diagnosis.whatif.inferred import playable
from penstock.diagnosis.whatif.replay import Replay
from penstock.errors import UsageError
from penstock.model import (
    Attempt,
    Fallback,
    Gate,
    Host,
    Lane,
    Outcome,
    Plant,
    Price,
    RetryRule,
    State,
    Task,
    TaskRecord,
    Verdict,
    Wait,
)
from penstock.scheduling.messages import (
    AllChange,
    CancelAsked,
    Event,
    GateChange,
    GateRead,
    HostChange,
    Start,
    Submitted,
)

BEGIN = 1_700_000_000.0
ONE = Plant((Host("h", "none", slots=2),), (Lane("default"),))
DONE = Outcome(Verdict.DONE)


def with_slots(plant: Plant, slots: int) -> Plant:
    return replace(plant, hosts=(replace(plant.hosts[0], slots=slots), *plant.hosts[1:]))


def task(name: str, **fields: object) -> Task:
    return Task(**{"kind": "k", "id": name, "queued_at": BEGIN, **fields})  # type: ignore[arg-type]


def lived(
    plant: Plant,
    tasks: Sequence[Task],
    seconds: Mapping[str, float],
    outcomes: Mapping[tuple[str, int], Outcome] | None = None,
    events: Sequence[tuple[float, Event]] = (),
) -> Recording:
    """A run that was: each attempt takes its task's seconds."""

    def fate(start: Start, task: Task) -> Fate:
        return Fate(seconds[start.task], (outcomes or {}).get((start.task, start.attempt), DONE))

    simulator = Simulator(plant, fate)
    for at, event in events:
        simulator.at(BEGIN + at, event)
    for one in tasks:
        simulator.at(one.queued_at, Submitted([one]))
    simulator.run(before=BEGIN + 1e6)
    return recording_of(simulator.history(), plant, simulator.now)


def ends(recording: Recording) -> dict[str, float | None]:
    return {
        r.task.id: None if r.ended_at is None else round(r.ended_at - recording.begin, 4)
        for r in recording.tasks
    }


def played(record: Recording, plant: Plant, instead: Mapping[str, float] | None = None) -> Recording:
    assert record.plant is not None
    return Replay(record, record.plant, instead).under(plant).recording()


# ---- what changes


def test_more_slots_let_what_waited_start() -> None:
    names = ["a", "b", "c", "d"]
    record = lived(ONE, [task(n) for n in names], dict.fromkeys(names, 4.0))
    assert ends(record) == {"a": 4.0, "b": 4.0, "c": 8.0, "d": 8.0}
    again = played(record, with_slots(ONE, 4))
    assert ends(again) == dict.fromkeys(names, 4.0)
    assert again.waits["c"] == ()
    assert again.makespan_s == 4.0


def test_failures_come_back_in_their_order_and_retries_wait_as_long() -> None:
    broke = Outcome(Verdict.TEMPORARY, error="broke", retry_after_s=7.0)
    record = lived(ONE, [task("a")], {"a": 2.0}, {("a", 1): broke})
    assert ends(record) == {"a": 11.0}, "2 s, 7 s until it may try again, 2 s"
    again = played(record, with_slots(ONE, 1))
    assert [a.verdict for a in again.attempts] == [Verdict.TEMPORARY, Verdict.DONE]
    assert ends(again) == {"a": 11.0}


def test_more_tries_than_were_recorded_end_well() -> None:
    plant = replace(ONE, retry=RetryRule(retries=0))
    broke = Outcome(Verdict.TEMPORARY, error="broke")
    record = lived(plant, [task("a"), task("b")], {"a": 2.0, "b": 4.0}, {("a", 1): broke})
    assert record.tasks[0].state is State.FAILED
    again = played(record, replace(plant, retry=RetryRule(retries=1, base_s=1.0)))
    assert again.tasks[0].state is State.DONE
    second = next(a for a in again.attempts if a.task == "a" and a.number == 2)
    assert (second.ended_at or 0) - second.started_at == pytest.approx(4.0), "as long as its kind does"


def test_a_cancel_comes_when_it_came() -> None:
    record = lived(
        with_slots(ONE, 1), [task("a"), task("b")], {"a": 5.0, "b": 9.0}, events=[(3.0, CancelAsked("b"))]
    )
    assert ends(record) == {"a": 5.0, "b": 3.0}
    again = played(record, ONE)
    assert ends(again) == {"a": 5.0, "b": 3.0}
    assert [a.task for a in again.attempts] == ["a", "b"], "it runs now, and is stopped"
    assert again.tasks[1].state is State.CANCELLED


def test_dependencies_hold_and_fail_again() -> None:
    bad = Outcome(Verdict.PERMANENT, error="no")
    chain = [task("a"), task("b", after=("a",)), task("c", after=("x",)), task("x")]
    record = lived(
        with_slots(ONE, 1),
        [chain[0], chain[1], chain[3], chain[2]],
        dict.fromkeys("abcx", 2.0),
        {("a", 1): bad},
    )
    again = played(record, with_slots(ONE, 4))
    assert ends(again) == {"a": 2.0, "b": 2.0, "x": 2.0, "c": 4.0}
    assert {r.task.id: r.state for r in again.tasks} == {
        "a": State.FAILED, "b": State.FAILED, "x": State.DONE, "c": State.DONE,
    }  # fmt: skip


def test_fallback_opens_when_the_change_makes_tasks_wait() -> None:
    cloud = Host("cloud", "none", slots=4, fallback=Fallback(after_s=3.0))
    plant = Plant((Host("h", "none", slots=4), cloud), (Lane("default"),))
    record = lived(plant, [task(n) for n in "abcd"], dict.fromkeys("abcd", 5.0))
    assert {a.host for a in record.attempts} == {"h"}
    again = played(record, with_slots(plant, 1))
    assert [a.host for a in again.attempts] == ["h", "cloud", "cloud", "cloud"]


# ---- hosts and money


def test_work_on_another_host_goes_by_what_the_record_tells_of_both() -> None:
    plant = Plant((Host("slow", "none", slots=4), Host("fast", "none", slots=4)), (Lane("default"),))
    tasks = [task(f"t{n}", host=("slow", "fast")[n % 2]) for n in range(8)]
    record = lived(plant, tasks, {t.id: (6.0, 2.0)[n % 2] for n, t in enumerate(tasks)})
    free = replace(record, tasks=[replace(r, task=replace(r.task, host=None)) for r in record.tasks])
    again = played(free, Plant((replace(plant.hosts[1], slots=8),), plant.lanes))
    assert set(ends(again).values()) == {2.0}, "what took 6 s there takes 2 s here"


def test_costs_follow_the_prices_of_the_host() -> None:
    dear, cheap = {"m": Price(input=4.0, output=8.0)}, {"m": Price(input=1.0, output=2.0)}
    plant = Plant((Host("h", "openai", model="m", models=("m",), prices=dear),), (Lane("default"),))
    paid = {("a", 1): Outcome(Verdict.DONE, cost_usd=0.8)}
    record = lived(plant, [task("a", model="m")], {"a": 1.0}, paid)
    assert record.costs == {("a", 1): 0.8}
    other = Host("c", "openai", model="m", models=("m",), prices=cheap)
    assert played(record, Plant((other,), plant.lanes)).costs == {("a", 1): pytest.approx(0.2)}


# ---- the outside


def test_gates_that_read_a_probe_open_and_close_as_they_did() -> None:
    gate = Gate("vram", probe="nvml:memory_free_gb", min=3.0, holds_hosts=("h",))
    plant = replace(ONE, gates=(gate,))
    events = [(-1.0, GateRead("vram", 8.0)), (1.0, GateRead("vram", 1.0)), (6.0, GateRead("vram", 5.0))]
    record = lived(plant, [task("a"), task("b", queued_at=BEGIN + 2.0)], {"a": 1.0, "b": 1.0}, events=events)
    assert ends(record) == {"a": 1.0, "b": 7.0}
    assert ends(played(record, with_slots(plant, 5))) == {"a": 1.0, "b": 7.0}
    assert ends(played(record, with_slots(ONE, 5))) == {"a": 1.0, "b": 3.0}, "without the gate"
    with pytest.raises(UsageError, match=r"gates\.vram: .* another probe, min or max cannot be replayed"):
        played(record, replace(plant, gates=(replace(gate, min=2.0),)))
    with pytest.raises(UsageError, match=r"no readings of psutil:load1; .*--unset gates\.new"):
        played(record, replace(plant, gates=(gate, Gate("new", probe="psutil:load1", max=1.0))))


def test_a_host_that_was_down_is_down_again() -> None:
    record = lived(ONE, [task("a"), task("b"), task("c")], dict.fromkeys("abc", 2.0))
    down = [
        HostChange("h", BEGIN + 2.0, "down", 2, "no answer"),
        HostChange("h", BEGIN + 5.0, "up", 2, ""),
    ]
    record = replace(record, changes=[*record.changes, *down])
    again = played(record, ONE)
    assert ends(again) == {"a": 2.0, "b": 2.0, "c": 7.0}
    assert [w.reason for w in again.waits["c"]] == ["slots:h", "host-down"]


def test_slots_that_somebody_set_count_unless_they_are_what_is_changed() -> None:
    record = lived(ONE, [task(n) for n in "abcd"], dict.fromkeys("abcd", 2.0))
    record = replace(record, changes=[*record.changes, HostChange("h", BEGIN, "up", 1, "")])
    assert ends(played(record, ONE))["d"] == 8.0
    assert ends(played(record, with_slots(ONE, 4)))["d"] == 2.0


def test_what_everything_waited_for_is_waited_for_again() -> None:
    record = lived(ONE, [task("a", queued_at=BEGIN + 1.0)], {"a": 2.0})
    paused = [AllChange(BEGIN, True), AllChange(BEGIN + 4.0, False)]
    again = played(replace(record, changes=[*record.changes, *paused]), ONE)
    assert [(w.reason, w.seconds) for w in again.waits["a"]] == [("paused", 3.0)]


def test_a_dispatcher_that_died_dies_again_and_what_ran_starts_anew() -> None:
    """Of the attempt that the crash cut short nothing is counted as done."""
    cut = Attempt(
        "a", 1, "h", "default", BEGIN, 1, BEGIN + 3.0, Verdict.HOST,
        "the dispatcher died while attempt 1 ran", BEGIN + 3.0,
    )  # fmt: skip
    whole = Attempt("a", 2, "h", "default", BEGIN + 10.0, 1, BEGIN + 15.0, Verdict.DONE)
    record = Recording(
        "r",
        BEGIN,
        BEGIN + 15.0,
        [TaskRecord(task("a"), 1, State.DONE, attempts=2, ended_at=BEGIN + 15.0)],
        [cut, whole],
        waits={"a": [Wait("dispatcher-down", "", BEGIN + 3.0, BEGIN + 10.0)]},
        plant=ONE,
    )
    again = played(record, ONE)
    assert ends(again) == {"a": 15.0}
    assert [(w.reason, w.seconds) for w in again.waits["a"]] == [("dispatcher-down", 7.0)]


def test_attempts_of_other_runs_hold_their_slots() -> None:
    record = lived(with_slots(ONE, 1), [task("a")], {"a": 2.0})
    other = Attempt("z", 1, "h", "default", BEGIN, 9, BEGIN + 6.0, Verdict.DONE)
    record = replace(record, others=[other])
    again = played(record, with_slots(ONE, 1))
    assert ends(again) == {"a": 8.0}
    assert [w.reason for w in again.waits["a"]] == ["slots:h"]
    assert len(again.tasks) == 1
    assert len(again.others) == 1
    assert ends(played(record, ONE)) == {"a": 2.0}


def test_a_task_that_was_asked_for_again_lives_twice() -> None:
    no = Attempt("a", 1, "h", "default", BEGIN, 1, BEGIN + 2.0, Verdict.PERMANENT, "no")
    yes = Attempt("a", 2, "h", "default", BEGIN + 9.0, 1, BEGIN + 10.0, Verdict.DONE)
    record = Recording(
        "r",
        BEGIN,
        BEGIN + 10.0,
        [TaskRecord(task("a"), 1, State.DONE, attempts=2, ended_at=BEGIN + 10.0)],
        [no, yes],
        waits={"a": []},
        plant=ONE,
    )
    again = Replay(record, ONE).under(ONE).recording()
    assert {r.task.id: r.state for r in again.tasks} == {"a": State.FAILED, "a~2": State.DONE}
    assert again.makespan_s == 10.0


# ---- what cannot be played


def test_tasks_that_no_host_would_take_are_an_error() -> None:
    record = lived(ONE, [task("a")], {"a": 1.0})
    with pytest.raises(UsageError, match="no host would be left for tasks of kind 'k', such as a"):
        played(record, Plant((Host("h", "none", serves=("other",)),), ONE.lanes))


def test_what_never_ends_is_told_and_not_waited_for() -> None:
    gate = Gate("shut", probe="psutil:load1", max=1.0, holds_hosts=("h",))
    record = lived(ONE, [task("a")], {"a": 1.0})
    shut = replace(record, changes=[GateChange("shut", BEGIN, False, "psutil:load1 = 9 > 1")])
    plant = replace(ONE, gates=(gate,))
    result = Replay(replace(shut, plant=plant), plant).under(plant)
    assert result.makespan_s == float("inf")
    assert result.recording().tasks[0].state is State.QUEUED


def test_durations_can_be_given() -> None:
    record = lived(ONE, [task("a"), task("b")], {"a": 100.0, "b": 3.0})
    assert ends(played(record, ONE, {"a": 5.0})) == {"a": 5.0, "b": 3.0}


def test_a_run_that_goes_on_takes_as_long_as_its_kind_does() -> None:
    record = lived(ONE, [task("a"), task("b"), task("c")], dict.fromkeys("abc", 4.0))
    tasks = [replace(r, state=State.QUEUED, ended_at=None) if r.task.id == "c" else r for r in record.tasks]
    attempts = [a for a in record.attempts if a.task != "c"]
    record = replace(record, tasks=tasks, attempts=attempts, end=BEGIN + 4.0)
    assert ends(played(record, ONE))["c"] == 8.0


# ---- logs of other systems


def log(*rows: tuple[str, str, str, float, float], told: str = "task kind host started ended") -> Recording:
    tasks, attempts = [], []
    for number, (name, kind, host, start, end) in enumerate(rows, 1):
        one = Task(kind, id=name, queued_at=0.0, model="m")
        tasks.append(TaskRecord(one, number, State.DONE, attempts=1, started_at=start, ended_at=end))
        attempts.append(Attempt(name, 1, host, "default", start, 0, end, Verdict.DONE))
    return Recording("log", 0.0, max(row[4] for row in rows), tasks, attempts, told=frozenset(told.split()))


def test_a_log_lets_infer_its_hosts() -> None:
    rows = [("a", "x", "h", 0.0, 4.0), ("b", "x", "h", 1.0, 5.0), ("c", "y", "g", 0.0, 2.0)]
    recording, plant = playable(log(*rows), None)
    assert [(h.name, h.slots, h.serves) for h in plant.hosts] == [("h", 2, ("x",)), ("g", 1, ("y",))]
    assert ends(played(recording, plant)) == {"a": 4.0, "b": 4.0, "c": 2.0}
    assert ends(played(recording, with_slots(plant, 1))) == {"a": 4.0, "b": 8.0, "c": 2.0}


def test_a_log_without_hosts_has_one() -> None:
    recording, plant = playable(log(("a", "x", "", 0.0, 4.0), told="task started ended"), None)
    assert [h.name for h in plant.hosts] == ["unknown"]
    assert ends(played(recording, plant)) == {"a": 4.0}


def test_a_log_under_a_config_that_cannot_run_it() -> None:
    with pytest.raises(UsageError, match="no host of the config serves kind 'x' of task a; add one"):
        playable(log(("a", "x", "h", 0.0, 4.0)), Plant((Host("z", "none", serves=("y",)),)))


def test_tries_of_a_log_are_tries_again() -> None:
    recording = log(("a", "x", "h", 0.0, 4.0))
    bad = Attempt("a", 1, "h", "default", 0.0, 0, 2.0, Verdict.TEMPORARY, "oops")
    good = Attempt("a", 2, "h", "default", 3.0, 0, 4.0, Verdict.DONE)
    record = replace(recording.tasks[0], attempts=2)
    recording, plant = playable(replace(recording, tasks=[record], attempts=[bad, good]), None)
    again = played(recording, plant)
    assert [a.verdict for a in again.attempts] == [Verdict.TEMPORARY, Verdict.DONE]
    assert again.tasks[0].state is State.DONE


def test_the_epochs_of_a_replay_are_its_own() -> None:
    """A record of ours may begin before any dispatcher lived: what waited for one waits for it again."""
    record = lived(ONE, [task("a", queued_at=BEGIN)], {"a": 1.0})
    late = Epoch(1, Owner(1, "m", "c"), BEGIN + 2.0, BEGIN + 9.0)
    record = replace(record, waits={"a": [Wait("dispatcher-down", "", BEGIN, late.started_at)]})
    again = played(record, ONE)
    assert [(w.reason, w.seconds) for w in again.waits["a"]] == [("dispatcher-down", 2.0)]
    assert ends(again) == {"a": 3.0}


def test_what_ends_as_it_comes_ends_what_came_with_it() -> None:
    bad = Outcome(Verdict.PERMANENT, error="no")
    late = [task("b", after=("a",), queued_at=BEGIN + 5.0), task("c", after=("b",), queued_at=BEGIN + 5.0)]
    record = lived(ONE, [task("a"), *late], dict.fromkeys("abc", 1.0), {("a", 1): bad})
    assert ends(record) == ends(played(record, ONE)) == {"a": 1.0, "b": 5.0, "c": 5.0}


def test_what_is_waited_for_may_be_taken_in_later() -> None:
    record = lived(ONE, [task("a"), task("b", after=("a",))], {"a": 2.0, "b": 2.0})
    slow = {**record.waits, "a": [Wait("order", TAKEN_IN, BEGIN, BEGIN + 1.0)]}
    assert ends(played(replace(record, waits=slow), ONE)) == {"a": 3.0, "b": 5.0}
