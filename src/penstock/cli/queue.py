"""The queue: tasks, show, cancel, retry, priority, pause, resume. `submit` and `export` have files of their own."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import render
from penstock.cli.session import TASK_HELP, config_of, finish, one_of, opened, whole
from penstock.errors import UnknownTask, UsageError
from penstock.model import PRIORITIES, name_in_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.client import Client
    from penstock.config import Config
    from penstock.diagnosis.waits import Stay
    from penstock.model import TaskRecord
    from penstock.store.base import Answer, TaskFilter

app = typer.Typer()

_PAGE = 5_000
_NAME_WIDTH = 30
_ERROR_WIDTH = 60  # of a task's error in a list; `show` has all of it
_WITH_RUN = 110  # columns of a terminal that has room for the runs of tasks

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunOption = Annotated[
    str | None,
    typer.Option(
        "--run", metavar="RUN", help="All tasks of this run: its name, the beginning of it, or `last`."
    ),
]
Tasks = Annotated[list[str] | None, typer.Argument(metavar="TASK", help=f"{TASK_HELP} Several may be named.")]


# ---- tasks


@app.command(
    "tasks",
    epilog="\b\nExamples:\n"
    "  penstock tasks --state failed --state blocked\n"
    "  penstock tasks --run nightly --limit 100\n"
    "  penstock tasks --search 'connection reset' --state failed\n"
    "  penstock tasks --json --state done",
)
def tasks(
    context: typer.Context,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only queued, running, done, failed, cancelled or blocked ones. May be repeated.",
        ),
    ] = None,
    run: RunOption = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Only of this kind.")] = None,
    lane: Annotated[str | None, typer.Option("--lane", help="Only of this lane.")] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Only what ran last on this host, or must run there.")
    ] = None,
    priorities: Annotated[
        list[str] | None,
        typer.Option("--priority", metavar="N", help="Only of this priority, 0 to 4. May be repeated."),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            "--search",
            metavar="TEXT",
            help="Only tasks whose id, key or run begins with this; if there are none, those whose kind begins "
            "with it, or whose key or error contains it.",
        ),
    ] = None,
    limit: Annotated[
        str | None, typer.Option("--limit", "-n", metavar="N", help="How many; 20, and all with --json.")
    ] = None,
    as_json: Json = False,
) -> int:
    """List tasks, the newest first."""
    from penstock.model import State
    from penstock.store.base import TaskFilter

    most = None if limit is None else whole("--limit", limit)
    chosen = tuple(State(one_of("--state", name, [str(s) for s in State])) for name in states or ()) or None
    levels = tuple(_level("--priority", text) for text in priorities or ()) or None
    asked = TaskFilter(
        chosen, run, kind, lane, host, most, newest=True, search=search or None, priorities=levels
    )
    if as_json:
        return finish(_tasks_json(config_of(context), asked))
    return finish(_tasks_table(config_of(context), asked, most or 20))


async def _tasks_json(config: Config, asked: TaskFilter) -> int:
    """A list, one task per line, written as it is read: a store may hold millions."""
    import msgspec

    async with opened(config) as client:
        asked = await _named(client, asked)
        start = b"["
        async for page in client.pages(asked, _PAGE):
            for record in page:
                told = record.as_record() | {"label": record.task.label}
                sys.stdout.buffer.write(start + msgspec.json.encode(told))
                start = b",\n "
        render.write(b"[]" if start == b"[" else b"]")
    return 0


async def _named(client: Client, asked: TaskFilter) -> TaskFilter:
    """With the run's whole name; of one that there is not, the list is empty."""
    from dataclasses import replace

    from penstock.errors import UnknownTask

    if asked.run is None:
        return asked
    with suppress(UnknownTask):
        return replace(asked, run=await client.run_named(asked.run))
    return asked


async def _tasks_table(config: Config, asked: TaskFilter, limit: int) -> int:
    import time
    from dataclasses import replace

    async with opened(config) as client:
        asked = await _named(client, asked)
        records = await client.tasks(replace(asked, limit=limit + 1))
        now = time.time()
        stays = await client.stays(records[:limit])
        rows = [_task_row(asked.run, record, stay, now) for record, stay in zip(records, stays, strict=False)]
    if not rows:
        chosen = (asked.states, asked.run, asked.kind, asked.lane, asked.host, asked.search, asked.priorities)
        render.note("there are no tasks yet" if not any(chosen) else "no task fits")
        return 0
    columns = [
        "task",
        "known as",
        "state",
        "kind",
        "lane",
        ">priority",
        "host",
        ">waited",
        ">ran",
        ">attempts",
        "run",
        "error",
    ]
    told = [True] * len(columns)
    told[1] = any(record.task.key is not None for record in records)
    told[9] = any(record.attempts > 1 for record in records)
    told[10] = asked.run is None and render.console().width >= _WITH_RUN
    render.print_table(
        [column for column, shown in zip(columns, told, strict=True) if shown],
        [[cell for cell, shown in zip(row, told, strict=True) if shown] for row in rows],
        flexible="error",
    )
    if len(records) > limit:
        render.note(f"these are the newest {limit}; --limit shows more")
    return 0


def _task_row(run: str | None, record: TaskRecord, stay: Stay, now: float) -> tuple[str, ...]:
    from penstock.store.keys import known_as

    task = record.task
    goes_on_s = 0.0 if stay.since is None else max(0.0, now - stay.since)
    is_queued = record.state == "queued" or record.is_delayed
    waited_s = stay.waited_s + (goes_on_s if is_queued else 0.0)
    ran_s = stay.ran_s + (0.0 if is_queued else goes_on_s)
    has_run = record.started_at is not None and not is_queued
    return (
        task.id if run is None else name_in_run(task.id, run),
        "" if task.key is None else render.one_line(known_as(task.key), _NAME_WIDTH),
        str(record.state),
        task.kind,
        task.lane,
        str(task.priority),
        record.host or "",
        render.seconds(waited_s),
        render.seconds(ran_s) if has_run else "",
        str(record.attempts),
        task.run,
        render.one_line(record.error or "", _ERROR_WIDTH),
    )


# ---- show


@app.command(
    "show",
    epilog="\b\nExamples:\n  penstock show 1m7f\n  penstock show 1m7f --json\n  penstock show 1m7f --follow",
)
def show(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TASK", help=TASK_HELP)],
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Print what its attempts say, as they say it, until the task has ended."
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Show all there is about a task.

    Its fields, payload, value or error, attempts, waits and events. Hosts that keep a log of each attempt
    (researcher) can be followed while they work.
    """
    if follow:
        from penstock.cli.attempt_log import follow_log

        return finish(follow_log(config_of(context), task))
    return finish(_show(config_of(context), task, as_json))


async def _show(config: Config, task_id: str, as_json: bool) -> int:
    async with opened(config) as client:
        record = await client.get(task_id)
        result = await client.result(record.task.id)
        attempts = await client.attempts(record.task.id)
        events = await client.events(task=record.task.id)
    from penstock.cli.attempt_log import log_of
    from penstock.cli.details import cost_of, print_details
    from penstock.trace import trace_id
    from penstock.wiring import are_traced

    log = log_of(config, attempts)
    if as_json:
        more = {
            "key": record.task.key,
            "payload": record.task.payload,
            "cost_usd": cost_of(events),
            "trace_id": f"{trace_id(record.task):032x}",
            "attempt_records": [_without(attempt, "task", "work_class") for attempt in attempts],
        }
        if log is not None:
            more["log"] = str(log)
        render.emit(result.as_record() | more)
        return 0
    print_details(record, result, attempts, events, traced=are_traced(config), log=log)
    return 0


def _without(value: Any, *names: str) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(value)
    return {name: part for name, part in plain.items() if name not in names}


# ---- cancel, retry


@app.command("cancel", epilog="\b\nExamples:\n  penstock cancel 1m7f 1m7g\n  penstock cancel --run nightly")
def cancel(context: typer.Context, tasks: Tasks = None, run: RunOption = None, as_json: Json = False) -> int:
    """Cancel tasks: queued ones end at once, running ones are stopped."""
    return finish(_ask_tasks(config_of(context), "cancel", tasks or [], run, as_json))


@app.command("retry", epilog="\b\nExamples:\n  penstock retry 1m7f\n  penstock retry --run nightly")
def retry(context: typer.Context, tasks: Tasks = None, run: RunOption = None, as_json: Json = False) -> int:
    """Queue failed, cancelled or blocked tasks again."""
    return finish(_ask_tasks(config_of(context), "retry", tasks or [], run, as_json))


@app.command(
    "priority",
    epilog="\b\nExamples:\n  penstock priority 1m7f 1m7g --to 0\n  penstock priority --run nightly --to 4",
)
def priority(
    context: typer.Context,
    to: Annotated[str, typer.Option("--to", metavar="N", help="From 0, the most urgent, to 4.")],
    tasks: Tasks = None,
    run: RunOption = None,
    as_json: Json = False,
) -> int:
    """Make tasks more urgent, or less.

    Queued tasks move to their place in the order, and what they have waited still counts. Running ones go on, and
    have the priority for their next attempt. Of a run: whatever of it has not ended.
    """
    level = _level("--to", to)
    return finish(_ask_tasks(config_of(context), "priority", tasks or [], run, as_json, level))


def _level(option: str, text: str) -> int:
    level = whole(option, text, least=0)
    if level not in PRIORITIES:
        raise UsageError(f"{option}: {level} is no priority; choose from 0 (most urgent) to 4")
    return level


async def _ask_tasks(
    config: Config, verb: str, tasks: list[str], run: str | None, as_json: bool, priority: int = 0
) -> int:
    if bool(tasks) == (run is not None):
        raise UsageError(f"{verb}: name tasks, or a run with --run; see `penstock {verb} --help`")
    async with opened(config, stand_in=False) as client:
        if run is not None:
            run = await client.run_named(run)
        answer = await _asked(client, verb, tasks, run, priority)
    said: Mapping[str, str] = answer.data.get("tasks", {})
    if as_json:
        render.emit({"ok": answer.ok, "tasks": said})
    elif run is not None and not said:
        wanted = "whose priority could change" if verb == "priority" else f"to {verb}"
        render.note(f"run {run} has no task {wanted}")
    else:
        for task, what in said.items():
            render.say(f"{task if run is None else name_in_run(task, run)} {what}")
    return 0 if answer.ok else _refused(answer, said)


async def _asked(client: Client, verb: str, tasks: list[str], run: str | None, priority: int) -> Answer:
    if verb == "cancel":
        return await (client.cancel(*tasks) if run is None else client.cancel_run(run))
    if verb == "retry":
        return await (client.retry(*tasks) if run is None else client.retry_run(run))
    if run is None:
        return await client.set_priority(*tasks, priority=priority)
    return await client.set_run_priority(run, priority)


def _refused(answer: Answer, said: Mapping[str, str]) -> int:
    if not said:
        raise UsageError(answer.detail)
    return 1


# ---- pause, resume

HostOption = Annotated[str | None, typer.Option("--host", help="Only this host.")]
LaneOption = Annotated[str | None, typer.Option("--lane", help="Only this lane.")]


@app.command(
    "pause",
    epilog="\b\nExamples:\n  penstock pause\n  penstock pause --host fenrir\n  penstock pause --lane chat",
)
def pause(
    context: typer.Context, host: HostOption = None, lane: LaneOption = None, as_json: Json = False
) -> int:
    """Start nothing more on a host, in a lane, or at all.

    What runs goes on. A pause lasts until `penstock resume`, also when the dispatcher is started again.
    """
    return finish(_pause(config_of(context), host, lane, as_json, paused=True))


@app.command("resume", epilog="\b\nExamples:\n  penstock resume\n  penstock resume --host fenrir")
def resume(
    context: typer.Context, host: HostOption = None, lane: LaneOption = None, as_json: Json = False
) -> int:
    """Undo a pause of the same host or lane, or of everything."""
    return finish(_pause(config_of(context), host, lane, as_json, paused=False))


async def _pause(config: Config, host: str | None, lane: str | None, as_json: bool, *, paused: bool) -> int:
    verb = "pause" if paused else "resume"
    if host is not None and lane is not None:
        raise UsageError(f"{verb}: --host and --lane cannot be used together; do one after the other")
    scope = "all" if host is lane is None else "lane" if host is None else "host"
    name = host or lane or ""
    async with opened(config, makes=True) as client:
        answer = await (client.pause(scope, name) if paused else client.resume(scope, name))
    if not answer.ok:
        raise UnknownTask(f"{verb}: {answer.detail}")
    if as_json:
        render.emit({"scope": scope, "name": name, "paused": paused})
    else:
        render.say(f"{'everything' if scope == 'all' else f'{scope} {name}'} {answer.detail}")
    return 0
