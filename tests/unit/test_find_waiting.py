"""Findings about work that waits beside room (E2): each found where it is, and not where it only looks like it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from penstock.diagnosis.diagnosed import Diagnosis
from penstock.diagnosis.finders import find
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.history import Stalled
from penstock.diagnosis.recording import Recording
from penstock.intake.logs.file import read_log
from penstock.model import Gate, Host, Lane, Plant, State, Wait
from tests.unit.recording_rig import Row, recording
from tests.unit.yard_rig import Starts, Work, Yard, fair, works

SEEDS = range(5)


def named(run: Recording | Sequence[Row]) -> dict[str, Finding]:
    return {f.name: f for f in find(run if isinstance(run, Recording) else recording(run))}


def on_hosts(count: int, seed: int, *hosts: str) -> list[Work]:
    """Each kind has a host of its own."""
    chance = random.Random(seed)
    chosen = [chance.choice(hosts) for _ in range(count)]
    return [replace(w, hosts=(h,), kind=f"for-{h}") for w, h in zip(works(count, seed), chosen, strict=True)]


# ---- head-of-line-blocking


def in_order(now: float, line: Sequence[Work], free: Mapping[str, int], running: Mapping[str, str]) -> Starts:
    """One queue: while its head cannot start, nobody can."""
    left = dict(free)
    for work in line:
        host = next((h for h in work.hosts if left[h] > 0), None)
        if host is None:
            return
        left[host] -= 1
        yield work, host


@pytest.mark.parametrize("seed", SEEDS)
def test_a_queue_that_waits_for_its_head_is_found(seed: int) -> None:
    found = named(Yard({"a": 1, "b": 2}, in_order).run(on_hosts(40, seed, "a", "b")))
    assert set(found) == {"head-of-line-blocking"}
    one = found["head-of-line-blocking"]
    assert set(one.evidence.hosts) == {"a", "b"}
    assert one.evidence.tasks
    assert one.gain_s > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_order_within_a_full_host_is_no_blocking(seed: int) -> None:
    assert not named(Yard({"a": 1, "b": 2}).run(on_hosts(40, seed, "a", "b")))
    assert not named(Yard({"a": 2}, in_order).run(works(30, seed)))


# ---- serial-starts


def one_by_one(
    now: float, line: Sequence[Work], free: Mapping[str, int], running: Mapping[str, str]
) -> Starts:
    if not running:
        yield from list(fair(now, line, free, running))[:1]


@pytest.mark.parametrize("seed", SEEDS)
def test_one_at_a_time_over_several_hosts_is_serial(seed: int) -> None:
    found = named(Yard({"a": 2, "b": 2}, one_by_one).run(on_hosts(30, seed, "a", "b")))
    assert set(found) == {"serial-starts"}
    assert "1 at a time" in found["serial-starts"].cause


def test_one_at_a_time_on_slots_that_are_known_is_serial() -> None:
    """C: blocking calls in async handlers: three tasks on a 3-slot host ran one at a time."""
    rows = Yard({"a": 3}, one_by_one).run(works(12))
    assert not named(rows), "a log alone cannot tell it from a host with one slot"
    plant = Plant((Host("a", "python", slots=3),))
    assert set(named(recording(rows, plant=plant))) == {"serial-starts"}


def test_a_full_host_of_one_slot_is_not_serial() -> None:
    rows = Yard({"a": 1}).run(works(12))
    assert not named(recording(rows, plant=Plant((Host("a", "python", slots=1),))))


def test_a_lane_limited_to_one_beside_free_slots_is_serial() -> None:
    rows = Yard({"a": 6}, one_by_one).run(works(20, lane="slow"))
    plant = Plant((Host("a", "python", slots=6),), (Lane("slow", max_running=1),))
    found = named(recording(rows, plant=plant))
    assert found["serial-starts"].remedy == "[lanes.slow] max_running = 6"


# ---- stalled-loop


def freezes(now: float, line: Sequence[Work], free: Mapping[str, int], running: Mapping[str, str]) -> Starts:
    """A task named bad blocks whoever starts the others."""
    if any(name.startswith("bad") for name in running):
        return
    for work, host in fair(now, line, free, running):
        yield work, host
        if work.name.startswith("bad"):
            return


@pytest.mark.parametrize("seed", SEEDS)
def test_a_task_that_freezes_all_hosts_is_found(seed: int) -> None:
    """C4: in a foreign log."""
    plain = on_hosts(60, seed, "a", "b", "c")
    mixed = [replace(w, name=f"bad{w.name}", seconds=40.0) if i % 12 == 5 else w for i, w in enumerate(plain)]
    found = named(Yard({"a": 2, "b": 2, "c": 2}, freezes).run(mixed))
    assert "stalled-loop" in found
    assert set(found) <= {"stalled-loop", "serial-starts", "idle-slots", "cold-starts"}
    assert "bad" in found["stalled-loop"].cause


def test_a_loop_whose_books_stood_still_is_found() -> None:
    """Tasks of two hosts that began at different times end in one moment, and in it the next ones start."""
    rows = [Row(f"w{i}-{h}", 8.0 * i, 8.0 * i + 7 + i % 3, host=h) for i in range(5) for h in "ab"]
    rows += [Row(f"x{i}", 40.0 + 3 * i, 120.0, host="ab"[i % 2]) for i in range(6)]
    rows += [Row(f"y{i}", 120.0, 127.0 + i, host="ab"[i % 2], queued=50.0) for i in range(6)]
    assert "stalled-loop" in named(rows)
    apart = [replace(r, end=44.0 + 3 * int(r.task[1:])) if r.task.startswith("x") else r for r in rows]
    assert "stalled-loop" not in named(apart)


def test_a_queue_that_stands_still_with_the_loop_is_no_blocking() -> None:
    """Twice all ends are seen late, and whoever is oldest goes first, on what seemed full: no order of queues."""
    on_a = [
        (0, 2, 0),
        (8, 12, 8),
        (11, 14, 11),
        (16, 100, 16),
        (100, 106, 25),
        (100, 189, 20),
        (106, 189, 27),
    ]
    on_a += [(189, 209, 39), (189, 201, 47), (201, 220, 48), (209, 220, 48), (220, 238, 49), (220, 233, 50)]
    on_b = [(6, 11, 6), (10, 100, 10), (11, 100, 11), (100, 189, 24), (100, 189, 18), (189, 213, 29)]
    on_b += [(189, 222, 45), (213, 226, 49), (222, 231, 51), (226, 266, 53), (231, 238, 54), (238, 263, 56)]
    rows = [
        Row(f"{host}{start}-{i}", float(start), float(end), host=host, queued=float(queued))
        for host, told in (("a", on_a), ("b", on_b))
        for i, (start, end, queued) in enumerate(told)
    ]
    found = named(rows)
    assert "stalled-loop" in found
    assert "head-of-line-blocking" not in found


def test_what_the_watchdog_saw_is_told() -> None:
    """C4: of our own runs."""
    rows = Yard({"a": 2}).run(works(10))
    stall = Stalled("t0003", 1, "a", 30.0, 12.0, 'File "tool.py", line 7, in run\n    time.sleep(12)\n')
    plant = Plant((Host("a", "python", slots=2),))
    waits = {r.task: (Wait("slots:a", "", r.queued, r.start or 0.0),) for r in rows}
    found = named(recording(rows, plant=plant, waits=waits, stalls=[stall]))
    assert set(found) == {"stalled-loop"}
    assert "t0003" in found["stalled-loop"].cause
    assert "isolation" in found["stalled-loop"].remedy
    blink = replace(stall, seconds=0.1)
    assert not named(recording(rows, plant=plant, waits=waits, stalls=[blink]))


def test_the_report_run_is_a_stalled_loop_and_not_its_gate() -> None:
    """A7: the log alone yields serial starts and a stalled loop."""
    found = find(read_log("examples/records/report-run.csv").recording)
    assert {f.name for f in found} == {"stalled-loop", "serial-starts"}
    stalled = next(f for f in found if f.name == "stalled-loop")
    assert "gptr-1" in stalled.cause
    assert stalled.gain_s > 800  # of 1597 s; the longest task alone takes 568 s


# ---- idle-slots


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dispatcher_that_polls_leaves_slots_idle(seed: int) -> None:
    found = named(Yard({"a": 3, "b": 2}, poll_s=5.0).run(works(60, seed, hosts=("a", "b"))))
    assert set(found) == {"idle-slots"}
    assert found["idle-slots"].gain_s > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_moment_between_an_end_and_a_start_is_no_idle_slot(seed: int) -> None:
    assert not named(Yard({"a": 3, "b": 2}, lag_s=0.15).run(works(60, seed, hosts=("a", "b"))))


def test_slots_that_never_fill_up_are_many_gaps() -> None:
    """One start at a time, each seconds too late: there is room all along, in one gap that never ends."""

    def one(now: float, line: Sequence[Work], free: Mapping[str, int], running: Mapping[str, str]) -> Starts:
        yield from list(fair(now, line, free, running))[:1]

    rows = Yard({"a": 8}, one, poll_s=3.0).run(works(40))
    found = named(recording(rows, plant=Plant((Host("a", "python", slots=8),))))
    assert set(found) == {"idle-slots"}


def test_a_lane_limit_far_below_the_slots_is_idle_slots() -> None:
    def three(
        now: float, line: Sequence[Work], free: Mapping[str, int], running: Mapping[str, str]
    ) -> Starts:
        yield from list(fair(now, line, free, running))[: 3 - len(running)]

    rows = Yard({"a": 8}, three).run(works(60, lane="night"))
    host = Host("a", "python", slots=8)
    found = named(recording(rows, plant=Plant((host,), (Lane("night", max_running=3),))))
    assert found["idle-slots"].remedy == "[lanes.night] max_running = 8"
    full = Yard({"a": 4}, fair).run(works(60, lane="night"))
    near = Plant((Host("a", "python", slots=4),), (Lane("night", max_running=4),))
    assert not named(recording(full, plant=near))


def test_waits_for_what_is_needed_first_are_not_idle_slots() -> None:
    """Dependencies, gates, a rate and retry delays are reasons of their own."""
    chain = [Row(f"t{i}", 10.0 * i, 10.0 * i + 9, after=(f"t{i - 1}",) if i else ()) for i in range(20)]
    assert not named(recording(chain, plant=Plant((Host("h", "python", slots=4),))))
    rows = [Row(f"t{i}", 10.0 * i, 10.0 * i + 9) for i in range(20)]
    waits = {r.task: (Wait("rate:h", "", 0.0, r.start or 0.0),) for r in rows}
    plant = Plant((Host("h", "python", slots=4),))
    assert not named(recording(rows, plant=plant, waits=waits))
    assert named(recording(rows, plant=plant)), "without the reasons it would be a fault"


# ---- unbalanced-hosts


@pytest.mark.parametrize("seed", SEEDS)
def test_tasks_dealt_out_in_turn_to_a_slow_host_are_found(seed: int) -> None:
    dealt = [replace(w, hosts=("ab"[i % 2],)) for i, w in enumerate(works(60, seed))]
    found = named(Yard({"a": 2, "b": 2}, speed={"a": 0.35}).run(dealt))
    assert set(found) == {"unbalanced-hosts"}
    assert set(found["unbalanced-hosts"].evidence.hosts) == {"a", "b"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_host_among_others_is_not_unbalanced_if_whoever_is_free_works(seed: int) -> None:
    assert not named(Yard({"a": 2, "b": 2}, speed={"a": 0.35}).run(works(60, seed, hosts=("a", "b"))))


def test_pinned_tasks_are_told_to_be_left_free() -> None:
    pinned = [
        replace(w, hosts=("a",), pin="a") if i % 5 else replace(w, hosts=("b",))
        for i, w in enumerate(works(40))
    ]
    found = named(Yard({"a": 2, "b": 2}).run(pinned))
    assert 'host = "a"' in found["unbalanced-hosts"].remedy


# ---- leaked-slots


def loses(work: Work, host: str, slots: dict[str, int]) -> None:
    if work.fails and slots[host] > 1:
        slots[host] -= 1


def gives_twice(work: Work, host: str, slots: dict[str, int]) -> None:
    if work.fails:
        slots[host] += 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("known", [False, True])
def test_slots_lost_after_failures_are_found(seed: int, known: bool) -> None:
    plan = [replace(w, fails=i in (10, 25)) for i, w in enumerate(works(80, seed))]
    rows = Yard({"a": 4}, leak=loses).run(plan)
    plant = Plant((Host("a", "python", slots=4),)) if known else None
    found = named(recording(rows, plant=plant))
    assert set(found) == {"leaked-slots"}
    assert "2 slots lost" in found["leaked-slots"].cause


@pytest.mark.parametrize("seed", SEEDS)
def test_slots_given_back_twice_are_found(seed: int) -> None:
    """C: a failing task released its slot twice (3 slots became 4)."""
    plan = [replace(w, fails=i == 15) for i, w in enumerate(works(60, seed))]
    rows = Yard({"a": 3}, leak=gives_twice).run(plan)
    assert set(named(recording(rows, plant=Plant((Host("a", "python", slots=3),))))) == {"leaked-slots"}
    assert set(named(rows)) == {"leaked-slots"}, "without the plant: it was held at 3 before"


@pytest.mark.parametrize("seed", SEEDS)
def test_failures_and_the_end_of_the_queue_are_no_leak(seed: int) -> None:
    plan = [replace(w, fails=i % 9 == 4) for i, w in enumerate(works(80, seed))]
    assert not named(Yard({"a": 4}).run(plan))


@pytest.mark.parametrize("seed", SEEDS)
def test_hosts_that_empty_because_a_kind_is_run_two_at_a_time_leak_nothing(seed: int) -> None:
    """Whoever runs the kind takes any host for the next one: on each, ever fewer run and never more again."""

    def two_slow(
        now: float, line: Sequence[Work], free: Mapping[str, int], running: Mapping[str, str]
    ) -> Starts:
        slow = sum(name.startswith("slow") for name in running)
        left = dict(free)
        for work, host in fair(now, line, left, running):
            if work.kind == "slow":
                slow += 1
                if slow > 2:
                    continue
            yield work, host

    both = ("a", "b", "c")
    slow = works(40, seed, prefix="slow", kind="slow", hosts=both)
    others = works(30, seed + 1, prefix="other", kind="other", hosts=both)
    planned = [w for pair in zip(slow, others, strict=False) for w in pair] + slow[30:]
    rows = Yard({"a": 4, "b": 4, "c": 4}, two_slow).run(planned)
    told = recording(rows, told=frozenset({"task", "kind", "host", "queued", "started", "ended"}))
    assert "leaked-slots" not in named(told)


# ---- stuck-gate


def gated(stretches: Sequence[tuple[float, float]], running: Sequence[Row] = ()) -> Recording:
    rows = [Row(f"g{i}", 100.0 + i, 110.0 + i, lane="held") for i in range(6)] + list(running)
    plant = Plant(
        (Host("h", "python", slots=20),),
        (Lane("held"), Lane("fpf")),
        (Gate("headroom", lane="fpf", max_running=2, holds_lanes=("held",)),),
    )
    waits = {f"g{i}": tuple(Wait("gate:headroom", "", a, b) for a, b in stretches) for i in range(6)}
    return recording(rows, plant=plant, waits=waits)


def test_a_gate_that_stays_closed_whatever_its_lane_does_is_found() -> None:
    found = named(gated([(0.0, 100.0)]))
    assert set(found) == {"stuck-gate"}
    assert found["stuck-gate"].evidence.gates == ("headroom",)


def test_a_gate_that_is_closed_for_a_reason_is_not_stuck() -> None:
    busy = [Row(f"f{i}", 0.0, 100.0, lane="fpf") for i in range(3)]
    assert "stuck-gate" not in named(gated([(0.0, 100.0)], busy))
    turns = [(10.0 * i, 10.0 * i + 6) for i in range(10)]
    assert "stuck-gate" not in named(gated(turns)), "it opens and closes"
    assert "stuck-gate" not in named(gated([(90.0, 100.0)])), "short against the run"


def test_a_lane_gate_that_stays_closed_after_its_reason_has_gone_is_stuck() -> None:
    """However long it was closed rightly before: its own condition held for more than any loop's lag."""
    busy = [Row(f"f{i}", 0.0, 80.0, lane="fpf") for i in range(3)]
    found = named(gated([(0.0, 100.0)], busy))
    assert found["stuck-gate"].cause.endswith("lane fpf ran no more than 2 for 20 s of it")
    late = [replace(r, end=95.0) for r in busy]
    assert "stuck-gate" not in named(gated([(0.0, 100.0)], late))
    stall = Stalled("f0", 1, "h", 99.0, 18.0, "")
    stood = replace(gated([(0.0, 100.0)], busy), stalls=(stall,))
    assert "stuck-gate" not in named(stood), "the loop that opens it stood still"


def probed(detail: str, closed: tuple[float, float]) -> Recording:
    rows = [Row(f"g{i}", closed[1] + i, 200.0 + i, lane="held") for i in range(6)]
    gate = Gate("vram", probe="nvml:memory_free_gb", min=3.0, holds_lanes=("held",))
    plant = Plant((Host("h", "python", slots=20),), (Lane("held"),), (gate,))
    return recording(rows, plant=plant, waits={r.task: (Wait("gate:vram", detail, *closed),) for r in rows})


def test_a_probe_that_reads_is_not_stuck_until_it_is_closed_for_most_of_the_run() -> None:
    reads, fails = "nvml:memory_free_gb = 1.4 < 3", "nvml:memory_free_gb failed: no driver; on_error = closed"
    assert "stuck-gate" not in named(probed(reads, (0.0, 60.0)))
    assert "stuck-gate" in named(probed(fails, (0.0, 60.0)))
    assert "stuck-gate" in named(probed(reads, (0.0, 150.0))), "a condition that cannot come true"


def test_what_would_help_a_gate_is_said_by_what_its_probe_did() -> None:
    reads, fails = "nvml:memory_free_gb = 1.4 < 3", "nvml:memory_free_gb failed: no driver; on_error = closed"
    read = named(probed(reads, (0.0, 150.0)))["stuck-gate"]
    assert read.remedy.startswith("[gates.vram] min = 1.4 would have opened it")
    assert read.cause.endswith("nvml:memory_free_gb read 1.4, and it opens from 3")
    failed = named(probed(fails, (0.0, 150.0)))["stuck-gate"]
    assert 'on_error = "open"' in failed.remedy
    assert not failed.is_endless


@pytest.mark.parametrize("others", [0, 4])
def test_a_gate_that_holds_tasks_of_a_run_that_goes_on_costs_it_its_end(others: int) -> None:
    """Also where nothing else ran: nothing can be said of how much sooner it would end."""
    whole = probed("nvml:memory_free_gb = 1.4 < 3", (0.0, 205.0))
    held = [replace(record, state=State.QUEUED, ended_at=None) for record in whole.tasks]
    run = [Row(f"o{i}", 0.0, 0.1) for i in range(others)]
    told = recording(run, plant=whole.plant, waits=whole.waits)
    told = replace(told, begin=0.0, end=205.0, tasks=[*told.tasks, *held])
    stopped = {
        task: (*waits, Wait("dispatcher-down", "", 205.0, 210.0)) for task, waits in told.waits.items()
    }
    assert find(replace(told, end=210.0, waits=stopped))[0].is_endless
    opened = {task: (*waits, Wait("slots:h", "", 205.0, 210.0)) for task, waits in told.waits.items()}
    assert not find(replace(told, end=210.0, waits=opened))[0].is_endless
    found = find(told)[0]
    assert (found.name, str(found.severity), found.is_endless) == ("stuck-gate", "high", True)
    assert found.as_record()["endless"] is True
    gain = Diagnosis(told, [found]).gain(found)
    assert gain == "the run does not end while this is so; it cost 3m25s so far"
