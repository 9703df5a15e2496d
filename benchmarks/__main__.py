"""`python -m benchmarks [topics…] [--quick] [--json FILE]`: measures, then prints one table."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import platform
import sqlite3
import sys
from pathlib import Path

import benchmarks
from benchmarks.frame import TOPICS, Row, as_text, measure_here, rows, run_topic

ROUNDS = 5
QUICK_ROUNDS = 3


def load() -> None:
    """Import every module that registers benchmarks: ours_*.py, the peers and the limit."""
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if module.name in {
            "peers",
            "door_peers",
            "postgres_peers",
            "ray_peers",
            "limit",
            "postgres_limit",
        } or module.name.startswith("ours_"):
            importlib.import_module(f"benchmarks.{module.name}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "topics", nargs="*", metavar="topic", help=f"which of: {', '.join(TOPICS)} (default: all)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller sizes and fewer rounds: rough figures, soon"
    )
    parser.add_argument("--rounds", type=int, help=f"measurements per contestant (default {ROUNDS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every single figure there, too")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path.cwd(),
        help="where the stores lie: a real disk, not memory (default: here)",
    )
    parser.add_argument("--one", nargs=2, metavar=("TOPIC", "WHO"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    unknown = [name for name in chosen.topics if not topics_of(name)]
    if unknown:
        parser.error(f"no topic named {', '.join(unknown)}; there are: {', '.join(TOPICS)}")
    chosen.topics = [topic for name in chosen.topics for topic in topics_of(name)]
    return chosen


def topics_of(name: str) -> list[str]:
    """The topic of that name, or all that begin with it: `tables` are `tables-6`, `tables-40`…"""
    return [name] if name in TOPICS else [topic for topic in TOPICS if topic.startswith(f"{name}-")]


def main() -> int:
    load()
    chosen = arguments()
    if chosen.one:
        measure_here(*chosen.one, quick=chosen.quick, folder=chosen.folder)
        return 0
    rounds = chosen.rounds or (QUICK_ROUNDS if chosen.quick else ROUNDS)
    machine = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.machine()}"
    table: list[Row] = []
    kept = []
    notes: list[str] = []
    for name in chosen.topics or TOPICS:
        reached = run_topic(
            TOPICS[name],
            rounds=rounds,
            quick=chosen.quick,
            folder=chosen.folder,
            tell=lambda line: print(line, file=sys.stderr),
        )
        table += rows(TOPICS[name], reached)
        notes += [f"\n{r.topic}, {r.who}:\n{r.notes}" for r in reached if r.notes]
        kept += [
            {
                "topic": r.topic,
                "who": r.who,
                "unit": TOPICS[name].unit,
                "median": r.median,
                "figures": list(r.figures),
                "cannot": r.cannot,
            }
            for r in reached
        ]
    print(f"{machine}; medians of {rounds}{', quick' if chosen.quick else ''}; ratio = ours ÷ theirs\n")
    print(as_text(table))
    for note in notes:
        print(note)
    if chosen.json:
        document = {"machine": machine, "rounds": rounds, "quick": chosen.quick, "contestants": kept}
        chosen.json.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if any(row.met == "NO" for row in table) else 0


if __name__ == "__main__":
    sys.exit(main())
