"""How benchmarks are run: what contestants share, and what is left when somebody is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.__main__ import load, topics_of
from benchmarks.frame import Bench, CannotRun, Topic, run_topic

ROOT = Path(__file__).parents[2]


def unused(bench: Bench) -> float:
    raise AssertionError("measured in a process of its own")


def test_contestants_are_told_of_what_they_share_and_it_goes_when_they_are_through(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[tuple[str, str]] = []

    @contextmanager
    def shared(folder: Path) -> Iterator[Mapping[str, str]]:
        seen.append(("begun", str(folder)))
        yield {"WHERE": "here"}
        seen.append(("gone", ""))

    def measured(
        topic: Topic, who: str, *, quick: bool, folder: Path, shared: Mapping[str, str]
    ) -> tuple[float, str]:
        seen.append((who, shared["WHERE"]))
        return 1.0, ""

    monkeypatch.setattr("benchmarks.frame.measure_apart", measured)
    topic = Topic("t", "what", "s", contestants={"a": unused, "b": unused}, around=shared)
    reached = run_topic(topic, rounds=2, quick=True, folder=tmp_path, tell=lambda line: None)
    rounds = [("a", "here"), ("b", "here")]
    assert seen == [("begun", str(tmp_path)), *rounds, *rounds, ("gone", "")]
    assert [figures.figures for figures in reached] == [(1.0, 1.0), (1.0, 1.0)]


def test_what_cannot_be_shared_is_the_reason_of_all(tmp_path: Path) -> None:
    @contextmanager
    def shared(folder: Path) -> Iterator[Mapping[str, str]]:
        raise CannotRun("no server")
        yield {}

    topic = Topic("t", "what", "s", contestants={"a": unused, "b": unused}, around=shared)
    reached = run_topic(topic, rounds=2, quick=True, folder=tmp_path, tell=lambda line: None)
    assert [figures.cannot for figures in reached] == ["no server", "no server"]


def test_a_measurement_ends_with_who_began_it() -> None:
    theirs, ours = os.pipe()
    code = "import time; from benchmarks.frame import *; end_with_parent(); print(1, flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=theirs, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as measuring:
        os.close(theirs)
        try:
            assert measuring.stdout is not None
            assert measuring.stdout.readline() == "1\n"
            assert measuring.poll() is None
            os.close(ours)
            assert measuring.wait(timeout=60) == 1
        finally:
            measuring.kill()


def test_one_word_chooses_all_that_is_measured_on_postgresql() -> None:
    load()
    assert set(topics_of("postgres")) >= {"postgres-drain", "postgres-latency"}
