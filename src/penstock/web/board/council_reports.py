"""A question's record to take away, as `penstock council report` writes it: /data/council/NAME/ID/report.md."""

from __future__ import annotations

from typing import Literal

from fastapi import Request
from nicegui import app
from starlette.responses import PlainTextResponse, Response

from penstock.council.asking import so_far
from penstock.errors import PenstockError
from penstock.web.board.desk import Desk
from penstock.web.board.viewer import viewer_of

_TYPES = {"md": "text/markdown; charset=utf-8", "html": "text/html; charset=utf-8"}


def add_routes(desk: Desk) -> None:
    @app.get("/data/council/{name}/{question}/report.{ending}")
    async def report(request: Request, name: str, question: str, ending: Literal["md", "html"]) -> Response:
        if not viewer_of(request.headers).may("read"):
            return PlainTextResponse("your token lacks the scope `read`", 403)
        try:
            text = await _text(desk, name, question, ending)
        except PenstockError as error:
            return PlainTextResponse(str(error), 404)
        told = {
            "Content-Disposition": f'attachment; filename="council-report.{ending}"',
            "Cache-Control": "no-store",
        }
        return Response(text.encode("utf-8", "replace"), headers=told, media_type=_TYPES[ending])


async def _text(desk: Desk, name: str, id: str, ending: str) -> str:
    from penstock.council.recorded import read_record
    from penstock.council.report import markdown
    from penstock.council.report_page import page

    council = desk.config.councils.get(name)
    record = await desk.client.get(id)
    if council is None or record.task.kind != council.kind:
        raise PenstockError(f"there is no question {id[:80]!r} of council {name[:80]!r}")
    value = record.value if record.value is not None else await so_far(desk.client, council, record)
    if value is None or not value.get("success_count"):
        raise PenstockError(f"question {record.task.id} is {record.state}: there is nothing to report yet")
    told = read_record(value, f"question {record.task.id}")
    return page(told) if ending == "html" else markdown(told)
