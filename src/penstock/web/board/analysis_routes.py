"""Diagnosis and what-if as the pages fetch them: lines of JSON, as they come.

The last line has `end`: null, or in words why it could not be found out. Whoever goes away drops the question.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from fastapi import Request, Response
from nicegui import app
from starlette.responses import StreamingResponse

from penstock.errors import PenstockError, UsageError
from penstock.web.board.address import whole
from penstock.web.board.analysts import Analysts
from penstock.web.board.viewer import viewer_of

MOST_LOG_BYTES = 24 * 1024**2
_MOST_SETTINGS = 500
_MOST_POINTS = 200


def add_analysis_routes(analysts: Analysts) -> None:
    @app.get("/data/diagnose")
    async def diagnose(request: Request, run: str, page: str = "") -> Response:
        return _answered(request, analysts, "diagnose", page, {"run": run})

    @app.post("/data/diagnose")
    async def diagnose_log(request: Request, name: str, page: str = "") -> Response:
        try:
            asked = await _log(request, name)
        except UsageError as error:
            return _lines(_only(str(error)))
        return _answered(request, analysts, "log", page, asked)

    @app.get("/data/whatif")
    async def whatif(request: Request, run: str, page: str = "") -> Response:
        return _answered(request, analysts, "whatif", page, {"run": run, **_settings(request)})

    @app.get("/data/whatif/curve")
    async def curve(request: Request, run: str, key: str, values: str, page: str = "") -> Response:
        wanted = [value for value in values.split(",") if value.isdecimal()][:_MOST_POINTS]
        asked = {"run": run, "key": key, "values": wanted, **_settings(request)}
        return _answered(request, analysts, "curve", page, asked)


def _settings(request: Request) -> dict[str, Any]:
    query = request.query_params
    pairs = [text.rpartition("=") for text in query.getlist("set")[:_MOST_SETTINGS]]
    event = query.get("at_event", "")
    return {
        "settings": {key: value for key, _, value in pairs},
        "unset": query.getlist("unset")[:_MOST_SETTINGS],
        "typical": query.get("typical") == "1",
        "at_event": whole(event),
    }


async def _log(request: Request, name: str) -> dict[str, Any]:
    """In memory, and nowhere else."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MOST_LOG_BYTES:
            raise UsageError(
                f"{name}: is over {MOST_LOG_BYTES // 1024**2} MiB; `penstock diagnose FILE` takes more"
            )
    slots = dict(_slots(text) for text in _texts(request, "slots"))
    return {"name": name, "data": bytes(data), "maps": _texts(request, "map"), "slots": slots}


def _texts(request: Request, name: str) -> list[str]:
    return [text.strip() for text in request.query_params.getlist(name) if text.strip()]


def _slots(text: str) -> tuple[str, int]:
    host, _, count = text.rpartition("=")
    slots = whole(count.strip())
    if not host.strip() or slots is None or slots < 1:
        raise UsageError(f"slots: {text!r} must be HOST=N, such as gpu1=4")
    return host.strip(), slots


# ---- answering


def _answered(request: Request, analysts: Analysts, do: str, page: str, asked: dict[str, Any]) -> Response:
    if not viewer_of(request.headers).may("read"):
        return Response(status_code=403)
    return _lines(_said(analysts, do, page, asked))


async def _said(analysts: Analysts, do: str, page: str, asked: dict[str, Any]) -> AsyncIterator[bytes]:
    try:
        async for said in analysts.ask(do, page=page, **asked):
            yield _line(said)
    except PenstockError as error:
        yield _line({"end": str(error)})
    else:
        yield _line({"end": None})


async def _only(error: str) -> AsyncIterator[bytes]:
    yield _line({"end": error})


def _line(said: Any) -> bytes:
    return msgspec.json.encode(said) + b"\n"


def _lines(lines: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(
        lines,
        media_type="application/x-ndjson",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
