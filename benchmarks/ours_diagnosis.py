"""How right `diagnose` is on the labelled corpus: the worst precision or recall of any finding, and the table."""

from __future__ import annotations

from benchmarks.corpus.score import GOAL, SEEDS, score
from benchmarks.frame import Bench, at_least, benchmark
from penstock.diagnosis.finders import find

QUICK_SEEDS = 10


@benchmark(
    "diagnosis",
    what="findings on generated runs: the least of all precisions and recalls",
    unit="of 1",
    goal=at_least(GOAL),
    once=True,
)
def least(bench: Bench) -> float:
    result = score(find, seeds=bench.size(SEEDS, QUICK_SEEDS))
    bench.notes.append(result.as_text())
    return result.least
