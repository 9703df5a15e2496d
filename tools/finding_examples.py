"""The examples on the pages of the findings: which command shows each, and what it really prints."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

ROOT = Path(__file__).parent.parent

RECORDS = "examples/records"
FINDINGS = "examples/findings"
COMMANDS: Mapping[str, str] = {
    "head-of-line-blocking": f"{FINDINGS}/head-of-line-blocking.csv",
    "serial-starts": f"{RECORDS}/thread-per-kind.csv --config {RECORDS}/home-lab.toml",
    "stalled-loop": f"{RECORDS}/report-run.csv",
    "contention": f"{FINDINGS}/contention.csv",
    "one-at-a-time-server": f"{RECORDS}/one-at-a-time-server.jsonl",
    "idle-slots": f"{FINDINGS}/idle-slots.csv",
    "starvation": f"{FINDINGS}/starvation.csv",
    "priority-inversion": f"{FINDINGS}/priority-inversion.csv",
    "leaked-slots": f"{FINDINGS}/leaked-slots.csv",
    "retry-storm": f"{FINDINGS}/retry-storm.csv",
    "host-down": f"{FINDINGS}/host-down.jsonl",
    "cold-starts": f"{FINDINGS}/cold-starts.csv",
    "unbalanced-hosts": f"{FINDINGS}/unbalanced-hosts.csv",
    "stuck-gate": f"{FINDINGS}/stuck-gate.jsonl",
    "wrong-slots": f"{FINDINGS}/wrong-slots.csv",
}


def finding_table() -> str:
    from penstock.diagnosis.finders import FINDERS

    rows = ["| finding | what it means |", "|---|---|"]
    rows += [f"| [`{name}`]({name}.md) | {finder.meaning} |" for name, finder in FINDERS.items()]
    return "\n".join(rows)


def example(name: str) -> str:
    """The command of a finding's page with its output, as a block."""
    command = COMMANDS[name]
    return f"```console\n$ penstock diagnose {command}\n{printed('diagnose', *command.split())}```"


def printed(*arguments: str) -> str:
    """What a command line prints, run at the root of the project without anybody's config."""
    from penstock.cli.app import main

    out, err = io.StringIO(), io.StringIO()
    with _nobodys_config(), chdir(ROOT), redirect_stdout(out), redirect_stderr(err):
        status = main(arguments)
    if status:
        sys.exit(f"penstock {' '.join(arguments)}: {err.getvalue()}")
    return out.getvalue()


@contextmanager
def _nobodys_config() -> Iterator[None]:
    kept = {name: os.environ.pop(name, None) for name in ("PENSTOCK_CONFIG", "XDG_CONFIG_HOME")}
    os.environ["XDG_CONFIG_HOME"] = str(ROOT / "no-config")
    try:
        yield
    finally:
        os.environ.pop("XDG_CONFIG_HOME")
        os.environ.update({name: value for name, value in kept.items() if value is not None})
