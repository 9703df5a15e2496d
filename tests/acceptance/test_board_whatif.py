"""E7: what other slots and limits would have brought a run, on the board."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.acceptance.board_rig import Board, ready
from tests.acceptance.recorded_run import KEY, RUN, command, record, take_in


@pytest.fixture(scope="module")
def run(board: Board) -> str:
    return take_in(board)


@pytest.fixture
def asked(board: Board, run: str, page: Page) -> Page:
    ready(page, board.at(f"/whatif?run={run}"))
    expect(limit(page)).to_be_visible()
    return page


def limit(page: Page) -> Locator:
    return page.get_by_role("group", name="lane pages").get_by_label("max_running", exact=True)


def makespan(page: Page) -> Locator:
    return page.locator("[data-figure=makespan]")


def answered(page: Page) -> Locator:
    return page.get_by_role("region", name="What it would bring").and_(page.locator("[aria-busy=false]"))


def test_a_slider_moved_by_keyboard_gives_the_figures_of_the_command(board: Board, asked: Page) -> None:
    """E3, E7: every cell of the tables is a figure that the command prints for the same settings."""
    limit(asked).focus()
    asked.keyboard.press("ArrowRight")
    asked.keyboard.press("ArrowRight")
    expect(limit(asked)).to_have_attribute("aria-valuetext", "3")
    printed = command(board, "whatif", RUN, "--set", f"{KEY}=3")
    (told,) = re.findall(r"^makespan +(\S+ \S+) +(\S+ \S+) +(\S+ %)$", printed, re.MULTILINE)
    expect(makespan(asked)).to_contain_text(f"{told[0]} → {told[1]}")
    expect(makespan(asked)).to_contain_text(told[2])
    expect(answered(asked)).to_be_visible()
    words = " ".join(printed.split())
    for row in asked.locator(".tables tbody tr").all()[:3]:
        cells = [cell for cell in row.locator("th, td").all_inner_texts() if cell]
        assert " ".join(" ".join(cells).split()) in words


def test_the_curve_is_that_of_the_command(board: Board, asked: Page) -> None:
    """E3, E7: its points and its knee, drawn and as a table; drawn anew when another knob has moved."""
    limit(asked).focus()
    asked.keyboard.press("ArrowRight")
    expect(asked.locator(".chart .knee")).to_be_visible()
    told = record(board, "whatif", RUN, "--sweep", f"{KEY}=1..8")["sweep"]
    dots = asked.locator(".chart .dot")
    expect(dots).to_have_count(len(told["points"]))
    expect(asked.get_by_text(f"the knee is at {told['knee']}")).to_be_visible()
    asked.locator(".curve").get_by_text("As a table").click()
    rows = asked.get_by_role("region", name="The curve as a table").locator("tbody tr")
    printed = command(board, "whatif", RUN, "--sweep", f"{KEY}=1..8")
    for place, point in enumerate(told["points"]):
        value, makespan_, waited = rows.nth(place).locator("th, td").all_inner_texts()[:3]
        assert value == str(point["value"])
        assert re.search(rf"^{value} +{makespan_} +{waited}", printed, re.MULTILINE)
    before = asked.locator(".chart .line").get_attribute("points")
    asked.get_by_role("spinbutton", name="host quill, slots, as a number").fill("1")
    asked.keyboard.press("Enter")
    expect(asked.get_by_role("heading", name="Makespan by slots of host quill")).to_be_visible()
    expect(dots).to_have_count(7)  # with one slot, which is reserved for another lane, it would never end
    expect(rows.first).to_contain_text("never")
    assert asked.locator(".chart .line").get_attribute("points") != before


def test_the_same_can_be_had_as_a_command(board: Board, asked: Page) -> None:
    limit(asked).focus()
    asked.keyboard.press("End")
    expect(limit(asked)).to_have_attribute("aria-valuetext", "no limit")
    asked.get_by_role("spinbutton", name="host quill, slots, as a number").fill("6")
    asked.keyboard.press("Enter")
    asked.get_by_text("Copy as command").press(
        "Enter"
    )  # a pointer could miss it: the answer above it grows meanwhile
    told = asked.get_by_role("region", name="The same as a command")
    expect(told).to_have_text(f"penstock whatif {RUN} --unset {KEY} --set hosts.quill.slots=6")
    lines = asked.get_by_role("region", name="Lines for penstock.toml")
    expect(lines).to_have_text(f"# leave out {KEY}\nhosts.quill.slots = 6")
    after = record(board, *(told.inner_text().split()[1:]))["after"]["makespan_s"]
    expect(makespan(asked)).to_contain_text(f"→ {after:.1f} s")


def test_what_cannot_be_is_told_in_words(board: Board, asked: Page) -> None:
    """A reserve that no longer fits its host: the words of the command."""
    group = asked.get_by_role("group", name="lane chat")
    expect(group.locator("details")).to_have_count(0)  # what is reserved is not folded away
    group.get_by_role("spinbutton", name="lane chat, reserve on quill, as a number").fill("4")
    asked.keyboard.press("Enter")
    asked.get_by_role("spinbutton", name="host quill, slots, as a number").fill("2")
    asked.keyboard.press("Enter")
    expect(asked.get_by_role("alert").first).to_contain_text("lanes.chat.reserve.quill")
    asked.get_by_role("button", name="As it was").click()
    expect(asked.get_by_role("alert")).to_have_count(0)
    expect(answered(asked)).to_be_visible()


def test_a_run_that_never_ends_is_told_so_and_its_waits_are_drawn(board: Board, page: Page) -> None:
    """E3: of a run that goes on replay is compared with replay; reserves of nothing are folded."""
    tasks = [{"kind": "quick", "lane": "bulk"} for _ in range(3)]
    ids = board.submit_all([*tasks, {"kind": "held", "lane": "bulk"}], run="whatif-held")
    for task_id in ids[:3]:
        board.wait_for(task_id, "done")
    ready(page, board.at("/whatif?run=whatif-held"))
    expect(page.locator("main").get_by_role("status").first).to_contain_text("the run is not over")
    expect(page.locator("[data-figure='mean wait']")).to_contain_text("no change")
    expect(page.get_by_role("list", name="Notes")).to_contain_text("the run is not over")
    group = page.get_by_role("group", name="lane bulk")
    slots = page.get_by_role("spinbutton", name="host birch, slots, as a number")
    expect(group.get_by_label("reserve on birch", exact=True)).to_be_hidden()
    group.locator("summary").click()
    expect(group.get_by_label("reserve on birch", exact=True)).to_be_visible()
    slots.fill("90")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Mean wait by slots of host birch")).to_be_visible()
    expect(page.get_by_text("With none of these values the run would end")).to_be_visible()
    expect(page.locator(".chart .dot")).not_to_have_count(0)
    expect(page.locator(".chart text.strong")).to_have_attribute("text-anchor", "end")
    board.post(f"/api/tasks/{ids[3]}/cancel")
