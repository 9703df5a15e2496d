"""Calls go past the framework, whose ways cost as much as all the rest of a call; what is no call goes on to it.

The framework has the same routes: it describes them, and answers to methods they do not have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from penstock.errors import PenstockError
from penstock.web.door import App, Receive, Scope, Send, refuse
from penstock.web.refusals import Refused, refusal_of

Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


class Route(NamedTuple):
    """As the framework's, for who counts requests by route."""

    path: str


Find: TypeAlias = Callable[
    [str], tuple[Answer, Route] | None
]  # what answers a POST to a path, if it is a call


class Shortcuts:
    def __init__(self, app: App, *finds: Find) -> None:
        self._app = app
        self._finds = finds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = None
        if scope["type"] == "http" and scope["method"] == "POST":
            found = next((hit for find in self._finds if (hit := find(scope["path"])) is not None), None)
        if found is None:
            await self._app(scope, receive, send)
            return
        answer, scope["route"] = found
        try:
            response = await answer(Request(scope, receive))
        except ClientDisconnect:
            return
        except Refused as refused:
            await refuse(refused, scope, send)
            return
        except Exception:
            await refuse(refusal_of(PenstockError()), scope, send)
            raise
        await response(scope, receive, send)
