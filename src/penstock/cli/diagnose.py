"""`diagnose`: what was wrong with a run, whoever ran it; the greatest gain first."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli import render
from penstock.cli.recordings import EVERY_COMMAND, HostSlots, Json, Maps, RunOrFile, recording_for
from penstock.cli.session import Settings, finish
from penstock.config.council_steps import called

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.diagnosis.findings import Finding
    from penstock.diagnosis.recording import Recording
    from penstock.model import Task

app = typer.Typer()

_MOST_TASKS = 6
_MOST_REASONS = 3

# What a log should tell, what cannot be seen without it, and how it can be told.
_WANTED = {
    "queued": (
        "when tasks were queued, so waits are hardly seen",
        "name the column with --map queued=COLUMN",
    ),
    "host": (
        "on which host tasks ran, so hosts are not told apart",
        "name the column with --map host=COLUMN",
    ),
    "state": ("how tasks ended, so failures are not seen", "name the column with --map state=COLUMN"),
    "slots": (
        "how many tasks its hosts may run at once, so that they could have run more is hardly seen",
        "tell it with --slots HOST=N, or a config that has its hosts",
    ),
}


@app.command(
    "diagnose",
    epilog="\b\nExamples:\n"
    "  penstock diagnose last\n"
    "  penstock diagnose workers.csv --map started=launch_ts --slots gpu1=4\n"
    "  penstock diagnose last --json | jq '.findings[].name'"
    "\n\n" + EVERY_COMMAND,
)
def diagnose(
    context: typer.Context,
    run: RunOrFile,
    maps: Maps = None,
    slots: HostSlots = None,
    as_json: Json = False,
) -> int:
    """Name what was wrong with a run, and what would mend it.

    Each finding has its cause, its evidence, a remedy, and by how much the run would have ended sooner. Of a log
    of another system, start and end of each task are enough; the more it tells the more can be found.
    """
    settings: Settings = context.obj
    recording = finish(recording_for(settings, run, maps=maps, slots=slots))
    return _tell(recording, as_json)


def _tell(recording: Recording, as_json: bool) -> int:
    from penstock.diagnosis.finders import FINDERS, find

    findings = find(recording)
    if as_json:
        render.emit(
            {
                "run": recording.name,
                "tasks": len(recording.tasks),
                "failed": _failed(recording),
                "makespan_s": round(recording.makespan_s, 3),
                "findings": [finding.as_record() for finding in findings],
                "looked_for": list(FINDERS),
                "untold": _untold(recording),
                "slots_from": recording.slots_from,
            }
        )
        return 0
    span = render.seconds(recording.makespan_s)
    render.say(
        f"{render.one_line(recording.name, 80)}: {render.counted(len(recording.tasks), 'task')}, {span}"
    )
    if failed := _failed(recording):
        where = f"; `penstock tasks --run {recording.name} --state failed` lists them" * recording.is_ours
        render.say(f"{failed} of {render.counted(len(recording.tasks), 'task')} failed{where}")
    names = {record.task.id: _name(record.task) for record in recording.tasks}
    if findings:
        for finding in findings:
            render.say()
            _print_finding(finding, names)
    else:
        _print_well(recording, {name: finder.meaning for name, finder in FINDERS.items()})
    for column in _untold(recording):
        without, remedy = _WANTED[column]
        render.note(f"the log does not tell {without}; {remedy}")
    return 0


def _untold(recording: Recording) -> list[str]:
    told = {*recording.told, *(("slots",) if recording.plant is not None else ())}
    if "host" not in told:
        told.add("slots")  # there is no host to tell them of
    return [column for column in _WANTED if column not in told]


def _failed(recording: Recording) -> int:
    return sum(record.state in ("failed", "blocked") for record in recording.tasks)


def _print_finding(finding: Finding, names: Mapping[str, str]) -> None:
    gain = f"the run would end about {render.seconds(finding.gain_s)} sooner" if finding.gain_s > 0 else ""
    render.say(f"{finding.name} ({finding.severity})" + (f": {gain}" if gain else ""))
    for name, text in (
        ("cause", finding.cause),
        ("evidence", "; ".join(_evidence(finding, names))),
        ("remedy", finding.remedy),
    ):
        render.say_wrapped(f"  {name:<8}  ", render.one_line(text))


def _evidence(finding: Finding, names: Mapping[str, str]) -> list[str]:
    evidence = finding.evidence
    parts = []
    if evidence.lost_s > 0:
        parts.append(f"{render.seconds(evidence.lost_s)} lost by all tasks together")
    parts += evidence.facts
    if evidence.tasks:
        parts.append(f"tasks: {_some([names.get(task, task) for task in evidence.tasks])}")
    return parts


def _name(task: Task) -> str:
    """Of a step of a question also who was asked."""
    name = called(task)
    return name if name == task.id else f"{name} {task.id}"


def _some(names: Sequence[str]) -> str:
    some = ", ".join(names[:_MOST_TASKS])
    return some if len(names) <= _MOST_TASKS else f"{some}, … ({len(names)})"


def _print_well(recording: Recording, meanings: dict[str, Any]) -> None:
    if not recording.attempts:
        render.say("nothing has run yet, so there is nothing to be said")
        return
    if waited := _waited(recording):
        render.say(f"its tasks waited for {waited}; `penstock why --run {recording.name}` says more")
    render.say("nothing was found to be wrong with how it was run; looked for:")
    render.say()
    render.print_table(("fault", "it means"), list(meanings.items()), flexible="it means", fold=True)


def _waited(recording: Recording) -> str:
    """What tasks of a run of ours waited for most."""
    seconds: dict[str, float] = defaultdict(float)
    for waits in recording.waits.values():
        for wait in waits:
            seconds[wait.reason] += wait.seconds
    total = sum(seconds.values())
    most = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))[:_MOST_REASONS]
    return ", ".join(f"{reason} {render.percent(s / total)}" for reason, s in most if s > 0) if total else ""
