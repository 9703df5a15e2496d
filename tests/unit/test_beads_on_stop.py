"""C8 for issues: what a second stop ends is given back or blocked, by choice; none is left in progress."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.intake.beads.loop import BeadsLoop, Pace
from penstock.intake.beads.tracker import find_place, open_tracker
from penstock.wiring import read_config

CONFIG = """
[hosts.h]
type = "simulated"
slots = 4
duration_s = 600

[beads]
kind = "general"
"""
PATIENCE_S = 30.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "penstock.toml").write_text(CONFIG)
    (tmp_path / ".beads").mkdir()
    at = "2026-01-01T00:00:00Z"
    issues = [
        {
            "id": f"x-{n}",
            "title": "t",
            "status": "open",
            "issue_type": "task",
            "created_at": at,
            "updated_at": at,
        }
        for n in (1, 2)
    ]
    (tmp_path / ".beads" / "issues.jsonl").write_text("".join(json.dumps(issue) + "\n" for issue in issues))
    return tmp_path


@pytest.mark.parametrize(
    ("dispatcher", "on_stop", "status"),
    [
        ("async", "requeue", ["open", "open"]),
        ("async", "block", ["blocked", "blocked"]),
        ("threads", "requeue", ["open", "open"]),
        ("threads", "block", ["blocked", "open"]),  # the second waited for the thread of its kind
    ],
)
async def test_c8_no_issue_is_left_in_progress(
    folder: Path, dispatcher: str, on_stop: str, status: list[str]
) -> None:
    config = read_config(folder / "penstock.toml")
    place = find_place(folder)
    running = 1 if dispatcher == "threads" else 2

    def tell(what: str, issue: str, fields: Mapping[str, Any]) -> None:
        pass

    async with (
        asyncio.timeout(PATIENCE_S),
        penstock.open(config, dispatcher=dispatcher, on_stop=on_stop) as p,
    ):
        work = BeadsLoop(p, place, open_tracker(place, config.beads), tell, Pace())
        async with asyncio.TaskGroup() as group:
            group.create_task(work.run())
            async with p.watching() as watch:
                while sum((await p.snapshot()).running.values()) < running:
                    await watch()
            work.stop()
            await asyncio.sleep(0)
            work.stop()
    issues = map(json.loads, (folder / ".beads" / "issues.jsonl").read_text().splitlines())
    assert sorted((i["status"] for i in issues), key=status.index) == status
