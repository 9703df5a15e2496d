"""What is answered where there is no page, and where one could not be made: a plain page with the way back.

NiceGUI's own need its widgets, which the board leaves out, and a client each.
"""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request, Response
from fastapi.exception_handlers import http_exception_handler
from starlette.exceptions import HTTPException

from penstock.web.plain_pages import HEADERS, document

_BACK = '<p><a href="/board/">To the board</a></p>'
log = logging.getLogger("penstock.web.board")


def add_missing(*apps: FastAPI) -> None:
    for app in apps:
        app.router.redirect_slashes = False  # it knows nothing of the prefix, and would lead out of the board
        app.exception_handler(404)(_no_page)
        app.exception_handler(Exception)(_failed)


async def _no_page(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.detail != "Not Found":
        return await http_exception_handler(request, error)  # of data: it says what there is not
    return _page(404, "There is no such page", "The address is wrong, or what it named is gone.")


async def _failed(request: Request, error: Exception) -> Response:
    log.error("a page failed: %s", type(error).__name__, exc_info=error)
    return _page(500, "This page cannot be shown", "It failed while it was made; the log of serve says why.")


def _page(status: int, title: str, told: str) -> Response:
    body = document(title, f"<h1>{title}</h1><p>{told}</p>{_BACK}")
    headers = {name.decode(): value.decode() for name, value in HEADERS}
    return Response(body, status, {**headers, "cache-control": "no-store"}, "text/html")
