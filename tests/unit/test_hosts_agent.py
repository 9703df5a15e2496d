"""An agent as a host: payloads, what each answer means, which faults are whose, and what calls get."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.agents.trail import Trail
from penstock.config.agents import Agent
from penstock.errors import AgentLost, EngineUnreachable, ImageMissing, PermanentError
from penstock.hosts.agent import AgentAdapter
from penstock.hosts.base import Job, Standing, Watched
from penstock.model import Host, Verdict
from tests.unit.agent_rig import (
    RENDER,
    STREAM_HEAD,
    AgentEar,
    StubKeeper,
    agent_host,
    answered,
    done,
    endpoint_of,
    failed,
    follow,
    line,
    perform,
)
from tests.unit.model_rig import Call, Ear, wire


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ("render", '"command"'),
        ({}, "`command` is missing"),
        ({"command": "../x"}, "`command` must be"),
        ({"command": ".hidden"}, "`command` must be"),
        ({"command": 3}, "`command` must be"),
        ({"command": "render", "param": []}, "did you mean 'params'"),
        ({"command": "render", "params": "a"}, "`params` must be a list or a table"),
        ({"command": "render", "stdin": 3}, "`stdin` must be a text"),
    ],
)
async def test_a_payload_that_no_agent_can_read_is_refused(payload: Any, words: str) -> None:
    async with agent_host(StubKeeper()) as made:
        with pytest.raises(PermanentError) as told:
            made.work(Job("t", 1, "reports", payload, "reports", "default"))
    assert words in str(told.value)


async def test_a_task_becomes_a_command_in_a_container() -> None:
    async def act(call: Call) -> None:
        await call.send(answered(200, done({"pages": 2}, id="t.3", stderr="working\n")))

    async with wire(act) as server:
        keeper = StubKeeper(endpoint_of(server))
        async with agent_host(keeper) as made:
            given = {"command": "render", "params": {"a": 1}, "stdin": "x"}
            outcome = await perform(made, given, attempt=3, timeout_s=9.0)
        assert (outcome.verdict, outcome.value, outcome.logs) == (Verdict.DONE, {"pages": 2}, "working\n")
        assert server.calls[0].json == {**given, "id": "t.3", "timeout_s": 9.0}
        assert (keeper.lent, keeper.live, keeper.reports) == (1, 0, [])


_ANSWERS: dict[str, tuple[bytes, Verdict, str]] = {
    "failed": (
        answered(500, failed("handler_failed", exit=3, stderr="a\nb\nno such page\n")),
        Verdict.PERMANENT,
        "exit status 3: a | b | no such page",
    ),
    "temporary": (answered(500, failed("handler_failed", exit=75)), Verdict.TEMPORARY, "exit status 75"),
    "killed": (answered(500, failed("handler_failed", signal=9)), Verdict.TEMPORARY, "killed by SIGKILL"),
    "time over": (answered(504, failed("time_over")), Verdict.TEMPORARY, "timed out after 5 s"),
    "cancelled": (answered(409, failed("cancelled")), Verdict.TEMPORARY, "cancelled in its container"),
    "unknown": (answered(404, failed("unknown_command")), Verdict.PERMANENT, "it is unknown_command"),
    "bad": (answered(400, failed("bad_request")), Verdict.PERMANENT, "it is bad_request"),
    "large": (answered(500, failed("output_too_large")), Verdict.PERMANENT, "output_too_large"),
    "busy": (answered(429, failed("busy"), [("Retry-After", "7")]), Verdict.THROTTLED, "busy"),
    "odd": (answered(418, failed("teapot")), Verdict.HOST, "answered 418"),
    "no result": (answered(200, {"id": "t.1"}), Verdict.HOST, "not with a result"),
}


@pytest.mark.parametrize("case", _ANSWERS)
async def test_what_an_answer_means(case: str) -> None:
    data, verdict, words = _ANSWERS[case]

    async def act(call: Call) -> None:
        await call.send(data)

    async with wire(act) as server, agent_host(StubKeeper(endpoint_of(server))) as made:
        outcome = await perform(made, RENDER, timeout_s=5.0)
    assert outcome.verdict is verdict
    assert words in (outcome.error or "")
    assert "\n" not in (outcome.error or "")
    assert outcome.timed_out == (case == "time over")
    assert outcome.retry_after_s == (7.0 if case == "busy" else None)


async def test_a_container_that_ran_nothing_is_passed_over_within_the_attempt() -> None:
    """Refused, another's, draining, a key that it does not know: another is asked at once, at no cost."""

    async def act(call: Call) -> None:
        answers = [
            answered(200, done(1), proof="another's"),
            answered(503, failed("draining")),
            answered(200, done("well")),
        ]
        await call.send(answers[len(server.calls) - 1])

    async with wire(act) as server:
        gone = endpoint_of("127.0.0.1:1", instance="gone")
        keeper = StubKeeper(gone, *(endpoint_of(server, instance=name) for name in ("other", "old", "fresh")))
        async with agent_host(keeper) as made:
            outcome = await perform(made, RENDER)
        assert (outcome.verdict, outcome.value) == (Verdict.DONE, "well")
        assert [instance for instance, _ in keeper.reports] == ["gone", "other", "old"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_one_that_can_start_nothing_is_told_of_to_its_keeper(streamed: bool) -> None:
    """Which asks it whether that goes on, and puts another in its place."""

    async def act(call: Call) -> None:
        if streamed:
            await follow(call, line(type="end", http=503, **failed("no_room")))
        else:
            await call.send(answered(503, failed("no_room")))

    async with wire(act) as server:
        keeper = StubKeeper(endpoint_of(server))
        async with agent_host(keeper) as made:
            work = AgentEar(streamed=True) if streamed else RENDER
            outcome = await perform(made, work)
        assert outcome.verdict is (Verdict.PERMANENT if streamed else Verdict.HOST)
        assert keeper.reports == [("i1", "it has no room to start anything")]


async def test_where_none_runs_anything_the_host_is_to_blame() -> None:
    keeper = StubKeeper(endpoint_of("127.0.0.1:1"))
    async with agent_host(keeper) as made:
        outcome = await perform(made, RENDER)
    assert outcome.verdict is Verdict.HOST
    assert "nothing was run" in (outcome.error or "")
    assert not outcome.known_fault
    assert keeper.lent == len(keeper.reports) == 4


async def test_a_lost_container_counts_once_against_its_host() -> None:
    """However many attempts it takes with it."""

    async def act(call: Call) -> None:
        call.reset()

    async with wire(act) as server:
        keeper = StubKeeper(endpoint_of(server))
        async with agent_host(keeper) as made:
            outcomes = [await perform(made, RENDER, attempt) for attempt in (1, 2, 3)]
            keeper.endpoints = [endpoint_of(server, instance="i2")]
            outcomes.append(await perform(made, RENDER, 4))
        assert {outcome.verdict for outcome in outcomes} == {Verdict.HOST}
        assert [outcome.known_fault for outcome in outcomes] == [False, True, True, False]


async def test_what_keeps_containers_from_being_had_is_told_by_tasks_and_by_checks() -> None:
    keeper = StubKeeper()
    keeper.problem = ImageMissing("agents.reports: no image 'x'; build it")
    async with agent_host(keeper) as made:
        outcome = await perform(made, RENDER)
        health = await made.check()
        assert (outcome.verdict, outcome.error) == (Verdict.HOST, str(keeper.problem))
        assert (health.up, health.detail) == (False, str(keeper.problem))
        keeper.problem = None
        assert (await made.check()).up
        assert isinstance(made, Watched)


async def test_a_check_keeps_no_containers() -> None:
    keeper = StubKeeper()
    engine = StubKeeper()
    made = AgentAdapter(Host("reports", "agent"), Agent("reports", "tiny"), keeper, engine)
    await made.open()
    assert (await made.check()).detail == "the engine answers and has image tiny"
    engine.problem = EngineUnreachable("no engine; start one")
    assert (await made.check()).detail == "no engine; start one"
    await made.close()
    assert (keeper.steps, engine.steps) == ([], ["open", "open", "close"])
    assert isinstance(made, Standing)


async def test_an_agent_with_words_of_its_own() -> None:
    answers = [answered(200, b"plain", proof=None), answered(200, {"ok": 1}, proof=None)]
    answers += [answered(500, b"oh\nno", proof=None), answered(503, b"later", proof=None)]

    async def act(call: Call) -> None:
        await call.send(answers[len(server.calls) - 1])

    async with wire(act) as server, agent_host(StubKeeper(endpoint_of(server)), plain=True) as made:
        outcomes = [await perform(made, RENDER) for _ in answers]
    assert [outcome.value for outcome in outcomes] == ["plain", {"ok": 1}, None, None]
    assert [outcome.verdict for outcome in outcomes[2:]] == [Verdict.PERMANENT, Verdict.THROTTLED]
    assert outcomes[2].error == "reports answered 500: oh no"


# ---- calls of the front door


async def test_a_call_gets_the_answer_byte_for_byte() -> None:
    async def act(call: Call) -> None:
        await call.send(answered(200, done([1], stderr="s")))

    async with wire(act) as server, agent_host(StubKeeper(endpoint_of(server))) as made:
        ear = AgentEar()
        outcome = await perform(made, ear)
        assert (outcome.verdict, outcome.value) == (Verdict.DONE, None)
        assert (ear.status, ear.ends) == (200, 1)
        assert ear.data == answered(200, done([1], stderr="s")).partition(b"\r\n\r\n")[2]


async def test_a_failed_call_gets_the_answer_of_the_agent() -> None:
    async def act(call: Call) -> None:
        await call.send(answered(500, failed("handler_failed", exit=2, stderr="why")))

    async with wire(act) as server, agent_host(StubKeeper(endpoint_of(server))) as made:
        for streamed in (False, True):
            ear = AgentEar(streamed=streamed)
            outcome = await perform(made, ear)
            assert (outcome.verdict, ear.begun) == (Verdict.PERMANENT, False)
            assert ear.refusal is not None
            assert (ear.refusal.status, b'"exit":2' in ear.refusal.body) == (500, True)


async def test_lines_reach_the_client_as_they_come() -> None:
    heard = asyncio.Event()

    async def act(call: Call) -> None:
        await call.send(STREAM_HEAD)
        await call.chunks(line(type="accepted", id="t.1"), line(type="stdout", data="a"))
        await heard.wait()
        await call.chunks(line(type="stderr", data="bad page\n"))
        error = {"code": "handler_failed", "message": "m", "exit": 4}
        await call.chunks(line(type="end", id="t.1", status="failed", error=error))
        await call.send(b"0\r\n\r\n")

    async with wire(act) as server, agent_host(StubKeeper(endpoint_of(server))) as made:
        ear = AgentEar(streamed=True)
        performing = asyncio.create_task(perform(made, ear))
        while b'"a"' not in ear.data:
            ear.news.clear()
            await ear.news.wait()
        heard.set()
        outcome = await performing
        assert (outcome.verdict, outcome.error) == (Verdict.PERMANENT, "exit status 4: bad page")
        assert ear.data.count(b"\n") == 4
        assert ear.ends == 1


async def test_a_stream_that_broke_off_is_ended_for_the_client_and_not_tried_again() -> None:
    async def act(call: Call) -> None:
        await follow(call, line(type="accepted", id="t.1"), end=False)
        call.hang_up()

    async with wire(act) as server, agent_host(StubKeeper(endpoint_of(server))) as made:
        ear = AgentEar(streamed=True)
        outcome = await perform(made, ear)
        assert (outcome.verdict, outcome.host_fault) == (Verdict.PERMANENT, True)
        assert b'"type":"end","status":"failed"' in ear.data
        assert ear.ends == 1
        assert (await perform(made, ear, 2)).verdict is Verdict.PERMANENT


async def test_a_call_whose_container_goes_away_tells_so() -> None:
    class Dying(StubKeeper):
        def lease(self, trail: Trail | None = None) -> Any:
            raise AgentLost("agents.reports: its container was killed")

    async with agent_host(Dying()) as made:
        outcome = await perform(made, AgentEar())
    assert (outcome.verdict, outcome.error) == (Verdict.HOST, "agents.reports: its container was killed")


async def test_an_agent_answers_no_calls_of_models() -> None:
    async with agent_host(StubKeeper()) as made:
        with pytest.raises(PermanentError, match="no calls of models"):
            made.work(Job("t", 1, "chat", Ear({}), "reports", "default"))
