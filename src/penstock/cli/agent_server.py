"""`agent-server`: the server that runs inside containers, started by hand. Its options are those of that file."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from penstock.agents import agent_server as server
from penstock.errors import UsageError

app = typer.Typer()


def run(**given: Any) -> int:
    """Run handlers as tasks, by HTTP and WebSocket: what an agent's container runs.

    A handler is a program: --handler NAME=ARGV, or NAME.sh, NAME.py or NAME in the folder of handlers. The
    protocol is in the reference, for servers in other languages. PENSTOCK_AGENT_KEY is what callers must send;
    without one the server listens on loopback only. SIGTERM finishes what runs and ends; a second one ends at
    once. The file itself, penstock/agents/agent_server.py, runs alone on any Python from 3.8.
    """
    try:
        return server.serve({name: value for name, value in given.items() if value})
    except server.WrongUse as wrong:
        raise UsageError(f"agent-server: {wrong}") from None


def _parameter(option: server.Option) -> Parameter:
    shown = typer.Option(
        option.flag, metavar=option.metavar or None, help=option.explained, show_default=False
    )
    kind: Any = bool if not option.metavar else list[str] | None if option.repeats else str | None
    default = None if option.metavar else False
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown])


run.__signature__ = Signature([_parameter(option) for option in server.OPTIONS], return_annotation=int)  # type: ignore[attr-defined]
run.__annotations__ = {}

app.command(
    "agent-server",
    epilog="\b\nExamples:\n"
    "  penstock agent-server --handlers ./handlers\n"
    """  penstock agent-server --listen 127.0.0.1:0 --handler 'sum=["python3","sum.py"]' --concurrency 2\n"""
    """  PENSTOCK_AGENT_KEY=… penstock agent-server --unix /run/agent.sock --runner '["/agent/run"]'""",
)(run)
