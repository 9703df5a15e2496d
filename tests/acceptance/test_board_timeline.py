"""The board's timeline in a real browser: the picture of `timeline --html`, live, a way to each task (E7, A6)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, expect

from penstock.diagnosis.timeline.page import GENERATOR
from tests.acceptance.board_rig import ENDED, Board, Chromium, looking, ready

EVIL = "<img src=x onerror=\"document.title='taken'\">"
AXIS = 20  # pixels above the first row


def run_of(board: Board, run: str, tasks: list[dict[str, Any]]) -> list[str]:
    ids = board.submit_all(tasks, run=run)
    for task_id in ids:
        board.wait_for(task_id, *ENDED)
    return ids


def drawn(page: Page, board: Board, path: str) -> Page:
    ready(page, board.at(path))
    page.wait_for_selector("#timeline-bars[data-ready=yes][data-rows]")
    return page


def told_by_command(board: Board, run: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "penstock", "timeline", run, "--json"]
    told: dict[str, Any] = json.loads(
        subprocess.run(command, cwd=board.serve.folder, capture_output=True, text=True, check=True).stdout
    )
    return told


def rows_of(page: Page) -> list[list[str]]:
    """The picture as its table tells it."""
    if not page.locator("#timeline-table").evaluate("(one) => one.open"):
        page.click("#timeline-table summary")
    page.wait_for_selector("#timeline-table tbody tr")
    cells = "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText))"
    rows: list[list[str]] = page.locator("#timeline-table tbody tr").evaluate_all(cells)
    return rows


def place(page: Page, row: int) -> tuple[float, float]:
    """Where on the screen the middle of a row is."""
    box = page.locator("#timeline-bars").bounding_box()
    assert box is not None
    told = page.locator("#timeline-bars").evaluate("(one) => ({...one.dataset})")
    return box["x"] + box["width"] * 0.6, box["y"] + AXIS + (row + 0.5) * float(told["rowHeight"])


def test_bars_are_those_of_the_command(board: Board, page: Page) -> None:
    """The same tasks, hosts, states and reasons as `timeline --json` tells (A6)."""
    tasks: list[dict[str, Any]] = [{"kind": "quick"} for _ in range(9)] + [
        {"kind": "broken"},
        {"kind": "echo", "payload": {"say": "hi"}},
    ]
    run_of(board, "drawn-same", tasks)
    told = told_by_command(board, "drawn-same")
    drawn(page, board, "/timeline?run=drawn-same")
    rows = rows_of(page)
    expect(page.locator("#timeline-told")).to_contain_text("11 tasks")
    assert Counter(row[0] for row in rows) == Counter(one["task_id"] for one in told["tasks"])
    assert Counter(row[1] for row in rows) == Counter(one["state"] for one in told["tasks"])
    hosts = {a["host"] for one in told["tasks"] for a in one["attempt_records"]}
    assert {row[4] for row in rows} == hosts
    legend = page.locator("#timeline-legend-waits li").all_inner_texts()
    assert [words.rpartition(",")[0].rpartition(" ")[0].rsplit(" ", 1)[0] for words in legend] == list(
        told["waited_s"]
    )
    names = page.locator("#timeline-legend-hosts li").all_inner_texts()
    assert set(names) == hosts


def test_a_bar_appears_grows_and_ends_while_one_looks(board: Board, page: Page) -> None:
    """Live: without losing zoom and focus (E7)."""
    first = board.submit("long", run="drawn-live")
    board.wait_for(first, "running")
    drawn(page, board, "/timeline?run=drawn-live")
    assert [row[:2] for row in rows_of(page)] == [[first, "running"]]
    bars = page.locator("#timeline-bars")
    expect(bars).not_to_have_attribute("data-to", bars.get_attribute("data-to") or "")
    second = board.submit("long", run="drawn-live")
    body = page.locator("#timeline-table tbody")
    expect(body).to_contain_text(second)
    bars.focus()
    for _ in range(4):
        page.keyboard.press("+")
    page.keyboard.press("Home")
    expect(bars).to_have_attribute("data-from", re.compile("^-"))
    look = bars.evaluate("(one) => [one.dataset.from, one.dataset.to]")
    board.post(f"/api/tasks/{second}/cancel")
    board.wait_for(second, "cancelled")
    expect(body).to_contain_text("cancelled")
    assert bars.evaluate("(one) => [one.dataset.from, one.dataset.to]") == look
    assert page.evaluate("() => document.activeElement.id") == "timeline-bars"
    board.post(f"/api/tasks/{first}/cancel")


def test_a_click_and_a_key_open_the_task(board: Board, page: Page) -> None:
    ids = run_of(board, "drawn-open", [{"kind": "quick"}, {"kind": "quick"}])
    drawn(page, board, "/timeline?run=drawn-open")
    page.mouse.move(*place(page, 0))
    expect(page.locator("#timeline-story")).to_contain_text(ids[0])
    page.mouse.click(*place(page, 0))
    page.wait_for_url(board.at(f"/tasks/{ids[0]}"))
    drawn(page, board, "/timeline?run=drawn-open")
    page.locator("#timeline-bars").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#timeline-story h2")).to_have_text(ids[1])
    expect(page.locator("#timeline-spoken")).to_contain_text(f"{ids[1]}; done; ")
    page.keyboard.press("Enter")
    page.wait_for_url(board.at(f"/tasks/{ids[1]}"))


def test_hostile_names_are_text(board: Board, page: Page) -> None:
    run_of(board, "drawn-evil", [{"kind": "echo", "payload": {"cry": EVIL}, "key": EVIL}])
    drawn(page, board, "/timeline?run=drawn-evil")
    page.mouse.move(*place(page, 0))
    expect(page.locator("#timeline-story")).to_contain_text(EVIL)
    ready(page, board.at(f"/timeline?run={quote(EVIL)}&q={quote(EVIL)}"))
    expect(page.get_by_text(f"There is no run {EVIL}")).to_be_visible()
    assert page.locator("main img").count() == 0
    assert page.title() != "taken"


def test_what_is_shown_can_be_taken_away(board: Board, page: Page, tmp_path: Path) -> None:
    """As a page, as a picture and as data, under names that are safe."""
    run = "drawn.out"
    run_of(board, run, [{"kind": "quick"}, {"kind": "quick"}])
    drawn(page, board, f"/timeline?run={quote(run)}")
    texts = {}
    for words in ("HTML", "SVG", "JSON"):
        with page.expect_download() as waiting:
            page.get_by_role("link", name=words, exact=True).click()
        file = waiting.value
        assert file.suggested_filename == f"timeline-drawn.out.{words.lower()}"
        file.save_as(tmp_path / words)
        texts[words] = (tmp_path / words).read_text()
    assert GENERATOR in texts["HTML"]
    assert ElementTree.fromstring(texts["SVG"]).tag.endswith("svg")
    assert json.loads(texts["JSON"]) == told_by_command(board, run)


def test_the_last_minutes_and_the_runs_to_choose_from(board: Board, page: Page) -> None:
    ids = run_of(board, "drawn-chosen", [{"kind": "quick"}])
    drawn(page, board, "/timeline?since=5m")
    page.get_by_role("searchbox", name="Search").fill(
        ids[0]
    )  # others' tasks may be more than the table has rows
    expect(page.locator("#timeline-bars")).to_have_attribute("data-rows", "1")
    assert [row[0] for row in rows_of(page)] == ids
    expect(page.get_by_role("link", name="Last 5 min")).to_have_attribute("aria-current", "true")
    drawn(page, board, "/timeline?since=6h")
    told = page.locator("#timeline-bars").evaluate("(one) => one.dataset.to - one.dataset.from")
    assert float(told) < 3600, "from the first thing in it on, and not six hours"
    page.get_by_label("Name begins with").fill("drawn-cho")
    page.get_by_role("button", name="Find").click()
    page.get_by_role("link", name="drawn-chosen").click()
    page.wait_for_url(board.at("/timeline?run=drawn-chosen"))
    expect(page.locator("#timeline-told")).to_contain_text("1 task")
    ready(page, board.at("/timeline?run=nobody"))
    expect(page.get_by_text("There is no run nobody")).to_be_visible()


@pytest.mark.parametrize(("query", "status"), [("run=nobody", 404), ("run=drawn-none&after=x", 404)])
def test_a_run_that_is_not_there_is_refused_in_words(board: Board, query: str, status: int) -> None:
    reply = board.http.get(f"/board/data/timeline?{query}")
    assert reply.status_code == status
    assert "no run" in reply.json()["error"]["message"]
    assert board.http.get("/board/data/timeline.exe?since=5m").status_code == 404


def test_it_fits_a_phone_in_the_dark(board: Board, chromium: Chromium) -> None:
    run_of(board, "drawn-narrow", [{"kind": "quick"}])
    with looking(chromium, board, scheme="dark", width=375) as (page, _):
        drawn(page, board, "/timeline?run=drawn-narrow")
        assert page.evaluate("() => document.documentElement.scrollWidth") == 375
        pixel = page.locator("#timeline-bars").evaluate(
            "(one) => [...one.getContext('2d').getImageData(1, 1, 1, 1).data]"
        )
        assert max(pixel[:3]) < 64
