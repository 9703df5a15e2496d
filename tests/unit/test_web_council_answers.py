"""A council as a model of /v1, and by the paths of the original server: answers, streams, refusals, who leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from penstock.hosts.own_door import Guest
from penstock.testing import Fault
from tests.unit.council_web_rig import ANSWERS, DISSENT, QUERY, SUMMED_UP, Talk, council_web
from tests.unit.web_rig import PATIENCE_S, Web, token

CHAT = "/v1/chat/completions"
WISH = "/api/shenron/grant-wish"
MESSAGES = [{"role": "user", "content": QUERY}]
REFUSED = Fault.refuse(400, "no")
pytestmark = pytest.mark.asyncio(
    loop_scope="module"
)  # they share a server, which takes longer than most of them


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Web, Talk]]:
    async with council_web(tmp_path_factory.mktemp("council")) as found:
        yield found


@pytest.fixture
def both(shared: tuple[Web, Talk]) -> tuple[Web, Talk]:
    shared[1].server.requests.clear()
    return shared


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "council:shenron", "messages": MESSAGES, **fields}


async def streamed(web: Web, **fields: Any) -> list[dict[str, Any]]:
    async with asyncio.timeout(PATIENCE_S):
        response = await web.http.post(CHAT, json=body(stream=True, **fields))
    assert response.status_code == 200, response.text
    return chunks(response.text)


def chunks(text: str) -> list[dict[str, Any]]:
    pieces = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert pieces[-1] == "[DONE]" or "error" in json.loads(pieces[-1])
    return [json.loads(piece) for piece in pieces if piece != "[DONE]"]


def joined(found: list[dict[str, Any]], kind: str) -> str:
    deltas = [choice["delta"] for chunk in found for choice in chunk.get("choices", ())]
    return "".join(delta.get(kind) or "" for delta in deltas)


async def question(web: Web, id: str) -> dict[str, Any]:
    """A call's task when it has ended; it is written after its answer was sent."""
    async with asyncio.timeout(PATIENCE_S), web.parts.client.watching() as watch:
        while (record := await web.store.get(id)) is None or record.ended_at is None:
            await watch()
    found: dict[str, Any] = await web.get(f"/api/councils/shenron/questions/{id}")
    return found


async def test_a_whole_answer_is_the_chairs_with_the_record(both: tuple[Web, Talk]) -> None:
    web, _ = both
    response = await web.http.post(CHAT, json=body(), headers={"X-Penstock-Lane": "fast"})
    told = response.json()
    assert (response.status_code, told["object"], told["model"]) == (
        200,
        "chat.completion",
        "council:shenron",
    )
    (choice,) = told["choices"]
    assert choice["message"] == {"role": "assistant", "content": SUMMED_UP + DISSENT}
    assert choice["finish_reason"] == "stop"
    assert [one["answer"] for one in told["penstock"]["responses"]] == list(ANSWERS.values())
    usage = told["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    headers = response.headers
    assert (headers["x-penstock-host"], headers["x-penstock-attempt"]) == ("council-shenron", "1")
    assert (headers["x-penstock-lane"], told["id"]) == ("fast", f"chatcmpl-{headers['x-penstock-task']}")
    found = await question(web, headers["x-penstock-task"])
    assert (found["state"], found["record"]) == ("done", told["penstock"])
    listed = await web.get("/api/councils/shenron/conversations")
    assert found["run"] not in [one["id"] for one in listed["conversations"]], "a chat brings its turns along"


async def test_a_stream_tells_progress_then_the_answer_then_the_record(both: tuple[Web, Talk]) -> None:
    web, _ = both
    found = await streamed(web, stream_options={"include_usage": True})
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert joined(found, "content") == SUMMED_UP + DISSENT
    thoughts = joined(found, "reasoning_content")
    assert "🥋 GOKU has answered" in thoughts
    assert "🐉 SHENRON sums up." in thoughts
    content = [n for n, chunk in enumerate(found) if joined([chunk], "content")]
    assert len(content) > 1, "it came in pieces"
    *_, last, usage = found
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["penstock"]["synthesis"]["text"] == SUMMED_UP
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] > 0
    assert {chunk["id"] for chunk in found} == {f"chatcmpl-{last['penstock']['id']}"}
    assert "usage" not in (await streamed(web))[-1]


async def test_a_chair_that_breaks_off_is_told_and_a_member_goes_on(tmp_path: Path) -> None:
    """D4: the chair's failure passes to a member, in mid-stream."""
    async with council_web(tmp_path, setup=lambda talk: talk.fails.update(dragon=Fault.cut(2))) as (web, _):
        found = await streamed(web)
        record = found[-1]["penstock"]
        assert record["synthesis"]["by"] == "GOKU"
        assert [one["name"] for one in record["synthesis"]["passed_on"]] == ["SHENRON"]
        said = joined(found, "content")
        assert said.startswith("Blue")
        assert "[SHENRON broke off; " in said
        assert record["synthesis"]["text"] in said
        assert "[GOKU has summed up in place of another (SHENRON: " in said


async def test_turns_and_instructions_of_a_chat_reach_the_members(both: tuple[Web, Talk]) -> None:
    web, talk = both
    messages = [
        {"role": "system", "content": "Answer in Latin."},
        {"role": "user", "content": "Is it blue?"},
        {"role": "assistant", "content": "It is."},
        {"role": "user", "content": QUERY},
    ]
    own = {"members": ["VEGETA"]}
    response = await web.http.post(CHAT, json=body(messages=messages, penstock=own))
    assert response.status_code == 200, response.text
    assert response.json()["penstock"]["synthesis"]["method"] == "single"
    told = response.json()["choices"][0]["message"]["content"]
    assert told.endswith("\n\n[This is the answer of VEGETA alone; nobody has summed up.]")
    assert not talk.asked("saiyan")
    (request,) = talk.asked("prince")
    for words in ("Answer in Latin.", "Is it blue?", "It is.", QUERY):
        assert words in request.prompt


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_d7_nobody_answers_and_the_client_is_told_whom_to_blame(tmp_path: Path, stream: bool) -> None:
    fails = {"saiyan": REFUSED, "prince": REFUSED}
    async with council_web(tmp_path, setup=lambda talk: talk.fails.update(fails)) as (web, _):
        response = await web.http.post(CHAT, json=body(stream=stream))
        if stream:
            assert response.status_code == 200
            error = chunks(response.text)[-1]["error"]
        else:
            assert response.status_code == 502
            assert [one["state"] for one in response.json()["penstock"]["responses"]] == ["failed", "failed"]
            error = response.json()["error"]
            assert (error["type"], error["code"]) == ("server_error", "host_failed")
        assert "GOKU" in error["message"]
        assert "VEGETA" in error["message"]


async def test_models_are_listed_and_everything_else_is_refused_in_openais_shape(
    both: tuple[Web, Talk],
) -> None:
    web, talk = both
    listed = {one["id"]: one["hosts"] for one in (await web.get("/v1/models"))["data"]}
    assert listed["council:shenron"] == ["council-shenron"]
    assert {"council:shenron:quick", "council:shenron:thorough"} <= set(listed)
    for path, sent, status, code in (
        ("/v1/completions", {"model": "council:shenron", "prompt": "a"}, 400, "unsupported"),
        ("/v1/embeddings", {"model": "council:shenron", "input": "a"}, 400, "unsupported"),
        (CHAT, body(model="council:shenrom"), 404, "model_not_found"),
        (CHAT, body(tools=[{"type": "function"}]), 400, "unsupported"),
        (CHAT, body(penstock={"members": ["GOKO"]}), 400, "invalid_request"),
        (CHAT, {"model": "council:shenron"}, 400, "invalid_body"),
    ):
        response = await web.http.post(path, json=sent)
        assert response.status_code == status, response.text
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
        assert response.json()["error"]["code"] == code
    assert not talk.server.requests
    quick = (await web.http.post(CHAT, json=body(model="council:shenron:quick"))).json()
    assert quick["penstock"]["mode"] == "quick"


async def test_attempts_cannot_ask_a_council(both: tuple[Web, Talk]) -> None:
    """They would wait for room that they take themselves."""
    web, talk = both
    key = web.parts.tokens.invite(Guest("t1", 1, "calls", 1, "v1-nightly"))
    response = await web.http.post(CHAT, json=body(), headers={"Authorization": f"Bearer {key}"})
    web.parts.tokens.dismiss(key)
    assert response.status_code == 400
    assert "attempts cannot ask a council" in response.json()["error"]["message"]
    assert not talk.server.requests


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_client_that_leaves_cancels_its_question(tmp_path: Path, stream: bool) -> None:
    async with council_web(tmp_path, setup=lambda talk: talk.hangs.add("prince")) as (web, talk):
        connection = asyncio.open_connection("127.0.0.1", int(web.url.rpartition(":")[2]))
        reader, writer = await connection
        sent = json.dumps(body(stream=stream)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
        async with asyncio.timeout(PATIENCE_S):
            await talk.server.wait_for(lambda stats: stats.in_flight == 1 and stats.served >= 1)
            if stream:
                await reader.readuntil(b"has answered")
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(PATIENCE_S):
            await talk.server.wait_for(lambda stats: stats.in_flight == 0)
        (entry,) = (await web.get("/api/councils/shenron/questions"))["questions"]
        assert (await question(web, entry["id"]))["state"] == "cancelled"


async def test_a_token_that_is_revoked_ends_its_question(tmp_path: Path) -> None:
    mine, secret = token("app", "submit", "read")
    rest, other = token("other", "submit", "read", "admin")
    async with council_web(
        tmp_path, setup=lambda talk: talk.hangs.add("prince"), tokens=[mine, rest], secret=other
    ) as (web, talk):
        by = {"Authorization": f"Bearer {secret}"}
        async with asyncio.TaskGroup() as group:
            call = group.create_task(web.http.post(CHAT, json=body(), headers=by))
            async with asyncio.timeout(PATIENCE_S):
                await talk.server.wait_for(lambda stats: stats.in_flight == 1)
            assert await web.parts.client.revoke_token("app")
        assert call.result().status_code == 401
        async with asyncio.timeout(PATIENCE_S):
            await talk.server.wait_for(lambda stats: stats.in_flight == 0)


# ---- the original server's paths


async def test_a_wish_is_a_job_with_the_original_words(both: tuple[Web, Talk]) -> None:
    web, _ = both
    wish = {"query": QUERY, "power_mode": "lightning", "use_rag": True, "async_mode": True, "session": "x"}
    told = await web.post(WISH, wish, 202)
    assert told["status"] == "queued"
    async with asyncio.timeout(PATIENCE_S):
        await web.parts.client.wait(told["job_id"])
    status = await web.get(f"/api/shenron/job-status/{told['job_id']}")
    assert (status["status"], status["progress"], status["power_mode"]) == ("completed", 100, "lightning")
    assert status["query_preview"] == QUERY
    result = status["result"]
    assert result["mode"] == "quick"
    assert result["warrior_responses"] == result["responses"]
    assert result["synthesized_answer"] == result["synthesis"]["text"] != ""
    assert (result["wish_granted"], result["rag_used"]) == (True, False)
    assert result["responses"][0]["fighter"] == "GOKU"
    assert {"success_count", "total_fighters", "rag_context_used", "consensus"} <= set(result)
    assert {"timestamp", "type", "message"} == set(status["events"][0])
    over = await web.http.post(f"/api/shenron/cancel-job/{told['job_id']}")
    assert (over.status_code, over.json()["success"]) == (400, False)


async def test_a_wish_without_a_job_is_answered_when_it_is_over(both: tuple[Web, Talk]) -> None:
    web, _ = both
    result = await web.post(WISH, {"query": QUERY}, 200)
    assert result["synthesized_answer"] == SUMMED_UP
    assert (result["success_count"], result["total_fighters"], result["power_mode"]) == (2, 2, "council")


async def test_a_wish_can_be_taken_back(tmp_path: Path) -> None:
    async with council_web(tmp_path, setup=lambda talk: talk.hangs.add("prince")) as (web, talk):
        told = await web.post(WISH, {"query": QUERY, "async_mode": True, "power_mode": "ultra"}, 202)
        async with asyncio.timeout(PATIENCE_S):
            await talk.server.wait_for(lambda stats: stats.in_flight == 1 and stats.served >= 1)
        status = await web.get(f"/api/shenron/job-status/{told['job_id']}")
        assert status["status"] == "running"
        assert 0 <= status["progress"] < 100
        said = await web.post(f"/api/shenron/cancel-job/{told['job_id']}")
        assert (said["success"], said["job_id"]) == (True, told["job_id"])
        async with asyncio.timeout(PATIENCE_S):
            await web.parts.client.wait(told["job_id"])
        status = await web.get(f"/api/shenron/job-status/{told['job_id']}")
        assert (status["status"], status["message"]) == ("cancelled", "Wish cancelled")
        assert status["progress"] < 100, "it did not come to its end"


async def test_wishes_that_cannot_be_are_told_so(both: tuple[Web, Talk]) -> None:
    web, _ = both
    for wish, words in (
        ({}, "`query` is missing"),
        ({"query": QUERY, "power_mode": "ultr"}, "did you mean 'ultra'?"),
        ({"query": QUERY, "power_mode": 9000}, "there is no"),
        ({"query": QUERY, "async_mode": "yes"}, "async_mode: must be true or false"),
        ({"query": QUERY, "agent_mode": True}, "runs no commands"),
    ):
        assert words in (await web.post(WISH, wish, 422))["message"]
    assert (await web.get("/api/shenron/job-status/none", 404))["type"] == "not_found"


async def test_without_one_named_shenron_the_only_council_is_meant(tmp_path: Path) -> None:
    more = '[councils.other]\nmembers = [{ name = "KAMI", model = "dragon" }]\n'
    async with council_web(tmp_path, more=more) as (web, _):
        councils = web.parts.council_door.councils
        assert web.parts.council_door.original() is councils["shenron"]
        web.parts.council_door.councils = {"other": councils["other"]}
        assert web.parts.council_door.original() is councils["other"]
        web.parts.council_door.councils = {"other": councils["other"], "more": councils["shenron"]}
        error = await web.post(WISH, {"query": QUERY}, 404)
        assert (error["type"], error["remedy"]) == (
            "unknown_council",
            "name one so in penstock.toml: [councils.shenron]",
        )
