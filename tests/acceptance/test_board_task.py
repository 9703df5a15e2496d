"""The page of a task in a real browser: what it shows, what can be done there, and that it follows (E7, D6)."""

from __future__ import annotations

import re
import socket

from playwright.sync_api import Page, expect

from tests.acceptance.board_rig import Board, Watch, ready
from tests.acceptance.serve_rig import PATIENCE_S, until

HOSTILE = '</script><script>alert("ran")</script><img src=x onerror=alert(2)>'


def opened(board: Board, page: Page, task_id: str) -> Page:
    return ready(page, board.at(f"/tasks/{task_id}"))


def agree(page: Page, label: str) -> None:
    """Press a button, and again in the dialog that asks."""
    page.get_by_role("button", name=label).click()
    page.get_by_role("dialog").get_by_role("button", name=label).click()


def test_e7_a_running_task_is_cancelled_and_retried_by_click(board: Board, page: Page) -> None:
    task_id = board.wait_for(board.submit("long", {"for": "cancel"}), "running")
    opened(board, page, task_id)
    headline = page.locator(".headline")
    expect(headline).to_contain_text("running")
    expect(headline).to_contain_text("Attempt 1 runs on birch")
    badge, meaning = (headline.locator(one).bounding_box() for one in (".badge", ".meaning"))
    assert badge
    assert meaning
    assert meaning["x"] > badge["x"] + badge["width"]  # they are in one line
    retry = page.get_by_role("button", name="Retry")
    expect(retry).to_be_disabled()

    agree(page, "Cancel task")
    expect(headline).to_contain_text("cancelled")
    assert board.state(task_id) == "cancelled"
    expect(page.get_by_role("button", name="Cancel task")).to_be_disabled()
    expect(page.get_by_role("button", name="Cancel task")).to_be_focused()
    expect(headline.get_by_role("status")).to_contain_text("cancelled")  # told aloud

    retry.click()
    expect(headline).to_contain_text("running")
    expect(page.get_by_role("region", name="Every attempt").locator("tbody tr")).to_have_count(2)
    board.post(f"/api/tasks/{task_id}/cancel")
    expect(headline).to_contain_text("cancelled")


def test_e7_a_task_that_is_not_wanted_gone_stays(board: Board, page: Page) -> None:
    opened(board, page, board.scene.queued)
    page.get_by_role("button", name="Cancel task").click()
    page.get_by_role("dialog").get_by_role("button", name="No, go back").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert board.state(board.scene.queued) == "queued"


def test_e7_priority_is_changed_by_click_and_the_page_keeps_focus_selection_and_scroll(
    board: Board, page: Page
) -> None:
    task_id = board.submit("held", {"story": "line\n" * 200}, priority=3)
    opened(board, page, task_id)
    page.get_by_label("Priority", exact=True).select_option("1 – urgent")
    page.get_by_role("button", name="Change priority").click()
    priority = page.locator("dl.facts > div", has_text="Priority").locator("dd")
    expect(priority).to_have_text("1 – urgent")
    assert board.get(f"/api/tasks/{task_id}")["priority"] == 1

    # Both in parts that are shown anew: what does not differ must stay the very same.
    page.locator("dl.facts > div", has_text="Run").locator("dd").select_text()
    page.locator("dl.facts > div", has_text="Kind").get_by_role("link").focus()
    page.mouse.wheel(0, 300)
    seen = "() => [document.activeElement.textContent, getSelection().toString(), Math.round(scrollY)]"
    until(lambda: page.evaluate("scrollY") > 0, lambda: "it does not scroll")
    before = page.evaluate(seen)
    assert before[0] == "held"
    assert "timeline" in before[1]
    board.post(f"/api/tasks/{task_id}/priority", {"priority": 4})
    expect(priority).to_have_text("4 – least urgent")
    assert page.evaluate(seen) == before
    board.post(f"/api/tasks/{task_id}/cancel")


def test_d6_the_stretches_of_a_wait_add_up_to_the_wait(board: Board, page: Page) -> None:
    opened(board, page, board.scene.queued)
    table = page.get_by_role("region", name="What it waited for")
    expect(table).to_contain_text("gate:vram")
    expect(page.locator("dl.facts > div", has_text="Would help")).to_contain_text("gates.vram.min")
    waited, stretches, shares = page.evaluate(
        """() => [
          Number(document.getElementById("waited").dataset.seconds),
          [...document.querySelectorAll(".why [data-seconds]")].map((one) => Number(one.dataset.seconds)),
          [...document.querySelectorAll(".strip i")].map((one) => parseFloat(one.style.width)),
        ]"""
    )
    assert waited > 0
    assert abs(sum(stretches) - waited) < 1e-4 * len(stretches) + 1e-6
    assert len(shares) == len(stretches)
    assert abs(sum(shares) - 100) < 0.1


def test_hostile_payload_result_error_and_log_are_text(board: Board, page: Page) -> None:
    """E7: whatever somebody puts into a task, the page shows it and does nothing with it."""
    said = board.wait_for(board.submit("echo", {"say": HOSTILE, "id": HOSTILE}), "done")
    opened(board, page, said)
    expect(page.get_by_role("region", name="Payload as text")).to_contain_text("<img src=x onerror=alert(2)>")
    expect(page.get_by_role("region", name="Result as text")).to_have_text(HOSTILE)
    cried = board.wait_for(board.submit("echo", {"cry": HOSTILE}, lane="bulk"), "failed")
    opened(board, page, cried)
    expect(page.get_by_role("region", name="Error")).to_contain_text(HOSTILE)
    expect(page.get_by_role("region", name="Every attempt")).to_contain_text(HOSTILE)
    expect(page.get_by_role("region", name="Log of attempt 1")).to_contain_text(HOSTILE)
    assert page.locator("main img, main script").count() == 0


def test_a_log_is_followed_while_its_attempt_runs(board: Board, page: Page) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        port = server.getsockname()[1]
        steps = ["print first <b>words</b>", f"ring {port} a", "print second words", f"ring {port} b"]
        query = "; ".join(f"research {step}" for step in steps)
        task_id = board.submit("research", query)
        first, _ = server.accept()
        opened(board, page, task_id)
        log = page.get_by_role("region", name="Log of attempt 1")
        expect(log).to_contain_text("first <b>words</b>")
        expect(log).not_to_contain_text("second")
        expect(page.get_by_text("live: it runs")).to_be_visible()
        first.sendall(b"go on\n")
        second, _ = server.accept()
        expect(log).to_contain_text("second words")
        second.sendall(b"go on\n")
        expect(page.locator(".headline")).to_contain_text("done")
        expect(page.get_by_text("this is all")).to_be_visible()
        first.close()
        second.close()


def test_a_long_payload_is_cut_and_can_be_had_whole(board: Board, page: Page) -> None:
    """A page is never drowned: what is long is fetched when it is asked for, what is too long only saved."""
    task_id = board.submit("held", {"text": "word " * 40_000})
    opened(board, page, task_id)
    text = page.get_by_role("region", name="Payload as text")
    assert len(text.inner_text()) < 25_000
    page.get_by_role("button", name=re.compile("Show all 200")).click()
    expect(page.get_by_role("button", name=re.compile("Show all"))).to_have_count(0)
    assert len(text.inner_text()) > 190_000
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download payload").click()
    assert saved.value.suggested_filename == f"{task_id}.payload.json"
    board.post(f"/api/tasks/{task_id}/cancel")

    huge = board.submit("held", "x" * 6_000_000)
    opened(board, page, huge)
    expect(page.get_by_text("6.0 MB are too much for a page")).to_be_visible()
    assert board.http.get(f"/board/data/tasks/{huge}/payload").status_code == 413
    whole = board.http.get(f"/board/data/tasks/{huge}/payload?download=1")
    assert len(whole.content) == 6_000_000
    assert whole.headers["content-disposition"].startswith("attachment")
    assert whole.headers["content-type"].startswith("text/plain")
    board.post(f"/api/tasks/{huge}/cancel")


def test_a_beginning_of_an_id_leads_to_the_task_and_an_unknown_one_says_what_to_do(
    board: Board, watch_page: tuple[Page, Watch]
) -> None:
    page, watch = watch_page
    task_id = board.submit("quick", {}, id="board-prefix-000001")
    opened(board, page, "board-prefix-0000")
    assert page.url == board.at(f"/tasks/{task_id}")
    expect(page.locator(".task-id code")).to_have_text(task_id)
    answer = page.goto(board.at("/tasks/no-such-task"))
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_text("There is no task no-such-task")).to_be_visible()
    expect(page.get_by_role("link", name="Search the queue")).to_be_visible()
    watch.complaints.clear()  # the browser's, of the status


def test_a_question_leads_to_its_council_and_its_steps_to_it(board: Board, page: Page) -> None:
    asked = board.post("/api/councils/sages/ask", {"query": "What is a penstock?", "mode": "council"})
    question = asked["id"]
    board.wait_for(question, "done")
    opened(board, page, question)
    council = page.get_by_role("link", name="sages: its answers")
    expect(council).to_have_attribute("href", f"/board/council?council=sages&question={question}")
    steps = page.get_by_role("region", name="Steps of this question")
    expect(steps).to_contain_text("AMBER")
    steps.get_by_role("link").first.click()
    expect(page.get_by_role("link", name=f"question {question}")).to_be_visible()
