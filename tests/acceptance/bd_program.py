"""A stand-in for `bd`: its issues are a JSON file, its answers those of the versions that BD_STYLE names.

    old         as 0.47: a claim that lost prints nothing and ends with status 0, `ready` lists what is in progress
                too and has no labels, no --append-notes, no --metadata; errors are text on stderr
    new         as 1.0: a claim that lost ends with status 1 and JSON on stdout, --append-notes and --metadata
    envelope    as new, every answer in {"schema_version", "data"}
    ancient     as before there was --claim

Written after the sources of `bd`, not recorded from it. BD_FAULTS names files: while one exists its fault happens.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Any

STYLE = os.environ.get("BD_STYLE", "old")
BEADS = Path(os.environ["BEADS_DIR"])
FAULTS = Path(os.environ.get("BD_FAULTS", "/nonexistent"))
BLOCKING = ("blocks", "conditional-blocks")
OPTIONS = {
    "ready": ["--limit"],
    "show": [],
    "close": ["--reason", "--force"],
    "update": [
        *["--status", "--assignee", "--notes"],
        *(["--claim"] if STYLE != "ancient" else []),
        *(["--append-notes", "--metadata"] if STYLE in ("new", "envelope") else []),
    ],
}
FLAGS = ("--claim", "--force", "--json", "--help")


def main(arguments: list[str]) -> int:
    command, *rest = arguments
    given, ids = parsed(command, rest)
    if "--help" in given:
        print(f"Usage: bd {command}\n\nFlags:\n" + "\n".join(f"      {name} x" for name in OPTIONS[command]))
        return 0
    with (BEADS / "beads.db").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if fault("busy", once=True):
            return failed("database is locked (5) (SQLITE_BUSY)")
        issues = json.load(file)
        with (BEADS / "calls.log").open("a") as log:
            log.write(json.dumps(arguments) + "\n")
        status = COMMANDS[command](issues, ids, given)
        file.seek(0)
        file.truncate()
        json.dump(issues, file)
    return status


def parsed(command: str, rest: list[str]) -> tuple[dict[str, str], list[str]]:
    given: dict[str, str] = {}
    ids: list[str] = []
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            ids.append(word)
        elif word in FLAGS and (word in OPTIONS[command] or word in ("--json", "--help")):
            given[word] = "true"
        elif word in (*OPTIONS[command], "--actor"):
            given[word] = rest.pop(0)
        else:
            sys.stderr.write(f"Error: unknown flag: {word}\n")
            raise SystemExit(1)
    return given, ids


def ready(issues: dict[str, Any], _: list[str], given: dict[str, str]) -> int:
    statuses = ("open", "in_progress") if STYLE in ("old", "ancient") else ("open",)
    found = [dict(one) for one in issues.values() if one["status"] in statuses and not blockers(issues, one)]
    if STYLE in ("old", "ancient"):
        for one in found:
            one.pop("labels", None)
    limit = int(given.get("--limit", "10"))
    return said(found[:limit] if limit else found)


def show(issues: dict[str, Any], ids: list[str], _: dict[str, str]) -> int:
    missing = [id for id in ids if id not in issues]
    if missing:
        return failed(f"no issue found matching {missing[0]!r}")
    return said([issues[id] for id in ids])


def update(issues: dict[str, Any], ids: list[str], given: dict[str, str]) -> int:
    issue = issues.get(ids[0])
    if issue is None:
        return failed(f"resolving ID {ids[0]}: no issue found")
    if "--claim" in given:
        if issue.get("assignee") or fault("stolen", once=True):
            issue["assignee"] = issue.get("assignee") or "somebody"
            text = f"Error claiming {ids[0]}: already claimed by {issue['assignee']}"
            if STYLE == "old":
                sys.stderr.write(text + "\n")
                return 0
            return failed(text)
        issue.update(status="in_progress", assignee=given["--actor"])
    for option, name in (("--status", "status"), ("--assignee", "assignee"), ("--notes", "notes")):
        if option in given:
            issue[name] = given[option]
    if "--append-notes" in given:
        issue["notes"] = "\n".join(filter(None, [issue.get("notes", ""), given["--append-notes"]]))
    if "--metadata" in given:
        issue["metadata"] = json.loads(given["--metadata"])
    return said([issue])


def close(issues: dict[str, Any], ids: list[str], given: dict[str, str]) -> int:
    issue = issues[ids[0]]
    if (open_ := blockers(issues, issue)) and "--force" not in given:
        text = f"cannot close {ids[0]}: blocked by open issues {open_} (use --force to override)"
        sys.stderr.write(text + "\n")
        return 0 if STYLE == "old" else 1
    issue.update(status="closed", close_reason=given["--reason"], closed_by=given["--actor"])
    return said([issue])


def blockers(issues: dict[str, Any], issue: dict[str, Any]) -> list[str]:
    on = [one["depends_on_id"] for one in issue.get("dependencies", ()) if one["type"] in BLOCKING]
    return [id for id in on if id in issues and issues[id]["status"] not in ("closed", "pinned")]


def said(value: Any) -> int:
    print(json.dumps({"schema_version": 1, "data": value} if STYLE == "envelope" else value))
    return 0


def failed(text: str) -> int:
    if STYLE in ("old", "ancient"):
        sys.stderr.write(f"Error: {text}\n")
    else:
        print(json.dumps({"error": text}))
    return 1


def fault(name: str, *, once: bool) -> bool:
    path = FAULTS / name
    there = path.exists()
    if there and once:
        path.unlink()
    return there


COMMANDS = {"ready": ready, "show": show, "update": update, "close": close}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
