"""Markers: which processes belong to a store, and to which attempt."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.engine.trees import (
    MARKER,
    Marks,
    descendants,
    group_lives,
    is_alive,
    kill_forsaken,
    kill_marked,
    kill_orphans,
    new_marks,
    prefix,
    worker_mark,
)

TAG = f"trees-{os.getpid()}"  # other runs of this suite must not kill our processes
MARKED = new_marks(f"{TAG} marked")


def test_no_tag_begins_another() -> None:
    tags = ["/a", "/a:b", "/a%3Ab", "/a%", "/a:", ""]
    for one in tags:
        for other in tags:
            assert Marks(one, "7-0a0a0a0a").of_attempt("t:x", 1).startswith(prefix(other)) is (one == other)
            assert worker_mark(one, "h", 1).startswith(prefix(other)) is (one == other)


def test_markers_can_stand_in_an_environment() -> None:
    assert "\0" not in Marks("a\0b", "").of_attempt("c\0d", 1)


@pytest.fixture
def waiting() -> subprocess.Popen[bytes]:
    environment = {**os.environ, MARKER: MARKED.of_attempt("task", 3)}
    script = "print('here', flush=True); input()"
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def test_a_marked_process_is_found_and_killed(waiting: subprocess.Popen[bytes]) -> None:
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == b"here\n"
    assert is_alive(waiting.pid)
    assert group_lives(waiting.pid)
    assert waiting.pid in [process.pid for process in descendants(os.getpid())]
    assert kill_orphans(TAG) == 0
    assert kill_marked(lambda marker: marker == MARKED.of_attempt("task", 2)) == 0
    assert kill_orphans(f"{TAG} marked") == 1
    assert not is_alive(waiting.pid)
    waiting.communicate()
    assert waiting.returncode == -9
    assert not group_lives(waiting.pid)
    assert descendants(waiting.pid) == []


def test_a_dispatcher_inside_an_attempt_spares_itself_and_its_parents() -> None:
    tag = f"{TAG} inside"
    script = (
        "import subprocess, sys\n"
        f"inner = 'from penstock.engine.trees import kill_orphans; print(kill_orphans(\"{tag}\"))'\n"
        "print(subprocess.run([sys.executable, '-c', inner], capture_output=True, text=True).stdout.strip())"
    )
    environment = {**os.environ, MARKER: new_marks(tag).of_attempt("outer", 1)}
    told = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (told.returncode, told.stdout.strip()) == (0, "0")


def test_the_dead_are_told_from_those_who_dispatch_elsewhere() -> None:
    """A deposed dispatcher on the same machine ends its own processes, and no others of the store."""
    tag = f"{TAG} lives"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    mine, another, dead = new_marks(tag), new_marks(tag), Marks(tag, f"{gone.pid}-0123abcd")
    started = [
        subprocess.Popen(["sleep", "600"], env={**os.environ, MARKER: marker})
        for marker in (
            mine.of_attempt("a", 1),
            another.of_worker("h", 1),
            dead.of_attempt("b", 1),
            worker_mark(tag, "h", 0),
        )
    ]
    try:
        assert kill_forsaken(tag) == 1
        assert started[2].wait() == -9
        assert mine.kill_all() == 1
        assert started[0].wait() == -9
        assert [one.poll() for one in started[1::2]] == [None, None]
    finally:
        kill_orphans(tag)
    assert [one.wait() for one in started] == [-9] * 4
