"""Clients that people have, untouched: only OPENAI_BASE_URL and OPENAI_API_KEY lead them to `serve` (E4, E5).

Each client meets the same real server process, with simulated model servers behind it.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from penstock.testing import Fault, ModelBehaviour, ModelRequest, ModelServer
from tests.acceptance.serve_rig import Serve, host, serving

MODEL = "qwen2.5-32b"
VECTORS = "all-minilm"
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "say hello to the world"}]
# 1 × 1 pixels.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a town",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string"}},
            "required": ["town"],
        },
    },
}


def answer(request: ModelRequest) -> str | dict[str, Any]:
    """Asks for the tool that it is given, and tells what the tool said."""
    messages = request.body.get("messages", [])
    if messages and messages[-1]["role"] == "tool":
        return f"it is {messages[-1]['content']}"
    if request.body.get("tools"):
        function = {"name": "weather", "arguments": '{"town": "Uppsala"}'}
        return {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    return "hello wide world"


class Plant:
    """The server, and the model servers behind it."""

    def __init__(self, serve: Serve, chat: ModelServer, vectors: ModelServer) -> None:
        self.serve = serve
        self.chat = chat
        self.vectors = vectors

    def received(self) -> ModelRequest:
        return self.chat.requests[-1]


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    chatting = ModelBehaviour(models=(MODEL,), answer=answer)
    with (
        ModelServer.in_thread(chatting) as chat,
        ModelServer.in_thread(ModelBehaviour(models=(VECTORS,))) as vectors,
    ):
        config = (
            '[models]\n"gpt-4o" = "qwen2.5-32b"\n'
            + "[retry]\nbase_s = 0.01\nhost_faults = 1\n"
            + host("surtr", chat.url, model=MODEL, more="breaker = { failures = 100 }")
            + host("skadi", vectors.url, model=VECTORS)
        )
        with serving(tmp_path_factory.mktemp("clients"), config) as serve:
            yield Plant(serve, chat, vectors)


@pytest.fixture(autouse=True)
def environment(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is changed for a client."""
    monkeypatch.setenv("OPENAI_BASE_URL", plant.serve.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def client() -> Iterator[openai.OpenAI]:
    with openai.OpenAI() as made:
        yield made


# ---- openai


def test_e4_openai_asks(client: openai.OpenAI, plant: Plant) -> None:
    reply = client.chat.completions.create(model=MODEL, messages=HELLO, temperature=0.3, seed=7)
    assert reply.choices[0].message.content == "hello wide world"
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens > 0
    assert plant.received().body == {"model": MODEL, "messages": HELLO, "temperature": 0.3, "seed": 7}


def test_an_alias_changes_the_model_and_nothing_else(client: openai.OpenAI, plant: Plant) -> None:
    client.chat.completions.create(model="gpt-4o", messages=HELLO, user="me", logit_bias={"50256": -100})
    sent = {"messages": HELLO, "user": "me", "logit_bias": {"50256": -100}}
    assert plant.received().body == {**sent, "model": MODEL}


def test_e4_openai_streams(client: openai.OpenAI) -> None:
    options: Any = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(model=MODEL, messages=HELLO, stream=True, stream_options=options)
    )
    texts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(texts) == "hello wide world"
    assert len([text for text in texts if text]) == 3
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3


async def test_e4_openai_asks_and_streams_asynchronously(plant: Plant) -> None:
    async with openai.AsyncOpenAI() as made:
        reply = await made.chat.completions.create(model=MODEL, messages=HELLO)
        assert reply.choices[0].message.content == "hello wide world"
        stream = await made.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
        texts = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        assert "".join(texts) == "hello wide world"
        models = [model.id async for model in await made.models.list()]
        assert MODEL in models
        vectors = await made.embeddings.create(model=VECTORS, input=["one", "two"])
        assert len(vectors.data) == 2


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_e4_a_tool_is_called_and_its_result_is_told(
    client: openai.OpenAI, plant: Plant, streamed: bool
) -> None:
    if streamed:
        with client.chat.completions.stream(model=MODEL, messages=HELLO, tools=[WEATHER]) as stream:
            message = stream.get_final_completion().choices[0].message
    else:
        reply = client.chat.completions.create(model=MODEL, messages=HELLO, tools=[WEATHER])
        assert reply.choices[0].finish_reason == "tool_calls"
        message = reply.choices[0].message  # type: ignore[assignment]
    assert message.tool_calls is not None
    call = message.tool_calls[0]
    assert call.type == "function"
    assert json.loads(call.function.arguments) == {"town": "Uppsala"}
    told: list[ChatCompletionMessageParam] = [
        *HELLO,
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
            ],
        },
        {"role": "tool", "tool_call_id": call.id, "content": "raining"},
    ]
    second = client.chat.completions.create(model=MODEL, messages=told, tools=[WEATHER])
    assert second.choices[0].message.content == "it is raining"
    assert plant.received().body["messages"] == told
    assert plant.received().body["tools"] == [WEATHER]


def test_e4_formats_log_probabilities_and_images_arrive_as_sent(client: openai.OpenAI, plant: Plant) -> None:
    image = f"data:image/png;base64,{base64.b64encode(PNG * 1000).decode()}"
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    sent: dict[str, Any] = {
        "model": MODEL,
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what is it? “ünïcödé” 🥋"},
                    {"type": "image_url", "image_url": {"url": image, "detail": "high"}},
                ],
            }
        ],
        "logprobs": True,
        "top_logprobs": 3,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": schema, "strict": True},
        },
        "n": 1,
        "stop": ["\n\n"],
        "metadata": {"who": "me"},
    }
    client.chat.completions.create(**sent, extra_body={"a_field_of_tomorrow": [1, None, 2.5]})
    assert plant.received().body == {**sent, "a_field_of_tomorrow": [1, None, 2.5]}


def test_e4_openai_gets_vectors(client: openai.OpenAI, plant: Plant) -> None:
    """The client asks for base64 by itself and makes numbers of it."""
    found = client.embeddings.create(model=VECTORS, input=["one", "two"])
    assert plant.vectors.requests[-1].body["encoding_format"] == "base64"
    assert [len(one.embedding) for one in found.data] == [384, 384]
    assert sum(number**2 for number in found.data[0].embedding) == pytest.approx(1, abs=1e-3)


def test_e4_openai_has_texts_continued(client: openai.OpenAI) -> None:
    done = client.completions.create(model=MODEL, prompt="once upon", max_tokens=5)
    assert done.choices[0].text == "hello wide world"
    streamed = client.completions.create(model=MODEL, prompt="once upon", stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed if chunk.choices) == "hello wide world"


def test_e4_openai_lists_models(client: openai.OpenAI) -> None:
    assert {MODEL, VECTORS, "gpt-4o", "auto"} <= {model.id for model in client.models.list()}
    assert client.models.retrieve("gpt-4o").id == "gpt-4o"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_c7_headers_tell_how_a_call_went(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO)
    assert raw.headers["X-Penstock-Host"] == "surtr"
    assert raw.headers["X-Penstock-Attempt"] == "1"
    assert raw.headers["X-Penstock-Lane"] == "default"
    assert float(raw.headers["X-Penstock-Queue-Seconds"]) >= 0
    assert raw.headers["X-Penstock-Task"]
    assert raw.parse().choices[0].message.content == "hello wide world"


def test_errors_are_those_the_client_knows(client: openai.OpenAI, plant: Plant) -> None:
    once = client.with_options(max_retries=0)
    with pytest.raises(openai.NotFoundError) as unknown:
        once.chat.completions.create(model="gpt-9", messages=HELLO)
    assert unknown.value.code == "model_not_found"
    assert "does not exist" in unknown.value.message

    plant.chat.fail_next(
        Fault.refuse(400, {"error": {"message": "too long", "type": "t", "param": "messages", "code": "c"}})
    )
    with pytest.raises(openai.BadRequestError) as bad:
        once.chat.completions.create(model=MODEL, messages=HELLO)
    assert bad.value.body == {"message": "too long", "type": "t", "param": "messages", "code": "c"}

    with pytest.raises(openai.BadRequestError, match="no lane 'nowhere'"):
        once.chat.completions.create(
            model=MODEL, messages=HELLO, extra_headers={"X-Penstock-Lane": "nowhere"}
        )

    plant.chat.fail_next(*[Fault.nonsense("html")] * 2)
    with pytest.raises(openai.InternalServerError) as broken:
        once.chat.completions.create(model=MODEL, messages=HELLO)
    assert broken.value.status_code == 502
    assert broken.value.code == "host_failed"
    assert broken.value.type == "server_error"


def test_the_clients_own_retries_work_beside_ours(client: openai.OpenAI, plant: Plant) -> None:
    """A call that could not start in time tells when to come again; the client does by itself."""
    plant.chat.hold()
    try:
        holders = [
            subprocess.Popen(
                curl(plant.serve.url, {"model": MODEL, "messages": HELLO}), stdout=subprocess.DEVNULL
            )
            for _ in range(4)
        ]
        plant.chat.wait(lambda stats: stats.in_flight == 4)
        impatient = {"X-Penstock-Patience": "0"}
        with pytest.raises(openai.RateLimitError) as late:
            client.with_options(max_retries=0).chat.completions.create(
                model=MODEL, messages=HELLO, extra_headers=impatient
            )
        assert late.value.code == "queue_timeout"
        assert int(late.value.response.headers["Retry-After"]) >= 1
    finally:
        plant.chat.release()
    assert [holder.wait(60) for holder in holders] == [0] * 4
    reply = client.with_options(max_retries=5).chat.completions.create(
        model=MODEL, messages=HELLO, extra_headers=impatient
    )
    assert reply.choices[0].message.content == "hello wide world"


# ---- litellm


@pytest.fixture(scope="module")
def litellm() -> Iterator[ModuleType]:
    """It must not fetch its table of prices from elsewhere."""
    before = os.environ.get("LITELLM_LOCAL_MODEL_COST_MAP")
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    yield importlib.import_module("litellm")
    if before is None:
        del os.environ["LITELLM_LOCAL_MODEL_COST_MAP"]


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::pytest.PytestWarning"
)
async def test_e4_litellm(litellm: ModuleType, plant: Plant) -> None:
    asked: Any = {"model": f"openai/{MODEL}", "messages": HELLO, "api_base": plant.serve.url}
    assert litellm.completion(**asked).choices[0].message.content == "hello wide world"
    texts = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**asked, stream=True)]
    assert "".join(texts) == "hello wide world"
    assert (await litellm.acompletion(**asked)).choices[0].message.content == "hello wide world"
    stream = await litellm.acompletion(**asked, stream=True)
    texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(texts) == "hello wide world"
    vectors = litellm.embedding(model=f"openai/{VECTORS}", input=["one"], api_base=plant.serve.url)
    assert len(vectors.data[0]["embedding"]) == 384
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**asked | {"model": "openai/gpt-9"}, num_retries=0)


# ---- langchain


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
async def test_e4_langchain(plant: Plant) -> None:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    model = ChatOpenAI(model=MODEL)
    assert model.invoke("say hello").content == "hello wide world"
    assert (await model.ainvoke("say hello")).content == "hello wide world"
    assert "".join(str(chunk.content) for chunk in model.stream("say hello")) == "hello wide world"
    with_tools = model.bind_tools([dict(WEATHER)])
    asked = with_tools.invoke("what is the weather?")
    assert isinstance(asked, AIMessage)
    assert asked.tool_calls[0]["args"] == {"town": "Uppsala"}
    told = [
        HumanMessage("what is the weather?"),
        asked,
        ToolMessage("raining", tool_call_id=asked.tool_calls[0]["id"]),
    ]
    assert with_tools.invoke(told).content == "it is raining"
    # Its tokenizer is on the internet; other servers count by themselves.
    embedder = OpenAIEmbeddings(model=VECTORS, check_embedding_ctx_length=False)
    assert [len(one) for one in embedder.embed_documents(["one", "two"])] == [384, 384]


# ---- curl


def curl(url: str, body: Any, *options: str) -> list[str]:
    found = shutil.which("curl")
    if found is None:
        pytest.skip("there is no curl")
    data = json.dumps(body)
    return [
        found,
        "-sS",
        "--max-time",
        "60",
        *options,
        f"{url}/chat/completions",
        "-H",
        "Content-Type: application/json",
        "-d",
        data,
    ]


def test_e4_curl_asks_and_streams(plant: Plant) -> None:
    asked = {"model": MODEL, "messages": HELLO}
    told = subprocess.run(
        curl(plant.serve.url, asked, "-i", "-H", "X-Penstock-Priority: 0"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    head, _, body = told.partition("\n\n")
    assert "200 OK" in head
    assert "x-penstock-host: surtr" in head
    assert json.loads(body)["choices"][0]["message"]["content"] == "hello wide world"
    streamed = subprocess.run(
        curl(plant.serve.url, {**asked, "stream": True}, "-N"), capture_output=True, text=True, check=True
    ).stdout
    assert streamed.endswith("data: [DONE]\n\n")
    assert streamed.count("data: {") >= 3
