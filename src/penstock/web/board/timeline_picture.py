"""A timeline as a part of a page, and the addresses it lives from: its scripts, its data, and files to take away.

    TimelinePicture("run=nightly", label="Timeline of nightly", marks=[{"task": "1m7f3k2p", "words": "20 s"}])

draws a run, or with `since=1h` what lived so lately, and follows it. `marks` are evidence: see
`diagnosis/timeline/files/marks.js` for what can be marked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import Request, Response
from nicegui import app, ui
from nicegui.element import Element

from penstock.diagnosis.timeline.page import picture_script
from penstock.diagnosis.timeline.policy import part
from penstock.errors import PenstockError, UnknownTask
from penstock.web.board.address import whole
from penstock.web.board.desk import Desk
from penstock.web.board.elements import BASE
from penstock.web.board.timeline_data import FORMS, Pictures, Wanted, compressed, wanted
from penstock.web.board.viewer import viewer_of

_FILES = Path(__file__).parent / "files"
_SMALL = 1000  # bytes that are not worth compressing
Mark = Mapping[str, Any]


class TimelinePicture(Element, component=_FILES / "timeline_picture.js"):
    def __init__(self, query: str, *, label: str, marks: Sequence[Mark] = ()) -> None:
        super().__init__()
        self._props["query"] = query
        self._props["label"] = label
        self._props["marks"] = list(marks)


def query_of(shown: Wanted) -> str:
    return urlencode({"run": shown.run} if shown.run else {"since": shown.window})


def timeline_path(run: str) -> str:
    """Below /board: where a run is drawn."""
    return f"/timeline?{urlencode({'run': run})}"


def add_picture(desk: Desk) -> None:
    """Once, with the pages."""
    pictures = Pictures(desk.client)
    # The scripts declare, for a page of one file; a module has to say what others may use of it.
    _add_text("/timeline_scripts.js", picture_script() + "\nexport { Picture };\n", "text/javascript")
    _add_text("/timeline.css", part("timeline.css"), "text/css")
    for path in ("timeline.css", "files/timeline_picture.css"):
        ui.add_head_html(f'<link rel="stylesheet" href="{BASE}/{path}">', shared=True)

    @app.get("/data/timeline", include_in_schema=False)
    async def data(request: Request) -> Response:
        shown = asked(request)
        if isinstance(shown, Response):
            return shown
        after = request.query_params.get("after", "")
        try:
            made = await pictures.get(shown, whole(after))
        except PenstockError as error:
            return _refused(error)
        return Response(status_code=204) if made is None else _sent(request, made.reply(), FORMS["json"])

    @app.get("/data/timeline.{ending}", include_in_schema=False)
    async def file(request: Request, ending: str) -> Response:
        shown = asked(request)
        if isinstance(shown, Response):
            return shown
        if ending not in FORMS:
            return _refused(UnknownTask(f"there is no timeline as {ending}; there are {', '.join(FORMS)}"))
        try:
            text = await pictures.file(shown, ending)
        except PenstockError as error:
            return _refused(error)
        sent = _sent(request, text.encode(), FORMS[ending])
        sent.headers["content-disposition"] = f'attachment; filename="{shown.file_name(ending)}"'
        return sent


def _add_text(path: str, text: str, form: str) -> None:
    """Asked for each time and sent when it has changed: a server of another version has other files."""
    body = text.encode()
    headers = {"etag": f'"{sha256(body).hexdigest()[:32]}"', "cache-control": "no-cache"}

    @app.get(path, include_in_schema=False)
    async def sent(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=form, headers=headers)


def asked(request: Request) -> Wanted | Response:
    if not viewer_of(request.headers).may("read"):
        return _refused(PenstockError("this needs the scope read; log in with a token that has it"), 403)
    return wanted(request.query_params.get("run", ""), request.query_params.get("since", ""))


def _sent(request: Request, body: bytes, form: str) -> Response:
    headers = {"cache-control": "no-store", "vary": "accept-encoding"}
    if len(body) > _SMALL and "gzip" in request.headers.get("accept-encoding", ""):
        body, headers = compressed(body), headers | {"content-encoding": "gzip"}
    return Response(body, media_type=form, headers=headers)


def _refused(error: PenstockError, status: int | None = None) -> Response:
    from msgspec import json

    code = status or (404 if isinstance(error, UnknownTask) else 400)
    return Response(json.encode({"error": {"message": str(error)}}), code, media_type=FORMS["json"])
