"""OpenAI's forms on the wire: whole answers, the chunks of streamed ones, errors, lists of models."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.testing.answers import Reply, embedding, usage
from penstock.testing.behaviour import ModelBehaviour
from penstock.testing.calls import ModelRequest

DONE = b"data: [DONE]\n\n"
_LOGPROB = -0.1
_MOST_LOGPROBS = 20

encode = msgspec.json.encode


class Frame(NamedTuple):
    """A piece of a stream, and whether the model needs a token's time for it."""

    data: bytes
    costs: bool = False


class Head(NamedTuple):
    """What every part of one answer has in common."""

    id: str
    created: int
    model: str


def error_body(
    message: str, type_: str, code: str | int | None = None, param: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}


def answer_body(head: Head, request: ModelRequest, reply: Reply) -> dict[str, Any]:
    is_chat = request.endpoint == "chat/completions"
    choice = _chat_choice(head, request, reply) if is_chat else _text_choice(request, reply)
    return {
        "id": head.id,
        "object": "chat.completion" if is_chat else "text_completion",
        "created": head.created,
        "model": head.model,
        "choices": [{"index": index, **choice} for index in range(choices(request))],
        "usage": usage(reply.prompt_tokens, reply.completion_tokens * choices(request)),
    }


def _chat_choice(head: Head, request: ModelRequest, reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, **reply.extra}
    if reply.tool_calls:
        message["content"] = reply.text or None
        message["tool_calls"] = [
            _call_form(head, index, name, "".join(pieces))
            for index, (name, pieces) in enumerate(reply.tool_calls)
        ]
    logprobs = {"content": _chat_logprobs(request, reply.pieces)} if request.body.get("logprobs") else None
    return {"message": message, "logprobs": logprobs, "finish_reason": reply.finish_reason}


def _call_form(head: Head, index: int, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{head.id}_{index}", "type": "function", "function": function}


def _text_choice(request: ModelRequest, reply: Reply) -> dict[str, Any]:
    echoed = request.prompt if request.body.get("echo") is True else ""
    return {
        "text": echoed + reply.text,
        "logprobs": _text_logprobs(request, reply.pieces),
        "finish_reason": reply.finish_reason,
    }


def choices(request: ModelRequest) -> int:
    wanted = request.body.get("n")
    return wanted if isinstance(wanted, int) and 1 <= wanted <= 128 else 1


# ---- streams


def frames(head: Head, request: ModelRequest, reply: Reply) -> Iterator[Frame]:
    """The stream of an answer, to its [DONE]."""
    is_chat = request.endpoint == "chat/completions"
    options = request.body.get("stream_options")
    with_usage = isinstance(options, Mapping) and options.get("include_usage") is True
    form = {
        "id": head.id,
        "object": "chat.completion.chunk" if is_chat else "text_completion",
        "created": head.created,
        "model": head.model,
    }
    opening = b"data: " + encode(form)[:-1] + b',"choices":['
    closing = b'],"usage":null}\n\n' if with_usage else b"]}\n\n"
    deltas = _chat_deltas(head, request, reply) if is_chat else _text_deltas(request, reply)
    count = choices(request)
    for delta, costs in deltas:
        for index in range(count):
            yield Frame(opening + b'{"index":%d,' % index + delta + b"}" + closing, costs and index == 0)
    if with_usage:
        used = usage(reply.prompt_tokens, reply.completion_tokens * count)
        yield Frame(opening + b'],"usage":' + encode(used) + b"}\n\n")
    yield Frame(DONE)


def _chat_deltas(head: Head, request: ModelRequest, reply: Reply) -> Iterator[tuple[bytes, bool]]:
    unfinished = b',"logprobs":null,"finish_reason":null'
    opening = {"role": "assistant", "content": None if reply.tool_calls else "", **reply.extra}
    yield b'"delta":' + encode(opening) + unfinished, False
    logprobs = request.body.get("logprobs")
    costs = False  # the first token is there with the role
    for piece in reply.pieces:
        ending = unfinished
        if logprobs:
            content = {"content": _chat_logprobs(request, [piece])}
            ending = b',"logprobs":' + encode(content) + b',"finish_reason":null'
        yield b'"delta":{"content":' + encode(piece) + b"}" + ending, costs
        costs = True
    for index, (name, pieces) in enumerate(reply.tool_calls):
        call = {"index": index, **_call_form(head, index, name, "")}
        yield b'"delta":' + encode({"tool_calls": [call]}) + unfinished, False
        for piece in pieces:
            part = {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            yield b'"delta":' + encode(part) + unfinished, costs
            costs = True
    yield b'"delta":{},"logprobs":null,"finish_reason":' + encode(reply.finish_reason), False


def _text_deltas(request: ModelRequest, reply: Reply) -> Iterator[tuple[bytes, bool]]:
    costs = False
    if request.body.get("echo") is True:
        yield b'"text":' + encode(request.prompt) + b',"logprobs":null,"finish_reason":null', False
    for piece in reply.pieces:
        logprobs = encode(_text_logprobs(request, [piece]))
        yield b'"text":' + encode(piece) + b',"logprobs":' + logprobs + b',"finish_reason":null', costs
        costs = True
    yield b'"text":"","logprobs":null,"finish_reason":' + encode(reply.finish_reason), False


# ---- log probabilities


def _chat_logprobs(request: ModelRequest, pieces: Sequence[str]) -> list[dict[str, Any]]:
    top = request.body.get("top_logprobs")
    others = range(min(top, _MOST_LOGPROBS) if isinstance(top, int) else 0)
    return [
        {
            **_likely(piece, 0),
            "top_logprobs": [_likely(piece if not rank else f"{piece}{rank}", rank) for rank in others],
        }
        for piece in pieces
    ]


def _likely(token: str, rank: int) -> dict[str, Any]:
    return {"token": token, "logprob": _LOGPROB - rank, "bytes": list(token.encode())}


def _text_logprobs(request: ModelRequest, pieces: Sequence[str]) -> dict[str, Any] | None:
    top = request.body.get("logprobs")
    if not isinstance(top, int) or isinstance(top, bool):
        return None
    offsets, offset = [], 0
    for piece in pieces:
        offsets.append(offset)
        offset += len(piece)
    likely = [
        {piece: _LOGPROB, **{f"{piece}{n}": _LOGPROB - n for n in range(1, min(top, _MOST_LOGPROBS))}}
        for piece in pieces
    ]
    return {
        "tokens": list(pieces),
        "token_logprobs": [_LOGPROB] * len(pieces),
        "top_logprobs": likely,
        "text_offset": offsets,
    }


# ---- embeddings and models


def embeddings_body(model: str, request: ModelRequest, behaviour: ModelBehaviour) -> dict[str, Any]:
    wanted = request.body.get("dimensions")
    dimensions = wanted if isinstance(wanted, int) and 1 <= wanted <= 65_536 else behaviour.dimensions
    as_base64 = request.body.get("encoding_format") == "base64"
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": _vector_form(vector, as_base64)}
            for index, vector in enumerate(embedding(text, dimensions) for text in request.texts)
        ],
        "model": model,
        "usage": {
            key: value for key, value in usage(request.prompt_tokens, 0).items() if key != "completion_tokens"
        },
    }


def _vector_form(vector: array[float], as_base64: bool) -> list[float] | str:
    if not as_base64:
        return vector.tolist()
    if sys.byteorder == "big":
        vector.byteswap()
    return base64.b64encode(vector.tobytes()).decode()


def models_body(behaviour: ModelBehaviour, created: int) -> dict[str, Any]:
    owner = {"lmstudio": "organization_owner", "ollama": "library"}.get(behaviour.style, behaviour.style)
    extra = {"max_model_len": behaviour.context_tokens or 32_768} if behaviour.style == "vllm" else {}
    return {
        "object": "list",
        "data": [
            {"id": name, "object": "model", "created": created, "owned_by": owner, **extra}
            for name in behaviour.models
        ],
    }
