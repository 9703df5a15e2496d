"""D6, E7: the Council page in a real browser: asked and answered, watched, cancelled, followed up, found again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from playwright.sync_api import Locator, Page, Route, expect

from tests.acceptance.access_rig import findings, overflow
from tests.acceptance.board_rig import HUSH, MEMBERS, Board, ready

NAMES = [name.upper() for name in MEMBERS]
HOSTILE = "<img src=x onerror=alert(1)>"
LONG = "/a/very/long/path" * 30  # nothing scrolls sideways for it
PATIENCE_MS = 60_000


def cards(page: Page) -> Locator:
    return page.locator(".card")


def ask(page: Page, query: str) -> None:
    page.get_by_role("textbox", name=re.compile("^(Follow-up q|Q)uestion$")).fill(query)
    page.get_by_role("button", name="Ask", exact=True).click()


def id_in(page: Page) -> str:
    page.wait_for_url("**/board/council?council=sages&question=*")
    return page.url.rpartition("=")[2]


def test_d6_six_answers_are_watched_as_they_come_and_cancelled(board: Board, page: Page) -> None:
    """Ctrl+Enter asks; all six have text before one of them is done; Cancel ends them all."""
    ready(page, board.at("/council"))
    page.get_by_label("Question", exact=True).fill(f"Does the dam {HUSH} hold?")
    page.keyboard.press("Control+Enter")
    expect(cards(page)).to_have_count(6)
    expect(page.locator(".question .query")).to_be_focused()
    expect(cards(page).first).to_be_in_viewport()
    for name in NAMES:
        card = page.get_by_role("region", name=name, exact=True)
        expect(card.get_by_role("group", name=f"What {name} says")).not_to_be_empty()
        expect(card.locator(".state")).to_contain_text(re.compile(r"answering · \d+\.\d s"))
        expect(card.get_by_role("link", name="task")).to_have_attribute(
            "href", re.compile(r"^/board/tasks/\w+$")
        )
    expect(page.locator(".members .count")).to_have_text("0 of 6 answered")
    expect(page.get_by_role("region", name="Answer", exact=True)).to_contain_text("have not answered yet")
    question = id_in(page)
    listed = page.get_by_role("region", name="History").get_by_role("listitem").first
    expect(listed).to_contain_text("running")
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator(".question-state")).to_contain_text("cancelled")
    expect(cards(page).locator(".state").first).to_contain_text("cancelled")
    assert board.state(question) == "cancelled"
    expect(listed).to_contain_text("cancelled")
    page.reload()
    expect(page.locator(".question-state")).to_contain_text("cancelled")


def test_d6_asked_answered_reloaded_followed_and_found(board: Board, page: Page) -> None:
    """By click, thoroughly; hostile words are text; the address leads back to it; reports are taken away."""
    ready(page, board.at("/council"))
    page.get_by_label(re.compile("^thorough")).check()
    query = f"Is {HOSTILE} **safe** to show?"
    page.get_by_label("Question", exact=True).fill(query)
    expect(page.locator(".estimate")).to_contain_text("calls")
    ask(page, query)
    question = id_in(page)
    expect(page.locator(".question-state")).to_contain_text("answered", timeout=PATIENCE_MS)
    check_answered(page)
    page.reload()
    check_answered(page)
    assert not findings(page)
    page.set_viewport_size({"width": 375, "height": 800})
    assert overflow(page) == 0
    page.set_viewport_size({"width": 1280, "height": 800})
    report = board.http.get(f"/board/data/council/sages/{question}/report.md")
    assert report.headers["content-disposition"] == 'attachment; filename="council-report.md"'
    assert "# A question to the council" in report.text
    assert board.http.get(f"/board/data/council/sages/{question}/report.html").text.startswith(
        "<!doctype html>"
    )
    assert board.http.get("/board/data/council/sages/nonesuch/report.md").status_code == 404
    follow_up(board, page, question)


def check_answered(page: Page) -> None:
    expect(page.locator(".members .count")).to_have_text("6 of 6 answered")
    for name in NAMES:
        state = page.get_by_role("region", name=name, exact=True).locator(".state")
        expect(state).to_contain_text(re.compile(r"answered in \d+\.\d s"))
    expect(page.get_by_role("region", name="Answer", exact=True)).to_contain_text("Summed up by CHAIR")
    expect(page.get_by_role("region", name="Review")).to_contain_text("Kendall's W")
    expect(page.get_by_role("table", name="Ranking").get_by_role("rowheader")).to_have_count(6)
    expect(page.get_by_role("region", name="Agreement", exact=True)).to_contain_text("of 1, measured")
    expect(page.locator(".question .query")).to_contain_text(HOSTILE)
    expect(page.locator(".question .query strong")).to_have_text("safe")
    expect(page.locator("main img")).to_have_count(0)


def follow_up(board: Board, page: Page, before: str) -> None:
    page.get_by_role("button", name="Ask a follow-up").click()
    expect(page.get_by_label("Follow-up question")).to_be_focused()
    page.get_by_label(re.compile("^quick")).check()
    for name in NAMES[1:]:
        page.get_by_role("checkbox", name=name).uncheck()
    ask(page, "And by night?")
    expect(cards(page)).to_have_count(1)
    expect(page.locator(".question-state")).to_contain_text("answered", timeout=PATIENCE_MS)
    expect(page.get_by_role("region", name="Answer", exact=True)).to_contain_text(
        "One answer alone, not a synthesis"
    )
    told = board.get(f"/api/councils/sages/questions/{before}")
    turns = board.get(f"/api/councils/sages/conversations/{told['conversation']}")["turns"]
    assert [one["query"] for one in turns][1:] == ["And by night?"]
    history = page.get_by_role("region", name="History")
    expect(history.get_by_role("link", name="And by night?")).to_have_attribute("aria-current", "true")
    history.get_by_role("link", name="conversation").first.click()
    expect(history.get_by_role("listitem")).to_have_count(2)
    history.get_by_role("searchbox").fill("safe** to")
    history.get_by_role("button", name="Find").click()
    expect(history.get_by_role("listitem")).to_have_count(1)
    history.get_by_role("listitem").get_by_role("link").first.click()
    assert id_in(page) == before


# ---- what only some questions have


def told_as(events: Sequence[Mapping[str, Any]]) -> str:
    frames = [
        f"id: record-{number}\nevent: {one['event']}\ndata: {json.dumps(one)}\n\n"
        for number, one in enumerate(events, 1)
    ]
    return "retry: 1000\n\n" + "".join(frames)


def heard(step: str, text: str) -> dict[str, Any]:
    return {"event": "text", "step": step, "name": step.partition("/")[2], "text": text}


def test_sources_failures_and_text_that_counts_no_more(board: Board, page: Page) -> None:
    """Passages and answers of anybody's are text; [1] leads to its passage; a retried attempt's text is dropped."""
    question = board.post("/api/councils/sages/ask", {"query": f"{HUSH}, and with sources?"})["id"]
    passage = {"n": 1, "source": "dam.md", "heading": "Crest", "score": 0.9, "text": f"It holds. {HOSTILE}"}
    synthesis = {
        "by": "BASALT",
        "method": "list",
        "text": f"- It holds [1], not [2]\n- [the manual](https://example.com/m) {HOSTILE}\n\n```\n<b>x</b>\n```",
        "sources": [{"n": 1, "source": "dam.md"}],
        "passed_on": [{"name": "CHAIR", "error": "HTTP 500"}],
        "dissent": [{"name": "COPPER", "claim": f"It leaks {HOSTILE} {LONG}"}],
    }
    agreement = {"measured": False, "why": f"the library is away {LONG}"}
    responses = [
        {"name": "BASALT", "state": "answered", "success": True, "answer": "Yes", "response_time": 3.2},
        {"name": "COPPER", "state": "failed", "success": False, "error": f"HTTP 500: no model {LONG}"},
    ]
    record = {
        "responses": responses,
        "synthesis": synthesis,
        "agreement": agreement,
        "retrieval": {"used": True, "collection": "kb", "how": "words", "passages": [passage]},
        "limits": ["the review was left out: it would cost too much"],
        "success_count": 1,
        "total_fighters": 6,
        "quorum": {"needed": 2, "met": False},
    }
    events = [
        heard("member/AMBER", "the first try"),
        {"event": "again", "step": "member/AMBER", "name": "AMBER"},
        heard("member/AMBER", "**the second** *try*"),
        {"event": "failed", "error": f"nobody summed up {LONG}", "record": record},
    ]

    def answered(route: Route) -> None:
        route.fulfill(content_type="text/event-stream", body=told_as(events))

    page.route("**/api/councils/sages/questions/*/events", answered)
    ready(page, board.at(f"/council?council=sages&question={question}"))
    amber = page.get_by_role("region", name="AMBER", exact=True)
    expect(amber.locator(".said strong")).to_have_text("the second")
    expect(amber).not_to_contain_text("first try")
    expect(page.get_by_role("region", name="BASALT", exact=True)).to_contain_text("answered in 3.2 s")
    expect(page.get_by_role("region", name="COPPER", exact=True)).to_contain_text(
        "failed: HTTP 500: no model"
    )
    answer = page.get_by_role("region", name="Answer", exact=True)
    for words in ("not a synthesis", "CHAIR was to sum up and could not", "COPPER: It leaks", "not [2]"):
        expect(answer).to_contain_text(words)
    expect(answer.locator("pre")).to_have_text("<b>x</b>")
    expect(answer).to_contain_text("the manual (https://example.com/m)")
    answer.get_by_role("link", name="Passage 1").click()
    assert page.url.endswith("#passage-1")
    expect(page.locator("#passage-1")).to_contain_text(f"It holds. {HOSTILE}")
    expect(page.get_by_role("region", name="Passages")).to_contain_text("found by words alone")
    expect(page.get_by_role("region", name="Agreement")).to_contain_text(
        "Claims not compared: the library is away"
    )
    expect(page.locator(".question")).to_contain_text("the review was left out")
    expect(page.locator(".sums")).to_contain_text("quorum of 2 not met")
    expect(page.locator("main img")).to_have_count(0)
    expect(page.locator("main a[href^='https:']")).to_have_count(0)
    page.set_viewport_size({"width": 375, "height": 800})
    assert overflow(page) == 0
    board.post(f"/api/councils/sages/questions/{question}/cancel")


def test_an_address_that_leads_nowhere_says_so(board: Board, page: Page) -> None:
    ready(page, board.at("/council?council=sagse"))
    expect(page.locator("main")).to_contain_text("There is no council 'sagse'")
    ready(page, board.at("/council?council=sages&question=nonesuch"))
    expect(page.locator("main")).to_contain_text("nonesuch")
    expect(page.get_by_label("Question", exact=True)).to_be_visible()
