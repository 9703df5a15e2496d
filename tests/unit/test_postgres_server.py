"""The server that the docs offer to whoever has none: it says where it is, and takes a store."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from pathlib import Path

from penstock.store.postgres import PostgresStore
from tests.conformance.store_rig import PATIENCE_S, opened, tasks

ROOT = Path(__file__).parents[2]


async def _used(place: str) -> None:
    async with opened(PostgresStore(place)) as store:
        assert len(await store.submit(tasks(1))) == 1


def test_it_prints_its_place_as_the_docs_have_it_and_goes() -> None:
    begun = subprocess.Popen(
        [sys.executable, "-m", "tools.postgres_server"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert begun.stdout is not None
        told = begun.stdout.readline() + begun.stdout.readline()
        place = re.match(r'store = "(.*)"\n', told)
        assert place is not None, told
        asyncio.run(_used(place[1]))
    finally:
        begun.send_signal(signal.SIGINT)
        rest, _ = begun.communicate(timeout=PATIENCE_S)
    assert (begun.returncode, rest) == (0, "")
    page = (ROOT / "docs/how-to/postgresql.md").read_text()
    assert re.sub(r":\d+/", ":PORT/", f"$ make postgres\n{told}") in re.sub(r":\d+/", ":PORT/", page)
