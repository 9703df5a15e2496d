"""What the commands of `agent` work with: the agents of a config and of its engine, and a way to get one going."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from penstock.agents.quick.known_config import is_name
from penstock.config.own_files import agents_dir as agents_dir
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.agents.by_hand import Session
    from penstock.agents.endpoints import Endpoint
    from penstock.agents.engine.containers import Containers
    from penstock.agents.trail import Trail
    from penstock.config import Config
    from penstock.config.agents import Agent
    from penstock.store.base import Store


@contextmanager
def ended_as_interrupted() -> Iterator[list[int]]:
    """Who is told to end cleans up as after Ctrl-C: a container that is half made is removed. Gives the signals."""
    import signal

    heard: list[int] = []

    def hear(number: int, _: object) -> None:
        heard.append(number)
        if signal.getsignal(signal.SIGINT) in (
            signal.SIG_IGN,
            signal.SIG_DFL,
        ):  # as of what runs in the background
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    numbers = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, hear)
    try:
        yield heard
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def agent_of(config: Config, name: str) -> Agent:
    """That agent of the config."""
    from penstock.config.problems import meant

    found = config.agents.get(name)
    if found is None:
        where = "this config" if config.path is None else str(config.path)
        raise UsageError(f"there is no agent {name!r} in {where}{meant(name, list(config.agents), 'agents')}")
    return found


def chosen(config: Config, names: Sequence[str], *, everything: bool, command: str) -> list[Agent]:
    """Those that a command line names, or all of the config."""
    if everything and names:
        raise UsageError(f"agent {command}: --all and names exclude each other; leave one of them out")
    if not everything and not names:
        raise UsageError(f"agent {command}: NAME is missing; name an agent, or say --all")
    return list(config.agents.values()) if everything else [agent_of(config, name) for name in names]


def noted_names(config: Config) -> list[str]:
    """Agents of which files are left, also when the config has them no more."""
    try:
        with os.scandir(agents_dir(config)) as found:
            return sorted(one.name for one in found if one.is_dir() and is_name(one.name))
    except OSError:
        return []


@asynccontextmanager
async def opened(config: Config) -> AsyncIterator[Session]:
    """The engine, and who starts containers on it."""
    from penstock.agents import by_hand

    async with by_hand.opened(agents_dir(config), lambda: _stored(config)) as session:
        yield session


@asynccontextmanager
async def _stored(config: Config) -> AsyncIterator[Store]:
    from penstock.wiring import open_store

    store = open_store(config)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def any_names(
    config: Config, containers: Containers, names: Sequence[str], *, everything: bool, command: str
) -> list[str]:
    """Those that a command line names, or all of which there is something; the config may have them no more."""
    if everything == bool(names):
        chosen(config, names, everything=everything, command=command)
    listed = {one.agent for one in await containers.listed() if is_name(one.agent)}
    known = sorted({*config.agents, *noted_names(config), *listed})
    if everything:
        return known
    for name in names:
        if name not in known:
            from penstock.config.problems import meant

            raise UsageError(f"agent {command}: there is no agent {name!r}{meant(name, known, 'agents')}")
    return list(names)


def get_going(config: Config, agent: Agent, trail: Trail) -> Endpoint:
    """An endpoint of it: the one that is there, or one that is made."""
    import asyncio

    with shown(f"starting {agent.name}"):
        return asyncio.run(_going(config, agent, trail))


async def _going(config: Config, agent: Agent, trail: Trail) -> Endpoint:
    async with opened(config) as session:
        endpoint = await session.starter.endpoint(agent, trail)
    if "start_s" in trail.figures:
        trail.figures["pool"] = "cold"
    return endpoint


@contextmanager
def shown(what: str) -> Iterator[Callable[[str], None]]:
    """That something is going on, on a terminal; what is given says how far it is."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from penstock.cli.render import console

    with console(stderr=True).status(what) as status:
        yield status.update
