"""E7: what the page of a task in `top` tells, read from a store."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

import penstock
from penstock.cli.top_task import read_task
from penstock.model import Outcome, State, Verdict
from penstock.scheduling.messages import End, Requeue, Start
from penstock.store.base import Owner

CONFIG = """
[hosts.far]
type = "simulated"
"""


async def test_each_attempt_says_on_which_machine_it_ran(tmp_path: Path) -> None:
    """Of several machines that are one host; one that ran on this one has none to tell."""
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG)
    async with penstock.open(path, dispatch=False) as client:
        store = client._store
        (task,) = await store.submit([penstock.Task("k", id="a", queued_at=1.0)])
        await store.acquire(Owner(1, "here", "test"), 1.0)
        failed = Requeue(task, 1, 3.0, 3.0, 1, 0, Verdict.TEMPORARY, "no luck", node="node7")
        ended = Outcome(Verdict.DONE, "well", node="node8")
        await store.record(
            [
                Start(task, 1, "far", "default", 1, 2.0),
                failed,
                Start(task, 2, "far", "default", 1, 4.0),
                Requeue(task, 2, 5.0, 5.0, 1, 0, Verdict.CANCELLED, "put back"),
                Start(task, 3, "far", "default", 1, 6.0),
                End(task, 3, State.DONE, "finish", 7.0, ended, None),
            ]
        )
        short, whole = await read_task(client, task)
    out = Console(width=160, force_terminal=False)
    with out.capture() as captured:
        out.print(short)
        out.print(whole)
    lines = [line.split() for line in captured.get().splitlines()]
    rows = [line for line in lines if line and line[0] in ("1", "2", "3")]
    assert [row[: 4 if row[2] == "on" else 2] for row in rows] == [
        ["1", "far", "on", "node7"],
        ["2", "far"],
        ["3", "far", "on", "node8"],
    ]
