"""How much a caller may do: requests in a minute, and what waits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from penstock.model import State, Verdict
from penstock.scheduling.messages import End, Requeue, Start
from penstock.web.auth import Caller
from penstock.web.limits import Limits
from penstock.web.refusals import Refused

ONE = Caller("one", frozenset({"submit"}), max_queued=3, requests_per_min=2, token_id="1")
OTHER = replace(ONE, name="other", token_id="2")

MOST_BYTES = 1000


class Watch:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def waiting(limits: Limits, caller: Caller = ONE) -> int:
    """How many more the caller may not have."""
    room = 0
    with suppress(Refused):
        while True:
            limits.enter(caller)
            room += 1
    for _ in range(room):
        limits.leave(caller)
    return caller.max_queued - room


def start(task: str) -> Start:
    return Start(task, 1, "h", "default", 1, 0.0)


def end(task: str) -> End:
    return End(task, 1, State.DONE, "finish", 0.0, None, None)


def test_so_many_requests_in_any_minute_and_not_one_more() -> None:
    watch = Watch()
    limits = Limits(MOST_BYTES, now=watch)
    limits.admit(ONE)
    watch.now += 10.5
    limits.admit(ONE)
    with pytest.raises(Refused) as caught:
        limits.admit(ONE)
    assert (caught.value.status, caught.value.type) == (429, "rate_limited")
    assert caught.value.headers == {"Retry-After": "50", "Retry-After-Ms": "49500"}
    limits.admit(OTHER)
    watch.now += 49.5
    limits.admit(ONE)
    with pytest.raises(Refused):
        limits.admit(ONE)


def test_without_a_rate_there_is_no_limit() -> None:
    limits = Limits(MOST_BYTES, now=Watch())
    for _ in range(1000):
        limits.admit(replace(ONE, requests_per_min=None))


def test_what_waits_is_bounded_per_token() -> None:
    limits = Limits(MOST_BYTES)
    limits.enter(ONE, 3)
    with pytest.raises(Refused) as caught:
        limits.enter(ONE)
    assert (caught.value.status, caught.value.type) == (429, "queue_full")
    assert int(caught.value.headers["Retry-After"]) >= 1
    limits.enter(OTHER, 3)
    limits.leave(ONE)
    limits.enter(ONE)
    assert (waiting(limits), waiting(limits, OTHER)) == (3, 3)


def test_what_waits_is_bounded_in_bytes_per_token_and_in_all() -> None:
    """B7: a token holds at most half of the memory for waiting bodies, all of them no more than all of it."""
    limits = Limits(max_queued_bytes=100)
    third = replace(ONE, token_id="3", max_queued=1)

    def refused(caller: Caller, size_bytes: int) -> str:
        with pytest.raises(Refused) as caught:
            limits.enter_call(caller, size_bytes, lambda: 7.0)
        assert (caught.value.status, caught.value.type) == (429, "queue_full")
        assert caught.value.headers["Retry-After"] == "7"
        return caught.value.message

    limits.enter_call(ONE, 30, lambda: None)
    assert refused(ONE, 21) == "'one' has 30 bytes waiting and may have 50"
    limits.enter_call(ONE, 20, lambda: None)
    limits.enter_call(OTHER, 45, lambda: None)
    assert refused(third, 6) == "95 bytes wait, and 100 may"
    limits.enter_call(third, 5, lambda: None)
    limits.leave_call(OTHER, 45)
    assert refused(third, 1) == "'one' has 1 waiting and may have 1"  # which took no bytes
    limits.enter_call(OTHER, 45, lambda: None)
    for caller, size_bytes in ((ONE, 30), (ONE, 20), (OTHER, 45), (third, 5)):
        limits.leave_call(caller, size_bytes)
    limits.enter_call(ONE, 1000, lambda: None)  # alone, any may wait
    limits.leave_call(ONE, 1000)
    assert not limits._bytes
    assert not limits._waiting


def test_a_task_waits_until_it_starts_and_again_for_another_try() -> None:
    limits = Limits(MOST_BYTES)
    limits.enter_tasks(ONE, ["a", "b"])
    assert waiting(limits) == 2
    limits.decided([start("a"), start("somebody's")])
    limits.decided([start("a")])
    assert waiting(limits) == 1
    limits.decided([Requeue("a", 1, 0.0, 1.0, 1, 0, Verdict.TEMPORARY, None)])
    assert waiting(limits) == 2
    limits.decided([start("a"), end("a"), end("b")])
    assert waiting(limits) == 0
    limits.decided([Requeue("a", 1, 0.0, 1.0, 1, 0, Verdict.TEMPORARY, None), end("a")])
    assert waiting(limits) == 0


def test_tasks_that_were_not_kept_do_not_wait() -> None:
    limits = Limits(MOST_BYTES)
    with pytest.raises(Refused):
        limits.enter_tasks(ONE, ["a", "b", "c", "d"])
    assert waiting(limits) == 0
    limits.enter_tasks(ONE, ["a", "b"])
    limits.forget_tasks(["a", "nobody"])
    assert waiting(limits) == 1
