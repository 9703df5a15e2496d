"""Money on the command line: what was spent, what may be, and a spent budget as the reason of a wait (C6)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.diagnosis.history import Epoch, Owner
from penstock.diagnosis.why.remedies import BUDGET_STARTS, STARTS, remedies, starts_when
from penstock.model import Fallback, Host, Plant
from penstock.store.base import Snapshot
from penstock.store.status import status_record
from tests.unit.cli_rig import Cli, make_cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


NOTHING = Snapshot(0.0, {}, {}, {}, {}, {}, {}, False, None)
EPOCH = Epoch(1, Owner(42, "here", "penstock work"), 100.0, 101.0)

MONEY = """
store = "penstock.db"

[hosts.cloud]
type = "simulated"
duration_s = 0
cost_usd = 0.75
fallback = { after_s = 30, budget_usd_per_day = 0.75 }

[lanes.web]
budget_usd_per_day = 2.0
"""


async def spend(*tasks: str) -> None:
    """The first is done and uses up the budget of the host; the others wait for it."""
    async with penstock.open("penstock.toml") as p, asyncio.timeout(30):
        assert (await p.wait(await p.submit(penstock.Task("k", lane="web", id=tasks[0])))).ok
        for task in tasks[1:]:
            await p.submit(penstock.Task("k", lane="web", id=task))
        await until_waiting_for_money(p, tasks[1:])


async def until_waiting_for_money(p: penstock.Client, tasks: Sequence[str]) -> None:
    async with p.watching() as watch:
        for task in tasks:
            while (await p.result(task)).waits[-1].reason != "gate:budget:cloud":
                await watch()


def test_a_spent_budget_is_a_closed_gate_that_why_names(cli: Cli) -> None:
    """C6: in `why`, in `status` and its JSON, and what a task cost in `show`."""
    cli.file("penstock.toml", MONEY)
    asyncio.run(spend("first", "second"))
    spent = "0.75 of 0.75 USD spent today; opens 00:00 UTC"
    (row,) = [line for line in cli.good("why", "second").lines if line.startswith("gate:budget:cloud ")]
    assert row.endswith(spent)
    told = cli.good("status", "--json").json
    assert told["gates"] == {
        "budget:cloud": {"open": False, "detail": spent},
        "budget:lane:web": {"open": True, "detail": ""},
    }
    assert told["hosts"]["cloud"]["spent_usd_today"] == 0.75
    assert told["hosts"]["cloud"]["budget_usd_per_day"] == 0.75
    assert told["lanes"]["web"]["spent_usd_today"] == 0.75
    assert told["lanes"]["web"]["budget_usd_per_day"] == 2.0
    assert "spent_usd_today" not in told["lanes"]["default"]
    text = cli.good("status").out
    assert "0.75/0.75" in text
    assert "0.75/2.00" in text
    assert "budget:cloud" in text
    assert "cost      0.75 USD" in cli.good("show", "first").out
    assert cli.good("show", "first", "--json").json["cost_usd"] == 0.75
    assert cli.good("show", "second", "--json").json["cost_usd"] is None


def test_a_restart_forgets_no_money(cli: Cli) -> None:
    """C6: the next dispatcher begins with what its day has spent."""
    cli.file("penstock.toml", MONEY)
    asyncio.run(spend("first"))

    async def again() -> None:
        async with penstock.open("penstock.toml") as p, asyncio.timeout(30):
            await p.submit(penstock.Task("k", id="second"))
            await until_waiting_for_money(p, ["second"])
            assert (await p.get("second")).attempts == 0

    asyncio.run(again())
    cli.file("penstock.toml", MONEY.replace("budget_usd_per_day = 0.75", "budget_usd_per_day = 9"))
    cli.good("work", "--drain", "--quiet")
    assert cli.good("show", "second", "--json").json["state"] == "done"


def test_the_remedy_for_a_spent_budget() -> None:
    """C6: when it opens, and the key that allows more."""
    for reason, key in (
        ("gate:budget:cloud", "hosts.cloud.fallback.budget_usd_per_day"),
        ("gate:budget:lane:web", "lanes.web.budget_usd_per_day"),
    ):
        assert starts_when(reason) == BUDGET_STARTS
        assert [one.text for one in remedies(reason, Plant())] == [f"a larger {key}"]
    assert starts_when("gate:budgets") == STARTS["gate"]


def test_without_a_dispatcher_the_ledger_says_whether_a_budget_is_spent() -> None:
    """C6: a gate that was closed yesterday is open today, though nobody was there to open it."""
    plant = Plant(hosts=(Host("cloud", "simulated", fallback=Fallback(30.0, 1.0)),))
    closed = {"budget:cloud": (False, "of yesterday")}
    told = status_record(plant, replace(NOTHING, gates=closed))
    assert told["gates"] == {"budget:cloud": {"open": True, "detail": ""}}
    told = status_record(
        plant, replace(NOTHING, gates=closed, spent={("cloud", "a"): 0.5, ("cloud", "b"): 0.5})
    )
    text = "1.00 of 1.00 USD spent today; opens 00:00 UTC"
    assert told["gates"] == {"budget:cloud": {"open": False, "detail": text}}
    told = status_record(plant, replace(NOTHING, gates=closed, epoch=EPOCH))
    assert told["gates"] == {"budget:cloud": {"open": False, "detail": "of yesterday"}}
