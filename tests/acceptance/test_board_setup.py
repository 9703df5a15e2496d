"""The set-up page in a real browser: hosts really tried, the config's errors by line, tokens, no secret (E7)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, WebSocket, expect

from tests.acceptance.board_rig import SECRET, Board, Chromium, looking, ready, small_plant
from tests.acceptance.serve_rig import PATIENCE_S

WORD = "feldspar-9913-unseen"
PATIENCE_MS = PATIENCE_S * 1000
ACTS = re.compile("pause|resume|cancel|retry|priority|start|stop|warm|revoke|make|−|\\+", re.IGNORECASE)
EXPECTED = re.compile("401|403|WebSocket")  # what a browser says of a page that is refused


class Heard:
    """All that a page is sent, whether it shows it or not."""

    def __init__(self, page: Page) -> None:
        self.texts: list[str] = []
        page.on("websocket", self._socket)

    def _socket(self, socket: WebSocket) -> None:
        socket.on("framereceived", lambda frame: self.texts.append(str(frame)))

    def has(self, page: Page, word: str) -> bool:
        return any(word in text for text in (*self.texts, page.content()))


@contextmanager
def changed(board: Board, old: str, new: str) -> Iterator[Path]:
    """The config on disk for a while; what runs has read it long ago."""
    path = board.serve.folder / "penstock.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    try:
        yield path
    finally:
        path.write_text(text)


def test_e7_hosts_are_tried_one_by_one_and_each_says_how_it_is(board: Board, page: Page) -> None:
    ready(page, board.at("/setup"))
    hosts = page.get_by_role("region", name="Hosts of the config")
    for name, told in (("alder", "well"), ("down", "wrong")):
        row = hosts.get_by_role("row", name=name, exact=False).filter(
            has=page.get_by_role("rowheader", name=name)
        )
        expect(row).to_contain_text(told, timeout=PATIENCE_MS)
    expect(hosts).to_contain_text("Connection refused")
    expect(page.get_by_text(re.compile(r"\d problems?\. Tried at"))).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("the address is free")).to_have_count(0)  # of the server that shows this
    again = page.get_by_role("button", name="Try again")
    again.click()
    expect(again).not_to_have_attribute("aria-busy", "true", timeout=PATIENCE_MS)
    expect(page.get_by_text(re.compile(r"\d problems?\. Tried at"))).to_be_visible()


def test_e7_an_error_in_the_config_is_shown_at_its_line_and_no_secret_is(board: Board, page: Page) -> None:
    """Promise 8: neither what the page shows nor what it is sent holds a secret of the config."""
    heard = Heard(page)
    ready(page, board.at("/setup"))
    text = page.get_by_role("region", name="Text of the config")
    expect(text).to_contain_text("[hosts.alder]")
    expect(page.get_by_text("valid", exact=True)).to_be_visible()

    wrong = f'slots = "four"\napi_key = "{WORD}"\nduration_s = 0.02'
    with changed(board, "slots = 4\nduration_s = 0.02", wrong) as path:
        line = path.read_text().split("\n").index('slots = "four"') + 1
        expect(page.get_by_role("link", name=f"line {line}", exact=True)).to_be_visible()
        marked = text.locator(f"#line-{line}")
        expect(marked).to_have_class("line wrong")
        expect(marked).to_contain_text("←")
        expect(text.locator(f"#line-{line + 1}")).to_contain_text("•••")
    expect(page.get_by_text("valid", exact=True)).to_be_visible()
    assert text.locator(".wrong").count() == 0

    with changed(board, "slots = 4\nduration_s = 0.02", "slots = 5\nduration_s = 0.02"):
        expect(page.get_by_text("It differs from what runs")).to_contain_text("hosts.alder.slots")

    expect(text).to_contain_text("env = •••")
    assert heard.texts, "nothing was heard"
    for word in (SECRET, WORD):
        assert not heard.has(page, word)


def test_the_store_and_the_version_are_told(board: Board, page: Page) -> None:
    ready(page, board.at("/setup"))
    facts = page.get_by_role("region", name="Store", exact=True)
    expect(facts).to_contain_text("penstock.db")
    expect(facts).to_contain_text("30 days after their end")
    expect(facts).to_contain_text("penstock serve, process")


@dataclass
class Locked:
    """A plant with tokens: who comes without one is refused."""

    board: Board
    root: str  # may all
    task: str

    def token(self, name: str, *scopes: str) -> str:
        return str(self.ask("POST", "/api/tokens", {"name": name, "scopes": scopes}).json()["secret"])

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        bearer = {"Authorization": f"Bearer {self.root}"}
        return self.board.http.request(method, path, json=body, headers=bearer).raise_for_status()


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    with small_plant(tmp_path_factory.mktemp("locked")) as board:
        task = board.submit("a", {"for": "whoever may look"})
        made = board.post("/api/tokens", {"name": "root", "scopes": ["submit", "read", "admin"]})
        yield Locked(board, made["secret"], task)


def log_in(page: Page, secret: str) -> None:
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Log in").click()


def controls(locked: Locked, page: Page, path: str) -> list[str]:
    """What can be pressed or chosen there, but for what only looks."""
    ready(page, locked.board.at(path))
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    if path == "/":
        expect(page.locator("main")).to_contain_text("alder")
    shown = page.locator("main button, main summary").all_inner_texts()
    return [one for one in shown if ACTS.search(one)]


def test_e7_whoever_may_only_look_sees_no_controls_and_is_out_when_his_token_is(
    locked: Locked, chromium: Chromium
) -> None:
    """A wrong token is refused in words; a read token shows all and changes nothing; log out, and revoked: out."""
    reader, submits = locked.token("reader", "read"), locked.token("submits", "submit")
    paths = ("/", "/queue", f"/tasks/{locked.task}", "/agents", "/setup")
    with looking(chromium, locked.board) as (page, watch):
        page.goto(locked.board.at("/queue"))
        log_in(page, reader + "x")
        expect(page.get_by_role("alert")).to_have_text("This token is not known, or was revoked.")
        log_in(page, submits)  # a way out of what it may not see
        expect(page.get_by_role("heading", name="You may not see this")).to_be_visible()
        expect(page.locator("code")).to_have_text("penstock token add NAME --scope read")
        page.get_by_role("link", name="Log in with another token").click()
        log_in(page, locked.root)
        page.wait_for_url(locked.board.at("/queue"))
        assert [bool(controls(locked, page, path)) for path in paths] == [True, True, True, False, True]
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_focused()
        log_in(page, reader)
        assert [controls(locked, page, path) for path in paths] == [[], [], [], [], []]
        ready(page, locked.board.at("/queue"))
        expect(page.get_by_text("reader may look only")).to_be_visible()
        locked.ask("DELETE", "/api/tokens/reader")
        page.wait_for_url(locked.board.at("/login?next=/board/queue"))
        expect(page.get_by_label("Token")).to_be_visible()
        watch.complaints = [one for one in watch.complaints if not EXPECTED.search(one)]


def test_e7_a_token_is_made_and_revoked_by_click_and_its_secret_is_shown_once(
    locked: Locked, chromium: Chromium
) -> None:
    board = locked.board
    with looking(chromium, board) as (page, _):
        page.goto(board.at("/login?next=/board/setup"))
        log_in(page, locked.root)
        page.wait_for_url(board.at("/setup"))
        ready(page, board.at("/setup"))
        tokens = page.get_by_role("region", name="Tokens").first
        expect(tokens).to_contain_text("root", timeout=PATIENCE_MS)

        page.get_by_text("Make a token…").click()
        page.get_by_label("Name").fill("laptop")
        page.get_by_label("submit: submit tasks").uncheck()
        page.get_by_role("button", name="Make token").click()
        dialog = page.get_by_role("dialog", name="Token laptop")
        secret = dialog.get_by_role("region", name="Secret").inner_text()
        bearer = {"Authorization": f"Bearer {secret}"}
        assert board.http.get("/api/hosts", headers=bearer).status_code == 200
        assert board.http.post("/api/tasks", json={"kind": "a"}, headers=bearer).status_code == 403
        for_readers = board.http.get("/board/setup", headers=bearer).text
        assert "Its text is shown to those with the scope admin" in for_readers
        assert "[hosts.alder]" not in for_readers
        dialog.get_by_role("button", name="I have kept it").click()
        expect(dialog).to_have_count(0)
        expect(page.get_by_text(secret)).to_have_count(0)  # closed at once, taken away by an answer
        assert secret not in page.content()

        page.get_by_role("button", name="Revoke root").click()
        warning = page.get_by_role("dialog", name="Revoke root")
        expect(warning).to_contain_text("you are logged out")
        expect(warning).to_contain_text("No other has the scope admin")
        warning.get_by_role("button", name="No, go back").click()

        page.get_by_role("button", name="Revoke laptop").click()
        page.get_by_role("dialog", name="Revoke laptop").get_by_role("button", name="Revoke laptop").click()
        expect(page.get_by_text("laptop is revoked.")).to_be_visible()
        expect(page.get_by_role("button", name="Revoke laptop")).to_have_count(0)
        assert board.http.get("/api/hosts", headers=bearer).status_code == 401
    assert "token 'laptop' was made by 'root'" in board.serve.log
    assert secret not in board.serve.log
