"""`top`: the plant at work, live in the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import render
from penstock.cli.session import INTERRUPTED, config_of, finish, opened
from penstock.errors import UsageError, install_line

if TYPE_CHECKING:
    from penstock.config import Config

app = typer.Typer()


@app.command(
    "top",
    epilog="\b\nExamples:\n"
    "  penstock top\n"
    "  penstock top --json | jq -c '[.queue_depth, .hosts.fenrir.active]'\n\n"
    "Keys: Tab goes on to the next table, Enter opens a task, Escape leaves it, ? shows all keys, q ends.",
)
def top(
    context: typer.Context,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print what is shown as JSON, a line for each change, until Ctrl-C."),
    ] = False,
) -> int:
    """Watch hosts, lanes, gates, the queue and what it waits for; look into a task, and act on it."""
    config = config_of(context)
    if as_json:
        return finish(_lines(config))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "top: needs a terminal; `penstock status` prints once, `penstock top --json` goes on"
        )
    try:
        import textual  # noqa: F401 - only whether it is there
    except ImportError:
        raise UsageError(
            f"top: Textual is not installed; {install_line('ui')}, or use `penstock status`"
        ) from None
    return finish(_screen(config))


async def _screen(config: Config) -> int:
    from penstock.cli.top_app import Top

    # Who waits for what comes would wait at an empty stand-in for ever.
    async with opened(config, stand_in=False) as client:
        shown = Top(client)
        await shown.run_async()
    return shown.return_code or 0


async def _lines(config: Config) -> int:
    """A pipe that nobody reads any more ends it as quietly as Ctrl-C."""
    from penstock.cli.session import hearing_interrupts
    from penstock.cli.top_text import told

    heard: list[int] = []
    with hearing_interrupts() as interrupts:
        interrupts.tell(heard.append)
        async with opened(config, stand_in=False) as client, client.watching() as watch:
            now = last = None
            while not heard:
                now = await client.now(now)
                record = told(config.plant, now, await client.standbys())
                if record != last:
                    render.emit_line(record)
                    last = record
                await watch()
    return INTERRUPTED
