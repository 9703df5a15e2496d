"""C10: the home-lab's tables, through the real scheduler in simulated time; exact, no clock is asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from penstock.compare.tables import line_of, simulated_s
from penstock.compare.workloads import FIFTY, FORTY, SIX, WORKLOADS, Workload
from penstock.model import Host, Plant


@pytest.mark.parametrize(
    ("workload", "threads_s", "penstock_s"), [(SIX, 130, 90), (FORTY, 200, 100), (FIFTY, 900, 300)]
)
def test_c10_the_tables_of_the_home_lab(workload: Workload, threads_s: float, penstock_s: float) -> None:
    line = line_of(workload)
    assert (line.one_thread_per_kind_s, line.penstock_s, line.ideal_s) == (threads_s, penstock_s, penstock_s)


def test_c10_fifty_tasks_on_the_three_hosts_of_the_home_lab() -> None:
    assert Counter(task.kind for task in FIFTY.tasks) == {"reasoning": 10, "coding": 30, "vision": 10}
    assert FIFTY.plant == SIX.plant
    assert FIFTY.name not in WORKLOADS, "the demo would play it"


def test_more_slots_shorten_and_fewer_lengthen() -> None:
    """The figures come from playing, not from the table."""
    for slots, seconds in ((1, 130), (2, 90)):
        hosts = [replace(h, slots=slots) if h.name == "surtr" else h for h in SIX.plant.hosts]
        assert simulated_s(replace(SIX, plant=Plant(tuple(hosts)))) == seconds


def test_what_cannot_be_done_is_said() -> None:
    nowhere = replace(SIX, plant=Plant((Host("skadi", "simulated", serves=("vision",)),)))
    with pytest.raises(ValueError, match="six: reasoning-1, reasoning-2, coding-1"):
        simulated_s(nowhere)
