"""A council of simulated members: what they say lets every stage be seen, and the example of the docs is one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.config import load
from penstock.config.councils import Council
from penstock.council.plan.confidence import read_confidence
from penstock.council.plan.prompts import chair_prompt, member_prompt
from penstock.council.plan.steps import Question
from penstock.council.plan.synthesis import read_synthesis
from penstock.council.plan.texts import Answer, Passage
from penstock.testing import ModelBehaviour, ModelServer
from penstock.testing.calls import ModelRequest
from penstock.testing.talk import said

EXAMPLE = Path(__file__).parents[2] / "examples" / "council" / "simulated.toml"


@pytest.fixture
def council() -> Council:
    return load(EXAMPLE).councils["shenron"]


def question(council: Council) -> Question:
    names = tuple(one.name for one in council.members)
    return Question("q1", "Is the plan for the second pump sound?", council.mode, names, False, 0.0)


def request(messages: Any) -> ModelRequest:
    return ModelRequest(0, "/v1/chat/completions", {}, {"model": "simulated", "messages": messages})


def test_members_speak_to_the_question_and_differ(council: Council) -> None:
    """D9: in sentences, citing what is shown, with nothing of the prompt's fences."""
    passages = [Passage(1, "pumps.md", "", "Pump two starts at noon.", 0.9)]
    answers = []
    for member in council.members[:2]:
        prompt = member_prompt(council, question(council), member, passages, quick=True)
        text = said(request(prompt.messages), None)
        assert text is not None
        assert text == said(request(prompt.messages), None), "the same prompt gets the same answer"
        answer, sure = read_confidence(text)
        assert sure is not None
        assert "second pump" in answer
        assert "[1]" in answer
        assert "<<" not in answer
        answers.append(answer)
    assert answers[0] != answers[1]
    longer = said(request(prompt.messages), 200)
    assert longer is not None
    assert 200 <= len(longer.split()) < 240


def test_the_chair_writes_its_trailer(council: Council) -> None:
    asked = question(council)
    answers = [Answer("GOKU", "It is."), Answer("VEGETA", "It is not.")]
    prompt = chair_prompt(council, asked, council.chair, answers, (), None)
    text = said(request(prompt.messages), None)
    assert text is not None
    read = read_synthesis(text, asked.id, ("GOKU", "VEGETA"))
    assert read.text
    assert "{" not in read.text
    assert not read.problem


def test_other_prompts_are_not_spoken_to() -> None:
    assert said(request([{"role": "user", "content": "one two"}]), None) is None
    assert said(request([]), None) is None


async def test_the_example_is_a_council_whose_every_ballot_counts(tmp_path: Path) -> None:
    """D4, D9: members, review and synthesis of six servers."""
    text = EXAMPLE.read_text(encoding="utf-8")
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        for number in range(1, 7):
            server = await stack.enter_async_context(ModelServer(ModelBehaviour(talks=True)))
            text = text.replace(f"http://127.0.0.1:{18100 + number}/v1", server.url)
        (tmp_path / "penstock.toml").write_text(text, encoding="utf-8")
        client = await stack.enter_async_context(penstock.open(tmp_path / "penstock.toml"))
        record = await client.ask("shenron", "Is the plan sound?", mode="thorough")
    assert record["success_count"] == 6
    assert [one["state"] for one in record["review"]["ballots"]] == ["counted"] * 6
    assert record["synthesis"]["method"] == "synthesis"
    assert len({one["answer"] for one in record["responses"]}) > 1
