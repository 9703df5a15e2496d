"""The store under what really happens: a disk that is full, and processes that are killed in mid-sentence.

A full disk is a real one: a small tmpfs, mounted in a mount namespace of its own.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from pathlib import Path

import pytest

from penstock.model import State
from penstock.store.base import TaskFilter
from penstock.store.sqlite import SQLiteStore
from tests.conformance.store_rig import CHILD, PATIENCE_S, child, opened, tasks

ON_A_SMALL_DISK = """
set -e
mount -t tmpfs -o size=2m tmpfs "$1"
head -c 1000000 /dev/zero > "$1/ballast"
"$2" "$3" fill "$1/store.db" "$1/ballast"
cp "$1"/store.db* "$4/" 2> /dev/null || true
"""


async def test_promise_1_a_full_disk_loses_nothing_and_recording_goes_on(tmp_path: Path) -> None:
    """What was acknowledged is there, what was not is not, and decisions wait for room."""
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    copy.mkdir()
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--map-root-user", "--mount", "sh", "-c", ON_A_SMALL_DISK, "sh"),
        *(str(disk), sys.executable, str(CHILD), str(copy)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(4 * PATIENCE_S):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    told = json.loads(out)
    acknowledged = told["acknowledged"]
    assert len(acknowledged) > 100
    assert "no space left on its disk; free some and try again" in told["refusal"]
    assert told["trouble"] == told["refusal"]
    assert told["after"] is None
    assert told["done"] == len(acknowledged)
    async with opened(SQLiteStore(str(copy / "store.db"))) as store:
        records = await store.tasks(TaskFilter())
        assert [record.task.id for record in records] == acknowledged
        assert all(record.state is State.DONE and record.value == "y" * 200 for record in records)
    assert _is_sound(copy / "store.db")


@pytest.mark.parametrize("acknowledged_runs", [0, 1, 5, 20])
async def test_promise_1_killed_in_mid_submit(tmp_path: Path, acknowledged_runs: int) -> None:
    """Every acknowledged run is whole; of the one in flight there is all or nothing."""
    path = tmp_path / "store.db"
    size = 700
    async with child("bulk", str(path), str(size)) as other:
        runs = [await other.line() for _ in range(acknowledged_runs)]
        await other.kill()
        runs += (await other.rest()).split()
    assert len(runs) >= acknowledged_runs
    async with opened(SQLiteStore(str(path))) as store:
        kept: dict[str, int] = {}
        for record in await store.tasks(TaskFilter()):
            kept[record.task.run] = kept.get(record.task.run, 0) + 1
        assert set(kept.values()) <= {size}
        assert list(kept)[: len(runs)] == runs
        assert len(kept) - len(runs) in (0, 1)
        assert len(await store.submit(tasks(1))) == 1
    assert _is_sound(path)


async def test_promise_1_killed_in_mid_record(tmp_path: Path) -> None:
    """What a dispatcher heard to be written is there after kill -9, and another one takes over."""
    path = tmp_path / "store.db"
    async with opened(SQLiteStore(str(path))) as store:
        ids = await store.submit(tasks(20))
        async with child("own", str(path)) as other:
            assert await other.line() == "owned"
            for id in ids[:10]:
                await other.tell(id)
                assert await other.line() == "recorded"
            await other.tell(ids[10])
            await other.kill()
        states = await store.states(ids)
        assert [states[id] for id in ids[:10]] == [State.DONE] * 10
        assert [states[id] for id in ids[11:]] == [State.QUEUED] * 9
    assert _is_sound(path)


def _is_sound(path: Path) -> bool:
    connection = sqlite3.connect(path)
    try:
        told: str = connection.execute("PRAGMA integrity_check").fetchone()[0]
    finally:
        connection.close()
    return told == "ok"
