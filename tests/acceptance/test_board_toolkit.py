"""The parts that pages are built from, in a real browser: each does what it says, for mouse and keyboard."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.acceptance.access_rig import findings, injected, walked
from tests.acceptance.board_rig import Chromium, looking, ready

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def sampler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The origin of a board with a page of samples."""
    folder = tmp_path_factory.mktemp("sampler")
    (folder / "penstock.toml").write_text('[hosts.alder]\ntype = "simulated"\n')
    with subprocess.Popen(
        [sys.executable, "-m", "tests.acceptance.board_sampler", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NICEGUI_STORAGE_PATH": str(folder / "storage")},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            port = process.stdout.readline().strip()
            assert port, "it ended before it listened"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.fixture
def page(chromium: Chromium, sampler: str) -> Iterator[Page]:
    with looking(chromium, sampler) as (opened, _):
        yield ready(opened, f"{sampler}/board/sampler")


@pytest.fixture
def told(page: Page) -> Locator:
    return page.locator("#told")


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def test_it_is_for_everybody(page: Page) -> None:
    """E7: no serious finding, and Tab reaches every part in order."""
    assert findings(page) == []
    page.emulate_media(color_scheme="dark")
    assert findings(page, "color-contrast") == []
    way = walked(page)
    assert (way["missed"], way["unseen"], way["back"]) == ([], [], [])
    assert injected(page) == []


def test_a_button_is_busy_while_it_works(page: Page) -> None:
    working = page.get_by_role("button", name=re.compile("^Work"))
    working.click()
    expect(working).to_have_attribute("aria-busy", "true")
    expect(working).to_have_text("Work…")
    press(page, "Release")
    expect(working).to_have_text("Work")
    expect(page.locator(".notices")).to_contain_text("It is done.")
    expect(page.get_by_role("button", name="Forbidden")).to_be_disabled()
    expect(page.get_by_role("button", name="Forbidden")).to_have_attribute("title", "needs the scope submit")


def test_errors_are_told_as_text_until_they_are_closed(page: Page) -> None:
    press(page, "Fail")
    notices = page.locator(".notices")
    expect(notices).to_have_attribute("aria-live", "polite")
    expect(notices).to_contain_text("no task <img src=x onerror=window.__pwned=1>; see penstock tasks")
    press(page, "Crash")
    expect(notices).to_contain_text("that failed (RuntimeError); the server's log says more")
    expect(notices).not_to_contain_text("a defect")
    for _ in range(2):
        page.get_by_role("button", name="Close this notice").first.click()
    expect(notices.locator(".notice")).to_have_count(0)


def test_a_dialog_asks_first_and_gives_the_focus_back(page: Page, told: Locator) -> None:
    asks = page.get_by_role("button", name="Cancel…")
    asks.focus()
    page.keyboard.press("Enter")
    asked = page.get_by_role("dialog", name="Cancel")
    expect(asked).to_contain_text("Cancel 3 tasks?")
    page.keyboard.press("Escape")
    expect(asked).to_be_hidden()
    expect(asks).to_be_focused()
    expect(told).to_have_text("nothing yet")
    page.keyboard.press("Enter")
    asked.get_by_role("button", name="Cancel", exact=True).click()
    expect(told).to_have_text("cancelled")
    expect(asked).to_be_hidden()
    press(page, "Open")
    page.get_by_label("Priority", exact=True).select_option("0")
    press(page, "Set")
    expect(told).to_have_text("priority 0")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_fields_keep_what_is_typed_and_tell_of_it(page: Page, told: Locator) -> None:
    words = page.get_by_label("Words")
    words.fill("dam")
    expect(told).to_have_text("typed dam")
    words.press("Enter")
    expect(told).to_have_text("asked 'dam'")
    press(page, "Clear")
    expect(words).to_have_value("")
    amount = page.get_by_label("Amount")
    expect(amount).to_have_accessible_description("A whole number")
    press(page, "Check")
    expect(amount).to_have_accessible_description(re.compile("a whole number, please"))
    expect(amount).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Lane").select_option("web")
    expect(told).to_have_text("lane web")
    press(page, "Others")
    expect(page.get_by_label("Lane").locator("option")).to_have_text(["bulk", "web"])
    expect(page.get_by_label("Lane")).to_have_value("web")
    page.get_by_label("Only mine").check()
    expect(told).to_have_text("mine True")
    slots = page.get_by_label("Slots", exact=True)
    slots.focus()
    slots.press("ArrowRight")
    expect(told).to_have_text("slots 5")
    expect(page.locator("output")).to_have_text("5 was 4")


def test_tables_are_sorted_and_selected_in_the_browser(page: Page, told: Locator) -> None:
    table = page.get_by_role("table", name="Hosts")
    heads = table.get_by_role("rowheader")
    expect(heads).to_have_text(["host-0", "host-1", "host-2"])
    table.get_by_role("button", name="Used").click()
    expect(heads).to_have_text(["host-0", "host-2", "host-1"])
    table.get_by_role("button", name="Used").click()
    expect(heads).to_have_text(["host-1", "host-2", "host-0"])
    expect(table.get_by_role("columnheader", name="Used")).to_have_attribute("aria-sort", "descending")
    table.get_by_label("Select k1").check()
    expect(told).to_have_text("chosen ['k1']")
    table.get_by_label("Select all rows shown").check()
    expect(told).to_have_text("chosen ['k0', 'k1', 'k2']")
    press(page, "Fewer")
    fewer = page.get_by_role("table", name="Fewer hosts")
    expect(fewer.get_by_label("Select k1")).to_be_checked()
    expect(told).to_have_text("chosen ['k1']")
    expect(fewer).to_contain_text("<img src=x")
    press(page, "Drain")
    expect(told).to_have_text("drained")


def test_tabs_show_one_panel_and_the_tab_says_what_goes_on(page: Page, told: Locator) -> None:
    expect(page.get_by_role("tabpanel", name="Payload")).to_be_visible()
    expect(page.get_by_role("tabpanel", name="Result")).to_be_hidden()
    page.get_by_role("tab", name="Payload").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Result")).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Result")).to_contain_text("penstock wait a1")
    expect(told).to_have_text("tab Result")
    expect(page.get_by_role("meter", name="Slots of gpu")).to_have_attribute("aria-valuetext", "3 of 4")
    expect(page.get_by_text("65 s")).to_be_visible()
    press(page, "Title")
    expect(page).to_have_title("3 running · Penstock")
