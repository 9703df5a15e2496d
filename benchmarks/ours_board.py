"""The board under load: what many browsers cost the dispatcher, and how soon they show what happens.

`serve` and all that it dispatches have one core, the board and the browsers the other, with and without
browsers alike: in real life browsers stand on machines of their own. They give way to the board, and share among
them what is left of its core, so what they show is late by that. The queue is kept full and tasks take no time, so
that the dispatcher works as fast as it can.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from benchmarks.board_server import MARKER, Filler, Server, config, cores, move, serving
from benchmarks.frame import Bench, CannotRun, at_most, benchmark

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTS = 50
SLOTS = 4
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE_MS = 180_000
_GIVES_WAY = 19
_SETTLED_S = 2.0  # after browsers came or went

# When the marker lane was seen to change, and when its event says that it did.
_WATCH = """
window.__late = [];
let before = null;
new MutationObserver(() => {
  const since = document.querySelector('[data-lane="MARKER"]')?.dataset.since;
  if (!since || since === before) return;
  if (before !== null) window.__late.push(Date.now() - since * 1000);
  before = since;
}).observe(document, { childList: true, subtree: true, attributes: true, characterData: true });
""".replace("MARKER", MARKER)


@dataclass
class Seen:
    """What was measured, in seconds but for the rates."""

    without: list[float] = field(default_factory=list)  # tasks per second
    with_them: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    clicks: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    rss_mb: list[tuple[float, float]] = field(default_factory=list)  # of serve and board, after each round

    @property
    def fall(self) -> float:
        without = statistics.median(self.without)
        return 100 * (without - statistics.median(self.with_them)) / without


@contextmanager
def chromium() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise CannotRun("playwright is not installed") from None
    program = next((found for name in _CHROMIUM if (found := shutil.which(name))), None)
    if program is None:
        raise CannotRun("no Chromium here")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


def _make_way() -> None:
    """Browsers take what the board and the filler leave of their core: elsewhere they have one of their own."""
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error):
            if (process.info["name"] or "").startswith("chrom") and process.nice() < _GIVES_WAY:
                process.nice(_GIVES_WAY)


@benchmark(
    "board",
    what="fall of the dispatcher's rate, 20 browsers on the board",
    unit="%",
    goal=at_most(5),
    once=True,
    timeout_s=1800.0,
)
def board(bench: Bench) -> float:
    queued, browsers = bench.size(100_000, 20_000), bench.size(20, 5)
    rounds, round_s = bench.size(5, 3), bench.size(60, 10)
    mine, others = cores()
    os.sched_setaffinity(0, others)
    path = config(bench.folder, HOSTS, SLOTS)
    with serving(path, mine) as server:
        filler = Filler(path, server, queued)
        filler.start()
        try:
            filler.wait_full()
            with chromium() as browser:
                seen = _measured(server, browser, browsers, rounds, round_s)
        finally:
            filler.stop()
    bench.notes.extend(_told(seen, queued, browsers, rounds * round_s))
    return seen.fall


def _measured(server: Server, browser: Browser, browsers: int, rounds: int, round_s: float) -> Seen:
    seen = Seen()
    pages = [browser.new_context().new_page() for _ in range(browsers)]
    for page in pages:
        page.set_default_timeout(_PATIENCE_MS)
        page.add_init_script(_WATCH)
    _open(server, pages[0])  # the board's process begins with it
    board = server.board()
    _, others = cores()
    for _ in range(rounds):
        for page in pages:
            page.goto("about:blank")
        time.sleep(_SETTLED_S)
        seen.without.append(_rate(server, round_s, []))
        for page in pages:
            seen.loads.append(_open(server, page))
            _make_way()
        move(board, others)
        time.sleep(_SETTLED_S)
        seen.with_them.append(_rate(server, round_s, seen.clicks, pages[0]))
        for page in pages:
            seen.late += [late_ms / 1000 for late_ms in page.evaluate("window.__late")]
        seen.rss_mb.append(tuple(one.memory_info().rss / 1e6 for one in (server.process, board)))  # type: ignore[arg-type]
    return seen


def _open(server: Server, page: Page) -> float:
    began = time.perf_counter()
    page.goto(f"{server.url}/board/", timeout=_PATIENCE_MS)
    page.locator(".now").wait_for(timeout=_PATIENCE_MS)
    return time.perf_counter() - began


def _rate(server: Server, seconds: float, clicks: list[float], page: Page | None = None) -> float:
    """Tasks that ended per second; meanwhile somebody clicks now and then."""
    began, before = time.perf_counter(), server.ended()
    end = began + seconds
    paused = False
    while (left_s := end - time.perf_counter()) > 0:
        if page is None or left_s < 3:
            time.sleep(min(left_s, 1.0))
            continue
        pressed = time.perf_counter()
        page.get_by_role("button", name=f"{'Resume' if paused else 'Pause'} lane {MARKER}").click()
        paused = not paused
        word = "paused" if paused else "open"
        page.locator(f'[data-lane="{MARKER}"] .badge', has_text=word).wait_for()
        clicks.append(time.perf_counter() - pressed)
        time.sleep(1.0)
    rate = (server.ended() - before) / (time.perf_counter() - began)
    if paused and page is not None:
        page.get_by_role("button", name=f"Resume lane {MARKER}").click()
    return rate


def _percentile(figures: list[float], share: float) -> float:
    return sorted(figures)[min(len(figures) - 1, int(len(figures) * share))]


def _told(seen: Seen, queued: int, browsers: int, seconds: float) -> list[str]:
    first, last = seen.rss_mb[0], seen.rss_mb[-1]
    late = [_percentile(seen.late, share) * 1000 for share in (0.5, 0.95)]
    clicks = [_percentile(seen.clicks, share) * 1000 for share in (0.5, 0.95)]
    return [
        f"{queued:,} tasks queued, {HOSTS} hosts with {SLOTS} slots, {browsers} browsers for {seconds:g} s",
        f"rate without browsers  {statistics.median(seen.without):8,.0f} tasks/s  {_each(seen.without)}",
        f"rate with browsers     {statistics.median(seen.with_them):8,.0f} tasks/s  {_each(seen.with_them)}",
        f"fall                   {seen.fall:8.1f} %",
        f"event to screen        {late[0]:8.0f} ms, 95 %: {late[1]:.0f} ms ({len(seen.late)} seen)",
        f"page shown             {statistics.median(seen.loads):8.2f} s, longest {max(seen.loads):.2f} s",
        f"click to answer seen   {clicks[0]:8.0f} ms, 95 %: {clicks[1]:.0f} ms ({len(seen.clicks)} clicks)",
        f"memory of serve        {first[0]:8.0f} MB after the first round, {last[0]:.0f} MB after the last",
        f"memory of the board    {first[1]:8.0f} MB after the first round, {last[1]:.0f} MB after the last",
    ]


def _each(rates: list[float]) -> str:
    return "(" + ", ".join(f"{rate:,.0f}" for rate in rates) + ")"
