"""`whatif`: a recorded run played again under another config, before beside after."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import render
from penstock.cli.recordings import EVERY_COMMAND, Json, Maps, RunOrFile, recording_for
from penstock.cli.session import Settings, finish, one_of, pair, whole
from penstock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.whatif import Answer, Asked, Plays

app = typer.Typer()

_MOST_POINTS = 200


@app.command(
    "whatif",
    epilog="\b\nExamples:\n"
    "  penstock whatif last --set hosts.fenrir.slots=4 --explain\n"
    "  penstock whatif last --unset gates.vram --set lanes.chat.max_running=8\n"
    "  penstock whatif last --sweep hosts.fenrir.slots=1..8\n"
    "  penstock whatif workers.csv --config penstock.toml --typical"
    "\n\n" + EVERY_COMMAND,
)
def whatif(
    context: typer.Context,
    run: RunOrFile,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", metavar="KEY", help="Leave out a key, or a whole gate, lane or host. May be repeated."
        ),
    ] = None,
    sweeps: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="KEY=VALUES",
            help="Play it once for each value: 1..8, 1..64*2 (doubling) or a,b,c; at most 200.",
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which tasks gain and which lose, and why.")
    ] = False,
    typical: Annotated[
        bool,
        typer.Option(
            "--typical",
            help="Let attempts that a stalled loop kept from ending take as long as is usual for their kind.",
        ),
    ] = False,
    durations: Annotated[
        list[str] | None,
        typer.Option(
            "--duration",
            metavar="TASK=SECONDS",
            help="Let a task take so long, whatever the record says. May be repeated.",
        ),
    ] = None,
    dispatcher: Annotated[
        str | None,
        typer.Option(
            "--dispatcher", metavar="async|threads", help="With one thread per kind, or without such threads."
        ),
    ] = None,
    maps: Maps = None,
    as_json: Json = False,
) -> int:
    """Play a recorded run again under another config, and show what that would have brought.

    `--set KEY=VALUE` changes the config that the run was run with, like hosts.fenrir.slots=4; it may be repeated.
    `--set store=…` says where the run is recorded.
    When tasks came and how much work they were is taken from the record, also how hosts slow down with how many
    run at once; everything else is decided again by the real scheduler. Without a change the run is played as it
    was, which shows how well the replay can be trusted.
    """
    from penstock.whatif import Asked, Plays
    from penstock.wiring import DISPATCHERS

    settings: Settings = context.obj
    # Which store is no part of what is changed: the run is recorded there.
    stores = [one for one in settings.settings if pair(one)[0] == "store"]
    asked = Asked(
        settings=dict(pair(one) for one in settings.settings if one not in stores),
        unset=tuple(unset or ()),
        sweep=_one_sweep(sweeps or ()),
        explain=explain,
        dispatcher=None if dispatcher is None else one_of("--dispatcher", dispatcher, DISPATCHERS),
    )
    seconds = dict(map(_duration, durations or ()))
    plain = Settings(settings.config, stores)
    recording = finish(recording_for(plain, run, maps=maps))
    plant = None if settings.config is None or recording.is_ours else plain.read().plant
    plays = Plays(recording, plant, typical=typical, durations=seconds)
    return _tell(_played(plays, asked), as_json)


# ---- what is asked


def _one_sweep(texts: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    if len(texts) > 1:
        raise UsageError("--sweep: one key at a time; keep the others fixed with --set")
    return swept(texts[0]) if texts else None


def swept(text: str) -> tuple[str, tuple[str, ...]]:
    """KEY=1..8, KEY=1..64*2 or KEY=a,b,c: the key and its values."""
    key, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not key or not values:
        raise UsageError(f"--sweep: {text!r} must be KEY=VALUES, such as --sweep hosts.fenrir.slots=1..8")
    low, dots, rest = values.partition("..")
    found = tuple(_range(low, rest)) if dots else tuple(value.strip() for value in values.split(","))
    if len(found) > _MOST_POINTS:
        raise UsageError(f"--sweep: {len(found)} values are too many; at most {_MOST_POINTS}")
    if "" in found:
        raise UsageError(f"--sweep: {values!r} has an empty value; give them like 1,2,4")
    return key, found


def _range(low: str, rest: str) -> list[str]:
    high, star, times = rest.partition("*")
    first, last = whole("--sweep", low.strip(), 0), whole("--sweep", high.strip(), 0)
    factor = whole("--sweep", times.strip(), 2) if star else 0
    if last < first or (star and first < 1):
        raise UsageError(f"--sweep: {low}..{rest} goes nowhere; the first value is the least, as in 1..8")
    if not star:
        if last - first >= _MOST_POINTS:
            raise UsageError(f"--sweep: {last - first + 1} values are too many; at most {_MOST_POINTS}")
        return [str(value) for value in range(first, last + 1)]
    found = []
    while first <= last:
        found.append(str(first))
        first *= factor
    return found


def _duration(text: str) -> tuple[str, float]:
    task, _, amount = text.rpartition("=")
    try:
        seconds = float(amount)
    except ValueError:
        seconds = -1.0
    if not task or not 0 <= seconds < 1e9:
        raise UsageError(f"--duration: {text!r} must be TASK=SECONDS, such as --duration gptr-1=45")
    return task, seconds


# ---- playing


def _played(plays: Plays, asked: Asked) -> Answer:
    answer = plays.answer(asked)
    if asked.sweep is not None:
        key, values = asked.sweep
        for done, point in enumerate(plays.curve(asked, key, values), 1):
            answer.points.append(point)
            _progress(done, len(values))
        answer.notes += plays.told_of(answer.points)
    return answer


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K" if done == of else f"\rplayed {done} of {of}")
        sys.stderr.flush()


# ---- showing


def _tell(answer: Answer, as_json: bool) -> int:
    from penstock.cli import whatif_tables

    if as_json:
        render.emit(answer.as_record())
    else:
        whatif_tables.show(answer)
    return 0
