"""A task's value as a file: saved whole before the task is done, inside the folder for outputs and nowhere else."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

import penstock.client
from penstock.config import TaskChecker
from penstock.engine.base import Engine
from penstock.engine.local import LocalEngine
from penstock.engine.outputs import Outputs
from penstock.errors import TaskError
from penstock.hosts.base import Job
from penstock.model import Host, Outcome, State, Task, Verdict
from penstock.wiring import read_config
from tests.conformance.engine_rig import Rig
from tests.unit.web_rig import serving

HOST = Host("small", "simulated", 4)


def saving(root: Path, *own_files: str) -> Any:
    def make(*parts: Any) -> Engine:
        adapters, slots, report, on_stall, clock, tag, limits = parts
        outputs = Outputs(str(root), own_files)
        return LocalEngine(adapters, slots, report, on_stall, clock, None, tag, limits, outputs)

    return make


async def outcome_of(root: Path, output: str, value: Any, *own_files: str, **wishes: Any) -> Outcome:
    async with Rig(HOST, make=saving(root, *own_files)) as rig:
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
    assert "is outside of" in (outcome.error or "")
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
    assert "Penstock's own" in str((await outcome_of(tmp_path, "penstock.toml", "x", str(own))).error)
    (tmp_path / "link").symlink_to(tmp_path)
    assert "Penstock's own" in str((await outcome_of(tmp_path, "link/penstock.toml", "x", str(own))).error)
    assert own.read_text() == "ours"


async def test_what_cannot_be_written_fails_with_the_value_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = await outcome_of(tmp_path, "file/report.md", "text")
    assert (outcome.verdict, outcome.value) == (Verdict.PERMANENT, "text")
    assert "could not be written" in (outcome.error or "")


async def test_one_that_ended_can_be_stopped_no_more_while_it_is_saved(tmp_path: Path) -> None:
    """Its work is done: a stop that comes now finds nothing to stop, and it is reported once."""
    job = Job("t", 1, "k", {"duration_s": 0.0, "value": "text"}, "small", "default", output="report.md")
    async with Rig(HOST, make=saving(tmp_path)) as rig:
        rig.start_all([job])
        while not next(iter(rig.engine._live.values())).saved:  # type: ignore[attr-defined]
            await rig.settle()
        rig.engine.stop("t", 1)
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
    ],
)
def test_a_path_that_leads_out_is_refused_at_submit(config: Path, output: Any, what: str) -> None:
    checker = TaskChecker(read_config(config))
    with pytest.raises(TaskError, match=f"output: .*{what}"):
        checker.check(Task("count", output=output))
    checker.check(Task("count"))
    with pytest.raises(TaskError, match=what):  # also when its shape is known to be good
        checker.check(Task("count", output=output))


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
