"""Serving: `serve` is the dispatcher with HTTP around it."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import render
from penstock.cli.dispatching import (
    LogFormatOption,
    QuietOption,
    last_word,
    tell_standby,
    warn_of_config,
)
from penstock.cli.session import INTERRUPTED, Settings, Stops, hearing_interrupts, one_of, whole

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.dispatcher.loop import Dispatcher

app = typer.Typer()


@app.command(
    "serve",
    epilog="\b\nExamples:\n"
    "  penstock serve\n"
    "  penstock serve --port 9000 --log-format json 2>> penstock.log\n"
    "  penstock serve --host 0.0.0.0",
)
def serve(
    context: typer.Context,
    host: Annotated[
        str | None,
        typer.Option("--host", help="The address to listen on; any but loopback needs a token."),
    ] = None,
    port: Annotated[
        str | None, typer.Option("--port", metavar="N", help="The port to listen on; 0 takes a free one.")
    ] = None,
    log_format: LogFormatOption = "text",
    quiet: QuietOption = False,
) -> int:
    """Dispatch, serve the HTTP API and its events, and watch the folder queues of agents.

    Ctrl-C or SIGTERM takes in nothing more and finishes what runs; the second time what runs is put back.
    On a PostgreSQL store several may be started: one leads, the others stand by, serve too, and take over.
    Without any token it is open to the programs of this machine; see `penstock token`.
    """
    config, as_json = read_options(context, host, port, log_format)
    from penstock.dispatcher import precise

    return precise.run(_serve(config, as_json, quiet))


def read_options(
    context: typer.Context, host: str | None, port: str | None, log_format: str
) -> tuple[Config, bool]:
    """What `serve` makes of its options, whoever asks; wrong ones are refused."""
    as_json = one_of("--log-format", log_format, ("text", "json")) == "json"
    settings: Settings = context.obj
    options = {}
    if host is not None:
        options["--host"] = ("server.host", json.dumps(host))
    if port is not None:
        options["--port"] = ("server.port", str(whole("--port", port, 0)))
    return settings.read(options), as_json


async def _serve(config: Config, as_json: bool, quiet: bool) -> int:
    from penstock.cli.logs import Log, telling
    from penstock.web.own_entrance import advertised
    from penstock.web.sockets import bind, must_be_guarded, urls
    from penstock.wiring import are_traced, end_forsaken, make_dispatcher, open_store

    with ExitStack() as stack:
        sockets = bind(config.server.host, config.server.port)
        for one in sockets:
            stack.enter_context(closing(one))
        store = open_store(config)
        log = Log(as_json=as_json, quiet=quiet, traced=are_traced(config))

        def made() -> Dispatcher:
            dispatcher = make_dispatcher(
                config, store, "penstock serve", url=advertised(config.server.advertise, sockets[0])
            )
            dispatcher.story.listen(log)
            return dispatcher

        def stop_all() -> None:
            queues.hold()
            service.stop()

        stop = Stops(log, stop_all, lambda: service.stands_by)

        def leads() -> None:
            queues.begin()
            if store.elects:
                log.line("leading", detail=f"{store.name}, until another takes over or this one is stopped")

        def ready() -> None:
            interrupts.tell(stop)  # what came before has been kept
            slots = sum(host.slots for host in config.plant.hosts)
            hosts = render.counted(len(config.plant.hosts), "host")
            what = f"serving {store.name} with {hosts} and {render.counted(slots, 'slot')}"
            board = f" (board: {urls(sockets)[0]}/board/)" if config.server.board and has_board() else ""
            log.line("ready", detail=f"{what} at {' '.join(urls(sockets))}{board}")
            warn_of_config(log, config)

        first = [made()]  # at once: what is wrong with the config is told before anything is changed
        interrupts = stack.enter_context(hearing_interrupts())
        stack.enter_context(telling(log.warning))
        await store.open()
        try:
            await must_be_guarded(sockets, config.server.host, store)
            # What can be refused has been: these take long to load.
            from penstock.client.config_watch import watching
            from penstock.intake.agent_queues import AgentQueues
            from penstock.web.board_process import has_board
            from penstock.web.service import Service

            service = Service(
                config,
                store,
                lambda: first.pop() if first else made(),
                sockets,
                partial(tell_standby, log, store, config),
                partial(end_forsaken, config),
            )
            queues = AgentQueues(service.parts.client, log.warning)
            if store.elects:  # which may be away just when this one takes over
                interrupts.tell(stop)
            async with queues.watched():
                with watching(service.parts.config_edits, config, log.warning):
                    await service.run(on_ready=ready, on_lead=leads)
            left = await last_word(stop, store)
        finally:
            interrupts.tell(stop.heard.append)  # it is as good as stopped
            await store.close()
    log.line("stopped", detail=left)
    return INTERRUPTED if stop.heard and stop.heard[0] == signal.SIGINT else 0
