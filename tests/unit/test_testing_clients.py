"""The simulated model server through the `openai` package, untouched: what a user's program would see."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageFunctionToolCall, ChatCompletionToolParam
from pydantic import BaseModel

from penstock.testing import Fault, ModelBehaviour, ModelServer, RateLimit

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer", "minimum": 2},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "note": {"type": "string"},
            },
            "required": ["city", "days", "unit"],
        },
    },
}
ARGUMENTS = {"city": "word", "days": 2, "unit": "celsius"}


@asynccontextmanager
async def serving(**behaviour: Any) -> AsyncIterator[tuple[ModelServer, openai.AsyncOpenAI]]:
    async with (
        ModelServer(ModelBehaviour(**behaviour)) as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="key", max_retries=0) as client,
    ):
        yield server, client


@contextmanager
def serving_in_thread(**behaviour: Any) -> Iterator[tuple[ModelServer, openai.OpenAI]]:
    with (
        ModelServer.in_thread(ModelBehaviour(**behaviour)) as server,
        openai.OpenAI(base_url=server.url, api_key="key", max_retries=0) as client,
    ):
        yield server, client


def test_e4_the_sync_client_chats_and_streams() -> None:
    with serving_in_thread(tokens=3) as (server, client):
        answer = client.chat.completions.create(
            model="simulated", messages=[{"role": "user", "content": "one two"}]
        )
        stream = client.chat.completions.create(
            model="simulated",
            messages=[{"role": "user", "content": "one two"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        server.wait(lambda stats: stats.served == 2)
    assert answer.choices[0].message.content == "one two one"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 5
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "one two one"
    assert chunks[-1].usage == answer.usage
    assert server.requests[0].headers["Authorization"] == "Bearer key"


async def test_e4_the_async_client_chats_and_streams() -> None:
    async with serving(tokens=3) as (_, client):
        answer = await client.chat.completions.create(
            model="simulated", messages=[{"role": "user", "content": "one two"}]
        )
        assert answer.choices[0].message.content == "one two one"
        async with client.chat.completions.stream(
            model="simulated", messages=[{"role": "user", "content": "one two"}]
        ) as stream:
            final = await stream.get_final_completion()
        assert final.choices[0].message.content == "one two one"


@pytest.mark.parametrize(
    ("choice", "reason"),
    [("required", "tool_calls"), ({"type": "function", "function": {"name": "weather"}}, "stop")],
)
async def test_a_required_tool_is_called(choice: Any, reason: str) -> None:
    async with serving() as (_, client):
        answer = await client.chat.completions.create(
            model="simulated",
            messages=[{"role": "user", "content": "rain?"}],
            tools=[WEATHER],
            tool_choice=choice,
        )
        chunks = await client.chat.completions.create(
            model="simulated",
            messages=[{"role": "user", "content": "rain?"}],
            tools=[WEATHER],
            tool_choice=choice,
            stream=True,
        )
        pieces = [call async for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    [call] = answer.choices[0].message.tool_calls or []
    assert isinstance(call, ChatCompletionMessageFunctionToolCall)
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", ARGUMENTS)
    assert answer.choices[0].finish_reason == reason
    assert pieces[0].function is not None
    assert pieces[0].function.name == "weather"
    arguments = [piece.function.arguments or "" for piece in pieces if piece.function]
    assert json.loads("".join(arguments)) == ARGUMENTS
    assert len([argument for argument in arguments if argument]) > 1


async def test_a_tool_that_may_be_called_is_not() -> None:
    async with serving() as (_, client):
        answer = await client.chat.completions.create(
            model="simulated", messages=[{"role": "user", "content": "rain?"}], tools=[WEATHER]
        )
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].message.content


async def test_a_script_calls_a_tool() -> None:
    call = {"id": "x", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    async with serving(answer=lambda _: {"content": None, "tool_calls": [call]}) as (_, client):
        answer = await client.chat.completions.create(
            model="simulated", messages=[{"role": "user", "content": "rain?"}], tools=[WEATHER]
        )
    [made] = answer.choices[0].message.tool_calls or []
    assert isinstance(made, ChatCompletionMessageFunctionToolCall)
    assert json.loads(made.function.arguments) == {"city": "Oslo"}
    assert answer.choices[0].finish_reason == "tool_calls"


class Step(BaseModel):
    title: str
    minutes: float


class Plan(BaseModel):
    name: str
    steps: list[Step]
    best: Step


async def test_a_schema_is_answered_with_what_fits_it() -> None:
    async with serving() as (_, client):
        parsed = await client.chat.completions.parse(
            model="simulated", messages=[{"role": "user", "content": "plan"}], response_format=Plan
        )
        plain = await client.chat.completions.create(
            model="simulated",
            messages=[{"role": "user", "content": "plan"}],
            response_format={"type": "json_object"},
        )
    assert parsed.choices[0].message.parsed == Plan(
        name="word", steps=[], best=Step(title="word", minutes=0.5)
    )
    assert isinstance(json.loads(plain.choices[0].message.content or ""), dict)


async def test_embeddings_are_read_by_the_client() -> None:
    async with serving(dimensions=5) as (server, client):
        packed = await client.embeddings.create(model="simulated", input=["a", "b"])
        plain = await client.embeddings.create(model="simulated", input="a", encoding_format="float")
    assert server.requests[0].body["encoding_format"] == "base64"
    assert [len(one.embedding) for one in packed.data] == [5, 5]
    assert packed.data[0].embedding == pytest.approx(plain.data[0].embedding, rel=1e-6)


async def test_completions_and_models_are_read_by_the_client() -> None:
    async with serving(models=("a", "b")) as (_, client):
        answer = await client.completions.create(model="b", prompt="x y", max_tokens=2)
        assert answer.choices[0].text == "x y"
        assert [model.id async for model in client.models.list()] == ["a", "b"]
        assert (await client.models.retrieve("b")).id == "b"


@pytest.mark.parametrize(
    ("behaviour", "error", "code"),
    [
        ({"key": "other"}, openai.AuthenticationError, "invalid_api_key"),
        ({"context_tokens": 1}, openai.BadRequestError, "context_length_exceeded"),
        ({"models": ("other",)}, openai.NotFoundError, "model_not_found"),
        ({"rate": RateLimit(tokens_per_min=1, header="none")}, openai.RateLimitError, "rate_limit_exceeded"),
        ({"faults": [Fault.refuse(500)]}, openai.InternalServerError, None),
    ],
)
async def test_refusals_are_the_errors_of_the_client(
    behaviour: dict[str, Any], error: type[openai.APIStatusError], code: str | None
) -> None:
    async with serving(**behaviour) as (server, client):
        if "rate" in behaviour:  # the first call empties the bucket
            await client.chat.completions.create(
                model="simulated", messages=[{"role": "user", "content": "x"}]
            )
        with pytest.raises(error) as caught:
            await client.chat.completions.create(
                model="simulated", messages=[{"role": "user", "content": "one two"}]
            )
        assert caught.value.code == code
        assert server.stats.refused == 1


async def test_the_client_retries_as_it_was_told() -> None:
    async with serving(faults=[Fault.refuse(429, retry_after_s=0.001)]) as (server, client):
        retrying = client.with_options(max_retries=1)
        await retrying.chat.completions.create(model="simulated", messages=[{"role": "user", "content": "x"}])
    assert (server.stats.refused, server.stats.served) == (1, 1)


async def test_a_broken_stream_is_an_error_of_the_client() -> None:
    async with serving(tokens=9, faults=[Fault.disconnect(after_chunks=3)]) as (_, client):
        stream = await client.chat.completions.create(
            model="simulated", messages=[{"role": "user", "content": "x"}], stream=True
        )
        with pytest.raises(Exception, match="incomplete"):
            async for _chunk in stream:
                pass
