"""The way of a request to the board's process: what it is told, and what stays here."""

from __future__ import annotations

from urllib.parse import quote

from yarl import URL

from penstock.web.board.viewer import HEADER as VIEWER
from penstock.web.door import Scope
from penstock.web.proxy import OF_A_HANDSHAKE, OF_ONE_CONNECTION, named_by

PREFIX = "/board"

# What the process must believe is said by us alone, and what opens doors is none of its business.
_KEPT_FROM_IT = frozenset(
    {VIEWER.encode(), b"authorization", b"x-api-key", b"api-key", b"cookie", b"forwarded", b"expect"}
)


def request_headers(scope: Scope, viewer: str) -> list[tuple[str, str]]:
    dropped = OF_ONE_CONNECTION | named_by(scope["headers"]) | _KEPT_FROM_IT
    kept = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name not in dropped and not name.startswith((b"x-forwarded-", OF_A_HANDSHAKE))
    ]
    return [*kept, ("x-forwarded-prefix", PREFIX), (VIEWER, viewer)]


def url_of(scope: Scope) -> URL:
    raw: bytes = scope.get("raw_path") or b""
    prefix = PREFIX.encode()
    path = (
        raw.removeprefix(prefix).decode("latin-1")
        if raw.startswith(prefix + b"/")
        else quote(scope["path"].removeprefix(PREFIX))
    )
    query: bytes = scope.get("query_string", b"")
    return URL(
        "http://board" + (path or "/") + (f"?{query.decode('latin-1')}" if query else ""), encoded=True
    )
