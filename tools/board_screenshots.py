"""Takes the pictures of the board that the docs show: each page light, dark and narrow.

    python -m tools.board_screenshots                          all of them, into docs/assets/board
    python -m tools.board_screenshots --out FOLDER --page now  one page

A real `penstock serve` is started with made-up work (`tools/board_plant.py`), and looked at with Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from playwright.sync_api import Browser, sync_playwright

from tools.board_plant import RUN, Plant, at_work

OUT = Path(__file__).parent.parent / "docs" / "assets" / "board"
MOST_BYTES = 150_000
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


def take(out: Path, names: Sequence[str]) -> list[Path]:
    """The files, each as small as the docs want them."""
    out.mkdir(parents=True, exist_ok=True)
    taken = []
    with tempfile.TemporaryDirectory() as folder, at_work(Path(folder)) as plant, _browser() as browser:
        for look in LOOKS:
            context = browser.new_context(
                viewport={"width": look.width, "height": look.height},
                color_scheme=look.scheme,
                reduced_motion="reduce",
            )
            page = context.new_page()
            for name in names:
                page.goto(f"{plant.url}/board{_path(plant, name)}")
                page.locator("header [data-state=live]").wait_for()
                page.wait_for_timeout(_SETTLE_MS)
                file = out / f"{name}-{look.name}.png"
                page.screenshot(path=file)
                taken.append(file)
            context.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.board_screenshots")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder for them")
    parser.add_argument("--page", choices=PAGES, action="append", help="only this page; may be repeated")
    given = parser.parse_args()
    taken = take(given.out, given.page or list(PAGES))
    for file in taken:
        print(f"{file} {file.stat().st_size / 1000:.0f} KB")
    large = [file.name for file in taken if file.stat().st_size > MOST_BYTES]
    if large:
        raise SystemExit(f"over {MOST_BYTES / 1000:g} KB: {', '.join(large)}; show less on them")


if __name__ == "__main__":
    main()
