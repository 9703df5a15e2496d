"""Takes pictures of the board: each page light, dark and narrow.

    python -m tools.board_screenshots                          those that the docs show, into docs/assets/board
    python -m tools.board_screenshots --out FOLDER             all of them
    python -m tools.board_screenshots --out FOLDER --page now  one page

A real `penstock serve` is started with made-up work (`tools/board_plant.py`), and looked at with Chromium.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from tools.board_plant import RUN, Plant, at_work

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "assets" / "board"
MOST_BYTES = 200_000
_SETTLE_MS = 1500  # for what is drawn after a page is there: pictures, curves, the first figures
PAGES = {
    "now": "/",
    "queue": "/queue?run=research",
    "timeline": f"/timeline?run={RUN}",
    "diagnose": f"/diagnose?run={RUN}",
    "whatif": f"/whatif?run={RUN}",
    "council": "/council?council=sages&question={question}",
    "agents": "/agents",
    "setup": "/setup",
    "task": "/tasks/{task}",
}


class Look(NamedTuple):
    name: str
    scheme: Literal["light", "dark"]
    width: int
    height: int


LOOKS = (
    Look("light", "light", 1280, 800),
    Look("dark", "dark", 1280, 800),
    Look("narrow", "light", 375, 740),
)


@contextmanager
def _browser() -> Iterator[Browser]:
    program = next((found for name in ("chromium", "google-chrome") if (found := shutil.which(name))), None)
    if program is None:
        raise SystemExit("no Chromium here; tools/system-packages.sh chromium installs Debian's")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield started
        finally:
            started.close()


def _path(plant: Plant, name: str) -> str:
    failed = plant.tasks(run=RUN, state="failed", kind="convert")
    return PAGES[name].format(task=failed[0]["task_id"], question=plant.question)


def in_docs() -> set[str]:
    """The names of pictures that some page shows."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return {name for page in pages for name in re.findall(r"assets/board/([\w-]+\.png)", page.read_text())}


def _act(page: Page, name: str) -> None:
    """What somebody would do first on a page to see what it is for."""
    if name == "diagnose":
        page.locator(".finding-head").first.wait_for()
        if page.locator(".finding-head").first.get_attribute("aria-expanded") != "true":
            page.locator(".finding-head").first.click()
    elif name == "whatif":
        group = page.get_by_role("group", name="lane archive")
        group.get_by_label("max_running", exact=True).press("ArrowRight")
        page.locator(".chart .knee").wait_for()
    elif name == "council":
        page.locator(".card").first.wait_for()
        page.locator(".question").evaluate("(one) => one.scrollIntoView()")


def take(out: Path, wanted: Collection[str]) -> list[Path]:
    """The files of these names, each as small as the docs want them."""
    has_agent = any(name.startswith("agents") for name in wanted)
    with (
        tempfile.TemporaryDirectory() as folder,
        at_work(Path(folder), has_agent=has_agent) as plant,
        _browser() as browser,
    ):
        return pictures(browser, lambda name: f"{plant.url}/board{_path(plant, name)}", out, wanted)


def pictures(browser: Browser, url: Callable[[str], str], out: Path, wanted: Collection[str]) -> list[Path]:
    """Of the board that has its pages at these addresses."""
    out.mkdir(parents=True, exist_ok=True)
    taken = []
    for look in LOOKS:
        context = browser.new_context(
            viewport={"width": look.width, "height": look.height},
            color_scheme=look.scheme,
            reduced_motion="reduce",
        )
        page = context.new_page()
        for name in PAGES:
            file = out / f"{name}-{look.name}.png"
            if file.name not in wanted:
                continue
            page.goto(url(name))
            page.locator("header [data-state=live]").wait_for()
            _act(page, name)
            page.wait_for_timeout(_SETTLE_MS)
            page.screenshot(path=file)
            taken.append(file)
        context.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.board_screenshots")
    parser.add_argument("--out", type=Path, help="a folder for all of them, not only for what the docs show")
    parser.add_argument("--page", choices=PAGES, action="append", help="only this page; may be repeated")
    given = parser.parse_args()
    pages = given.page or list(PAGES)
    wanted = {f"{name}-{look.name}.png" for name in pages for look in LOOKS}
    taken = take(given.out or OUT, wanted if given.out else wanted & in_docs())
    for file in taken:
        print(f"{file} {file.stat().st_size / 1000:.0f} KB")
    large = [file.name for file in taken if file.stat().st_size > MOST_BYTES]
    if large:
        raise SystemExit(f"over {MOST_BYTES / 1000:g} KB: {', '.join(large)}; show less on them")


if __name__ == "__main__":
    main()
