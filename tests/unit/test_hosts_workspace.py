"""The folder and the log of an attempt (A9): what is written while it runs, what goes, what stays."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import HostError
from penstock.hosts.workspace import LINES_BYTES, AttemptLog, Workspace, clean, log_path

DAY_S = 86_400.0


def as_it_is(data: bytes) -> bytes:
    return data


def hidden(data: bytes) -> bytes:
    return data.replace(b"sk-secret", b"[key]")


def opened(path: Path, limit_bytes: int = 1000, redact: Callable[[bytes], bytes] = as_it_is) -> AttemptLog:
    log = AttemptLog(path, limit_bytes, redact)
    log.open()
    return log


def space(base: Path, keep: str = "none") -> Workspace:
    return Workspace(base, "t.1", keep, AttemptLog(base / "t.1.log", 1000, as_it_is))


# ---- the log


def test_lines_are_there_as_soon_as_they_are_whole(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    log.write(b"one\ntw")
    assert (tmp_path / "log").read_bytes() == b"one\n"
    log.write(b"o\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"
    log.write(b"rest")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\nrest\n"


def test_a_secret_in_two_pieces_is_hidden(tmp_path: Path) -> None:
    """Promise 8: it is not even on the disk for a moment."""
    log = opened(tmp_path / "log", redact=hidden)
    log.write(b"key sk-se")
    assert (tmp_path / "log").read_bytes() == b""
    log.write(b"cret, again sk-secret\n")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"key [key], again [key]\n"


def test_colours_are_left_out(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    log.write(b"\x1b[32mgreen\x1b[0m \x1b[1;31mred\x1b[0m\n")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"green red\n"


def test_a_log_is_cut_at_its_limit_and_says_so(tmp_path: Path) -> None:
    log = opened(tmp_path / "log", 10)
    for _ in range(5):
        log.write(b"12345678\n")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"12345678\n1\n[cut here: the log is longer than 10 bytes]\n"


def test_a_line_without_end_is_told_in_pieces(tmp_path: Path) -> None:
    log = opened(tmp_path / "log", 10**6)
    log.write(b"x" * (LINES_BYTES + 1))
    assert (tmp_path / "log").stat().st_size == LINES_BYTES + 2
    log.close()


def test_only_its_user_may_read_a_log(tmp_path: Path) -> None:
    opened(tmp_path / "log").close()
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


def test_a_link_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "t.1.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostError, match="cannot make the working folder"):
        space(tmp_path).make()
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_loses_the_log_and_nothing_else() -> None:
    log = opened(Path("/dev/full"))
    log.write(b"line\n")
    log.close()


# ---- the folder


@pytest.mark.parametrize(
    ("keep", "done", "stays"),
    [
        ("none", True, False),
        ("none", False, False),
        ("failed", True, False),
        ("failed", False, True),
        ("all", True, True),
        ("all", False, True),
    ],
)
def test_a_folder_goes_or_stays_as_the_host_says(tmp_path: Path, keep: str, done: bool, stays: bool) -> None:
    work = space(tmp_path / "host", keep)
    work.make()
    (work.folder / "outputs").mkdir()
    (work.folder / "outputs" / "half.md").write_text("half")
    work.done = done
    work.leave()
    assert work.folder.exists() is stays
    assert (tmp_path / "host" / "t.1.log").exists()


def test_a_folder_that_cannot_be_made_is_the_hosts_fault(tmp_path: Path) -> None:
    (tmp_path / "host").write_text("a file")
    with pytest.raises(HostError, match="free the disk, or name another `work_dir`"):
        space(tmp_path / "host").make()


def test_what_a_killed_dispatcher_left_is_removed(tmp_path: Path) -> None:
    base = tmp_path / "host"
    for name in ("t.1", "u.12"):
        left = Workspace(base, name, "none", AttemptLog(base / f"{name}.log", 10, as_it_is))
        left.make()
        left.log.close()
    (base / "mine").mkdir()
    os.utime(base / "t.1.log", (0, 0))
    clean(base, "none", 7.0, now=8 * DAY_S)
    assert sorted(path.name for path in base.iterdir()) == [".penstock", "mine", "u.12.log"]


def test_what_was_kept_on_purpose_stays(tmp_path: Path) -> None:
    work = space(tmp_path, "failed")
    work.make()
    work.log.close()
    clean(tmp_path, "failed", 7.0)
    assert work.folder.exists()


@pytest.mark.parametrize("keep", ["failed", "all"])
def test_what_was_kept_is_gone_after_log_days(tmp_path: Path, keep: str) -> None:
    work = space(tmp_path, keep)
    work.make()
    work.log.close()
    (tmp_path / "mine").mkdir()
    for folder in (work.folder, tmp_path / "mine"):
        os.utime(folder, (0, 0))
    clean(tmp_path, keep, 7.0, now=6 * DAY_S)
    assert work.folder.exists()
    clean(tmp_path, keep, 7.0, now=8 * DAY_S)
    assert not work.folder.exists()
    assert (tmp_path / "mine").exists()


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "t.1").mkdir()
    clean(tmp_path, "none", 0.0)
    clean(tmp_path / "none", "none", 0.0)
    assert (tmp_path / "t.1").exists()


def test_the_log_has_its_place() -> None:
    assert log_path("/w", "reports", "1m7f", 2) == Path("/w/reports/1m7f.2.log")
