"""A task is found by the name that its user knows it by: an issue's id, a request's id, its key."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import penstock.client
from penstock.config import TaskChecker
from penstock.errors import UnknownTask
from penstock.intake.beads.claims import Claims
from penstock.intake.folder.bodies import Reader
from penstock.model import Task
from penstock.store.keys import is_called, known_as
from tests.unit.cli_rig import Cli, make_cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


def claim_key(folder: Path, issue: str) -> str:
    """As a loop makes it."""
    claims = Claims(folder, "penstock.db")
    claims.open()
    (claim,) = claims.add([issue], time.time())
    claims.drop([issue])
    claims.close()
    return claim.key


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("beads:lab-4:0f", "lab-4"),
        ("beads:lab:4:0f", "lab:4"),
        ("beads:lab-4", "beads:lab-4"),
        ("1a2b/job-b", "job-b"),
        ("1a2b/job-b.json", "job-b"),
        ("council/1m7h/member/GOKU", "GOKU"),
        ("council/1m7h/review/GOKU/repair", "GOKU review repair"),
        ("nightly", "nightly"),
        ("nightly/", "nightly/"),
    ],
)
def test_the_part_of_a_key_that_is_the_users(key: str, name: str) -> None:
    assert known_as(key) == name
    assert is_called(key, name)
    assert is_called(key, key)
    assert not is_called(key, "")
    assert not is_called(key, name[:-1])


async def test_tasks_of_issues_and_requests_are_found_by_their_ids(cli: Cli) -> None:
    async with penstock.client.open(cli.folder / "penstock.toml", dispatch=False) as client:
        reader = Reader("1a2b", TaskChecker(client.config))
        request = reader.read("job-b.json", b'{"kind": "summarize"}', time.time())
        assert isinstance(request, Task)
        run = await client.submit_many(
            [
                Task("summarize", key=claim_key(cli.folder, "lab-4")),
                Task("summarize", key=claim_key(cli.folder, "lab-40")),
                request,
                Task("summarize", id="lab-5-of-a-file"),
                Task("summarize", key=claim_key(cli.folder, "lab-5")),
                Task("summarize", key=claim_key(cli.folder, "lab-4")),  # given back and taken again
                Task("summarize", key="3c4d/twice"),
                Task("summarize", key="5e6f/twice"),
            ]
        )
        ids = run.task_ids
        assert (await client.get("lab-4")).task.id == ids[5], "its newest task"
        assert (await client.get("lab-40")).task.id == ids[1]
        assert (await client.get("job-b")).task.id == (await client.get("job-b.json")).task.id == ids[2]
        assert (await client.get("lab-5")).task.id == ids[4], (
            "a whole name goes before the beginning of an id"
        )
        assert (await client.get("lab-5-")).task.id == ids[3]
        assert (await client.why("lab-40")).record.task.id == ids[1]
        assert (await client.get("5e6f/twice")).task.id == ids[7]
        with pytest.raises(UnknownTask, match=f"could be {ids[7]}, {ids[6]}; give more"):
            await client.get("twice")
        for name in ("ab-4", "beads:lab-4", "%", "", "wice"):
            with pytest.raises(UnknownTask):
                await client.get(name)


def test_commands_take_and_tell_the_name(cli: Cli) -> None:
    cli.good("submit", "summarize", "--key", "1a2b/job-b")
    assert "known as" in cli.good("tasks").out
    assert "job-b" in cli.good("tasks").out
    assert "1a2b/job-b" in cli.good("show", "job-b").out
    assert cli.good("show", "job-b", "--json").json["key"] == "1a2b/job-b"
    assert cli.good("why", "job-b", "--json").json["task_id"]
    assert "cancelled" in cli.good("cancel", "job-b").out
    cli.good("submit", "summarize", "--run", "plain")
    assert "known as" not in cli.good("tasks", "--run", "plain").out
