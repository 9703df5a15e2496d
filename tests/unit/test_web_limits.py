"""How much a caller may do: requests in a minute, and what waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.model import State, Verdict
from penstock.scheduling.messages import End, Requeue, Start
from penstock.web.auth import Caller
from penstock.web.limits import Limits
from penstock.web.refusals import Refused

ONE = Caller("one", frozenset({"submit"}), max_queued=3, requests_per_min=2, token_id="1")
OTHER = replace(ONE, name="other", token_id="2")


class Watch:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def start(task: str) -> Start:
    return Start(task, 1, "h", "default", 1, 0.0)


def end(task: str) -> End:
    return End(task, 1, State.DONE, "finish", 0.0, None, None)


def test_so_many_requests_in_any_minute_and_not_one_more() -> None:
    watch = Watch()
    limits = Limits(watch)
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
    limits = Limits(Watch())
    for _ in range(1000):
        limits.admit(replace(ONE, requests_per_min=None))


def test_what_waits_is_bounded_per_token() -> None:
    limits = Limits()
    limits.enter(ONE, 3)
    with pytest.raises(Refused) as caught:
        limits.enter(ONE)
    assert (caught.value.status, caught.value.type) == (429, "queue_full")
    assert int(caught.value.headers["Retry-After"]) >= 1
    limits.enter(OTHER, 3)
    limits.leave(ONE)
    limits.enter(ONE)
    assert (limits.waiting(ONE), limits.waiting(OTHER)) == (3, 3)


def test_a_task_waits_until_it_starts_and_again_for_another_try() -> None:
    limits = Limits()
    limits.enter_tasks(ONE, ["a", "b"])
    assert limits.waiting(ONE) == 2
    limits.decided([start("a"), start("somebody's")])
    limits.decided([start("a")])
    assert limits.waiting(ONE) == 1
    limits.decided([Requeue("a", 1, 0.0, 1.0, 1, 0, Verdict.TEMPORARY, None)])
    assert limits.waiting(ONE) == 2
    limits.decided([start("a"), end("a"), end("b")])
    assert limits.waiting(ONE) == 0
    limits.decided([Requeue("a", 1, 0.0, 1.0, 1, 0, Verdict.TEMPORARY, None), end("a")])
    assert limits.waiting(ONE) == 0


def test_tasks_that_were_not_kept_do_not_wait() -> None:
    limits = Limits()
    with pytest.raises(Refused):
        limits.enter_tasks(ONE, ["a", "b", "c", "d"])
    assert limits.waiting(ONE) == 0
    limits.enter_tasks(ONE, ["a", "b"])
    limits.forget_tasks(["a", "nobody"])
    assert limits.waiting(ONE) == 1
