"""What `top` shows, from one look at the store: a record for programs, and lines and cells for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from penstock.cli import render
from penstock.model import HOST_DOWN
from penstock.store.keys import known_as
from penstock.store.status import TAKES_OVER, lane_detail, running_of_lane, status_record

if TYPE_CHECKING:
    from penstock.diagnosis.waits import Stay
    from penstock.model import Plant, Task, TaskRecord
    from penstock.store.now import Now, Running
    from penstock.store.standbys import Standby

HOST_COLUMNS = ("host", "state", "slots", "queued", "detail")
TASK_COLUMNS = {
    "running": ("task", "pri", "kind", "host", "lane", "for", "name"),
    "queued": ("task", "pri", "kind", "lane", "waited", "run", "name"),
    "ended": ("task", "state", "kind", "host", "ended", "ran", "name"),
}
_MOST_SLOTS = 16  # drawn one by one; more are told as a number alone
_BAR = 20
_SPARKS = "▁▂▃▄▅▆▇█"
_MINUTES = 60
_NAME_WIDTH = 40
_MOST_OUTAGES = 3
_TROUBLE = dict.fromkeys(HOST_DOWN, "is down")
_GOOD, _BAD, _FAINT = "green", "red", "dim"
_STATES = {"up": _GOOD, "down": _BAD, "done": _GOOD, "failed": _BAD, "blocked": "yellow", "cancelled": _FAINT}


# ---- for programs


def told(plant: Plant, now: Now, standbys: Sequence[Standby] = ()) -> dict[str, Any]:
    """As `status` tells it, with what runs, the queue by priority, what it waits for, and what has ended."""
    record = status_record(plant, now.snapshot, standbys)
    alive = record["dispatcher"] is not None
    return {
        **record,
        "paused": now.snapshot.paused,
        "running": [_running(one) for one in now.running] if alive else [],
        "priorities": now.queued_by_priority(),
        "waits_for": now.reasons(),
        "ended": [
            {"minute": minute * 60, "state": str(state), "tasks": count}
            for (minute, state), count in sorted(now.ended.items())
        ],
        "minute": int(now.at // 60) * 60,
    }


def _running(one: Running) -> dict[str, Any]:
    return {
        "task": one.task,
        "attempt": one.attempt,
        "host": one.host,
        "name": one.name,
        "kind": one.kind,
        "lane": one.lane,
        "priority": one.priority,
        "run": one.run,
        "started_at": one.started_at,
    }


def is_paused(record: Mapping[str, Any], host: str | None) -> bool:
    """Of a host, or of everything."""
    paused: bool = record["paused"] if host is None else record["hosts"][host]["state"] == "paused"
    return paused


# ---- for people


def who(record: Mapping[str, Any]) -> Text:
    """The line at the top: who dispatches, and the sum of it."""
    delayed = sum(one["started_at"] is None for one in record["running"])
    running = len(record["running"]) - delayed
    told = Text.assemble((f"{record['queue_depth']:,} queued", "bold"), ", ", (f"{running} running", "bold"))
    if delayed:
        told.append(f", {delayed} waiting for a worker", "bold")
    if record["paused"]:
        told.append("  everything is paused; p goes on", _BAD)
    dispatcher = record["dispatcher"]
    if dispatcher is None:
        helps = TAKES_OVER if record["standbys"] else "`penstock work` or `penstock serve` starts one"
        told.append(f"  no dispatcher is running; {helps}", _BAD)
    else:
        since = render.moment(dispatcher["since"])
        told.append(f"  {dispatcher['command']}, process {dispatcher['pid']}, since {since}", _FAINT)
        if dispatcher["stopping_since"] is not None:
            told.append(f"  stopping since {render.moment(dispatcher['stopping_since'])}", _BAD)
        if dispatcher["only_run"] is not None:
            told.append(f"  only run {dispatcher['only_run']}", _BAD)
    for one in record["standbys"]:
        told.append(f"  standing by: process {one['pid']} on {one['machine']}", _FAINT)
    if record["interrupted"]:
        told.append(f"  {render.counted(record['interrupted'], 'task')} interrupted", _BAD)
    return told


def outages(record: Mapping[str, Any]) -> list[RenderableType] | None:
    """The hosts that failed last, a line for each as long as they are few: a table has no room for what to do."""
    failing = [(name, host) for name, host in record["hosts"].items() if host["error"] is not None]
    lines = [
        Text(
            render.one_line(
                f"{name} {_TROUBLE.get(host['state'], 'failed')}: {host['error'].removeprefix(f'{name}: ')}"
            ),
            _BAD,
        )
        for name, host in failing[:_MOST_OUTAGES]
    ]
    if len(failing) > len(lines):
        lines.append(Text(f"and {len(failing) - len(lines)} more hosts", _BAD))
    return list(lines) or None


def host_rows(record: Mapping[str, Any]) -> list[tuple[str, Sequence[Text]]]:
    return [
        (
            name,
            (
                Text(name),
                Text(host["state"], _STATES.get(host["state"], "yellow")),
                slots(host["active"], host["slots"]),
                Text(f"{host['queued']:,}", justify="right"),
                Text(render.one_line(host["detail"], _NAME_WIDTH), _FAINT),
            ),
        )
        for name, host in record["hosts"].items()
    ]


def slots(active: int, all: int) -> Text:
    """Each slot is a sign, full or empty, as long as they can be counted."""
    if all > _MOST_SLOTS:
        full = round(_MOST_SLOTS * active / all) if active <= all else _MOST_SLOTS
        signs = "▮" * full + "▯" * (_MOST_SLOTS - full)
    else:
        signs = "▮" * active + "▯" * max(0, all - active)
    return Text.assemble(signs, (f" {active}/{all}", "bold"))


def running_rows(record: Mapping[str, Any], now: float) -> list[tuple[str, Sequence[Text]]]:
    """The longest first: whatever is stuck is seen."""
    ordered = sorted(record["running"], key=lambda one: one["started_at"] or inf)
    return [
        (
            one["task"],
            (
                Text(one["task"]),
                Text(str(one["priority"])),
                _short(one["kind"]),
                _short(one["host"]),
                _short(one["lane"]),
                Text(_runs_for(one["started_at"], now), justify="right"),
                _short(one["name"] or ""),
            ),
        )
        for one in ordered
    ]


def _runs_for(started_at: float | None, now: float) -> str:
    return "no worker yet" if started_at is None else _age(now - started_at)


def task_cells(of: str, record: TaskRecord, stay: Stay, now: float) -> Sequence[Text]:
    """Of a queued or an ended task."""
    task = record.task
    name = _short(_name(task))
    if of == "queued":
        waited = Text(_age(stay.waited_s + now - (stay.since or now)), justify="right")
        return (
            Text(task.id),
            Text(str(task.priority)),
            _short(task.kind),
            _short(task.lane),
            waited,
            _short(task.run),
            name,
        )
    ran = "" if record.started_at is None else render.seconds(stay.ran_s)
    return (
        Text(task.id),
        Text(str(record.state), _STATES.get(str(record.state), "")),
        _short(task.kind),
        _short(record.host or ""),
        Text(render.moment(record.ended_at)),
        Text(ran, justify="right"),
        _short(render.one_line(record.error)) if record.error else name,
    )


def lanes(record: Mapping[str, Any]) -> list[RenderableType] | None:
    rows = [
        (
            name,
            running_of_lane(lane),
            f"{lane['queued']:,}",
            lane_detail(lane),
        )
        for name, lane in record["lanes"].items()
    ]
    return [render.table(("lane", ">running", ">queued", ""), rows)]


def gates(record: Mapping[str, Any]) -> list[RenderableType] | None:
    if not record["gates"]:
        return None
    made = [Text("gates", "bold")]
    for name, gate in record["gates"].items():
        sign = ("open", _GOOD) if gate["open"] else ("closed", _BAD)
        made.append(
            Text.assemble(sign, f" {render.one_line(name)}  ", (render.one_line(gate["detail"]), _FAINT))
        )
    return list(made)


def priorities(record: Mapping[str, Any]) -> list[RenderableType] | None:
    return _bars("queued by priority", record["priorities"])


def waits(record: Mapping[str, Any]) -> list[RenderableType] | None:
    return _bars("the queue waits for", record["waits_for"])


def _bars(title: str, counts: Mapping[Any, int]) -> list[RenderableType] | None:
    if not counts:
        return None
    most = max(counts.values())
    width = max(len(str(name)) for name in counts)
    rows = [
        Text.assemble(
            f"{name!s:<{width}} ", ("█" * max(1, round(_BAR * count / most)), "cyan"), f" {count:,}"
        )
        for name, count in counts.items()
    ]
    return [Text(title, "bold"), *rows]


def ended(record: Mapping[str, Any]) -> list[RenderableType] | None:
    """A sign for every two minutes of the last hour: so much fits beside the tables."""
    if not record["ended"]:
        return None
    minutes = [0] * _MINUTES
    states: dict[str, int] = {}
    for one in record["ended"]:
        back = (record["minute"] - one["minute"]) // 60
        if 0 <= back < _MINUTES:
            minutes[_MINUTES - 1 - back] += one["tasks"]
            states[one["state"]] = states.get(one["state"], 0) + one["tasks"]
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
    return [
        Text("ended in the last hour", "bold"),
        Text(spark([sum(minutes[at : at + 2]) for at in range(0, _MINUTES, 2)]), "cyan"),
        Text(f"{counts}; {minutes[-2]:,} in the last whole minute", _FAINT),
    ]


def spark(counts: Sequence[int]) -> str:
    most = max(counts, default=0)
    if not most:
        return " " * len(counts)
    return "".join(
        _SPARKS[min(len(_SPARKS) - 1, count * len(_SPARKS) // (most + 1))] if count else " "
        for count in counts
    )


def _name(task: Task) -> str:
    """What its user calls it, as of those that run."""
    if task.name is not None:
        return task.name
    if task.key is not None:
        return known_as(task.key)
    label = task.payload.get("id") if isinstance(task.payload, dict) else None
    return str(label) if isinstance(label, str | int | float) and not isinstance(label, bool) else ""


def _short(text: str) -> Text:
    return Text(render.one_line(text, _NAME_WIDTH))


def _age(seconds: float) -> str:
    """In whole seconds: it is read while it grows."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
