"""Looking: `status` of hosts, lanes, gates and queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import render
from penstock.cli.session import config_of, finish, opened
from penstock.scheduling.budget import usd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.config import Config
    from penstock.store.base import Snapshot

app = typer.Typer()

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("status", epilog="\b\nExamples:\n  penstock status\n  penstock status --json | jq .queue_depth")
def status(context: typer.Context, as_json: Json = False) -> int:
    """Show hosts, lanes, gates, the queue, and who dispatches."""
    return finish(_status(config_of(context), as_json))


async def _status(config: Config, as_json: bool) -> int:
    from penstock.store.status import status_record

    async with opened(config) as client:
        snapshot = await client.snapshot()
        record = status_record(config.plant, snapshot, await client.standbys())
        differs = await client.config_difference()
    if as_json:
        render.emit(record | {"config_differs": differs.as_record() if differs else None})
    else:
        _print_status(record, snapshot, differs.told(config) if differs else "")
    return 0


def _print_status(record: Mapping[str, Any], snapshot: Snapshot, differs: str = "") -> None:
    from penstock.store.status import lane_detail, running_of_lane

    render.say(_who(record["dispatcher"], record["standbys"]))
    for standby in record["standbys"]:
        render.say(f"standing by: {_named(standby)} since {render.moment(standby['since'])}")
    if differs:
        render.say(differs)
    delayed = sum(host["delayed"] for host in record["hosts"].values())
    running = sum(host["active"] for host in record["hosts"].values()) - delayed
    waiting = f", {delayed} waiting for a worker" if delayed else ""
    ended = ", ".join(f"{count} {state}" for state, count in snapshot.ended.items())
    ended = f"; ended: {ended}" if ended else ""
    render.say(f"{record['queue_depth']} queued, {running} running{waiting}{ended}")
    if running and record["dispatcher"] is None:
        goes_on = "1 goes" if running == 1 else f"{running} go"
        render.say(
            f"{goes_on} on without a dispatcher; how that fares, and its hosts, is known when one runs"
        )
    if record["interrupted"]:
        were = "1 task was" if record["interrupted"] == 1 else f"{record['interrupted']} tasks were"
        render.say(
            f"{were} running when the last dispatcher was lost; the next one runs them again, or blocks them"
        )
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
                "; ".join(filter(None, (host["detail"], host["takes"]))),
            )
            for name, host in record["hosts"].items()
        ]
        columns = ("host", "state", ">slots", ">queued", ">USD today", "detail")
        _print_used(columns, rows, 4, flexible="detail", fold=True)
    render.say()
    lanes = [
        (
            name,
            running_of_lane(lane),
            str(lane["queued"]),
            _usd(lane),
            lane_detail(lane),
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
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    optional: int,
    flexible: str | None = None,
    fold: bool = False,
) -> None:
    """A table whose one column is left out where no row has anything in it."""
    if not any(row[optional] for row in rows):
        columns = [*columns[:optional], *columns[optional + 1 :]]
        rows = [[*row[:optional], *row[optional + 1 :]] for row in rows]
    render.print_table(columns, rows, flexible=flexible, fold=fold)


def _who(dispatcher: Mapping[str, Any] | None, standbys: Sequence[Mapping[str, Any]]) -> str:
    from penstock.store.status import TAKES_OVER

    if dispatcher is None and standbys:
        return f"no dispatcher is running; {TAKES_OVER}"
    if dispatcher is None:
        return "no dispatcher is running; `penstock work` starts one"
    told = f"dispatched by {_named(dispatcher)} since {render.moment(dispatcher['since'])}"
    if dispatcher["only_run"] is not None:
        told += f"; only run {dispatcher['only_run']}: all else waits until it has ended"
    stopping = dispatcher["stopping_since"]
    return (
        told if stopping is None else f"{told}; stopping since {render.moment(stopping)}: it starts nothing"
    )


def _named(dispatcher: Mapping[str, Any]) -> str:
    at = f" at {dispatcher['url']}" if dispatcher["url"] else ""
    return f"process {dispatcher['pid']} on {dispatcher['machine']} ({dispatcher['command']}){at}"
