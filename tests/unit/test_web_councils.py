"""Councils over HTTP (D6): asking, following, cancelling, what was asked before, and conversations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from penstock.store.base import TaskFilter
from penstock.testing import Fault
from penstock.web.app import Timing
from tests.unit.council_web_rig import ANSWERS, ASK, QUERY, SUMMED_UP, Talk, council_web
from tests.unit.web_rig import PATIENCE_S, Web, token, usurped

BASE = "/api/councils/shenron"
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


async def asked(web: Web, **body: Any) -> dict[str, Any]:
    told: dict[str, Any] = await web.post(ASK, {"query": QUERY, **body}, 202)
    return told


async def over(web: Web, told: dict[str, Any]) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        await web.parts.client.wait(told["id"])
    found: dict[str, Any] = await web.get(told["links"]["self"])
    return found


async def events(web: Web, told: dict[str, Any], **options: Any) -> list[tuple[str, dict[str, Any]]]:
    """All of them, with their ids, until the stream ends."""
    async with asyncio.timeout(PATIENCE_S):
        response = await web.http.get(told["links"]["events"], **options)
    assert response.status_code == 200, response.text
    return frames(response.text)


def frames(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in lines:
            data = json.loads(lines["data"])
            assert data["event"] == lines["event"]
            found.append((lines["id"], data))
    return found


async def test_d6_a_question_is_taken_in_and_its_record_is_there_when_it_is_over(
    both: tuple[Web, Talk],
) -> None:
    web, _ = both
    told = await asked(web, priority=1, lane="fast")
    assert told["state"] in ("queued", "running")
    assert told["run"] == told["conversation"]
    assert told["links"]["self"] == f"{BASE}/questions/{told['id']}"
    found = await over(web, told)
    record = found["record"]
    assert (found["state"], found["is_complete"], found["error"]) == ("done", True, None)
    assert (found["priority"], found["lane"], found["query"]) == (1, "fast", QUERY)
    assert [one["answer"] for one in record["responses"]] == list(ANSWERS.values())
    assert [one["fighter"] for one in record["responses"]] == ["GOKU", "VEGETA"]
    assert (record["synthesis"]["by"], record["synthesis"]["text"]) == ("SHENRON", SUMMED_UP)
    assert record["synthesis"]["dissent"] == [{"name": "VEGETA", "claim": "It is not the air."}]
    assert record["conversation"] == told["conversation"]
    task = await web.get(f"/api/tasks/{told['id']}")
    assert (task["kind"], task["value"]["id"]) == ("council-shenron", told["id"])


async def test_councils_are_told_with_their_members(both: tuple[Web, Talk]) -> None:
    web, _ = both
    (listed,) = (await web.get("/api/councils"))["councils"]
    one = await web.get(BASE)
    assert listed == one
    assert [member["name"] for member in one["members"]] == ["GOKU", "VEGETA"]
    assert (one["chair"]["name"], one["model"], one["retrieval"]) == ("SHENRON", "council:shenron", None)
    assert [mode["mode"] for mode in one["modes"]] == ["quick", "council", "thorough"]
    error = await web.get("/api/councils/shenrom", 404)
    assert error["type"] == "unknown_council"
    assert error["remedy"] == "did you mean 'shenron'?"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "`query` is missing"),
    ({"query": " "}, "`query` is empty"),
    ({"query": QUERY, "mode": "thoro"}, "did you mean 'thorough'?"),
    ({"query": QUERY, "members": ["GOKO"]}, "did you mean 'GOKU'?"),
    ({"query": QUERY, "use_rag": True}, "there is nothing to read"),
    ({"query": QUERY, "conversation": "a b"}, "`conversation` cannot be 'a b': letters, digits, "),
    ({"query": QUERY, "conversation": "v1-2026-11-16"}, "are chats of everybody"),
    ({"query": QUERY, "priority": 7}, "priority"),
    ({"query": QUERY, "lane": "fats"}, "did you mean 'fast'?"),
    ({"query": QUERY, "quiery": 1}, "unknown field 'quiery'"),
]


async def test_what_is_wrong_is_told_before_anything_is_queued(both: tuple[Web, Talk]) -> None:
    """Promise 7."""
    web, talk = both
    before = await web.get(f"{BASE}/questions")
    for body, words in WRONG:
        error = await web.post(ASK, body, 422)
        assert words in f"{error['message']} {error.get('remedy', '')}"
    estimate = f"{BASE}/estimate"
    assert "unknown field" in (await web.post(estimate, {"query": QUERY, "prioritee": 1}, 422))["message"]
    same_body = {"query": QUERY, "priority": 1, "lane": "fast", "key": "k", "conversation": "none-yet"}
    assert (await web.post(estimate, same_body))["calls"] > 0
    found = await web.post(estimate, {"query": QUERY, "mode": "thorough"})
    assert found["mode"] == "thorough"
    assert found["calls"] >= 3
    assert found["tokens_most"] >= found["tokens"] > 0
    assert await web.get(f"{BASE}/questions") == before, "an estimate asks nobody"
    assert not talk.server.requests


async def test_a_key_that_is_known_asks_nobody(both: tuple[Web, Talk]) -> None:
    web, talk = both
    first = await asked(web, key="mine")
    await over(web, first)
    count = len(talk.server.requests)
    again = await asked(web, key="mine")
    assert (again["id"], again["state"], again["run"]) == (first["id"], "done", first["run"])
    assert len(talk.server.requests) == count
    await web.submit({"kind": "other", "key": "theirs", "payload": {}})
    error = await web.post(ASK, {"query": QUERY, "key": "theirs"}, 409)
    assert error["type"] == "conflict"


# ---- following


async def test_d6_all_stages_are_heard_from_the_first_to_the_record(tmp_path: Path) -> None:
    async with council_web(tmp_path, setup=lambda talk: talk.hangs.add("prince")) as (web, talk):
        await follow_through(web, talk)


async def follow_through(web: Web, talk: Talk) -> None:
    told = await asked(web)
    async with web.http.stream("GET", told["links"]["events"], timeout=PATIENCE_S) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        read = ""
        async for piece in response.aiter_text():
            read += piece
            if '"event":"answer"' in read and talk.hangs:
                live = await web.get(told["links"]["self"])
                assert (live["state"], live["is_complete"]) == ("running", False)
                assert [one["name"] for one in live["record"]["responses"]] == ["GOKU"]
                assert live["record"]["success_count"] == 1
                talk.hangs.clear()
                await talk.server.kill()
                await talk.server.start()
    heard = [event for _, event in frames(read)]
    assert [event["number"] for event in heard] == list(range(1, len(heard) + 1))
    kinds = [event["event"] for event in heard]
    assert kinds[0] == "stage"
    assert kinds[-1] == "done"
    assert {"stage", "step", "text", "answer", "synthesis"} <= set(kinds)
    assert (
        "".join(e["text"] for e in heard if e["event"] == "text" and e["name"] == "GOKU")
        == (ANSWERS["saiyan"])
    )
    record = heard[-1]["record"]
    assert record == (await over(web, told))["record"]
    assert [one["success"] for one in record["responses"]] == [True, False]


async def test_a_reader_goes_on_where_he_was_and_one_who_heard_all_is_sent_away(
    both: tuple[Web, Talk],
) -> None:
    web, _ = both
    told = await asked(web)
    await over(web, told)
    heard = await events(web, told)
    half = heard[len(heard) // 2][0]
    rest = await events(web, told, headers={"Last-Event-ID": half})
    assert rest == heard[len(heard) // 2 + 1 :]
    last = await web.http.get(told["links"]["events"], headers={"Last-Event-ID": heard[-1][0]})
    assert (last.status_code, last.content) == (204, b"")
    elsewhere = await events(web, told, headers={"Last-Event-ID": "other-3"})
    assert elsewhere == heard, "numbers of another life mean nothing here"
    error = await web.get(told["links"]["events"], 422, headers={"Last-Event-ID": "x"})
    assert "Last-Event-ID" in error["message"]


async def test_what_is_over_for_long_is_told_from_its_record(tmp_path: Path) -> None:
    async with council_web(tmp_path) as (web, _):
        told = await asked(web, mode="thorough")
        await over(web, told)
        await events(web, told)
    async with council_web(tmp_path) as (web, talk):
        made = await events(web, told)
        assert not talk.server.requests
        kinds = [event["event"] for _, event in made]
        assert kinds[:2] == ["answer", "answer"]
        assert kinds[-2:] == ["synthesis", "done"]
        assert made[-1][1]["record"]["synthesis"]["text"] == SUMMED_UP
        (last,) = await events(web, told, headers={"Last-Event-ID": "1a-5"})
        assert last == made[-1], "who heard some of it live is told how it ended"
        rest = await events(web, told, headers={"Last-Event-ID": made[0][0]})
        assert rest == made[1:]
        gone = await web.http.get(told["links"]["events"], headers={"Last-Event-ID": made[-1][0]})
        assert gone.status_code == 204


async def test_who_waits_hears_a_heartbeat_and_who_is_cancelled_hears_that(tmp_path: Path) -> None:
    timing = Timing(heartbeat_s=0.01)
    async with council_web(tmp_path, setup=lambda talk: talk.hangs.add("prince"), timing=timing) as (web, _):
        told = await asked(web)
        async with web.http.stream("GET", told["links"]["events"], timeout=PATIENCE_S) as response:
            read = ""
            async for piece in response.aiter_text():
                read += piece
                if ": waiting\n\n" in read and '"event":"answer"' in read and '"cancelled"' not in read:
                    said = await web.http.post(told["links"]["cancel"])
                    assert said.status_code in (200, 409), said.text
        assert [event["event"] for _, event in frames(read)][-1] == "cancelled"
        found = await over(web, told)
        assert found["state"] == "cancelled"
        assert found["record"]["unfinished"] == found["error"] == "cancelled while it ran"
        assert found["record"]["conversation"] == told["conversation"]
        states = {one["name"]: (one["state"], one["error"]) for one in found["record"]["responses"]}
        assert ("answered", None) in states.values()
        assert ("cancelled", "cancelled with the question") in states.values()
        made = await events(web, told)
        assert made[-1][1]["event"] == "cancelled"
        assert "answer" in [event["event"] for _, event in made]
        steps = await web.get("/api/tasks", params={"run": told["run"], "kind": "chat"})
        assert {one["state"] for one in steps["tasks"]} == {"done", "cancelled"}


async def test_whether_a_question_begins_its_conversation_is_told(both: tuple[Web, Talk]) -> None:
    """A misspelt one begins another, which can be seen at once."""
    web, _ = both
    first = await asked(web)
    assert first["begins_conversation"] is True
    await over(web, first)
    assert (await asked(web, conversation=first["conversation"]))["begins_conversation"] is False
    assert (await asked(web, conversation="misspelt"))["begins_conversation"] is True


async def test_a_question_that_never_began_is_heard_to_be_cancelled(tmp_path: Path) -> None:
    async with council_web(tmp_path) as (web, talk):
        await web.post("/api/pause", {})
        told = await asked(web)
        async with web.http.stream("GET", told["links"]["events"], timeout=PATIENCE_S) as response:
            assert (await web.post(told["links"]["cancel"]))["said"] == "cancelled"
            read = "".join([piece async for piece in response.aiter_text()])
        assert [event["event"] for _, event in frames(read)] == ["cancelled"]
        assert not talk.server.requests


async def test_a_question_that_nobody_answered_fails_with_each_reason(tmp_path: Path) -> None:
    refused = Fault.refuse(400, "no")
    setup = {"saiyan": refused, "prince": refused}
    async with council_web(tmp_path, setup=lambda talk: talk.fails.update(setup)) as (web, _):
        told = await asked(web)
        found = await over(web, told)
        assert found["state"] == "failed"
        assert "GOKU" in found["error"]
        assert [one["state"] for one in found["record"]["responses"]] == ["failed", "failed"]
        assert (await events(web, told))[-1][1]["event"] == "failed"


async def test_a_stream_ends_when_another_leads(tmp_path: Path) -> None:
    """E6: nothing more would be heard of it here; who comes again is led to the one that leads."""
    hangs = {"setup": lambda talk: talk.hangs.add("prince"), "elects": True}
    async with council_web(tmp_path, **hangs) as (web, _):  # type: ignore[arg-type]
        told = await asked(web)
        async with web.http.stream("GET", told["links"]["events"], timeout=PATIENCE_S) as response:
            lines = response.aiter_lines()
            assert "stage" in "".join([await anext(lines) for _ in range(5)])
            async with usurped(tmp_path), asyncio.timeout(PATIENCE_S):
                *_, event, data = [line async for line in lines if line]
        assert event == "event: error"
        assert json.loads(data.removeprefix("data: "))["error"]["type"] == "taken_over"


async def test_streams_end_when_the_server_stops_and_the_question_goes_on_in_the_next(tmp_path: Path) -> None:
    """A question that is put back has not ended: who comes back hears everything of its next life."""
    async with council_web(tmp_path, setup=lambda talk: talk.hangs.add("prince")) as (web, _):
        told = await asked(web)
        async with web.http.stream("GET", told["links"]["events"], timeout=PATIENCE_S) as response:
            lines = response.aiter_lines()
            first = [await anext(lines) for _ in range(5)]
            web.service.stop()
            web.service.stop()
            rest = [line async for line in lines]
        heard = frames("\n".join([*first, *rest]))
        assert heard[0][1]["event"] == "stage"
        assert heard[-1][1]["event"] not in ("done", "failed", "cancelled")
    async with council_web(tmp_path) as (web, talk):
        again = await events(web, told, headers={"Last-Event-ID": heard[-1][0]})
        assert [event["number"] for _, event in again] == list(range(1, len(again) + 1))
        assert again[-1][1]["event"] == "done"
        assert again[-1][1]["record"]["success_count"] == 2
        assert len(talk.asked("saiyan")) <= 1, "who has answered is not asked again"


async def test_passages_that_cannot_be_found_are_heard_of(tmp_path: Path) -> None:
    """D2: an empty or missing collection is told, live and in the record."""
    async with council_web(tmp_path, 'retrieval = { collection = "none_yet" }') as (web, _):
        told = await asked(web)
        found = await over(web, told)
        live = [event for _, event in await events(web, told) if event["event"] == "retrieval"]
        assert [event["problem"] for event in live] == [found["record"]["retrieval"]["problem"]]
        assert live[0]["problem"]
        assert live[0]["used"] is found["record"]["rag_context_used"] is False


# ---- who may


async def test_scopes_limits_and_whose_question_it_is(tmp_path: Path) -> None:
    submit, its = token("app", "submit", "read", max_queued=1)
    other, others = token("other", "submit", "read")
    reads, reader = token("reader", "read")
    async with council_web(
        tmp_path, tokens=[submit, other, reads], setup=lambda talk: talk.hangs.add("prince")
    ) as (web, _):

        def by(secret: str) -> dict[str, Any]:
            return {"headers": {"Authorization": f"Bearer {secret}"}}

        assert (await web.get(BASE, 401))["type"] == "unauthorized"
        assert (await web.post(ASK, {"query": QUERY}, 403, **by(reader)))["type"] == "forbidden"
        told = await web.post(ASK, {"query": QUERY}, 202, **by(its))
        await web.running(told["id"])
        cancel = told["links"]["cancel"]
        assert (await web.post(cancel, None, 403, **by(reader)))["type"] == "forbidden"
        assert "its own questions" in (await web.post(cancel, None, 403, **by(others)))["message"]
        assert (await web.post(cancel, None, 200, **by(its)))["id"] == told["id"]
        async with asyncio.timeout(PATIENCE_S):
            await web.parts.client.wait(told["id"])
        error = await web.post(cancel, None, 403, **by(its))
        assert error["type"] == "forbidden", "what is over belongs to nobody here"
        await web.parts.client.pause()
        assert (await web.post(ASK, {"query": QUERY}, 202, **by(its)))["state"] == "queued"
        refused = await web.http.post(ASK, json={"query": QUERY}, **by(its))
        assert (refused.status_code, refused.json()["error"]["type"]) == (429, "queue_full")
        assert int(refused.headers["retry-after"]) > 0


async def test_a_question_is_found_by_its_own_council_only(both: tuple[Web, Talk]) -> None:
    web, _ = both
    (task,) = await web.submit({"kind": "other", "payload": {}})
    for path in (f"{BASE}/questions/{task}", f"{BASE}/questions/none", f"{BASE}/questions/{task}/events"):
        error = await web.get(path, 404)
        assert "there is no question" in error["message"]
    assert (await web.post(f"{BASE}/questions/{task}/cancel", None, 404))["type"] == "not_found"


# ---- history and conversations


async def test_what_was_asked_is_listed_in_pages_the_newest_first(both: tuple[Web, Talk]) -> None:
    web, _ = both
    asked_ = [await asked(web, query=f"{QUERY} {n}", conversation="pages") for n in range(3)]
    for told in asked_:
        await over(web, told)
    wanted = {"conversation": "pages", "limit": 2}
    page = await web.get(f"{BASE}/questions", params=wanted)
    assert [one["query"] for one in page["questions"]] == [f"{QUERY} 2", f"{QUERY} 1"]
    entry = page["questions"][0]
    assert (entry["method"], entry["by"], entry["success_count"], entry["total_fighters"]) == (
        "synthesis",
        "SHENRON",
        2,
        2,
    )
    rest = await web.get(f"{BASE}/questions", params={**wanted, "after": page["next"]})
    assert [one["query"] for one in rest["questions"]] == [f"{QUERY} 0"]
    assert rest["next"] is None
    none = await web.get(f"{BASE}/questions", params={**wanted, "state": "failed"})
    assert none["questions"] == []


async def test_follow_ups_see_earlier_turns_and_a_conversation_is_read_in_order(
    both: tuple[Web, Talk],
) -> None:
    """D6: conversations over HTTP."""
    web, talk = both
    first = await asked(web)
    await over(web, first)
    estimate, query = f"{BASE}/estimate", {"query": "And at night?"}
    alone, followed = [
        await web.post(estimate, query | more) for more in ({}, {"conversation": first["conversation"]})
    ]
    assert followed["tokens"] > alone["tokens"], "the turns it is told are counted"
    assert alone["seconds"] > 0, "as the question before took"
    talk.server.requests.clear()
    second = await asked(web, query="And at night?", conversation=first["conversation"])
    await over(web, second)
    assert second["conversation"] == first["conversation"]
    (request,) = talk.asked("saiyan")
    assert QUERY in request.prompt
    assert SUMMED_UP in request.prompt
    beside = await asked(web, query="Something else?", conversation="elsewhere")
    await over(web, beside)
    (bare, *_) = await web.store.bare_tasks(TaskFilter(run=first["run"], kind="council-shenron"))
    assert (bare.task.id, bare.task.payload, bare.value) == (first["id"], None, None)
    listed = (await web.get(f"{BASE}/conversations"))["conversations"]
    assert [(one["id"], one["questions"], one["query"], one["live"]) for one in listed[:2]] == [
        ("elsewhere", 1, "Something else?", 0),
        (first["conversation"], 2, QUERY, 0),
    ]
    page = await web.get(f"{BASE}/conversations", params={"limit": 1})
    rest = await web.get(f"{BASE}/conversations", params={"limit": 1, "after": page["next"]})
    assert [one["id"] for one in rest["conversations"]] == [first["conversation"]]
    one = await web.get(f"{BASE}/conversations/{first['conversation']}")
    assert [(turn["query"], turn["answer"]) for turn in one["turns"]] == [
        (QUERY, SUMMED_UP),
        ("And at night?", SUMMED_UP),
    ]
    assert (await web.get(f"{BASE}/conversations/none", 404))["type"] == "not_found"
