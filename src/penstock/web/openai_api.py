"""`/v1`: any client of OpenAI's API, pointed here, has its calls queued, spread over hosts and streamed back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

from penstock.config.call_tasks import CALL_KIND_OF
from penstock.web.auth import caller_of
from penstock.web.refusals import JSON, Refused
from penstock.web.shortcuts import Find, Route

if TYPE_CHECKING:
    from penstock.web.app import Parts

_SUMMARIES = {
    "chat/completions": "Ask a chat model",
    "completions": "Have a text continued",
    "embeddings": "Get vectors for texts",
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": ["string", "null"]},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer", "null"]},
            },
        }
    },
}
_BODY = {
    "type": "object",
    "properties": {
        "model": {
            "type": ["string", "null"],
            "description": "A model, a kind, an alias of [models], or `auto`: any model of any host.",
        },
        "stream": {"type": ["boolean", "null"]},
    },
    "additionalProperties": True,
}


def _told(description: str) -> dict[str, Any]:
    return {"description": description, "content": {JSON: {"schema": _ERROR}}}


_REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": _told("What the client asked is wrong, in OpenAI's shape; a host's own refusal is handed on."),
    401: _told("There is no token, or it is not known."),
    403: _told("The token has not the scope, or the host or origin is refused."),
    404: _told("There is no such model."),
    429: _told("It could not start within its patience, or too much waits; `Retry-After` says when to try."),
    502: _told("No host could answer."),
    503: _told("The server is stopping, or its store cannot be used now."),
    504: _told("No host answered in time."),
}
_HEADERS = [
    {"name": "X-Penstock-Lane", "in": "header", "required": False, "schema": {"type": "string"}},
    {
        "name": "X-Penstock-Priority",
        "in": "header",
        "required": False,
        "schema": {"type": "integer", "minimum": 0, "maximum": 4},
    },
    {
        "name": "X-Penstock-Patience",
        "in": "header",
        "required": False,
        "description": "Seconds; a call that has not started by then gets 429.",
        "schema": {"type": "number", "minimum": 0, "maximum": 86400},
    },
    {"name": "X-Penstock-Run", "in": "header", "required": False, "schema": {"type": "string"}},
]


def calls(parts: Parts) -> Find:
    """What answers a call of `/v1`, past the framework."""
    found = {
        f"/v1/{endpoint}": (partial(_answered, parts, endpoint), Route(f"/v1/{endpoint}"))
        for endpoint in CALL_KIND_OF
    }
    return found.get


async def _answered(parts: Parts, endpoint: str, request: Request) -> Response:
    caller = _let_in(parts, request)
    return parts.front_door.answer(caller, endpoint, await request.body(), request.headers)


def add_routes(app: FastAPI, parts: Parts) -> None:
    for endpoint in CALL_KIND_OF:
        _add_call(app, parts, endpoint)
    names = parts.front_door.names

    @app.get(
        "/v1/models",
        summary="The names that calls may use as their model",
        tags=["v1"],
        responses=_answers({"type": "object", "required": ["object", "data"]}, (401, 403)),
        response_class=Response,
    )
    async def models(request: Request) -> Response:
        _let_in(parts, request)
        listed = names.listed(parts.lead().health.models)
        data = [_model(name, hosts) for name, hosts in listed.items()]
        return Response(msgspec.json.encode({"object": "list", "data": data}), media_type=JSON)

    @app.get(
        "/v1/models/{name:path}",
        summary="One of them",
        tags=["v1"],
        responses=_answers({"type": "object", "required": ["id", "object"]}, (401, 403, 404)),
        response_class=Response,
    )
    async def model(request: Request, name: str) -> Response:
        _let_in(parts, request)
        listed = names.listed(parts.lead().health.models)
        if name not in listed:
            raise Refused(404, "model_not_found", names.unknown(name), param="model")
        return Response(msgspec.json.encode(_model(name, listed[name])), media_type=JSON)


def _add_call(app: FastAPI, parts: Parts, endpoint: str) -> None:
    content: dict[str, Any] = {JSON: {"schema": {"type": "object"}}}
    if endpoint != "embeddings":
        content["text/event-stream"] = {"schema": {"type": "string"}}
    answer = {"description": "The host's own answer.", "content": content}

    @app.post(
        f"/v1/{endpoint}",
        summary=_SUMMARIES[endpoint],
        tags=["v1"],
        operation_id=endpoint.replace("/", "_"),
        responses={200: answer, **_REFUSALS},
        response_class=Response,
        openapi_extra={
            "requestBody": {"required": True, "content": {JSON: {"schema": _BODY}}},
            "parameters": _HEADERS,
        },
    )
    async def call(request: Request) -> Response:
        return await _answered(parts, endpoint, request)


def _let_in(parts: Parts, request: Request) -> Any:
    caller = caller_of(request.scope)
    # Clients list the models before they call, so whoever may call may list.
    if request.method == "POST" or "read" not in caller.scopes:
        caller.must_have("submit")
    parts.limits.admit(caller)
    if request.method == "POST":
        if caller.guest is None:
            parts.must_take_in()
        else:  # what runs is finished before the dispatcher stops, and so are its calls
            parts.must_dispatch()
    return caller


def _answers(schema: dict[str, Any], refusals: tuple[int, ...]) -> dict[int | str, dict[str, Any]]:
    known = {"description": "Found.", "content": {JSON: {"schema": schema}}}
    numbers: tuple[int | str, ...] = ("4XX", 503, *refusals)
    return {200: known, **{number: _REFUSALS[number] for number in numbers}}


def _model(name: str, hosts: list[str]) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "penstock", "hosts": hosts}
