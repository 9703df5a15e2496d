"""What was asked of councils before: `council history`, `show` and `report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.cli import render
from penstock.cli.council_session import CouncilOption, Json, chosen
from penstock.cli.session import config_of, finish, one_of, opened, whole
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.config.councils import Council
    from penstock.model import TaskRecord

Question = Annotated[
    str, typer.Argument(metavar="ID", help="A question's id, or the beginning of it; last: the newest one.")
]
_HISTORY = 20
_FORMATS = ("md", "html")
_ENDINGS = (".md", ".html", ".htm")
_QUERY_LETTERS = 300


def register(app: typer.Typer) -> None:
    """These commands are of the family of `council`."""
    app.command(
        "history",
        epilog="\b\nExamples:\n  penstock council history\n  penstock council history --conversation plans",
    )(history)
    app.command(
        "show", epilog="\b\nExamples:\n  penstock council show last\n  penstock council show 01J --json"
    )(show)
    app.command(
        "report",
        epilog="\b\nExamples:\n"
        "  penstock council report last > answer.md\n"
        "  penstock council report last --format html --out answer.html\n"
        "  penstock council report record.json --out answer.html",
    )(report)


def history(
    context: typer.Context,
    council: CouncilOption = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", metavar="ID", help="Only this conversation's questions.")
    ] = None,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="How many at most.")] = str(_HISTORY),
    as_json: Json = False,
) -> int:
    """List what was asked, the newest first."""
    config = config_of(context)
    councils = [chosen(config, council)] if council is not None else list(config.councils.values())
    if not councils:
        chosen(config, None)
    records = finish(_asked(config, councils, conversation, whole("--limit", limit)))
    if as_json:
        render.emit([_entry(config, record) for record in records])
    elif not records:
        render.note('nothing was asked yet; `penstock council ask "…"` asks')
    else:
        _print_history([_entry(config, record) for record in records], several=len(councils) > 1)
    return 0


async def _asked(
    config: Config, councils: list[Council], conversation: str | None, limit: int
) -> list[TaskRecord]:
    from penstock.council.conversations import conversation_of
    from penstock.store.base import TaskFilter

    async with opened(config) as client:
        found = [
            record
            for council in councils
            for record in await client.tasks(
                TaskFilter(run=conversation, kind=council.kind, limit=limit, newest=True)
            )
            if conversation in (None, conversation_of(record.task))
        ]
    return sorted(found, key=lambda record: -record.number)[:limit]


def _entry(config: Config, record: TaskRecord) -> dict[str, Any]:
    from collections.abc import Mapping

    from penstock.config.councils import COUNCIL_PREFIX
    from penstock.council.asking import query_in
    from penstock.council.choosing import disputes_in
    from penstock.council.conversations import conversation_of

    task = record.task
    payload = task.payload if isinstance(task.payload, Mapping) else {}
    asked = next((one for one in config.councils.values() if one.kind == task.kind), None)
    value = record.value if isinstance(record.value, Mapping) else {}
    agreement = value.get("agreement")
    return {
        "id": task.id,
        "council": task.kind.removeprefix(COUNCIL_PREFIX),
        "conversation": conversation_of(task),
        "state": str(record.state),
        "asked_at": task.queued_at,
        "ended_at": record.ended_at,
        "mode": value.get("mode") or payload.get("mode") or (None if asked is None else str(asked.mode)),
        "query": query_in(task.payload),
        "success_count": value.get("success_count"),
        "total_fighters": value.get("total_fighters"),
        "disputes": disputes_in(value),
        "agreement": agreement.get("score") if isinstance(agreement, Mapping) else None,
        "error": record.error,
    }


def _print_history(entries: list[dict[str, Any]], *, several: bool) -> None:
    from penstock.council.recorded import share

    rows = []
    for entry in entries:
        score, disputes = entry["agreement"], entry["disputes"]
        answered = (
            "" if entry["success_count"] is None else f"{entry['success_count']}/{entry['total_fighters']}"
        )
        rows.append(
            [
                entry["id"],
                *([entry["council"]] if several else []),
                render.moment(entry["asked_at"])[:-4],
                entry["state"],
                entry["mode"] or "",
                answered,
                f"{disputes} in dispute"
                if disputes
                else share(score)
                if isinstance(score, int | float)
                else "",
                entry["query"][:_QUERY_LETTERS],
            ]
        )
    columns = [
        "id",
        *(["council"] if several else []),
        "asked",
        "state",
        "mode",
        "answered",
        ">agree",
        "question",
    ]
    render.print_table(columns, rows, flexible="question")


class Asked(NamedTuple):
    """A question, with its record: as far as it has come, where it is not over or was ended before its time."""

    task: TaskRecord
    record: Any


async def _question(config: Config, id: str) -> Asked:
    """A question of any council, also of one that the config has no more."""
    from penstock.council.asking import so_far
    from penstock.council.choosing import must_be_question
    from penstock.errors import UnknownTask

    if id == "last":
        found = await _asked(config, list(config.councils.values()), None, 1)
        if not found:
            raise UnknownTask('nothing was asked yet; `penstock council ask "…"` asks')
        id = found[0].task.id
    async with opened(config) as client:
        try:
            record = await client.get(id)
        except UnknownTask as error:
            told = str(error).replace("`penstock tasks`", "`penstock council history`")
            raise UnknownTask(told.replace("no task", "no question")) from None
        council = must_be_question(record, config.councils)
        if record.value is not None or council is None:
            return Asked(record, record.value)
        return Asked(record, await so_far(client, council, record))


def show(context: typer.Context, id: Question, as_json: Json = False) -> int:
    """Print a question with all that was answered, as when it was asked."""
    from penstock.cli.council_text import Pages
    from penstock.council.recorded import read_record
    from penstock.lifecycle import ENDED

    config = config_of(context)
    record, value = finish(_question(config, id))
    if as_json:
        so_far = {} if record.value is not None else {"state": str(record.state)}
        render.emit(_entry(config, record) if value is None else {**value, **so_far})
        return 0
    pages = Pages()
    entry = _entry(config, record)
    pages.section("Question", f"{record.task.id}, {record.state}", entry["query"])
    if value is not None:
        told = read_record(value, f"question {record.task.id}")
        if record.value is None:  # who has not answered is no failure yet
            for one in told.answered:
                pages.answer(one)
        else:
            pages.record(told)
            pages.closing(told)
    if record.value is None:
        pages.blank()
        why = record.error or (
            "" if record.state in ENDED else f"not over yet; see `penstock why {record.task.id}`"
        )
        pages.line(why or "it has no record")
    return 0


# ---- report


def report(
    context: typer.Context,
    question: Annotated[
        str,
        typer.Argument(
            metavar="ID|FILE", help="A question's id, or last; or a file with what `ask --json` printed."
        ),
    ],
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="md|html", help="Else what the name of --out ends with, or md."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="Where it goes; else to stdout.")
    ] = None,
) -> int:
    """Write a question's record as a page: Markdown, or HTML that needs nothing else."""
    from penstock.cli.files import replacing
    from penstock.council.recorded import read_record

    path = None if out in (None, "-") else Path(str(out))
    if form is None and path is not None and path.suffix not in _ENDINGS:
        raise UsageError(
            f"council report: --out: {str(path)!r} must end with .md or .html; or say which it is with --format"
        )
    if form is None:
        form = "html" if path is not None and path.suffix in (".html", ".htm") else "md"
    one_of("--format", form, _FORMATS)
    value, place = _report_source(context, question)
    record = read_record(value, place)
    if form == "html":
        from penstock.council.report_page import page

        text = page(record)
    else:
        from penstock.council.report import markdown

        text = markdown(record)
    with replacing(path) as file:
        file.write(text.encode("utf-8", "replace"))
    return 0


def _report_source(context: typer.Context, question: str) -> tuple[Any, str]:
    import msgspec

    path = Path(question)
    if question == "-":
        data, place = sys.stdin.buffer.read(), "stdin"
    elif path.suffix == ".json" or path.is_file():
        data, place = path.read_bytes(), question
    else:
        record, value = finish(_question(config_of(context), question))
        if value is None or (record.value is None and not value["success_count"]):
            told = record.error or "no record yet"
            raise UsageError(
                f"question {record.task.id} is {record.state}: {told}; there is nothing to report"
            )
        return value, f"question {record.task.id}"
    try:
        return msgspec.json.decode(data), place
    except msgspec.DecodeError as error:
        raise UsageError(f"{place}: is not JSON: {error}; name a file of `council list --json`") from None
