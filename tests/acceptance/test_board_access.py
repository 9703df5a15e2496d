"""Each page of the board, for everybody: axe-core, the keyboard alone, a phone, hostile text (E7, D6, A6)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from penstock.diagnosis.timeline.axis import seconds
from penstock.web.board.words import URGENCY
from tests.acceptance.access_rig import PHONE_PX, findings, injected, overflow, walked
from tests.acceptance.board_rig import EVIL, Board, Chromium, Scene, connected, looking, ready, small_plant

PAGES = {
    "now": "/",
    "queue": "/queue",
    "timeline": "/timeline?run={run}",
    "diagnose": "/diagnose?run={run}",
    "whatif": "/whatif?run={run}",
    "council": "/council",
    "agents": "/agents",
    "setup": "/setup",
    "task": "/tasks/{failed}",
}
SHOWN = {"queue", "task"}  # where the hostile text must be read


def path_of(name: str, scene: Scene) -> str:
    return PAGES[name].format(run=scene.run, failed=scene.hostile)


@pytest.fixture(scope="module")
def scene(board: Board) -> Scene:
    return board.scene


def test_these_are_all_pages(board: Board, page: Page) -> None:
    """One main, one header, one way to the others; the tests below miss no page."""
    ready(page, board.at("/"))
    menu = page.get_by_role("navigation", name="Pages").get_by_role("link")
    told = [link.get_attribute("href") for link in menu.all()]
    known = ["/board" + path.partition("?")[0] for path in PAGES.values() if "{failed}" not in path]
    assert told == known
    expect(page.locator("main")).to_have_count(1)
    expect(page.get_by_role("banner")).to_have_count(1)
    expect(page.get_by_role("navigation", name="Pages")).to_have_count(1)
    expect(menu.and_(page.locator("[aria-current=page]"))).to_have_text("Now")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everybody(name: str, board: Board, scene: Scene, page: Page) -> None:
    """E7: no serious finding, light or dark; Tab reaches all in order and is seen; a phone is wide enough."""
    ready(page, board.at(path_of(name, scene)))
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_role("main")).not_to_have_text("")
    assert findings(page) == []
    page.emulate_media(color_scheme="dark")
    assert findings(page, "color-contrast") == []
    told = walked(page)
    assert told["reached"] >= len(PAGES), told
    assert (told["missed"], told["unseen"], told["back"]) == ([], [], [])
    page.set_viewport_size({"width": PHONE_PX, "height": 740})
    assert overflow(page) <= 0
    if name in SHOWN:
        expect(page.get_by_text(EVIL).first).to_be_attached()
    assert injected(page) == []


def test_nothing_there_yet_says_what_to_do(tmp_path: Path, chromium: Chromium) -> None:
    """Each page of a plant that has done nothing tells what to do next."""
    with small_plant(tmp_path) as board, looking(chromium, board) as (page, watch):
        for name, path in PAGES.items():
            if name == "task":
                continue
            ready(page, board.at(path.partition("?")[0]))
            expect(page.locator("main .empty").first, name).to_be_visible()
        ready(page, board.at("/tasks/nobody"))
        expect(page.locator("main .empty")).to_contain_text("nobody")
        watch.complaints = [one for one in watch.complaints if "404" not in one]


# ---- the frame


def test_colours_are_chosen_and_kept(board: Board, page: Page) -> None:
    """D6: as the system has them, light or dark; before the first paint, so that nothing flashes."""
    ready(page, board.at("/setup"))
    grounds = set()
    for _ in range(3):
        page.get_by_role("button", name=re.compile("Colours")).click()
        theme = page.evaluate("document.documentElement.dataset.chosenTheme")
        grounds.add((theme, page.evaluate("getComputedStyle(document.body).backgroundColor")))
    assert {theme for theme, _ in grounds} == {"auto", "light", "dark"}
    assert len({ground for _, ground in grounds}) == 2
    page.get_by_role("button", name="Colours: auto").click()
    page.get_by_role("button", name="Colours: light").click()
    ready(page, board.at("/queue"))
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()


def test_times_and_priorities_are_told_as_everywhere_else(board: Board, page: Page) -> None:
    """D6: 3m05s on every page, as the command line says it, by a clock of 24 hours; and one word for a priority."""
    ready(page, board.at("/tasks/" + board.scene.queued))
    amounts = [0.0, 0.042, 0.31, 9.2, 12.4, 61.2, 185.0, 7_800.0, 273_600.0]
    told = page.evaluate(
        """async (amounts) => {
          const { exactMoment, shortMoment, spoken } = await import("/board/files/clock.js");
          const { URGENCY } = await import("/board/words.js");
          const evening = new Date(2001, 1, 3, 21, 5, 6) / 1000;
          const today = new Date().setHours(21, 5, 6) / 1000;
          return [amounts.map(spoken), shortMoment(today), exactMoment(evening), URGENCY];
        }""",
        amounts,
    )
    assert told[0] == [seconds(amount) for amount in amounts]
    assert told[1] == "21:05:06"
    assert "21:05:06.000" in told[2]
    assert told[3] == list(URGENCY)
    priority = page.locator("dl.facts > div", has=page.get_by_text("Priority", exact=True))
    expect(priority).to_contain_text("1 – urgent")


def test_keys_go_to_pages_but_not_while_typing(board: Board, page: Page) -> None:
    ready(page, board.at("/setup"))
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_be_visible()
    expect(keys).to_contain_text("Timeline")
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/board/queue")
    connected(page)
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox").first).to_be_focused()
    page.keyboard.type("g s?")
    expect(page.get_by_role("searchbox").first).to_have_value("g s?")
    expect(keys).to_be_hidden()
    assert "/board/queue" in page.url


def test_the_skip_link_leads_past_the_menu(board: Board, page: Page) -> None:
    ready(page, board.at("/setup"))
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_a_lost_connection_is_said(board: Board, page: Page) -> None:
    """The header says whether what is shown is live, in a live region."""
    ready(page, board.at("/setup"))
    said = page.locator("header [role=status]")
    expect(said).to_have_text("Live")
    page.evaluate("window.socket.disconnect()")
    expect(said).to_have_text("Connection lost; trying again")
    page.evaluate("window.socket.connect()")
    expect(said).to_have_text("Live")
