"""What pages are built from: the config, the store to read from, and the HTTP API to act through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from penstock.client import Client
from penstock.config import Config
from penstock.errors import PenstockError
from penstock.web.board.news import News
from penstock.web.board.viewer import Viewer


class ApiRefused(PenstockError):
    """The server did not do what was asked; it says why, with the remedy."""


class Api:
    """The server's HTTP API, as one viewer after another."""

    def __init__(self, base_url: str, session: aiohttp.ClientSession) -> None:
        self._base_url = base_url
        self._session = session

    async def get(self, viewer: Viewer, path: str, query: Mapping[str, Any] | None = None) -> Any:
        return await self._asked(viewer, "GET", path, query=query)

    async def post(self, viewer: Viewer, path: str, body: Any = None) -> Any:
        return await self._asked(viewer, "POST", path, body=body)

    async def delete(self, viewer: Viewer, path: str) -> Any:
        return await self._asked(viewer, "DELETE", path)

    async def _asked(
        self,
        viewer: Viewer,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> Any:
        try:
            async with self._session.request(
                method, self._base_url + path, params=query, json=body, headers=viewer.headers()
            ) as reply:
                said = await reply.json()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiRefused(f"the server does not answer ({type(error).__name__}); try again") from None
        if reply.status >= 400:
            told = said.get("error", {}) if isinstance(said, dict) else {}
            remedy = f"; {told['remedy']}" if told.get("remedy") else ""
            raise ApiRefused(f"{told.get('message', f'status {reply.status}')}{remedy}")
        return said


@dataclass(frozen=True, slots=True)
class Desk:
    config: Config
    client: Client  # for reading
    api: Api  # for acting: rights are checked there
    news: News
