"""What every page has around it: its head, the way to the others, and who is looking.

A page is a path, a title and a function that builds it from what the desk and the viewer give it. Its files in
`files/` are named with it: `Page("/queue", "Queue", queue.build, key="q", css=("queue.css",))`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request, Response
from nicegui import Client, app, context, ui
from nicegui.element import Element

from penstock.errors import PenstockError
from penstock.web.board import words
from penstock.web.board.components import (
    ClockSetter,
    Connection,
    Keys,
    KeysButton,
    LiveTitle,
    Menu,
    ThemeSwitch,
)
from penstock.web.board.desk import Desk
from penstock.web.board.elements import BASE, inside, prose, tag
from penstock.web.board.looks import palette_css
from penstock.web.board.news import Refresh
from penstock.web.board.notices import Kind, Notices
from penstock.web.board.viewer import Viewer, viewer_of

FILES = Path(__file__).parent / "files"
# On every page; the last are for narrow screens and change what the others say.
_LOOKS = ("files/board.css", "files/tables.css", "files/forms.css", "files/narrow.css")
_MOST_UNSEEN = 64  # pages that no browser has connected to yet, of 0.7 MB each
Build = Callable[["Visit"], Awaitable[Response | None]]  # a response is sent in the place of the page


@dataclass(frozen=True, slots=True)
class Visit:
    """One look at one page."""

    desk: Desk
    viewer: Viewer
    request: Request
    client: Client  # NiceGUI's: one connected page
    notices: Notices
    tab: LiveTitle

    def query(self, name: str) -> str:
        """What the address says after the question mark; empty if it does not."""
        return self.request.query_params.get(name, "")

    def notice(self, kind: Kind, text: str) -> None:
        self.notices.tell(kind, text)

    def title(self, text: str) -> None:
        """The tab's: `visit.title("3 running")` shows "3 running · Penstock"."""
        self.tab.say(f"{text} · Penstock")

    def follow(self, refresh: Refresh, least_s: float = 0.25) -> None:
        """`refresh` is called in the page whenever something was recorded, at most so often, while it is open."""
        self.desk.news.follow(self.client, refresh, least_s)


@dataclass(frozen=True, slots=True)
class Page:
    path: str
    title: str
    build: Build
    in_menu: bool = True
    key: str = ""  # after "g"
    css: tuple[str, ...] = ()


def add_pages(pages: Sequence[Page], desk: Desk) -> None:
    # Always asked for again (and seldom sent): a server of another version may have other files.
    app.add_static_files("/files", FILES, max_cache_age=0)
    css = palette_css()

    @app.get("/palette.css", include_in_schema=False)
    def palette() -> Response:
        return Response(css, media_type="text/css")

    @app.get("/words.js", include_in_schema=False)
    def spoken() -> Response:
        return Response(words.script(), media_type="text/javascript")

    links = "\n".join(_stylesheet(f"{BASE}/{path}") for path in ("palette.css", *_LOOKS))
    ui.add_head_html(f'<script src="{BASE}/files/theme.js"></script>\n{links}', shared=True)
    for page in pages:
        _add(page, pages, desk)


def _stylesheet(path: str) -> str:
    return f'<link rel="stylesheet" href="{path}">'


def _add(page: Page, pages: Sequence[Page], desk: Desk) -> None:
    @ui.page(page.path, title=f"{page.title} · Penstock", response_timeout=30.0)
    async def built(request: Request) -> Response | None:
        for file in page.css:
            ui.add_head_html(_stylesheet(f"{BASE}/files/{file}"))
        client = context.client
        drop_unseen(client)
        _bare(client)
        viewer = viewer_of(request.headers)
        main, notices, tab = _framed(page, pages, viewer)
        visit = Visit(desk, viewer, request, client, notices, tab)
        with main:
            try:
                return await page.build(visit)
            except PenstockError as error:
                with tag("div", class_="empty", role="alert"):
                    tag("p", "This page cannot be shown", class_="empty-title")
                    prose("p", str(error))
                return None


def drop_unseen(newest: Client) -> None:
    """A page that is fetched waits for its browser's socket; of those that never come only so many are kept."""
    unseen = [
        one
        for one in Client.instances.values()
        if one is not newest and not one.has_socket_connection and not one._delete_tasks
    ]
    for one in sorted(unseen, key=lambda one: one.created)[: max(0, len(unseen) - _MOST_UNSEEN)]:
        one.delete()


def _bare(client: Client) -> None:
    """NiceGUI puts layouts of its widgets around everything, with a second `main` and fixed heights."""
    for element in client.layout.descendants(include_self=True):
        element.tag = "div"
        element._props.clear()
        element._classes.clear()


def _framed(page: Page, pages: Sequence[Page], viewer: Viewer) -> tuple[Element, Notices, LiveTitle]:
    """The element that the page's own go into, and where it tells things."""
    listed = [one for one in pages if one.in_menu]
    ClockSetter()
    tab = LiveTitle(f"{page.title} · Penstock")
    tag("a", "Skip to the content", href="#main", class_="skip")
    with tag("header", class_="top"):
        tag("a", "Penstock", href=f"{BASE}/", class_="name")
        with tag("nav", aria_label="Pages"), tag("ul"):
            for one in listed:
                current = "page" if one is page else None
                inside(tag("li"), tag, "a", one.title, href=BASE + one.path, aria_current=current)
        Menu()
        with tag("div", class_="right"):
            Connection()
            _who(viewer)
            KeysButton()
            ThemeSwitch()
    main = tag("main", id="main", tabindex="-1")
    with main:
        tag("h1", page.title)
    notices = Notices()
    Keys([(one.key, one.title, BASE + one.path) for one in listed if one.key])
    return main, notices, tab


def _who(viewer: Viewer) -> None:
    scopes = ", ".join(viewer.scopes) or "nothing"
    tag("span", viewer.name, class_="who", title=f"{viewer.name} may: {scopes}")
    if viewer.cookie:
        with tag("form", method="post", action=f"{BASE}/logout", class_="logout"):
            tag("input", type="hidden", name="csrf", value=viewer.csrf)
            tag("button", "Log out", type="submit", class_="button quiet")
