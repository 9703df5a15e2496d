"""What the client of a call is told when it ends without an answer: whose fault decides, not a status (E4)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from penstock.hosts.relay import Refusal
from penstock.model import OnCrash, Outcome, State, Task, Verdict
from penstock.scheduling.messages import End
from penstock.web.calls import CallResponse, ConnectionRelay

NOW = 1000.0
TASK = Task("chat", id="c", run="v1", on_crash=OnCrash.CANCEL, queued_at=NOW - 60)
WORDS = b'{"error":{"message":"too rude","type":"x","param":null,"code":"content_filter"}}'


class Ended:
    """A dispatcher whose call ends as it is told to."""

    def __init__(self, end: End, attempts: int) -> None:
        self.end = end
        self.attempts = attempts
        self.asked: list[Task] = []
        self.is_stopping = False
        self.now = NOW

    def call(self, task: Task, relay: ConnectionRelay) -> asyncio.Future[End]:
        for number in range(1, self.attempts + 1):
            relay.started("h", number, NOW)
        ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        ended.set_result(self.end)
        return ended

    def cancel_call(self, task: str) -> None: ...

    def predicted_wait_s(self, task: Task) -> float:
        self.asked.append(task)
        return 12.3


async def told(
    end: End, *, attempts: int = 1, refusal: Refusal | None = None, timed_out: bool = False, last: str = ""
) -> tuple[int, dict[str, Any], dict[str, str], Ended]:
    relay = ConnectionRelay(
        "chat/completions",
        b"{}",
        streamed=False,
        task=TASK,
        on_start=lambda: None,
        on_answer=lambda status: None,
    )
    relay.refusal, relay.timed_out, relay.last_error = refusal, timed_out, last or None
    dispatcher = Ended(end, attempts)
    sent: list[dict[str, Any]] = []
    complete = asyncio.Event()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message["more_body"]:
            complete.set()

    async def receive() -> dict[str, Any]:
        await complete.wait()
        return {"type": "http.disconnect"}

    await CallResponse(dispatcher, TASK, relay, lambda tell: tell)({}, receive, send)  # type: ignore[arg-type]
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], msgspec.json.decode(sent[-1]["body"]), headers, dispatcher


def failed(verdict: Verdict, error: str = "it said no", *, timed_out: bool = False) -> End:
    outcome = Outcome(verdict, error=error, timed_out=timed_out)
    return End("c", 1, State.FAILED, "fail", NOW, outcome, error)


def expired(reason: str, detail: str = "") -> End:
    waited = f"{reason} ({detail})" if detail else reason
    error = f"its deadline passed before it could start; it waited for {waited}"
    return End("c", 0, State.FAILED, "expire", NOW, None, error, reason)


@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_what_was_asked_is_to_blame_and_the_host_s_own_words_are_handed_on(status: int) -> None:
    answered, body, _, _ = await told(failed(Verdict.PERMANENT), refusal=Refusal(status, (), WORDS))
    assert (answered, body) == (status, msgspec.json.decode(WORDS))


@pytest.mark.parametrize("status", [401, 402, 403, 404, 500])
async def test_the_host_is_to_blame_and_its_words_stay_here(status: int) -> None:
    """Our bill, our key, our config: nothing the client could do anything about."""
    answered, body, _, _ = await told(failed(Verdict.HOST), refusal=Refusal(status, (), WORDS))
    assert (answered, body["error"]["code"]) == (502, "host_failed")
    assert "rude" not in str(body)


async def test_time_that_was_up_is_known_by_a_mark_not_by_words() -> None:
    assert (await told(failed(Verdict.TEMPORARY, "timed out after 3 s", timed_out=True)))[0] == 504
    assert (await told(failed(Verdict.HOST), timed_out=True))[0] == 504
    assert (await told(failed(Verdict.PERMANENT, "tool call timed out")))[0] == 400


async def test_a_call_that_never_began_is_told_when_one_made_now_would() -> None:
    status, body, headers, dispatcher = await told(expired("slots:h"), attempts=0)
    assert (status, body["error"]["code"]) == (429, "queue_timeout")
    assert "it waited for slots:h" in body["error"]["message"]
    assert (headers["Retry-After"], headers["Retry-After-Ms"]) == ("13", "12300")
    assert [task.queued_at for task in dispatcher.asked] == [NOW], "it has lost its place"


async def test_a_call_that_was_tried_is_told_what_went_wrong() -> None:
    status, body, headers, _ = await told(expired("scheduled"), attempts=2, last="h answered 500")
    assert (status, body["error"]["code"]) == (502, "host_failed")
    assert "h answered 500; its deadline passed" in body["error"]["message"]
    assert "Retry-After" not in headers


@pytest.mark.parametrize("why", ["h: no connection", "(a) no image: pull it (podman pull NAME)"])
async def test_a_call_whose_hosts_are_all_down_is_told_so(why: str) -> None:
    status, body, _, _ = await told(expired("host-down", why), attempts=0)
    assert (status, body["error"]["code"]) == (503, "hosts_down")
    assert body["error"]["message"] == f"no host that could answer is up: {why}"


async def test_c6_a_spent_budget_opens_at_midnight() -> None:
    _, body, headers, dispatcher = await told(expired("gate:budget:cloud", "5 of 5 USD"), attempts=0)
    assert "it waited for gate:budget:cloud (5 of 5 USD)" in body["error"]["message"]
    assert headers["Retry-After"] == "3600", "the longest that is told; midnight is further off"
    assert dispatcher.asked == []
