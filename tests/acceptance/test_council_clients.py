"""Clients that people have ask a council of a real `serve` process, with real model servers behind it (D6, E4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from penstock.testing import Fault, ModelServer
from tests.acceptance.serve_rig import PATIENCE_S, Serve, serving, until
from tests.unit.council_web_rig import ANSWERS, DISSENT, QUERY, SUMMED_UP, Talk, config

COUNCIL = "council:shenron"
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": QUERY}]


class Plant:
    """The server, and the model servers behind it."""

    def __init__(self, serve: Serve, talk: Talk) -> None:
        self.serve = serve
        self.talk = talk
        self.http = httpx.Client(base_url=serve.root_url, timeout=PATIENCE_S, verify=False, trust_env=False)

    def ask(self, **body: Any) -> dict[str, Any]:
        told = self.http.post("/api/councils/shenron/ask", json={"query": QUERY, **body})
        assert told.status_code == 202, told.text
        found: dict[str, Any] = told.json()
        return found

    def questions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get("/api/councils/shenron/questions").json()["questions"]
        return found


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    talk = Talk()
    with (
        ModelServer.in_thread(talk.behaviour) as server,
        serving(tmp_path_factory.mktemp("council"), config(server.url)) as serve,
    ):
        talk.server = server
        made = Plant(serve, talk)
        with made.http:
            yield made


@pytest.fixture
def client(plant: Plant) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=plant.serve.url, api_key="none", max_retries=0) as made:
        yield made


def test_e4_openai_asks_a_council_and_goes_on(client: openai.OpenAI, plant: Plant) -> None:
    assert COUNCIL in [model.id for model in client.models.list()]
    first = client.chat.completions.create(model=COUNCIL, messages=HELLO)
    assert first.choices[0].message.content == SUMMED_UP + DISSENT
    assert first.usage is not None
    assert first.usage.total_tokens == first.usage.prompt_tokens + first.usage.completion_tokens > 0
    record = (first.model_extra or {})["penstock"]
    assert [one["answer"] for one in record["responses"]] == list(ANSWERS.values())
    plant.talk.server.requests.clear()
    more: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "Be brief."},
        *HELLO,
        {"role": "assistant", "content": SUMMED_UP},
        {"role": "user", "content": "And at night?"},
    ]
    body = {"penstock": {"members": ["GOKU"]}}
    second = client.chat.completions.create(model=COUNCIL, messages=more, extra_body=body)
    assert (second.choices[0].message.content or "").startswith(
        ANSWERS["saiyan"] + "\n\n[This is the answer of"
    )
    (request,) = plant.talk.server.requests
    for words in ("Be brief.", QUERY, SUMMED_UP, "And at night?"):
        assert words in request.prompt


def test_d6_openai_hears_the_chair_while_it_speaks(client: openai.OpenAI, plant: Plant) -> None:
    """Its first words, though it never comes to its last."""
    plant.talk.fails["dragon"] = Fault.hang(after_chunks=3)
    try:
        with client.chat.completions.create(model=COUNCIL, messages=HELLO, stream=True) as stream:
            pieces = (choice.delta.content for chunk in stream for choice in chunk.choices)
            heard = next(piece for piece in pieces if piece)
        assert SUMMED_UP.startswith(heard)
        assert heard != SUMMED_UP
        until(lambda: plant.serve.running() == plant.serve.queued() == 0, lambda: plant.serve.log)
    finally:
        plant.talk.fails.clear()


def test_d6_openai_hears_all_that_the_council_says(client: openai.OpenAI) -> None:
    options: Any = {"include_usage": True}
    reasoning, content, usage, record = "", "", None, None
    for chunk in client.chat.completions.create(
        model=COUNCIL, messages=HELLO, stream=True, stream_options=options
    ):
        usage = chunk.usage or usage
        record = (chunk.model_extra or {}).get("penstock", record)
        for choice in chunk.choices:
            reasoning += (choice.delta.model_extra or {}).get("reasoning_content") or ""
            content += choice.delta.content or ""
    assert content == SUMMED_UP + DISSENT
    assert reasoning.splitlines()[0] == "The members are asked."
    assert "👑 VEGETA has answered" in reasoning
    assert usage is not None
    assert usage.completion_tokens > 0
    assert record is not None
    assert record["synthesis"]["text"] == SUMMED_UP


async def test_openai_streams_asynchronously_in_another_mode(plant: Plant) -> None:
    async with openai.AsyncOpenAI(base_url=plant.serve.url, api_key="none") as made:
        stream = await made.chat.completions.create(model=f"{COUNCIL}:quick", messages=HELLO, stream=True)
        texts = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
    assert "".join(texts).startswith((SUMMED_UP, ANSWERS["saiyan"]))


def test_openai_understands_refusals(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="did you mean 'council:shenron'"):
        client.chat.completions.create(model="council:shenrom", messages=HELLO)
    with pytest.raises(openai.BadRequestError, match="answers chats only") as refused:
        client.embeddings.create(model=COUNCIL, input="a")
    assert (refused.value.code, refused.value.param) == ("unsupported", "model")


def test_a_client_that_hangs_up_cancels_its_question(client: openai.OpenAI, plant: Plant) -> None:
    plant.talk.hangs.add("prince")
    try:
        stream = client.chat.completions.create(model=COUNCIL, messages=HELLO, stream=True)
        for chunk in stream:
            if "has answered" in str((chunk.choices[0].delta.model_extra or {}).get("reasoning_content")):
                break
        stream.close()
        until(lambda: plant.questions()[0]["state"] == "cancelled", lambda: str(plant.questions()[0]))
        until(lambda: plant.talk.server.stats.in_flight == 0, lambda: str(plant.talk.server.stats))
        until(lambda: plant.serve.running() == plant.serve.queued() == 0, lambda: plant.serve.log)
    finally:
        plant.talk.hangs.clear()


def heard(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    id = ""
    for line in lines:
        if line.startswith("id: "):
            id = line[4:]
        elif line.startswith("data: "):
            yield id, json.loads(line[6:])


def test_d6_a_reader_whose_connection_breaks_misses_nothing(plant: Plant) -> None:
    plant.talk.hangs.add("prince")
    try:
        told = plant.ask()
        with plant.http.stream("GET", told["links"]["events"]) as response:
            first: list[tuple[str, dict[str, Any]]] = []
            for one in heard(response.iter_lines()):
                first.append(one)
                if one[1]["event"] == "answer":
                    break
    finally:
        plant.talk.hangs.clear()
    assert plant.http.post(told["links"]["cancel"]).status_code == 200
    with plant.http.stream("GET", told["links"]["events"], headers={"Last-Event-ID": first[-1][0]}) as rest:
        second = list(heard(rest.iter_lines()))
    numbers = [event["number"] for _, event in (*first, *second)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert second[-1][1]["event"] == "cancelled"


def test_clients_of_the_original_server_get_what_they_know(plant: Plant) -> None:
    wish = {"query": QUERY, "power_mode": "council", "use_rag": True, "async_mode": True}
    told = plant.http.post("/api/shenron/grant-wish", json=wish)
    assert told.status_code == 202
    path = f"/api/shenron/job-status/{told.json()['job_id']}"
    until(lambda: plant.http.get(path).json()["status"] == "completed", lambda: plant.http.get(path).text)
    result = plant.http.get(path).json()["result"]
    assert result["synthesized_answer"] == SUMMED_UP
    assert [one["fighter"] for one in result["warrior_responses"]] == ["GOKU", "VEGETA"]
    assert (result["success_count"], result["total_fighters"], result["rag_context_used"]) == (2, 2, False)
    whole = plant.http.post("/api/shenron/grant-wish", json={"query": QUERY}).json()
    assert (whole["wish_granted"], whole["synthesis"]["text"]) == (True, SUMMED_UP)
    cancelled = plant.http.post(f"/api/shenron/cancel-job/{told.json()['job_id']}")
    assert (cancelled.status_code, cancelled.json()["success"]) == (400, False)
