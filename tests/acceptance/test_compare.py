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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser

from penstock.compare.contenders import CONTENDERS, LEGACY, OURS
from tests.acceptance.browser_rig import browser, opened

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
        [*COMMAND, *STORIES, "--scale", "0.01", "--json", "--html", "compare.html"],
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
    assert tuple(played.by_name) == STORIES
    for one in played.by_name.values():
        assert [c["contender"] for c in one["contenders"]] == list(CONTENDERS)
        assert all(c["error"] is None and c["makespan_s"] >= one["ideal_s"] for c in one["contenders"])
        assert all(c["peak_memory_mb"] > 5 and c["threads"] >= 1 for c in one["contenders"])
        assert one["shows"]
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


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_every_way_of_every_story_and_fetches_nothing(
    played: Played, chromium: Browser, scheme: Any
) -> None:
    with opened(chromium, played.page.as_uri(), scheme=scheme) as (page, watched):
        assert page.locator("article").count() == len(STORIES)
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


def test_the_page_fits_a_narrow_screen(played: Played, chromium: Browser) -> None:
    with opened(chromium, played.page.as_uri(), width=400) as (page, _):
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


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_an_interrupt_ends_it_and_leaves_nothing_behind(tmp_path: Path, number: int, status: int) -> None:
    process, contenders = _with_a_contender(tmp_path)
    process.send_signal(number)
    told = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == status, told
    assert "penstock: interrupted" in told.splitlines()
    assert not psutil.wait_procs(contenders, PATIENCE_S)[1]
    assert not list(tmp_path.iterdir())


def test_when_it_is_killed_no_contender_lives_on(tmp_path: Path) -> None:
    process, contenders = _with_a_contender(tmp_path)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert not psutil.wait_procs(contenders, PATIENCE_S)[1]


def _with_a_contender(folder: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """In real time, so that nobody is through before it is ended."""
    process = subprocess.Popen(
        [*COMMAND, "six", "--way", "thread-pool", "--scale", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    deadline = time.monotonic() + PATIENCE_S
    children: list[psutil.Process] = []
    while not children and time.monotonic() < deadline and process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True)
    assert children, "no contender was started"
    return process, children


def test_the_readme_shows_what_the_command_prints() -> None:
    """C10: the README has the table, with the columns and the ways of the command, and the tables' own figures."""
    from penstock.compare.told import COLUMNS

    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"\$ penstock compare.*?```", text, re.DOTALL)
    assert shown is not None
    head = next(line for line in shown[0].splitlines() if line.startswith("way "))
    assert [part.strip() for part in re.split(r"\s{2,}", head)] == [name.lstrip(">") for name in COLUMNS]
    assert all(title in shown[0] for title in CONTENDERS.values())
    assert "130 s → 90 s" in shown[0]
    assert "200 s → 100 s" in shown[0]
