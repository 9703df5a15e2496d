"""C3: an end that somebody wrote over is told again; ends that come together are told in one change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import Client
from penstock.config.beads import Beads
from penstock.intake.beads.jsonl import JsonlTracker
from penstock.intake.beads.loop import BeadsLoop, Pace
from penstock.intake.beads.reports import Report, refusal
from penstock.intake.beads.told import Told
from penstock.intake.beads.tracker import Place, find_place
from penstock.lifecycle import ENDED
from penstock.wiring import read_config

NOW = 1_800_000_000.0
PATIENCE_S = 30.0
CONFIG = """
[hosts.h]
type = "simulated"
slots = 4
duration_s = 0.001

[beads]
kind = "general"
"""


class Folder:
    def __init__(self, path: Path) -> None:
        (path / "penstock.toml").write_text(CONFIG)
        (path / ".beads").mkdir()
        self.path = path
        self.file = path / ".beads" / "issues.jsonl"
        self.told: list[tuple[str, str]] = []
        self.heard: Callable[[str, str], None] = lambda what, issue: None

    @property
    def place(self) -> Place:
        return find_place(self.path)

    def add(self, *ids: str) -> None:
        lines = [json.dumps({"id": id, "title": id, "status": "open"}) + "\n" for id in ids]
        self.file.write_text("".join(lines))

    def issues(self) -> dict[str, dict[str, Any]]:
        return {one["id"]: one for one in map(json.loads, self.file.read_text().splitlines())}

    def put(self, data: bytes) -> None:
        """As somebody does who read the file some time ago."""
        other = self.path / "theirs"
        other.write_bytes(data)
        other.replace(self.file)

    def tell(self, what: str, issue: str, fields: Mapping[str, Any]) -> None:
        self.told.append((what, issue))
        self.heard(what, issue)

    def of(self, *whats: str) -> list[tuple[str, str]]:
        return [one for one in self.told if one[0] in whats]

    async def once(self, tracker: Callable[[Client], JsonlTracker] | None = None) -> list[str]:
        """Run a loop until nothing is left; the tasks it had."""
        config = read_config(self.path / "penstock.toml")
        async with asyncio.timeout(PATIENCE_S), penstock.open(config) as client:
            with_tracker = JsonlTracker(self.place, "penstock") if tracker is None else tracker(client)
            work = BeadsLoop(client, self.place, with_tracker, self.tell, Pace(once=True))
            await work.run()
            return [str(record.state) for record in await client.tasks()]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize("old", ["unclaimed", "claimed"])
async def test_c3_an_end_that_is_written_over_is_told_again(folder: Folder, old: str) -> None:
    """C3: by who read the file before, whether or not it was claimed then; and nothing runs twice."""
    folder.add("bd-1")
    read: dict[str, bytes] = {"unclaimed": folder.file.read_bytes()}

    def hear(what: str, issue: str) -> None:
        if what == "claimed":
            read["claimed"] = folder.file.read_bytes()
        elif what == "closed":
            folder.put(read[old])

    folder.heard = hear
    assert await folder.once() == ["done"]
    assert folder.of("again") == [("again", "bd-1")]
    issue = folder.issues()["bd-1"]
    assert issue["status"] == "closed"
    assert issue["notes"].count("[penstock") == 1


async def test_c3_what_was_opened_again_is_not_taken_for_lost(folder: Folder) -> None:
    """C3: it shows its end, so whoever opened it meant to."""
    folder.add("bd-1")
    tracker = JsonlTracker(folder.place, Beads().actor)
    told, reports = Told(tracker), {"bd-1": refusal("no", NOW)}
    assert await tracker.finish(reports)
    told.add(reports)
    assert await told.again() == []
    folder.put(folder.file.read_bytes().replace(b'"blocked"', b'"open"'))
    (issue,) = (await tracker.look(NOW)).ready
    assert not told.is_lost(issue)
    assert await told.again() == []
    folder.add("bd-1")
    (issue,) = (await tracker.look(NOW)).ready
    assert told.is_lost(issue)
    told.forget(["bd-1"])
    assert not told.is_lost(issue)


async def test_c3_ends_are_kept_for_a_while_and_not_more_of_them_than_some(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C3."""
    folder.add("bd-1", "bd-2", "bd-3")
    now_s = 0.0
    told = Told(JsonlTracker(folder.place, "penstock"), lambda: now_s)
    assert told.doubt_s == 0.0
    told.add({"bd-1": refusal("no", NOW)})
    assert told.doubt_s > 0.0
    now_s = 601.0
    assert told.doubt_s == 0.0
    told.add({"bd-2": refusal("no", NOW)})
    assert await told.again() == ["bd-2"]
    monkeypatch.setattr("penstock.intake.beads.told._KEPT", 1)
    told.add({"bd-3": refusal("no", NOW)})
    folder.add("bd-1", "bd-2", "bd-3")
    assert await told.again() == ["bd-3"]


class Slow(JsonlTracker):
    """The first to be told waits until all tasks have ended."""

    def __init__(self, place: Place, client: Client, count: int) -> None:
        super().__init__(place, "penstock")
        self._client, self._count = client, count
        self.finished: list[int] = []

    async def finish(self, reports: Mapping[str, Report]) -> Collection[str]:
        async with self._client.watching() as watch:
            while [one.state in ENDED for one in await self._client.tasks()].count(True) < self._count:
                await watch()
        self.finished.append(len(reports))
        return await super().finish(reports)


async def test_c3_what_ended_meanwhile_is_told_in_one_change(folder: Folder) -> None:
    """C3: each change writes the whole file, so a thousand ends must not be a thousand changes."""
    folder.add(*(f"bd-{n}" for n in range(30)))
    made: list[Slow] = []

    def tracker(client: Client) -> Slow:
        made.append(Slow(folder.place, client, 30))
        return made[0]

    assert await folder.once(tracker) == ["done"] * 30
    assert {one["status"] for one in folder.issues().values()} == {"closed"}
    assert sum(made[0].finished) == 30
    assert len(made[0].finished) <= 2


async def test_c3_a_line_that_is_no_issue_is_told_once(folder: Folder) -> None:
    """C3: though the file is looked at again after each change; and the loop goes on."""
    folder.add("bd-1", "bd-2")
    with folder.file.open("a") as file:
        file.write("".join(f"<<<<<<< {n}\n" for n in range(12)))
    assert await folder.once() == ["done", "done"]
    assert len(folder.of("trouble")) == 11
