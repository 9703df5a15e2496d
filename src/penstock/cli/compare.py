"""`penstock compare`: the same work in five ways, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import render
from penstock.cli.session import INTERRUPTED, finish, hearing_interrupts, one_of
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.compare.match import Comparison, Options
    from penstock.compare.stories import Story

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_STDOUT = "-"


@app.command(
    "compare",
    epilog="\b\nExamples:\n"
    "  penstock compare\n"
    "  penstock compare six forty --html compare.html\n"
    "  penstock compare urgent --way thread-pool --way penstock --scale 0.1\n"
    "  penstock compare forty --kill-host surtr --json",
)
def compare(
    stories: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORKLOAD", help="Which to play; without any, all. --list tells them."),
    ] = None,
    ways: Annotated[
        list[str] | None,
        typer.Option(
            "--way",
            metavar="NAME",
            help="thread-per-kind, thread-pool, process-pool, asyncio or penstock. May be repeated; "
            "without it: all.",
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            "--scale",
            metavar="S",
            help="Real seconds for one of the workload, 1 for real time; without it what makes each short.",
        ),
    ] = None,
    kill_host: Annotated[
        str | None,
        typer.Option(
            "--kill-host", metavar="HOST", help="This host dies in mid-work in every workload that has it."
        ),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a page with pictures; works offline. - is stdout."
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep", metavar="DIR", help="Keep what the ways leave on the disk in this new folder."
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Tell the workloads and what each is for.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> int:
    """The same work through five ways, against real model servers.

    One thread per kind, a thread pool, a process pool, asyncio with semaphores, and Penstock: each in a process of
    its own, with the same tasks, the same calls and the same number of tries, on simulated model servers that
    listen on loopback. Told are the makespan beside the ideal, how full the slots were, memory, threads and
    context switches, whether the order held, and what became of the tasks of a host that died. Exit status 1: a way
    broke, or left something undone that it could have done.
    """
    from penstock.compare.stories import STORIES

    if listed:
        return _list(as_json)
    chosen = [STORIES[one_of("WORKLOAD", name, list(STORIES))] for name in dict.fromkeys(stories or STORIES)]
    if as_json and html == _STDOUT:
        raise UsageError("--json and a file named - both write to stdout; name a file")
    if html is not None and html != _STDOUT:
        _must_be_ours_to_write(Path(html))
    second_lasts_s = None if scale is None else _scale(scale)
    with _folder(keep) as folder:
        from penstock.compare.match import Options

        options = Options(_killing(chosen, kill_host), _ways(ways), second_lasts_s, folder)
        _warn_of_load()
        comparisons = finish(_played(options))
    if comparisons is None:
        return INTERRUPTED
    if html is not None:
        _write_page(html, comparisons)
    if as_json:
        render.emit(
            {
                "ok": all(c.ok for c in comparisons),
                "machine": comparisons[0].machine._asdict(),
                "workloads": [c.as_record() for c in comparisons],
            }
        )
    elif html != _STDOUT:
        for comparison in comparisons:
            _tell(comparison)
    return 0 if all(c.ok for c in comparisons) else 1


# ---- options


def way_names() -> dict[str, str]:
    """As they are given and told, to the modules they are in."""
    from penstock.compare.contenders import CONTENDERS

    short = {"asyncio_limits": "asyncio", "penstock_itself": "penstock"}
    return {short.get(module, module.replace("_", "-")): module for module in CONTENDERS}


def _ways(given: Sequence[str] | None) -> list[str]:
    names = way_names()
    wanted = {one_of("--way", name, list(names)) for name in given or names}
    return [module for name, module in names.items() if name in wanted]


def _scale(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.001 <= value <= 10:
        raise UsageError(f"--scale: {text!r} must be a number from 0.001 to 10; 1 is real time")
    return value


def _killing(stories: Sequence[Story], host: str | None) -> list[Story]:
    from penstock.compare.stories import with_death

    if host is None:
        return list(stories)
    having = {s.name for s in stories if not s.cpu_bound and host in [h.name for h in s.workload.plant.hosts]}
    if not having:
        known = sorted({h.name for s in stories if not s.cpu_bound for h in s.workload.plant.hosts})
        raise UsageError(f"--kill-host: no workload here has a server {host!r}; they have {', '.join(known)}")
    return [with_death(story, host) if story.name in having else story for story in stories]


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    import tempfile

    if keep is None:
        with tempfile.TemporaryDirectory(prefix="penstock-compare-") as folder:
            yield Path(folder)
        return
    path = Path(keep)
    if path.exists() and any(path.iterdir() if path.is_dir() else [path]):
        raise UsageError(f"--keep: {path} is there already; name a new folder")
    yield path


def _must_be_ours_to_write(path: Path) -> None:
    from penstock.cli.files import may_replace
    from penstock.compare.page import GENERATOR

    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is there and no file; name a new one, or a page to replace")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.absolute().parent}; make it, or name another")
    if not may_replace(path, GENERATOR):
        raise UsageError(f"{path} is there and no page of penstock compare; name another file, or remove it")


def _list(as_json: bool) -> int:
    from penstock.compare.stories import STORIES

    if as_json:
        render.emit(
            [
                {
                    "name": story.name,
                    "title": story.workload.title,
                    "tasks": len(story.workload.tasks),
                    "hosts": [host.name for host in story.workload.plant.hosts],
                    "ideal_s": story.ideal_s,
                    "shows": story.shows,
                }
                for story in STORIES.values()
            ]
        )
        return 0
    for story in STORIES.values():
        render.say(f"{story.name}: {story.workload.title}, {len(story.workload.tasks)} tasks")
        render.say_wrapped("  ", story.shows)
    return 0


# ---- playing


def _warn_of_load() -> None:
    """What computes needs cores of its own, and others' work makes every way look slow."""
    from penstock.compare.machine import seen

    machine = seen()
    if machine.busy:
        render.note(
            f"this machine is busy (load {machine.load:.1f} on {machine.cores} cores); makespans will be too long"
        )


async def _played(options: Options) -> list[Comparison] | None:
    """None when Ctrl-C or SIGTERM ended it; by then every process is gone."""
    import asyncio

    from penstock.compare.match import compare as play_all

    with hearing_interrupts() as interrupts, _progress() as progress:
        task = asyncio.current_task()
        assert task is not None

        def hear(number: int) -> None:
            task.cancel()

        interrupts.tell(hear)
        try:
            return await play_all(options, progress)
        except asyncio.CancelledError:
            render.note("interrupted")
            return None


@contextmanager
def _progress() -> Iterator[Callable[[Story, str], None]]:
    from penstock.compare.contenders import CONTENDERS

    out = render.console(stderr=True)
    if not out.is_terminal:
        told: set[str] = set()

        def line(story: Story, contender: str) -> None:
            if story.name not in told:
                told.add(story.name)
                render.note(f"playing {story.name}")

        yield line
        return
    with out.status("") as status:
        yield lambda story, contender: status.update(f"{story.name}: {CONTENDERS[contender]}")


# ---- telling


def _tell(comparison: Comparison) -> None:
    from penstock.compare.told import columns, fates, rows

    story = comparison.story
    render.say(f"{story.name}: {story.workload.title}")
    if comparison.shows:
        render.say_wrapped("  ", comparison.shows)
    render.say()
    render.print_in_parts(columns(), rows(comparison))
    if story.death is not None:
        render.say()
        render.print_table(*fates(comparison))
    render.say()
    for words in (comparison.verdict, comparison.claimed):
        if words:
            render.say_wrapped("  ", words)
    render.say()


def _write_page(name: str, comparisons: Sequence[Comparison]) -> None:
    from penstock.cli.files import replacing
    from penstock.compare.page import page

    to_stdout = name == _STDOUT
    with replacing(None if to_stdout else Path(name)) as file:
        file.write(page(comparisons).encode())
    if not to_stdout:
        render.note(f"wrote {name}")
