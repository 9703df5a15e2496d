"""The council: `council ask` and `list`; `history`, `show` and `report` are in `council_past.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import council_ingest, council_past, render
from penstock.cli.app import Family
from penstock.cli.council_session import CouncilOption, Json, chosen
from penstock.cli.session import config_of, finish, one_of
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.config.councils import Council, Member

_MOST_HOSTS = 3  # named for one member

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
        bool, typer.Option("--follow-up", help="It follows the newest question that this council answered.")
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
        made = finish(council_ask.estimated(config, asked, read))
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
        _print_council(council, config)
    return 0


def _print_council(council: Council, config: Config) -> None:
    reads = council.retrieval
    told = [
        f"mode {council.mode}",
        f"quorum {council.min_answers} of {len(council.members)}",
        f"reads {reads.top} passages of {reads.collection}" if reads is not None else "reads nothing",
    ]
    render.say(f"{council.name}: {', '.join(told)}")
    chair = council.chair
    rows = [
        _row(one, "answers, sums up" if one.name == chair.name else "answers", config)
        for one in council.members
    ]
    if council.member(chair.name) is None:
        rows.append(_row(chair, "sums up", config))
    render.print_table(("member", "role", "model", "host", "kind", "does"), rows, flexible="role")


def _row(one: Member, does: str, config: Config) -> list[str]:
    from penstock.config.called import hosts_of

    hosts = hosts_of(one, config)
    own = {host.model for host in hosts if host.model is not None}  # asked for where the member names none
    model = one.model or (own.pop() if len(own) == 1 else "")
    more = [f"and {len(hosts) - _MOST_HOSTS} more"] if len(hosts) > _MOST_HOSTS else []
    by = ", ".join([*(host.name for host in hosts[:_MOST_HOSTS]), *more])
    return [f"{one.emoji} {one.name}".strip(), one.role, model, by, one.kind, does]


council_past.register(app)
council_ingest.register(app)
