"""What `/v1` lets in, from whom and as what: scopes, runs, bodies, bytes that wait (E4, B7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.model_rig import Call, chat, http, wire
from tests.unit.web_rig import PATIENCE_S, Web, serving, token

URL = "/v1/chat/completions"
HOST = (
    '[hosts.raw]\ntype = "openai"\nurl = "{url}"\nmodel = "m"\nslots = 1\nhealth_s = 0\nserves = ["chat"]\n'
)
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CLOSE = (("Connection", "close"),)


async def answer(call: Call) -> None:
    await call.send(http(200, chat("hi"), CLOSE))
    call.hang_up()


async def ended(web: Web, id: str) -> dict[str, Any]:
    """A call's task when it has ended; it is written after its answer was sent."""
    async with asyncio.timeout(PATIENCE_S), web.parts.client.watching() as watch:
        while await web.store.get(id) is None:
            await watch()
    return await web.ended(id)


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with wire(answer) as upstream, serving(tmp_path, HOST.format(url=upstream.url)) as web:
        yield web


@pytest.mark.parametrize(
    ("scope", "listed", "called"), [("submit", 200, 200), ("read", 200, 403), ("admin", 403, 403)]
)
async def test_whoever_may_call_may_list_the_models(
    tmp_path: Path, scope: str, listed: int, called: int
) -> None:
    """Clients list them first; a token that may only call must suffice for that."""
    given, secret = token("one", scope)
    async with wire(answer) as upstream:
        config = HOST.format(url=upstream.url)
        async with serving(tmp_path, config, tokens=[given], secret=secret) as web:
            assert (await web.http.get("/v1/models")).status_code == listed
            assert (await web.http.get("/v1/models/m")).status_code == listed
            assert (await web.http.post(URL, json=BODY)).status_code == called


async def test_models_are_listed_while_it_drains(web: Web) -> None:
    """Nothing more is taken in, but reading goes on."""
    web.parts.draining = True
    assert (await web.http.get("/v1/models")).status_code == 200
    assert (await web.http.get("/v1/models/m")).status_code == 200
    told = await web.http.post(URL, json=BODY)
    assert told.status_code == 503
    assert "retry-after" in told.headers


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"model": 1}', "model"),
        (b'{"model": "m", "stream": "yes"}', "stream"),
        (b"[]", None),
        (b'{"model"', None),
    ],
)
async def test_the_field_that_is_wrong_is_named(web: Web, body: bytes, param: str | None) -> None:
    """Promise 7."""
    told = await web.http.post(URL, content=body, headers={"Content-Type": "application/json"})
    assert told.status_code == 400
    assert told.json()["error"]["param"] == param


@pytest.mark.parametrize(("asked", "run"), [("nightly", "v1-nightly"), ("v1-mine", "v1-mine")])
async def test_calls_have_runs_of_their_own(web: Web, asked: str, run: str) -> None:
    """B7: whoever may only call adds nothing to a run of tasks."""
    await web.submit({"kind": "a"}, run="nightly")
    told = await web.http.post(URL, json=BODY, headers={"X-Penstock-Run": asked})
    assert told.status_code == 200
    assert (await ended(web, told.headers["x-penstock-task"]))["run"] == run
    assert (await web.get("/api/runs/nightly"))["tasks"] == 1


async def test_a_run_with_a_name_too_long_is_refused(web: Web) -> None:
    told = await web.http.post(URL, json=BODY, headers={"X-Penstock-Run": "r" * 126})
    assert (told.status_code, told.json()["error"]["param"]) == (400, "X-Penstock-Run")
    assert (await web.http.post(URL, json=BODY, headers={"X-Penstock-Run": "r" * 125})).status_code == 200


async def test_bodies_that_wait_are_bounded_in_bytes(tmp_path: Path) -> None:
    """B7: few calls with long bodies fill the queue as well as many; room comes back as they start."""
    go_on = asyncio.Event()

    async def answer_later(call: Call) -> None:
        await go_on.wait()
        await answer(call)

    padded = {**BODY, "pad": "x" * 30_000}
    async with wire(answer_later) as upstream:
        config = HOST.format(url=upstream.url) + "[server]\nmax_queued_bytes = 100000\n"
        async with serving(tmp_path, config) as web:
            async with asyncio.TaskGroup() as group, asyncio.timeout(PATIENCE_S):
                first = group.create_task(web.http.post(URL, json=padded))
                await upstream.until(lambda: len(upstream.calls) == 1)
                two = [group.create_task(web.http.post(URL, json=padded)) for _ in range(2)]
                # One of the two waits, and the other is refused.
                done, _ = await asyncio.wait(two, return_when=asyncio.FIRST_COMPLETED)
                (refused,) = (one.result() for one in done)
                assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
                assert "bytes waiting" in refused.json()["error"]["message"]
                go_on.set()
                waited = await next(one for one in two if one not in done)
                assert (await first).status_code == waited.status_code == 200
            assert (await web.http.post(URL, json=padded)).status_code == 200
            assert not web.parts.limits._bytes


async def test_a_call_cannot_be_retried_and_the_reason_is_a_sentence(tmp_path: Path) -> None:
    async def refuse(call: Call) -> None:
        await call.send(http(400, {"error": {"message": "no"}}, CLOSE))
        call.hang_up()

    async with wire(refuse) as upstream, serving(tmp_path, HOST.format(url=upstream.url)) as web:
        told = await web.http.post(URL, json=BODY)
        assert told.status_code == 400
        id = told.headers["x-penstock-task"]
        assert (await ended(web, id))["state"] == "failed"
        error = await web.post(f"/api/tasks/{id}/retry", status=409)
        assert error["message"].startswith("the task was a call of the front door: ")
