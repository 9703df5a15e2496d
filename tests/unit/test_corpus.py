"""The labelled corpus is what it claims to be: the same for a seed, possible, harmful where it says so."""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.corpus.dispatchers import Dispatcher, SingleQueue
from benchmarks.corpus.generate import FAULTS, HEALTHY, OURS_ONLY, RECIPES, Labelled, generate
from benchmarks.corpus.score import Score, Tally, runs, score_part
from benchmarks.corpus.simulation import Simulation
from benchmarks.corpus.world import OneByOne, Place, Saturating, Scaling, Work
from penstock.diagnosis.finders import FINDERS, find
from penstock.diagnosis.findings import Evidence, Finding, Severity

SEEDS = range(4)
CORPUS = Path(__file__).parents[2] / "benchmarks" / "corpus"
# The generator knows the shape of a recording, and nothing of how faults are found.
MAY_USE = {
    "penstock.diagnosis.history",
    "penstock.diagnosis.recording",
    "penstock.model",
    "penstock.scheduling.messages",
}
SCORING = {"score.py", "__main__.py"}


@cache
def made(name: str, seed: int) -> Labelled:
    return generate(name, seed)


def corpus(names: Iterator[str] | None = None) -> Iterator[Labelled]:
    for name in names or RECIPES:
        for seed in SEEDS:
            yield made(name, seed)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_the_generator_shares_no_code_with_the_finders() -> None:
    modules = [path for path in CORPUS.glob("*.py") if path.name not in SCORING]
    assert len(modules) >= 8
    for path in modules:
        ours = {name for name in imports(path) if name.partition(".")[0] == "penstock"}
        assert ours <= MAY_USE, f"{path.name} uses {ours - MAY_USE}"
        scoring = {f"benchmarks.corpus.{Path(name).stem}" for name in SCORING}
        assert not imports(path) & scoring, f"{path.name} uses the score"


@pytest.mark.parametrize("name", RECIPES)
def test_a_name_and_a_seed_always_give_the_same_run(name: str) -> None:
    assert generate(name, 1).recording == made(name, 1).recording
    assert made(name, 1).recording != made(name, 3).recording


def test_half_are_our_records_and_half_are_logs() -> None:
    for run in corpus():
        assert run.recording.is_ours == (run.name in OURS_ONLY or run.seed % 2 == 0)
        if not run.recording.is_ours:
            assert run.recording.plant is None
            assert not run.recording.waits
            assert not run.recording.stalls
            assert {"task", "started", "ended"} <= run.recording.told


def test_a_faulty_run_really_loses_by_it() -> None:
    for run in corpus(iter(FAULTS)):
        assert run.label == run.name
        assert run.label not in run.acceptable
        if run.costs_makespan:
            assert run.gain_s >= 0.04 * run.story.makespan_s, (run.name, run.seed)
        else:
            assert run.lost_s > 0, (run.name, run.seed)


def test_a_healthy_run_leaves_no_room_beside_ready_work() -> None:
    free_to_wait = {"healthy-reserve", "healthy-rate-limit", "healthy-working-gate"}
    for run in corpus(iter(HEALTHY)):
        assert run.label is None
        assert not run.acceptable
        if run.name not in free_to_wait:
            assert run.story.idle_s <= 0.02 * run.story.makespan_s, (run.name, run.seed)


def test_waits_tile_the_queue_time_of_every_task_of_ours() -> None:
    for run in corpus():
        recording = run.recording
        if not recording.is_ours:
            continue
        attempts = {
            r.task.id: [a for a in recording.attempts if a.task == r.task.id] for r in recording.tasks
        }
        for record in recording.tasks:
            own = attempts[record.task.id]
            since = [record.task.queued_at, *(a.ended_at or 0.0 for a in own)]
            gaps = [(s, a.started_at) for s, a in zip(since, own, strict=False) if a.started_at > s]
            waits = list(recording.waits[record.task.id])
            for start, end in gaps:
                inside = [w for w in waits if start <= w.start and w.end <= end]
                assert inside[0].start == start
                assert inside[-1].end == end
                assert all(a.end == b.start for a, b in pairwise(inside))
            assert sum(w.seconds for w in waits) == pytest.approx(sum(b - a for a, b in gaps), abs=1e-5)


def busy(run: Labelled, host: str) -> tuple[list[float], list[float]]:
    mine = [t for t in run.story.tries if t.host == host]
    return sorted(t.start for t in mine), sorted(t.end for t in mine)


def test_no_host_runs_more_than_its_slots_unless_that_is_the_fault() -> None:
    released_twice = next(
        run for seed in range(0, 100, 2) if (run := made("leaked-slots", seed)).variant == "rises"
    )
    for run in [*corpus(), released_twice]:
        beyond = 0
        for place in run.setup.places:
            starts, ends = busy(run, place.name)
            for at in starts:
                level = bisect_right(starts, at) - bisect_right(ends, at + 1e-7)
                beyond += level > place.slots_at(at)
        assert bool(beyond) == (run.variant == "rises"), (run.name, run.seed)


def test_our_reasons_are_true() -> None:
    """A wait for slots is beside full hosts, a wait for a lane beside a full lane, a gate is closed."""
    for run in corpus():
        recording = run.recording
        if not recording.is_ours or run.name == "leaked-slots":
            continue
        begin = recording.begin - min(w.at for w in run.story.works)
        places = {p.name: p for p in run.setup.places}
        levels = {name: busy(run, name) for name in places}
        for waits in recording.waits.values():
            for wait in waits:
                at = (wait.start + wait.end) / 2 - begin
                what, _, names = wait.reason.partition(":")
                if wait.seconds < 1e-5 or what != "slots":
                    continue
                for name in names.split(","):
                    starts, ends = levels[name]
                    level = bisect_left(starts, at) - bisect_right(ends, at)
                    kept = sum(n for lane in run.setup.lanes.values() for h, n in lane.reserve if h == name)
                    assert level + kept >= places[name].slots_at(at), (run.name, run.seed, wait)


# ---- the simulator itself


def story(
    works: list[Work], place: Place, dispatcher: Dispatcher | None = None
) -> dict[str, tuple[float, float]]:
    tries = Simulation(works, [place], dispatcher or Dispatcher()).run().tries
    return {t.task: (t.start, t.end) for t in tries}


def test_a_server_that_works_on_one_takes_all_and_ends_them_one_by_one() -> None:
    works = [Work(str(i), "k", 2.0) for i in range(3)]
    ends = story(works, Place("h", 3, law=OneByOne()))
    assert [ends[str(i)] for i in range(3)] == [(0.0, 2.0), (0.0, 4.0), (0.0, 6.0)]


def test_attempts_share_a_server_past_its_knee() -> None:
    works = [Work("a", "k", 2.0), Work("b", "k", 2.0), Work("c", "k", 1.0, at=1.0)]
    ends = story(works, Place("h", 3, law=Saturating(2)))
    # From 1 s on three share what two got: c's 1 s of work takes 1.5 s, and so does the rest of a and b.
    assert ends["a"] == pytest.approx((0.0, 2.5))
    assert ends["c"] == pytest.approx((1.0, 2.5))


def test_the_scaling_law_slows_as_it_says() -> None:
    works = [Work(str(i), "k", 1.0) for i in range(4)]
    law = Scaling(0.1, 0.02)
    assert story(works, Place("h", 4, law=law))["3"][1] == pytest.approx(1 + 0.1 * 3 + 0.02 * 4 * 3)


def test_a_single_queue_waits_for_its_head() -> None:
    works = [Work("a", "x", 5.0), Work("b", "x", 1.0), Work("c", "y", 1.0)]
    places = [Place("hx", 1, serves=("x",)), Place("hy", 1, serves=("y",))]
    fifo = {t.task: t.start for t in Simulation(works, places, SingleQueue()).run().tries}
    good = {t.task: t.start for t in Simulation(works, places, Dispatcher()).run().tries}
    assert fifo == {"a": 0.0, "b": 5.0, "c": 5.0}
    assert good == {"a": 0.0, "b": 5.0, "c": 0.0}


# ---- the score


def finding(name: str) -> Finding:
    return Finding(name, Severity.LOW, "cause", Evidence((), 0.0), "remedy", 3.0)


def test_the_score_counts_what_is_found_missed_and_made_up() -> None:
    faulty, healthy = made("head-of-line-blocking", 0), made("healthy-noisy", 0)
    score = Score({name: Tally(name) for name in FAULTS})
    score.add(faulty, [finding("head-of-line-blocking"), finding("idle-slots"), finding("contention")])
    score.add(faulty, [finding("cold-starts")])
    score.add(healthy, [finding("cold-starts")])
    score.add(healthy, [])
    hol, cold = score.by_name["head-of-line-blocking"], score.by_name["cold-starts"]
    assert (hol.runs, hol.found, hol.recall, hol.precision) == (2, 1, 0.5, 1.0)
    assert hol.gain == pytest.approx(3.0 / faulty.gain_s)
    assert (cold.right, cold.wrong, cold.precision) == (0, 2, 0.0)
    assert score.by_name["idle-slots"].wrong == 0  # true of it, too
    assert score.by_name["contention"].errors == ["head-of-line-blocking 0"]
    assert (score.healthy, score.blamed) == (2, 1)
    assert score.overall.precision == pytest.approx(2 / 5)
    assert score.least == 0.0
    both = Score({})
    both.merge(score)
    both.merge(score)
    assert both.overall.right == 2 * score.overall.right
    assert both.by_name["cold-starts"].errors == sorted(2 * cold.errors)
    assert (both.healthy, both.blamed) == (4, 2)


def test_every_finding_has_labelled_runs() -> None:
    assert set(FINDERS) == set(FAULTS)


def test_findings_are_right_on_a_sample_of_the_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """E2: `make bench` asks for 0.95 of each finding on all seeds; this is a sample of both sorts of logs."""
    monkeypatch.setattr("benchmarks.corpus.score.generate", made)  # the same runs that the others look at
    result = score_part(find, runs(seeds=2))
    assert result.overall.recall >= 0.9, result.as_text()
    assert result.overall.precision >= 0.9, result.as_text()


def test_there_are_as_many_healthy_runs_as_faulty_ones() -> None:
    all_runs = list(runs(seeds=10))
    faulty = [run for run in all_runs if run[0] in FAULTS]
    assert len(faulty) == len(all_runs) - len(faulty) == 150
    assert len(set(all_runs)) == len(all_runs)
    assert {name for name, _ in all_runs} == set(RECIPES)
