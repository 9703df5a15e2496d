"""The Now page in a real Chromium: what runs and waits is seen as it changes, and can be paused by click."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from playwright.sync_api import Page, expect

from tests.acceptance.board_rig import Board, Watch, ready
from tests.figures import Tell

# When each task was first seen in a slot, by the browser's clock, which is this machine's.
_SEEN = """
window.__seen = {};
new MutationObserver(() => {
  const slots = document.querySelectorAll("[data-task]");
  for (const slot of slots) window.__seen[slot.dataset.task] ??= Date.now() / 1000;
}).observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-task"] });
"""


@contextmanager
def running(board: Board, name: str, **fields: object) -> Iterator[str]:
    """A task in a slot of birch, until the test is over."""
    task_id = board.submit("long", {"id": name}, priority=0, **fields)
    try:
        yield board.wait_for(task_id, "running")
    finally:
        board.post(f"/api/tasks/{task_id}/cancel")


def opened(page: Page, board: Board) -> Page:
    ready(page, board.at("/"))
    expect(page.locator(".now")).to_be_visible()
    return page


def free_slots(page: Page, host: str) -> int:
    told = page.locator(f'[data-host="{host}"] [data-free]').evaluate_all(
        "all => all.map(one => one.dataset.free)"
    )
    return sum(int(count) for count in told)


def test_a_slot_shows_its_task_and_is_free_when_it_is_over(board: Board, page: Page) -> None:
    """E7: with kind, name and time, without anybody reloading; it leads to the task."""
    opened(page, board)
    with running(board, "now-shown") as task_id:
        slot = page.locator(f'[data-host="birch"] [data-task="{task_id}"]')
        expect(slot).to_contain_text("long")
        expect(slot).to_contain_text("now-shown")
        expect(slot.locator("time")).to_have_text(re.compile(r"^([1-9]|\d+ m )"))
        expect(slot).to_have_attribute("href", f"/board/tasks/{task_id}")
        free = free_slots(page, "birch")
    expect(page.locator(f'[data-task="{task_id}"]')).to_have_count(0)
    assert free_slots(page, "birch") == free + 1


def test_a_change_is_seen_soon_after_its_event(board: Board, page: Page, tell: Tell) -> None:
    """E7: from the moment that the event tells to the moment that the browser shows it; the figure is told.

    That it does not wait for the slow clock is shown in tests/unit/test_board_live.py.
    """
    opened(page, board)
    page.evaluate(_SEEN)
    late_s = []
    for turn in range(5):
        with running(board, f"now-soon-{turn}") as task_id:
            expect(page.locator(f'[data-task="{task_id}"]')).to_be_visible()
            seen_at = page.evaluate("(task) => window.__seen[task]", task_id)
            late_s.append(seen_at - board.get(f"/api/tasks/{task_id}")["started_at"])
    tell(f"from event to screen: {', '.join(f'{late * 1000:.0f} ms' for late in sorted(late_s))}")


def test_all_that_stands_is_told_in_words(board: Board, page: Page) -> None:
    """D6, E7: a host that is down says why, a closed gate says why and since when, waits have their reasons."""
    scene = board.scene
    opened(page, board)
    down = page.locator('[data-host="down"]')
    expect(down.locator(".badge")).to_have_text("✕down")
    expect(down).to_contain_text("Connection refused")
    gate = page.locator('[data-gate="vram"]')
    expect(gate.locator(".badge")).to_have_text("✕closed")
    expect(gate).to_contain_text("3 < 8")
    expect(gate).to_contain_text("holds kinds held")
    expect(page.locator(f'[data-task="{scene.running}"]')).to_contain_text("scene-long")
    expect(page.locator('[data-lane="reports"]')).to_contain_text("of 2")
    expect(page.locator('[data-lane="reports"]')).to_contain_text("1 on birch")
    waits = page.get_by_role("list", name="Queued tasks by what they wait for")
    expect(waits).to_contain_text("gate:vram")
    expect(waits).to_contain_text("host-down")
    expect(page.get_by_role("list", name="Queued tasks by priority").locator("li")).to_have_count(5)
    picture = page.get_by_role("img", name="Tasks ended per minute")
    expect(picture.locator("rect").first).to_be_attached()
    expect(page.get_by_text("Dispatched by penstock serve")).to_be_visible()


def test_a_host_is_paused_and_resumed_by_click(board: Board, page: Page) -> None:
    """E7: the picture shows what the dispatcher did, not what the page hopes."""
    opened(page, board)
    host = page.locator('[data-host="cedar"]')
    page.get_by_role("button", name="Pause host cedar").click()
    expect(host.locator(".badge")).to_have_text("‖paused")
    assert board.get("/api/hosts")["hosts"]["cedar"]["state"] == "paused"
    page.get_by_role("button", name="Resume host cedar").click()
    expect(host.locator(".badge")).to_have_text("●up")


def test_a_lane_is_paused_and_resumed_by_click(board: Board, page: Page) -> None:
    opened(page, board)
    page.get_by_role("button", name="Pause lane bulk").click()
    expect(page.locator('[data-lane="bulk"] .badge')).to_have_text("‖paused")
    page.get_by_role("button", name="Resume lane bulk").click()
    expect(page.locator('[data-lane="bulk"] .badge')).to_have_text("●open")


def test_slots_are_changed_by_click(board: Board, page: Page) -> None:
    opened(page, board)
    host = page.locator('[data-host="cedar"]')
    expect(host).to_contain_text("of 2 slots")
    page.get_by_role("button", name="One more slot for cedar").click()
    expect(host).to_contain_text("of 3 slots")
    assert board.get("/api/hosts")["hosts"]["cedar"]["slots"] == 3
    page.get_by_role("button", name="One less slot for cedar").click()
    expect(host).to_contain_text("of 2 slots")


def test_that_everything_is_paused_is_told(board: Board, page: Page) -> None:
    opened(page, board)
    page.get_by_role("button", name="Pause everything").click()
    banner = page.locator(".banner")
    expect(banner).to_contain_text("Everything is paused")
    lane = page.locator('[data-lane="bulk"]')
    expect(lane).to_contain_text("with everything")
    expect(lane.get_by_role("button")).to_have_count(0)
    page.get_by_role("button", name="Resume everything").click()
    expect(banner).to_have_count(0)
    expect(lane.locator(".badge")).to_have_text("●open")


def test_that_the_dispatcher_stops_is_told(board: Board, page: Page) -> None:
    """Told by what one that stops leaves in the store: the server under this board is wanted by others."""
    opened(page, board)
    leads = page.locator(".crew li").first
    expect(leads).to_contain_text("Dispatched by penstock serve")
    expect(leads).not_to_contain_text("stopping")
    with closing(sqlite3.connect(board.serve.folder / "penstock.db", timeout=30)) as store:
        (epoch,) = store.execute("SELECT max(number) FROM epochs").fetchone()
        row = (f"stopping/{epoch}", str(epoch), "", time.time(), time.time() + 60)
        with store:
            store.execute(
                "INSERT INTO leases (name, owner, note, since, expires_at) VALUES (?, ?, ?, ?, ?)", row
            )
        try:
            expect(leads).to_contain_text("stopping", timeout=30_000)
            expect(page.locator(".banner")).to_contain_text("The dispatcher is stopping")
        finally:
            with store:
                store.execute("DELETE FROM leases WHERE name = ?", row[:1])
    expect(page.locator(".banner")).to_have_count(0, timeout=30_000)


def test_small_slots_are_reached_by_arrows(board: Board, page: Page) -> None:
    """E7: where there are many, the Tab key stops once a host and the arrows at each, which is told in words."""
    opened(page, board)
    board.post("/api/hosts/cedar/slots", {"slots": 500})
    try:
        with running(board, "now-small-1") as first, running(board, "now-small-2") as second:
            host = page.locator('[data-host="birch"]')
            expect(host.locator(f'.slots.small [data-task="{first}"]')).to_be_visible()
            expect(host.locator(f'.slots.small [data-task="{second}"]')).to_be_visible()
            expect(host.locator('a[tabindex="0"]')).to_have_count(1)
            host.locator('a[tabindex="0"]').focus()
            for key in ("Home", "ArrowRight", "ArrowLeft", "End"):
                page.keyboard.press(key)
            last = host.locator("[data-task]").last
            expect(last).to_be_focused()
            task = str(last.get_attribute("data-task"))
            expect(host.locator(".slot-told")).to_contain_text(task)
            expect(host.locator(".slot-told")).to_have_text(re.compile(r"· \d+ (s|m|h|d)"))
            expect(last).to_have_attribute("aria-label", re.compile(rf"task {task}, since "))
    finally:
        board.post("/api/hosts/cedar/slots", {"slots": 2})
    expect(page.locator(".slots.small")).to_have_count(0)


def test_a_stream_that_cannot_be_had_is_told_and_tried_again(
    board: Board, watch_page: tuple[Page, Watch]
) -> None:
    """E7: what is shown then is this moment, from a whole picture."""
    page, watch = watch_page
    page.route("**/live/now", lambda route: route.abort())
    page.goto(board.at("/"))
    expect(page.get_by_text("Connecting…")).to_be_visible()
    page.unroute("**/live/now")
    with running(board, "now-again") as task_id:
        expect(page.locator(f'[data-task="{task_id}"]')).to_be_visible()
    watch.complaints.clear()  # the browser tells of the request that failed


def test_a_stream_that_was_refused_is_asked_for_again(board: Board, watch_page: tuple[Page, Watch]) -> None:
    """E7: browsers themselves give up after any answer but 200; meanwhile nothing can be pressed in vain."""
    page, watch = watch_page
    page.route("**/live/now", lambda route: route.fulfill(status=503, body="the board is starting"), times=2)
    page.goto(board.at("/"))
    expect(page.locator(".now")).to_be_visible()
    expect(page.get_by_role("button", name="Pause everything")).to_be_enabled()
    watch.complaints.clear()


def test_a_plant_that_has_seen_a_task_is_not_called_untouched_and_hosts_tell_what_is_free(
    board: Board, page: Page
) -> None:
    opened(page, board)
    expect(page.get_by_text("No task yet")).to_have_count(0)
    host = page.locator('[data-host="alder"]')
    expect(host).to_contain_text("4 free")
    expect(host.locator(".host-facts a")).to_have_count(0)
