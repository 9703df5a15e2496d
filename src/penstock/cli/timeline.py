"""`timeline`: a run as bars over time, on the terminal, as data, as a page for a browser, as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import render
from penstock.cli.recordings import EVERY_COMMAND, HostSlots, Json, Maps, RunOrFile, recording_for
from penstock.cli.session import Settings, finish, whole
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.diagnosis.recording import Recording

app = typer.Typer()

_LIMIT = 50
_WIDTH = 100  # of what is no terminal
_STDOUT = "-"  # as the name of a file


@app.command(
    "timeline",
    epilog="\b\nExamples:\n"
    "  penstock timeline last\n"
    "  penstock timeline nightly --limit 200\n"
    "  penstock timeline nightly --html nightly.html --svg nightly.svg\n"
    "  penstock timeline workers.csv --map started=launch_ts"
    "\n\n" + EVERY_COMMAND,
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
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write a page to zoom, filter and hover; works offline. - is stdout.",
        ),
    ] = None,
    svg: Annotated[
        str | None, typer.Option("--svg", metavar="FILE", help="Write a picture, for a report. - is stdout.")
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
    files = [name for name in (html, svg) if name is not None]
    if len({Path(name) for name in files}) < len(files):
        raise UsageError(f"--html and --svg both name {html}; give each a file of its own")
    if as_json and _STDOUT in files:
        raise UsageError("--json and a file named - both write to stdout; name a file")
    from penstock.diagnosis.timeline import page
    from penstock.diagnosis.timeline import svg as picture

    for name, mark, what in ((html, page.GENERATOR, "page"), (svg, picture.GENERATOR, "picture")):
        if name is not None and name != _STDOUT:
            _must_be_ours_to_write(Path(name), mark, what)
    recording = finish(recording_for(settings, run, maps=maps, slots=slots))
    return _tell(recording, most, html, svg, as_json)


def _tell(recording: Recording, limit: int, html: str | None, svg: str | None, as_json: bool) -> int:
    from penstock.diagnosis.timeline.bars import timeline_of, timeline_record

    made = timeline_of(recording)
    if html is not None:
        from penstock.diagnosis.timeline.page import page

        _write(html, page(made))
    if svg is not None:
        from penstock.diagnosis.timeline.svg import picture

        _write(svg, picture(made))
    if as_json:
        render.emit(timeline_record(made, recording) | {"slots_from": recording.slots_from})
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


def _must_be_ours_to_write(path: Path, mark: str, what: str) -> None:
    """Before any work is done: an earlier one of ours is replaced, anything else is left alone."""
    from penstock.cli.files import may_replace

    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is there and no file; name a new one, or a {what} to replace")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.absolute().parent}; make it, or name another")
    if not may_replace(path, mark):
        raise UsageError(
            f"{path} is there and no {what} of penstock timeline; name another file, or remove it"
        )


def _write(name: str, text: str) -> None:
    from penstock.cli.files import replacing

    to_stdout = name == _STDOUT
    with replacing(None if to_stdout else Path(name)) as file:
        file.write(text.encode())
    if not to_stdout:
        render.note(f"wrote {name}")
