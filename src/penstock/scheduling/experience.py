"""What a host learns from an attempt that is over: money, slots, rate, breaker and how long attempts take.

Rule 5 of the rules of order, as far as hosts go. The attempt's room has been given back before.
"""

from __future__ import annotations

from math import inf

from penstock.model import Fault, Outcome, Verdict
from penstock.scheduling.adaptive import Throttle
from penstock.scheduling.budget import day_of
from penstock.scheduling.capacity import HostState
from penstock.scheduling.conditions import Conditions
from penstock.scheduling.details import short
from penstock.scheduling.messages import Decision, Spend
from penstock.scheduling.order import Entry


class Experience:
    def __init__(self, conditions: Conditions, out: list[Decision]) -> None:
        self._conditions = conditions
        self._out = out

    def finished(self, entry: Entry, host: HostState, outcome: Outcome, seconds: float, now: float) -> None:
        verdict = outcome.verdict
        if host.costs_money or outcome.cost_usd is not None:
            self._pay(entry, host, outcome.cost_usd, now)
        if host.tuner is not None:
            self._tune(host, entry, verdict, seconds, now)
        if outcome.tokens is not None and host.rate is not None:
            host.rate.correct(entry.shape.needs.tokens, outcome.tokens)
            self._conditions.refresh_host(host, now)
        if verdict is not Verdict.DONE:
            self._judge(host, outcome, now)
            return
        host.took(seconds)
        if host.breaker.failures or host.breaker.opened or host.throttle.limit < host.throttle.configured:
            self._did_well(host, now)

    def put_back(self, entry: Entry, host: HostState, usd: float | None, seconds: float, now: float) -> None:
        """It was stopped for no fault of its own; what it cost until then is spent."""
        self._pay(entry, host, usd, now)
        if host.tuner is not None:
            self._tune(host, entry, Verdict.CANCELLED, seconds, now)

    def _pay(self, entry: Entry, host: HostState, usd: float | None, now: float) -> None:
        """Count what an attempt cost, whatever its verdict; it is no longer expected to cost anything."""
        lane = entry.shape.lane
        if usd is not None and 0 < usd < inf:  # an adapter that tells anything else told nothing
            self._out.append(Spend(entry.id, entry.attempt, host.name, lane.name, day_of(now), now, usd))
            for budget in (host.budget, lane.budget):
                if budget is not None:
                    budget.add(usd, now)
            if not host.costs_money:
                self._conditions.cost_money(host, now)
        self._conditions.judge_budgets(host, lane, now)

    def _tune(self, host: HostState, entry: Entry, verdict: Verdict, seconds: float, now: float) -> None:
        """Tell a host that tunes its slots how an attempt ended."""
        tuner = host.tuner
        assert tuner is not None
        used = host.slots - host.free + entry.shape.needs.slots
        slow = host.mean_s is not None and seconds > host.mean_s
        tuner.ended(entry.id, now, verdict, seconds, used, host.full, slow)
        if tuner.limit != host.slots:
            self._conditions.refresh_host(host, now)

    def _judge(self, host: HostState, outcome: Outcome, now: float) -> None:
        verdict = outcome.verdict
        if outcome.known_fault and not host.breaker.half_open:  # who tries a host again must hear how it is
            return
        if verdict is Verdict.HOST or outcome.host_fault:
            host.last_fault = Fault(short(outcome.error or "no reason given"), outcome.needs_fix)
            host.breaker.fault(now, needs_fix=outcome.needs_fix)
        elif verdict is Verdict.THROTTLED:
            if isinstance(host.throttle, Throttle):
                host.throttle.cut(now)
            host.limited_until = max(host.limited_until, now + (outcome.retry_after_s or 0.0))
        elif host.breaker.half_open:
            host.breaker.success()  # it answered; that the task failed is not the host's fault
        else:
            return
        self._conditions.refresh_host(host, now)

    def _did_well(self, host: HostState, now: float) -> None:
        if isinstance(host.throttle, Throttle):
            host.throttle.success(now)
        if host.breaker.open_until is None:  # a straggler's success does not close an open breaker
            host.breaker.success()
        self._conditions.refresh_host(host, now)
