"""E7, B6: the Agents page in a real browser, on a real container: started, called, read and stopped by click."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from penstock.agents.engine.containers import home_of
from tests.acceptance.access_rig import findings, overflow
from tests.acceptance.board_rig import Board, Chromium, looking, ready
from tests.acceptance.containers import PYTHON_IMAGE, ContainerEngine, container_engine
from tests.acceptance.serve_rig import PATIENCE_S, serving

__all__ = ["container_engine"]

CONFIG = f"""
[agents.reports]
image = "{PYTHON_IMAGE}"
path = "reports"
limits = {{ pids = 0 }}
"""
HANDLER = """
echo "rendering $1" >&2
printf '%s' "$1"
exit "${2:-0}"
"""
HOSTILE = "<img src=x onerror=alert(1)>"
START_MS = 60_000


@pytest.fixture
def yard(container_engine: ContainerEngine, tmp_path: Path) -> Iterator[Board]:
    """A `serve` with an agent, whose containers are all gone afterwards."""
    (tmp_path / "reports" / "handlers").mkdir(parents=True)
    (tmp_path / "reports" / "handlers" / "render.sh").write_text(HANDLER)
    home = home_of(str(tmp_path / "penstock.db.agents"))
    with (
        serving(tmp_path, CONFIG, env=dict(container_engine.environ)) as serve,
        httpx.Client(base_url=serve.root_url, timeout=PATIENCE_S, verify=False) as http,
    ):
        board = Board(serve, http)
        board.wait_until_up()
        yield board
        http.post("/api/agents/reports/stop", json={"now": True})
    assert not container_engine.left(home)


def test_an_agent_is_started_called_read_and_stopped(
    yard: Board, chromium: Chromium, container_engine: ContainerEngine
) -> None:
    with looking(chromium, yard) as (page, _):
        ready(page, yard.at("/agents"))
        expect(page.get_by_role("table", name="Containers of reports")).to_be_visible()
        expect(page.get_by_role("region", name="Log")).to_contain_text("No container runs")
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.get_by_text("reports has a container that answers.")).to_be_visible(timeout=START_MS)
        containers = page.get_by_role("table", name="Containers of reports").get_by_role("rowheader")
        expect(containers).to_have_count(1)
        (made,) = yard.get("/api/agents/reports/containers")["containers"]
        expect(containers).to_have_text(made["container"][:12])
        expect(page.get_by_role("group", name="Log of reports")).to_contain_text("agent-server: listening")
        call(page)
        assert not findings(page)
        page.set_viewport_size({"width": 375, "height": 800})
        assert overflow(page) == 0
        page.set_viewport_size({"width": 1280, "height": 800})
        page.get_by_role("button", name="Stop", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
        expect(page.get_by_text("1 container stopped.")).to_be_visible(timeout=START_MS)
        expect(containers).to_have_count(0)
        assert not yard.get("/api/agents/reports/containers")["containers"]


def call(page: Page) -> None:
    """Its output as text, its end with the task; then one that fails, with its exit status."""
    form = page.get_by_role("form", name="Call reports")
    form.get_by_label("Command").fill("render")
    form.get_by_label("Parameters").fill(HOSTILE)
    form.get_by_role("button", name="Call").click()
    expect(form.locator(".call-end")).to_contain_text("exit status 0")
    output = form.get_by_role("group", name="Output")
    expect(output).to_contain_text(f"rendering {HOSTILE}")
    expect(output.locator(".stderr")).to_contain_text("rendering")
    expect(page.locator("main img")).to_have_count(0)
    expect(form.get_by_role("link", name="task")).to_be_visible()
    form.get_by_label("Parameters").fill("torn\n3")
    page.keyboard.press("Control+Enter")
    expect(form.locator(".call-end")).to_contain_text("failed exit status 3")
    form.get_by_label("Parameters").fill("{torn")
    form.get_by_role("button", name="Call").click()
    expect(form.get_by_role("alert")).to_contain_text("is not JSON")
    expect(page.locator(".figure", has_text="Calls answered")).to_contain_text("of 2")


def test_without_an_agent_it_says_how_to_have_one(board: Board, page: Page) -> None:
    ready(page, board.at("/agents"))
    expect(page.get_by_text("There is no agent yet.")).to_be_visible()
    expect(page.get_by_role("group", name="Example")).to_contain_text("[agents.reports]")
