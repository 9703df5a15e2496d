"""Markers: which processes belong to a store, and to which attempt."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.engine.trees import (
    MARKER,
    descendants,
    group_lives,
    is_alive,
    kill_marked,
    kill_orphans,
    mark,
    prefix,
    worker_mark,
)

TAG = f"trees-{os.getpid()}"  # other runs of this suite must not kill our processes


def test_no_tag_begins_another() -> None:
    tags = ["/a", "/a:b", "/a%3Ab", "/a%", "/a:", ""]
    for one in tags:
        for other in tags:
            assert mark(one, "t:x", 1).startswith(prefix(other)) is (one == other)
            assert worker_mark(one, "h", 1).startswith(prefix(other)) is (one == other)


def test_markers_can_stand_in_an_environment() -> None:
    assert "\0" not in mark("a\0b", "c\0d", 1)


@pytest.fixture
def waiting() -> subprocess.Popen[bytes]:
    environment = {**os.environ, MARKER: mark(f"{TAG} marked", "task", 3)}
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
    assert kill_marked(lambda marker: marker == mark(f"{TAG} marked", "task", 2)) == 0
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
    environment = {**os.environ, MARKER: mark(tag, "outer", 1)}
    told = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (told.returncode, told.stdout.strip()) == (0, "0")
