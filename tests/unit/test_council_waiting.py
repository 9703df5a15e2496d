"""What is told of steps that wait for hosts, by the store: once, and nothing that is out of date."""

from __future__ import annotations

from penstock.config.councils import LIBRARY
from penstock.council.waiting import Waits, down
from penstock.model import Host, Plant, State, Task, TaskRecord
from penstock.store.base import HostStatus

V5, V6 = (Host(name, "openai", serves=("chat",)) for name in ("v5", "v6"))
PLANT = Plant((V5, V6))
REFUSED = {"v6": HostStatus("down", 1, "Connection refused", 0.0)}
STARTED = {"event": "step", "step": "member/TRUNKS", "state": "started"}


def queued(attempts: int, key: str = "council/q/member/TRUNKS") -> TaskRecord:
    return TaskRecord(Task("chat", host="v6", key=key), 1, State.QUEUED, attempts=attempts)


def test_a_step_whose_host_is_down_is_told_once() -> None:
    """D2"""
    waits = Waits("q", PLANT)
    (told,) = waits.events([queued(1)], REFUSED)
    assert told == {
        "event": "step",
        "step": "member/TRUNKS",
        "name": "TRUNKS",
        "stage": "members",
        "state": "queued",
        "attempts": 1,
        "why": "v6 is down (Connection refused)",
    }
    assert waits.events([queued(1)], REFUSED) == []
    (up,) = waits.events([queued(1)], {})
    assert up["why"] is None
    waits.hear({**STARTED, "attempt": 2})
    assert waits.events([queued(1)], REFUSED) == [], "the store is behind: the second attempt has begun"
    assert [one["attempts"] for one in waits.events([queued(2)], REFUSED)] == [2]


def test_others_are_left_alone() -> None:
    waits = Waits("q", PLANT)
    assert waits.events([queued(0)], {}) == [], "it waits for a slot"
    assert waits.events([queued(3, "council/other/member/TRUNKS"), queued(3, "mine")], REFUSED) == []
    assert waits.events([TaskRecord(Task(LIBRARY), 1, State.QUEUED)], REFUSED) == []


def test_hosts_are_down_where_all_that_may_take_it_are() -> None:
    """D2: one that was never recorded may be up."""
    assert down([V5, V6], REFUSED) is None
    both = {"v5": HostStatus("probing", 1, "v5: " + "x" * 200, 0.0), **REFUSED}
    told = down([V5, V6], both)
    assert told is not None
    assert told.startswith("v5 and v6 are down (xxx")
    assert len(told) < 110
    assert down([], {}) is None
