"""Writes the small logs of examples/findings, one for each finding, from generated runs with that fault.

    python -m tools.example_logs FOLDER

The runs are those of the benchmark's corpus, which shares no code with what finds the faults in them.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from benchmarks.corpus.generate import generate
from penstock.diagnosis.recording import COLUMNS, Recording

# Which of the corpus' runs is the example: a short log of another system.
SEEDS: dict[str, int] = {
    "head-of-line-blocking": 1,
    "contention": 21,
    "idle-slots": 27,
    "starvation": 19,
    "priority-inversion": 7,
    "leaked-slots": 17,
    "retry-storm": 7,
    "cold-starts": 7,
    "unbalanced-hosts": 9,
    "wrong-slots": 15,
}


def rows_of(recording: Recording) -> list[dict[str, Any]]:
    """Each attempt as a row, with what the log tells; times in seconds since the beginning of the run."""
    records = {record.task.id: record for record in recording.tasks}
    told = [column for column in COLUMNS if column in recording.told]
    rows = []
    for attempt in recording.attempts:
        task = records[attempt.task].task
        cells: dict[str, Any] = {
            "task": task.id,
            "kind": task.kind,
            "lane": attempt.lane,
            "host": attempt.host,
            "model": task.model,
            "priority": task.priority,
            "queued": f"{task.queued_at - recording.begin:.3f}",
            "started": f"{attempt.started_at - recording.begin:.3f}",
            "ended": "" if attempt.ended_at is None else f"{attempt.ended_at - recording.begin:.3f}",
            "state": "running" if attempt.verdict is None else str(attempt.verdict),
            "attempt": attempt.number,
            "error": attempt.error,
        }
        rows.append({column: cells[column] for column in told if column in cells})
    return rows


def write(folder: Path, name: str, seed: int) -> None:
    rows = rows_of(generate(name, seed).recording)
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, seed in SEEDS.items():
        write(folder, name, seed)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
