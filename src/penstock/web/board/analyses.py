"""What the analyst can be asked, and what it says while it finds out: a step in words, then what it came to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.config.problems import file_shown
from penstock.diagnosis.diagnosed import Diagnosis
from penstock.diagnosis.finders import FINDERS
from penstock.diagnosis.finders.explained import EXPLAINED
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.timeline.axis import seconds
from penstock.diagnosis.timeline.bars import timeline_of
from penstock.diagnosis.timeline.page import page_data
from penstock.diagnosis.whatif.figures import Point, knee_of
from penstock.diagnosis.whatif.rows import figure_rows, host_rows, lane_rows, long
from penstock.diagnosis.words import name_unwell
from penstock.errors import UsageError
from penstock.intake.logs.file import LogFile, understood
from penstock.intake.logs.hosts import Source
from penstock.intake.logs.rows import given_text
from penstock.web.board.kept_runs import KeptRun
from penstock.web.board.knobs import knobs_of
from penstock.whatif import Answer, Asked, Plays

if TYPE_CHECKING:
    from penstock.web.board.analyst import Inquiry

MOST_DIAGNOSED = 100_000  # tasks
MOST_PLAYED = 50_000
_MOST_SPANS = 6  # that are marked on a timeline
_MOST_TASKS = 10
_CURVE = 1  # gives way to all else


# ---- diagnosis


async def diagnose(inquiry: Inquiry) -> None:
    kept = await _kept(inquiry, MOST_DIAGNOSED, "diagnose")
    diagnosis = await inquiry.think(kept.diagnosed, _looking(inquiry))
    inquiry.say(diagnosis=shown(diagnosis))
    inquiry.say(picture=await inquiry.think(kept.pictured))


async def diagnose_log(inquiry: Inquiry) -> None:
    asked = inquiry.asked
    inquiry.say(step="reading the log…")
    log: LogFile = await inquiry.think(_log, inquiry)
    tasks = len(log.recording.tasks)
    if tasks > MOST_DIAGNOSED:
        raise UsageError(
            f"{asked['name']}: {tasks:,} tasks are more than the board looks at ({MOST_DIAGNOSED:,}); "
            "`penstock diagnose FILE` has no such limit"
        )
    diagnosis = await inquiry.think(Diagnosis.of, log.recording, _looking(inquiry))
    picture = await inquiry.think(lambda: page_data(timeline_of(log.recording)))
    inquiry.say(diagnosis=shown(diagnosis, log.notes), picture=picture)


def _log(inquiry: Inquiry) -> LogFile:
    asked, config = inquiry.asked, inquiry.client.config
    return understood(
        given_text(asked["name"], asked["data"]),
        maps=asked["maps"],
        slots=asked["slots"],
        plant=config.plant,
        source=Source(file_shown(config.path), is_named=False),
    )


def _looking(inquiry: Inquiry) -> Callable[[str], None]:
    def told(name: str) -> None:
        inquiry.watch()
        inquiry.say(step=f"looking for {name}…")

    return told


def shown(diagnosis: Diagnosis, notes: tuple[str, ...] = ()) -> dict[str, Any]:
    recording = diagnosis.recording
    return {
        "run": recording.name,
        "tasks": len(recording.tasks),
        "makespan": seconds(recording.makespan_s),
        "unwell": name_unwell(diagnosis.unwell),
        "has_run": bool(recording.attempts),
        "waited": diagnosis.waited,
        "findings": [_finding(diagnosis, finding) for finding in diagnosis.findings],
        "looked_for": [{"name": name, "meaning": finder.meaning} for name, finder in FINDERS.items()],
        "notes": [*notes, *diagnosis.notes],
    }


def _finding(diagnosis: Diagnosis, finding: Finding) -> dict[str, Any]:
    explained = EXPLAINED[finding.name]
    return {
        "name": finding.name,
        "severity": str(finding.severity),
        "gain": diagnosis.gain(finding),
        "cause": finding.cause,
        "evidence": diagnosis.evidence(finding),
        "remedy": finding.remedy,
        "meaning": FINDERS[finding.name].meaning,
        "explained": explained._asdict(),
        "marks": _marks(finding),
    }


def _marks(finding: Finding) -> list[dict[str, Any]]:
    """Where it can be seen on a timeline: the longest stretches, the most telling tasks, the hosts."""
    evidence = finding.evidence
    longest = sorted(evidence.spans, key=lambda span: span[0] - span[1])[:_MOST_SPANS]
    marks: list[dict[str, Any]] = [{"from": start, "to": end} for start, end in sorted(longest)]
    marks += [{"task": task} for task in evidence.tasks[:_MOST_TASKS]]
    return marks + [{"host": host} for host in evidence.hosts if host]


# ---- what if


async def whatif(inquiry: Inquiry) -> None:
    asked = _asked(inquiry)
    kept = await _kept(inquiry, MOST_PLAYED, "whatif")
    plays = await _plays(inquiry, kept)
    inquiry.say(knobs=knobs_of(plays.plant, plays.recording), at_event=kept.at_event)
    point, played = await inquiry.think(plays.played, asked, inquiry.watch)
    inquiry.say(first=_point(point))
    answer = await inquiry.think(plays.answer, asked, played)
    inquiry.say(answer=_answer(answer))


async def whatif_curve(inquiry: Inquiry) -> None:
    asked, key, typical = _asked(inquiry), inquiry.asked["key"], inquiry.asked["typical"]
    kept = await _kept(inquiry, MOST_PLAYED, "whatif")
    plays = await _plays(inquiry, kept)
    known: list[Point] = []
    for value in inquiry.asked["values"]:
        point = await inquiry.think(kept.point, typical, asked, key, value, inquiry.watch, rank=_CURVE)
        known.append(point)
        inquiry.say(point=_point(point))
    known.sort(key=lambda point: int(point.value))
    knee = knee_of(known)
    inquiry.say(knee=None if knee is None else knee.value, notes=plays.told_of(known))


def _asked(inquiry: Inquiry) -> Asked:
    return Asked(settings=dict(inquiry.asked["settings"]), unset=tuple(inquiry.asked["unset"]))


async def _plays(inquiry: Inquiry, kept: KeptRun) -> Plays:
    if inquiry.asked["typical"] not in kept.plays:
        inquiry.say(step="playing it as it was…")
    return await inquiry.think(kept.playing, inquiry.asked["typical"], inquiry.watch)


def _point(point: Point) -> dict[str, Any]:
    return {**point.as_record(), "makespan": long(point.makespan_s), "waited": long(point.waited_s)}


def _answer(answer: Answer) -> dict[str, Any]:
    tables = [
        make(answer.before, answer.after, answer.words)._asdict()
        for make in (figure_rows, lane_rows, host_rows)
    ]
    return {
        "record": answer.as_record(),
        "took": seconds(answer.recording.makespan_s),
        "tasks": len(answer.recording.tasks),
        "error": None if answer.error is None else f"{answer.error * 100:.1f} %",
        "tables": tables,
        "notes": answer.notes,
    }


# ---- runs


async def _kept(inquiry: Inquiry, most: int, command: str) -> KeptRun:
    client, asked = inquiry.client, inquiry.asked
    run = await client.run_named(asked["run"])
    tasks = sum((await client.states_in_run(run)).values())
    if tasks > most:
        raise UsageError(
            f"{run}: {tasks:,} tasks are more than the board looks at ({most:,}); "
            f"`penstock {command} {run}` has no such limit"
        )
    if asked.get("at_event") is None:
        inquiry.say(step=f"reading {tasks:,} tasks…", run=run)
    kept = await inquiry.runs.get(client, run, asked.get("at_event"))
    inquiry.watch()
    return kept


ANALYSES: Mapping[str, Callable[[Any], Awaitable[None]]] = {
    "diagnose": diagnose,
    "log": diagnose_log,
    "whatif": whatif,
    "curve": whatif_curve,
}
