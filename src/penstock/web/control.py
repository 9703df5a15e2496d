"""/api/status, /api/hosts, /api/lanes, /api/gates: how they stand; pausing, resuming, and the slots of a host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Path, Request
from starlette.responses import Response

from penstock.config.problems import kind_of
from penstock.store.base import Answer
from penstock.store.status import status_record
from penstock.web import shapes
from penstock.web.api import enter
from penstock.web.bodies import read_object, reply, text_field
from penstock.web.refusals import Refused
from penstock.web.shapes import errors

if TYPE_CHECKING:
    from penstock.web.app import Parts

MOST_SLOTS = 100_000
_SCOPES = ("all", "host", "lane")

_READ = errors(401, 403, 405, 413, 429, 503)
_WRITE = errors(400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 503)


def add_routes(app: FastAPI, parts: Parts) -> None:
    _add_standing(app, parts)
    _add_pauses(app, parts)


def _add_standing(app: FastAPI, parts: Parts) -> None:
    async def standing(request: Request, name: str) -> Response:
        enter(parts, request, "read")
        snapshot = await parts.standing.snapshot()
        return reply({name: status_record(parts.config.plant, snapshot)[name]})

    @app.get(
        "/api/status",
        summary="How everything stands, and who dispatches",
        tags=["plant"],
        responses={200: {"model": shapes.Status}, **_READ},
        response_class=Response,
    )
    async def status(request: Request) -> Response:
        """The dispatcher that leads, those that stand by, hosts, lanes, gates and the queue."""
        enter(parts, request, "read")
        snapshot = await parts.standing.snapshot()
        return reply(status_record(parts.config.plant, snapshot, await parts.client.standbys()))

    @app.get(
        "/api/hosts",
        summary="How the hosts stand",
        tags=["plant"],
        responses={200: {"model": shapes.Hosts}, **_READ},
        response_class=Response,
    )
    async def hosts(request: Request) -> Response:
        return await standing(request, "hosts")

    @app.get(
        "/api/lanes",
        summary="How the lanes stand",
        tags=["plant"],
        responses={200: {"model": shapes.Lanes}, **_READ},
        response_class=Response,
    )
    async def lanes(request: Request) -> Response:
        return await standing(request, "lanes")

    @app.get(
        "/api/gates",
        summary="How the gates stand",
        tags=["plant"],
        responses={200: {"model": shapes.Gates}, **_READ},
        response_class=Response,
    )
    async def gates(request: Request) -> Response:
        return await standing(request, "gates")


def _add_pauses(app: FastAPI, parts: Parts) -> None:
    described: Any = {"tags": ["plant"], "response_class": Response}

    async def set_pause(request: Request, *, paused: bool) -> Response:
        enter(parts, request, "admin")
        parts.must_dispatch()
        body = await read_object(request, ("scope", "name"))
        scope, name = text_field(body, "scope", "all"), text_field(body, "name", "")
        if scope not in _SCOPES:
            raise Refused(422, "invalid_request", f"scope: must be one of {', '.join(_SCOPES)}")
        answer = await (parts.client.pause(scope, name) if paused else parts.client.resume(scope, name))
        _must_be_ok(answer)
        return reply({"scope": scope, "name": name, "paused": paused})

    @app.post(
        "/api/pause",
        summary="Start nothing more on a host, in a lane, or at all",
        openapi_extra={"requestBody": shapes.PAUSE_BODY},
        responses={200: {"model": shapes.Pause}, **_WRITE},
        **described,
    )
    async def pause(request: Request) -> Response:
        """What runs goes on. A pause lasts until it is resumed, also when the server is started again."""
        return await set_pause(request, paused=True)

    @app.post(
        "/api/resume",
        summary="Undo a pause",
        openapi_extra={"requestBody": shapes.PAUSE_BODY},
        responses={200: {"model": shapes.Pause}, **_WRITE},
        **described,
    )
    async def resume(request: Request) -> Response:
        """Of the same host or lane, or of everything."""
        return await set_pause(request, paused=False)

    @app.post(
        "/api/hosts/{name}/slots",
        summary="Set the slots of a host",
        openapi_extra={"requestBody": shapes.SLOTS_BODY},
        responses={200: {"model": shapes.Slots}, **_WRITE},
        **described,
    )
    async def set_slots(request: Request, name: Annotated[str, Path(max_length=200)]) -> Response:
        """Until the dispatcher is started again, which begins with those of the config."""
        enter(parts, request, "admin")
        parts.must_dispatch()
        body = await read_object(request, ("slots",))
        slots = body.get("slots")
        if not isinstance(slots, int) or isinstance(slots, bool) or not 1 <= slots <= MOST_SLOTS:
            what = f"must be a whole number from 1 to {MOST_SLOTS}, not {kind_of(slots)}"
            raise Refused(422, "invalid_request", f"slots: {what}")
        if all(host.name != name for host in parts.config.plant.hosts):
            raise Refused(404, "not_found", f"there is no host {name!r}", "GET /api/hosts lists them")
        _must_be_ok(await parts.client.set_slots(name, slots), 422, "invalid_request")
        return reply({"host": name, "slots": slots})


def _must_be_ok(answer: Answer, status: int = 404, type: str = "not_found") -> None:
    if not answer.ok:
        message, _, remedy = answer.detail.partition("; ")
        raise Refused(status, type, message, remedy or None)
