"""The data of the board's timeline: made once for many, again when something happened, under safe names (E7)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import penstock.client
from penstock.client import Client
from penstock.errors import UnknownTask
from penstock.model import Task
from penstock.web.board import timeline_data
from penstock.web.board.timeline_data import Pictures, Wanted, wanted
from penstock.wiring import read_config

CONFIG = """
store = "plant.db"
[hosts.alder]
type = "simulated"
duration_s = 0.001
slots = 4
serves = ["*"]
"""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG)
    async with penstock.client.open(read_config(path)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("nightly", "timeline-nightly.svg"),
        ("../../etc/passwd", "timeline-etc_passwd.svg"),
        ('a"; rm -rf /\r\nx: y', "timeline-a_rm_-rf_x_y.svg"),
        ("\u202egpj.evil", "timeline-gpj.evil.svg"),
        ("…", "timeline-run.svg"),
        ("x" * 300, f"timeline-{'x' * 80}.svg"),
    ],
)
def test_files_have_safe_names(run: str, name: str) -> None:
    assert Wanted(run).file_name("svg") == name


def test_an_address_names_a_run_or_a_window() -> None:
    assert wanted("nightly", "5m") == Wanted("nightly", "1h")
    assert wanted("", "5m") == Wanted("", "5m")
    assert wanted("", "1000y") == Wanted("", "1h")
    assert wanted("", "5m").words == "the last 5 min"


async def test_many_who_ask_cost_one(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Wanted] = []
    monkeypatch.setattr(timeline_data, "_LEAST_S", 0.0)
    monkeypatch.setattr(timeline_data, "_REST", 0.0)

    class Counted(Pictures):
        async def timeline(self, wanted: Wanted):  # type: ignore[no-untyped-def]
            made.append(wanted)
            return await super().timeline(wanted)

    await (await client.submit_many([Task("k"), Task("k")], run="one")).wait()
    pictures = Counted(client)
    first = await pictures.get(Wanted("one"), None)
    assert first is not None
    told = json.loads(first.reply())
    assert len(told["data"]["tasks"]["id"]) == 2
    assert told["follows"] is False
    assert await pictures.get(Wanted("one"), None) is first
    assert await pictures.get(Wanted("one"), first.event) is None, "whoever has it needs nothing"
    assert len(made) == 1
    await (await client.submit_many([Task("k")], run="one")).wait()
    again = await pictures.get(Wanted("one"), first.event)
    assert again is not None
    assert again.event > first.event
    assert len(json.loads(again.reply())["data"]["tasks"]["id"]) == 3
    with pytest.raises(UnknownTask):
        await pictures.get(Wanted("nobody"), None)


async def test_what_is_costly_to_make_is_made_seldom(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_data, "_LEAST_S", 3600.0)
    await (await client.submit_many([Task("k")], run="one")).wait()
    pictures = Pictures(client)
    first = await pictures.get(Wanted(""), None)
    await (await client.submit_many([Task("k")], run="one")).wait()
    assert first is not None
    assert first.follows
    assert await pictures.get(Wanted(""), first.event) is None, "too soon after it was made"
    monkeypatch.setattr(timeline_data, "_LEAST_S", 0.0)
    assert first.wait_s == first.built_s * 4, "a fifth of the time goes into it at most"


async def test_more_than_a_picture_holds_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_data, "MOST_OF_RUN", 3)
    monkeypatch.setattr(timeline_data, "MOST_LATELY", 4)
    await (await client.submit_many([Task("k") for _ in range(9)], run="one")).wait()
    pictures = Pictures(client)
    timeline, _ = await pictures.timeline(Wanted("one"))
    assert timeline.excerpt is not None
    assert timeline.excerpt.total == 9
    assert [bar.record.number for bar in timeline.bars] == [7, 8, 9], "the newest, in order of arrival"
    window, _ = await pictures.timeline(Wanted(""))
    assert window.excerpt is not None
    assert (len(window.bars), window.excerpt.total) == (4, 9)
    assert window.run == "the last 1 h"
    assert window.excerpt.begin is not None


def test_whoever_may_not_read_is_told_so() -> None:
    from starlette.requests import Request
    from starlette.responses import Response

    from penstock.web.board.timeline_picture import asked
    from penstock.web.board.viewer import HEADER, Viewer, as_header

    def request(*scopes: str) -> Request:
        header = (HEADER.encode(), as_header(Viewer("ann", scopes)).encode())
        return Request({"type": "http", "headers": [header], "query_string": b"run=nightly"})

    refused = asked(request("submit"))
    assert isinstance(refused, Response)
    assert refused.status_code == 403
    assert asked(request("read")) == Wanted("nightly")
