"""The end of `run`: what was achieved against the ideal, how full the hosts were, the waits, the failures."""

from __future__ import annotations

from rich.table import Table

from penstock.cli.render import console, counted, note, one_line, percent, seconds, show, table
from penstock.diagnosis.summary import Summary
from penstock.diagnosis.words import name_unwell
from penstock.model import State, name_in_run

_MOST_REASONS = 5


def print_summary(summary: Summary, *, stderr: bool) -> None:
    out = console(stderr=stderr)
    states = [f"{summary.states[state]} {state}" for state in State if summary.states.get(state)]
    out.print(f"run {summary.run}: {counted(summary.tasks, 'task')}, {', '.join(states)}")
    ratio = "" if summary.ratio is None else f", {summary.ratio:.2f} × ideal"
    out.print(
        f"makespan {_exact(summary.makespan_s)}{ratio}; "
        f"ideal {_exact(summary.ideal.seconds)} ({summary.ideal.because})"
    )
    out.print()
    show(out, _hosts(summary))
    if summary.waits:
        out.print()
        show(out, _waits(summary))
    if summary.call_waits:
        first = summary.call_waits[0]
        waited = seconds(sum(wait.seconds for wait in summary.call_waits))
        out.print(f"its calls of models waited {waited}, {percent(first.share)} for {first.reason}")
    if summary.failures:
        out.print()
        show(out, _failures(summary))
        bad = {state: summary.states.get(state, 0) for state in (State.FAILED, State.BLOCKED)}
        if sum(bad.values()) > len(summary.failures):
            chosen = " ".join(f"--state {state}" for state, count in bad.items() if count)
            note(f"{name_unwell(bad)}; `penstock tasks --run {summary.run} {chosen}` lists them all")


def _exact(amount: float) -> str:
    """Two makespans are compared: three digits are wanted."""
    return f"{amount:.2f} s" if 0.1 <= amount < 100 else seconds(amount)


def _hosts(summary: Summary) -> Table:
    shared = any(use.others_s > 0 for use in summary.hosts)
    columns = ["host", ">slots", ">attempts", ">busy", ">slot use", *([">other runs"] if shared else [])]
    rows = [
        (
            use.host,
            str(use.slots),
            str(use.attempts),
            seconds(use.busy_s),
            percent(use.share),
            *([seconds(use.others_s)] if shared else []),
        )
        for use in summary.hosts
    ]
    return table(columns, rows)


def _waits(summary: Summary) -> Table:
    most = summary.waits[:_MOST_REASONS]
    rows = [(wait.reason, seconds(wait.seconds), percent(wait.share)) for wait in most]
    return table(("waited for", ">all tasks", ">share"), rows)


def _failures(summary: Summary) -> Table:
    rows = [
        (name_in_run(f.task_id, summary.run), str(f.state), f.kind, f.host or "", one_line(f.error, 300))
        for f in summary.failures
    ]
    return table(("task", "state", "kind", "host", "error"), rows, flexible="error")
