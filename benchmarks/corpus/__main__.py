"""`python -m benchmarks.corpus score [NAME…]` and `show NAME SEED`: how right the findings are, and one run."""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.corpus.generate import RECIPES, Labelled, generate
from benchmarks.corpus.score import SEEDS, score
from penstock.diagnosis.finders import find
from penstock.diagnosis.recording import Recording
from penstock.model import Attempt

LONGEST = 400  # attempts that are shown


def show(run: Labelled) -> None:
    recording = run.recording
    print(f"{run.name} {run.seed}: {run.label or 'healthy'} {run.variant}".rstrip())
    if run.acceptable:
        print(f"  also true: {', '.join(sorted(run.acceptable))}")
    print(f"  {'our record' if run.is_ours else 'a log that tells ' + ', '.join(sorted(recording.told))}")
    print(
        f"  {len(recording.tasks)} tasks, {len(recording.attempts)} attempts in {recording.makespan_s:.1f} s;"
        f" without the fault {run.gain_s:.1f} s sooner, tasks {run.lost_s:.1f} s less in all;"
        f" ready work beside room for {run.story.idle_s:.1f} s"
    )
    for place in run.setup.places:
        print(f"  host {place}")
    for name, lane in run.setup.lanes.items():
        print(f"  lane {name} {lane}")
    for gate in run.setup.gates:
        print(f"  gate {gate}")
    print("  start     end       host     task   try kind       lane     prio queued    verdict   waits")
    for attempt in recording.attempts[:LONGEST]:
        print(line_of(attempt, recording))
    if len(recording.attempts) > LONGEST:
        print(f"  … {len(recording.attempts) - LONGEST} more attempts")
    for change in recording.changes:
        print(f"  {change.at - recording.begin:<9.3f} {change}")
    for stall in recording.stalls:
        print(f"  stall {stall.task} on {stall.host}: {stall.seconds:.1f} s")
    for finding in find(recording):
        print(f"  FOUND {finding.name} ({finding.severity}): {finding.cause} [gain {finding.gain_s:.1f} s]")
        print(f"        {'; '.join(finding.evidence.facts)}")


def line_of(attempt: Attempt, recording: Recording) -> str:
    record = next(r for r in recording.tasks if r.task.id == attempt.task)
    start, queued = (at - recording.begin for at in (attempt.started_at, record.task.queued_at))
    end = (attempt.ended_at or recording.end) - recording.begin
    waits = recording.waits.get(attempt.task, ()) if attempt.number == 1 else ()
    told = " ".join(f"{w.reason}={w.seconds:.3g}s" for w in waits)
    return (
        f"  {start:<9.3f} {end:<9.3f} {attempt.host:8} {attempt.task} {attempt.number:3} {record.task.kind:10}"
        f" {attempt.lane:8} {record.task.priority:4} {queued:<9.3f} {attempt.verdict or '':9} {told}"
    ).rstrip()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    scoring = parts.add_parser("score", help="generate, diagnose, compare")
    scoring.add_argument(
        "names", nargs="*", metavar="NAME", help="which runs (default: all, healthy ones too)"
    )
    scoring.add_argument("--seeds", type=int, default=SEEDS)
    scoring.add_argument(
        "--first", type=int, default=0, help="the first seed: runs that nobody has looked at"
    )
    scoring.add_argument("--json", action="store_true")
    showing = parts.add_parser("show", help="one run, its label, and what is found in it")
    showing.add_argument("name", choices=list(RECIPES), metavar="NAME", help=", ".join(RECIPES))
    showing.add_argument("seed", type=int)
    chosen = parser.parse_args()
    unknown = [name for name in getattr(chosen, "names", ()) if name not in RECIPES]
    if unknown:
        parser.error(f"no runs named {', '.join(unknown)}; there are: {', '.join(RECIPES)}")
    return chosen


def main() -> int:
    chosen = arguments()
    if chosen.part == "show":
        show(generate(chosen.name, chosen.seed))
        return 0
    result = score(find, chosen.names, chosen.seeds, chosen.first)
    if chosen.json:
        print(json.dumps(result.as_record(), indent=2, ensure_ascii=False))
        return 0
    print(result.as_text())
    for tally in result.by_name.values():
        for what, places in (("missed", tally.missed), ("wrongly said", tally.errors)):
            if places:
                print(f"{tally.name} {what}: {', '.join(places)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
