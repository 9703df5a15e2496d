"""What every page has around it: its head, the way to the others, and who is looking.

A page is a path, a title and a function that builds it from what the desk and the viewer give it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request
from nicegui import app, ui
from nicegui.element import Element

from penstock.web.board.desk import Desk
from penstock.web.board.elements import inside, tag
from penstock.web.board.news import Refresh
from penstock.web.board.viewer import Viewer, viewer_of

FILES = Path(__file__).parent / "files"
Build = Callable[["Visit"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Visit:
    """One look at one page."""

    desk: Desk
    viewer: Viewer
    request: Request

    def follow(self, refresh: Refresh, least_s: float = 0.25) -> None:
        """`refresh` is called in the page whenever something was recorded, at most so often, while it is open."""
        self.desk.news.follow(ui.context.client, refresh, least_s)


@dataclass(frozen=True, slots=True)
class Page:
    path: str
    title: str
    build: Build
    in_menu: bool = True


def add_pages(pages: Sequence[Page], desk: Desk) -> None:
    app.add_static_files("/files", FILES)
    ui.add_head_html('<link rel="stylesheet" href="/board/files/board.css">', shared=True)
    for page in pages:
        _add(page, pages, desk)


def _add(page: Page, pages: Sequence[Page], desk: Desk) -> None:
    @ui.page(page.path, title=f"{page.title} · Penstock", response_timeout=30.0)
    async def built(request: Request) -> None:
        visit = Visit(desk, viewer_of(request.headers), request)
        with _framed(page, pages):
            await page.build(visit)


def _framed(page: Page, pages: Sequence[Page]) -> Element:
    """The element that the page's own go into."""
    with tag("header", class_="bar"):
        tag("a", "Skip to the content", href="#main", class_="skip")
        tag("a", "Penstock", href="/board/", class_="name")
        with tag("nav", aria_label="Pages"), tag("ul"):
            for one in pages:
                if one.in_menu:
                    current = "page" if one is page else None
                    inside(tag("li"), tag, "a", one.title, href=f"/board{one.path}", aria_current=current)
    main = tag("main", id="main", tabindex="-1")
    with main:
        tag("h1", page.title)
    return main
