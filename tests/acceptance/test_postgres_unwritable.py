"""`serve` on a PostgreSQL that can be read and not written: it says why, starts nothing, and goes on by itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

from penstock.store.postgres import PostgresStore
from tests.acceptance.serve_rig import serving, until
from tests.conformance.store_rig import opened
from tests.postgres_rig import fresh_schema
from tools.postgres_server import PostgresServer

ROOT = Path(__file__).parents[2]
SLOTS = 2
TASKS = 6
# A result needs room of its own: nobody can squeeze it into pages that are there.
WORK = """\
import os
import pathlib
import time

def work(n):
    with open("begun", "a") as file:
        file.write(f"{n}\\n")
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    with open("ended", "a") as file:
        file.write(f"{n}\\n")
    return os.urandom(60_000).hex()
"""


@dataclass(frozen=True, slots=True)
class Ill:
    """A server that can be made one that takes nothing, and well again; and what it then says."""

    url: str
    spoil: Callable[[], object]
    heal: Callable[[], object]
    says: str


@contextmanager
def read_only() -> Iterator[Ill]:
    def be(value: str) -> None:
        server.set({"default_transaction_read_only": value})
        server.reload()
        until(lambda: server.sql("SHOW default_transaction_read_only") == value, lambda: "it was not told")

    with PostgresServer() as server:
        yield Ill(server.url(), lambda: be("on"), lambda: be("off"), "the server is read-only")


@contextmanager
def full() -> Iterator[Ill]:
    """Its tables lie on a disk of a few megabytes, in a mount namespace of its own."""
    if os.geteuid() != 0:
        pytest.skip("a server on a disk of its own needs root")
    with TemporaryDirectory(prefix="penstock-disk-") as disk:
        os.chmod(disk, 0o755)  # the server runs as another user
        script = 'mount -t tmpfs -o size=6m tmpfs "$1" && exec "$2" "$3" "$1" lend'
        program = Path(__file__).with_name("postgres_full_disk.py")
        with subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script, "sh", disk, sys.executable, str(program)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as lender:
            assert lender.stdin is not None
            assert lender.stdout is not None
            talk = (lender.stdin, lender.stdout)

            def next_turn() -> None:
                talk[0].write("\n")
                talk[0].flush()
                assert talk[1].readline().strip() in ("full", "room")

            url = talk[1].readline().strip()
            assert url
            yield Ill(url, next_turn, next_turn, "no space left on the server's disk")


async def told_of_tasks(url: str) -> Counter[tuple[str, str | None]]:
    async with opened(PostgresStore(url)) as store:
        events = await store.events(limit=10_000)
    return Counter((event.type, event.task) for event in events if event.type in ("started", "ended"))


@pytest.mark.parametrize("ill", [read_only, full])
def test_a_server_that_takes_nothing_pauses_work_and_strands_none(ill: Any, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    begun, ended = tmp_path / "begun", tmp_path / "ended"

    def lines(file: Path) -> list[str]:
        return file.read_text().split() if file.exists() else []

    with ill() as server:
        url = f"{server.url}?schema={fresh_schema()}"
        config = f"""\
        store = "{url}"
        heartbeat_s = 0.5

        [hosts.h]
        type = "python"
        call = "work:work"
        slots = {SLOTS}
        """
        with serving(tmp_path, config) as serve, httpx.Client(base_url=serve.root_url, timeout=60) as http:
            told: dict[str, Any] = {}

            def health() -> int:
                answer = http.get("/health")
                told.update(answer.json())
                return answer.status_code

            def waiting_for(reason: str) -> float:
                return sum(
                    count
                    for name, count in serve.metrics().items()
                    if name.startswith("penstock_waiting_tasks{") and f'reason="{reason}"' in name
                )

            def states() -> set[str]:
                return {task["state"] for task in http.get("/api/tasks").json()["tasks"]}

            given = [{"kind": "k", "payload": n} for n in range(TASKS)]
            answer = http.post("/api/tasks", json={"tasks": given}).raise_for_status()
            ids = answer.json()["task_ids"]
            until(lambda: len(lines(begun)) == SLOTS, lambda: serve.log)
            server.spoil()
            (tmp_path / "go").touch()
            until(lambda: health() == 503, lambda: str(told))
            assert server.says in str(told["reasons"])
            until(lambda: len(lines(ended)) == SLOTS, lambda: serve.log)
            until(lambda: waiting_for("store-down") > 0, lambda: str(serve.metrics()))
            assert len(lines(begun)) == SLOTS, "nothing starts that could not be recorded"
            assert states() == {"running", "queued"}, "it is still read"
            server.heal()
            until(lambda: health() == 200, lambda: str(told))
            until(lambda: states() == {"done"}, lambda: serve.log)

            (wait,) = [
                wait
                for wait in http.get(f"/api/tasks/{ids[-1]}/why").json()["waits"]
                if wait["reason"] == "store-down"
            ]
            assert server.says in wait["detail"]
        assert Counter(lines(begun)) == Counter(map(str, range(TASKS))), "each of them once"
        each_once = Counter((type, id) for type in ("started", "ended") for id in ids)
        assert asyncio.run(told_of_tasks(url)) == each_once
