"""C3: issues in a database, through a program; a stand-in that answers as several versions of `bd` do.

The same tests run through the real `bd` where one is on the PATH.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

from penstock.cli.app import main
from penstock.config.beads import Beads
from penstock.intake.beads.program import ProgramTracker
from penstock.intake.beads.reports import report_of
from penstock.intake.beads.tracker import TrackerFault, find_place, open_tracker
from penstock.model import State, Task, TaskRecord

NOW = 1_800_000_000.0
STAND_IN = Path(__file__).with_name("bd_program.py")


class Folder(Protocol):
    """A folder with issues in a database. Ids are given by the program, so tests use their own names."""

    path: Path
    program: str

    def add(self, name: str, **fields: Any) -> str: ...

    def get(self, id: str) -> dict[str, Any]: ...

    def set(self, id: str, **fields: str) -> None: ...


class StandIn:
    def __init__(self, path: Path, style: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        (path / ".beads").mkdir()
        self._file = path / ".beads" / "beads.db"
        self._file.write_text("{}")
        program = path / "bd"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{STAND_IN}" "$@"\n')
        program.chmod(0o755)
        self.program = str(program)
        self.faults = path / "faults"
        self.faults.mkdir()
        monkeypatch.setenv("BD_STYLE", style)
        monkeypatch.setenv("BD_FAULTS", str(self.faults))

    def add(self, name: str, **fields: Any) -> str:
        on = [{"depends_on_id": other, "type": "blocks"} for other in fields.pop("after", ())]
        issue = {"id": name, "title": name, "status": "open", "priority": 2, "issue_type": "task", **fields}
        self._write({**self._read(), name: issue | ({"dependencies": on} if on else {})})
        return name

    def get(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._read()[id]
        return found

    def set(self, id: str, **fields: str) -> None:
        issues = self._read()
        issues[id].update(fields)
        self._write(issues)

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.path / ".beads" / "calls.log").read_text().splitlines()]

    def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._file.read_text())
        return found

    def _write(self, issues: dict[str, Any]) -> None:
        self._file.write_text(json.dumps(issues))


class Real:
    """The `bd` of this machine, in a repository of its own."""

    def __init__(self, path: Path, program: str) -> None:
        self.path = path
        self.program = program
        subprocess.run(["git", "init", "-q"], cwd=path, check=True)
        self._call("init", "--prefix", "bd")

    def add(self, name: str, **fields: Any) -> str:
        after, labels = fields.pop("after", ()), fields.pop("labels", ())
        arguments = [part for key, value in fields.items() for part in (f"--{key}", str(value))]
        told = json.loads(self._call("create", name, "--json", *arguments))
        id = str((told[0] if isinstance(told, list) else told)["id"])
        for label in labels:
            self._call("label", "add", id, label)
        for other in after:
            self._call("dep", "add", id, other)
        return id

    def get(self, id: str) -> dict[str, Any]:
        told = json.loads(self._call("show", id, "--json"))
        found: dict[str, Any] = told[0] if isinstance(told, list) else told
        return found

    def set(self, id: str, **fields: str) -> None:
        self._call("update", id, *(part for key, value in fields.items() for part in (f"--{key}", value)))

    def _call(self, *arguments: str) -> str:
        return subprocess.run(
            [self.program, *arguments], cwd=self.path, check=True, capture_output=True, text=True
        ).stdout


REAL = ["bd"] if shutil.which("bd") else []


def any_of(*styles: str) -> pytest.MarkDecorator:
    """Through stand-ins of these styles, and the real one."""
    return pytest.mark.parametrize("folder", [*styles, *REAL], indirect=True)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    if request.param == "bd":
        return Real(tmp_path, shutil.which("bd") or "bd")
    return StandIn(tmp_path, request.param, monkeypatch)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(tmp_path, "old", monkeypatch)


async def opened(folder: Folder, actor: str = "penstock") -> ProgramTracker:
    tracker = open_tracker(find_place(folder.path), Beads(actor=actor, program=folder.program))
    assert isinstance(tracker, ProgramTracker)
    await tracker.open()
    return tracker


def record(state: State = State.DONE) -> TaskRecord:
    error = None if state is State.DONE else "it broke"
    task = Task("sum", id="t1")
    return TaskRecord(
        task, 1, state, 1, host="h", started_at=NOW, ended_at=NOW + 2, value="answer", error=error
    )


@any_of("ancient", "old", "new", "envelope")
async def test_c3_through_the_program_from_ready_to_closed(folder: Folder) -> None:
    """C3: in order of priority, with labels, dependencies respected, the result in the notes and the reason."""
    late = folder.add("late", priority=3)
    first = folder.add("first", priority=0, labels=["docs"])
    after = folder.add("after", after=[first])
    tracker = await opened(folder)
    ready = (await tracker.look(NOW)).ready
    assert [issue.id for issue in ready] == [first, late]
    assert ready[0].labels == ("docs",)
    assert set(await tracker.claim([first], NOW)) == {first}
    found = folder.get(first)
    assert (found["status"], found["assignee"]) == ("in_progress", "penstock")
    assert [issue.id for issue in (await tracker.look(NOW)).ready] == [late]
    assert await tracker.finish({first: report_of(record())})
    found = folder.get(first)
    assert (found["status"], found["close_reason"]) == ("closed", "done by penstock: sum on h, task t1")
    assert found["notes"].endswith("sum on h:\nanswer")
    assert [issue.id for issue in (await tracker.look(NOW)).ready] == [after, late]


@any_of("old", "new")
async def test_c3_through_the_program_blocked_and_given_back(folder: Folder) -> None:
    """C3: notes of people are kept."""
    one, two = folder.add("one"), folder.add("two")
    folder.set(one, notes="mine")
    tracker = await opened(folder)
    for id in (one, two):
        assert set(await tracker.claim([id], NOW)) == {id}
    assert await tracker.finish({one: report_of(record(State.FAILED))})
    assert list(await tracker.give_back([two, "bd-gone"], NOW)) == [two]
    found = folder.get(one)
    assert (found["status"], found.get("assignee", "")) == ("blocked", "")
    assert found["notes"].startswith("mine")
    assert found["notes"].endswith("it broke")
    found = folder.get(two)
    assert (found["status"], found.get("assignee", "")) == ("open", "")
    assert set(await tracker.claim([two], NOW)) == {two}


@any_of("old", "new")
async def test_c3_a_claim_that_lost_is_lost_whatever_the_status(folder: Folder) -> None:
    """C3: old versions end with 0 all the same; what is assigned to others is not even asked for."""
    one = folder.add("one")
    mine, theirs = await opened(folder), await opened(folder, "other")
    assert set(await theirs.claim([one], NOW)) == {one}
    assert await mine.claim([one], NOW) == {}
    assert folder.get(one)["assignee"] == "other"
    assert not await mine.finish({one: report_of(record())})
    assert folder.get(one)["status"] == "in_progress"
    assert await mine.give_back([one], NOW) == []


async def test_c3_a_claim_that_somebody_snatches_in_between_is_lost(stand_in: StandIn) -> None:
    """C3: it is read again before it is believed."""
    one = stand_in.add("bd-1")
    tracker = await opened(stand_in)
    (stand_in.faults / "stolen").touch()
    assert await tracker.claim([one], NOW) == {}


async def test_c3_a_busy_database_is_asked_again(stand_in: StandIn) -> None:
    """C3."""
    stand_in.add("bd-1")
    tracker = await opened(stand_in)
    (stand_in.faults / "busy").touch()
    assert [issue.id for issue in (await tracker.look(NOW)).ready] == ["bd-1"]


async def test_c3_a_blocker_that_came_meanwhile_does_not_keep_a_result(stand_in: StandIn) -> None:
    """C3: `close` refuses open blockers without --force."""
    one = stand_in.add("bd-1")
    tracker = await opened(stand_in)
    await tracker.claim([one], NOW)
    stand_in.add("bd-2")
    stand_in.set(one, dependencies=[{"depends_on_id": "bd-2", "type": "blocks"}])  # type: ignore[arg-type]
    assert await tracker.finish({one: report_of(record())})
    assert stand_in.get(one)["status"] == "closed"


async def test_c3_metadata_is_kept_and_added_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C3: where the program has it."""
    stand_in = StandIn(tmp_path, "new", monkeypatch)
    one = stand_in.add("bd-1", metadata={"mine": 1})
    tracker = await opened(stand_in)
    await tracker.claim([one], NOW)
    await tracker.finish({one: report_of(record())})
    found = stand_in.get(one)["metadata"]
    assert (found["mine"], found["penstock"]["task"]) == (1, "t1")


async def test_c3_arguments_are_arguments(stand_in: StandIn) -> None:
    """C3: no shell reads what an issue or a result says."""
    one = stand_in.add("bd-1", title="$(touch hacked)")
    tracker = await opened(stand_in)
    await tracker.claim([one], NOW)
    evil = "'; touch hacked; echo `touch hacked` --force"
    task = Task("sum", id="t1")
    done = TaskRecord(task, 1, State.DONE, 1, ended_at=NOW, value=evil)
    await tracker.finish({one: report_of(done)})
    assert evil in stand_in.get(one)["notes"]
    assert not (stand_in.path / "hacked").exists()
    assert ["show", one, "--json"] in stand_in.calls()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("exit 3", "is it Beads"),
        ('[ "$2" = --help ] && exit 0; echo no JSON', "no JSON"),
        ('[ "$2" = --help ] && exit 0; echo \'{"error":"no database found"}\'; exit 1', "no database found"),
        ('[ "$2" = --help ] && exit 0; echo broken >&2; exit 1', "broken"),
    ],
)
async def test_c3_a_program_that_is_none_is_one_clear_error(tmp_path: Path, script: str, told: str) -> None:
    """C3, promise 7."""
    (tmp_path / ".beads").mkdir()
    (tmp_path / ".beads" / "beads.db").write_text("{}")
    program = tmp_path / "bd"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    tracker = open_tracker(find_place(tmp_path), Beads(program=str(program)))
    with pytest.raises(TrackerFault, match=told):
        await tracker.open()


async def test_c3_a_call_that_is_left_leaves_no_process(tmp_path: Path) -> None:
    """C3: whoever stops while the program hangs ends it."""
    (tmp_path / ".beads").mkdir()
    (tmp_path / ".beads" / "beads.db").write_text("{}")
    program, pipe = tmp_path / "bd", tmp_path / "pipe"
    os.mkfifo(pipe)
    program.write_text(f'#!/bin/sh\necho $$ > "{pipe}"\nexec sleep 1000\n')
    program.chmod(0o755)
    tracker = open_tracker(find_place(tmp_path), Beads(program=str(program)))
    async with asyncio.TaskGroup() as group:
        opening = group.create_task(tracker.open())
        pid = int(await asyncio.to_thread(pipe.read_text))
        opening.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_c3_metadata_too_long_for_an_argument_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C3, promise 7: it is not the program that is wrong."""
    stand_in = StandIn(tmp_path, "new", monkeypatch)
    one = stand_in.add("bd-1", metadata={"mine": "x" * 3_000_000})
    tracker = await opened(stand_in)
    with pytest.raises(
        TrackerFault, match=r"bd update bd-1: .*too long for an argument; shorten its metadata"
    ):
        await tracker.finish({one: report_of(record())})


def test_c3_what_a_read_leaves_behind_is_no_change(stand_in: StandIn) -> None:
    """C3: or every look would be followed by another."""
    tracker = open_tracker(find_place(stand_in.path), Beads(program=stand_in.program))
    beads = stand_in.path / ".beads"
    before = tracker.signature()
    for name in ("beads.db-shm", "daemon.log", "bd.sock.lock", "penstock/owner-1.json"):
        (beads / name).parent.mkdir(exist_ok=True)
        (beads / name).write_text("x")
        assert not tracker.is_data(str(beads / name))
    assert tracker.signature() == before
    (beads / "beads.db-wal").write_text("x")
    assert tracker.signature() != before


def test_c3_the_loop_through_the_program(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """C3: a chain and a failure, from ready to closed or blocked, with nothing left in progress."""
    config = f"""
        [hosts.here]
        type = "simulated"
        duration_s = 0.01
        [beads]
        kind = "general"
        labels = {{ docs = "summarize" }}
        program = "{stand_in.program}"
    """
    (stand_in.path / "penstock.toml").write_text(config)
    monkeypatch.chdir(stand_in.path)
    first = stand_in.add("bd-1", labels=["docs"], metadata={"payload": {"value": "the result"}})
    stand_in.add("bd-2", after=[first], metadata={"payload": {"fail": "permanent"}})
    assert main(["loop", "--beads", ".", "--once", "--json"]) == 1
    ended = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["issue"], one["status"], one["kind"]) for one in ended] == [
        ("bd-1", "closed", "summarize"),
        ("bd-2", "blocked", "general"),
    ]
    assert stand_in.get("bd-1")["notes"].endswith("the result")
    assert stand_in.get("bd-2")["notes"].endswith("simulated permanent failure")
