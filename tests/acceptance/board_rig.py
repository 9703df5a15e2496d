"""The board in a real Chromium: one `serve`, one board and one browser for all tests of a process.

A test makes tasks of its own in the plant, with names of its own, and opens pages with `page`:

    def test_a_task_is_cancelled(board: Board, page: Page) -> None:
        task_id = board.submit("long", {"for": "my test"})
        page.goto(board.at(f"/tasks/{task_id}"))
        ...

Afterwards `page` asserts that nothing was complained of, nothing broke the policy, and nothing left the origin.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.events import AbstractEventLoop
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

from penstock.testing import Fault, ModelBehaviour, ModelRequest, ModelServer
from tests.acceptance import browser_rig
from tests.acceptance.serve_rig import PATIENCE_S, Serve, serving, until
from tests.unit.researcher_rig import write_stand_ins

MEMBERS = ("amber", "basalt", "copper", "dolomite", "erbium", "flint")
EVIL = "<img src=x onerror=window.__pwned=1><script>window.__pwned=1</script>"
SECRET = "gneiss-4417-unseen"  # in the config, and in no page
ENDED = ("done", "failed", "cancelled", "blocked")
HUSH = "unendingly"  # a question with this word is begun to be answered, and never ended

# Kinds: `quick` ends at once, `long` stays until it is cancelled, `broken` fails, `held` waits for a gate that is
# closed, `remote` for a host that is down; `echo` gives back `say` of its payload, or fails with `cry`; `research`
# does what its query says, and keeps a log (see tests/unit/researcher_rig.py).
CONFIG = """
[hosts.alder]
type = "simulated"
serves = ["quick"]
slots = 4
duration_s = 0.02

[hosts.birch]
type = "simulated"
serves = ["long", "held"]
slots = 6
duration_s = 3600

[hosts.cedar]
type = "simulated"
serves = ["broken"]
slots = 2
duration_s = 0.02
fail = "permanent"

[hosts.down]
type = "openai"
url = "http://127.0.0.1:9/v1"
model = "remote"
serves = ["remote"]
slots = 2
health_s = 1

[hosts.elm]
type = "python"
serves = ["echo"]
call = "plant:echo"
slots = 2

[hosts.fir]
type = "researcher"
serves = ["research"]
python = "{python}"
model = "m"
url = "http://model.test/v1"
env = {{ PYTHONPATH = "{packages}", RIG_PASS = "{secret}" }}

{members}
[lanes.reports]
max_running = 2
reserve = {{ birch = 1 }}

[lanes.bulk]
weight = 2

[gates.vram]
probe = "python:plant:free_gb"
min = 8
every_s = 1
holds = {{ kinds = ["held"] }}

[gates.reports]
lane = "reports"
max_running = 1
holds = {{ lanes = ["bulk"] }}

[retry]
retries = 0

[councils.sages]
chair = {{ name = "CHAIR", model = "chair" }}
{council}
"""

PLANT = """
class Cried(Exception):
    pass


def echo(payload):
    if "cry" in payload:
        raise Cried(payload["cry"])
    print(payload.get("say"))
    return payload.get("say")


def free_gb():
    return 3
"""

# Told by the page itself: the console leaves some of them out.
_WATCH = """
window.__violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  const place = `${event.sourceFile}:${event.lineNumber}`;
  window.__violations.push(`${event.effectiveDirective} ${event.blockedURI} ${place}`);
});
"""


@dataclass
class Board:
    """The plant and its board. What is asked of it goes through the HTTP API, as a user's would."""

    serve: Serve
    http: httpx.Client = field(repr=False)

    @property
    def origin(self) -> str:
        return self.serve.root_url

    def at(self, path: str) -> str:
        return f"{self.origin}/board{path}"

    def wait_until_up(self) -> None:
        """Its process starts when it is first looked for, which a busy machine may take a while for."""
        up = self.at("/agents")
        until(lambda: self.http.get(up).status_code == 200, lambda: "the board does not start")

    def post(self, path: str, body: Any = None) -> Any:
        reply = self.http.post(path, json=body)
        assert reply.is_success, f"{reply.status_code} {reply.text}"
        return reply.json()

    def get(self, path: str) -> Any:
        return self.http.get(path).raise_for_status().json()

    def submit(self, kind: str, payload: Any = None, **fields: Any) -> str:
        told = self.post("/api/tasks", {"kind": kind, "payload": payload, **fields})
        task_id: str = told["task_ids"][0]
        return task_id

    def submit_all(self, tasks: list[dict[str, Any]], run: str | None = None) -> list[str]:
        ids: list[str] = self.post("/api/tasks", {"tasks": tasks, **({"run": run} if run else {})})[
            "task_ids"
        ]
        return ids

    def state(self, task_id: str) -> str:
        return str(self.get(f"/api/tasks/{task_id}")["state"])

    def wait_for(self, task_id: str, *states: str) -> str:
        until(lambda: self.state(task_id) in states, lambda: f"{task_id} is {self.state(task_id)}")
        return task_id

    def come_to_rest(self) -> None:
        """Nothing starts any more, and what runs is cancelled: a server that stops would wait for it."""
        self.post("/api/pause", {"scope": "all", "name": ""})
        for task in self.get("/api/tasks?state=running&limit=1000")["tasks"]:
            self.http.post(f"/api/tasks/{task['task_id']}/cancel")
        until(lambda: self.serve.running() == 0, lambda: f"{self.serve.running()} still run")

    @cached_property
    def scene(self) -> Scene:
        """A plant at work: running, queued, failed and held tasks, and a run that is over. Made once."""
        return Scene.made(self)


@dataclass(frozen=True)
class Scene:
    run: str  # over, with failures
    running: str
    queued: str  # behind a closed gate
    remote: str  # for a host that is down
    failed: str
    done: str
    hostile: str  # its payload and its error are markup

    @classmethod
    def made(cls, board: Board) -> Scene:
        run = "scene-nightly"
        ids = board.submit_all(
            [{"kind": "quick", "payload": {"page": n}, "priority": n % 5} for n in range(12)]
            + [{"kind": "broken", "payload": {"page": "torn"}, "lane": "reports"}]
            + [{"kind": "echo", "payload": {"say": EVIL, "cry": EVIL}, "key": f"scene-{EVIL}"}],
            run=run,
        )
        board.wait_for(board.submit("echo", {"say": EVIL}), *ENDED)
        running = board.submit("long", {"title": "a long report"}, lane="reports", key="scene-long")
        queued = board.submit("held", {"model": "large"}, priority=1, key="scene-held")
        remote = board.submit("remote", {"messages": []}, lane="bulk")
        for task_id in ids:
            board.wait_for(task_id, *ENDED)
        board.wait_for(running, "running")
        return cls(run, running, queued, remote, failed=ids[-2], done=ids[0], hostile=ids[-1])


def config(models_url: str, packages: Path) -> str:
    members = "".join(
        f'[hosts.{name}]\ntype = "openai"\nurl = "{models_url}"\nmodel = "{name}"\nserves = ["chat"]\nslots = 4\n\n'
        for name in (*MEMBERS, "chair")
    )
    council = "".join(
        f'[[councils.sages.members]]\nname = "{name.upper()}"\nmodel = "{name}"\n' for name in MEMBERS
    )
    return CONFIG.format(
        members=members, council=council, python=sys.executable, packages=packages, secret=SECRET
    )


def _hushed(request: ModelRequest) -> Fault | None:
    return Fault.hang(after_chunks=4) if HUSH in request.prompt else None


@contextmanager
def plant(folder: Path) -> Iterator[Board]:
    """A `serve` with everything in it, in a folder of its own."""
    behaviour = ModelBehaviour(
        models=(*MEMBERS, "chair"), talks=True, tokens=24, tokens_per_s=200, faults=_hushed
    )
    (folder / "plant.py").write_text(PLANT)
    with ExitStack() as stack:
        models = stack.enter_context(ModelServer.in_thread(behaviour))
        packages = write_stand_ins(folder / "packages")
        serve = stack.enter_context(serving(folder, config(models.url, packages)))
        # There is no TLS, and to read all certificates takes longer than to ask.
        http = stack.enter_context(httpx.Client(base_url=serve.root_url, timeout=PATIENCE_S, verify=False))
        board = Board(serve, http)
        board.wait_until_up()
        yield board
        board.come_to_rest()


@contextmanager
def small_plant(folder: Path) -> Iterator[Board]:
    """A `serve` that has done nothing yet."""
    with (
        serving(folder, '[hosts.alder]\ntype = "simulated"\n') as serve,
        httpx.Client(base_url=serve.root_url, timeout=PATIENCE_S, verify=False) as http,
    ):
        yield Board(serve, http)


@pytest.fixture(scope="session")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with plant(tmp_path_factory.mktemp("board")) as started:
        yield started


class Chromium:
    """One browser for the session. Its loop counts as running in this thread only while a test uses it: tests that
    are coroutines run in between."""

    def __init__(self, browser: Browser, loop: AbstractEventLoop) -> None:
        self.browser = browser
        self._loop = loop

    @contextmanager
    def used(self) -> Iterator[Browser]:
        asyncio._set_running_loop(self._loop)
        try:
            yield self.browser
        finally:
            asyncio._set_running_loop(None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    with browser_rig.browser() as started:
        shared = Chromium(started, asyncio.get_running_loop())
        asyncio._set_running_loop(None)
        yield shared
        asyncio._set_running_loop(shared._loop)


@pytest.fixture
def browser(chromium: Chromium) -> Iterator[Browser]:
    """The same one, for pages that are files."""
    with chromium.used() as started:
        yield started


@dataclass
class Watch:
    """What pages did behind one's back."""

    origin: str
    complaints: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)

    def over(self, context: BrowserContext) -> None:
        context.add_init_script(_WATCH)
        context.on("request", lambda request: self._asked(request.url))
        context.on("console", self._said)
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        context.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))

    def _asked(self, url: str) -> None:
        if not url.startswith((self.origin + "/", "data:", "blob:")):
            self.strays.append(url)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def check(self, context: BrowserContext) -> None:
        broken = [one for page in context.pages for one in violations(page)]
        assert not broken, f"the policy was broken: {broken}"
        assert not self.strays, f"requests left the origin: {self.strays}"
        assert not self.complaints, f"the page complained: {self.complaints}"


def violations(page: Page) -> list[str]:
    found: list[str] = page.evaluate("window.__violations ?? []")
    return found


@contextmanager
def looking(
    chromium: Chromium,
    board: Board | str,
    *,
    scheme: Literal["light", "dark"] = "light",
    width: int = 1280,
    height: int = 800,
) -> Iterator[tuple[Page, Watch]]:
    """A fresh page with nothing in its storage, of a board or of an origin; on leaving it must have behaved."""
    with chromium.used() as browser:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id="Europe/Zurich"
        )
        watch = Watch(board if isinstance(board, str) else board.origin)
        try:
            watch.over(context)
            context.set_default_timeout(browser_rig.PATIENCE_MS)
            page = context.new_page()
            yield page, watch
            watch.check(context)
        finally:
            context.close()


@pytest.fixture
def watch_page(chromium: Chromium, board: Board) -> Iterator[tuple[Page, Watch]]:
    """`page` with its watch, for tests in which a complaint is right: `watch.complaints.clear()`."""
    with looking(chromium, board) as opened:
        yield opened


@pytest.fixture
def page(watch_page: tuple[Page, Watch]) -> Page:
    return watch_page[0]


def ready(page: Page, url: str) -> Page:
    page.goto(url)
    return connected(page)


def connected(page: Page) -> Page:
    """A locator is waited for: `wait_for_function` evaluates text in the page, which the policy forbids."""
    page.locator("header [data-state=live]").wait_for()
    return page
