"""`penstock compare` on the command line: what it refuses, what it lists. Nothing is played here."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.compare import way_names
from penstock.compare.contenders import CONTENDERS
from penstock.compare.stories import STORIES
from tests.unit.cli_rig import Cli


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sxi"], "WORKLOAD: there is no 'sxi'; did you mean 'six'?"),
        (["six", "--way", "thread-pol"], "--way: there is no 'thread-pol'; did you mean 'thread-pool'?"),
        (["six", "--scale", "0"], "--scale: '0' must be a number from 0.001 to 10; 1 is real time"),
        (["six", "--scale", "nan"], "--scale: 'nan' must be a number from 0.001 to 10; 1 is real time"),
        (
            ["six", "--kill-host", "loki"],
            "--kill-host: no workload here has a server 'loki'; they have fenrir, skadi, surtr",
        ),
        (["six", "--json", "--html", "-"], "--json and a file named - both write to stdout; name a file"),
    ],
)
def test_wrong_use_is_one_line_before_anything_is_played(cli: Cli, arguments: list[str], told: str) -> None:
    said = cli("compare", *arguments)
    assert said.status == 2
    assert said.told == [f"penstock: {told}"]
    assert not said.out


def test_a_page_replaces_nothing_but_a_page_of_its_own(cli: Cli) -> None:
    mine = cli.folder / "mine.html"
    mine.write_text("<p>mine</p>")
    said = cli("compare", "six", "--html", str(mine))
    assert said.status == 2
    assert "no page of penstock compare" in said.err
    assert mine.read_text() == "<p>mine</p>"
    assert cli("compare", "six", "--html", str(cli.folder / "no" / "x.html")).status == 2
    assert cli("compare", "six", "--html", str(cli.folder)).status == 2


def test_what_is_kept_goes_into_a_new_folder(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    said = cli("compare", "six", "--keep", str(tmp_path / "there"))
    assert said.status == 2
    assert "name a new folder" in said.err


def test_the_workloads_are_listed_with_what_they_show(cli: Cli) -> None:
    listed = cli("compare", "--list", "--json").json
    assert [one["name"] for one in listed] == list(STORIES)
    assert all(one["shows"] and one["hosts"] and one["ideal_s"] > 0 for one in listed)
    words = cli("compare", "--list").out
    assert all(f"{name}: " in words for name in STORIES)


def test_every_way_has_a_name_to_choose_it_by(cli: Cli) -> None:
    assert list(way_names().values()) == list(CONTENDERS)
    assert list(way_names()) == ["thread-per-kind", "thread-pool", "process-pool", "asyncio", "penstock"]
    helped = cli("compare", "--help").out
    assert all(name in helped for name in way_names())
