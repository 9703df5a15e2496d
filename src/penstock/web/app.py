"""The app: every route, what happens to a request on its way to one, and what its errors look like.

Each module with routes has an `add_routes(app, parts)`; `build_app` calls them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from penstock.client import Client
from penstock.client.config_watch import ConfigEdits
from penstock.config import Config
from penstock.dispatcher.loop import Dispatcher
from penstock.errors import PenstockError
from penstock.store.base import Store
from penstock.telemetry.metrics import Metrics
from penstock.version import __version__
from penstock.web import (
    actions,
    agent_control,
    agents,
    api,
    changes,
    control,
    councils,
    health,
    openai_api,
    pages,
    shenron,
    streams,
    task_stream,
    token_routes,
)
from penstock.web.agent_door import AgentDoor
from penstock.web.auth import Origins, Tokens
from penstock.web.board_door import BoardDoor, lead_in
from penstock.web.board_process import BoardProcess
from penstock.web.calls import OUR_HEADERS
from penstock.web.council_door import CouncilDoor
from penstock.web.door import OPEN, App, Door, Entry
from penstock.web.events import HEARTBEAT_S, Feed
from penstock.web.front_door import FrontDoor
from penstock.web.limits import Limits
from penstock.web.login import PATHS
from penstock.web.lookout import Lookout
from penstock.web.passing import PassingOn
from penstock.web.refusals import JSON, Refused, of_status, refusal_of, stopping, taken_over
from penstock.web.sessions import Sessions
from penstock.web.shapes import error_schemas
from penstock.web.shortcuts import Shortcuts
from penstock.web.standing import Standing


@dataclass(frozen=True, slots=True)
class Timing:
    """Of event streams."""

    heartbeat_s: float = HEARTBEAT_S
    stall_s: float = 30.0  # a reader who has taken nothing for so long is let go


@dataclass(slots=True)
class Parts:
    """What the routes work with. All of it belongs to the loop that dispatches."""

    config: Config
    store: Store
    client: Client
    tokens: Tokens
    metrics: Metrics
    feed: Feed
    dispatcher: Dispatcher | None = None  # our own, while it is at work
    lookout: Lookout | None = None  # who leads, where several take turns: without a dispatcher we stand by
    bound: Sequence[str] = ()  # names and addresses that were bound
    limits: Limits = field(init=False)
    timing: Timing = Timing()
    draining: bool = False  # it has been told to stop: nothing more is taken in
    front_door: FrontDoor = field(init=False)
    agent_door: AgentDoor = field(init=False)
    council_door: CouncilDoor = field(init=False)
    passing_on: PassingOn | None = None
    board: BoardProcess | None = None  # None: there is none here
    board_door: BoardDoor | None = None
    sessions: Sessions = field(init=False)
    standing: Standing = field(init=False)
    config_edits: ConfigEdits = field(init=False)

    def __post_init__(self) -> None:
        self.limits = Limits(self.config.server.max_queued_bytes)
        self.front_door = FrontDoor(self.config, self.lead, self.tokens, self.limits, self.metrics)
        self.agent_door = AgentDoor(self.config, self.lead, self.tokens, self.front_door)
        self.council_door = CouncilDoor(self.config)
        self.sessions = Sessions(self.tokens, self.store)
        self.standing = Standing(self.store)
        self.config_edits = ConfigEdits(self.config)

    @property
    def dispatching(self) -> bool:
        """Whether a dispatcher of our own is at work."""
        return self.dispatcher is not None

    @property
    def stands_by(self) -> bool:
        """Whether another dispatches, or will."""
        return self.dispatcher is None and self.lookout is not None and self.lookout.is_open

    def lead(self) -> Dispatcher:
        """Our own dispatcher, for what only it can answer. Refused when there is none."""
        if self.dispatcher is None:
            raise taken_over() if self.stands_by else stopping()
        return self.dispatcher

    def must_dispatch(self) -> None:
        """Refused when nobody would act on a request."""
        if not self.dispatching and not self.stands_by:
            raise stopping()

    def must_take_in(self) -> None:
        """Refused when work is no longer taken in."""
        if self.draining:
            raise stopping()
        self.must_dispatch()


def build_app(parts: Parts) -> App:
    """What uvicorn serves: the door, behind it the board, calls, and for all else the framework."""
    server = parts.config.server
    app: App = Shortcuts(framework(parts), openai_api.calls(parts), agents.calls(parts))
    passing_on = None
    if parts.lookout is not None:
        app = parts.passing_on = passing_on = PassingOn(app, parts)
    entry = None
    if parts.board is not None:
        app = parts.board_door = BoardDoor(
            app, parts.board, parts.tokens, parts.sessions, parts.limits, server.body_limit_bytes
        )
        entry = Entry(parts.sessions, PATHS, lead_in)
    door = Door(
        app,
        tokens=parts.tokens,
        origins=Origins(parts.bound, server.cors),
        body_limit_bytes=server.body_limit_bytes,
        metrics=parts.metrics,
        entry=entry,
        is_passed_on=None if passing_on is None else passing_on.is_passed_on,
    )
    if not server.cors:
        return door
    return CORSMiddleware(
        door,
        allow_origins=server.cors,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["Retry-After", *OUR_HEADERS],
    )


def build_private_app(parts: Parts) -> App:
    """What attempts of the dispatcher's own hosts reach: `/v1`, and nothing else."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    openai_api.add_routes(app, parts)
    _answer_errors(app)
    return Door(
        Shortcuts(app, openai_api.calls(parts)),
        tokens=parts.tokens,
        origins=Origins(parts.bound, ()),
        body_limit_bytes=parts.config.server.body_limit_bytes,
        metrics=parts.metrics,
    )


def framework(parts: Parts) -> FastAPI:
    app = FastAPI(
        title="Penstock",
        version=__version__,
        docs_url=None,  # its pages load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    for add_routes in (
        health.add_routes,
        api.add_routes,
        actions.add_routes,
        changes.add_routes,
        control.add_routes,
        token_routes.add_routes,
        streams.add_routes,
        task_stream.add_routes,
        agents.add_routes,
        agent_control.add_routes,
        councils.add_routes,
        shenron.add_routes,
        openai_api.add_routes,
        pages.add_routes,
    ):
        add_routes(app, parts)
    _describe(app)
    _answer_errors(app)
    return app


def _describe(app: FastAPI) -> None:
    """Every route but /health wants a token, and the document says so."""
    made = app.openapi

    def described() -> dict[str, Any]:
        fresh = app.openapi_schema is None
        document = made()
        if fresh:
            components = document.setdefault("components", {})
            components.setdefault("schemas", {}).update(error_schemas())
            components.setdefault("securitySchemes", {})["token"] = {
                "type": "http",
                "scheme": "bearer",
                "description": "`penstock token add NAME`",
            }
            for path, methods in document["paths"].items():
                for operation in methods.values():
                    operation["security"] = [{"token": []}] if path not in OPEN else []
        return document

    app.openapi = described  # type: ignore[method-assign] # as FastAPI's documentation does it


def answer(refused: Refused, path: str) -> Response:
    return Response(refused.body(path), refused.status, refused.headers, media_type=JSON)


def _answer_errors(app: FastAPI) -> None:
    async def on_refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return answer(error, request.url.path)

    async def on_ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, PenstockError)
        return answer(refusal_of(error), request.url.path)

    async def on_framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        allowed = _allowed(app, request.url.path) if error.status_code == 405 else None
        told = of_status(error.status_code, f"{request.method} {request.url.path}", allowed)
        return answer(told, request.url.path)

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer(_invalid(error), request.url.path)

    async def on_left(request: Request, error: Exception) -> Response:
        return answer(Refused(408, "slow_body", "the rest of the body did not come"), request.url.path)

    async def on_defect(request: Request, error: Exception) -> Response:
        return answer(refusal_of(PenstockError()), request.url.path)

    app.add_exception_handler(Refused, on_refused)
    app.add_exception_handler(PenstockError, on_ours)
    app.add_exception_handler(HTTPException, on_framework)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(ClientDisconnect, on_left)
    app.add_exception_handler(Exception, on_defect)


def _allowed(app: FastAPI, path: str) -> dict[str, str]:
    """Every method of a path: the framework looks no further than its first route."""
    routes = [route for route in app.routes if isinstance(route, Route) and route.path_regex.match(path)]
    return {"Allow": ", ".join(sorted({method for route in routes for method in route.methods or ()}))}


def _invalid(error: RequestValidationError) -> Refused:
    """What is wrong with the parameters, without repeating what was sent."""
    told = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()[:5]]
    return Refused(422, "invalid_request", "; ".join(told), "/docs says what is possible")
