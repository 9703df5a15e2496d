"""One suite for all adapters: what every type of host must do with a success, a failure, a time-out, a stop.

An adapter joins by a line in HOSTS, with a payload for each behaviour that it can show.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.model import Host, Outcome, Verdict
from tests.conformance import host_agent, host_server
from tests.conformance.engine_rig import Rig, command_host, python_host
from tests.conformance.host_phone import Phone
from tests.conformance.host_server import URL

SLOTS = 3
LONG_S = 3600.0
VALUE = {"text": "ü", "list": [1, 2.5, None, True], "nested": {"empty": {}}}


@dataclass(frozen=True)
class HostCase:
    """A type of host, and the payloads that make it behave."""

    name: str
    host: Host
    succeed: Callable[[Any], Any]  # with this value
    fail: Mapping[Verdict, Any]
    bad: Mapping[str, Any] = field(
        default_factory=dict
    )  # payloads that must fail for good, with a word of why
    meets: bool = True  # its code calls the test and waits for an answer
    killable: bool = True
    large: Any = None  # a payload with a result of 2 MB
    too_large: Any = None  # a payload with more output than the host takes
    limit: str = "output_limit_bytes"  # the option that says how much that is
    payload: Callable[[dict[str, Any]], Any] = lambda wish: wish
    seen: Callable[[Any], Any] = lambda value: value


def _python(name: str, function: str, **options: Any) -> HostCase:
    failing = (Verdict.TEMPORARY, Verdict.PERMANENT, Verdict.HOST, Verdict.THROTTLED)
    return HostCase(
        name,
        python_host("host", function, SLOTS, **options),
        succeed=lambda value: {"act": "return", "value": value},
        fail={verdict: {"act": "raise", "what": str(verdict)} for verdict in failing},
        bad={"type dict, is not JSON": {"act": "unusable"}, "contains itself": {"act": "circular"}},
        killable=options.get("isolation") == "process" or function != "sync",
        large={"act": "huge", "size": 2_000_000},
    )


HOSTS = [
    _python("python-async", "on_loop"),
    _python("python-thread", "sync"),
    _python("python-process", "sync", isolation="process"),
    HostCase(
        "command",
        command_host("host", SLOTS, output="json", output_limit_bytes=3_000_000, allow_payload_argv=True),
        succeed=lambda value: {"act": "return", "value": value},
        fail={
            Verdict.TEMPORARY: {"act": "status", "status": 75},
            Verdict.PERMANENT: {"act": "status", "status": 1},
            Verdict.HOST: {"argv": ["/no/such/program"]},
        },
        bad={"stdout is not JSON": {"act": "text", "value": "{"}, "NUL": {"argv": ["a\0b"]}},
        large={"act": "return", "value": "x" * 2_000_000},
        too_large={"act": "endless"},
    ),
    HostCase(
        "simulated",
        Host("host", "simulated", SLOTS, options={"duration_s": LONG_S}),
        succeed=lambda value: {"duration_s": 0, "value": value},
        fail={
            verdict: {"duration_s": 0, "fail": str(verdict)}
            for verdict in (Verdict.TEMPORARY, Verdict.PERMANENT, Verdict.HOST, Verdict.THROTTLED)
        },
        bad={"duration_s": {"duration_s": "long"}, "unknown failure": {"fail": "done"}},
        meets=False,
    ),
    HostCase(
        "openai",
        Host("host", "openai", SLOTS, model="m", options={"url": URL, "max_reply_bytes": 3_000_000}),
        succeed=lambda value: host_server.payload({"act": "return", "value": value}),
        fail={
            verdict: host_server.payload({"act": "status", "status": status})
            for verdict, status in (
                (Verdict.TEMPORARY, 408),
                (Verdict.PERMANENT, 400),
                (Verdict.HOST, 500),
                (Verdict.THROTTLED, 429),
            )
        },
        bad={"a payload for a model is": {"act": "unheard of"}, "messages": {"messages": "x"}},
        large=host_server.payload({"act": "return", "value": "x" * 2_000_000}),
        too_large=host_server.payload({"act": "endless"}),
        limit="max_reply_bytes",
        payload=host_server.payload,
        seen=host_server.seen,
    ),
    HostCase(
        "agent",
        Host("host", "agent", SLOTS, options={"output_limit_bytes": 3_000_000}),
        succeed=lambda value: host_agent.payload({"act": "return", "value": value}),
        fail={
            Verdict.TEMPORARY: host_agent.payload({"act": "status", "status": 75}),
            Verdict.PERMANENT: host_agent.payload({"act": "status", "status": 1}),
        },
        bad={"`command` is missing": {"params": []}, "did you mean act": {"command": "acct"}},
        large=host_agent.payload({"act": "huge", "size": 2_000_000}),
        too_large=host_agent.payload({"act": "endless"}),
        payload=host_agent.payload,
    ),
]


@pytest.fixture(autouse=True)
async def model_server() -> AsyncIterator[None]:
    async with host_server.model_server():
        yield


every_host = pytest.mark.parametrize("case", HOSTS, ids=lambda case: case.name)


def _each(of: Callable[[HostCase], Mapping[Any, Any]]) -> pytest.MarkDecorator:
    pairs = [pytest.param(case, key, id=f"{case.name}-{key}") for case in HOSTS for key in of(case)]
    return pytest.mark.parametrize(("case", "key"), pairs)


async def begin_waiting(rig: Rig, case: HostCase, phone: Phone, task: str, **fields: Any) -> None:
    """Start an attempt that runs until it is told otherwise, and wait for its beginning."""
    rig.start("host", case.payload({"act": "meet", "port": phone.port, "name": task}), task, **fields)
    if case.meets:
        await phone.caller(task)


async def let_go(case: HostCase, phone: Phone, task: str) -> None:
    """Code that cannot be killed ends by itself; all the other has hung up."""
    if case.meets:
        caller = await phone.caller(task)
        if not case.killable:
            caller.say("go")
        await caller.hung_up()


@every_host
async def test_success_has_the_value_as_json(case: HostCase) -> None:
    async with Rig(case.host) as rig:
        outcome = await rig.outcome_of("host", case.succeed(VALUE))
        assert replace(outcome, tokens=None) == Outcome(Verdict.DONE, outcome.value)
        assert case.seen(outcome.value) == VALUE
        assert case.seen((await rig.outcome_of("host", case.succeed(None))).value) is None


@_each(lambda case: case.fail)
async def test_each_verdict(case: HostCase, key: Verdict) -> None:
    async with Rig(case.host) as rig:
        outcome = await rig.outcome_of("host", case.fail[key])
    assert outcome.verdict is key
    assert outcome.value is None
    assert outcome.error
    assert "\n" not in outcome.error


@_each(lambda case: case.bad)
async def test_unusable_payloads_and_results_fail_for_good(case: HostCase, key: str) -> None:
    async with Rig(case.host) as rig:
        outcome = await rig.outcome_of("host", case.bad[key])
    assert outcome.verdict is Verdict.PERMANENT
    assert key in (outcome.error or "")


@every_host
async def test_time_out_is_a_temporary_failure(case: HostCase) -> None:
    clock = ManualClock()
    async with Phone() as phone, Rig(case.host, clock=clock) as rig:
        await begin_waiting(rig, case, phone, "late", timeout_s=5.0)
        clock.advance(5.0)
        await rig.settle()
        await let_go(case, phone, "late")
        outcome = await rig.outcome("late")
        assert outcome.verdict is Verdict.TEMPORARY
        assert (outcome.error or "").startswith("timed out after 5 s")
        assert case.seen((await rig.outcome_of("host", case.succeed(1))).value) == 1


@every_host
async def test_stop_ends_it_as_cancelled(case: HostCase) -> None:
    async with Phone() as phone, Rig(case.host) as rig:
        await begin_waiting(rig, case, phone, "unwanted")
        rig.engine.stop("unwanted", 2)  # another attempt's number: none of its business
        rig.engine.stop("unwanted", 1)
        rig.engine.stop("unwanted", 1)
        await let_go(case, phone, "unwanted")
        assert (await rig.outcome("unwanted")).verdict is Verdict.CANCELLED
        rig.engine.stop("unwanted", 1)
        assert case.seen((await rig.outcome_of("host", case.succeed(1))).value) == 1


@every_host
async def test_as_many_at_once_as_slots(case: HostCase) -> None:
    clock = ManualClock()
    async with Phone() as phone, Rig(case.host, clock=clock) as rig:
        tasks = [f"t{number}" for number in range(SLOTS)]
        for task in tasks:
            rig.start("host", case.payload({"act": "meet", "port": phone.port, "name": task}), task)
        if case.meets:
            for caller in await phone.callers(SLOTS):  # nobody is let go before all are here
                caller.say("together")
        else:
            await rig.settle()
            clock.advance(LONG_S)
        outcomes = [await rig.outcome(task) for task in tasks]
        assert {outcome.verdict for outcome in outcomes} == {Verdict.DONE}


@pytest.mark.parametrize("case", [c for c in HOSTS if c.large], ids=lambda case: case.name)
async def test_large_results_arrive(case: HostCase) -> None:
    async with Rig(case.host) as rig:
        outcome = await rig.outcome_of("host", case.large)
    assert outcome.error is None
    assert len(case.seen(outcome.value)) == 2_000_000


@pytest.mark.parametrize("case", [c for c in HOSTS if c.too_large], ids=lambda case: case.name)
async def test_more_output_than_allowed_fails_for_good(case: HostCase) -> None:
    async with Rig(case.host) as rig:
        outcome = await rig.outcome_of("host", case.too_large)
    assert outcome.verdict is Verdict.PERMANENT
    assert case.limit in (outcome.error or "")


@every_host
async def test_the_host_says_that_it_is_well(case: HostCase) -> None:
    async with Rig(case.host) as rig:
        health = await rig.adapters["host"].check()
    assert health.up
    assert health.detail
