"""C10, D9: `penstock compare` as a person runs it: real servers, real processes, a real browser for its page.

What it measures depends on the machine; orders, counts and who is done do not.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser

import penstock
from penstock.compare.contenders import CONTENDERS, LEGACY, OURS
from tests.acceptance.browser_rig import opened

COMMAND = [sys.executable, "-m", "penstock", "compare"]
STORIES = ("death",)
PATIENCE_S = 60.0


class Played:
    def __init__(self, folder: Path, data: dict[str, Any]) -> None:
        self.page = folder / "compare.html"
        self.data = data
        self.by_name = {one["name"]: one for one in data["workloads"]}

    def of(self, story: str, contender: str) -> dict[str, Any]:
        found: dict[str, Any] = next(
            one for one in self.by_name[story]["contenders"] if one["contender"] == contender
        )
        return found


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("compare")
    ended = subprocess.run(
        [*COMMAND, *STORIES, "--scale", "0.007", "--json", "--html", "compare.html"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr
    assert [one.name for one in folder.iterdir()] == ["compare.html"], "nothing else is left behind"
    return Played(folder, json.loads(ended.stdout))


def test_every_way_plays_every_story(played: Played) -> None:
    assert played.data["ok"]
    machine = played.data["machine"]
    assert (machine["version"], machine["cores"]) == (penstock.__version__, os.cpu_count())
    assert machine["load"] >= 0
    assert tuple(played.by_name) == STORIES
    for one in played.by_name.values():
        assert [c["contender"] for c in one["contenders"]] == list(CONTENDERS)
        assert all(c["error"] is None and c["makespan_s"] >= one["ideal_s"] for c in one["contenders"])
        assert all(c["peak_memory_mb"] > 5 and c["threads"] >= 1 for c in one["contenders"])
        assert "Penstock took the host out, kept its tasks waiting as host-down" in one["shows"]
        assert one["verdict"]


@pytest.mark.parametrize("name", CONTENDERS)
def test_no_way_gives_a_host_more_than_its_slots(played: Played, name: str) -> None:
    assert [played.of(story, name)["over_full"] for story in STORIES] == [0]


@pytest.mark.parametrize("name", CONTENDERS)
def test_when_a_host_dies_only_a_store_keeps_its_tasks(played: Played, name: str) -> None:
    figures = played.of("death", name)
    assert figures["done"] + len(figures["failed"]) == 34
    assert figures["lost"] == []
    assert any(span["fate"] == "aborted" for span in figures["spans"]), "it died in mid-call"
    if name in (LEGACY, OURS):
        assert figures["done"] == 34
        assert "host-down" in figures["noticed"]
    else:
        assert figures["failed"]
        assert all(task.startswith("tests-") for task in figures["failed"]), "coding had another host"
        assert figures["noticed"] == ""


def test_d9_processes_cost_memory_where_nothing_computes(played: Played) -> None:
    """D9: I/O-bound work does not pay for processes, but in the process pool."""
    processes = {name: played.of("death", name)["processes"] for name in CONTENDERS}
    assert {name: count for name, count in processes.items() if count > 1}.keys() == {"process_pool"}
    assert processes["process_pool"] >= 7


# ---- the page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_every_way_of_every_story_and_fetches_nothing(
    played: Played, browser: Browser, scheme: Any
) -> None:
    with opened(browser, played.page.as_uri(), scheme=scheme) as (page, watched):
        assert page.locator("article").count() == len(STORIES)
        assert f"Penstock {penstock.__version__} on " in page.locator("header .machine").inner_text()
        assert page.locator("#death > p").first.inner_text() == played.by_name["death"]["shows"]
        assert page.locator("figure").count() == len(STORIES) * len(CONTENDERS)
        for name in STORIES:
            figures = page.locator(f"#{name} figure")
            bars = sum(len(played.of(name, c)["spans"]) for c in CONTENDERS)
            assert figures.locator("svg g").count() == bars
            assert figures.locator("figcaption").all_inner_texts()[-1].startswith("Penstock")
            lines = page.locator(f"#{name} table").first.locator("tbody tr")
            assert lines.count() == len(CONTENDERS)
        assert page.locator("#death svg .down").count() == len(CONTENDERS)
        assert page.locator("#death svg .broken").count() >= len(CONTENDERS)
        grounds = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert grounds == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")
        assert watched.requests == [played.page.as_uri()]
        assert watched.complaints == []


def test_the_page_fits_a_narrow_screen(played: Played, browser: Browser) -> None:
    with opened(browser, played.page.as_uri(), width=400) as (page, _):
        assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_no_text_of_the_page_is_markup() -> None:
    from dataclasses import replace

    from penstock.compare.judge import Figures
    from penstock.compare.match import Comparison
    from penstock.compare.page import page
    from penstock.compare.stories import STORIES as ALL

    evil = '"><script>alert(1)</script>{{STYLE}}'
    council = ALL["council"]
    workload = replace(council.workload, title=evil, name=evil)
    story = replace(council, workload=workload, shows=evil)
    made = page([Comparison(story, 1.0, (Figures.broken(OURS, evil),))])
    assert "<script" not in made
    assert made.count("<style>") == 1
    assert "script-src &#x27;none&#x27;" in made


# ---- interrupted


def test_an_interrupt_or_a_kill_ends_it_and_leaves_no_process_behind(tmp_path: Path) -> None:
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    folders = {number: tmp_path / number.name for number in signals}
    started = {number: _started(folder) for number, folder in folders.items()}  # they load beside each other
    try:
        contenders = {number: _contenders(process) for number, process in started.items()}
        for number, process in started.items():
            process.send_signal(number)
        for number, process in started.items():
            told = process.communicate(timeout=PATIENCE_S)[1]
            assert not psutil.wait_procs(contenders[number], PATIENCE_S)[1]
            if number == signal.SIGKILL:
                continue
            assert process.returncode == 130, told
            assert "penstock: interrupted" in told.splitlines()
            assert not list(folders[number].iterdir())
    finally:
        for process in started.values():
            process.kill()


def _started(folder: Path) -> subprocess.Popen[str]:
    """In real time, so that nobody is through before it is ended."""
    folder.mkdir()
    return subprocess.Popen(
        [*COMMAND, "six", "--way", "thread-pool", "--scale", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def _contenders(process: subprocess.Popen[str]) -> list[psutil.Process]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            break
        if children := psutil.Process(process.pid).children(recursive=True):
            return children
    raise AssertionError("no contender was started")


def test_the_page_shows_what_the_command_prints() -> None:
    """C10: the page has the table, with the columns and the ways of the command, and the tables' own figures."""
    from penstock.compare.told import COLUMNS

    text = (Path(__file__).parents[2] / "docs/how-to/compare.md").read_text(encoding="utf-8")
    shown = re.search(r"\$ penstock compare.*?```", text, re.DOTALL)
    assert shown is not None
    head = next(line for line in shown[0].splitlines() if line.startswith("way "))
    assert [part.strip() for part in re.split(r"\s{2,}", head)] == [name.lstrip(">") for name in COLUMNS]
    assert all(title in shown[0] for title in CONTENDERS.values())
    assert "130 s → 90 s" in shown[0]
    assert "200 s → 100 s" in shown[0]
