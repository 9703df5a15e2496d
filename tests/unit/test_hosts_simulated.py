"""The simulated host: the same attempt always takes as long and ends the same way."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.errors import ConfigError, PermanentError
from penstock.hosts.base import Job
from penstock.hosts.simulated import SimulatedAdapter, plan
from penstock.hosts.type_options import SimulatedOptions, read_simulated
from penstock.model import Host, Outcome, Verdict


def options(**given: Any) -> SimulatedOptions:
    return read_simulated(Host("pretend", "simulated", options=given))


def test_defaults() -> None:
    assert plan(options(), None, "t", 1) == (1.0, Outcome(Verdict.DONE, {"slept_s": 1.0}))


def test_jitter_stays_within_its_share_and_depends_on_task_attempt_and_seed() -> None:
    chosen = options(duration_s=10, jitter=0.2)
    durations = {plan(chosen, None, f"t{task}", n)[0] for task in range(200) for n in (1, 2)}
    assert len(durations) == 400
    assert 8 <= min(durations) < 8.5
    assert 11.5 < max(durations) <= 12
    assert plan(chosen, None, "t", 1) == plan(chosen, None, "t", 1)
    assert plan(chosen, None, "t", 1) != plan(options(duration_s=10, jitter=0.2, seed="x"), None, "t", 1)


def test_a_known_draw_stays_what_it_is() -> None:
    """Recorded runs are replayed by later versions."""
    duration_s, outcome = plan(options(jitter=0.5, fail={"temporary": 0.5}, seed=1), None, "a", 1)
    assert (round(duration_s, 6), outcome.verdict) == (0.913175, Verdict.DONE)


def test_failures_come_at_their_rates() -> None:
    chosen = options(fail={"temporary": 0.2, "host": 0.1})
    seen = Counter(plan(chosen, None, f"t{n}", 1)[1].verdict for n in range(5000))
    assert set(seen) == {Verdict.DONE, Verdict.TEMPORARY, Verdict.HOST}
    assert 850 < seen[Verdict.TEMPORARY] < 1150
    assert 400 < seen[Verdict.HOST] < 600


def test_what_is_done_costs_what_was_said() -> None:
    chosen = options(cost_usd=0.25, fail={"temporary": 0})
    assert plan(chosen, None, "t", 1)[1].cost_usd == 0.25
    assert plan(chosen, {"cost_usd": 2}, "t", 1)[1].cost_usd == 2
    assert plan(chosen, {"fail": "temporary"}, "t", 1)[1].cost_usd is None
    assert plan(options(), None, "t", 1)[1].cost_usd is None
    with pytest.raises(
        PermanentError, match="the payload's `cost_usd` must be a number of 0 or more, not 'x'"
    ):
        plan(chosen, {"cost_usd": "x"}, "t", 1)


def test_one_verdict_for_all() -> None:
    outcome = plan(options(fail="throttled"), {"value": 1}, "t", 1)[1]
    assert outcome == Outcome(Verdict.THROTTLED, error="simulated throttled failure")


def test_a_payload_decides_for_its_task() -> None:
    chosen = options(fail="host", jitter=1.0)
    assert plan(chosen, {"duration_s": 0.2, "fail": None, "value": [7]}, "t", 1) == (
        0.2,
        Outcome(Verdict.DONE, [7]),
    )
    verdicts = [plan(options(), {"fail_attempts": 2}, "t", n)[1].verdict for n in (1, 2, 3)]
    assert verdicts == [Verdict.TEMPORARY, Verdict.TEMPORARY, Verdict.DONE]
    named = [plan(options(), {"fail": "permanent", "fail_attempts": 1}, "t", n)[1].verdict for n in (1, 2)]
    assert named == [Verdict.PERMANENT, Verdict.DONE]


@pytest.mark.parametrize(
    ("payload", "word"),
    [
        ({"duration_s": -1}, "duration_s"),
        ({"duration_s": True}, "duration_s"),
        ({"duration_s": float("nan")}, "duration_s"),
        ({"fail": "done"}, "has an unknown failure; choose from temporary"),
        ({"fail": {"temporary": 2}}, "a number from 0 to 1 as every rate"),
        ({"fail": 1}, "must be a verdict or a table"),
        ({"fail_attempts": "two"}, "fail_attempts"),
    ],
)
def test_payloads_that_make_no_sense(payload: Any, word: str) -> None:
    with pytest.raises(PermanentError, match=word):
        plan(options(), payload, "t", 1)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"duration_s": -1}, "hosts.pretend.duration_s: must be a number of 0 or more"),
        ({"jitter": 2}, "hosts.pretend.jitter: must be a number from 0 to 1"),
        ({"fail": "cancelled"}, "hosts.pretend.fail: has an unknown failure; choose from temporary"),
        (
            {"fail": {"temporary": 0.7, "host": 0.7}},
            "hosts.pretend.fail: has rates that add up to more than 1",
        ),
        (
            {"fail": {"temporary": "often"}},
            "hosts.pretend.fail: must have a number from 0 to 1 as every rate",
        ),
        ({"seed": [1]}, "hosts.pretend.seed: must be a number or a text"),
    ],
)
def test_config_problems_have_place_and_remedy(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        options(**given)
    assert problem in str(error.value)


async def test_it_sleeps_on_the_clock_it_is_given() -> None:
    clock = ManualClock()
    host = SimulatedAdapter(Host("pretend", "simulated", options={"duration_s": 5}), clock)
    work = asyncio.ensure_future(host.work(Job("t", 1, "k", None, "pretend", "default")).run())
    await asyncio.sleep(0)
    assert clock.next_waking() == 5
    clock.advance(5)
    assert (await work).value == {"slept_s": 5.0}
