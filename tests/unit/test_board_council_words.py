"""What the Council and Agents pages say: costs, waits, pages of questions, an engine that is not there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import Client
from penstock.diagnosis.why.answer import Part, Why
from penstock.model import Task, Wait
from penstock.web.board import council_history
from penstock.web.board.agents_seen import AgentsSeen
from penstock.web.board.council_history import PAGE, Sought
from penstock.web.board.council_words import estimate_told, waits_for

CONFIG = """
store = "penstock.db"
[hosts.models]
type = "openai"
url = "http://127.0.0.1:9/v1"
models = ["goku"]
serves = ["chat"]
[councils.sages]
chair = { name = "CHAIR", model = "goku" }
members = [{ name = "GOKU", model = "goku" }]
[agents.reports]
image = "here"
command = ["serve"]
"""
ESTIMATE: dict[str, Any] = {
    "calls": 7,
    "calls_most": 9,
    "tokens": 3331,
    "tokens_most": 9231,
    "usd": 0.0123,
    "usd_most": 1.5,
    "unpriced": ["GOKU"],
    "seconds": 12.4,
    "limit_usd": 0.01,
}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    (tmp_path / "penstock.toml").write_text(CONFIG)
    async with penstock.open(tmp_path / "penstock.toml", dispatch=False) as client:
        yield client


def test_an_estimate_tells_what_it_knows() -> None:
    assert estimate_told(ESTIMATE) == (
        "7 to 9 calls; about 3,331 tokens, at most 9,231; about $0.0123, at most $1.50; "
        "about 12 s where every host is free; no price is known of GOKU; "
        "over the limit of $0.0100: it would be refused"
    )
    free = {**ESTIMATE, "calls_most": 7, "usd": 0, "usd_most": 0, "unpriced": [], "seconds": None}
    assert estimate_told({**free, "limit_usd": None}) == "7 calls; about 3,331 tokens, at most 9,231"


@pytest.mark.parametrize(
    ("reason", "detail", "told"),
    [
        ("slots:surtr,fenrir", "3 tasks", "a slot on surtr or fenrir"),
        ("host-down", "surtr: refused", "a host that is up (surtr: refused)"),
        ("gate:vram", "1 GB free", "the gate vram to open (1 GB free)"),
        ("lane:calls", "", "room in lane calls"),
        ("order", "", "others that come first"),
    ],
)
def test_what_a_step_waits_for_is_told_in_words(reason: str, detail: str, told: str) -> None:
    record: Any = None
    waits = Wait("slots:other", "", 0.0, 1.0), Wait(reason, detail, 1.0, 2.0)
    parts = tuple(Part(one, 0.5, ()) for one in waits)
    assert waits_for(Why(record, 2.0, parts)) == told
    assert waits_for(Why(record, 2.0, ())) == ""


async def test_questions_come_in_pages_and_are_found_by_words_and_ids(client: Client) -> None:
    """D6"""
    council = client.config.councils["sages"]
    asked = [
        Task(council.kind, {"query": f"Question {n:03}", "conversation": "c-x"}, run="c-x")
        for n in range(PAGE + 5)
    ]
    others = [Task(council.kind, {"query": "Another"}, run="else"), Task("chat", {"query": "Question 000"})]
    await client.submit_many(asked)
    await client.submit_many(others)
    sought = Sought("sages")
    first = await council_history.found(client, council, sought)
    assert [one.task.payload["query"] for one in first.questions[:2]] == [
        "Another",
        f"Question {PAGE + 4:03}",
    ]
    assert len(first.questions) == PAGE
    rest = await council_history.found(client, council, sought._replace(before=first.more))
    assert (len(rest.questions), rest.more) == (6, None)
    of_one = await council_history.found(
        client, council, sought._replace(conversation="c-x", before=first.more)
    )
    assert {one.task.run for one in of_one.questions} == {"c-x"}
    (found,) = (await council_history.found(client, council, sought._replace(words="question 007"))).questions
    assert found.task.payload["query"] == "Question 007"
    by_id = await council_history.found(client, council, sought._replace(words=found.task.id))
    assert [one.task.id for one in by_id.questions] == [found.task.id]
    assert not (await council_history.found(client, council, sought._replace(words="nonesuch"))).questions


async def test_without_an_engine_agents_are_shown_with_the_remedy(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CONTAINER_SOCKET", f"unix://{tmp_path}/nowhere.sock")
    seen = AgentsSeen(client)
    told = await seen.look()
    assert told.trouble is not None
    assert "nowhere.sock" in told.trouble
    assert told.stats["reports"]["calls"] == 0
    assert await seen.look() is told, "one look serves all who ask within a second"
    assert await seen.look(fresh=True) is not told
