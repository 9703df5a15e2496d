"""The queue page in a real browser: search, filters in the address, pages of the store, a selection (D6, E7)."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from penstock.web.board.queue_actions import may_change
from penstock.web.board.viewer import Viewer
from tests.acceptance.board_rig import Board, ready

# The fixtures `board`, `chromium` and `page` are those of the rig.
ROWS = ".queue-table tbody tr"
MANY = 1_010


def rows(page: Page) -> Locator:
    return page.locator(ROWS)


def row_of(page: Page, task_id: str) -> Locator:
    return page.locator(ROWS, has=page.get_by_role("link", name=task_id, exact=True))


def state_of(page: Page, task_id: str) -> Locator:
    return row_of(page, task_id).locator(".badge")


def told(page: Page) -> Locator:
    return page.locator(".queue-count")


def confirm(page: Page, name: str, asked: str) -> None:
    page.get_by_role("button", name=name).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(asked)
    dialog.get_by_role("button", name="Yes, do it").click()


def test_search_and_filters_stand_in_the_address(board: Board, page: Page) -> None:
    one, other = board.submit_all(
        [
            {"kind": "held", "id": "queue-aster", "priority": 0},
            {"kind": "held", "id": "queue-briar", "lane": "bulk"},
        ],
        run="queue-filters",
    )
    ready(page, board.at("/queue?run=queue-filters"))
    expect(rows(page)).to_have_count(2)
    expect(told(page)).to_have_text("2 tasks match")
    wider = "all => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"
    assert page.locator(".queue-filters .field").evaluate_all(wider) == []  # none lies on the next
    expect(row_of(page, one)).to_contain_text("gate:vram")
    expect(rows(page).first).to_contain_text(other)
    page.get_by_label("Order").select_option(
        "next to start first"
    )  # the more urgent, though it came first too
    expect(rows(page).first).to_contain_text(one)
    expect(page.get_by_label("State")).to_have_value("queued")
    expect(page).to_have_url(re.compile(r"state=queued&run=queue-filters&order=next$"))
    expect(page.get_by_role("button", name="Later")).to_be_disabled()
    page.get_by_label("State").select_option("")
    expect(page.get_by_label("Order")).to_have_value("")
    expect(rows(page).first).to_contain_text(other)
    page.keyboard.press("/")
    search = page.get_by_role("searchbox", name="Search")
    expect(search).to_be_focused()
    search.fill("queue-br")
    expect(rows(page)).to_have_count(1)
    expect(row_of(page, other)).to_be_visible()
    expect(told(page)).to_have_text("1 task matches")
    aloud = page.locator(".queue-count + [role=status]")
    expect(aloud).to_have_text("1 task matches")  # it was asked for
    expect(page).to_have_url(re.compile(r"q=queue-br&run=queue-filters$"))
    expect(search).to_be_focused()
    page.go_back()
    expect(rows(page)).to_have_count(2)
    expect(search).to_have_value("")
    page.get_by_label("Priority", exact=True).select_option("0")
    expect(rows(page)).to_have_count(1)
    expect(row_of(page, one)).to_be_visible()
    page.get_by_label("State").select_option("failed")
    expect(page.get_by_text("No task fits")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel…")).to_be_hidden()
    expect(page.locator(".queue-table")).to_be_hidden()
    page.get_by_label("State").select_option("")
    expect(state_of(page, one)).to_contain_text("queued")
    board.post(f"/api/tasks/{one}/cancel")
    expect(state_of(page, one)).to_contain_text("cancelled")  # by itself
    page.get_by_label("State").select_option("blocked")
    page.get_by_role("button", name="Clear all filters").click()
    expect(page).to_have_url(board.at("/queue"))
    expect(told(page)).to_contain_text("tasks in all")


def test_more_than_a_thousand_are_paged_by_the_store(board: Board, page: Page) -> None:
    run = "queue-thousand"
    board.submit_all([{"kind": "held", "id": f"qt-{n:04}", "lane": "bulk"} for n in range(MANY)], run=run)
    ready(page, board.at(f"/queue?run={run}"))
    expect(told(page)).to_have_text("1,010 tasks match")
    expect(rows(page)).to_have_count(50)
    expect(rows(page).first).to_contain_text("qt-1009")
    expect(page.get_by_role("button", name="Newer")).to_be_disabled()
    page.get_by_role("button", name="Older").click()
    expect(rows(page).first).to_contain_text("qt-0959")
    page.get_by_role("button", name="Older").click()
    expect(rows(page).first).to_contain_text("qt-0909")
    page.get_by_role("button", name="Newer").click()
    expect(rows(page).first).to_contain_text("qt-0959")
    page.go_back()
    expect(rows(page).first).to_contain_text("qt-0909")
    page.get_by_role("button", name="Select all 1,010 that match").click()
    expect(page.get_by_text("All 1,010 that match selected")).to_be_visible()
    confirm(page, "Cancel…", "Cancel all 1,010 tasks that match?")
    expect(page.get_by_text("1,010 tasks cancelled or stopping.")).to_be_visible()
    counts = board.get(f"/api/runs/{run}")["states"]
    assert counts["cancelled"] == MANY


def test_a_selection_is_moved_cancelled_and_queued_again(board: Board, page: Page) -> None:
    ids = board.submit_all([{"kind": "held", "id": f"queue-act-{n}"} for n in range(3)], run="queue-act")
    ready(page, board.at("/queue?run=queue-act"))
    expect(rows(page)).to_have_count(3)
    expect(page.get_by_role("button", name="Cancel…")).to_be_disabled()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name=ids[2], exact=True)).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press(" ")
    expect(page.get_by_role("checkbox", name=f"Select {ids[1]}")).to_be_checked()
    expect(page.get_by_text("1 selected")).to_be_visible()
    board.submit("quick", run="queue-act-beside")  # what is recorded beside must not take the selection away
    page.get_by_role("checkbox", name=f"Select {ids[0]}").check()
    page.get_by_label("New priority").select_option("0")
    confirm(page, "Set priority…", "Change the priority of 2 tasks to 0?")
    expect(page.get_by_text("2 tasks moved.")).to_be_visible()
    assert [board.get(f"/api/tasks/{id}")["priority"] for id in ids] == [0, 0, 2]
    page.get_by_role("checkbox", name="Select all rows shown").check()
    confirm(page, "Cancel…", "Cancel 3 tasks?")
    for id in ids:
        expect(state_of(page, id)).to_contain_text("cancelled")
    page.get_by_role("checkbox", name=f"Select {ids[2]}").check()
    confirm(page, "Retry…", "Retry 1 task?")
    expect(state_of(page, ids[2])).to_contain_text("queued")
    expect(
        page.get_by_role("button", name="Retry…")
    ).to_be_focused()  # whoever acts by keyboard stays where he was
    page.get_by_role("link", name=ids[2], exact=True).focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(board.at(f"/tasks/{ids[2]}"))


def test_hostile_names_are_text(board: Board, page: Page) -> None:
    ready(page, board.at(f"/queue?run={board.scene.run}&state=failed"))
    expect(rows(page)).to_have_count(2)
    expect(page.locator(".queue-table")).to_contain_text("<img src=x onerror=window.__pwned=1>")
    assert page.evaluate("window.__pwned") is None


def test_who_may_only_look_has_no_buttons_and_is_told_why() -> None:
    """The bar is left out for him: see `queue_actions.Actions`."""
    assert may_change(Viewer("ada", ("read", "submit", "admin"))) is None
    assert may_change(Viewer("nightly", ("read", "submit"), lane="fast")) is None
    for scopes in (("read",), ("read", "submit")):
        assert "may look only" in (may_change(Viewer("guest", scopes)) or "")
