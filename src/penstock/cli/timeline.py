"""`timeline`: a run as bars over time, on the terminal, as data, as a page for a browser, as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import render
from penstock.cli.recordings import HostSlots, Json, Maps, RunOrFile, recording_for
from penstock.cli.session import Settings, finish, whole
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.diagnosis.recording import Recording

app = typer.Typer()

_LIMIT = 50
_WIDTH = 100  # of what is no terminal


@app.command(
    "timeline",
    epilog="\b\nExamples:\n"
    "  penstock timeline last\n"
    "  penstock timeline nightly --limit 200\n"
    "  penstock timeline nightly --html nightly.html --svg nightly.svg\n"
    "  penstock timeline workers.csv --map started=launch_ts",
)
def timeline(
    context: typer.Context,
    run: RunOrFile,
    limit: Annotated[
        str,
        typer.Option(
            "--limit", metavar="N", help="How many tasks get a bar of their own; the others are folded."
        ),
    ] = str(_LIMIT),
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="Write a page to zoom, filter and hover; works offline."),
    ] = None,
    svg: Annotated[
        str | None, typer.Option("--svg", metavar="FILE", help="Write a picture, for a report.")
    ] = None,
    maps: Maps = None,
    slots: HostSlots = None,
    as_json: Json = False,
) -> int:
    """Draw a run: a bar per task, waits by reason, attempts by host.

    Underneath stand the slots in use on each host and the depth of the queue, and what took far longer than
    others of its kind is marked.
    """
    most = whole("--limit", limit, least=0)
    settings: Settings = context.obj
    files = {Path(name): name for name in (html, svg) if name is not None}
    if html is not None and svg is not None and len(files) == 1:
        raise UsageError(f"--html and --svg both name {html}; give each a file of its own")
    for path in files:
        _must_be_ours_to_write(path)
    recording = finish(recording_for(settings, run, maps=maps, slots=slots))
    return _tell(recording, most, Path(html) if html else None, Path(svg) if svg else None, as_json)


def _tell(recording: Recording, limit: int, html: Path | None, svg: Path | None, as_json: bool) -> int:
    from penstock.diagnosis.timeline.bars import timeline_of, timeline_record

    made = timeline_of(recording)
    if html is not None:
        from penstock.diagnosis.timeline.page import page

        _write(html, page(made))
    if svg is not None:
        from penstock.diagnosis.timeline.svg import picture

        _write(svg, picture(made))
    if as_json:
        render.emit(timeline_record(made, recording))
    elif html is None and svg is None:
        from rich.console import Console

        from penstock.cli.timeline_text import ASCII, UNICODE, print_timeline

        out = render.console()
        if not out.is_terminal:
            width = _columns()
            out = Console(file=sys.stdout, width=width, markup=False, emoji=False, highlight=False)
        print_timeline(out, made, limit, UNICODE if out.encoding.startswith("utf") else ASCII)
    return 0


def _columns() -> int:
    import os

    given = os.environ.get("COLUMNS", "")
    return max(60, int(given)) if given.isdecimal() else _WIDTH


def _must_be_ours_to_write(path: Path) -> None:
    """Before any work is done: a file there is replaced, anything else is left alone."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is there and no file; name a new one, or a file to replace")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.absolute().parent}; make it, or name another")


def _write(path: Path, text: str) -> None:
    from penstock.cli.files import replacing

    with replacing(path) as file:
        file.write(text.encode())
    render.note(f"wrote {path}")
