"""B9: figures of calls, from any number of processes at once, are all counted, once, in bounded space."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.agents import figures
from penstock.agents.figures import Sums

APPENDERS = """
import os, sys
from penstock.agents import figures
folder, processes, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
figures.MOST_LOG_BYTES = 8000
begin, go = os.pipe()
children = []
for _ in range(processes):
    if not (child := os.fork()):
        os.close(go)
        os.read(begin, 1)
        for number in range(calls):
            figures.add(folder, {"hit": number % 10 != 0, "pool": "ready", "lock_wait_s": 0.001}, ok=True)
        os._exit(0)
    children.append(child)
os.close(go)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
"""


def log_of(folder: Path) -> Path:
    return folder / "figures.log"


def test_calls_add_up(tmp_path: Path) -> None:
    folder = str(tmp_path / "reports")
    figures.add(
        folder, {"hit": False, "pool": "cold", "lock_wait_s": 0.2, "start_s": 0.3, "ready_s": 0.5}, ok=True
    )
    for _ in range(8):
        figures.add(folder, {"hit": True, "pool": "ready", "overhead_s": 0.001}, ok=True)
    figures.add(folder, {"hit": True, "pool": "resumed"}, ok=False)
    sums = figures.read(folder)
    assert sums.counts == {
        "calls": 10,
        "answered": 9,
        "unanswered": 1,
        "hits": 9,
        "misses": 1,
        "pool_cold": 1,
        "pool_ready": 8,
        "pool_resumed": 1,
    }
    assert sums.share("answered", "unanswered") == 0.9
    assert sums.quantile("ready_s", 0.5) == 0.5
    assert sums.longest["start_s"] == 0.8  # from its creation to its first answer
    assert sums.longest["lock_wait_s"] == 0.2
    assert sums.quantile("overhead_s", 0.95) == pytest.approx(0.001, rel=0.1)


def test_nothing_is_known_of_an_agent_without_calls(tmp_path: Path) -> None:
    sums = figures.read(str(tmp_path / "none"))
    assert sums.counts == {}
    assert sums.share("hits", "misses") is None
    assert sums.quantile("ready_s", 0.5) is None


def test_quantiles_are_right_to_a_tenth() -> None:
    sums = Sums()
    for number in range(1, 1001):
        sums.add({"ok": True, "overhead_s": number / 1000})
    for part, right in ((0.5, 0.5), (0.95, 0.95), (0.01, 0.01), (1.0, 1.0)):
        found = sums.quantile("overhead_s", part)
        assert found is not None
        assert right <= found <= right * 1.11


def test_b9_fifty_processes_lose_nothing_while_others_fold(tmp_path: Path) -> None:
    """Each appends lines and the log is folded every few hundred of them."""
    calls, processes = 40, 50
    command = [sys.executable, "-c", APPENDERS, str(tmp_path), str(processes), str(calls)]
    subprocess.run(command, check=True, timeout=60)
    sums = figures.read(str(tmp_path))
    assert sums.counts["calls"] == sums.counts["answered"] == calls * processes
    assert sums.counts["misses"] == calls * processes // 10
    assert (tmp_path / "figures.json").is_file(), "it was never folded"
    log = log_of(tmp_path)  # there is none where the last line was the one that had it folded
    assert not log.exists() or log.stat().st_size < 16_000
    assert {path.name for path in tmp_path.iterdir()} <= {"figures.log", "figures.json"}, "drafts are left"


def test_a_fold_that_was_cut_off_counts_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path)
    for _ in range(5):
        figures.add(folder, {"hit": True}, ok=True)

    def killed(path: str) -> None:
        raise OSError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", killed)
        figures.fold(folder)
    assert log_of(tmp_path).is_file()
    figures.add(folder, {"hit": False}, ok=True)
    assert figures.read(folder).counts["calls"] == 6
    figures.fold(folder)
    assert not log_of(tmp_path).exists()
    figures.add(folder, {"hit": False}, ok=True)
    sums = figures.read(folder)
    assert (sums.counts["calls"], sums.counts["hits"], sums.counts["misses"]) == (7, 5, 2)


class Preempted:
    """Whoever begins a log is stopped between giving it its name and removing that of its draft; and between a
    call's opening of the log and its lock, somebody folds it."""

    def __init__(self, folder: str, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._unlink, self._flock = os.unlink, fcntl.flock
        self._is_to_fold = False
        patch.setattr(os, "unlink", self._unlinked)
        patch.setattr(fcntl, "flock", self._locked)

    def fold_at_next_lock(self) -> None:
        self._is_to_fold = True

    def _unlinked(self, path: str) -> None:
        if not Path(path).name.startswith("figures.log."):
            self._unlink(path)

    def _locked(self, file: int, how: int) -> None:
        if self._is_to_fold:
            self._is_to_fold = False
            figures.fold(self._folder)
        self._flock(file, how)


def test_b9_a_log_that_still_has_the_name_of_its_draft_is_folded_away_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither who writes, nor who folds, nor who reads takes it for the log that is in its place."""
    folder = str(tmp_path)
    preempted = Preempted(folder, monkeypatch)
    figures.add(folder, {}, ok=True)
    preempted.fold_at_next_lock()
    figures.add(folder, {}, ok=True)
    assert figures.read(folder).counts["calls"] == 2
    preempted.fold_at_next_lock()
    assert figures.read(folder).counts["calls"] == 2
    figures.add(folder, {}, ok=True)
    preempted.fold_at_next_lock()
    figures.fold(folder)  # another was quicker
    figures.add(folder, {}, ok=True)
    figures.fold(folder)
    assert figures.read(folder).counts["calls"] == 4


def test_drafts_of_killed_processes_go_with_the_next_fold(tmp_path: Path) -> None:
    figures.add(str(tmp_path), {}, ok=True)
    names = ("figures.log.1.aa", "figures.json.1", "figures.log.2.bb", "endpoints.json")
    for name in names:
        (tmp_path / name).write_text("{")
    for name in names[:2]:
        os.utime(tmp_path / name, (0, 0))
    os.utime(tmp_path / "endpoints.json", (0, 0))
    figures.fold(str(tmp_path))
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"figures.json", "figures.log.2.bb", "endpoints.json"}, "only old drafts, and all of them"


def test_who_is_stuck_while_folding_stalls_no_call(tmp_path: Path) -> None:
    folder = str(tmp_path)
    figures.add(folder, {}, ok=True)
    stuck = os.open(log_of(tmp_path), os.O_RDWR)
    fcntl.flock(stuck, fcntl.LOCK_EX)
    figures.add(folder, {}, ok=True)  # it is left out
    assert figures.read(folder).counts == {}, "what is folded is told without what is not"
    os.close(stuck)
    figures.add(folder, {}, ok=True)
    assert figures.read(folder).counts["calls"] == 2


@pytest.mark.parametrize(
    "sums", ["", "{", "[]", '{"version": 2}', '{"version": 1}', '{"version": 1, "folded": 3}']
)
@pytest.mark.parametrize("torn", ['{"at": 1, "ok"', "[1]", "\x00\x00", '{"other": 1}'])
def test_files_that_are_not_as_they_should_be_cost_only_themselves(
    tmp_path: Path, sums: str, torn: str
) -> None:
    (tmp_path / "figures.json").write_text(sums)
    figures.add(str(tmp_path), {}, ok=True)
    with log_of(tmp_path).open("a") as file:
        file.write(f"{torn}\n")
    figures.add(str(tmp_path), {}, ok=True)
    assert figures.read(str(tmp_path)).counts["calls"] == 2
    figures.fold(str(tmp_path))
    assert figures.read(str(tmp_path)).counts["calls"] == 2


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    figures.add(str(tmp_path / "file" / "agent"), {}, ok=True)


def test_only_figures_are_written(tmp_path: Path) -> None:
    """Nothing of what was asked, and no more than fits into one write."""
    figures.add(str(tmp_path), {"secret": "x", "pool": "y" * 1000, "hit": "yes", "start_s": "long"}, ok=True)
    line = json.loads(log_of(tmp_path).read_text().splitlines()[1])
    assert set(line) == {"at", "ok"}
    assert len(figures.line_of(dict.fromkeys(figures.TIMES, 1e300) | {"hit": True}, ok=True)) <= 512
