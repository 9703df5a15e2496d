"""The board's process with one more page, on which every part of the toolkit stands: for tests of the parts.

It listens on a port instead of a socket behind `serve`: what the server adds to a request is added here.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import aiohttp
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

import penstock.client
from penstock.errors import UsageError
from penstock.web.board import app as board_app
from penstock.web.board.frame import Page, Visit
from penstock.web.board.live import Live
from penstock.web.board.news import News
from penstock.web.board.pages import PAGES
from penstock.web.board.toolkit import (
    Badge,
    Cell,
    Code,
    Column,
    Elapsed,
    Lasted,
    Link,
    Row,
    badge,
    bar,
    button,
    checkbox,
    code_block,
    dialog,
    empty,
    field,
    form,
    link,
    notice,
    say,
    section,
    select,
    slider,
    submit,
    table,
    tabs,
    tag,
    wait_mark,
)
from penstock.web.board.viewer import HEADER, Viewer, as_header
from penstock.wiring import read_config

EVIL = "<img src=x onerror=window.__pwned=1>"
STATES = ("running", "failed", "done")


class Sampler:
    """What the page's parts tell; `told` shows the last of it."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.told = tag("p", "nothing yet", id="told")
        self.release = asyncio.Event()

    def say(self, text: object) -> None:
        say(self.told, str(text))

    async def work(self) -> None:
        await self.release.wait()
        self.release.clear()
        notice("good", "It is done.")

    def fail(self) -> None:
        raise UsageError(f"no task {EVIL}; see `penstock tasks`")

    def crash(self) -> None:
        raise RuntimeError("a defect")

    def buttons(self) -> None:
        button("Work", self.work, kind="main")
        button("Release", self.release.set)
        button("Fail", self.fail)
        button("Crash", self.crash)
        button("Cancel…", lambda: self.say("cancelled"), kind="danger", confirm="Cancel 3 tasks?")
        button("Forbidden", self.fail).enable("needs the scope submit")
        with dialog("Change priority") as asked:
            level = select("Priority", ["0", "1", "2"], "2")

            def chosen() -> None:
                self.say(f"priority {level.value}")
                asked.close()

            button("Set", chosen)
        button("Open", asked.open)

    def fields(self) -> None:
        with form(lambda: self.say(f"asked {words.value!r}")):
            words = field(
                "Words", placeholder="anything", pause_ms=1, on_input=lambda v: self.say(f"typed {v}")
            )
            submit("Ask")
        button("Clear", lambda: setattr(words, "value", ""))
        amount = field("Amount", "7", kind="number", description="A whole number")
        button("Check", lambda: amount.say_error("a whole number, please"))
        lane = select("Lane", {"": "any", "web": "the web's"}, on_change=lambda v: self.say(f"lane {v}"))
        button("Others", lambda: lane.offer(["bulk", "web"]))
        checkbox("Only mine", on_change=lambda v: self.say(f"mine {v}"))
        slider("Slots", 4, 1, 16, was=4, on_change=lambda v: self.say(f"slots {v}"))

    def tables(self) -> None:
        rows = [
            Row(
                [Link(f"host-{n}", f"/queue?host=host-{n}"), n * 7 % 10, Badge(state), Lasted(0, n), None],
                key=f"k{n}",
            )
            for n, state in enumerate(STATES)
        ]
        columns = (
            Column("Host", heads=True, sortable=True),
            Column("Used", num=True, sortable=True),
            "State",
            "Took",
            Column("Act", unseen=True),
        )
        chosen = table("Hosts", columns, rows, on_select=lambda keys: self.say(f"chosen {sorted(keys)}"))

        def fewer() -> None:
            act: list[Cell] = [Code(EVIL), 1, "x", "y", lambda: button("Drain", lambda: self.say("drained"))]
            chosen.show([Row(act, key="k1")], caption="Fewer hosts")

        button("Fewer", fewer)

    def parts(self) -> None:
        parts = tabs("Parts", ["Payload", "Result"], on_change=lambda name: self.say(f"tab {name}"))
        with parts.panel("Payload"):
            code_block(EVIL, label="Payload")
        with parts.panel("Result"):
            empty("No result yet", "It runs. Wait for it with", "penstock wait a1")
        badge("down")
        bar(3, 4, label="Slots of gpu")
        wait_mark("gate:vram")
        link("Queue of gpu", "/queue?host=gpu")
        Elapsed(0, 65)
        button("Title", lambda: self.visit.title("3 running"))


async def build(visit: Visit) -> None:
    sampler = Sampler(visit)
    for title, part in (
        ("Buttons", sampler.buttons),
        ("Fields", sampler.fields),
        ("Tables", sampler.tables),
        ("Parts", sampler.parts),
    ):
        with section(title):
            part()


class AsBehindServe:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        viewer = Viewer("local", ("read", "submit", "admin"))
        self._more = [(HEADER.encode(), as_header(viewer).encode()), (b"x-forwarded-prefix", b"/board")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            path = scope["path"].removeprefix("/board")
            scope = {**scope, "path": path, "headers": [*scope["headers"], *self._more]}
        await self._app(scope, receive, send)


class Told(uvicorn.Server):
    """It tells the port it was given."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


async def main(folder: Path) -> None:
    pages = (*PAGES, Page("/sampler", "Sampler", build, in_menu=False))
    config = read_config(folder / "penstock.toml")
    async with penstock.client.open(config, dispatch=False) as client, aiohttp.ClientSession() as session:
        news = News(client.bell)
        app = board_app.build(client, "http://127.0.0.1:9", session, news, Live(client, news), pages)
        await Told(uvicorn.Config(AsBehindServe(app), port=0, log_config=None, access_log=False)).serve()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
