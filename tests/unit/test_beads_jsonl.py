"""C3: issues.jsonl is changed under a lock, whole or not at all; whoever else writes is merged, never overwritten.

Others write at the worst moments: when the change is being chosen, and into a file that was already exchanged.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.intake.beads import atomic
from penstock.intake.beads.issues import read_issue
from penstock.intake.beads.jsonl import JsonlFile, JsonlTracker
from penstock.intake.beads.lines import Changes, Document, merged
from penstock.intake.beads.reports import refusal, report_of
from penstock.intake.beads.tracker import Place, TrackerFault
from penstock.model import State, Task, TaskRecord

NOW = 1_800_000_000.0
LINES = (
    b'{"id":"bd-1","title":"one","status":"open","priority":1,"x":1.50e+3}\n'
    b'{ "title" : "two",  "id" : "bd-2", "status" : "open" }\n'
    b'{"id":"bd-3","status":"open","assignee":"ada"}\n'
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    beads = tmp_path / ".beads"
    (beads / "penstock").mkdir(parents=True)
    (beads / "issues.jsonl").write_bytes(LINES)
    return Place(tmp_path, beads, beads / "issues.jsonl", None)


@pytest.fixture
def file(place: Place) -> JsonlFile:
    return JsonlFile(place.jsonl, place.beads / "penstock" / "jsonl.lock")


@pytest.fixture(params=["exchange", "no exchange"])
def any_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "no exchange":
        monkeypatch.setattr(atomic, "_renameat2", lambda: None)
    return str(request.param)


def close_one(_: Document) -> Changes:
    return {"bd-1": {"status": "closed"}}


def fields(path: Path) -> dict[str, dict[str, Any]]:
    return {line["id"]: line for line in map(json.loads, path.read_bytes().splitlines())}


def in_place(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def by_rename(path: Path, data: bytes) -> None:
    other = path.with_name("theirs")
    other.write_bytes(data)
    other.replace(path)


@pytest.mark.parametrize("write", [in_place, by_rename])
@pytest.mark.usefixtures("any_system")
def test_c3_a_write_between_reading_and_writing_is_merged(
    file: JsonlFile, write: Callable[[Path, bytes], None]
) -> None:
    """C3: their line, their field and their issue are there, and ours."""
    theirs = (
        LINES.replace(b'"one"', b'"ONE"').replace(b'"ada"', b'"eve"') + b'{"id":"bd-4","status":"open"}\n'
    )
    written: list[bytes] = []

    def choose(document: Document) -> Changes:
        if not written:
            written.append(theirs)
            write(file.path, theirs)
        return close_one(document)

    file.change(choose)
    assert file.path.read_bytes() == theirs.replace(b'"open","priority":1', b'"closed","priority":1')


@pytest.mark.usefixtures("any_system")
def test_c3_whoever_writes_again_and_again_loses_nothing(file: JsonlFile) -> None:
    """C3: each round of theirs is built on what they found, with or without what we had put there."""
    rounds: list[int] = []

    def choose(document: Document) -> Changes:
        if len(rounds) < 5:
            rounds.append(len(rounds))
            by_rename(file.path, file.path.read_bytes() + b'{"id":"new-%d"}\n' % len(rounds))
        return close_one(document)

    file.change(choose)
    found = fields(file.path)
    assert set(found) == {"bd-1", "bd-2", "bd-3", *(f"new-{n}" for n in range(1, 6))}
    assert found["bd-1"]["status"] == "closed"


def test_c3_somebody_who_never_stops_is_told(file: JsonlFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """C3."""
    monkeypatch.setattr("penstock.intake.beads.jsonl._ROUNDS", 3)

    def choose(document: Document) -> Changes:
        by_rename(file.path, file.path.read_bytes() + b'{"id":"new-%d"}\n' % len(file.path.read_bytes()))
        return {"bd-1": {"status": str(len(document.data))}}

    with pytest.raises(TrackerFault, match="rewritten all the time"):
        file.change(choose)


def test_c3_who_had_the_file_open_is_heard_as_well(file: JsonlFile) -> None:
    """C3: `>>` that opened the file before it was exchanged and writes after."""
    with file.path.open("ab", buffering=0) as late:
        file.change(close_one)
        late.write(b'{"id":"late","status":"open"}\n')
        assert set(file.read().lines) == {"bd-1", "bd-2", "bd-3", "late"}
        late.write(b'{"id":"later","status":"open"}\n')
    file.close()
    assert set(fields(file.path)) == {"bd-1", "bd-2", "bd-3", "late", "later"}
    assert fields(file.path)["bd-1"]["status"] == "closed"


async def test_c3_what_a_killed_writer_left_is_cleared(place: Place) -> None:
    """C3: and nothing that only looks like it."""
    ours, other = place.beads / ".issues.jsonl.0123456789ab.part", place.beads / "issues.jsonl.part"
    ours.write_text("half")
    other.write_text("somebody's")
    await JsonlTracker(place, "penstock").open()
    assert (ours.exists(), other.exists()) == (False, True)


class Killed(BaseException):
    """As by `kill -9`: nothing is cleared up."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_c3_killed_at_an_exchange_nothing_of_others_is_lost(
    file: JsonlFile, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """C3: their write came just before the exchange; who was killed did not see it, whoever comes next does."""
    swap = atomic._swap

    def killed(one: Path, other: Path) -> bool:
        with other.open("ab") as theirs:
            theirs.write(b'{"id":"theirs"}\n')
        if when == "after":
            swap(one, other)
        monkeypatch.setattr(Path, "unlink", lambda _: None)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(atomic, "_swap", killed)
        with pytest.raises(Killed):
            file.change(close_one)
    monkeypatch.undo()
    assert len([name for name in os.listdir(file.path.parent) if name.startswith(".issues")]) == 2
    again = JsonlFile(file.path, file._lock)
    again.open()
    found = fields(file.path)
    assert set(found) == {"bd-1", "bd-2", "bd-3", "theirs"}
    assert found["bd-1"]["status"] == ("closed" if when == "after" else "open")
    assert sorted(os.listdir(file.path.parent)) == ["issues.jsonl", "penstock"]
    again.close()


@pytest.mark.parametrize("value", ["0.1234567890123456789012", "1e5", '"\\u00e9"', "true", "1e999"])
def test_c3_what_others_wrote_is_merged_in_their_very_text(file: JsonlFile, value: str) -> None:
    """C3: neither rounded nor written anew, and true is not 1; here by who had the file open."""
    file.path.write_bytes(b'{"id":"a","status":"open","v":1}\n')
    late = os.open(file.path, os.O_WRONLY)
    file.change(lambda _: {"a": {"status": "closed"}})
    os.ftruncate(late, 0)
    os.pwrite(late, f'{{"id":"a","status":"open","v":{value}}}\n'.encode(), 0)
    os.close(late)
    file.close()
    assert file.path.read_text() == f'{{"id":"a","status":"closed","v":{value}}}\n'


def test_c3_what_others_only_wrote_in_other_words_does_not_undo_ours() -> None:
    """C3: a program that reads and writes the whole file with its own escapes."""
    base = '{"id":"a","notes":"é","x":1.0,"y":"é"}\n'.encode()
    ours = Document(base).changed({"a": {"notes": "told", "x": 2}})
    theirs = b'{"id":"a","notes":"\\u00e9","x":1.00,"y":"\\u00e9"}\n'
    assert merged(base, theirs, ours) == b'{"id":"a","notes":"told","x":2,"y":"\\u00e9"}\n'


async def test_c3_lines_that_are_no_issues_are_told_with_their_place(place: Place) -> None:
    """C3."""
    place.jsonl.write_bytes(b"<<<<<<< HEAD\n" + LINES + b'{"id":5}\n')
    strange = (await JsonlTracker(place, "penstock").look(NOW)).strange
    assert strange == {"<<<<<<< HEAD": f"{place.jsonl}:1", '{"id":5}': f"{place.jsonl}:5"}


def test_c3_rights_and_links_stay(file: JsonlFile, place: Place, tmp_path: Path) -> None:
    """C3."""
    file.path.chmod(0o640)
    file.change(close_one)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o640
    assert sorted(os.listdir(place.beads)) == ["issues.jsonl", "penstock"]  # nothing is left behind


def test_c3_a_file_that_cannot_be_replaced_is_one_clear_error(
    file: JsonlFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C3, promise 7."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TrackerFault, match="No space left"):
        file.change(close_one)
    assert file.path.read_bytes() == LINES
    assert [name for name in os.listdir(file.path.parent) if name.endswith(".part")] == []


def test_c3_a_line_that_is_being_written_is_waited_for(
    file: JsonlFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C3: and one that never ends is carried along, after having been waited for once."""
    file.path.write_bytes(LINES + b'{"id":"bd-4","sta')
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            file.path.write_bytes(LINES + b'{"id":"bd-4","status":"open"}\n')

    monkeypatch.setattr("penstock.intake.beads.jsonl.time.sleep", sleep)
    assert "bd-4" in file.read().lines
    file.path.write_bytes(LINES + b'{"id":"bd-5","sta')
    monkeypatch.setattr("penstock.intake.beads.jsonl._SETTLE_S", 0.0)
    assert "bd-5" not in file.read().lines
    count = len(slept)
    file.change(close_one)
    file.change(lambda _: {"bd-2": {"status": "closed"}})
    assert file.read().is_half_written
    assert len(slept) == count  # though the file is another each time
    assert file.path.read_bytes().endswith(b'\n{"id":"bd-5","sta')


# ---- the issues in it


def record(state: State = State.DONE, value: Any = "the answer") -> TaskRecord:
    error = None if state is State.DONE else "it broke"
    task = Task("sum", id="t1")
    return TaskRecord(task, 1, state, 1, host="h", started_at=NOW, ended_at=NOW + 2, value=value, error=error)


async def test_c3_claimed_closed_and_blocked(place: Place) -> None:
    """C3: what a claim, a result and an error look like, and that all else stays."""
    tracker = JsonlTracker(place, "penstock")
    assert [issue.id for issue in (await tracker.look(NOW)).ready] == ["bd-1", "bd-2", "bd-3"]
    assert set(await tracker.claim(["bd-1", "bd-2", "bd-3", "gone"], NOW)) == {"bd-1", "bd-2"}
    claimed = fields(place.jsonl)
    assert (claimed["bd-1"]["status"], claimed["bd-1"]["assignee"]) == ("in_progress", "penstock")
    assert claimed["bd-3"] == json.loads(LINES.splitlines()[2])  # that one is somebody's
    assert await tracker.claim(["bd-1"], NOW) == {}

    assert await tracker.finish({"bd-1": report_of(record())})
    assert await tracker.finish({"bd-2": report_of(record(State.FAILED))})
    found = fields(place.jsonl)
    one, two = found["bd-1"], found["bd-2"]
    assert (one["status"], one["closed_at"]) == ("closed", "2027-01-15T08:00:02.000000Z")
    assert one["close_reason"] == "done by penstock: sum on h, task t1"
    assert one["notes"].endswith("sum on h:\nthe answer")
    assert one["metadata"]["penstock"]["task"] == "t1"
    assert (two["status"], two.get("assignee")) == ("blocked", None)
    assert two["notes"].endswith("sum on h: it broke")
    assert two["metadata"]["penstock"]["error"] == "it broke"
    assert place.jsonl.read_bytes().startswith(
        b'{"id":"bd-1","title":"one","status":"closed","priority":1,"x":1.50e+3,'
    )


async def test_c3_what_is_given_back_is_as_it_was(place: Place) -> None:
    """C3: but for the time of its last change."""
    tracker = JsonlTracker(place, "penstock")
    await tracker.claim(["bd-1", "bd-2"], NOW)
    assert list(await tracker.give_back(["bd-1", "bd-2", "bd-3", "gone"], NOW)) == ["bd-1", "bd-2"]
    back = fields(place.jsonl)
    for line in map(json.loads, LINES.splitlines()):
        assert {name: value for name, value in back[line["id"]].items() if name != "updated_at"} == line


@pytest.mark.parametrize("theirs", [{"status": "closed"}, {"status": "in_progress", "assignee": "ada"}])
async def test_c3_what_somebody_else_decided_stands(place: Place, theirs: dict[str, str]) -> None:
    """C3: the result is told in the notes; the status is theirs."""
    tracker = JsonlTracker(place, "penstock")
    await tracker.claim(["bd-1"], NOW)
    place.jsonl.write_bytes(Document(place.jsonl.read_bytes()).changed({"bd-1": theirs}))
    assert not await tracker.finish({"bd-1": report_of(record())})
    assert await tracker.give_back(["bd-1"], NOW) == []
    found = fields(place.jsonl)["bd-1"]
    assert found["status"] == theirs["status"]
    assert "the answer" in found["notes"]


async def test_c3_a_claim_that_somebody_wrote_over_is_still_ours_to_end(place: Place) -> None:
    """C3: an editor that saved what it had read before."""
    tracker = JsonlTracker(place, "penstock")
    await tracker.claim(["bd-1"], NOW)
    place.jsonl.write_bytes(LINES)
    assert await tracker.finish({"bd-1": report_of(record())})
    assert fields(place.jsonl)["bd-1"]["status"] == "closed"


async def test_c3_an_issue_that_is_gone_is_no_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """C3."""
    monkeypatch.setattr("penstock.intake.beads.jsonl._SETTLE_S", 0.0)
    tracker = JsonlTracker(place, "penstock")
    place.jsonl.unlink()
    await tracker.open()
    assert (await tracker.look(NOW)).ready == ()
    assert not await tracker.finish({"bd-1": refusal("no", NOW)})
    assert await tracker.find(["bd-1"]) == {}
    assert tracker.signature() is None


def test_c3_a_long_result_is_cut_in_the_notes() -> None:
    """C3: and they say where all of it is."""
    report = report_of(record(value="x" * 100_000))
    assert len(report.notes) < 33_000
    assert "penstock show t1" in report.notes
    assert report_of(record(value={"text": "hello"})).notes.endswith("hello")
    assert '"a": 1' in report_of(record(value={"a": 1})).notes
    assert read_issue({"id": "bd-1", "notes": report.notes}).notes == report.notes
