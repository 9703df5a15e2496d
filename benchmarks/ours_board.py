"""The board under load: what twenty who look cost the dispatcher, and how soon they see what happens.

`serve` and all that it dispatches have one core; the board, a real browser and the readers have the other. Chromium
twenty times would need a machine of its own, as it has in real life, so all but one of those who look read what a
browser reads (`board_readers`) and draw nothing. The queue is filled up before each round and tasks take no time:
the dispatcher works as fast as it can, and nobody else writes.

A core beside one that works is slower than one beside an idle one. The board's core is busy in the rounds with
browsers, so it is kept busy in the rounds without them too; rounds beside an idle core are shown as well.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
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
_PATIENCE_MS = 60_000
_GIVES_WAY = 19
_IDLE_ROUNDS = 3
_SETTLED_S = 2.0  # after browsers came or went
_PER_S = 6_000  # tasks at most: so many are queued for each second of a round

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

# Presses a button and waits until its lane shows the word: milliseconds, without the time of what drives the page.
_PRESS = """
([name, word]) => new Promise((shown) => {
  const lane = () => document.querySelector('[data-lane="MARKER"] .badge')?.textContent ?? "";
  const buttons = [...document.querySelectorAll("button")];
  const button = buttons.find((one) => (one.ariaLabel ?? one.textContent).trim() === name);
  const began = performance.now();
  new MutationObserver((_, watch) => {
    if (!lane().includes(word)) return;
    watch.disconnect();
    shown(performance.now() - began);
  }).observe(document, { childList: true, subtree: true, characterData: true });
  button.click();
})
""".replace("MARKER", MARKER)


@dataclass
class Seen:
    """What was measured, in seconds but for the rates."""

    idle: list[float] = field(default_factory=list)  # tasks per second, the other core idle
    busy: list[float] = field(default_factory=list)  # the other core busy with nothing
    looked_at: list[float] = field(default_factory=list)  # the other core busy with the board
    loads: list[float] = field(default_factory=list)
    clicks: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    rss_mb: list[tuple[float, float]] = field(default_factory=list)  # of serve and board, after each round
    least_queued: int = sys.maxsize

    @property
    def fall(self) -> float:
        return _fall(self.busy, self.looked_at)


def _fall(before: list[float], after: list[float]) -> float:
    return 100 * (1 - statistics.median(after) / statistics.median(before))


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


@contextmanager
def _readers(server: Server, count: int) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.board_readers", server.url, str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the readers did not begin")
        yield
        if process.poll() is not None:
            raise RuntimeError("the readers ended too soon")
        least_bytes = int(process.communicate("\n")[0])
        if not least_bytes:
            raise RuntimeError("one who looked was told nothing")
    finally:
        process.kill()
        process.wait()


@contextmanager
def _busy() -> Iterator[None]:
    """The other core works, gives way to everything, and does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "while True: sum(range(100_000))"])
    try:
        psutil.Process(process.pid).nice(_GIVES_WAY)
        yield
    finally:
        process.kill()
        process.wait()


def _make_way() -> None:
    """The browser takes what the board leaves of their core: elsewhere it has one of its own."""
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error):
            if (process.info["name"] or "").startswith("chrom") and process.nice() < _GIVES_WAY:
                process.nice(_GIVES_WAY)


@benchmark(
    "board",
    what="fall of the dispatcher's rate, 20 look at the board",
    unit="%",
    goal=at_most(5),
    once=True,
    timeout_s=2400.0,
)
def board(bench: Bench) -> float:
    queued, looking = bench.size(100_000, 20_000), bench.size(20, 5)
    rounds, round_s = bench.size(10, 3), bench.size(30, 8)
    mine, others = cores()
    os.sched_setaffinity(0, others)
    path = config(bench.folder, HOSTS, SLOTS)
    with serving(path, mine) as server, chromium() as browser:
        rig = _Rig(server, Filler(path, server), browser, queued, looking)
        seen = rig.measured(rounds, round_s)
    bench.notes.extend(_told(seen, looking, rounds * round_s))
    return seen.fall


class _Rig:
    def __init__(self, server: Server, filler: Filler, browser: Browser, queued: int, looking: int) -> None:
        self._server = server
        self._filler = filler
        self._queued = queued
        self._looking = looking
        self._page = browser.new_context().new_page()
        self._page.set_default_timeout(_PATIENCE_MS)
        self._page.add_init_script(_WATCH)
        self._seen = Seen()

    def measured(self, rounds: int, round_s: float) -> Seen:
        seen = self._seen
        self._open()  # the board's process begins with it
        board = self._server.board()
        move(board, cores()[1])
        for number in range(rounds):
            self._page.goto("about:blank")
            if number < _IDLE_ROUNDS:
                seen.idle.append(self._rate(round_s))
            with _busy():
                seen.busy.append(self._rate(round_s))
            with _readers(self._server, self._looking - 1):
                seen.loads.append(self._open())
                seen.looked_at.append(self._rate(round_s, self._page))
                seen.late += [late_ms / 1000 for late_ms in self._page.evaluate("window.__late")]
            serve_mb, board_mb = (one.memory_info().rss / 1e6 for one in (self._server.process, board))
            seen.rss_mb.append((serve_mb, board_mb))
        return seen

    def _open(self) -> float:
        began = time.perf_counter()
        self._page.goto(f"{self._server.url}/board/")
        self._page.locator(".now").wait_for()
        shown_s = time.perf_counter() - began
        _make_way()
        return shown_s

    def _rate(self, seconds: float, page: Page | None = None) -> float:
        """Tasks that ended per second; meanwhile somebody clicks now and then."""
        self._filler.fill(self._queued + int(seconds * _PER_S))
        time.sleep(_SETTLED_S)
        began, before = time.perf_counter(), self._server.ended()
        while (left_s := began + seconds - time.perf_counter()) > 0:
            if page is not None and left_s > 5:
                self._click(page)
            time.sleep(min(max(left_s, 0.0), 1.0))
        rate = (self._server.ended() - before) / (time.perf_counter() - began)
        self._seen.least_queued = min(self._seen.least_queued, self._filler.queued)
        return rate

    def _click(self, page: Page) -> None:
        """Pauses a lane and resumes it, and waits until the page shows it."""
        for act, word in (("Pause", "paused"), ("Resume", "open")):
            name = f"{act} lane {MARKER}"
            page.get_by_role("button", name=name).wait_for()
            self._seen.clicks.append(page.evaluate(_PRESS, [name, word]) / 1000)


def _percentile(figures: list[float], share: float) -> float:
    return sorted(figures)[min(len(figures) - 1, int(len(figures) * share))]


def _told(seen: Seen, looking: int, seconds: float) -> list[str]:
    first, last = seen.rss_mb[0], seen.rss_mb[-1]
    late = [_percentile(seen.late, share) * 1000 for share in (0.5, 0.95)]
    clicks = [_percentile(seen.clicks, share) * 1000 for share in (0.5, 0.95)]
    return [
        f"{seen.least_queued:,} tasks queued at least, {HOSTS} hosts with {SLOTS} slots",
        f"{looking} who look for {seconds:g} s in {len(seen.looked_at)} rounds, one of them a browser",
        f"rate, other core idle  {_rates(seen.idle)}",
        f"rate, other core busy  {_rates(seen.busy)}",
        f"rate, {looking:2} look          {_rates(seen.looked_at)}",
        f"fall, from busy        {seen.fall:8.1f} %",
        f"fall, from idle        {_fall(seen.idle, seen.looked_at):8.1f} %",
        f"event to screen        {late[0]:8.0f} ms, 95 %: {late[1]:.0f} ms ({len(seen.late)} seen)",
        f"page shown             {statistics.median(seen.loads):8.2f} s, longest {max(seen.loads):.2f} s",
        f"click to answer seen   {clicks[0]:8.0f} ms, 95 %: {clicks[1]:.0f} ms ({len(seen.clicks)} clicks)",
        f"memory of serve        {first[0]:8.0f} MB after the first round, {last[0]:.0f} MB after the last",
        f"memory of the board    {first[1]:8.0f} MB after the first round, {last[1]:.0f} MB after the last",
    ]


def _rates(rates: list[float]) -> str:
    middle = statistics.median(rates)
    return f"{middle:8,.0f} tasks/s ({min(rates):,.0f} to {max(rates):,.0f})"
