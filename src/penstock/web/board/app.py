"""The board as an app: NiceGUI with our policy before it, our pages in it."""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp
from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.routing import Route
from starlette.types import ASGIApp

from penstock.client import Client
from penstock.web.board import council_reports
from penstock.web.board.desk import Api, Desk
from penstock.web.board.frame import Page, add_pages
from penstock.web.board.live import Live, LiveStream
from penstock.web.board.missing import add_missing
from penstock.web.board.news import News
from penstock.web.board.pages import PAGES
from penstock.web.board.policy import Policy, keep_nonces
from penstock.web.board.task_data import add_data as add_task_data
from penstock.web.board.timeline_picture import add_picture


def build(
    client: Client,
    server_url: str,
    session: aiohttp.ClientSession,
    news: News,
    live: Live,
    pages: Sequence[Page] = PAGES,
) -> ASGIApp:
    keep_nonces()
    around = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    desk = Desk(client.config, client, Api(server_url, session), news)
    nicegui_app.routes.append(Route("/live/now", LiveStream(live)))
    add_pages(pages, desk)
    add_picture(desk)
    council_reports.add_routes(desk)
    add_task_data(desk)
    add_missing(nicegui_app, around)
    ui.run_with(
        around,
        title="Penstock",
        dark=None,
        language="en-US",
        tailwind=False,
        binding_refresh_interval=None,
        reconnect_timeout=30.0,
        show_welcome_message=False,
        gzip_middleware_factory=None,
    )
    nicegui_app.config.socket_io_js_transports = ["websocket"]
    nicegui_app.config.vue_config_script = ""  # sets its widgets up, which are left out
    around.add_middleware(Policy)
    return around
