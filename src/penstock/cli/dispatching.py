"""How a command dispatches: the options that all commands which dispatch share."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import render
from penstock.cli.session import one_of

if TYPE_CHECKING:
    from penstock.cli.logs import Log
    from penstock.cli.session import Stops
    from penstock.config import Config
    from penstock.store.base import Epoch, Store
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


def warn_of_config(log: Log, config: Config) -> None:
    """What whoever starts a dispatcher should know of its config."""
    from penstock.config.budgets import blind_budgets
    from penstock.config.problems import file_shown

    if not config.plant.hosts:
        told = "has no host, so nothing can run; add [hosts.NAME], or have `penstock init --force` find some"
        log.warning(f"{file_shown(config.path)}: {told}")
    for blind in blind_budgets(config.plant):
        log.warning(f"{blind.place} {blind.detail}")


def tell_standby(log: Log, store: Store, config: Config, leader: Epoch | None, recorded: str | None) -> None:
    """Lines for whoever starts a dispatcher where another leads already, maybe with another config."""
    from penstock.config.running import compare_config

    if leader is None:
        log.line("standby", detail=f"{store.name}: nobody leads at the moment")
        return
    owner = leader.owner
    who = f"process {owner.pid} on {owner.machine} ({owner.command})"
    since = render.moment(leader.started_at)
    log.line(
        "standby", detail=f"{store.name}: {who} leads since {since}; this one takes over when it is gone"
    )
    if recorded is not None and (differs := compare_config(config, recorded)):
        log.warning(differs.told(config))


async def last_word(stop: Stops, store: Store) -> str:
    """What one that has stopped leaves: tasks for the next, or nothing where it only stood by."""
    if stop.stood_by:
        return "standing by"
    left = await store.snapshot(time.time())
    queued, running = sum(left.queued.values()), sum(left.running.values())
    told = f"{render.counted(queued, 'task')} queued"
    # What runs without a dispatcher, as on a cluster, is left to the next one.
    return (
        f"{told}, {render.counted(running, 'attempt')} left running for the next dispatcher"
        if running
        else told
    )
