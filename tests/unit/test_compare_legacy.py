"""One thread per kind, one task at a time each: the way before does what it is said to do."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from penstock.compare.legacy import Span, run_legacy
from penstock.compare.workloads import FORTY, SIX, Workload, one_by_one_s

SCALE = 0.0005


@pytest.mark.parametrize("workload", [SIX, FORTY], ids=["six", "forty"])
def test_c10_each_kind_runs_one_task_at_a_time_in_order_of_arrival(workload: Workload) -> None:
    spans = {span.task: span for span in run_legacy(workload, SCALE)}
    assert len(spans) == len(workload.tasks)
    for kind in {task.kind for task in workload.tasks}:
        of_kind = [spans[task.id] for task in workload.tasks if task.kind == kind]
        assert all(before.ended <= after.started for before, after in pairwise(of_kind))


def test_c10_it_takes_as_long_as_its_longest_kind() -> None:
    last = max(span.ended for span in run_legacy(SIX, SCALE))
    assert last >= one_by_one_s(SIX) * 0.999  # clocks are read in steps


def test_spans_name_the_host_of_their_kind() -> None:
    hosts = {span.task: span.host for span in run_legacy(SIX, SCALE)}
    assert {hosts["reasoning-1"], hosts["coding-1"], hosts["vision-1"]} == {"surtr", "fenrir", "skadi"}


def test_spans_are_told_as_they_end() -> None:
    told: list[Span] = []
    assert run_legacy(SIX, SCALE, told.append) == sorted(told, key=lambda span: span.ended)


def test_it_can_be_stopped() -> None:
    stop = threading.Event()
    stop.set()
    assert run_legacy(SIX, 1000.0, stop=stop) == []
