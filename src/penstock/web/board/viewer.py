"""Whoever looks at a page: told by `serve`, which has checked who it is, in a header that nobody else can send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

HEADER = "x-penstock-viewer"  # the server removes it from what comes in from outside


@dataclass(frozen=True, slots=True)
class Viewer:
    name: str
    scopes: tuple[str, ...]
    lane: str | None = None
    cookie: str = ""  # the session's, as it came; empty where nobody needs to log in
    csrf: str = ""

    def may(self, scope: str) -> bool:
        return scope in self.scopes

    def headers(self) -> dict[str, str]:
        """What makes a request of ours one of his."""
        told = {"Cookie": self.cookie, "X-Penstock-CSRF": self.csrf}
        return {name: value for name, value in told.items() if value}


def as_header(viewer: Viewer) -> str:
    """In ASCII: a header carries nothing else."""
    return msgspec.json.encode(viewer).hex()


def viewer_of(headers: Mapping[str, str]) -> Viewer:
    return msgspec.json.decode(bytes.fromhex(headers[HEADER]), type=Viewer)
