"""`whatif`: a recorded run played again under another config, before beside after."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import render
from penstock.cli.recordings import EVERY_COMMAND, Json, Maps, RunOrFile, recording_for
from penstock.cli.session import Settings, finish, one_of, pair, whole
from penstock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.diagnosis.recording import Recording
    from penstock.diagnosis.whatif.figures import Figures, Point
    from penstock.diagnosis.whatif.replay import Replay
    from penstock.model import Plant

app = typer.Typer()

_MOST_POINTS = 200
_WRONG = 0.05  # a replay error that is worth a warning


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
    When tasks came and how much work they were is taken from the record, also how hosts slow down with how many
    run at once; everything else is decided again by the real scheduler. Without a change the run is played as it
    was, which shows how well the replay can be trusted.
    """
    from penstock.wiring import DISPATCHERS

    settings: Settings = context.obj
    asked = Asked(
        run=run,
        settings=dict(map(pair, settings.settings)),
        unset=tuple(unset or ()),
        sweep=_one_sweep(sweeps or ()),
        durations=dict(map(_duration, durations or ())),
        typical=typical,
        explain=explain,
        dispatcher=None if dispatcher is None else one_of("--dispatcher", dispatcher, DISPATCHERS),
    )
    plain = Settings(settings.config, [])
    recording = finish(recording_for(plain, run, maps=maps))
    plant = None if settings.config is None or recording.is_ours else plain.read().plant
    return _tell(_played(recording, plant, asked), as_json)


# ---- what is asked


@dataclass(frozen=True, slots=True)
class Asked:
    run: str
    settings: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    sweep: tuple[str, tuple[str, ...]] | None = None
    durations: Mapping[str, float] = field(default_factory=dict)
    typical: bool = False
    explain: bool = False
    dispatcher: str | None = None  # another than it was, perhaps

    @property
    def changes(self) -> list[str]:
        """In words, one each."""
        said = [f"{key} = {value}" for key, value in self.settings.items()]
        said += [f"without {key}" for key in self.unset]
        return said + ([] if self.dispatcher is None else [f"dispatcher {self.dispatcher}"])

    def changed(self, plant: Plant) -> Plant:
        from penstock.config.plants import changed_plant

        plant = changed_plant(plant, self.settings, self.unset)
        return (
            plant if self.dispatcher is None else replace(plant, thread_per_kind=self.dispatcher == "threads")
        )


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


@dataclass(slots=True)
class Answer:
    asked: Asked
    recording: Recording
    error: float | None  # of the replay of the run as it was
    before: Figures
    after: Figures
    words: tuple[str, str]  # what these two are
    notes: list[str] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    explanation: Any = None


def _played(recording: Recording, plant: Plant | None, asked: Asked) -> Answer:
    from penstock.diagnosis.questions import work_of
    from penstock.diagnosis.whatif import figures
    from penstock.diagnosis.whatif.inferred import inferred_plant, playable
    from penstock.diagnosis.whatif.replay import Replay

    recording = work_of(recording)
    inferred = plant is None and recording.plant is None
    recording, plant = playable(recording, plant)
    instead, notes = _instead(recording, asked)
    if inferred:
        notes.append("no config tells of its hosts: each has as many slots as it ran at once in the log")
    if "queued" not in recording.told:
        notes.append(
            "the log does not tell when tasks were queued: they count as queued when they started, so nothing can "
            "start sooner; name the column with --map queued=COLUMN"
        )
    replay = Replay(recording, plant)
    as_it_was = replay.under(plant).recording()
    error = figures.replay_error(recording, as_it_was if inferred else _as_logged(recording) or as_it_was)
    has_changes = bool(asked.changes)
    before = as_it_was if has_changes else recording
    if instead:
        replay = Replay(recording, plant, instead)
    changed = asked.changed(plant) if has_changes else plant
    after = replay.under(changed).recording() if has_changes or instead else as_it_was
    answer = Answer(
        asked,
        recording,
        error,
        figures.figures_of(before, plant if has_changes or recording.is_ours else inferred_plant(recording)),
        figures.figures_of(after, changed),
        ("before" if has_changes else "recorded", "after" if has_changes or instead else "replayed"),
        notes + figures.guesses(replay, after),
    )
    _warn(answer)
    if asked.explain:
        answer.explanation = figures.explain(before, after)
    if asked.sweep is not None:
        answer.points = _swept(replay, changed, asked.sweep)
        if figures.is_still_falling(answer.points):
            answer.notes.append(f"still falling at {answer.points[-1].value}: try more")
        beyond = [str(point.value) for point in answer.points if point.is_guess]
        if beyond and replay.works.curves:
            answer.notes.append(
                f"with {beyond[0]} and more a host runs more at once than in the record: how fast is a guess"
                if len(beyond) > 1
                else f"with {beyond[0]} a host runs more at once than in the record: how fast is a guess"
            )
    return answer


def _as_logged(recording: Recording) -> Recording | None:
    """A log played on the hosts that it shows by itself: a config need not be that of its run. None of our own."""
    from penstock.diagnosis.whatif.inferred import playable
    from penstock.diagnosis.whatif.replay import Replay

    if recording.is_ours:
        return None
    shown, plant = playable(replace(recording, plant=None), None)
    return Replay(shown, plant).under(plant).recording()


def _instead(recording: Recording, asked: Asked) -> tuple[dict[str, float], list[str]]:
    """Durations that are to be believed instead of the recorded ones, and what to say of it."""
    from penstock.config.problems import meant
    from penstock.diagnosis.whatif.frozen import frozen

    found = frozen(recording)
    notes = []
    instead: dict[str, float] = {}
    if asked.typical:
        instead = {one.task: one.usual_s for one in found}
        notes += [
            f"{one.task} was held up by a stalled loop: it takes {render.seconds(one.usual_s)}, as is usual for "
            f"its kind, instead of {render.seconds(one.recorded_s)}"
            for one in found
        ]
        if not found:
            notes.append("no attempt was kept from ending by a stalled loop, so --typical changes nothing")
    elif found:
        what = render.counted(len(found), "attempt")
        notes.append(
            f"a stalled loop kept {what} from ending ({found[0].task} first); --typical plays them at "
            "the usual length"
        )
    known = {record.task.id for record in recording.tasks}
    for task in asked.durations:
        if task not in known:
            raise UsageError(f"--duration: the run has no task {task!r}{meant(task, known, 'tasks')}")
    return instead | dict(asked.durations), notes


def _warn(answer: Answer) -> None:
    error = answer.error
    if error is not None and error > _WRONG:
        answer.notes.insert(
            0,
            f"played as it was the run takes {render.percent(error)} more or less than it really took: "
            "something that the record does not tell was at work",
        )
    if answer.after.left:
        what = render.counted(answer.after.left, "task")
        answer.notes.append(f"{what} would never end: what they wait for does not come about in the record")


def _swept(replay: Replay, plant: Plant, asked: tuple[str, tuple[str, ...]]) -> list[Point]:
    from penstock.config.plants import changed_plant
    from penstock.diagnosis.whatif.figures import sweep

    key, values = asked
    plants = [(value, changed_plant(plant, {key: value}, option="--sweep")) for value in values]
    return sweep(replay, plants, _progress)


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K" if done == of else f"\rplayed {done} of {of}")
        sys.stderr.flush()


# ---- showing


def _tell(answer: Answer, as_json: bool) -> int:
    from penstock.cli import whatif_tables

    if as_json:
        render.emit(whatif_tables.record_of(answer))
    else:
        whatif_tables.show(answer)
    return 0
