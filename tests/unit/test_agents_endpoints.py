"""The file of endpoints: read without a lock, believed only when whole, written whole or not at all (B2, B3)."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.agents import endpoints as module
from penstock.agents.endpoints import LEAVING, PAUSED, READY, Endpoint, EndpointFile, must_be_ours
from penstock.agents.starts.failures import Failures
from penstock.agents.starts.start_lock import FileStartLock, note_of, owner_of
from penstock.errors import AgentBusy, AgentError, AgentNotReady, NoRoomForAgent

ONE = Endpoint("a1", "c" * 64, "print", "127.0.0.1:40123", "key", "proof", READY, 1.5)
TWO = ONE._replace(instance="b2", address="/run/agents/b2/agent.sock")


@pytest.fixture
def files(tmp_path: Path) -> EndpointFile:
    return EndpointFile(str(tmp_path / "agents"), "reports")


def saved(files: EndpointFile, *endpoints: Endpoint) -> None:
    with files.changing() as known:
        known[:] = endpoints


def names(files: EndpointFile) -> list[str]:
    return sorted(os.listdir(files.folder))


def test_what_was_saved_is_read_back(files: EndpointFile) -> None:
    assert files.read() == []
    saved(files, ONE, TWO._replace(fingerprint="other"))
    assert files.read("print") == [ONE]
    assert files.find("b2") is not None
    assert names(files) == ["change.lock", "endpoints.json"]
    assert os.stat(files.path).st_mode & 0o777 == 0o600
    assert os.stat(files.folder).st_mode & 0o777 == 0o700


def _document(**changes: Any) -> str:
    return json.dumps({"version": 1, "endpoints": [{**ONE._asdict(), **changes}]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "[" * 100_000,
        '{"version": 2, "endpoints": []}',
        '{"version": 1}',
        '{"version": 1, "endpoints": {"a": 1}}',
        '{"version": 1, "endpoints": [null, 3, {}]}',
        _document(address=""),
        _document(address="127.0.0.1"),
        _document(address="127.0.0.1:70000"),
        _document(address="127.0.0.1:²"),
        _document(address="127.0.0.1:" + "9" * 5000),
        _document(key="a\r\nHost: elsewhere"),
        _document(proof="é"),
        _document(instance="../../etc"),
        _document(instance=["a"]),
        _document(state="new"),
        _document(created_at=True),
        _document(created_at=math.nan),
        _document(more="x"),
        _document() + " " * 1_000_000,
    ],
)
def test_a_damaged_file_is_no_endpoint(files: EndpointFile, text: str) -> None:
    """B2: missing, empty, torn, of another version, or with fields that nobody could have written."""
    files.create()
    Path(files.path).write_text(text)
    assert files.read() == []
    saved(files, ONE)
    assert files.read() == [ONE]


def test_a_good_entry_beside_a_bad_one_is_kept(files: EndpointFile) -> None:
    files.create()
    document = {"version": 1, "endpoints": [ONE._asdict(), {"instance": "x"}, ONE._asdict()]}
    Path(files.path).write_text(json.dumps(document))
    assert files.read() == [ONE]


def test_one_seen_in_the_future_is_not_trusted(files: EndpointFile) -> None:
    saved(files, ONE)
    assert files.validated_s_ago(ONE) == math.inf
    files.validated(ONE)
    assert files.validated_s_ago(ONE) < 60
    ahead = time.time() + 3600
    os.utime(os.path.join(files.folder, "validated-a1"), (ahead, ahead))
    assert files.validated_s_ago(ONE) == math.inf
    files.validated(ONE)
    files.doubted(ONE)
    assert files.validated_s_ago(ONE) == math.inf


def test_what_is_dropped_leaves_no_file(files: EndpointFile) -> None:
    saved(files, ONE, TWO)
    for one in (ONE, TWO):
        files.validated(one)
        with files.using(one) as held:
            assert held == one
    files.drop("a1")
    files.drop("a1")
    assert files.read() == [TWO]
    assert names(files) == ["change.lock", "endpoints.json", "use-b2", "validated-b2"]


def test_who_comes_too_late_leaves_no_lock_of_what_is_gone(files: EndpointFile) -> None:
    saved(files, TWO)
    with files.using(ONE) as held:
        assert held is None
    with files.alone(ONE) as is_alone:
        assert is_alone
    assert names(files) == ["change.lock", "endpoints.json"]


def test_a_damaged_file_does_not_free_what_is_in_use(files: EndpointFile) -> None:
    saved(files, ONE)
    with files.using(ONE):
        Path(files.path).write_text("{")
        with files.using(ONE) as held:
            assert held is None
        with files.alone(ONE) as is_alone:
            assert not is_alone


def test_nobody_is_alone_with_what_is_in_use(files: EndpointFile) -> None:
    """B3: callers share it; who pauses or stops it must be alone."""
    saved(files, ONE)
    with files.using(ONE) as held, files.using(ONE) as also:
        assert held == also == ONE
        with files.alone(ONE) as is_alone:
            assert not is_alone
    with files.alone(ONE) as is_alone, files.using(ONE) as held:
        assert is_alone
        assert held is None


def test_a_mark_is_seen_by_who_uses_it_next_and_leaving_is_for_good(files: EndpointFile) -> None:
    saved(files, ONE)
    assert files.mark("a1", PAUSED)
    with files.using(ONE) as held:
        assert held is not None
        assert held.state == PAUSED
    assert files.mark("a1", LEAVING)
    assert not files.mark("a1", READY)
    assert not files.mark("zz", READY)


def test_secrets_are_in_no_repr() -> None:
    """Promise 8."""
    assert "key" not in repr(ONE)
    assert "proof" not in repr(ONE)


# ---- what keeps it from being written


def _full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _short(file: int, data: memoryview) -> int:
    return _WRITE(file, data[:7])


_WRITE = os.write


def test_a_full_disk_is_one_error_and_leaves_no_draft(
    files: EndpointFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(files, ONE)
    monkeypatch.setattr(os, "write", _full)
    with pytest.raises(NoRoomForAgent, match=r"No space left on device.*make room"):
        saved(files, TWO)
    assert files.read() == [ONE]
    assert names(files) == ["change.lock", "endpoints.json"]


def test_a_write_in_pieces_is_whole(files: EndpointFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", _short)
    saved(files, ONE, TWO)
    assert files.read() == [ONE, TWO]


@pytest.mark.parametrize(
    "write",
    [
        lambda files: files.create(),
        lambda files: saved(files, ONE),
        lambda files: FileStartLock(files.folder)._save(),
    ],
)
def test_a_folder_that_cannot_be_written_is_one_clear_error(
    tmp_path: Path, write: Callable[[EndpointFile], None]
) -> None:
    (tmp_path / "agents").write_text("a file in its place")
    with pytest.raises(AgentError, match="cannot be written there"):
        write(EndpointFile(str(tmp_path / "agents"), "reports"))


def test_a_change_held_for_ever_is_an_error(files: EndpointFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """B3: a stopped process must not stop everybody else without a word."""
    monkeypatch.setattr(module, "_CHANGE_S", 0.02)
    saved(files, ONE)
    with open(os.path.join(files.folder, "change.lock")) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AgentBusy, match=r"change\.lock.*fuser"):
            saved(files, TWO)
    saved(files, TWO)
    assert files.read() == [TWO]


# ---- the start lock and what a failed start leaves


async def test_the_start_lock_has_one_owner_who_is_known(tmp_path: Path) -> None:
    """B3."""
    one, other = FileStartLock(str(tmp_path)), FileStartLock(str(tmp_path))
    assert await one.take()
    assert not await one.take()
    assert not await other.take()
    await one.tell("creating its container")
    owner = await other.owner()
    assert owner is not None
    assert (owner.pid, owner.step, owner.attempt) == (os.getpid(), "creating its container", one.attempt)
    await one.free()
    await one.free()
    assert await other.owner() is None
    assert await other.take()
    assert other.attempt != one.attempt
    await other.free()
    assert os.listdir(tmp_path) == ["start.lock"]


async def test_a_lock_file_and_a_note_of_a_dead_owner_mean_nothing(tmp_path: Path) -> None:
    lock = FileStartLock(str(tmp_path))
    assert await lock.take()
    note = (tmp_path / "start.json").read_text()
    await lock.free()
    told = {**json.loads(note), "began": "1"}  # the same pid, of an older process
    (tmp_path / "start.json").write_text(json.dumps(told))
    assert await FileStartLock(str(tmp_path)).owner() is None
    assert await lock.take()
    await lock.free()


@pytest.mark.parametrize("change", [{"pid": "1"}, {"pid": -1}, {"since": "x"}, {"step": 3}, {"more": 1}])
async def test_a_damaged_note_names_nobody(tmp_path: Path, change: dict[str, object]) -> None:
    lock = FileStartLock(str(tmp_path))
    assert await lock.take()
    told = (tmp_path / "start.json").read_bytes()
    found = owner_of(told)
    assert found is not None
    assert owner_of(note_of(found)) == found
    assert owner_of(json.dumps({**json.loads(told), **change})) is None
    assert owner_of(b"\xff") is None
    await lock.free()


async def test_a_full_disk_leaves_the_start_lock_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = FileStartLock(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", _full)
        with pytest.raises(NoRoomForAgent):
            await lock.take()
    assert os.listdir(tmp_path) == ["start.lock"]
    assert await FileStartLock(str(tmp_path)).take()


def test_a_failure_is_for_those_who_were_there(tmp_path: Path) -> None:
    failures = Failures(str(tmp_path))
    assert failures.last() is None
    failures.tell("first", "print", AgentNotReady("it\nended"))
    before = failures.last()
    assert before is not None
    error = before.raised()
    assert (type(error), str(error)) == (AgentNotReady, "it ended")
    assert failures.since(before, "print") is None
    failures.tell("second", "print", AgentNotReady("again"))
    found = failures.since(before, "print")
    assert found is not None
    assert found.attempt == "second"
    assert failures.since(before, "another") is None
    assert failures.since(None, "print") == found
    failures.forget()
    failures.forget()
    assert failures.since(before, "print") is None


@pytest.mark.parametrize("name", ["SystemExit", "PenstockError", "annotations", "NoSuchName"])
def test_a_failure_is_never_another_kind_of_error(tmp_path: Path, name: str) -> None:
    told = {"attempt": "a", "fingerprint": "f", "error": name, "message": "m"}
    (tmp_path / "failed.json").write_text(json.dumps(told))
    found = Failures(str(tmp_path)).last()
    assert found is not None
    assert type(found.raised()) is AgentError
    (tmp_path / "failed.json").write_text(json.dumps({**told, "message": 3}))
    assert Failures(str(tmp_path)).last() is None


# ---- whose folder it is


def test_b2_a_folder_of_another_user_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where anybody may make files, one who was there first could say where calls go."""
    folder = tmp_path / "penstock.db.agents"
    must_be_ours(str(folder))
    folder.mkdir(mode=0o700)
    must_be_ours(str(folder))
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    must_be_ours(str(folder))  # of who owns what is beside it
    real = os.stat

    def seen(path: str) -> os.stat_result:
        found = real(path)
        return os.stat_result((*found[:4], me + 2, *found[5:10])) if path == str(folder) else found

    monkeypatch.setattr(os, "stat", seen)
    with pytest.raises(AgentError, match=rf"belongs to another user \({me + 2}\).*remove it"):
        must_be_ours(str(folder))


def test_a_folder_of_ours_that_others_may_write_to_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "penstock.db.agents"
    folder.mkdir()
    folder.chmod(0o775)
    must_be_ours(str(folder))
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)

    def refused(path: str, mode: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chmod", refused)
    with pytest.raises(AgentError, match="others may write there"):
        must_be_ours(str(folder))


@pytest.mark.parametrize(
    ("looked_s_ago", "seen_s_ago", "is_trusted_anew"),
    [(10, 4, True), (10, 1, False), (60, 4, False), (-60, 4, False)],
)
def test_b2_answers_alone_do_not_make_up_for_a_look(
    tmp_path: Path, looked_s_ago: float, seen_s_ago: float, is_trusted_anew: bool
) -> None:
    """B2: an agent that is called without a pause is still noticed to be of an old image, or too old itself."""
    file = EndpointFile(str(tmp_path), "reports")
    file.create()
    endpoint = Endpoint("a1", "c1", "f1", "127.0.0.1:1", "k", "p", READY, 0.0)
    file.answered(endpoint)
    assert file.validated_s_ago(endpoint) == float("inf"), "one that is doubted is looked at first"
    file.validated(endpoint)
    path, now = tmp_path / "reports" / "validated-a1", time.time()
    os.utime(path, (now - looked_s_ago, now - seen_s_ago))
    file.answered(endpoint)
    assert (path.stat().st_mtime > now - 0.01) is is_trusted_anew
    assert path.stat().st_atime == pytest.approx(now - looked_s_ago, abs=0.01)
