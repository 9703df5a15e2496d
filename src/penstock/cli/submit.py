"""`submit`: a task from options, or a file of tasks, into the queue.

What the options say is read and checked like an entry of a task file: both know the same forms, and say the
same about what is wrong.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from penstock.cli import planning, render
from penstock.cli.session import INTERRUPTED, Interrupts, config_of, finish, hearing_interrupts, opened
from penstock.errors import UsageError
from penstock.trace import of_environment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.client import Client, Run
    from penstock.config import Config
    from penstock.intake.plans import Plan
    from penstock.model import Result, Task

app = typer.Typer()

_TASK_FILES = (".json", ".jsonl", ".ndjson", ".toml", ".yaml", ".yml")

# What begins so was meant as JSON: broken JSON is common, and a text that begins so is rare.
_JSON_BEGINS = ("{", "[", '"')

Command: TypeAlias = "Callable[[str], str]"  # a command line to type next, with the same config


@app.command(
    "submit",
    epilog="\b\nExamples:\n"
    '  penstock submit summarize \'{"text": "…"}\' --priority 0\n'
    '  penstock submit chat "What is a queue?" --wait\n'
    "  echo some words | penstock submit summarize - --wait\n"
    "  penstock submit train --needs slots=2,vram_gb=8 --after prepare --not-before +30m\n"
    "  penstock submit --file tasks.jsonl --run nightly",
)
def submit(
    context: typer.Context,
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="What sort of work it is.")] = None,
    payload: Annotated[
        str | None,
        typer.Argument(metavar="PAYLOAD", help="JSON or text for the task; - reads it from stdin."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Submit a task file instead; - is JSONL on stdin."),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="PAYLOAD is text, whatever it looks like.")] = False,
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
        typer.Option(
            "--needs", metavar="UNIT=N,…", help="Units it takes on its host, like slots=2,vram_gb=8."
        ),
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
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Save its value there when it is done.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="The same key twice is one task.")] = None,
    task_id: Annotated[str | None, typer.Option("--id", help="Its id, if you want to choose it.")] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="The run it belongs to.")] = None,
    on_crash: Annotated[
        str | None,
        typer.Option("--on-crash", metavar="retry|block", help="If its dispatcher is lost while it runs."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the result and print it; dispatch if nobody does.")
    ] = False,
    redo: Annotated[bool, typer.Option("--redo", help=planning.REDO)] = False,
    resume: Annotated[bool, typer.Option("--resume", help=planning.RESUME)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=planning.DRY_RUN)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
        "output": output,
        "key": key,
        "id": task_id,
        "on_crash": on_crash,
    }
    if file is not None:
        given = [name for name, value in entry.items() if value not in (None, [])]
        if kind is not None or text or given:
            extra = "KIND" if kind is not None else "--text" if text else _option(given[0])
            raise UsageError(f"submit: {extra} cannot be used with --file; write it into {file}")
        plan = planning.read_plan(config, file, run, redo=redo, resume=resume)
        if dry_run:
            return planning.show(config, file, plan, as_json=as_json)
        return finish(_submit_file(config, plan, wait, as_json, context.obj.command))
    if redo or resume or dry_run:
        option = "--redo" if redo else "--resume" if resume else "--dry-run"
        raise UsageError(f"submit: {option} goes with --file; name a task file")
    if kind is None:
        raise UsageError("submit: name a KIND, or a file with --file; see `penstock submit --help`")
    if payload is None and Path(kind).suffix in _TASK_FILES and Path(kind).is_file():
        raise UsageError(f"submit: {kind} is a file, and KIND a sort of work; submit it with --file {kind}")
    entry |= {"kind": kind, "payload": _payload(payload, text), "run": run}
    return finish(_submit_one(config, entry, context.obj.command, wait=wait, as_json=as_json))


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
        if not given.lstrip().startswith(_JSON_BEGINS):
            return given
        what = f"submit: PAYLOAD {render.one_line(given, 40)!r} is not JSON ({error})"
        raise UsageError(f"{what}; correct it, or send it as text with --text") from None


async def _submit_one(
    config: Config, entry: dict[str, Any], command: Command, *, wait: bool, as_json: bool
) -> int:
    from penstock.config import TaskChecker
    from penstock.intake.entries import Setting, read_entry

    if entry["after"]:
        async with opened(config, makes=True) as client:
            entry["after"] = [(await client.get(one)).task.id for one in entry["after"]]
    tasks, problems = read_entry(entry, Setting(time.time(), "", config.on_crash, TaskChecker(config)))
    if problems:
        told = [f"submit: {_option(str(p.path[0]))}: {p.message}" for p in problems]
        raise UsageError("\n".join(told))

    # Only now: with --wait a dispatcher may begin here.
    def begin(client: Client, trace: str | None) -> Awaitable[Run]:
        return client.submit_many(tasks, trace=trace)

    return await _submit(config, tasks, begin, wait, as_json, command)


async def _submit_file(config: Config, plan: Plan, wait: bool, as_json: bool, command: Command) -> int:
    planning.tell_there(plan)
    planning.tell_missing(config, plan)
    skipped = [planning.skipped_record(task) for task in plan.there]
    if as_json and wait:
        for record in skipped:
            render.emit_line(record)
    if plan.tasks:
        begin = partial(planning.begin, plan)
        return await _submit(config, plan.tasks, begin, wait, as_json, command, skipped)
    if as_json and not wait:
        render.emit({"run": None, "task_ids": [], "skipped": skipped})
    return 0


async def _submit(
    config: Config,
    tasks: Sequence[Task],
    begin: Callable[[Client, str | None], Awaitable[Run]],
    wait: bool,
    as_json: bool,
    command: Command,
    skipped: Sequence[dict[str, Any]] = (),
) -> int:
    """`begin` submits `tasks`, with the caller's trace; `skipped` are those of a file that are not."""
    trace = of_environment(os.environ)
    if not wait:
        async with opened(config, makes=True) as client:
            run = await begin(client, trace)
            if differs := await client.config_difference():
                render.note(differs.told(config))
            return await _submitted(client, run, as_json, command, skipped)
    from penstock.cli.logs import telling
    from penstock.wiring import Dispatching

    dispatching = Dispatching(command="penstock submit --wait")
    with hearing_interrupts() as interrupts, telling(render.note, of_hosts=False):
        async with opened(config, dispatching=dispatching) as client:
            since = time.time()
            run = await begin(client, trace)
            return await _wait(client, run, tasks, interrupts, as_json, command, since)


def _option(field: str) -> str:
    if field in ("kind", "payload"):
        return field.upper()
    return "--" + field.removesuffix("_s").replace("_", "-")


async def _submitted(
    client: Client, run: Run, as_json: bool, command: Command, skipped: Sequence[dict[str, Any]]
) -> int:
    if as_json:
        record: dict[str, Any] = {"run": run.name, "task_ids": list(run.task_ids)}
        render.emit({**record, "skipped": skipped} if skipped else record)
    else:
        render.say(run.task_ids[0] if len(run.task_ids) == 1 else run.name)
    if sys.stdout.isatty():
        epoch = (await client.snapshot()).epoch
        if epoch is None:
            render.note(f"queued; no dispatcher is running: start one with `{command('work')}`")
        elif not epoch.owner.works_on(run.name):
            render.note(
                f"queued; {epoch.owner.apart}: start another with `{command('work')}` when it has ended"
            )
    return 0


async def _wait(
    client: Client,
    run: Run,
    tasks: Sequence[Task],
    interrupts: Interrupts,
    as_json: bool,
    command: Command,
    since: float,
) -> int:
    from penstock.answers import answer_in
    from penstock.cli.following import follow
    from penstock.cli.host_watch import HostWatch
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
            text = answer_in(result.value) or render.text_of(result.value)
            outcome = text if result.ok else f"{result.state}: {result.error}"
            render.say(f"{result.name or result.task_id} {render.one_line(outcome)}")

    lines = ResultLines(client, run, tell)
    hosts = HostWatch(client, dict(zip(run.task_ids, tasks, strict=True)), render.note, since)
    ended = await follow(client, run, interrupts, lines.add, render.note, hosts)
    await lines.flush()
    if hosts.stuck is not None:
        render.note(hosts.way_on(run.name, command("work --drain"), command(f"cancel --run {run.name}")))
        return 1
    if not ended:
        how = command("work --drain")
        render.note(f"interrupted; the rest of run {run.name} stays queued: `{how}` does it")
        return INTERRUPTED
    return 0 if good else 1


def _tell_only(result: Result) -> None:
    """The one value that was asked for, and nothing beside it."""
    if not result.ok:
        why = render.one_line(result.error or "no reason was given")
        render.note(f"task {result.task_id} {result.state}: {why}")
    elif result.value is not None:
        render.answer(result.value)
