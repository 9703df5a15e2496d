"""E7: the findings of a run on the board, with their evidence on its timeline."""

from __future__ import annotations

from pathlib import Path

import httpx
import psutil
import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.board_rig import Board, ready
from tests.acceptance.recorded_run import RUN, record, take_in
from tests.acceptance.serve_rig import PATIENCE_S

HOSTILE = '<img src=x onerror="alert(1)">'
LOGS = Path(__file__).parents[2] / "examples" / "records"


@pytest.fixture(scope="module")
def run(board: Board) -> str:
    return take_in(board)


@pytest.fixture
def diagnosed(board: Board, run: str, page: Page) -> Page:
    ready(page, board.at(f"/diagnose?run={run}"))
    expect(page.locator(".finding").first).to_be_visible()
    return page


def test_findings_are_those_of_the_command(board: Board, diagnosed: Page) -> None:
    """E2, E7: the same names, causes, evidence and remedies, in the same order."""
    told = record(board, "diagnose", RUN)
    assert told["findings"]
    heads = diagnosed.locator(".finding-head")
    expect(heads).to_have_count(len(told["findings"]))
    for place, finding in enumerate(told["findings"]):
        head, body = heads.nth(place), diagnosed.locator(".finding-body").nth(place)
        expect(head).to_contain_text(finding["name"])
        expect(head).to_contain_text(finding["severity"])
        head.click()
        expect(body).to_contain_text(finding["cause"])
        expect(body).to_contain_text(finding["remedy"])
        for fact in finding["evidence"]["facts"]:
            expect(body).to_contain_text(fact)
    expect(diagnosed.locator("main").get_by_role("status").first).to_contain_text(
        f"{RUN}: {told['tasks']} tasks"
    )


def test_the_chosen_finding_is_marked_on_the_timeline(board: Board, diagnosed: Page) -> None:
    """By keyboard: the evidence of the finding is in the list of what is marked, and its explanation is there."""
    finding = record(board, "diagnose", RUN)["findings"][0]
    head = diagnosed.locator(".finding-head").first
    head.focus()
    diagnosed.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-expanded", "true")
    marked = diagnosed.get_by_role("region", name="Marked").get_by_role("button")
    for task in finding["evidence"]["tasks"][:10]:
        expect(marked.filter(has_text=task)).to_have_count(1)
    expect(marked.filter(has_text=finding["evidence"]["hosts"][0])).to_have_count(1)
    expect(marked.filter(has_text=" to ")).to_have_count(min(6, len(finding["evidence"]["spans"])))
    diagnosed.get_by_text(f"What is {finding['name']}?").click()
    expect(diagnosed.locator(".finding-body").first).to_contain_text("On a timeline: ")


def test_a_run_that_is_well_says_what_was_looked_for(board: Board, page: Page) -> None:
    task = board.wait_for(board.submit("quick", {"for": "diagnose"}, run="diagnose-well"), "done")
    ready(page, board.at("/diagnose?run=diagnose-well"))
    expect(page.get_by_text("Found nothing wrong")).to_be_visible()
    expect(page.locator("dt", has_text="stalled-loop")).to_be_visible()
    assert board.state(task) == "done"


def test_an_unknown_run_is_told_in_words(board: Board, page: Page, run: str) -> None:
    ready(page, board.at("/diagnose?run=serial-pagez"))
    expect(page.get_by_role("alert")).to_contain_text(f"did you mean '{RUN}'?")


def test_a_log_of_another_system_is_diagnosed(board: Board, page: Page, run: str) -> None:
    """E2: given by a file field; names in it are text."""
    ready(page, board.at(f"/diagnose?run={run}"))
    page.get_by_text("Diagnose a log of another system").click()
    page.get_by_label("Log").set_input_files(LOGS / "report-run.csv")
    page.get_by_role("button", name="Diagnose").click()
    expect(page.locator(".finding-name").first).to_have_text("stalled-loop")
    expect(page.get_by_role("region", name="Marked").get_by_role("button")).not_to_have_count(0)
    log = (
        (LOGS / "report-run.csv")
        .read_text()
        .replace("gptr-1,", f'"{HOSTILE.replace(chr(34), chr(34) * 2)}",')
    )
    page.get_by_label("Log").set_input_files(
        {"name": "hostile.csv", "mimeType": "text/csv", "buffer": log.encode()}
    )
    page.get_by_role("button", name="Diagnose").click()
    expect(page.locator(".finding-body").first).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0


def test_a_log_that_cannot_be_read_is_told_in_words(board: Board, page: Page, run: str) -> None:
    ready(page, board.at(f"/diagnose?run={run}"))
    page.get_by_text("Diagnose a log of another system").click()
    page.get_by_role("button", name="Diagnose").click()
    expect(page.get_by_role("alert")).to_have_text("choose a file first")
    page.get_by_label("Log").set_input_files(
        {"name": "torn.csv", "mimeType": "text/csv", "buffer": b"task,started,ended\na,12:00:00,yesterday\n"}
    )
    page.get_by_role("button", name="Diagnose").click()
    expect(page.get_by_role("alert")).to_contain_text("torn.csv:2")


def test_the_analyst_is_begun_again_and_goes_with_the_board(board: Board, run: str) -> None:
    """One that was killed is another at the next question."""
    path = f"{board.origin}/board/data/diagnose?run={run}"

    def found() -> psutil.Process:
        children = psutil.Process(board.serve.pid).children(recursive=True)
        (one,) = [child for child in children if "penstock.web.board.analyst" in child.cmdline()]
        return one

    assert '"findings"' in httpx.get(path, timeout=PATIENCE_S, verify=False).text
    first = found()
    first.kill()
    first.wait(10)
    assert '"findings"' in httpx.get(path, timeout=PATIENCE_S, verify=False).text
    assert found().pid != first.pid
