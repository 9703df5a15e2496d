"""`penstock demo`: watch Penstock at work on simulated hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import render

_SCALE = 0.025  # real seconds for one of the story
_QUICK_SCALE = 0.008

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("demo", epilog="\b\nExamples:\n  penstock demo\n  penstock demo --quick --json")
def demo(
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, nothing else.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Take a few seconds instead of twenty.")] = False,
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="DIR", help="Keep the configs and stores in this new folder."),
    ] = None,
) -> None:
    """Watch Penstock at work on simulated hosts.

    Four scenes beside one thread per kind and the ideal, all real: dispatchers, stores on the disk, a process that
    is killed. Only the hosts pretend to work, and their seconds are shortened. Then six tasks in five ways, as
    `penstock compare` does it. At the end a real small model
    answers a question, where it is installed, and a timeline of the third scene is written as a page for a
    browser. Exit status 1: something that Penstock promises did not hold.
    """
    import tempfile

    scale = _QUICK_SCALE if quick else _SCALE
    if keep:
        ok = _play(Path(keep), scale, json, Path(keep))
    else:
        with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
            ok = _play(Path(folder), scale, json, None)
    if not ok:
        raise typer.Exit(1)


def _play(folder: Path, scale: float, as_json: bool, kept: Path | None) -> bool:
    import asyncio
    from contextlib import closing

    from penstock.demo import play, question, ways

    options = play.Options(folder, scale)
    if as_json:
        from penstock.demo.plain import NoShow

        scenes = asyncio.run(play.play(options, NoShow()))
        beside = asyncio.run(ways.play_ways(folder, scale))
        last = asyncio.run(question.ask_model(folder))
        ok = all(scene.ok for scene in (*scenes, beside, last))
        page = write_page(folder, scale, kept)
        render.emit(
            {
                "ok": ok,
                "timeline": str(page),
                "second_lasts_s": scale,
                "scenes": [scene.as_record() for scene in scenes],
                "ways": beside.as_record(),
                "question": {**last.facts, "checks": [check.as_record() for check in last.checks]},
            }
        )
        return ok
    from penstock.demo.live import LiveShow
    from penstock.demo.plain import PlainShow
    from penstock.demo.show import Screen

    screen = Screen(highlight=False)
    moving = screen.is_terminal and not screen.is_dumb_terminal
    with closing(LiveShow(screen) if moving else PlainShow(screen)) as show:
        scenes = asyncio.run(play.play(options, show))
        show.begin(len(scenes) + 1, ways.TITLE, ways.ABOUT)
        beside = asyncio.run(ways.play_ways(folder, scale))
        show.end(beside)
        show.summary(scenes)
        show.introduce(question.TITLE, question.ABOUT)
        last = asyncio.run(question.ask_model(folder))
        show.end(last)
        show.verdict([*scenes, beside, last], kept, write_page(folder, scale, kept))
    return all(scene.ok for scene in (*scenes, beside, last))


def write_page(folder: Path, scale: float, kept: Path | None) -> Path:
    """The timeline: with what is kept, in this folder, or where there is room if neither takes it."""
    import asyncio
    import tempfile

    from penstock.cli.files import may_replace, replacing
    from penstock.demo.page import NAME, timeline_page
    from penstock.diagnosis.timeline.page import GENERATOR

    text = asyncio.run(timeline_page(folder, scale)).encode()
    path = (Path.cwd() if kept is None else kept).absolute() / NAME
    try:
        if not may_replace(path, GENERATOR):
            raise FileExistsError
        with replacing(path) as file:
            file.write(text)
    except OSError:
        path = Path(tempfile.mkdtemp(prefix="penstock-timeline-")) / NAME
        path.write_bytes(text)
    return path
