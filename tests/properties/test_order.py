"""The queue of a class against a sorted list; rates against a count; the order key against its definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Host, Lane, Outcome, Plant, Rate, Task, Verdict
from penstock.scheduling import messages as m
from penstock.scheduling.capacity import ONE_SLOT, LaneState
from penstock.scheduling.order import GONE, Entry, Shape, WorkClass
from penstock.scheduling.rates import WINDOW_S, RateWindow
from penstock.scheduling.scheduler import Scheduler

AGING_S = 10.0


def empty_class() -> WorkClass:
    return WorkClass(1, Shape("test", LaneState(Lane("default")), (), ONE_SLOT, ()), 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("push", "late", "pop", "discard", "move")), st.integers(0, 4), st.integers(0, 50)
        ),
        max_size=200,
    )
)
def test_a_class_is_a_sorted_list(steps: list[tuple[str, int, int]]) -> None:
    """C2: whatever comes, goes or returns, the next task is the one with the least key, then the first come."""
    queue, reference = empty_class(), []
    now, seq = 100.0, 0
    for what, priority, number in steps:
        now += 1
        if what in ("push", "late"):
            seq += 1
            entry = Entry(f"t{seq}", queue.shape, priority, 0, seq)
            ready = now if what == "push" else now - number
            entry.key = ready + priority * AGING_S
            queue.push(entry)
            reference.append(entry)
        elif reference and what == "pop":
            reference.sort(key=lambda e: (e.key, e.seq))
            popped = queue.pop()
            assert popped is reference.pop(0)
            popped.status = GONE
        elif reference and what == "move":
            # As a changed priority does: what it left may lie there for a while, in a place that it comes back to.
            left = reference.pop(number % len(reference))
            entry = Entry(left.id, queue.shape, priority, 0, left.seq)
            entry.key = left.key + (priority - left.priority) * AGING_S
            left.status = GONE
            queue.discard(left)
            queue.push(entry)
            reference.append(entry)
        elif reference:
            gone = reference.pop(number % len(reference))
            gone.status = GONE
            queue.discard(gone)
        assert queue.n == len(reference)
        assert set(queue) == set(reference)
        if reference:
            assert queue.head is min(reference, key=lambda e: (e.key, e.seq))
            assert abs(queue.oldest(AGING_S) - min(e.key - e.priority * AGING_S for e in reference)) < 1e-6
            assert len(queue._heads()) <= 10, "whoever has waited longest is found without a look at all"
        else:
            assert queue.head is None


def test_how_many_go_before_is_about_right_also_of_many_out_of_order() -> None:
    queue = empty_class()
    last = Entry("last", queue.shape, 2, 0, 0)
    last.key = 1e9
    queue.push(last)
    for seq in range(1, 20_001):
        entry = Entry(f"t{seq}", queue.shape, 2, 0, seq)
        entry.key = float(seq * 7919 % 20_011)
        queue.push(entry)
    for place in (0.0, 5_000.0, 15_000.0):
        assert abs(queue.ahead(place, 0) - place) < 1_000
    assert queue.ahead(2e9, 0) == 20_001


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("submit", "move", "move", "finish")), st.integers(0, 4), st.integers(0, 30)
        ),
        max_size=60,
    )
)
def test_whoever_is_moved_goes_when_his_place_in_the_lane_says_so(steps: list[tuple[str, int, int]]) -> None:
    """C2, D6: classes with free hosts of their own wait for one full lane; its first is the least key of all."""
    hosts = tuple(Host(kind, "none", 1, serves=(kind,)) for kind in "abc")
    s = Scheduler(Plant(hosts, lanes=(Lane("default", max_running=1),), aging_s=AGING_S))
    queued: dict[str, tuple[float, int, int]] = {}  # id -> since when, priority, number
    running, now = "first", 1.0
    s.apply(m.Submitted([Task("a", id="first")]), now)
    for number, (what, priority, which) in enumerate(steps):
        now += 1.0
        chosen = sorted(queued)[which % len(queued)] if queued else ""
        if what == "submit":
            s.apply(m.Submitted([Task("abc"[which % 3], id=f"t{number}", priority=priority)]), now)
            queued[f"t{number}"] = now, priority, number
        elif what == "move" and queued:
            s.apply(m.PriorityAsked(chosen, priority), now)
            queued[chosen] = queued[chosen][0], priority, queued[chosen][2]
        elif what == "finish" and queued:
            out = s.apply(m.Finished(running, 1, Outcome(Verdict.DONE)), now)
            best = min(queued, key=lambda one: (queued[one][0] + queued[one][1] * AGING_S, queued[one][2]))
            (running,) = (one.task for one in out if isinstance(one, m.Start))
            assert running == best
            del queued[running]


@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0, 400)), max_size=100),
    st.integers(1, 20),
    st.integers(100, 1000),
)
def test_no_window_holds_more_than_its_rate(
    asks: list[tuple[float, float]], requests: int, tokens: int
) -> None:
    """Rule 1: in any 60 seconds at most so many starts, and none while the tokens of a window are spent."""
    window = RateWindow(Rate(requests, tokens))
    now = 0.0
    starts: list[tuple[float, float]] = []
    for pause, size in asks:
        now += pause
        now = max(now, window.free_at(now))
        assert window.free_at(now) <= now, "it is free when it said it would be"
        recent = [t for at, t in starts if at + WINDOW_S > now]
        assert len(recent) < requests
        assert sum(recent) < tokens
        window.take(now, size)
        starts.append((now, size))


@given(st.floats(0, 1e6), st.integers(0, 4), st.floats(0, 1e6), st.integers(0, 4), st.floats(0, 1e6))
def test_the_key_sorts_as_aged_priority_does(
    ready_a: float, priority_a: int, ready_b: float, priority_b: int, later: float
) -> None:
    """C2: waiting `aging_s` counts as one level, at every moment alike."""
    now = max(ready_a, ready_b) + later
    urgency_a = priority_a - (now - ready_a) / AGING_S
    urgency_b = priority_b - (now - ready_b) / AGING_S
    if abs(urgency_a - urgency_b) > 1e-6:
        assert (urgency_a < urgency_b) == (ready_a + priority_a * AGING_S < ready_b + priority_b * AGING_S)
