"""Looking: `status` of hosts, lanes, gates and queue; `why` a task waited."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import render
from penstock.cli.session import config_of, finish, opened
from penstock.scheduling.budget import usd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.config import Config
    from penstock.model import Result, Wait
    from penstock.store.base import Snapshot

app = typer.Typer()

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

# What lets a queued task start, by the first word of what it waits for.
REMEDIES = {
    "dependency": "when the tasks it comes after have succeeded",
    "scheduled": "when its time has come",
    "paused": "when `penstock resume` lets it, or the next dispatcher begins",
    "gate": "when the gate opens; `penstock status` shows its reading",
    "lane": "when a task of its lane ends, or with a larger max_running",
    "host-down": "when a host that serves it is healthy again; it is tried by itself",
    "rate": "when the minute has passed, or with a larger rate",
    "slots": "when an attempt there ends, or with more slots",
    "order": "when those before it have started",
    "dispatcher-down": "when a dispatcher runs: `penstock work`",
}
BUDGET_REMEDY = "at 00:00 UTC, when a new day's money is there, or with a larger budget_usd_per_day"
_MOST_REASONS = 4


# ---- status


@app.command("status", epilog="\b\nExamples:\n  penstock status\n  penstock status --json | jq .queue_depth")
def status(context: typer.Context, as_json: Json = False) -> int:
    """Show hosts, lanes, gates, the queue, and who dispatches."""
    return finish(_status(config_of(context), as_json))


async def _status(config: Config, as_json: bool) -> int:
    from penstock.store.status import status_record

    async with opened(config) as client:
        snapshot = await client.snapshot()
    record = status_record(config.plant, snapshot)
    if as_json:
        render.emit(record)
    else:
        _print_status(record, snapshot)
    return 0


def _print_status(record: Mapping[str, Any], snapshot: Snapshot) -> None:
    render.say(_who(record["dispatcher"]))
    running = sum(host["active"] for host in record["hosts"].values())
    ended = ", ".join(f"{count} {state}" for state, count in snapshot.ended.items())
    render.say(f"{record['queue_depth']} queued, {running} running" + (f"; ended: {ended}" if ended else ""))
    if snapshot.paused:
        render.say("everything is paused; `penstock resume` goes on")
    if record["hosts"]:
        render.say()
        rows = [
            (
                name,
                host["state"],
                f"{host['active']}/{host['slots']}",
                str(host["queued"]),
                _usd(host),
                _detail(name, snapshot),
            )
            for name, host in record["hosts"].items()
        ]
        columns = ("host", "state", ">slots", ">queued", ">USD today", "detail")
        _print_used(columns, rows, 4, flexible="detail")
    render.say()
    lanes = [
        (
            name,
            str(lane["running"]) + ("" if lane["max_running"] is None else f"/{lane['max_running']}"),
            str(lane["queued"]),
            _usd(lane),
            "paused" if lane["paused"] else "",
        )
        for name, lane in record["lanes"].items()
    ]
    _print_used(("lane", ">running", ">queued", ">USD today", ""), lanes, 3)
    if record["gates"]:
        render.say()
        gates = [
            (name, "open" if gate["open"] else "closed", gate["detail"])
            for name, gate in record["gates"].items()
        ]
        render.print_table(("gate", "is", "detail"), gates, flexible="detail")


def _usd(record: Mapping[str, Any]) -> str:
    if "spent_usd_today" not in record:
        return ""
    budget = record["budget_usd_per_day"]
    return usd(record["spent_usd_today"]) + ("" if budget is None else f"/{usd(budget)}")


def _print_used(
    columns: Sequence[str], rows: Sequence[Sequence[str]], optional: int, flexible: str | None = None
) -> None:
    """A table whose one column is left out where no row has anything in it."""
    if not any(row[optional] for row in rows):
        columns = [*columns[:optional], *columns[optional + 1 :]]
        rows = [[*row[:optional], *row[optional + 1 :]] for row in rows]
    render.print_table(columns, rows, flexible=flexible)


def _detail(host: str, snapshot: Snapshot) -> str:
    last = snapshot.hosts.get(host)
    return "" if last is None else last.detail


def _who(dispatcher: Mapping[str, Any] | None) -> str:
    if dispatcher is None:
        return "nobody dispatches; `penstock work` does"
    who = f"process {dispatcher['pid']} on {dispatcher['machine']} ({dispatcher['command']})"
    return f"dispatched by {who} since {render.moment(dispatcher['since'])}"


# ---- why


@app.command("why", epilog="\b\nExamples:\n  penstock why 1m7f\n  penstock why 1m7f --json")
def why(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TASK", help="Its id, or the beginning of it.")],
    as_json: Json = False,
) -> int:
    """Say why a task waited.

    Each stretch of its queue time has exactly one reason, and they add up to the wait.
    """
    return finish(_why(config_of(context), task, as_json))


async def _why(config: Config, task: str, as_json: bool) -> int:
    async with opened(config) as client:
        result = await client.result(task)
    if as_json:
        render.emit(
            {
                "task_id": result.task_id,
                "state": str(result.state),
                "waited_s": sum(wait.seconds for wait in result.waits),
                "waits": [wait.as_record() for wait in result.waits],
            }
        )
        return 0
    render.say(in_short(result))
    if remedy := starts(result):
        render.say(remedy)
    if result.waits:
        from penstock.cli.details import print_waits

        render.say()
        print_waits(result.waits)
    return 0


def in_short(result: Result) -> str:
    """The whole story in a line: the reasons, longest first, each with the detail of its longest stretch."""
    if not result.waits:
        return f"{result.task_id} did not wait; it is {result.state}"
    stretches: dict[str, list[Wait]] = defaultdict(list)
    for wait in result.waits:
        stretches[wait.reason].append(wait)
    ordered = sorted(stretches.items(), key=lambda item: -sum(w.seconds for w in item[1]))
    parts = []
    for reason, waits in ordered[:_MOST_REASONS]:
        detail = render.one_line(max(waits, key=lambda w: w.seconds).detail, 80)
        spent = render.seconds(sum(w.seconds for w in waits))
        parts.append(f"{spent} {reason}" + (f" ({detail})" if detail else ""))
    if len(ordered) > _MOST_REASONS:
        parts.append(f"and {len(ordered) - _MOST_REASONS} more reasons")
    total = render.seconds(sum(wait.seconds for wait in result.waits))
    verb = "has waited" if result.state == "queued" else "waited"
    return f"{result.task_id} {verb} {total}: {', '.join(parts)}"


def starts(result: Result) -> str:
    """What would let it start, if it has not."""
    if result.state != "queued" or not result.waits:
        return ""
    last = result.waits[-1]
    of_money = last.reason.startswith("gate:budget:")
    remedy = BUDGET_REMEDY if of_money else REMEDIES[last.reason.partition(":")[0]]
    detail = f" ({render.one_line(last.detail, 80)})" if last.reason == "dependency" else ""
    return f"it starts {remedy}{detail}"
