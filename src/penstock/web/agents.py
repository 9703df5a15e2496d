"""/api/agents: which there are, calling one, and calling one by WebSocket."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Path, Request, WebSocket
from starlette.responses import Response

from penstock.agents import figures
from penstock.agents.calls.calling import LINES
from penstock.agents.endpoints import EndpointFile
from penstock.config.own_files import agents_dir
from penstock.web import agent_shapes as shapes
from penstock.web.agent_socket import AgentSocket
from penstock.web.api import enter
from penstock.web.auth import caller_of
from penstock.web.bodies import reply
from penstock.web.refusals import JSON, Refused
from penstock.web.shapes import errors
from penstock.web.shortcuts import Find, Route

if TYPE_CHECKING:
    from penstock.web.app import Parts

AgentName = Annotated[str, Path(description="The name of an agent.", max_length=200)]
_CALL = "/api/agents/{name}/call"
_BEFORE, _AFTER = _CALL.split("{name}")
_READ = errors(401, 403, 405, 413, 422, 429, 503)
_CALLED = errors(400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 503) | {
    500: {"model": shapes.AgentFailure, "description": "The command failed: its exit status and stderr."},
    502: {"model": shapes.AgentFailure, "description": "No container could answer."},
    504: {"model": shapes.AgentFailure, "description": "Its time was over."},
}
_BODY = {
    "type": "object",
    "required": ["command"],
    "additionalProperties": False,
    "properties": {
        "command": {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"},
        "params": {
            "oneOf": [{"type": "array"}, {"type": "object"}],
            "description": "A list becomes arguments of the command, a table one argument as JSON.",
        },
        "stdin": {"type": ["string", "null"]},
        "timeout_s": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1e9},
        "priority": {"type": ["integer", "null"], "minimum": 0, "maximum": 4},
        "lane": {"type": ["string", "null"], "maxLength": 64},
        "id": {
            "type": ["string", "null"],
            "minLength": 1,
            "maxLength": 128,
            "description": "The caller's own name of the call; a second one is refused while it is under way.",
        },
    },
}


def calls(parts: Parts) -> Find:
    """What answers a call of an agent, past the framework."""
    route = Route(_CALL)

    def find(path: str) -> Any:
        if not path.startswith(_BEFORE) or not path.endswith(_AFTER):
            return None
        name = path[len(_BEFORE) : -len(_AFTER)]
        return None if not name or "/" in name else (partial(_answered, parts, name), route)

    return find


async def _answered(parts: Parts, name: str, request: Request) -> Response:
    caller = caller_of(request.scope)
    parts.limits.admit(caller)
    caller.must_have("submit")
    parts.must_take_in()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise Refused(
            415, "unsupported_media_type", f"the body must be {JSON}", f"send `Content-Type: {JSON}`"
        )
    streamed = LINES in request.headers.get("accept", "")
    body = await request.body()
    return parts.agent_door.answer(caller, name, body, request.headers, streamed=streamed)


def add_routes(app: FastAPI, parts: Parts) -> None:
    @app.get(
        "/api/agents",
        summary="List the agents",
        tags=["agents"],
        responses={200: {"model": shapes.AgentPage}, **_READ},
        response_class=Response,
    )
    async def list_agents(request: Request) -> Response:
        enter(parts, request, "read")
        return reply(
            {"agents": await asyncio.to_thread(lambda: [_told(parts, n) for n in parts.agent_door.hosts])}
        )

    @app.get(
        "/api/agents/{name}",
        summary="One of them",
        tags=["agents"],
        responses={200: {"model": shapes.AgentRecord}, **_READ, **errors(404)},
        response_class=Response,
    )
    async def get_agent(request: Request, name: AgentName) -> Response:
        enter(parts, request, "read")
        parts.agent_door.known(name)
        return reply(await asyncio.to_thread(_told, parts, name))

    @app.post(
        _CALL,
        summary="Have an agent do something",
        tags=["agents"],
        responses={
            200: {
                "description": "The command's result.",
                "content": {
                    JSON: {"schema": {"type": "object", "required": ["status"]}},
                    LINES: {"schema": {"type": "string"}},
                },
            },
            **_CALLED,
        },
        openapi_extra={"requestBody": {"required": True, "content": {JSON: {"schema": _BODY}}}},
        response_class=Response,
    )
    async def call_agent(request: Request, name: AgentName) -> Response:
        """It is queued like every task, and cancelled when its client leaves.

        With `Accept: application/x-ndjson` its output comes line by line, as it is written.
        """
        return await _answered(parts, name, request)

    @app.websocket("/api/agents/{name}/ws")
    async def call_by_socket(socket: WebSocket, name: str) -> None:
        await AgentSocket(parts, caller_of(socket.scope), socket, name).serve()


def _told(parts: Parts, name: str) -> dict[str, Any]:
    """What is known of an agent; keys and proofs are told to nobody."""
    agent, host = parts.config.agents[name], parts.agent_door.hosts[name]
    files = EndpointFile(agents_dir(parts.config), name)
    return {
        "name": name,
        "host": host.name,
        "kind": parts.agent_door.kind(name),
        "image": agent.image,
        "commands": sorted(agent.handlers),
        "pool": {
            "containers": agent.pool.containers,
            "concurrency": agent.pool.concurrency,
            "warm": agent.pool.warm,
        },
        "containers": [
            {
                "instance": one.instance,
                "container": one.container,
                "state": one.state,
                "created_at": one.created_at,
            }
            for one in files.read()
        ],
        "figures": _figures(figures.read(files.folder)),
    }


def _figures(sums: figures.Sums) -> dict[str, Any]:
    """Of all calls on this machine, whoever made them; times are medians."""
    return {
        "calls": sums.counts.get("calls", 0),
        "success_rate": sums.share("answered", "unanswered"),
        "cache_hit_rate": sums.share("hits", "misses"),
        "pool": {name: sums.counts.get(f"pool_{name}", 0) for name in figures.POOLS},
        **{name: sums.quantile(name, 0.5) for name in figures.TIMES},
    }
