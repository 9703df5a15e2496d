"""A question from Python, against real model servers: its record, its events as they come, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import Client
from penstock.council.asking import so_far
from penstock.errors import QuestionError, TaskError
from penstock.model import State
from penstock.store.base import TaskFilter
from penstock.testing import Fault, ModelBehaviour, ModelServer
from penstock.testing.calls import ModelRequest

PATIENCE_S = 30.0
CONFIG = """
store = "penstock.db"

[hosts.models]
type = "openai"
url = "{url}"
slots = 8
models = ["goku", "vegeta", "chair"]
serves = ["chat"]

[councils.shenron]
chair = {{ name = "SHENRON", emoji = "🐉", model = "chair" }}
members = [
  {{ name = "GOKU", emoji = "🥋", role = "the direct thinker", model = "goku" }},
  {{ name = "VEGETA", emoji = "👑", role = "the critic", model = "vegeta" }},
]
"""
ANSWERS = {
    "goku": "The dam holds forty metres of water.",
    "vegeta": "The dam does not hold forty metres of water.",
    "chair": "GOKU says that it holds, VEGETA that it does not.",
}


def behaviour(faults: Callable[[ModelRequest], Fault | None] = lambda _: None) -> ModelBehaviour:
    return ModelBehaviour(models=tuple(ANSWERS), answer=lambda request: ANSWERS[request.model], faults=faults)


@asynccontextmanager
async def council(
    folder: Path, given: ModelBehaviour | None = None, *, dispatch: bool = True
) -> AsyncIterator[tuple[Client, ModelServer]]:
    async with ModelServer(given or behaviour()) as server:
        (folder / "penstock.toml").write_text(CONFIG.format(url=server.url), encoding="utf-8")
        async with penstock.open(folder / "penstock.toml", dispatch=dispatch) as client:
            yield client, server


async def test_ask_gives_the_record(tmp_path: Path) -> None:
    """D5, D7, D8: of one member alone, whose answer is not called a synthesis."""
    async with council(tmp_path) as (client, _), asyncio.timeout(PATIENCE_S):
        record = await client.ask("shenron", "Does the dam hold?", members=["goku"])
    assert [(one["name"], one["answer"]) for one in record["responses"]] == [("GOKU", ANSWERS["goku"])]
    assert (record["synthesis"]["by"], record["synthesis"]["method"]) == ("GOKU", "single")
    assert record["synthesis"]["text"] == ANSWERS["goku"]


async def test_events_come_as_it_is_answered(tmp_path: Path) -> None:
    """D7: the texts of each step make up its answer, and each answer is told once."""
    texts: dict[str, str] = {}
    told: list[dict[str, Any]] = []
    async with council(tmp_path) as (client, _), asyncio.timeout(PATIENCE_S):
        asking = client.asking(None, "Does the dam hold?", members=["GOKU", "VEGETA"])
        async for event in asking:
            told.append(event)
            if event["event"] == "text":
                texts[event["step"]] = texts.get(event["step"], "") + event["text"]
    assert told[0] == {
        "event": "asked",
        "id": asking.id,
        "council": "shenron",
        "conversation": told[-1]["record"]["conversation"],
        "begins_conversation": True,
    }
    assert texts == {
        "member/GOKU": ANSWERS["goku"],
        "member/VEGETA": ANSWERS["vegeta"],
        "synthesis/SHENRON": ANSWERS["chair"],
    }
    assert sorted(one["name"] for one in told if one["event"] == "answer") == ["GOKU", "VEGETA"]
    assert told[-1]["event"] == "done"
    numbers = [one["number"] for one in told if "number" in one]
    assert numbers == sorted(set(numbers))


async def test_where_another_process_dispatches_answers_come_whole(tmp_path: Path) -> None:
    """D7: as with `work`, from the store; the events are the same but for the pieces of texts."""
    async with (
        council(tmp_path),
        asyncio.timeout(PATIENCE_S),
        penstock.open(tmp_path / "penstock.toml", dispatch=False) as other,
    ):
        told = [event async for event in other.asking("shenron", "Does the dam hold?")]
    answers = {one["name"]: one["answer"] for one in told if one["event"] == "answer"}
    assert answers == {"GOKU": ANSWERS["goku"], "VEGETA": ANSWERS["vegeta"]}
    assert {one["step"] for one in told if one.get("state") == "ended"} >= {
        "member/GOKU",
        "synthesis/SHENRON",
    }
    assert told[-1]["record"]["synthesis"]["text"] == ANSWERS["chair"]


async def test_cancel_ends_it_and_what_it_asked(tmp_path: Path) -> None:
    """D7"""
    hung = behaviour(lambda request: Fault.hang(after_chunks=2) if request.model == "vegeta" else None)
    async with council(tmp_path, hung) as (client, server), asyncio.timeout(PATIENCE_S):
        asking = client.asking("shenron", "Does the dam hold?")
        last = {}
        async for last in asking:
            if last["event"] == "answer":  # GOKU's: VEGETA says no more
                await asking.cancel()
        await server.wait_for(lambda stats: stats.disconnected == 1)
        async with client.watching() as watch:  # what it asked for ends with it, a moment later
            while await client.tasks(TaskFilter(states=(State.QUEUED, State.RUNNING))):
                await watch()
    assert last["event"] == "cancelled"


async def test_a_cancelled_question_has_no_record(tmp_path: Path) -> None:
    async with council(tmp_path, dispatch=False) as (client, _), asyncio.timeout(PATIENCE_S):
        asking = client.asking("shenron", "Does the dam hold?")
        await asking.submit()
        await asking.cancel()
        with pytest.raises(QuestionError, match=f"question {asking.id}: cancelled"):
            await asking.record()


async def test_a_question_that_nobody_answers_has_a_record(tmp_path: Path) -> None:
    """D2"""
    broken = behaviour(lambda _: Fault.refuse(400, {"error": {"message": "no such thing"}}))
    async with council(tmp_path, broken) as (client, _), asyncio.timeout(PATIENCE_S):
        record = await client.ask("shenron", "Does the dam hold?")
    assert (record["success_count"], record["synthesis"]) == (0, None)
    assert all("no such thing" in one["error"] for one in record["responses"])


async def test_a_retried_answer_is_told_once(tmp_path: Path) -> None:
    """D7: what a broken attempt said is taken back by `again`."""
    broken: set[str] = set()

    def once(request: ModelRequest) -> Fault | None:
        if request.model == "goku" and "goku" not in broken:
            broken.add("goku")
            return Fault.disconnect(after_chunks=3)
        return None

    text = ""
    async with council(tmp_path, behaviour(once)) as (client, _), asyncio.timeout(PATIENCE_S):
        async for event in client.asking("shenron", "Does the dam hold?", members=["GOKU"]):
            if event.get("step") == "member/GOKU":
                text = "" if event["event"] == "again" else text + event.get("text", "")
            if event["event"] == "answer" and event["name"] == "GOKU":
                assert event["success"] is True
    assert broken == {"goku"}
    assert text == ANSWERS["goku"]


@pytest.mark.parametrize(
    ("council_name", "how", "told"),
    [
        ("shenrn", {}, "did you mean 'shenron'"),
        ("shenron", {"mode": "slow"}, "no mode 'slow'"),
        ("shenron", {"members": ["KRILLIN"]}, "no member 'KRILLIN'"),
        ("shenron", {"use_rag": True}, "there is nothing to read"),
        ("shenron", {"conversation": ""}, "`conversation` is empty"),
        ("shenron", {"conversation": "v1-2026-11-16"}, "are chats of everybody"),
    ],
)
async def test_what_is_wrong_is_told_before_it_is_kept(
    tmp_path: Path, council_name: str, how: dict[str, Any], told: str
) -> None:
    (tmp_path / "penstock.toml").write_text(CONFIG.format(url="http://127.0.0.1:9/v1"), encoding="utf-8")
    async with penstock.open(tmp_path / "penstock.toml", dispatch=False) as client:
        with pytest.raises(TaskError, match=told):
            client.asking(council_name, "Does the dam hold?", **how)
        assert await client.tasks() == []


async def test_questions_that_name_no_conversation_begin_one_each(tmp_path: Path) -> None:
    """D7: none sees what was asked in another."""
    async with council(tmp_path) as (client, server), asyncio.timeout(PATIENCE_S):
        first = await client.ask("shenron", "Does the dam hold?", members=["VEGETA"])
        again = await client.ask("shenron", "And in winter?", members=["GOKU"])
        asked = [request for request in server.requests if request.model == "goku"][-1]
    assert first["conversation"] != again["conversation"]
    assert "Does the dam hold?" not in str(asked.body["messages"])


async def test_a_follow_up_sees_what_was_said_before(tmp_path: Path) -> None:
    """D7"""
    async with council(tmp_path) as (client, server), asyncio.timeout(PATIENCE_S):
        first = await client.ask("shenron", "Does the dam hold?", members=["VEGETA"])
        conversation = first["conversation"]
        again = await client.ask("shenron", "And in winter?", conversation=conversation, members=["GOKU"])
        assert again["conversation"] == conversation == (await client.get(first["id"])).task.run
        asked = [request for request in server.requests if request.model == "goku"][-1]
    said = "\n".join(str(message["content"]) for message in asked.body["messages"])
    assert "Does the dam hold?" in said
    assert ANSWERS["vegeta"] in said


async def test_whether_a_conversation_is_begun_is_told(tmp_path: Path) -> None:
    """D7: a mistyped one is seen by that."""
    async with council(tmp_path) as (client, _), asyncio.timeout(PATIENCE_S):
        told = [
            [event async for event in client.asking("shenron", query, conversation="dams", members=["GOKU"])]
            for query in ("Does the dam hold?", "And in winter?")
        ]
    assert [events[0]["begins_conversation"] for events in told] == [True, False]


async def test_which_council_is_asked_in_words_for_python(tmp_path: Path) -> None:
    """D7: no option of the shell is named where there is none."""
    text = CONFIG.format(url="http://127.0.0.1:9/v1")
    second = text[text.index("[councils.shenron]") :].replace("shenron", "porunga")
    (tmp_path / "penstock.toml").write_text(text + second, encoding="utf-8")
    async with penstock.open(tmp_path / "penstock.toml", dispatch=False) as client:
        with pytest.raises(TaskError, match=r"There are shenron, porunga; name one$"):
            client.asking(None, "Does the dam hold?")


async def test_why_last_and_the_run_of_a_question(tmp_path: Path) -> None:
    """D7: by what `ask` prints, the question's id; its steps are newer, and are not meant by `last`."""
    async with council(tmp_path) as (client, _), asyncio.timeout(PATIENCE_S):
        asking = client.asking("shenron", "Does the dam hold?", members=["GOKU"])
        await asking.record()
        run = (await client.get(asking.id)).task.run
        assert await client.run_named(asking.id) == run
        assert (await client.tasks(TaskFilter(limit=1, newest=True)))[0].task.id != asking.id
        assert (await client.why("last")).record.task.id == asking.id


async def test_a_question_that_is_not_over_has_a_record_so_far(tmp_path: Path) -> None:
    """D7, D8: the answers that are there, also when it is cancelled."""
    hung = behaviour(lambda request: Fault.hang(after_chunks=2) if request.model == "vegeta" else None)
    async with council(tmp_path, hung) as (client, _), asyncio.timeout(PATIENCE_S):
        asking = client.asking("shenron", "Does the dam hold?")
        async for event in asking:
            if event["event"] == "answer" and event["success"]:
                async with client.watching() as watch:
                    while (record := await so_far(client, asking.council, await client.get(asking.id))) and (
                        not record["success_count"]
                    ):
                        await watch()
                break
        assert record is not None
        assert {one["name"]: one["answer"] for one in record["responses"] if one["success"]} == {
            "GOKU": ANSWERS["goku"]
        }
        assert record["synthesis"] is None
        await asking.cancel()


async def test_what_a_member_waits_for_is_told(tmp_path: Path) -> None:
    """D2, D7: a host that is down, with its reason, before its patience is over."""
    text = CONFIG.format(url="http://127.0.0.1:9/v1")
    (tmp_path / "penstock.toml").write_text(text, encoding="utf-8")
    async with penstock.open(tmp_path / "penstock.toml") as client, asyncio.timeout(PATIENCE_S):
        asking = client.asking("shenron", "Does the dam hold?", members=["GOKU"])
        async for event in asking:
            if event.get("why"):
                break
        await asking.cancel()
    assert (event["step"], event["name"], event["state"]) == ("member/GOKU", "GOKU", "queued")
    assert event["why"].startswith("models is down (")
