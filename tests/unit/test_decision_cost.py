"""DESIGN: a decision costs nearly the same with any number of hosts and of tasks; counted in lines, not in time."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from benchmarks.ours_core import every_rule
from benchmarks.ours_scale import SITUATIONS, Played

STEPS = 150


def lines_of_a_decision(played: Played) -> float:
    """How many lines of Python the scheduler runs for an attempt that ends and what follows, on the average."""
    count = 0

    def counted(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return counted

    before = sys.gettrace()
    sys.settrace(counted)
    try:
        for _ in range(STEPS):
            assert played.step()
    finally:
        sys.settrace(before)
    return count / STEPS


def full(situation: str, hosts: int) -> Played:
    played = SITUATIONS[situation](hosts)
    played.submit(4 * hosts + 1_000)
    for _ in range(hosts):
        assert played.step()
    return played


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_decision_looks_at_few_hosts_however_many_there_are(situation: str) -> None:
    few, many = (lines_of_a_decision(full(situation, hosts)) for hosts in (40, 800))
    assert many < 2 * few + 100, f"{few:.0f} lines with 40 hosts, {many:.0f} with 800"


def test_a_decision_looks_at_few_tasks_however_many_there_are() -> None:
    lines = []
    for queued in (1_000, 30_000):
        played = Played(every_rule())
        played.submit(queued)
        lines.append(lines_of_a_decision(played))
    assert lines[1] < 1.3 * lines[0] + 50, lines
