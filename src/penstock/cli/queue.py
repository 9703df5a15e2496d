"""The queue: submit, tasks, show, cancel, retry, pause, resume, export, import."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import render
from penstock.cli.session import config_of, finish, one_of, opened, whole
from penstock.errors import UnknownTask, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from penstock.client import Client, Run
    from penstock.config import Config
    from penstock.model import Result, Task, TaskRecord
    from penstock.store.base import Answer, TaskFilter

app = typer.Typer()

_PAGE = 5_000
_ERROR_WIDTH = 60  # of a task's error in a list; `show` has all of it

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunOption = Annotated[str | None, typer.Option("--run", metavar="RUN", help="All tasks of this run.")]
Tasks = Annotated[list[str] | None, typer.Argument(metavar="TASK", help="Ids, or the beginnings of ids.")]


# ---- submit


@app.command(
    "submit",
    epilog="\b\nExamples:\n"
    "  penstock submit summarize '{\"text\": \"…\"}' --priority 0\n"
    "  echo some words | penstock submit summarize - --text --wait\n"
    "  penstock submit train --needs slots=2,vram_gb=8 --after prepare --not-before +30m\n"
    "  penstock submit --file tasks.jsonl --run nightly",
)
def submit(
    context: typer.Context,
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="What sort of work it is.")] = None,
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="JSON for the task; - reads it from stdin.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Submit a task file instead; - is JSONL on stdin."),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="PAYLOAD is text, not JSON.")] = False,
    priority: Annotated[
        str | None, typer.Option("--priority", "-p", metavar="0-4", help="0 is the most urgent; 2 is usual.")
    ] = None,
    lane: Annotated[str | None, typer.Option("--lane", help="Its family of work.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="Only there.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Only on a host with this model.")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option("--after", metavar="TASK,…", help="Start when these have succeeded. May be repeated."),
    ] = None,
    needs: Annotated[
        list[str] | None,
        typer.Option("--needs", metavar="UNIT=N,…", help="Units it takes on its host, like slots=2,vram_gb=8."),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="SECONDS", help="How long one attempt may take.")
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline", metavar="TIME", help="Not started by then, it fails: +30m, or 2026-01-31T18:00."
        ),
    ] = None,
    not_before: Annotated[
        str | None, typer.Option("--not-before", metavar="TIME", help="Not started before: +30m, or a time.")
    ] = None,
    retries: Annotated[
        str | None, typer.Option("--retries", metavar="N", help="Tries after the first one.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="The same key twice is one task.")] = None,
    task_id: Annotated[str | None, typer.Option("--id", help="Its id, if you want to choose it.")] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="The run it belongs to.")] = None,
    on_crash: Annotated[
        str | None,
        typer.Option("--on-crash", metavar="retry|block", help="If its dispatcher dies while it runs."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the result and print it; dispatch if nobody does.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Put a task, or a file of tasks, into the queue.

    It is safe once its id is printed. No dispatcher needs to be running.
    """
    config = config_of(context)
    entry = {
        "priority": _number_or_text(priority),
        "lane": lane,
        "host": host,
        "model": model,
        "after": [one for part in after or () for one in part.split(",") if one],
        "needs": _units(needs),
        "timeout_s": _number_or_text(timeout),
        "deadline": _number_or_text(deadline),
        "not_before": _number_or_text(not_before),
        "retries": _number_or_text(retries),
        "key": key,
        "id": task_id,
        "on_crash": on_crash,
    }
    if file is not None:
        given = [name for name, value in entry.items() if value not in (None, [])]
        if kind is not None or text or given:
            extra = "KIND" if kind is not None else "--text" if text else _option(given[0])
            raise UsageError(f"submit: {extra} cannot be used with --file; write it into {file}")
        return finish(_submit_file(config, file, run, wait=wait, as_json=as_json))
    if kind is None:
        raise UsageError("submit: name a KIND, or a file with --file; see `penstock submit --help`")
    entry |= {"kind": kind, "payload": _payload(payload, text), "run": run}
    return finish(_submit_one(config, entry, wait=wait, as_json=as_json))


def _units(given: Sequence[str] | None) -> dict[str, Any] | None:
    if not given:
        return None
    units: dict[str, Any] = {}
    for part in (one for text in given for one in text.split(",") if one.strip()):
        name, _, amount = part.partition("=")
        try:
            units[name.strip()] = float(amount)
        except ValueError:
            raise UsageError(f"--needs: {part!r} must be UNIT=N, such as --needs slots=2,vram_gb=8") from None
    return units


def _number_or_text(given: str | None) -> float | str | None:
    """What looks like a number is one; whether a number is wanted, and which, is checked with the task."""
    for kind in (int, float):
        try:
            return None if given is None else kind(given)
        except ValueError:
            continue
    return given


def _payload(given: str | None, is_text: bool) -> Any:
    if given == "-":
        given = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    if given is None or is_text:
        return given
    import msgspec

    try:
        return msgspec.json.decode(given.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        shown = render.one_line(given, 40)
        raise UsageError(
            f"submit: PAYLOAD {shown!r} is not JSON ({error}); quote it as JSON, or add --text to send it as text"
        ) from None


async def _submit_one(config: Config, entry: dict[str, Any], *, wait: bool, as_json: bool) -> int:
    import time

    from penstock.config import TaskChecker
    from penstock.intake.entries import Setting, read_entry

    if entry["after"]:
        async with opened(config) as client:
            entry["after"] = [(await client.get(one)).task.id for one in entry["after"]]
    tasks, problems = read_entry(entry, Setting(time.time(), "", config.on_crash, TaskChecker(config)))
    if problems:
        told = [f"submit: {_option(str(p.path[0]))}: {p.message}" for p in problems]
        raise UsageError("\n".join(told))
    # Only now: with --wait a dispatcher may begin here.
    async with opened(config, dispatch=wait) as client:
        return await _submitted(client, await client.submit_many(tasks), wait, as_json)


def _option(field: str) -> str:
    if field in ("kind", "payload"):
        return field.upper()
    return "--" + field.removesuffix("_s").replace("_", "-")


async def _submit_file(config: Config, file: str, run: str | None, *, wait: bool, as_json: bool) -> int:
    tasks = read_tasks(config, file, run)
    async with opened(config, dispatch=wait) as client:
        return await _submitted(client, await client.submit_many(tasks, run=run), wait, as_json)


def read_tasks(config: Config, file: str, run: str | None) -> list[Task]:
    """The tasks of a file, held to the config."""
    from penstock.config import TaskChecker
    from penstock.intake import taskfile

    tasks = taskfile.read(file, run=run, checker=TaskChecker(config), on_crash=config.on_crash)
    if not tasks:
        raise UsageError(f"{file}: holds no task; write at least one")
    return tasks


async def _submitted(client: Client, run: Run, wait: bool, as_json: bool) -> int:
    if wait:
        return await _wait(client, run, as_json)
    if as_json:
        render.emit({"run": run.name, "task_ids": list(run.task_ids)})
    else:
        render.say(run.task_ids[0] if len(run.task_ids) == 1 else run.name)
    if sys.stdout.isatty() and (await client.snapshot()).epoch is None:
        render.note("queued; no dispatcher is running: start one with `penstock work`")
    return 0


async def _wait(client: Client, run: Run, as_json: bool) -> int:
    from penstock.cli.following import INTERRUPTED, follow
    from penstock.cli.results import ResultLines

    good = True

    def tell(result: Result) -> None:
        nonlocal good
        good = good and result.ok
        if as_json:
            render.emit_line(result.as_record())
        elif len(run.task_ids) == 1:
            _tell_only(result)
        else:
            outcome = render.text_of(result.value) if result.ok else f"{result.state}: {result.error}"
            render.say(f"{result.task_id} {render.one_line(outcome)}")

    lines = ResultLines(client, run, tell)
    ended = await follow(client, run, lines.add, render.note)
    await lines.flush()
    if not ended:
        render.note(f"interrupted; the rest of run {run.name} stays queued: `penstock work --drain` does it")
        return INTERRUPTED
    return 0 if good else 1


def _tell_only(result: Result) -> None:
    """The one value that was asked for, and nothing beside it."""
    if not result.ok:
        why = render.one_line(result.error or "no reason was given")
        render.note(f"task {result.task_id} {result.state}: {why}")
    elif result.value is not None:
        render.say(render.text_of(result.value))


# ---- tasks


@app.command(
    "tasks",
    epilog="\b\nExamples:\n"
    "  penstock tasks --state failed --state blocked\n"
    "  penstock tasks --run nightly --limit 100\n"
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
    asked = TaskFilter(chosen, run, kind, lane, limit=most, newest=True)
    if as_json:
        return finish(_tasks_json(config_of(context), asked))
    return finish(_tasks_table(config_of(context), asked, most or 20))


async def _tasks_json(config: Config, asked: TaskFilter) -> int:
    """A list, one task per line, written as it is read: a store may hold millions."""
    import msgspec

    async with opened(config) as client:
        start = b"["
        async for record in _pages(client, asked):
            sys.stdout.buffer.write(start + msgspec.json.encode(render.plain_record(record)))
            start = b",\n "
        render.write(b"[]" if start == b"[" else b"]")
    return 0


async def _pages(client: Client, asked: TaskFilter) -> AsyncIterator[TaskRecord]:
    from dataclasses import replace

    left = asked.limit
    while left is None or left > 0:
        size = _PAGE if left is None else min(left, _PAGE)
        records = await client.tasks(replace(asked, limit=size))
        for record in records:
            yield record
        if len(records) < size:
            return
        left = None if left is None else left - size
        asked = replace(asked, after=records[-1].number)


async def _tasks_table(config: Config, asked: TaskFilter, limit: int) -> int:
    import time
    from dataclasses import replace

    async with opened(config) as client:
        records = await client.tasks(replace(asked, limit=limit + 1))
        now = time.time()
        rows = [await _task_row(client, record, now) for record in records[:limit]]
    if not rows:
        render.note("no such task")
        return 0
    columns = ("task", "state", "kind", "lane", ">priority", "host", ">waited", ">ran", "error")
    render.print_table(columns, rows, flexible="error")
    if len(records) > limit:
        render.note(f"these are the newest {limit}; --limit shows more")
    return 0


async def _task_row(client: Client, record: TaskRecord, now: float) -> tuple[str, ...]:
    task = record.task
    end = now if record.ended_at is None else record.ended_at
    if record.attempts > 1:  # it was in the queue more than once
        waited = sum(wait.seconds for wait in (await client.result(task.id)).waits)
    else:
        waited = (end if record.started_at is None else record.started_at) - task.queued_at
    ran = "" if record.started_at is None or record.state == "queued" else render.seconds(end - record.started_at)
    return (
        task.id,
        str(record.state),
        task.kind,
        task.lane,
        str(task.priority),
        record.host or "",
        render.seconds(waited),
        ran,
        render.one_line(record.error or "", _ERROR_WIDTH),
    )


# ---- show


@app.command("show", epilog="\b\nExamples:\n  penstock show 1m7f\n  penstock show 1m7f --json")
def show(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TASK", help="Its id, or the beginning of it.")],
    as_json: Json = False,
) -> int:
    """Show all there is about a task: fields, payload, result, attempts, events, waits."""
    return finish(_show(config_of(context), task, as_json))


async def _show(config: Config, task_id: str, as_json: bool) -> int:
    async with opened(config) as client:
        record = await client.get(task_id)
        result = await client.result(record.task.id)
        attempts = await client.attempts(record.task.id)
        if as_json:
            tried = [_without(attempt, "task", "work_class") for attempt in attempts]
            render.emit({**result.as_record(), "payload": record.task.payload, "attempt_records": tried})
            return 0
        events = await client.events(task=record.task.id)
    from penstock.cli.details import print_details

    print_details(record, result, attempts, events)
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


async def _ask_tasks(config: Config, verb: str, tasks: list[str], run: str | None, as_json: bool) -> int:
    if bool(tasks) == (run is not None):
        raise UsageError(f"{verb}: name tasks, or a run with --run; see `penstock {verb} --help`")
    async with opened(config) as client:
        if run is not None:
            await _must_exist(client, run)
            answer = await (client.cancel_run(run) if verb == "cancel" else client.retry_run(run))
        else:
            answer = await (client.cancel(*tasks) if verb == "cancel" else client.retry(*tasks))
    said: Mapping[str, str] = answer.data.get("tasks", {})
    if as_json:
        render.emit({"ok": answer.ok, "tasks": said})
    elif run is not None and not said:
        render.note(f"run {run} has no task to {verb}")
    else:
        for task, what in said.items():
            render.say(f"{task} {what}")
    return 0 if answer.ok else _refused(answer, said)


def _refused(answer: Answer, said: Mapping[str, str]) -> int:
    if not said:
        raise UsageError(answer.detail)
    return 1


async def _must_exist(client: Client, run: str) -> None:
    from penstock.store.base import TaskFilter

    if not await client.tasks(TaskFilter(run=run, limit=1)):
        raise UnknownTask(f"there is no run {run!r}; `penstock tasks --json` tells the runs of all tasks")


# ---- pause, resume

HostOption = Annotated[str | None, typer.Option("--host", help="Only this host.")]
LaneOption = Annotated[str | None, typer.Option("--lane", help="Only this lane.")]


@app.command(
    "pause", epilog="\b\nExamples:\n  penstock pause\n  penstock pause --host fenrir\n  penstock pause --lane chat"
)
def pause(
    context: typer.Context, host: HostOption = None, lane: LaneOption = None, as_json: Json = False
) -> int:
    """Start nothing more: on a host, in a lane, or at all. What runs goes on."""
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
    async with opened(config) as client:
        answer = await (client.pause(scope, name) if paused else client.resume(scope, name))
    if not answer.ok:
        raise UnknownTask(f"{verb}: {answer.detail}")
    if as_json:
        render.emit({"scope": scope, "name": name, "paused": paused})
    else:
        render.say(f"{'everything' if scope == 'all' else f'{scope} {name}'} {answer.detail}")
    return 0


# ---- export, import


@app.command(
    "export",
    epilog="\b\nExamples:\n  penstock export nightly --out nightly.jsonl\n  penstock export nightly | gzip > nightly.gz",
)
def export(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run.")],
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="Write it there, not to stdout.")
    ] = None,
) -> int:
    """Write a run with all that explains it as JSON lines, for another store to import."""
    return finish(_export(config_of(context), run, Path(out) if out else None))


async def _export(config: Config, run: str, out: Path | None) -> int:
    import msgspec

    from penstock.cli.files import replacing

    async with opened(config) as client:
        await _must_exist(client, run)
        with replacing(out) as file:
            async for line in client.export_run(run):
                file.write(msgspec.json.encode(line) + b"\n")
    return 0


@app.command(
    "import", epilog="\b\nExamples:\n  penstock import nightly.jsonl\n  gunzip -c nightly.gz | penstock import -"
)
def import_(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What export wrote; - is stdin.")],
    as_json: Json = False,
) -> int:
    """Take in an exported run. Tasks of it that had not ended are queued here."""
    return finish(_import(config_of(context), file, as_json))


async def _import(config: Config, file: str, as_json: bool) -> int:
    async with opened(config) as client:
        run = await client.import_run(_lines(file))
    if as_json:
        render.emit({"run": run})
    else:
        render.say(run)
    return 0


def _lines(file: str) -> Iterator[Mapping[str, Any]]:
    """The lines of an export; what is wrong with one is told with its number."""
    import contextlib

    import msgspec

    with contextlib.nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as lines:
        name = "<stdin>" if file == "-" else file
        for number, line in enumerate(lines, 1):
            try:
                yield msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                raise UsageError(f"{name}:{number}: is not JSON ({error}); export the run again") from None
