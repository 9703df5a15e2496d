"""A task's value as a file: saved whole before the task is done, inside the folder for outputs and nowhere else."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock.client
from penstock.config import Config, TaskChecker
from penstock.config.outputs import OutputRules
from penstock.config.own_files import store_tag
from penstock.engine.base import Engine
from penstock.engine.local import LocalEngine
from penstock.engine.outputs import Outputs
from penstock.engine.whole_files import WholeFiles
from penstock.errors import TaskError
from penstock.hosts.base import Job
from penstock.model import Host, Outcome, Plant, State, Task, Verdict
from penstock.wiring import read_config
from tests.conformance.engine_rig import MakeEngine, Rig, Wanted, slots_of
from tests.unit.web_rig import serving

HOST = Host("small", "simulated", 4)
FORBIDDEN = (
    "penstock.toml",
    *(
        f"penstock.db{end}"
        for end in ("", "-wal", "-shm", "-journal", ".lock", ".turn", ".bells/1", ".work/a/log")
    ),
    "penstock.env",
    "PENSTOCK.ENV",
    ".git/hooks/post-checkout",
    "sub/.git/config",
    "sub/.GIT/config",
    ".git",
    ".beads/issues.jsonl",
    "sub/.beads/issues.jsonl",
    "inbox/.penstock/lock",
)


def saving(root: Path) -> MakeEngine:
    """The config and the store lie in the root."""

    def make(wanted: Wanted) -> Engine:
        adapters, hosts, report, notice, clock, tag, limits = wanted
        outputs = Outputs(OutputRules(config_in(root)))
        return LocalEngine(adapters, slots_of(hosts), report, notice, clock, None, tag, limits, outputs)

    return make


def config_in(root: Path) -> Config:
    keys = Host("surtr", "openai", options={"key_file": str(root / "keys/surtr.key")})
    runs = Host("reports", "researcher", options={"work_dir": str(root / "runs")})
    return Config(path=root / "penstock.toml", store=str(root / "penstock.db"), plant=Plant((keys, runs)))


async def outcome_of(root: Path, output: str, value: Any, **wishes: Any) -> Outcome:
    async with Rig(HOST, make=saving(root)) as rig:
        return await rig.outcome_of("small", {"duration_s": 0.0, "value": value, **wishes}, output=output)


def everything_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("a report", "a report\n"),
        ("ends in a line\n", "ends in a line\n"),
        ({"text": "# Title", "usage": 3}, "# Title\n"),
        ({"rows": [1, 2]}, '{\n  "rows": [\n    1,\n    2\n  ]\n}\n'),
        ({"text": 5}, '{\n  "text": 5\n}\n'),
        (None, "null\n"),
    ],
)
async def test_text_is_saved_as_it_is_and_anything_else_as_json(
    tmp_path: Path, value: Any, content: str
) -> None:
    outcome = await outcome_of(tmp_path, "deep/er/report.md", value)
    assert (outcome.verdict, outcome.value) == (Verdict.DONE, value)
    assert (tmp_path / "deep/er/report.md").read_text() == content
    assert everything_in(tmp_path) == ["deep/er/report.md"], "nothing is left beside it"
    assert stat.S_IMODE((tmp_path / "deep/er/report.md").stat().st_mode) == 0o644


async def test_what_failed_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("the old one")
    outcome = await outcome_of(tmp_path, "report.md", "new", fail=True)
    assert outcome.verdict is not Verdict.DONE
    assert (tmp_path / "report.md").read_text() == "the old one"


async def test_a_link_leads_nowhere_outside(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "way").symlink_to(outside)
    outcome = await outcome_of(root, "way/out/report.md", "text")
    assert outcome.verdict is Verdict.PERMANENT
    assert outcome.value == "text", "what was made is kept"
    assert "goes through 'way', which is a link" in (outcome.error or "")
    assert everything_in(outside) == []
    assert not (outside / "out").exists()


async def test_a_link_in_its_place_is_replaced_not_followed(tmp_path: Path) -> None:
    root, secret = tmp_path / "root", tmp_path / "secret"
    root.mkdir()
    secret.write_text("untouched")
    (root / "report.md").symlink_to(secret)
    assert (await outcome_of(root, "report.md", "text")).verdict is Verdict.DONE
    assert secret.read_text() == "untouched"
    assert (root / "report.md").read_text() == "text\n"


async def test_a_folder_or_a_file_of_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    own = tmp_path / "penstock.toml"
    own.write_text("ours")
    assert "a folder of that name" in str((await outcome_of(tmp_path, "folder", "x")).error)
    assert "Penstock's own" in str((await outcome_of(tmp_path, "penstock.toml", "x")).error)
    (tmp_path / "link").symlink_to(tmp_path)
    assert "a link" in str((await outcome_of(tmp_path, "link/penstock.toml", "x")).error)
    assert own.read_text() == "ours"


@pytest.mark.parametrize("output", [*FORBIDDEN, "keys/surtr.key", "runs/{tag}/reports/x.log"])
@pytest.mark.parametrize("by_link", [False, True])
def test_nothing_that_keeps_us_going_is_replaced_even_if_it_was_accepted(
    tmp_path: Path, output: str, by_link: bool
) -> None:
    """Promise 7: it is asked again when the result is saved, whatever the root is called."""
    home = tmp_path / "home"
    (home / ".git/hooks").mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    rules = OutputRules(config_in(home), str(tmp_path / ("link" if by_link else "home")))
    output = output.format(tag=store_tag(config_in(home)))
    before = everything_in(home)
    kept = Outputs(rules).kept(output, Outcome(Verdict.DONE, "text"))
    assert (kept.verdict, kept.value) == (Verdict.PERMANENT, "text")
    assert "Penstock's own" in (kept.error or "") or "no place for results" in (kept.error or "")
    assert everything_in(home) == before
    assert rules.problem(output) is not None, "and it is not accepted in the first place"


def test_what_a_link_to_the_config_leads_to_is_not_replaced_either(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text("ours")
    (tmp_path / "penstock.toml").symlink_to("real.toml")
    outputs = Outputs(OutputRules(config_in(tmp_path)))
    for name in ("real.toml", "penstock.toml"):
        assert outputs.kept(name, Outcome(Verdict.DONE, "x")).verdict is Verdict.PERMANENT
    assert (tmp_path / "penstock.toml").read_text() == "ours"


def test_who_may_read_a_file_stays_as_it_was(tmp_path: Path) -> None:
    outputs = Outputs(OutputRules(config_in(tmp_path)))
    (tmp_path / "mine.md").write_text("old")
    (tmp_path / "mine.md").chmod(0o600)
    for name in ("mine.md", "other.md"):
        assert outputs.kept(name, Outcome(Verdict.DONE, "x")).verdict is Verdict.DONE
    assert (tmp_path / "mine.md").read_text() == "x\n"
    assert (tmp_path / "mine.md").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "other.md").stat().st_mode & 0o444 == 0o444


def test_a_name_that_only_looks_like_ours_is_free(tmp_path: Path) -> None:
    """Another folder's penstock.db is nobody's, and .gitignore is not .git."""
    outputs = Outputs(OutputRules(config_in(tmp_path)))
    for name in (
        "sub/penstock.db",
        "penstock.dbs/report.md",
        "sub/penstock.toml",
        "sub/penstock.env",
        "keys/a.md",
        "runs/a.md",
        ".gitignore",
        "a.git",
        "penstock.md",
    ):
        assert outputs.kept(name, Outcome(Verdict.DONE, "x")).verdict is Verdict.DONE


def test_what_a_killed_writer_left_is_removed_and_what_another_writes_is_not(tmp_path: Path) -> None:
    left, live, alien = (tmp_path / name for name in (".penstock-1.part", ".penstock-2.part", "x.part"))
    for path in (left, live, alien):
        path.write_text("half")
    with live.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        WholeFiles(str(tmp_path)).write(["a.md"], b"text")
    assert everything_in(tmp_path) == sorted([live.name, alien.name, "a.md"])


def test_a_part_that_was_swept_before_its_writer_locked_it_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    swept: list[str] = []

    def too_late(file: int, how: int) -> None:
        if not swept:
            swept.append(next(tmp_path.glob(".penstock-*.part")).name)
            (tmp_path / swept[0]).unlink()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", too_late)
    WholeFiles(str(tmp_path)).write(["a.md"], b"text")
    assert swept
    assert everything_in(tmp_path) == ["a.md"]
    assert (tmp_path / "a.md").read_bytes() == b"text"


def test_a_full_disk_leaves_the_old_file_and_nothing_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.md").write_text("the old one")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        WholeFiles(str(tmp_path)).write(["a.md"], b"text")
    assert everything_in(tmp_path) == ["a.md"]
    assert (tmp_path / "a.md").read_text() == "the old one"


def test_a_pipe_in_its_place_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no plain file"):
        WholeFiles(str(tmp_path)).write(["pipe"], b"text")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("parts", [[".."], ["a", "..", "b"], ["a/b"], [""], [".", "b"]])
def test_a_name_is_one_name(tmp_path: Path, parts: list[str]) -> None:
    with pytest.raises(OSError, match="no name of a file"):
        WholeFiles(str(tmp_path)).write(parts, b"text")


async def test_what_cannot_be_written_fails_with_the_value_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = await outcome_of(tmp_path, "file/report.md", "text")
    assert (outcome.verdict, outcome.value) == (Verdict.PERMANENT, "text")
    assert "could not be written" in (outcome.error or "")


async def test_one_that_ended_can_be_stopped_no_more_while_it_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its work is done: a stop that comes now finds nothing to stop, and it is reported once."""
    stopped, save = threading.Event(), Outputs.kept

    def slow(outputs: Outputs, output: str, outcome: Outcome) -> Outcome:
        assert stopped.wait(60)
        return save(outputs, output, outcome)

    monkeypatch.setattr(Outputs, "kept", slow)
    job = Job("t", 1, "k", {"duration_s": 0.0, "value": "text"}, "small", "default", output="report.md")
    async with Rig(HOST, make=saving(tmp_path)) as rig:
        rig.start_all([job])
        while not next(iter(rig.engine._live.values())).saved:  # type: ignore[attr-defined]
            await rig.settle()
        rig.engine.stop("t", 1)
        stopped.set()
        assert (await rig.outcome()).verdict is Verdict.DONE
    assert (tmp_path / "report.md").read_text() == "text\n"


# ---- what may be asked for


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.toml"
    path.write_text('[hosts.small]\ntype = "simulated"\nduration_s = 0\n')
    return path


@pytest.mark.parametrize(
    ("output", "what"),
    [
        ("", "must be the path of a file"),
        (7, "must be the path of a file"),
        ("a\nb", "control characters"),
        ("x" * 2000, "at most 1024"),
        ("x" * 256, "at most 255"),
        ("folder/", "is a folder"),
        ("folder/..", "is a folder"),
        ("../x", "is outside of"),
        ("a/../../x", "is outside of"),
        ("/etc/passwd", "is outside of"),
        ("penstock.toml", "Penstock's own"),
        ("sub/../penstock.db-wal", "Penstock's own"),
        *((path, "Penstock's own|no place for results") for path in FORBIDDEN),
    ],
)
def test_a_path_that_leads_out_is_refused_at_submit(config: Path, output: Any, what: str) -> None:
    checker = TaskChecker(read_config(config))
    with pytest.raises(TaskError, match=f"output: .*({what})"):
        checker.check(Task("count", output=output))
    checker.check(Task("count"))
    with pytest.raises(TaskError, match=what):  # also when its shape is known to be good
        checker.check(Task("count", output=output))


def test_a_link_on_the_way_is_told_at_submit(config: Path) -> None:
    (config.parent / "real").mkdir()
    (config.parent / "way").symlink_to("real")
    checker = TaskChecker(read_config(config))
    checker.check(Task("count", output="real/a.md"))
    with pytest.raises(TaskError, match="goes through 'way', which is a link"):
        checker.check(Task("count", output="way/a.md"))


def test_a_root_of_its_own_holds(config: Path) -> None:
    config.write_text('output_root = "out"\n' + config.read_text())
    made = read_config(config)
    assert made.outputs == str(config.parent / "out")
    checker = TaskChecker(made)
    checker.check(Task("count", output=str(config.parent / "out/a.md")))
    with pytest.raises(TaskError, match="set `output_root`"):
        checker.check(Task("count", output="../a.md"))


async def test_a_done_task_has_its_file_and_the_record_tells_where(config: Path) -> None:
    async with penstock.client.open(config) as client:
        task = await client.submit(Task("count", {"value": "seven"}, output="made/count.txt"))
        result = await client.wait(task)
        assert result.state is State.DONE
        assert (config.parent / "made/count.txt").read_text() == "seven\n"
        assert (await client.get(task)).task.output == "made/count.txt"


async def test_http_clients_write_files_only_where_the_config_says_so(tmp_path: Path) -> None:
    entry = {"kind": "a", "payload": {"value": "x"}, "output": "a.txt"}
    async with serving(tmp_path) as web:
        refused = await web.post("/api/tasks", entry, 422)
        assert "output_root" in refused["message"]
    assert everything_in(tmp_path).count("a.txt") == 0
