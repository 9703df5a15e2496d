"""Reading on in the log of an attempt: whole lines, from the end or from where somebody was."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.hosts.attempt_logs import read_on


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "t.1.log"
    path.write_bytes("one\ntwo\nthrée\nhalf".encode())
    return path


def test_a_line_is_read_when_it_is_whole(log: Path) -> None:
    first = read_on(log, 0, 1000)
    assert first.data.decode() == "one\ntwo\nthrée\n"
    assert read_on(log, first.next, 1000).data == b""
    with log.open("ab") as file:
        file.write(b" and half\n")
    assert read_on(log, first.next, 1000).data == b"half and half\n"


def test_from_the_end_it_begins_with_a_whole_line(log: Path) -> None:
    piece = read_on(log, -1, 14)
    assert piece.data.decode() == "thrée\n"
    assert piece.size == log.stat().st_size


def test_a_line_without_end_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "t.1.log"
    path.write_bytes(b"x" * 100)
    assert read_on(path, 0, 40).data == b"x" * 40
    assert read_on(path, 40, 40).data == b"x" * 40


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    (tmp_path / "t.1.log").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match=r"symbolic link|Too many levels"):
        read_on(tmp_path / "t.1.log", 0, 100)
