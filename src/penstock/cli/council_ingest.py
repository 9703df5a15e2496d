"""`council ingest` and `council sources`: documents into a council's collection, and what is in it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import render
from penstock.cli.leaving import has_others, leave
from penstock.cli.session import (
    APART_S,
    INTERRUPTED,
    Interrupts,
    config_of,
    finish,
    hearing_interrupts,
    one_of,
    opened,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cli.ingest_display import Display
    from penstock.client import Client
    from penstock.config import Config
    from penstock.config.councils import Council
    from penstock.council.library.ingested import Ingested, Options
    from penstock.council.library.ingesting import Ingestion

CouncilOption = Annotated[
    str | None,
    typer.Option(
        "--council", metavar="NAME", help="Into the collection of this one, where there are several."
    ),
]


def register(app: typer.Typer) -> None:
    """These commands are of the family of `council`."""
    app.command(
        "ingest",
        epilog="\b\nExamples:\n"
        "  penstock council ingest docs\n"
        "  penstock council ingest docs --by headings --dry-run\n"
        "  penstock council ingest ../wiki --as wiki --council shenron",
    )(ingest)
    app.command("sources", epilog="\b\nExamples:\n  penstock council sources --json | jq '.sources | keys'")(
        sources
    )


def ingest(
    context: typer.Context,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The folder that the documents are in.")],
    council: CouncilOption = None,
    by: Annotated[
        str, typer.Option("--by", metavar="words|headings", help="Cut into windows of words, or at headings.")
    ] = "words",
    chunk_words: Annotated[
        str | None, typer.Option("--chunk-words", metavar="N", help="The longest passage; else the config's.")
    ] = None,
    overlap_words: Annotated[
        str | None,
        typer.Option("--overlap-words", metavar="N", help="What two windows share; else the config's."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="What its sources begin with; else the folder's own name."),
    ] = None,
    empty: Annotated[
        bool, typer.Option("--empty", help="Remove all of its sources when DIR holds no document any more.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no summary, only failures.")
    ] = False,
) -> int:
    """Put the documents of a folder into a council's collection: Markdown, text, PDF, HTML and code.

    A second time only what changed is done, and files that are gone leave the collection. Ctrl-C leaves what is
    done, and the next time goes on from there. Where another process dispatches, it does the work. Exit status 1
    when a file could not be put in; each is told.
    """
    from penstock.council.library.chunks import By
    from penstock.council.library.ingesting import checked

    config = config_of(context)
    chosen = _council(config, council)
    options = options_of(
        config,
        chosen,
        by=one_of("--by", by, [str(one) for one in By]),
        chunk_words=None if chunk_words is None else whole("--chunk-words", chunk_words),
        overlap_words=None if overlap_words is None else whole("--overlap-words", overlap_words, 0),
        name=name,
        dry_run=dry_run,
        may_empty=empty,
    )
    checked(chosen, Path(folder), options)
    return finish(
        _ingest(config, chosen, Path(folder), options, context.obj.command, as_json=as_json, quiet=quiet)
    )


def _council(config: Config, name: str | None) -> Council:
    from penstock.cli.council_session import chosen
    from penstock.council.library.door import council_of

    if not config.councils:
        return chosen(config, name)
    return council_of(config.councils, name, "name one with --council")


def options_of(config: Config, council: Council, **given: Any) -> Options:
    from penstock.council.library.ingested import make_options

    return make_options(council, config.payload_limit_bytes, **given)


async def _ingest(
    config: Config,
    council: Council,
    folder: Path,
    options: Options,
    command: Callable[[str], str],
    *,
    as_json: bool,
    quiet: bool,
) -> int:
    from penstock.cli.ingest_display import choose
    from penstock.cli.logs import telling
    from penstock.council.library.ingesting import Ingestion
    from penstock.errors import LibraryError
    from penstock.wiring import Dispatching

    display = choose(quiet=quiet)
    with hearing_interrupts(APART_S) as interrupts, telling(display.tell):
        async with opened(config, dispatching=Dispatching(command="penstock council ingest")) as client:
            ingestion = Ingestion(client, council, folder, options)
            try:
                told = await _followed(client, ingestion, interrupts, display, command)
            except LibraryError:
                if ingestion.is_stopping:
                    render.note("interrupted; nothing was changed")
                    return INTERRUPTED
                raise
    return _tell(told, as_json=as_json, quiet=quiet)


async def _followed(
    client: Client,
    ingestion: Ingestion,
    interrupts: Interrupts,
    display: Display,
    command: Callable[[str], str],
) -> Ingested:
    """The ingestion to its end, shown as it goes on; Ctrl-C ends it soon, the second time at once."""
    import asyncio

    from penstock.errors import LibraryError

    heard: list[int] = []

    def hear(_: int) -> None:
        heard.append(1)
        if len(heard) == 1:
            ingestion.stop()
            group.create_task(_finish(client, ingestion, display))
        elif client.dispatches:
            display.tell("putting back what runs")
            group.create_task(client.stop_dispatching(put_back=True))

    async def tick() -> None:
        while True:
            display.update(ingestion.progress, time.time())
            await asyncio.sleep(display.every_s)

    failed: LibraryError | None = None
    display.open(command)
    try:
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(tick())
            interrupts.tell(hear)
            try:
                told = await ingestion.run()
            except LibraryError as error:  # it must not cancel the others: what runs is finished all the same
                failed = error
            finally:
                ticking.cancel()
        display.update(ingestion.progress, time.time())
    except BaseExceptionGroup as error:
        raise error.exceptions[0] from None
    finally:
        interrupts.tell(lambda _: None)
        display.close()
    await leave(client, ingestion.progress.run, interrupts)
    if failed is not None:
        raise failed
    return told


async def _finish(client: Client, ingestion: Ingestion, display: Display) -> None:
    if not client.dispatches:
        display.tell("leaving what is queued to who dispatches")
    elif await has_others(client, ingestion.progress.run):
        display.tell("finishing what runs, also of others; Ctrl-C again puts it back")
    else:
        display.tell("finishing what runs; Ctrl-C again puts it back")
    await client.stop_dispatching()


def _tell(told: Ingested, *, as_json: bool, quiet: bool) -> int:
    from penstock.cli.ingest_summary import failures, summary

    if as_json:
        render.emit(told.as_record())
    else:
        for line in failures(told):
            render.note(line)
        if not quiet:
            for line in summary(told):
                render.say(line)
    if told.stopped:
        return INTERRUPTED
    return 1 if told.failed or told.gave_up else 0


# ---- sources


def sources(
    context: typer.Context,
    council: CouncilOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """List what a council's collection holds: its sources, and those that must be ingested again."""
    from penstock.council.library.door import collection_of

    config = config_of(context)
    chosen = _council(config, council)
    return finish(_sources(config, chosen, collection_of(chosen), as_json))


async def _sources(config: Config, council: Council, collection: str, as_json: bool) -> int:
    from penstock.council.library.door import manifest
    from penstock.wiring import Dispatching

    run = time.strftime(f"sources-{council.name}-%Y%m%d-%H%M%S")
    async with opened(config, dispatching=Dispatching(command="penstock council sources")) as client:
        _, held = await manifest(client, council, run)
    if as_json:
        render.emit({"council": council.name, "collection": collection, **held})
        return 0
    names = held["sources"]
    for source, made in sorted(names.items()):
        render.say(render.one_line(source) if made else f"{render.one_line(source)}  (to be ingested again)")
    sys.stdout.flush()
    if not names and not held["passages"]:
        render.note(f"{collection}: nothing is in it; `penstock council ingest DIR` fills it")
        return 0
    count = f"{render.counted(len(names), 'source')}, {render.counted(held['passages'], 'passage')}"
    render.note(f"{collection}: {count}, embedded by {held['embeddings']}")
    return 0
