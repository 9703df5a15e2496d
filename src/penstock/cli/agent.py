"""Container agents: `agent list`, `start`, `stop`, `restart`, `logs`, `warm`, `stats`, `rm`, `call`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import agent_session, render
from penstock.cli.app import Family
from penstock.cli.session import Settings, config_of, finish, one_of, pair, seconds, whole
from penstock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from penstock.agents.by_hand import Session
    from penstock.agents.endpoints import Endpoint
    from penstock.config import Config
    from penstock.config.agents import Agent

app = typer.Typer(
    cls=Family,
    help="Container agents: call them, and see to their containers.",
    epilog="\b\nExamples:\n"
    "  penstock agent call reports render q3.csv\n"
    "  penstock agent list\n"
    "  penstock agent logs reports -f",
    add_completion=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="An agent of the config.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Agents of the config.")]
AnyNames = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Agents, also such as the config has no more.")
]
All = Annotated[bool, typer.Option("--all", help="All of them.")]
Now = Annotated[bool, typer.Option("--now", help="End what runs, too; else it is finished first.")]


# ---- call


@app.command(
    "call",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
    epilog="\b\nExamples:\n"
    "  penstock agent call reports render q3.csv --wide\n"
    "  penstock agent call --timeout 60 --stdin data.json reports summarize\n"
    "  penstock agent call --json --param-json '{\"top\": 3}' reports rank",
)
def call(
    context: typer.Context,
    name: Name,
    command: Annotated[str, typer.Argument(metavar="COMMAND", help="What it is to run.")],
    params: Annotated[
        list[str] | None,
        typer.Argument(metavar="PARAMS", help="All that follows is the command's own, options too."),
    ] = None,
    param_json: Annotated[
        str | None, typer.Option("--param-json", metavar="JSON", help="A table or a list in place of PARAMS.")
    ] = None,
    stdin: Annotated[
        str | None, typer.Option("--stdin", metavar="FILE", help="What it reads as stdin; - for our own.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="S", help="The time it may take, in seconds.")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The same id twice runs once in a container.")
    ] = None,
    lane: Annotated[str | None, typer.Option("--lane", help="Its lane in the queue of `serve`.")] = None,
    priority: Annotated[
        str | None, typer.Option("--priority", metavar="0-4", help="Its priority there.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")] = False,
) -> int:
    """Run a command in a container of an agent, which is started if there is none.

    Its output comes as it is written, and its exit status is that of this command; 128 + N when signal N ended
    it, 124 when its time was over, 3 when the agent could not be used. Our options stand before COMMAND. It goes
    through `serve` where that runs on the same store, else straight to the container. PENSTOCK_DEBUG=1 shows
    each step with its time.
    """
    from penstock.agents.quick.direct_call import Asked
    from penstock.agents.quick.quick_call import Unfinished, text_of
    from penstock.agents.trail import Trail
    from penstock.cli.agent_call import finish as finish_call

    settings: Settings = context.obj
    asked = Asked(
        name,
        command,
        _params(params or [], param_json),
        None if stdin is None else text_of(stdin),
        None if timeout is None else seconds("--timeout", timeout, 0.001, 86_400),
        id,
        lane,
        None if priority is None else int(one_of("--priority", priority, list("01234"))),
        as_json=as_json,
        config=None if settings.config is None else str(settings.config),
    )
    return finish_call(Unfinished(asked.identified(), Trail(name)), dict(map(pair, settings.settings)))


def _params(params: list[str], given: str | None) -> object:
    if given is None:
        return params
    import json

    if params:
        raise UsageError("agent call: --param-json takes the place of PARAMS; leave one of them out")
    try:
        told: object = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"agent call: --param-json: is not JSON: {error}") from None
    if not isinstance(told, dict | list):
        raise UsageError('agent call: --param-json: must be a table or a list, such as {"top": 3}')
    return told


# ---- what there is


@app.command("list", epilog="\b\nExamples:\n  penstock agent list\n  penstock agent list --json")
def list_agents(context: typer.Context, as_json: Json = False) -> int:
    """List the agents with their containers.

    Agents that the config has no more are listed too while something of theirs is left.
    """
    from penstock.cli.agent_tables import list_rows, print_list

    config = config_of(context)
    rows, trouble = finish(list_rows(config))
    if as_json:
        render.emit([row.record() for row in rows])
    else:
        print_list(rows)
    if trouble is not None:
        raise trouble
    return 0


@app.command(
    "stats",
    epilog="\b\nExamples:\n  penstock agent stats\n  penstock agent stats reports\n  penstock agent stats --json",
)
def stats(context: typer.Context, names: AnyNames = None, as_json: Json = False) -> int:
    """Show how calls went: success, cache hits, lock waits, container starts.

    Counted over all processes of this machine, those of `serve` too, since the agent's files were made.
    """
    from penstock.agents import figures
    from penstock.agents.listing import stats_record
    from penstock.cli.agent_tables import print_stats

    config = config_of(context)
    known = list(dict.fromkeys([*config.agents, *agent_session.noted_names(config)]))
    for name in names or ():
        if name not in known:
            agent_session.agent_of(config, name)
    folder = agent_session.agents_dir(config)
    found = {name: figures.read(f"{folder}/{name}") for name in names or known}
    if as_json:
        render.emit([stats_record(name, sums) for name, sums in found.items()])
    else:
        print_stats(found)
    return 0


@app.command(
    "logs",
    epilog="\b\nExamples:\n  penstock agent logs reports\n  penstock agent logs reports -f --tail 20",
)
def logs(
    context: typer.Context,
    name: Name,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as more comes, until the containers end.")
    ] = False,
    tail: Annotated[
        str | None, typer.Option("--tail", metavar="N", help="Only the last N lines of each container.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Print what an agent's containers wrote to their own stdout and stderr."""
    from penstock.cli.agent_tables import print_logs

    lines = None if tail is None else whole("--tail", tail, 0)
    return finish(print_logs(config_of(context), name, lines, follow=follow, as_json=as_json))


# ---- what is to be


def _made(work: Coroutine[Any, Any, int]) -> int:
    """Whatever ends it leaves no container that is half made."""
    with agent_session.ended_as_interrupted():
        return finish(work)


@app.command("start", epilog="\b\nExamples:\n  penstock agent start reports\n  penstock agent start --all")
def start(context: typer.Context, names: Names = None, everything: All = False, as_json: Json = False) -> int:
    """Start a container of an agent, unless one is there; wait until it answers."""
    config = config_of(context)
    agents = agent_session.chosen(config, names or (), everything=everything, command="start")
    return _made(_start(config, agents, as_json))


async def _start(config: Config, agents: Sequence[Agent], as_json: bool) -> int:
    from penstock.agents import by_hand

    found: dict[str, Endpoint] = {}
    async with agent_session.opened(config) as session:
        for agent in agents:
            with agent_session.shown(f"starting {agent.name}"):
                found[agent.name] = await by_hand.started(session, agent)
    _print_started(found, as_json)
    return 0


def _print_started(found: dict[str, Endpoint], as_json: bool) -> None:
    if as_json:
        render.emit([_record(name, endpoint) for name, endpoint in found.items()])
        return
    for name, endpoint in found.items():
        render.say(f"{name} answers at {endpoint.address}")


def _record(name: str, endpoint: Endpoint) -> dict[str, object]:
    return {
        "agent": name,
        "instance": endpoint.instance,
        "container": endpoint.container,
        "address": endpoint.address,
    }


@app.command("warm", epilog="\b\nExamples:\n  penstock agent warm reports\n  penstock agent warm reports 4")
def warm(
    context: typer.Context,
    name: Name,
    count: Annotated[
        str | None,
        typer.Argument(metavar="N", help="How many containers; else as many as the config keeps."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Have so many containers of an agent ready, those that are there counted."""
    config = config_of(context)
    agent = agent_session.agent_of(config, name)
    wanted = agent.pool.warm + 1 if count is None else whole("agent warm: N", count)
    return _made(_warm(config, agent, wanted, as_json))


async def _warm(config: Config, agent: Agent, wanted: int, as_json: bool) -> int:
    from penstock.agents import by_hand

    async with agent_session.opened(config) as session:
        with agent_session.shown(f"looking at {agent.name}") as tell:
            ready = await by_hand.warmed(
                session,
                agent,
                wanted,
                lambda missing: tell(f"starting {render.counted(missing, 'container')} of {agent.name}"),
            )
    if as_json:
        render.emit([_record(agent.name, endpoint) for endpoint in ready])
    else:
        render.say(f"{agent.name} has {render.counted(len(ready), 'container')}")
    return 0


@app.command("stop", epilog="\b\nExamples:\n  penstock agent stop reports\n  penstock agent stop --all --now")
def stop(
    context: typer.Context,
    names: AnyNames = None,
    everything: All = False,
    now: Now = False,
    as_json: Json = False,
) -> int:
    """Stop and remove an agent's containers, once what runs in them is finished.

    The next call starts one again, and a `serve` that keeps some warm does so at once.
    """
    return finish(_stop(config_of(context), names or [], everything, now, as_json))


async def _stop(config: Config, names: list[str], everything: bool, now: bool, as_json: bool) -> int:
    async with agent_session.opened(config) as session:
        chosen = await agent_session.any_names(
            config, session.containers, names, everything=everything, command="stop"
        )
        stopped = {name: await _stopped(session, name, now=now) for name in chosen}
    _print_counts(stopped, "stopped", as_json)
    return 0


async def _stopped(session: Session, name: str, *, now: bool) -> int:
    from penstock.agents.starts import stopping

    with agent_session.shown(f"stopping {name}") as tell:
        return await stopping.stop(session.containers, name, session.make_lock, now=now, tell=tell)


def _print_counts(counts: dict[str, int], done: str, as_json: bool) -> None:
    if as_json:
        render.emit([{"agent": name, done: count} for name, count in counts.items()])
        return
    for name, count in counts.items():
        render.say(f"{name}: {render.counted(count, 'container')} {done}")


@app.command(
    "restart", epilog="\b\nExamples:\n  penstock agent restart reports\n  penstock agent restart --all"
)
def restart(
    context: typer.Context,
    names: Names = None,
    everything: All = False,
    now: Now = False,
    as_json: Json = False,
) -> int:
    """Stop an agent's containers, once what runs in them is finished, and start one."""
    config = config_of(context)
    agents = agent_session.chosen(config, names or (), everything=everything, command="restart")
    return _made(_restart(config, agents, now, as_json))


async def _restart(config: Config, agents: Sequence[Agent], now: bool, as_json: bool) -> int:
    from penstock.agents.trail import Trail

    found: dict[str, Endpoint] = {}
    async with agent_session.opened(config) as session:
        for agent in agents:
            session.starter.check_keeper(agent)  # before anything is stopped
            await _stopped(session, agent.name, now=now)
            with agent_session.shown(f"starting {agent.name}"):
                found[agent.name] = await session.starter.endpoint(agent, Trail(agent.name))
    _print_started(found, as_json)
    return 0


@app.command("rm", epilog="\b\nExamples:\n  penstock agent rm reports\n  penstock agent rm --all")
def rm(context: typer.Context, names: AnyNames = None, everything: All = False, as_json: Json = False) -> int:
    """Remove all of an agent at once: its containers, in use or not, and what is known of it.

    Containers whose maker was killed go too, and agents that the config has no more. Nothing but containers of
    this store is touched.
    """
    return finish(_rm(config_of(context), names or [], everything, as_json))


async def _rm(config: Config, names: list[str], everything: bool, as_json: bool) -> int:
    async with agent_session.opened(config) as session:
        chosen = await agent_session.any_names(
            config, session.containers, names, everything=everything, command="rm"
        )
        removed = {name: await session.starter.clear(name) for name in chosen}
    _print_counts(removed, "removed", as_json)
    return 0
