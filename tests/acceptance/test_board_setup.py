"""The set-up page in a real browser: hosts really tried, the config's errors by line, tokens, no secret (E7)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, WebSocket, expect

from tests.acceptance.board_rig import SECRET, Board, Chromium, looking, ready, small_plant
from tests.acceptance.serve_rig import PATIENCE_S

WORD = "feldspar-9913-unseen"
PATIENCE_MS = PATIENCE_S * 1000


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
    expect(page.get_by_text("to put right. Tried at")).to_be_visible(timeout=PATIENCE_MS)
    again = page.get_by_role("button", name="Try again")
    again.click()
    expect(again).not_to_have_attribute("aria-busy", "true", timeout=PATIENCE_MS)
    expect(page.get_by_text("to put right. Tried at")).to_be_visible()


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


def test_e7_a_token_is_made_and_revoked_by_click_and_its_secret_is_shown_once(
    tmp_path: Path, chromium: Chromium
) -> None:
    with small_plant(tmp_path) as board:
        root = board.post("/api/tokens", {"name": "root", "scopes": ["submit", "read", "admin"]})["secret"]
        with looking(chromium, board) as (page, watch):
            page.goto(board.at("/login?next=/board/setup"))
            page.get_by_label("Token").fill(root)
            page.get_by_role("button", name="Log in").click()
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
            assert secret not in page.content()

            page.get_by_role("button", name="Revoke root").click()
            warning = page.get_by_role("dialog", name="Revoke root")
            expect(warning).to_contain_text("you are logged out")
            expect(warning).to_contain_text("No other has the scope admin")
            warning.get_by_role("button", name="No, go back").click()

            page.get_by_role("button", name="Revoke laptop").click()
            page.get_by_role("dialog", name="Revoke laptop").get_by_role(
                "button", name="Revoke laptop"
            ).click()
            expect(page.get_by_text("laptop is revoked.")).to_be_visible()
            expect(page.get_by_role("button", name="Revoke laptop")).to_have_count(0)
            assert board.http.get("/api/hosts", headers=bearer).status_code == 401

            board.serve.command("token", "revoke", "root")  # his log-in ends: an open page leads there
            page.wait_for_url("**/board/login?next=/board/setup", timeout=PATIENCE_MS)
            watch.complaints.clear()  # of what was refused just now
        assert "token 'laptop' was made by 'root'" in board.serve.log
        assert secret not in board.serve.log
