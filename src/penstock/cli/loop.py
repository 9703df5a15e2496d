"""Working on queues that others keep: `loop` takes the ready issues of Beads."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.cli import render
from penstock.cli.dispatching import (
    DispatcherOption,
    LogFormatOption,
    OnStopOption,
    QuietOption,
    dispatching_of,
)
from penstock.cli.session import (
    INTERRUPTED,
    STOP_WORDS,
    config_of,
    finish,
    hearing_interrupts,
    one_of,
    opened,
    seconds,
)

if TYPE_CHECKING:
    from penstock.cli.logs import Log
    from penstock.config import Config
    from penstock.intake.beads.loop import Pace
    from penstock.intake.beads.tracker import Place, Tracker
    from penstock.wiring import Dispatching

app = typer.Typer()

_ENDS = ("closed", "blocked", "given-back", "changed")  # what becomes of an issue that was claimed
_COUNTED = {
    "closed": "closed",
    "blocked": "blocked",
    "given-back": "given back",
    "changed": "changed by others",
    "left": "left alone",
}
_LOGGED = ("task", "kind", "priority", "host", "ran_s", "title", "output", "error", "detail")
_LEAST_INTERVAL_S, _MOST_INTERVAL_S = 0.1, 86_400.0


@app.command(
    "loop",
    epilog="\b\nExamples:\n"
    "  penstock loop --beads .\n"
    "  penstock loop --beads ~/project --once --json\n"
    "  penstock loop --beads . --interval 300 --log-format json 2>> penstock.log",
)
def loop(
    context: typer.Context,
    beads: Annotated[
        str,
        typer.Option("--beads", metavar="DIR", help="The folder that has .beads; its ready issues are done."),
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Until nothing is ready and nothing runs, then end.")
    ] = False,
    interval: Annotated[
        str,
        typer.Option(
            "--interval", metavar="S", help="Also look every S seconds, whether or not files changed."
        ),
    ] = "60",
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a record per line as issues are closed, blocked or given back."),
    ] = False,
    log_format: LogFormatOption = "text",
    quiet: QuietOption = False,
    dispatcher: DispatcherOption = "async",
    on_stop: OnStopOption = "requeue",
) -> int:
    """Take the ready issues of Beads as tasks: claim, run, close with the result or block with the error.

    Works through bd where there is a database, else straight on issues.jsonl. Ctrl-C or SIGTERM gives back what
    waits and finishes what runs; the second time what runs is given back or blocked. Exit status 1 when --once ends
    and an issue was blocked or could not be taken.
    """
    from penstock.intake.beads.loop import Pace

    work, interval_s, log_json = read_options(context, beads, interval, log_format, dispatcher, on_stop)
    return finish(_loop(work, Pace(once, interval_s), (as_json, log_json, quiet)))


class Work(NamedTuple):
    """What is to be done, and how."""

    config: Config
    place: Place
    tracker: Tracker
    dispatching: Dispatching


def read_options(
    context: typer.Context, beads: str, interval: str, log_format: str, dispatcher: str, on_stop: str
) -> tuple[Work, float, bool]:
    """What `loop` makes of its options, whoever asks; wrong ones are refused."""
    from penstock.intake.beads.tracker import find_place, open_tracker

    log_json = one_of("--log-format", log_format, ("text", "json")) == "json"
    interval_s = seconds("--interval", interval, _LEAST_INTERVAL_S, _MOST_INTERVAL_S)
    dispatching = dispatching_of("loop", dispatcher, on_stop)
    config = config_of(context)
    place = find_place(Path(beads).expanduser())
    return Work(config, place, open_tracker(place, config.beads), dispatching), interval_s, log_json


class _Teller:
    """What happens to issues, for people on stderr and for programs on stdout."""

    def __init__(self, log: Log, *, as_json: bool) -> None:
        self._log = log
        self._as_json = as_json
        self._counts = Counter[str]()

    def summary(self) -> str:
        """What became of issues, such as "5 closed, 1 blocked"."""
        counts = [f"{self._counts[what]} {words}" for what, words in _COUNTED.items() if self._counts[what]]
        return ", ".join(counts) or "no issue was taken"

    def __call__(self, what: str, issue: str, fields: Mapping[str, Any]) -> None:
        self._counts[what] += 1
        told = {name: value for name, value in fields.items() if value is not None}
        if what == "trouble":
            self._log.warning(str(told["detail"]))
        elif what == "left":
            self._log.warning(f"{issue} is left alone: {told['error']}")
        else:
            self._log.line(what, issue=issue, **{name: told[name] for name in _LOGGED if name in told})
        if self._as_json and what in _ENDS:
            render.emit_line({"issue": issue, "status": what, **told})


async def _loop(given: Work, pace: Pace, shown: tuple[bool, bool, bool]) -> int:
    from penstock.cli.logs import Log, telling
    from penstock.intake.beads.loop import BeadsLoop
    from penstock.wiring import are_traced

    as_json, log_json, quiet = shown
    config, place, tracker, dispatching = given
    log = Log(as_json=log_json, quiet=quiet, traced=are_traced(config))
    teller = _Teller(log, as_json=as_json)
    heard: list[int] = []
    does, doing = STOP_WORDS[dispatching.on_stop]
    with hearing_interrupts() as interrupts, telling(log.warning):
        async with opened(config, dispatching=dispatching, listeners=[log]) as client:
            work = BeadsLoop(client, place, tracker, teller, pace)

            def stop(number: int) -> None:
                heard.append(number)
                if len(heard) == 1:
                    told = f"giving back what waits, finishing what runs; once more {does}"
                    log.line("stopping", detail=told)
                elif len(heard) == 2:
                    log.line("stopping", detail=doing)
                work.stop()

            log.line("ready", detail=f"taking issues from {tracker.name}")
            interrupts.tell(stop)
            try:
                await work.run()
            finally:
                interrupts.tell(heard.append)
    log.line("stopped", detail=teller.summary())
    if heard and (pace.once or heard[0] == signal.SIGINT):
        return INTERRUPTED
    return 1 if pace.once and work.failures else 0
