"""`penstock simulate`: model servers that pretend, on this machine, with a config that uses them."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from penstock.cli import render
from penstock.cli.session import INTERRUPTED, finish, hearing_interrupts, one_of, whole
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.testing import ModelBehaviour, ModelServer, RateLimit

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_MOST_SERVERS = 100
# Not "*": pasted beside other hosts it would take their tasks as well, which no model can read.
_SERVED = ("chat", "completion", "embedding", "general")
_SLOTS_SHOWN = 4  # of a server without a bound, in the config that is printed


@app.command(
    "simulate",
    epilog="\b\nExamples:\n"
    "  penstock simulate\n"
    "  penstock simulate --style vllm --slots 4 --first-token 0.2 --tokens-per-s 40\n"
    "  penstock simulate --count 3 --port 8001 --knee 8 --fail 0.05\n"
    "  penstock simulate --json > servers.jsonl",
)
def simulate(
    style: Annotated[
        str,
        typer.Option("--style", metavar="NAME", help="openai, lmstudio, ollama, vllm or llamacpp."),
    ] = "openai",
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="NAME", help="A model it has. May be repeated; without it: simulated."
        ),
    ] = None,
    slots: Annotated[
        str | None, typer.Option("--slots", metavar="N", help="Calls served at once; without it any number.")
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", metavar="N", help="Calls that may wait for a slot; more are refused."),
    ] = None,
    first_token: Annotated[
        str, typer.Option("--first-token", metavar="SECONDS", help="Time to the first token.")
    ] = "0.2",  # noqa: S107 - a time
    tokens_per_s: Annotated[
        str, typer.Option("--tokens-per-s", metavar="N", help="Speed of an answer; 0: all at once.")
    ] = "50",
    tokens: Annotated[
        str | None,
        typer.Option("--tokens", metavar="N", help="Words of an answer; without it what max_tokens says."),
    ] = None,
    knee: Annotated[
        str | None,
        typer.Option("--knee", metavar="N", help="So many calls at once have full speed; more share it."),
    ] = None,
    slowdown: Annotated[
        str,
        typer.Option("--slowdown", metavar="KIND", help="Beyond the knee: shared, batching or thrashing."),
    ] = "shared",
    jitter: Annotated[
        str, typer.Option("--jitter", metavar="SHARE", help="A call's time varies by this share, as 0.2.")
    ] = "0",
    seed: Annotated[
        str, typer.Option("--seed", metavar="N", help="The same seed gives the same jitter and faults.")
    ] = "0",
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N", help="Requests a minute; more get 429 with Retry-After."),
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", metavar="N", help="Tokens a prompt and its answer may have.")
    ] = None,
    fail: Annotated[
        str, typer.Option("--fail", metavar="SHARE", help="This share of calls fails with 500, as 0.05.")
    ] = "0",
    key_env: Annotated[
        str | None,
        typer.Option("--key-env", metavar="NAME", help="The variable with the key that calls must bring."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The loopback address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        str,
        typer.Option("--port", metavar="N", help="Of the first server, the next have the next ones; 0: any."),
    ] = "0",
    count: Annotated[str, typer.Option("--count", metavar="N", help="How many servers.")] = "1",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON line when they listen, and one when they end.")
    ] = False,
) -> int:
    """Start model servers that pretend, until Ctrl-C.

    They speak OpenAI's API on loopback: chat, completions, embeddings, models, streamed or not, with the slots,
    the speed and the limits you give them. Members of a council get sentences, ballots and summings up; other calls
    their own words. Printed are their URLs and a penstock.toml that uses them; at the
    end, what they were asked.
    """
    from penstock.testing import ModelBehaviour, ModelServer

    servers_wanted = whole("--count", count)
    if servers_wanted > _MOST_SERVERS:
        raise UsageError(f"--count: {servers_wanted} are too many; at most {_MOST_SERVERS}")
    first_port = whole("--port", port, 0)
    if first_port + servers_wanted > 65_536:
        raise UsageError(f"--port: {first_port} leaves no room for {servers_wanted}; the last port is 65535")
    behaviour = ModelBehaviour(
        style=cast(Any, _one_of("--style", style)),
        models=tuple(models or ("simulated",)),
        slots=_whole_or_none("--slots", slots),
        queue=_whole_or_none("--queue", queue, 0),
        first_token_s=_number("--first-token", first_token),
        tokens_per_s=_number("--tokens-per-s", tokens_per_s) or None,
        tokens=_whole_or_none("--tokens", tokens),
        talks=True,
        knee=_whole_or_none("--knee", knee),
        slowdown=cast(Any, _one_of("--slowdown", slowdown)),
        jitter=_share("--jitter", jitter),
        seed=whole("--seed", seed, 0),
        rate=None if rate is None else _rate(whole("--rate", rate)),
        context_tokens=_whole_or_none("--context", context),
        key=_key(key_env),
        faults=_failing(_share("--fail", fail), whole("--seed", seed, 0)),
    )
    ports = [first_port + number if first_port else 0 for number in range(servers_wanted)]
    servers = [ModelServer(behaviour, host=host, port=one, remember=0) for one in ports]
    return finish(_simulate(servers, key_env, as_json=as_json))


# ---- options


def _one_of(option: Literal["--style", "--slowdown"], text: str) -> str:
    from penstock.testing.behaviour import SLOWDOWNS, STYLES

    return one_of(option, text, STYLES if option == "--style" else SLOWDOWNS)


def _whole_or_none(option: str, text: str | None, least: int = 1) -> int | None:
    return None if text is None else whole(option, text, least)


def _number(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UsageError(f"{option}: {text!r} must be a number, at least 0")
    return value


def _share(option: str, text: str) -> float:
    value = _number(option, text)
    if value >= 1:
        raise UsageError(f"{option}: {text!r} must be a share from 0 to below 1, such as 0.05")
    return value


def _rate(per_min: int) -> RateLimit:
    from penstock.testing import RateLimit

    return RateLimit(requests_per_min=per_min, burst=max(1, per_min // 10))


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UsageError(f"--key-env: {variable} is not set; put the key that calls must bring into it")
    return key


def _failing(share: float, seed: int) -> Any:
    if not share:
        return ()
    import random

    from penstock.testing import Fault

    fault = Fault.refuse(500)

    def fault_of(request: Any) -> Fault | None:
        chance = random.Random(f"{seed}:fail:{request.number}")  # noqa: S311 - a figure, not a secret
        return fault if chance.random() < share else None

    return fault_of


# ---- running


async def _simulate(servers: Sequence[ModelServer], key_env: str | None, *, as_json: bool) -> int:
    import asyncio
    from contextlib import AsyncExitStack

    heard = asyncio.get_running_loop().create_future()

    def hear(number: int) -> None:
        if not heard.done():
            heard.set_result(number)

    async with AsyncExitStack() as stack:
        interrupts = stack.enter_context(hearing_interrupts())
        for server in servers:
            await stack.enter_async_context(server)
        _tell_start(servers, key_env, as_json)
        interrupts.tell(hear)
        number = await heard
    _tell_end(servers, as_json)
    return INTERRUPTED if number == signal.SIGINT else 0


def _tell_start(servers: Sequence[ModelServer], key_env: str | None, as_json: bool) -> None:
    config = _config(servers, key_env)
    if as_json:
        listening = [
            {"name": name, "url": server.url, "models": server.behaviour.models}
            for name, server in _named(servers)
        ]
        render.emit_line({"servers": listening, "config": config})
        return
    for name, server in _named(servers):
        print(f"{name}  {server.url}")
    print(f"\n# penstock.toml\n{config}")
    print("Ctrl-C ends.", flush=True)


def _tell_end(servers: Sequence[ModelServer], as_json: bool) -> None:
    if as_json:
        counts = [{"name": name, **server.stats.as_record()} for name, server in _named(servers)]
        render.emit_line({"counts": counts})
        return
    print()
    for name, server in _named(servers):
        stats = server.stats
        told = {
            "served": stats.served,
            "refused": stats.refused,
            "disconnected": stats.disconnected,
            "broken off": stats.aborted,
            "most at once": stats.most_in_flight,
            "most waiting": stats.most_queued,
        }
        calls = render.counted(stats.received, "call")
        print(f"{name}  {calls}: {', '.join(f'{value} {what}' for what, value in told.items())}")


def _named(servers: Sequence[ModelServer]) -> list[tuple[str, ModelServer]]:
    return [(f"{server.behaviour.style}-{number}", server) for number, server in enumerate(servers, 1)]


def _config(servers: Sequence[ModelServer], key_env: str | None) -> str:
    import msgspec

    parts = []
    for name, server in _named(servers):
        behaviour: ModelBehaviour = server.behaviour
        table: dict[str, Any] = {
            "type": "openai",
            "url": server.url,
            **(
                {"model": behaviour.models[0]} if len(behaviour.models) == 1 else {"models": behaviour.models}
            ),
            "slots": behaviour.slots or behaviour.knee or _SLOTS_SHOWN,
            "serves": _SERVED,
            **({"key_env": key_env} if key_env else {}),
        }
        # A TOML value of these types is written as in JSON.
        lines = [f"{key} = {msgspec.json.encode(value).decode()}\n" for key, value in table.items()]
        parts.append(f"[hosts.{name}]\n" + "".join(lines))
    return "\n".join(parts)
