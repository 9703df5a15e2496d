"""Details of waits have names; what earlier versions have stored of them is known by its text."""

from __future__ import annotations

import pytest

from penstock.model import Host, Plant, Task
from penstock.scheduling import messages as m
from penstock.scheduling.details import Detail
from penstock.scheduling.scheduler import Scheduler

STORED = {
    "no worker of the cluster had begun it yet": Detail.NO_WORKER,
    "its payload had to be read first": Detail.READ_FIRST,
    "its start had to be recorded first": Detail.RECORDED_FIRST,
    "the dispatcher is stopping": Detail.STOPPING,
}


@pytest.mark.parametrize(("text", "detail"), STORED.items())
def test_what_stores_have_is_known(text: str, detail: Detail) -> None:
    """Whoever words one anew has to read these all the same."""
    assert Detail.of(text) is detail


def test_every_one_is_known_by_what_it_stores_now() -> None:
    assert [Detail.of(one.value) for one in Detail] == list(Detail)


@pytest.mark.parametrize("text", ["", "everything is paused", "The dispatcher is stopping"])
def test_others_are_only_for_people(text: str) -> None:
    assert Detail.of(text) is None


def test_what_is_stored_is_the_text_itself() -> None:
    """No store has to know of names."""
    scheduler = Scheduler(Plant((Host("h", "x"),)))
    told = scheduler.apply(m.Submitted([Task("k", id="a"), Task("k", id="b")]), 1.0)
    told += scheduler.apply(m.Delayed("a", 1), 3.0)
    told += scheduler.apply(m.Drain(), 4.0)
    details = [d.detail for d in told if isinstance(d, m.WaitChange)]
    moves = [d.why for d in told if isinstance(d, m.Move)]
    assert {*STORED} >= {*details, *moves} - {""} >= {Detail.NO_WORKER.value, Detail.STOPPING.value}
    assert {type(text) for text in (*details, *moves)} == {str}
