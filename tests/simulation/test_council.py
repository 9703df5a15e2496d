"""Questions to councils by seeds: any members, modes, outcomes, orders of ends, limits and kills of the driver.

Whatever happens, the question ends with a record that is true to what the members did: D3, D4, D5, D7.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from penstock.config.councils import Mode
from penstock.council.plan.course import follow, moves
from penstock.council.plan.so_far import SoFar
from penstock.council.plan.steps import Moves, Stage
from penstock.council.recorded import read_record
from penstock.model import State
from tests.simulation.council_world import ASKED_AT, Life, Look, World, world

SOAK = bool(os.environ.get("PENSTOCK_SOAK"))
BLOCKS = 4
PER_BLOCK = 2_500 if SOAK else 40
ORDER = (Stage.RETRIEVE, Stage.MEMBERS, Stage.REVIEW, Stage.SYNTHESIS)
TIMES = ("response_time", "total_time", "took_s", "asked_at", "started", "ended")


def seeds(block: int) -> range:
    return range(block * PER_BLOCK, (block + 1) * PER_BLOCK)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_question_ends_in_a_true_record(block: int) -> None:
    for seed in seeds(block):
        of = world(seed)
        life = Life(of, kills=seed % 4, late_s=(seed % 3) * 0.4)
        over = life.run()
        try:
            check_looks(life)
            check_record(life, over)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_killed_driver_changes_nothing_but_times(block: int) -> None:
    """A question that is begun again asks nobody twice, and comes to the record it would have come to."""
    for seed in seeds(block):
        of = without_clocks(world(seed))
        whole, broken = Life(of), Life(of, kills=5)
        expected, found = whole.run(), broken.run()
        assert timeless(found.record) == timeless(expected.record), f"seed {seed}"
        assert found.error == expected.error, f"seed {seed}"
        assert set(broken.asked) == set(whole.asked), f"seed {seed}"


def without_clocks(of: World) -> World:
    """Where time decides nothing, an outage changes nothing."""
    limits = {mode: replace(limit, time_s=None) for mode, limit in of.council.limits.items()}
    return replace(of, council=replace(of.council, patience_s=None, limits=limits))


def timeless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: timeless(one) for key, one in value.items() if key not in TIMES}
    return [timeless(one) for one in value] if isinstance(value, list) else value


# ---- what holds at every look


def check_looks(life: Life) -> None:
    stages = [ORDER.index(stage_of(life.world, look)) for look in life.looks]
    assert stages == sorted(stages), "a stage was taken back"
    for look in life.looks:
        check_look(life.world, look)


def stage_of(of: World, look: Look) -> Stage:
    return follow(SoFar(of.council, of.question, look.asked, look.ended, look.now, of.prices)).stage


def check_look(of: World, look: Look) -> None:
    found = look.found
    again = moves(of.council, of.question, look.asked, look.ended, look.now, of.prices)
    assert again == found, "asked twice, it says two things"
    names = [step.name for step in found.ask]
    assert len(set(names)) == len(names)
    assert not set(names) & set(look.asked), "what was asked is asked again"
    for step in found.ask:
        assert all(look.ended[name].is_done for name in step.after), f"{step.name} is after what is not done"
    assert set(found.cancel) <= set(look.asked) - set(look.ended), "what does not run is cancelled"
    assert found.wake_at is None or found.wake_at > look.now, "it wakes in the past"
    limits = of.council.limits.get(of.question.mode)
    if limits is not None and limits.time_s is not None and look.now >= ASKED_AT + limits.time_s:
        assert found.record is not None, "its time is up"
    if found.record is None:
        live = set(look.asked) - set(look.ended)
        assert names or live, "it waits for nothing"
        check_patience(of, look)
    else:
        assert not found.ask


def check_patience(of: World, look: Look) -> None:
    """A member is only cancelled when enough others answered `patience_s` ago, and then it is."""
    cancelled = {name for name in look.found.cancel if name.startswith("member/")}
    patience_s = of.council.patience_s
    assert patience_s is not None or not cancelled
    if patience_s is None or of.question.mode is Mode.QUICK:
        return
    steps = [f"member/{name}" for name in of.question.members]
    steps = [step for step in steps if step in look.asked]
    so_far = SoFar(of.council, of.question, look.asked, look.ended, look.now, of.prices)
    answered = {f"member/{one.name}" for one in follow(so_far).responses if one.has_answered}
    times = sorted(look.ended[step].ended_at for step in answered)
    needed = min(of.council.min_answers, len(of.question.members))
    live = {step for step in steps if step not in look.ended}
    is_begun = not any(step.name.startswith("member/") for step in look.found.ask)
    if len(times) < needed or not is_begun:
        assert not cancelled
        return
    # Whoever was asked late, after a kill, has the same patience as the others.
    cutoff = max(times[needed - 1], *(look.asked[step] for step in steps)) + patience_s
    if look.now >= cutoff:
        assert cancelled == live
    else:
        assert not cancelled
        wake_at = look.found.wake_at
        assert not live or (wake_at is not None and wake_at <= cutoff)


# ---- what holds at the end


def check_record(life: Life, over: Moves) -> None:
    assert over.record is not None
    record: dict[str, Any] = json.loads(json.dumps(over.record))
    read_record(record, "the simulation")
    of = life.world
    names = [one["name"] for one in record["responses"]]
    assert names == [name for name in of.question.members if name in names], "not in configured order"
    if of.question.mode is not Mode.QUICK:
        assert names == list(of.question.members)
    answered = [one for one in record["responses"] if one["success"]]
    for one in record["responses"]:
        check_response(life, one)
    assert record["success_count"] == len(answered)
    assert record["total_fighters"] == len(names)
    assert record["quorum"]["met"] == (len(answered) >= record["quorum"]["needed"])
    assert (over.error is not None) == (not answered)
    if over.error is not None:
        assert "\n" not in over.error
        assert record["synthesis"] is None
        return
    assert all(one["state"] != "awaited" for one in (record["review"] or {"ballots": []})["ballots"])
    check_synthesis(life, record, answered)
    check_agreement(record, answered)


def check_response(life: Life, one: Mapping[str, Any]) -> None:
    """D3: an answer is what the member said, and a failure has the words it failed with."""
    end = life.looks[-1].ended.get(f"member/{one['name']}")
    assert one["success"] == (one["state"] == "answered")
    assert one["success"] == (one["error"] is None)
    assert one["success"] == bool(one["answer"])
    assert one["state"] != "asked"
    if end is not None and end.state is State.FAILED and end.error:
        assert one["error"] == end.error
    if one["success"]:
        assert end is not None
        assert end.is_done
        assert "CONFIDENCE" not in one["answer"]
    if end is None:
        assert one["error"].split(":")[0] in ("cancelled", "not asked")


def check_synthesis(life: Life, record: Mapping[str, Any], answered: list[dict[str, Any]]) -> None:
    """D4: a lone answer is no synthesis, and who sums up is who did."""
    made, needed = record["synthesis"], record["quorum"]["needed"]
    done = {name.removeprefix("synthesis/") for name in life.asked if name.startswith("synthesis/")}
    assert made["text"]
    assert len(done) <= 2
    assert len(made["passed_on"]) <= 2
    assert all(one["error"] for one in made["passed_on"])
    match made["method"]:
        case "synthesis":
            assert len(answered) >= max(2, needed)
            assert made["by"] in done
            assert made["by"] not in [one["name"] for one in made["passed_on"]]
        case "single":
            one = next(one for one in answered if one["name"] == made["by"])
            assert made["text"] == one["answer"]
            quick = record["mode"] == "quick" and record["escalated"] is None
            assert len(answered) == 1 or quick
        case "list":
            assert len(answered) > 1
            assert made["by"] is None
            assert made["text"].startswith("No synthesis: ")
            assert all(one["answer"] in made["text"] for one in answered)
        case other:
            raise AssertionError(other)


def check_agreement(record: Mapping[str, Any], answered: list[dict[str, Any]]) -> None:
    """D4: measured, or not and why."""
    found = record["agreement"]
    assert found["measured"] == (found["score"] is not None)
    assert found["measured"] or found["why"]
    assert not found["measured"] or len(answered) > 1
