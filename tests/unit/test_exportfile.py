"""An export read as a file is the recording that its store would give (E2, E3)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import penstock.client
from penstock.diagnosis.recording import Recording
from penstock.errors import UsageError
from penstock.intake.logs.file import read_log
from penstock.model import Host, Plant, Task

CONFIG = """
store = "penstock.db"

[hosts.small]
type = "simulated"
duration_s = 0.01
slots = 2

[lanes.night]
max_running = 1

[gates.small-headroom]
lane = "night"
max_running = 0
holds = { lanes = ["day"] }

[lanes.day]
"""


def bare(recording: Recording) -> Recording:
    """Without what tasks were asked and gave: the store's history leaves it out, an export has it."""
    tasks = [replace(r, value=None, task=replace(r.task, payload=None)) for r in recording.tasks]
    return replace(recording, tasks=tasks, attempts=list(recording.attempts), others=list(recording.others))


@pytest.fixture
async def export(tmp_path: Path) -> tuple[Path, Recording]:
    (tmp_path / "penstock.toml").write_text(CONFIG)
    async with penstock.client.open(tmp_path / "penstock.toml") as client:
        tasks = [Task("count", {"n": n}, lane="night" if n % 2 else "day", id=f"t{n}") for n in range(8)]
        last = Task("count", id="last", after=("t1", "t2"))
        await client.pause()
        run = await client.submit_many([*tasks, last], run="nightly")
        await client.set_priority("t5", priority=0)
        await client.resume()
        await run.wait()
        lines = [line async for line in client.export_run("nightly")]
        recording = await client.recording("nightly")
    path = tmp_path / "nightly.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path, recording


async def test_an_export_is_the_recording_of_its_store(export: tuple[Path, Recording]) -> None:
    path, recording = export
    read = read_log(path)
    assert bare(read.recording) == bare(recording)
    assert [(one.task, one.was, one.priority) for one in read.recording.priorities] == [("t5", 2, 0)]
    assert read.recording.is_ours
    assert any(read.recording.waits.values())
    assert any(change for change in read.recording.changes)
    assert read.notes == ()


async def test_the_plant_of_an_export_is_its_own(export: tuple[Path, Recording]) -> None:
    path, recording = export
    read = read_log(path, plant=Plant((Host("other", "simulated"),)), slots={"small": 5})
    assert read.recording.plant is not None
    assert [(host.name, host.slots) for host in read.recording.plant.hosts] == [("small", 5)]
    assert recording.plant is not None
    assert [lane.name for lane in read.recording.plant.lanes] == [lane.name for lane in recording.plant.lanes]


async def test_a_cut_export_is_refused(export: tuple[Path, Recording]) -> None:
    """Promise 7."""
    path, _ = export
    lines = path.read_bytes().splitlines()
    path.write_bytes(lines[0])
    with pytest.raises(UsageError, match=r"nightly\.jsonl: the export holds no task; export the run again"):
        read_log(path)
    path.write_bytes(b"\n".join([*lines[:3], lines[3][:-20]]))
    with pytest.raises(UsageError, match=r"nightly\.jsonl:4: is not JSON"):
        read_log(path)
    path.write_bytes(b"\n".join([*lines[:3], b'{"nonsense": 1}']))
    with pytest.raises(UsageError, match=r"nightly\.jsonl: line 4: not a line of a Penstock export"):
        read_log(path)
