"""D1: what `diagnose`, the summary and `whatif` make of questions, on exports of real ones.

A question only waits for its steps: it is no load, no bound of the ideal, and nobody's contention.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from penstock.config.council_steps import called, step_key, step_of
from penstock.diagnosis.finders import find
from penstock.diagnosis.finders.ideal import Piece, gain_s
from penstock.diagnosis.finders.one_at_a_time_server import serves_one
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.questions import asking_hosts, question_kinds, work_of
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.speed import speed_of
from penstock.diagnosis.summary import bound_of
from penstock.diagnosis.whatif.figures import figures_of, replay_error
from penstock.diagnosis.whatif.replay import Replay
from penstock.intake.logs.file import read_log
from penstock.model import Host, Plant
from tests.unit.recording_rig import Row, recording

RECORDS = Path(__file__).parent / "council_records"
MEMBERS = ("GOKU", "VEGETA", "PICCOLO", "GOHAN", "KRILLIN", "FRIEZA")


@cache
def asked(name: str) -> Recording:
    return read_log(str(RECORDS / f"{name}.jsonl")).recording


def plant_of(record: Recording, **slots: int) -> Plant:
    assert record.plant is not None
    hosts = tuple(replace(host, slots=slots.get(host.name, host.slots)) for host in record.plant.hosts)
    return replace(record.plant, hosts=hosts)


def ran_s(record: Recording, name: str) -> float:
    (task,) = (one.task.id for one in record.tasks if called(one.task) == name)
    (attempt,) = (one for one in record.attempts if one.task == task)
    assert attempt.ended_at is not None
    return attempt.ended_at - attempt.started_at


# ---- names


@pytest.mark.parametrize(
    ("step", "shown"),
    [
        ("member/GOKU", "GOKU"),
        ("review/GOKU", "GOKU review"),
        ("review/GOKU/repair", "GOKU review repair"),
        ("synthesis/SHENRON", "SHENRON synthesis"),
        ("retrieve", "retrieve"),
        ("agreement/quick", "agreement quick"),
    ],
)
def test_a_step_is_called_by_its_member(step: str, shown: str) -> None:
    found = step_of(step_key("1m7h", step))
    assert found is not None
    assert (found.question, found.shown) == ("1m7h", shown)


@pytest.mark.parametrize("key", [None, "", "nightly", "council/", "council/1m7h", "council/1m7h/member/"])
def test_other_keys_are_no_steps(key: str | None) -> None:
    assert step_of(key) is None


# ---- what is left without questions


def test_a_question_is_no_load() -> None:
    whole = asked("one-server")
    work = work_of(whole)
    assert asking_hosts(whole.plant) == {"council-shenron"} == question_kinds(whole.plant)
    assert len(work.tasks) == len(whole.tasks) - 1
    assert {attempt.host for attempt in work.attempts} == {"lmstudio", "council-library"}
    assert whole.begin < work.begin < work.end < whole.end
    assert work_of(work) == work


# ---- diagnose


@pytest.mark.parametrize("name", ["one-server", "thorough"])
def test_one_server_that_takes_one_at_a_time(name: str) -> None:
    """D1: six members on it: it is named, with the remedy, and nothing else is."""
    (found,) = find(asked(name))
    assert found.name == "one-at-a-time-server"
    assert found.evidence.hosts == ("lmstudio",)
    assert "[hosts.lmstudio] slots = 1" in found.remedy
    assert "OLLAMA_NUM_PARALLEL" in found.remedy


def test_the_gain_of_a_server_that_takes_all_at_once() -> None:
    """The members at the same time, then the chair: the synthesis comes as soon as they have ended."""
    whole = asked("one-server")
    (found,) = find(whole)
    alone_s = ran_s(whole, "GOKU")
    # All but the first member's time is gained; what remains beside it is the chair's, or the library's.
    assert found.gain_s == pytest.approx(5 * alone_s, rel=0.05)


@pytest.mark.parametrize("name", ["six-servers", "one-slot"])
def test_nothing_of_the_kind_is_said_of_others(name: str) -> None:
    """D1: of concurrent servers, or where the queue already gives out one at a time."""
    assert find(asked(name)) == []


@pytest.mark.parametrize("seed", range(40))
def test_members_of_different_speed_are_not_taken_for_a_line(seed: int) -> None:
    """Six models on a host that takes all of them at once, asked three times in the same order."""
    chance = random.Random(seed)
    usual = {member: chance.uniform(0.5, 6.0) for member in MEMBERS}
    rows = [
        Row(
            f"{member}-{turn}",
            turn * 20.0,
            turn * 20.0 + usual[member] * chance.uniform(0.9, 1.1),
            model=member,
        )
        for turn in range(3)
        for member in MEMBERS
    ]
    assert not any(curve.slows for curve in speed_of(recording(rows)).values())


@pytest.mark.parametrize("turns", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_a_line_is_seen_whatever_the_models_and_however_often(turns: int, seed: int) -> None:
    """Who is asked last is always slow, so no member can be compared with itself."""
    chance = random.Random(seed)
    rows = []
    for turn in range(turns):
        end = start = turn * 20.0
        for member in MEMBERS:
            end += chance.uniform(0.95, 1.05)
            rows.append(Row(f"{member}-{turn}", start, end, model=member))
        rows.append(Row(f"CHAIR-{turn}", end, end + 1.0, model="chair"))
    assert serves_one(speed_of(recording(rows))["h"])


def test_what_is_repeated_in_the_same_order_proves_no_more() -> None:
    """Three models, always one second apart: they may be so, however often they are asked."""
    rows = [
        Row(f"{model}-{turn}", turn * 20.0, turn * 20.0 + seconds, model=model)
        for turn in range(30)
        for model, seconds in (("a", 1.0), ("b", 2.0), ("c", 3.0))
    ]
    assert not speed_of(recording(rows))["h"].slows


def test_slots_of_a_host_that_only_waits_for_its_own_calls_are_not_prescribed() -> None:
    """Its attempts are as long as their calls let them be, whatever runs beside them."""
    rows = [Row(f"t{i}", 0.0, 1.0 + i, host="runs", kind="k") for i in range(8)]
    plant = Plant(hosts=(Host("runs", type="researcher", slots=8, serves=("k",)),))
    record = recording(rows, plant=plant)
    assert [one.name for one in find(record)] == ["one-at-a-time-server"]
    assert find(replace(record, callers=frozenset({"runs"}))) == []


def test_nor_more_of_them() -> None:
    """That another of its like ran many at once in the same time is no proof: the calls were others."""
    rows = [Row(f"a{i}", i * 1.01, i * 1.01 + 1.0, host="a", pin="a") for i in range(10)]
    rows += [
        Row(f"b{j}{i}", 0.1 + j * 1.01, 1.1 + j * 1.01, host="b", pin="b") for j in range(9) for i in range(8)
    ]
    hosts = tuple(Host(name, type="researcher", slots=n, serves=("k",)) for name, n in (("a", 1), ("b", 8)))
    record = recording(rows, plant=Plant(hosts=hosts))
    assert "wrong-slots" in [one.name for one in find(record)]
    assert "wrong-slots" not in [one.name for one in find(replace(record, callers=frozenset({"a", "b"})))]


def test_callers_are_known_of_runs_of_ours() -> None:
    assert asked("six-servers").callers == {"council-shenron"}


def test_what_comes_after_others_is_dealt_out_after_their_ends() -> None:
    rows = [Row("a", 0.0, 4.0), Row("b", 5.0, 6.0, queued=5.0, after=("a",))]
    scene = Scene(recording(rows))
    work = [
        Piece(0.0, 1.0, "h", ("h",), "default", ("k", None), "a"),
        Piece(5.0, 1.0, "h", ("h",), "default", ("k", None), "b", ("a",), 1.0),
    ]
    assert gain_s(scene, work) == pytest.approx(3.0)


# ---- the ideal


def test_the_ideal_is_the_slowest_member_and_the_chair() -> None:
    whole = asked("six-servers")
    assert whole.plant is not None
    bound = bound_of(whole, whole.plant)
    slowest_s = max(ran_s(whole, member) for member in MEMBERS)
    assert bound.seconds == pytest.approx(slowest_s + ran_s(whole, "SHENRON synthesis"))
    assert bound.because == "SHENRON synthesis and what must be done before it"
    assert whole.makespan_s < 1.05 * bound.seconds


# ---- what if


@pytest.mark.parametrize("name", ["one-server", "one-slot", "six-servers", "thorough"])
def test_a_question_is_replayed_as_it_was(name: str) -> None:
    work = work_of(asked(name))
    played = Replay(work, plant_of(work)).under(plant_of(work)).recording()
    error = replay_error(work, played)
    assert error is not None
    assert error < 0.01


def test_more_slots_let_the_synthesis_come_sooner() -> None:
    work = work_of(asked("one-slot"))
    plant = plant_of(work, lmstudio=6)
    played = Replay(work, plant_of(work)).under(plant)
    alone_s = ran_s(work, "GOKU")
    library_s = ran_s(work, "agreement")
    assert played.makespan_s == pytest.approx(alone_s + library_s, rel=0.05)
    figures = figures_of(played.recording(), plant)
    assert [host.host for host in figures.hosts] == ["lmstudio", "council-library"]


def test_a_server_that_takes_one_at_a_time_gains_nothing_by_slots() -> None:
    """And loses nothing by fewer: its members then wait in the queue."""
    work = work_of(asked("one-server"))
    for slots in (1, 3, 12):
        played = Replay(work, plant_of(work)).under(plant_of(work, lmstudio=slots))
        assert played.makespan_s == pytest.approx(work.makespan_s, rel=0.02)
