"""The app: every route, what happens to a request on its way to one, and what its errors look like.

Each module with routes has an `add_routes(app, parts)`; `build_app` calls them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from penstock.client import Client
from penstock.config import Config
from penstock.dispatcher.loop import Dispatcher
from penstock.errors import PenstockError
from penstock.store.base import Store
from penstock.telemetry.metrics import Metrics
from penstock.version import __version__
from penstock.web.auth import Origins, Tokens
from penstock.web.calls import OUR_HEADERS
from penstock.web.door import Door
from penstock.web.limits import Limits
from penstock.web.refusals import JSON, Refused, of_status, refusal_of


@dataclass(slots=True)
class Parts:
    """What the routes work with. All of it belongs to the loop that dispatches."""

    config: Config
    store: Store
    client: Client
    dispatcher: Dispatcher
    tokens: Tokens
    metrics: Metrics
    bound: Sequence[str] = ()  # names and addresses that were bound
    limits: Limits = field(default_factory=Limits)
    dispatching: bool = False  # the dispatcher is at work
    draining: bool = False  # it has been told to stop: nothing more is taken in

    def must_dispatch(self) -> None:
        """Refused when nobody would act on a request."""
        if not self.dispatching:
            raise Refused(503, "unavailable", "the server is stopping", "ask its successor", retry_after_s=5)

    def must_take_in(self) -> None:
        """Refused when work is no longer taken in."""
        self.must_dispatch()
        if self.draining:
            raise Refused(
                503,
                "unavailable",
                "the server is finishing what it has",
                "ask its successor",
                retry_after_s=5,
            )


def build_app(parts: Parts) -> FastAPI:
    server = parts.config.server
    app = FastAPI(
        title="Penstock",
        version=__version__,
        docs_url=None,  # its pages load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    from penstock.web import health, openai_api

    for routes in (health, openai_api):
        routes.add_routes(app, parts)
    _answer_errors(app)
    app.add_middleware(
        Door,
        tokens=parts.tokens,
        origins=Origins(parts.bound, server.cors),
        body_limit_bytes=server.body_limit_bytes,
    )
    if server.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=server.cors,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["Retry-After", *OUR_HEADERS],
        )
    return app


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
        return answer(of_status(error.status_code, error.headers), request.url.path)

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer(_invalid(error), request.url.path)

    async def on_defect(request: Request, error: Exception) -> Response:
        return answer(refusal_of(PenstockError()), request.url.path)

    app.add_exception_handler(Refused, on_refused)
    app.add_exception_handler(PenstockError, on_ours)
    app.add_exception_handler(HTTPException, on_framework)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(Exception, on_defect)


def _invalid(error: RequestValidationError) -> Refused:
    """What is wrong with the parameters, without repeating what was sent."""
    told = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()[:5]]
    return Refused(422, "invalid_request", "; ".join(told), "/docs says what is possible")
