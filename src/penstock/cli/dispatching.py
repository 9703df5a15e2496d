"""How a command dispatches: the options that all commands which dispatch share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.session import one_of

if TYPE_CHECKING:
    from penstock.wiring import Dispatching

DispatcherOption = Annotated[
    str,
    typer.Option(
        "--dispatcher",
        metavar="async|threads",
        help="threads: one thread per kind, each runs one task at a time; for comparison.",
    ),
]
LogFormatOption = Annotated[
    str, typer.Option("--log-format", metavar="text|json", help="Of the lines on stderr.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and failures.")]
OnStopOption = Annotated[
    str,
    typer.Option(
        "--on-stop",
        metavar="requeue|block",
        help="What becomes of tasks that a stop ends: back to the queue, or blocked.",
    ),
]


def dispatching_of(command: str, dispatcher: str, on_stop: str) -> Dispatching:
    from penstock.wiring import DISPATCHERS, ON_STOP, Dispatching

    one_of("--dispatcher", dispatcher, DISPATCHERS)
    one_of("--on-stop", on_stop, ON_STOP)
    return Dispatching(dispatcher, on_stop, f"penstock {command}")
