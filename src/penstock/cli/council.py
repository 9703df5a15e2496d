"""The council: `council ask`, `list`, `history`, `show`, `report`; `ingest` and `sources` are elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import council_ingest, render
from penstock.cli.app import Family
from penstock.cli.session import config_of, finish, one_of, opened, whole
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.config.councils import Council
    from penstock.model import TaskRecord

app = typer.Typer(
    cls=Family,
    help="The council: one question, many members, one honest answer.",
    epilog="\b\nExamples:\n"
    '  penstock council ask "Is the plan sound?"\n'
    "  penstock council ask - --mode thorough < question.txt\n"
    "  penstock council report last --format html --out answer.html",
    add_completion=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CouncilOption = Annotated[
    str | None, typer.Option("--council", metavar="NAME", help="Which council; else the only one.")
]
Question = Annotated[
    str, typer.Argument(metavar="ID", help="A question's id, or the beginning of it; last: the newest one.")
]
_HISTORY = 20
_FORMATS = ("md", "html")
_QUERY_LETTERS = 300


def chosen(config: Config, name: str | None) -> Council:
    """That council of the config, or the only one."""
    from penstock.council.choosing import EXAMPLE, council_named

    if not config.councils:
        where = "penstock.toml" if config.path is None else str(config.path)
        render.note(f"there is no council in {where}; add one, for example:")
        sys.stderr.write(f"\n{EXAMPLE}\n\n")
        raise typer.Exit(2)
    return council_named(config.councils, name)


# ---- ask


@app.command(
    "ask",
    epilog="\b\nExamples:\n"
    '  penstock council ask "Is the plan sound?"\n'
    '  penstock council ask "And in winter?" --follow-up\n'
    "  penstock council ask - --mode thorough --out answer.html < question.txt\n"
    '  penstock council ask "Is the plan sound?" --members GOKU,VEGETA --dry-run',
)
def ask(
    context: typer.Context,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to ask; - reads it from stdin.")],
    council: CouncilOption = None,
    mode: Annotated[
        str | None,
        typer.Option("--mode", metavar="quick|council|thorough", help="Else as the council has it."),
    ] = None,
    members: Annotated[
        str | None, typer.Option("--members", metavar="A,B", help="Ask only these; else all of them.")
    ] = None,
    no_rag: Annotated[
        bool, typer.Option("--no-rag", help="Without passages of the council's documents.")
    ] = False,
    conversation: Annotated[
        str | None,
        typer.Option("--conversation", metavar="ID", help="It follows this one's questions; or begins it."),
    ] = None,
    follow_up: Annotated[
        bool, typer.Option("--follow-up", help="It follows the newest question of this council.")
    ] = False,
    priority: Annotated[
        str | None, typer.Option("--priority", metavar="0-4", help="0 is the most urgent; else 2.")
    ] = None,
    lane: Annotated[str | None, typer.Option("--lane", help="Its lane.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON, at the end.")] = False,
    as_events: Annotated[
        bool, typer.Option("--events", help="Print everything that is heard as lines of JSON.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would cost, and ask nobody.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Print the question's id and leave; others answer it.")
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write it too: .json the record, .md or .html a report."
        ),
    ] = None,
) -> int:
    """Ask a council. Answers appear as they come; then who agrees, and the answer of all.

    Ctrl-C cancels the question. The exit status is 1 when nobody answered. It is answered by the `serve` or `work`
    that runs on the same store, else by this command itself.
    """
    from penstock.cli import council_ask
    from penstock.council.asking import Wish, read_wish
    from penstock.model import DEFAULT_LANE, DEFAULT_PRIORITY

    if sum((as_json, as_events)) > 1:
        raise UsageError("council ask: --json and --events exclude each other; leave one of them out")
    if follow_up and conversation is not None:
        raise UsageError(
            "council ask: --follow-up and --conversation exclude each other; leave one of them out"
        )
    config = config_of(context)
    path = None if out is None else Path(out)
    council_ask.must_fit(path)
    asked = chosen(config, council)
    if follow_up:
        conversation = finish(council_ask.last_conversation(config, asked))
    wish = Wish(
        query=council_ask.query_of(question),
        mode=mode,
        members=None if members is None else [name.strip() for name in members.split(",") if name.strip()],
        use_rag=False if no_rag else None,
        conversation=conversation,
        priority=DEFAULT_PRIORITY if priority is None else int(one_of("--priority", priority, list("01234"))),
        lane=lane or DEFAULT_LANE,
    )
    read = read_wish(asked, wish)
    if dry_run:
        from penstock.council.plan.estimate import estimate, prices_of

        prices = prices_of(asked, config.plant.hosts)
        made = estimate(asked, read.mode, read.members, read.query, prices, use_rag=read.use_rag)
        if as_json:
            render.emit(made.as_record())
        else:
            council_ask.print_estimate(asked, made)
        return 0
    if detach:
        return finish(council_ask.detach(config, asked, wish, as_json=as_json))
    return finish(council_ask.ask(config, asked, wish, council_ask.Shown(as_json, as_events, path)))


# ---- list


@app.command("list", epilog="\b\nExamples:\n  penstock council list\n  penstock council list --json")
def list_councils(context: typer.Context, as_json: Json = False) -> int:
    """List the councils: who answers, who sums up, what they may read."""
    config = config_of(context)
    if as_json:
        import msgspec

        render.emit([msgspec.to_builtins(one) for one in config.councils.values()])
        return 0
    chosen(config, next(iter(config.councils), None))
    for number, council in enumerate(config.councils.values()):
        if number:
            render.say()
        _print_council(council)
    return 0


def _print_council(council: Council) -> None:
    reads = council.retrieval
    told = [
        f"mode {council.mode}",
        f"quorum {council.min_answers} of {len(council.members)}",
        f"reads {reads.top} passages of {reads.collection}" if reads is not None else "reads nothing",
    ]
    render.say(f"{council.name}: {', '.join(told)}")
    rows = [_member_row(one, "") for one in council.members]
    if council.member(council.chair.name) is None:
        rows.append(_member_row(council.chair, "sums up"))
    else:
        rows = [_with_chair(row, council.chair.name) for row in rows]
    render.print_table(("member", "role", "model", "kind", "does"), rows, flexible="role")


def _member_row(one: Any, does: str) -> list[str]:
    from penstock.cli.council_text import clean_line

    title = clean_line(f"{one.emoji} {one.name}".strip())
    return [title, one.role, one.model or "", one.kind, does or "answers"]


def _with_chair(row: list[str], chair: str) -> list[str]:
    is_chair = row[0].endswith(chair) and row[0].split()[-1] == chair
    return [*row[:-1], "answers, sums up"] if is_chair else row


# ---- what was asked before


@app.command(
    "history",
    epilog="\b\nExamples:\n  penstock council history\n  penstock council history --conversation plans --limit 5",
)
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
        render.emit([_entry(record) for record in records])
    elif not records:
        render.note('nothing was asked yet; `penstock council ask "…"` asks')
    else:
        _print_history(records, several=len(councils) > 1)
    return 0


async def _asked(
    config: Config, councils: list[Council], conversation: str | None, limit: int
) -> list[TaskRecord]:
    from penstock.store.base import TaskFilter

    async with opened(config) as client:
        found = [
            record
            for council in councils
            for record in await client.tasks(
                TaskFilter(run=conversation, kind=council.kind, limit=limit, newest=True)
            )
        ]
    return sorted(found, key=lambda record: -record.number)[:limit]


def _entry(record: TaskRecord) -> dict[str, Any]:
    from collections.abc import Mapping

    from penstock.config.councils import COUNCIL_PREFIX

    task = record.task
    payload = task.payload if isinstance(task.payload, Mapping) else {"query": task.payload}
    value = record.value if isinstance(record.value, Mapping) else {}
    agreement = value.get("agreement")
    return {
        "id": task.id,
        "council": task.kind.removeprefix(COUNCIL_PREFIX),
        "conversation": task.run,
        "state": str(record.state),
        "asked_at": task.queued_at,
        "ended_at": record.ended_at,
        "mode": value.get("mode") or payload.get("mode"),
        "query": str(payload.get("query") or ""),
        "success_count": value.get("success_count"),
        "total_fighters": value.get("total_fighters"),
        "agreement": agreement.get("score") if isinstance(agreement, Mapping) else None,
        "error": record.error,
    }


def _print_history(records: list[TaskRecord], *, several: bool) -> None:
    from penstock.council.recorded import share

    rows = []
    for entry in map(_entry, records):
        score = entry["agreement"]
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
                share(score) if isinstance(score, int | float) else "",
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


async def _question(config: Config, id: str) -> TaskRecord:
    """A question of any council, also of one that the config has no more."""
    from penstock.council.choosing import must_be_question
    from penstock.errors import UnknownTask

    if id == "last":
        found = await _asked(config, list(config.councils.values()), None, 1)
        if not found:
            raise UnknownTask('nothing was asked yet; `penstock council ask "…"` asks')
        return found[0]
    async with opened(config) as client:
        record = await client.get(id)
    must_be_question(record, config.councils)
    return record


@app.command("show", epilog="\b\nExamples:\n  penstock council show last\n  penstock council show 01J --json")
def show(context: typer.Context, id: Question, as_json: Json = False) -> int:
    """Print a question with all that was answered, as when it was asked."""
    from penstock.cli.council_text import Pages
    from penstock.council.recorded import read_record
    from penstock.lifecycle import ENDED

    record = finish(_question(config_of(context), id))
    if as_json:
        render.emit(record.value if record.value is not None else _entry(record))
        return 0
    pages = Pages()
    pages.section("Question", f"{record.task.id}, {record.state}", str(_entry(record)["query"]))
    if record.value is None:
        why = record.error or (
            "" if record.state in ENDED else f"not over yet; see `penstock why {record.task.id}`"
        )
        pages.line(why or "it has no record")
        return 0
    told = read_record(record.value, f"question {record.task.id}")
    pages.record(told)
    pages.closing(told)
    return 0


# ---- report


@app.command(
    "report",
    epilog="\b\nExamples:\n"
    "  penstock council report last > answer.md\n"
    "  penstock council report last --format html --out answer.html\n"
    "  penstock council report record.json --out answer.html",
)
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
        record = finish(_question(config_of(context), question))
        if record.value is None:
            told = record.error or "no record yet"
            raise UsageError(
                f"question {record.task.id} is {record.state}: {told}; there is nothing to report"
            )
        return record.value, f"question {record.task.id}"
    try:
        return msgspec.json.decode(data), place
    except msgspec.DecodeError as error:
        raise UsageError(f"{place}: is not JSON: {error}") from None


council_ingest.register(app)
