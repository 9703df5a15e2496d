"""The recorded faults of examples/: what `diagnose` says of each, from the data alone (A7, E2)."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from penstock.config import load
from penstock.diagnosis.finders import find
from penstock.diagnosis.recording import Recording
from penstock.intake.logs.file import read_log

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORDS = EXAMPLES / "records"


def record(name: str, config: str | None = None) -> Recording:
    plant = None if config is None else load(RECORDS / config).plant
    return read_log(RECORDS / name, plant=plant).recording


def names(recording: Recording) -> set[str]:
    return {finding.name for finding in find(recording)}


def test_a7_the_record_is_the_published_run() -> None:
    """A7: 26m37s, 7 GPTR, 4 MA at once and a fifth, FPF; one GPTR task of 14m08s."""
    run = record("report-run.csv")
    assert run.makespan_s == 26 * 60 + 37
    kinds = [r.task.kind for r in run.tasks]
    assert {kind: kinds.count(kind) for kind in kinds} == {"ma": 5, "fpf": 5, "gptr": 7, "deep": 6}
    first = next(r for r in run.tasks if r.task.id == "gptr-1")
    assert first.ended_at is not None
    assert first.started_at is not None
    assert first.ended_at - first.started_at == 14 * 60 + 8
    at_first = [a.task for a in run.attempts if a.started_at == run.begin]
    assert sum(task.startswith("ma-") for task in at_first) == 4


def test_a7_the_log_alone_shows_serial_starts_and_a_stalled_loop() -> None:
    """A7, E2: not the gate that its authors blamed, nor the contention."""
    findings = {finding.name: finding for finding in find(record("report-run.csv"))}
    assert set(findings) == {"serial-starts", "stalled-loop"}
    assert all(finding.severity == "high" for finding in findings.values())
    assert {"gptr-2", "ma-5"} <= set(findings["stalled-loop"].evidence.tasks)
    assert all(task.startswith("gptr-") for task in findings["serial-starts"].evidence.tasks)
    assert findings["stalled-loop"].gain_s > 14 * 60


def test_a7_the_caps_of_its_config_change_nothing() -> None:
    """A7, E2: the fifth of `ma` waits for its lane, but its lane for ends that the frozen loop did not see."""
    assert names(record("report-run.csv", "report-run.toml")) == {"serial-starts", "stalled-loop"}


@pytest.mark.parametrize("more", [[], ["model"], ["queued"], ["queued", "lane", "state"]], ids=",".join)
def test_a7_starts_and_ends_are_enough(tmp_path: Path, more: list[str]) -> None:
    """A7, E2: with less told the same is found, and nothing else: durations in a frozen loop are no contention."""
    with (RECORDS / "report-run.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (tmp_path / "bare.csv").open("w") as file:
        columns = ["task", "kind", "started", "ended", *more]
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    assert names(read_log(tmp_path / "bare.csv").recording) == {"serial-starts", "stalled-loop"}


def test_e2_a_thread_per_kind_starts_one_at_a_time() -> None:
    """E2: 130 s, where 90 s are possible with the slots that the hosts have."""
    run = record("thread-per-kind.csv", "home-lab.toml")
    assert round(run.makespan_s) == 130
    assert names(run) == {"serial-starts"}
    assert names(record("thread-per-kind.csv")) == set(), (
        "nothing in it tells that a host would have taken more"
    )


def test_e2_a_server_that_takes_one_call_at_a_time_is_named() -> None:
    """E2: neither threads nor processes were the cause."""
    assert names(record("one-at-a-time-server.jsonl")) == {"one-at-a-time-server"}


def test_e2_an_async_handler_that_blocks_is_named() -> None:
    """C4, E2: tasks of other hosts wait for the end of the one that blocks."""
    (finding,) = [f for f in find(record("blocking-handler.csv")) if f.name == "stalled-loop"]
    assert set(finding.evidence.hosts) == {"surtr", "fenrir", "skadi"}
    assert "coding" in finding.cause
    assert "stalled-loop" in names(record("blocking-handler.csv", "home-lab.toml"))


@pytest.mark.parametrize("path", sorted((EXAMPLES / "findings").iterdir()), ids=lambda path: path.stem)
def test_e2_each_example_shows_what_it_is_named_for(path: Path) -> None:
    """E2."""
    assert path.stem in names(read_log(path).recording)
