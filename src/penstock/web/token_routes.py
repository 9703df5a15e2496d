"""/api/tokens: who may come in, for admins. A secret is told once, in the answer to the request that made it.

Whoever changes tokens is named in the server's log: from the first one on, tokens decide who gets in at all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Path, Request
from starlette.responses import Response

from penstock.config.keys import NAME, NAME_RULE
from penstock.config.problems import kind_of, meant
from penstock.model import PRIORITIES
from penstock.store.base import Token
from penstock.store.tokens import SCOPES, digest_of, new_secret, token_record
from penstock.web import token_shapes as shapes
from penstock.web.api import enter
from penstock.web.auth import LOCAL
from penstock.web.bodies import read_object, reply, text_field
from penstock.web.refusals import Refused
from penstock.web.shapes import errors

if TYPE_CHECKING:
    from penstock.web.app import Parts

_FIELDS = ("name", "scopes", "lane", "priority", "requests_per_min", "max_queued")
_USUAL_SCOPES = ("submit", "read")
_LEAST_RATE, _MOST_RATE = 1, 1e12
_MOST_QUEUED = 10**9

_READ = errors(401, 403, 405, 413, 429, 503)
_WRITE = errors(400, 401, 403, 405, 408, 409, 413, 415, 422, 429, 503)

log = logging.getLogger("penstock.web")


def add_routes(app: FastAPI, parts: Parts) -> None:
    @app.get(
        "/api/tokens",
        summary="List tokens",
        tags=["tokens"],
        responses={200: {"model": shapes.TokenList}, **_READ},
        response_class=Response,
    )
    async def list_tokens(request: Request) -> Response:
        """What each may do; their secrets are not kept."""
        enter(parts, request, "admin")
        return reply({"tokens": [token_record(one) for one in await parts.store.tokens()]})

    @app.post(
        "/api/tokens",
        summary="Make a token",
        status_code=201,
        tags=["tokens"],
        openapi_extra={"requestBody": shapes.TOKEN_BODY},
        responses={201: {"model": shapes.MadeToken}, **_WRITE},
        response_class=Response,
    )
    async def add_token(request: Request) -> Response:
        """Its secret is in the answer, this once. From the first token on nobody comes in without one."""
        caller = enter(parts, request, "admin")
        parts.must_dispatch()
        body = await read_object(request, _FIELDS)
        id, secret = new_secret()
        token = _token(body, parts, id, secret)
        if not await parts.client.add_token(token):
            raise Refused(
                409,
                "conflict",
                f"there is a token {token.name!r} already",
                "revoke it first, or choose another name",
            )
        log.warning(
            "token %r was made by %r: scopes %s, lane %s",
            token.name,
            caller.name,
            ",".join(token.scopes),
            token.lane or "any",
        )
        made = reply({**token_record(token), "secret": secret}, 201)
        made.headers["Cache-Control"] = "no-store"
        return made

    @app.delete(
        "/api/tokens/{name}",
        summary="Revoke a token",
        tags=["tokens"],
        responses={200: {"model": shapes.RevokedToken}, **_READ, **errors(404, 422)},
        response_class=Response,
    )
    async def revoke_token(
        request: Request, name: Annotated[str, Path(description="What the token is called.", max_length=200)]
    ) -> Response:
        """When this is answered the token is refused, and what it has open is closed; `left` are the others.

        A server that has had tokens stays shut when the last of them is revoked, until it is started again.
        """
        caller = enter(parts, request, "admin")
        parts.must_dispatch()
        if not await parts.client.revoke_token(name):
            known = [one.name for one in await parts.store.tokens()]
            remedy = meant(name, known, "tokens").removeprefix("; ") or "GET /api/tokens lists them"
            raise Refused(404, "not_found", f"there is no token {name!r}", remedy)
        log.warning("token %r was revoked by %r", name, caller.name)
        return reply({"revoked": name, "left": len(await parts.store.tokens())})


def _token(body: Mapping[str, Any], parts: Parts, id: str, secret: str) -> Token:
    return Token(
        name=_name(body),
        id=id,
        digest=digest_of(secret),
        scopes=_scopes(body),
        lane=_lane(body, [lane.name for lane in parts.config.plant.lanes]),
        priority=_whole(body, "priority", PRIORITIES.start, PRIORITIES.stop - 1),
        requests_per_min=_rate(body),
        max_queued=_whole(body, "max_queued", 1, _MOST_QUEUED),
        created_at=time.time(),
    )


def _name(body: Mapping[str, Any]) -> str:
    name = text_field(body, "name", "")
    if not NAME.fullmatch(name):
        raise _wrong("name", f"must be {NAME_RULE}")
    if name == LOCAL:
        raise _wrong("name", f"{LOCAL!r} is whoever comes without a token; choose another")
    return name


def _scopes(body: Mapping[str, Any]) -> tuple[str, ...]:
    given = body.get("scopes")
    if given is None:
        return _USUAL_SCOPES
    if not isinstance(given, list) or not given or any(one not in SCOPES for one in given):
        raise _wrong("scopes", f"must be a list of one or more of {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in given)


def _lane(body: Mapping[str, Any], known: list[str]) -> str | None:
    lane = text_field(body, "lane", "")
    if body.get("lane") is not None and lane not in known:
        raise _wrong("lane", f"no lane {lane[:80]!r}{meant(lane, known, 'lanes')}")
    return lane or None


def _whole(body: Mapping[str, Any], field: str, least: int, most: int) -> int | None:
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _wrong(field, f"must be a whole number from {least} to {most}, not {kind_of(value)}")
    return value


def _rate(body: Mapping[str, Any]) -> float | None:
    value = body.get("requests_per_min")
    if value is None:
        return None
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not _LEAST_RATE <= value <= _MOST_RATE
    ):
        raise _wrong("requests_per_min", f"must be a number, at least {_LEAST_RATE}, not {kind_of(value)}")
    return float(value)


def _wrong(field: str, what: str) -> Refused:
    return Refused(422, "invalid_request", f"{field}: {what}")
