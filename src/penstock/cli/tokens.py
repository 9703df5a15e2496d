"""Who may come in through `serve`: `token add`, `token list`, `token revoke`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import render
from penstock.cli.app import Family
from penstock.cli.session import config_of, finish, one_of, opened, whole
from penstock.errors import UnknownTask, UsageError

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.store.base import Token

app = typer.Typer(
    cls=Family,
    help="Tokens: who may come in through `serve`, to do what, and how much of it.",
    epilog="\b\nExamples:\n  penstock token add laptop\n  penstock token list\n  penstock token revoke laptop",
    add_completion=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="What the token is called.")]


@app.command(
    "add",
    epilog="\b\nExamples:\n"
    "  penstock token add laptop\n"
    "  penstock token add nightly --lane reports --priority 3 --scope submit\n"
    "  penstock token add board --scope read --requests-per-min 120",
)
def add(
    context: typer.Context,
    name: Name,
    lane: Annotated[
        str | None, typer.Option("--lane", help="All it submits goes to this lane; else the tasks say.")
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(
            "--priority", metavar="0-4", help="The most urgent its tasks may be, and what they are."
        ),
    ] = None,
    scope: Annotated[
        str,
        typer.Option("--scope", metavar="submit,read,admin", help="What it may do."),
    ] = "submit,read",
    requests_per_min: Annotated[
        str | None,
        typer.Option("--requests-per-min", metavar="N", help="Else server.requests_per_min holds."),
    ] = None,
    max_queued: Annotated[
        str | None,
        typer.Option("--max-queued", metavar="N", help="How much may wait; else server.max_queued."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Make a token and print its secret, this once.

    The secret is sent as `Authorization: Bearer SECRET`; only its digest is kept. A running `serve` takes it
    at once, and from the first token on lets nobody in without one.
    """
    from time import time

    from penstock.store.base import Token
    from penstock.store.tokens import digest_of, new_secret

    config = config_of(context)
    id, secret = new_secret()
    token = Token(
        name=_name(name),
        id=id,
        digest=digest_of(secret),
        scopes=_scopes(scope),
        lane=None if lane is None else one_of("--lane", lane, [one.name for one in config.plant.lanes]),
        priority=None if priority is None else int(one_of("--priority", priority, list("01234"))),
        requests_per_min=None if requests_per_min is None else _rate(requests_per_min),
        max_queued=None if max_queued is None else whole("--max-queued", max_queued),
        created_at=time(),
    )
    return finish(_add(config, token, secret, as_json))


async def _add(config: Config, token: Token, secret: str, as_json: bool) -> int:
    async with opened(config, makes=True) as client:
        if not await client.add_token(token):
            raise UsageError(
                f"token add: there is a token {token.name!r} already; "
                f"revoke it first (`penstock token revoke {token.name}`), or choose another name"
            )
    if as_json:
        from penstock.store.tokens import token_record

        render.emit({**token_record(token), "secret": secret})
    else:
        render.say(secret)
        render.note("keep it: it is not shown again")
    return 0


@app.command("list", epilog="\b\nExamples:\n  penstock token list\n  penstock token list --json")
def list_tokens(context: typer.Context, as_json: Json = False) -> int:
    """List the tokens; their secrets are not kept."""
    return finish(_list(config_of(context), as_json))


async def _list(config: Config, as_json: bool) -> int:
    async with opened(config) as client:
        tokens = await client.tokens()
    if as_json:
        from penstock.store.tokens import token_record

        render.emit([token_record(token) for token in tokens])
    elif not tokens:
        render.note("no token; `penstock token add NAME` makes one")
    else:
        rows = [
            (
                token.name,
                ",".join(token.scopes),
                token.lane or "",
                _shown(token.priority),
                _shown(token.requests_per_min),
                _shown(token.max_queued),
                render.moment(token.created_at),
            )
            for token in tokens
        ]
        columns = ("token", "scopes", "lane", ">priority", ">requests/min", ">max queued", "made")
        render.print_table(columns, rows)
    return 0


@app.command("revoke", epilog="\b\nExamples:\n  penstock token revoke laptop")
def revoke(context: typer.Context, name: Name, as_json: Json = False) -> int:
    """Shut a token out.

    When this returns a running `serve` refuses it, and its open event streams are closed.
    """
    return finish(_revoke(config_of(context), name, as_json))


async def _revoke(config: Config, name: str, as_json: bool) -> int:
    from penstock.config.problems import meant

    async with opened(config, stand_in=False) as client:
        if not await client.revoke_token(name):
            known = [token.name for token in await client.tokens()]
            raise UnknownTask(f"token revoke: there is no token {name!r}{meant(name, known, 'tokens')}")
        left = await client.tokens()
    if as_json:
        render.emit({"revoked": name, "left": len(left)})
        return 0
    render.say(f"{name} is revoked")
    if not left:
        render.note("no token is left: the next `serve` is open to every program on this machine")
    return 0


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _name(text: str) -> str:
    from penstock.config.keys import NAME, NAME_RULE

    if not NAME.fullmatch(text):
        raise UsageError(f"token add: {text!r} is not a name: {NAME_RULE}")
    if text == "local":
        raise UsageError("token add: 'local' is whoever comes without a token; choose another name")
    return text


def _scopes(text: str) -> tuple[str, ...]:
    from penstock.store.tokens import SCOPES

    asked = [one_of("--scope", word.strip(), SCOPES) for word in text.split(",")]
    return tuple(scope for scope in SCOPES if scope in asked)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 1 <= rate <= 1e12:
        raise UsageError(f"--requests-per-min: {text!r} must be a number, at least 1")
    return rate
