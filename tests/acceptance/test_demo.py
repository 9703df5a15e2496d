"""`penstock demo` as a person runs it: real dispatchers, real stores, a real kill -9.

What it measures depends on the machine; how its figures stand to each other does not.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.compare.contenders import CONTENDERS
from penstock.compare.workloads import WORKLOADS

TWICE = Path(__file__).with_name("demo_twice.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    """What one demo says in a pipe. Its figures, and the folder kept with them, lie beside the one it ran in."""
    (folder / "here").mkdir()
    ended = subprocess.run(
        [sys.executable, TWICE, folder / "figures.json", folder / "kept"],
        cwd=folder / "here",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def played(folder: Path, text: str) -> tuple[dict[str, Any], Path]:
    """The figures of the demo, and the folder it was told to keep."""
    return json.loads((folder / "figures.json").read_bytes()), folder / "kept"


@pytest.fixture(scope="module")
def scenes(played: tuple[dict[str, Any], Path]) -> dict[str, Any]:
    return {scene["name"]: scene for scene in played[0]["scenes"]}


def test_every_check_holds(played: tuple[dict[str, Any], Path], scenes: dict[str, Any]) -> None:
    assert played[0]["ok"]
    assert set(scenes) == set(WORKLOADS)
    assert all(scene["checks"] and all(c["ok"] for c in scene["checks"]) for scene in scenes.values())


@pytest.mark.parametrize("name", ["six", "forty", "lanes"])
def test_c10_it_is_faster_than_one_thread_per_kind_and_not_than_possible(
    scenes: dict[str, Any], name: str
) -> None:
    scene = scenes[name]
    assert scene["ideal_s"] <= scene["penstock_s"] < scene["legacy_s"]


def test_c1_c10_the_ideals_are_those_of_the_tables(scenes: dict[str, Any]) -> None:
    assert (scenes["six"]["ideal_s"], scenes["forty"]["ideal_s"]) == (90, 100)


def test_c2_tasks_start_in_order_of_priority(scenes: dict[str, Any]) -> None:
    for priorities in scenes["forty"]["starts"].values():
        assert priorities == sorted(priorities)
        assert len(priorities) == 20


def test_a1_a3_a4_a5_families_keep_to_their_limits_and_do_not_hold_each_other_up(
    scenes: dict[str, Any],
) -> None:
    lanes = scenes["lanes"]["lanes"]
    assert {name: lane["limit"] for name, lane in lanes.items()} == {"gptr": 11, "ma": 4, "fpf": 17}
    assert all(lane["peak"] <= lane["limit"] for lane in lanes.values())
    # They arrive behind 66 tasks of fpf and start in the same step as the first of those.
    assert lanes["gptr"]["first_start_s"] == lanes["ma"]["first_start_s"] == lanes["fpf"]["first_start_s"]
    assert set(lanes["ma"]["waits"]) <= {"lane:ma", "order"}
    assert set(lanes["gptr"]["waits"]) <= {"lane:gptr", "gate:fpf-headroom", "order"}
    assert lanes["gptr"]["waits"]["gate:fpf-headroom"] > 0


def test_a_crash_loses_nothing_and_is_told(scenes: dict[str, Any]) -> None:
    """E1: the time without a dispatcher is a wait with its own reason."""
    crash = scenes["crash"]
    assert crash["tasks"] == crash["facts"]["acknowledged"] > 60
    assert crash["facts"]["run_again"] >= 1
    assert crash["facts"]["gap_s"] > 0
    assert crash["facts"]["waited_through_gap"] > crash["facts"]["run_again"]
    assert crash["waits"]["dispatcher-down"] >= crash["facts"]["gap_s"]


def test_c10_the_other_ways_do_the_same_six_tasks(played: tuple[dict[str, Any], Path]) -> None:
    told = played[0]["ways"]
    contenders = told["facts"]["contenders"]
    assert [one["contender"] for one in contenders] == list(CONTENDERS)
    assert all(one["done"] == 6 and one["over_full"] == 0 for one in contenders)
    assert told["ideal_s"] == 90 <= told["penstock_s"] < told["legacy_s"]


def test_what_is_kept_can_be_opened(played: tuple[dict[str, Any], Path]) -> None:
    for name in WORKLOADS:
        assert (played[1] / name / "penstock.toml").is_file()
        assert (played[1] / name / "penstock.db").is_file()


def test_a6_the_timeline_is_a_page_in_seconds_of_the_story(
    played: tuple[dict[str, Any], Path], scenes: dict[str, Any]
) -> None:
    page = Path(played[0]["timeline"])
    assert page == played[1] / "penstock-demo.html"
    found = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert len(data["tasks"]["id"]) == scenes["lanes"]["tasks"] == 96
    assert data["span"] * data["unit"] == pytest.approx(scenes["lanes"]["penstock_s"], rel=1e-3)
    waited = {data["whats"][place]["name"]: spent for place, spent in data["reasons"]}
    assert waited["gate:fpf-headroom"] == pytest.approx(
        scenes["lanes"]["waits"]["gate:fpf-headroom"], rel=1e-3
    )


@pytest.mark.local_model
def test_a_real_model_answers_at_the_end(played: tuple[dict[str, Any], Path]) -> None:
    answered = played[0]["question"]
    if "missing" in answered:
        pytest.skip(answered["missing"])
    assert answered["checks"][0]["ok"]
    assert answered["answer"]
    assert answered["tokens"] > 1
    assert (played[1] / "question" / "penstock.toml").is_file()


def test_in_a_pipe_it_is_plain_text_without_folders(folder: Path, text: str) -> None:
    here = folder / "here"
    assert "\x1b" not in text
    assert "penstock-demo-" not in text
    assert [one.name for one in here.iterdir()] == ["penstock-demo.html"]
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines[:-2])
    assert lines[-2].endswith(f": {here / 'penstock-demo.html'}")
    assert any(line.startswith("All ") and line.endswith(" checks hold.") for line in lines)
