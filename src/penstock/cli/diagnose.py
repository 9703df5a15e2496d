"""`diagnose`: what was wrong with a run, whoever ran it; the greatest gain first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from penstock.cli import render
from penstock.cli.recordings import EVERY_COMMAND, HostSlots, Json, Maps, RunOrFile, recording_for
from penstock.cli.session import Settings, finish

if TYPE_CHECKING:
    from penstock.diagnosis.diagnosed import Diagnosis
    from penstock.diagnosis.findings import Finding

app = typer.Typer()


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
    from penstock.diagnosis.diagnosed import Diagnosis

    return _tell(Diagnosis.of(recording), as_json)


def _tell(diagnosis: Diagnosis, as_json: bool) -> int:
    from penstock.diagnosis.words import name_unwell

    if as_json:
        render.emit(diagnosis.as_record())
        return 0
    recording = diagnosis.recording
    span = render.seconds(recording.makespan_s)
    render.say(
        f"{render.one_line(recording.name, 80)}: {render.counted(len(recording.tasks), 'task')}, {span}"
    )
    unwell = diagnosis.unwell
    if any(unwell.values()):
        states = " ".join(f"--state {state}" for state, count in unwell.items() if count)
        where = f"; `penstock tasks --run {recording.name} {states}` lists them" * recording.is_ours
        render.say(f"of {render.counted(len(recording.tasks), 'task')}: {name_unwell(unwell)}{where}")
    for finding in diagnosis.findings:
        render.say()
        _print_finding(diagnosis, finding)
    if not diagnosis.findings:
        _print_well(diagnosis)
    for words in diagnosis.notes:
        render.note(words)
    return 0


def _print_finding(diagnosis: Diagnosis, finding: Finding) -> None:
    gain = diagnosis.gain(finding)
    render.say(f"{finding.name} ({finding.severity})" + (f": {gain}" if gain else ""))
    for name, text in (
        ("cause", finding.cause),
        ("evidence", "; ".join(diagnosis.evidence(finding))),
        ("remedy", finding.remedy),
    ):
        render.say_wrapped(f"  {name:<8}  ", render.one_line(text))


def _print_well(diagnosis: Diagnosis) -> None:
    from penstock.diagnosis.finders import FINDERS

    if not diagnosis.recording.attempts:
        render.say("nothing has run yet, so there is nothing to be said")
        return
    if waited := diagnosis.waited:
        render.say(
            f"its tasks waited for {waited}; `penstock why --run {diagnosis.recording.name}` says more"
        )
    render.say("found nothing wrong with how it was run; looked for:")
    render.say()
    meanings = [(name, finder.meaning) for name, finder in FINDERS.items()]
    render.print_table(("fault", "it means"), meanings, flexible="it means", fold=True)
