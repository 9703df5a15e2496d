"""A host that only pretends: attempts that take a given time and fail at given rates.

    [hosts.pretend]
    type = "simulated"
    duration_s = 1.0
    jitter = 0.2                                    # each attempt ±20 %
    fail = { temporary = 0.1, host = 0.05 }         # rates; or the name of one verdict: always
    cost_usd = 0.02                                 # of each attempt that is done
    seed = 1

A payload can decide for its own task: `{"duration_s": 0.2, "fail": "temporary", "fail_attempts": 2}`
fails in the first two attempts only; `value` is what it returns, `cost_usd` what it costs when it is done. All
chance comes from seed, task and attempt, so that the simulator and a live run agree on every attempt.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from penstock.clock import Clock
from penstock.errors import PermanentError
from penstock.hosts.base import Health, Job, OwnCoroutine
from penstock.hosts.type_options import SimulatedOptions, failure_rates, read_simulated
from penstock.model import Host, Outcome, Verdict


def plan(options: SimulatedOptions, payload: Any, task: str, attempt: int) -> tuple[float, Outcome]:
    """How long this attempt takes and how it ends; the same answer for the same question, always."""
    chance = random.Random(f"{options.seed}:{task}:{attempt}")  # noqa: S311 - it simulates, it guards nothing
    swing, luck = chance.uniform(-1.0, 1.0), chance.random()
    wishes: Mapping[str, Any] = payload if isinstance(payload, dict) else {}
    duration_s = _wish(wishes, "duration_s")
    if duration_s is None:
        duration_s = options.duration_s * (1.0 + options.jitter * swing)
    cost_usd = _wish(wishes, "cost_usd")
    if cost_usd is None:
        cost_usd = options.cost_usd
    verdict = _verdict(options.fail, wishes, attempt, luck)
    if verdict is not Verdict.DONE:
        return duration_s, Outcome(verdict, error=f"simulated {verdict} failure")
    value = wishes.get("value", {"slept_s": duration_s})
    return duration_s, Outcome(Verdict.DONE, value, cost_usd=cost_usd)


def _wish(wishes: Mapping[str, Any], name: str) -> float | None:
    wish: Any = wishes.get(name)
    if wish is not None and (not isinstance(wish, int | float) or isinstance(wish, bool) or not wish >= 0):
        raise PermanentError(f"the payload's `{name}` must be a number of 0 or more, not {wish!r}")
    return wish


class SimulatedAdapter:
    def __init__(self, host: Host, clock: Clock) -> None:
        self._options = read_simulated(host)
        self._clock = clock

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def work(self, job: Job) -> OwnCoroutine:
        duration_s, outcome = plan(self._options, job.payload, job.task, job.attempt)

        async def pretend() -> Outcome:
            await self._clock.sleep(duration_s)
            return outcome

        return OwnCoroutine(pretend)

    async def check(self) -> Health:
        return Health(True, "simulated")


def _verdict(rates: Mapping[Verdict, float], wishes: Mapping[str, Any], attempt: int, luck: float) -> Verdict:
    if "fail" in wishes or "fail_attempts" in wishes:
        attempts = wishes.get("fail_attempts")
        if attempts is not None and not isinstance(attempts, int):
            raise PermanentError(f"the payload's `fail_attempts` must be a whole number, not {attempts!r}")
        if attempts is not None and attempt > attempts:
            return Verdict.DONE
        try:
            rates = failure_rates(wishes.get("fail", Verdict.TEMPORARY))
        except ValueError as error:
            raise PermanentError(f"the payload's `fail`: {error}") from None
    for verdict, rate in rates.items():
        if luck < rate:
            return verdict
        luck -= rate
    return Verdict.DONE


def make(host: Host, clock: Clock) -> SimulatedAdapter:
    return SimulatedAdapter(host, clock)
