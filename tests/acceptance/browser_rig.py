"""A real Chromium for tests: Debian's, driven by Playwright, with a watch on what a page does behind one's back."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

WITHOUT_NETLINK = Path(__file__).with_name("without_netlink.py")
NAMES = ("chromium", "chromium-browser", "google-chrome")
# Beside other tests a page is as slow as it may be, and so is what it has to start first.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)


@dataclass
class Watched:
    """What a page asked for and complained about."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@contextmanager
def browser() -> Iterator[Browser]:
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium here; tools/system-packages.sh chromium installs Debian's")
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        starter = Path(folder) / "chromium"
        words = [sys.executable, "-I", str(WITHOUT_NETLINK), program]
        starter.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        starter.chmod(0o700)
        # Its sandbox needs rights that root in a container does not have; /dev/shm may be tiny there.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        started = playwright.chromium.launch(executable_path=starter, args=arguments)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def opened(
    browser: Browser, url: str, *, scheme: Literal["light", "dark"] = "light", width: int = 1200
) -> Iterator[tuple[Page, Watched]]:
    watched = Watched()
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.set_default_timeout(PATIENCE_MS)

    def note(request: Request) -> None:
        watched.requests.append(request.url)

    page.on("request", note)
    page.on("console", lambda message: watched.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: watched.complaints.append(str(error)))
    page.on("dialog", lambda dialog: watched.complaints.append(f"dialog: {dialog.message}"))
    try:
        page.goto(url)
        yield page, watched
    finally:
        page.close()
