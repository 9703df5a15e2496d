"""`export` and `import`: a run with all that explains it, from one store to another."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import render
from penstock.cli.session import config_of, finish, opened
from penstock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.config import Config

app = typer.Typer()


@app.command(
    "export",
    epilog="\b\nExamples:\n"
    "  penstock export nightly --out nightly.jsonl\n"
    "  penstock export nightly | gzip > nightly.gz",
)
def export(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="Its name, the beginning of it, or `last`.")],
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="Write it there, not to stdout.")
    ] = None,
) -> int:
    """Write a run as JSON lines, for another store to import.

    They hold all that explains it: attempts, events, and what its tasks waited for.
    """
    return finish(_export(config_of(context), run, Path(out) if out else None))


async def _export(config: Config, run: str, out: Path | None) -> int:
    import msgspec

    from penstock.cli.files import replacing

    async with opened(config) as client:
        named = await client.run_named(run)
        with replacing(out) as file:
            async for line in client.export_run(named):
                file.write(msgspec.json.encode(line) + b"\n")
    return 0


@app.command(
    "import",
    epilog="\b\nExamples:\n  penstock import nightly.jsonl\n  gunzip -c nightly.gz | penstock import -",
)
def import_(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What export wrote; - is stdin.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Take in an exported run.

    Tasks of it that had not ended are queued here.
    """
    config = config_of(context)
    return finish(_import(config, list(_lines(file)), as_json))


async def _import(config: Config, lines: Sequence[Mapping[str, Any]], as_json: bool) -> int:
    async with opened(config, makes=True) as client:
        run = await client.import_run(lines)
    if as_json:
        render.emit({"run": run})
    else:
        render.say(run)
    return 0


def _lines(file: str) -> Iterator[Mapping[str, Any]]:
    """The lines of an export; what is wrong with one is told with its number."""
    import msgspec

    with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as lines:
        name = "<stdin>" if file == "-" else file
        for number, line in enumerate(lines, 1):
            try:
                yield msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                raise UsageError(f"{name}:{number}: is not JSON ({error}); export the run again") from None
