"""The tuner of one host's slots, alone: what it makes of starts, ends and times."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from penstock.model import AutoSlots, Host, Lane, Outcome, Plant, Task, Verdict
from penstock.scheduling import messages as m
from penstock.scheduling.scheduler import Scheduler
from penstock.scheduling.tuning import Tuner


class Rig:
    """Keeps a tuner's host full with calls that take `seconds(n)` when n run at once, one ending at a time."""

    def __init__(self, tuner: Tuner, seconds: Callable[[int], float]) -> None:
        self.tuner = tuner
        self.seconds = seconds
        self.now = 0.0
        self.count = 0
        self.running: list[str] = []
        self.seen: list[int] = [tuner.limit]
        self.fill()

    def fill(self) -> None:
        while len(self.running) < self.tuner.limit:
            self.count += 1
            self.running.append(f"t{self.count}")
            self.tuner.began(self.running[-1], self.now, len(self.running) >= self.tuner.limit)

    def end(self, verdict: Verdict = Verdict.DONE, slow: bool = False) -> None:
        n = len(self.running)
        took = self.seconds(n)
        self.now += took / n
        task = self.running.pop(0)
        full = len(self.running) >= self.tuner.limit
        self.tuner.ended(task, self.now, verdict, took, n, full, slow)
        self.seen.append(self.tuner.limit)
        self.fill()

    def go(self, ends: int) -> Rig:
        for _ in range(ends):
            self.end()
        return self


def knee(k: int) -> Callable[[int], float]:
    return lambda n: max(1.0, n / k)


def tuner(low: int = 1, high: int = 64, slots: int | None = None) -> Tuner:
    return Tuner(AutoSlots(low, high), low if slots is None else slots)


@pytest.mark.parametrize("best", [1, 2, 3, 5, 8, 13, 21, 32, 47, 64])
def test_any_knee_is_found(best: int) -> None:
    """C7: exactly, where nothing is noisy, and it stays there but for a trial now and then."""
    rig = Rig(tuner(), knee(best)).go(60 * best + 400)
    before = len(rig.seen)
    rig.go(100 * best)
    late = rig.seen[before:]
    assert max(set(late), key=late.count) == best
    assert late.count(best) > 0.7 * len(late)


def test_the_limit_stays_within_its_bounds() -> None:
    """C7: from the first slot on, whatever is tried, told or set."""
    assert tuner(3, 5, slots=1).limit == 3
    assert tuner(3, 5, slots=9).limit == 5
    for best in (1, 4, 50):
        rig = Rig(tuner(3, 5), knee(best)).go(2000)
        for _ in range(20):
            rig.end(Verdict.THROTTLED)
        rig.tuner.configure(1)
        rig.tuner.configure(99)
        rig.tuner.stretch(99)
        rig.tuner.tick(1e9)
        assert set(rig.seen) | {rig.tuner.limit} <= {3, 4, 5}


def test_equal_bounds_leave_nothing_to_tune() -> None:
    rig = Rig(tuner(4, 4), knee(2)).go(1000)
    rig.end(Verdict.THROTTLED)
    assert set(rig.seen) == {4}


def test_too_much_cuts_at_once_and_is_a_ceiling_for_a_while() -> None:
    """C7: down by a third, back to one less than what was too much, no further until the pause is over."""
    rig = Rig(tuner(1, 64, slots=20), knee(64))
    rig.tuner.configure(20)
    rig.fill()
    rig.end(Verdict.THROTTLED)
    assert rig.tuner.limit == 14
    assert rig.tuner.why == "429 at 20"
    ends = 0
    while rig.tuner.limit == 14:
        rig.end()
        ends += 1
        assert ends < 200
    assert rig.tuner.limit == 19
    told_at = rig.now
    while rig.tuner.limit <= 19:
        rig.end()
    assert rig.now - told_at > 20


def test_what_started_before_the_cut_does_not_cut_again() -> None:
    """C7: a burst of refusals is one piece of news, and says where the ceiling is."""
    t = tuner(1, 64, slots=20)
    for i in range(20):
        t.began(f"t{i}", 1.0, i == 19)
    for i in range(5):
        t.ended(f"t{i}", 1.1, Verdict.THROTTLED, 0.1, 20 - i, True, False)
    assert t.limit == 14
    t.tick(40.0)
    assert t.limit == 15  # fifteen were borne when the last was refused


def test_a_fault_now_and_then_is_no_overload_but_some_together_are() -> None:
    """C7: 5xx and time-outs cut when they come together; an error that comes quickly is the task's own."""
    rig = Rig(tuner(8, 64, slots=8), knee(8)).go(300)
    rig.tuner.configure(8)
    rig.fill()
    for _ in range(5):
        rig.end(Verdict.HOST)
        rig.go(40)
    for _ in range(10):
        rig.end(Verdict.TEMPORARY, slow=False)
        rig.end(Verdict.PERMANENT)
        rig.end(Verdict.CANCELLED)
    assert "at" not in rig.tuner.why.split()
    for verdict, word in ((Verdict.HOST, "faults"), (Verdict.TEMPORARY, "time-outs")):
        t = tuner(1, 64, slots=10)
        other = Rig(t, knee(64))
        other.end(verdict, slow=True)
        assert t.limit == 10
        other.end(verdict, slow=True)
        assert t.limit == 7
        assert t.why == f"{word} at 10"


def test_a_cut_host_without_load_recovers_with_time() -> None:
    t = tuner(1, 64, slots=10)
    t.began("a", 1.0, False)
    t.ended("a", 2.0, Verdict.THROTTLED, 1.0, 1, False, False)
    assert t.limit == 7
    assert t.recovers_at == 32.0
    t.tick(31.0)
    assert t.limit == 7
    t.tick(32.0)
    assert t.limit == 7  # one call was too much: nothing says that eight would be borne
    assert t.recovers_at is None


def test_nothing_is_learnt_while_the_limit_does_not_bind() -> None:
    """C7: light load: the host is seldom full, and what ends then is not measured."""
    t = tuner(2, 64)
    now = 0.0
    for i in range(1000):
        t.began(f"a{i}", now, False)
        now += 1.0
        t.ended(f"a{i}", now, Verdict.DONE, 1.0, 1, False, False)
    for i in range(1000):  # full for a moment each time, but never when the next comes
        t.began(f"b{i}", now, False)
        t.began(f"c{i}", now, True)
        now += 1.0
        t.ended(f"b{i}", now, Verdict.DONE, 1.0, 2, False, False)
        now += 1.0
        t.ended(f"c{i}", now, Verdict.DONE, 2.0, 1, False, False)
        now += 1.0
    assert t.limit == 2


def test_a_host_that_slows_down_gets_less_at_once() -> None:
    """C7: the gradient: latency at an unchanged limit says where to go."""
    rig = Rig(tuner(), knee(16)).go(1500)
    while rig.tuner.limit != 16:
        rig.end()
    rig.seconds = knee(4)
    start = len(rig.seen)
    rig.go(150)
    assert 4 in rig.seen[start:]
    assert rig.tuner.limit <= 5


AUTO = Host("h", "none", 1, auto=AutoSlots(1, 6))


def test_a_task_that_needs_more_slots_than_the_host_found_best_still_starts() -> None:
    """C7, promise 4: an idle host makes room for it, within its bounds."""
    s = Scheduler(Plant((AUTO,), (Lane("default"),), aging_s=10.0))
    s.apply(m.Submitted([Task("k", id="small")]), 1.0)
    waits = s.apply(m.Submitted([Task("k", id="big", needs={"slots": 4})]), 2.0)
    assert not [d for d in waits if isinstance(d, m.Start)]
    decisions = s.apply(m.Finished("small", 1, Outcome(Verdict.DONE)), 3.0)
    assert [d.task for d in decisions if isinstance(d, m.Start)] == ["big"]
    assert [(d.slots, d.detail) for d in decisions if isinstance(d, m.HostChange)] == [
        (4, "for a task that needs as many")
    ]
    s.apply(m.Finished("big", 1, Outcome(Verdict.DONE)), 4.0)
    s.apply(m.Submitted([Task("k", id="bigger", needs={"slots": 7})]), 5.0)
    assert s.waiting_reason("bigger") == "slots:h"


def test_a_big_task_is_not_passed_for_ever_on_a_host_that_tunes_itself() -> None:
    """C7, promise 4: after `aging_s` the host is kept for it, though its slots are too few just now."""
    s = Scheduler(Plant((AUTO,), (Lane("default"),), aging_s=10.0))
    s.apply(m.SlotsSet("h", 2), 0.0)
    s.apply(m.Submitted([Task("k", id=f"s{i:02d}") for i in range(40)]), 1.0)
    s.apply(m.Submitted([Task("k", id="big", needs={"slots": 4}, priority=0)]), 1.5)
    now = 1.5
    for _ in range(60):
        now += 1.0
        running = s.running()
        if "big" in dict(running):
            break
        s.apply(m.Finished(*running[0], Outcome(Verdict.DONE)), now)
    assert "big" in dict(s.running())
    assert now < 20.0


def test_hosts_with_fixed_slots_have_no_tuner() -> None:
    """Rule 5: a plain number of slots is only throttled, never tuned."""
    s = Scheduler(Plant((Host("h", "none", 2),), (Lane("default"),)))
    now = 0.0
    s.apply(m.Submitted([Task("k", id=f"t{i:03d}") for i in range(300)]), now)
    while s.live:
        now += 1.0
        told = s.apply_all([m.Finished(*run, Outcome(Verdict.DONE)) for run in s.running()], now)
        assert not [d for d in told if isinstance(d, m.HostChange)]


def played_uneven(seed: int, calls: int = 200) -> Tuner:
    """Calls whose work differs by 24 times, on a server that slows down for nobody, until all have ended."""
    chance = random.Random(seed)
    works = [float(work) for work in (16, 96, 192, 384) for _ in range(calls // 4)]
    chance.shuffle(works)
    tuned = tuner()
    left: dict[str, float] = {}
    began: dict[str, float] = {}
    now = 0.0
    while works or left:
        while works and len(left) < tuned.limit:
            task = f"t{len(began)}"
            left[task], began[task] = works.pop(), now
            tuned.began(task, now, len(left) >= tuned.limit and bool(works))
        running = len(left)
        first = min(left, key=lambda task: left[task])
        spent = left.pop(first)
        now += spent
        left = {task: work - spent for task, work in left.items()}
        full = bool(works) and len(left) >= tuned.limit
        tuned.ended(first, now, Verdict.DONE, now - began[first], running, full, False)
    return tuned


def test_uneven_calls_are_not_taken_for_a_knee() -> None:
    """C7: by chance some short calls come first; growth must not end for that on a server with room for more."""
    limits = [played_uneven(seed).limit for seed in range(60)]
    assert sum(limit >= 16 for limit in limits) >= 54
