"""Whether a Ray cluster can be reached, and has nodes for the hosts that run there. Nothing is started on it.

What such hosts need besides (modules, programs) is the nodes' own, and is not looked for on this machine.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Mapping
from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from penstock.agents.engine.engine_socket import DOCKER_VARIABLE, SOCKET_VARIABLE, is_shared
from penstock.agents.starts.store_lock import cannot_agree
from penstock.config import Config
from penstock.config.engine import EngineSettings
from penstock.config.own_address import is_loopback
from penstock.config.own_calls import needs_door
from penstock.engine.cluster.driver_letters import Joined, Joining, Node
from penstock.engine.cluster.frames import Ask
from penstock.engine.cluster.link import Link, Spawn, spawned, why_not
from penstock.engine.cluster.reach import nobody_at
from penstock.engine.cluster.remote import RemoteHost, fits_nowhere, secret_variables
from penstock.errors import DispatcherError, install_line
from penstock.setup.agent_checkup import WARNING, WELL, WRONG

_NEW_DRIVER_S = 15.0  # beyond the limit: its program imports Ray, and ends


class Seen(NamedTuple):
    """States and details: of the engine, and of each host that runs on it."""

    engine: tuple[str, str] | None = None  # there is nothing to say of the one on this machine
    hosts: Mapping[str, tuple[str, str]] = {}


async def look(config: Config, time_limit_s: float, spawn: Spawn = spawned) -> Seen:
    settings, names = config.engine, config.plant.outliving
    if not settings.is_ray:
        return Seen()
    try:
        if find_spec("ray") is None:
            raise DispatcherError(f"Ray is not installed; {install_line('ray')}")
        if nobody := await nobody_at(settings.address):
            raise DispatcherError(nobody)
        async with asyncio.timeout(time_limit_s + _NEW_DRIVER_S):
            joined, nodes = await _asked(settings, spawn)
    except (DispatcherError, TimeoutError) as error:
        why = str(error) or f"the Ray cluster at {settings.address} does not answer; is it overloaded?"
        return Seen((WRONG, why), dict.fromkeys(names, (WARNING, "not tried: it runs on the Ray cluster")))
    count = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    reached = (
        f"{settings.address} is reached: {count}, Ray {joined.version}, Python {platform.python_version()}"
    )
    there = [RemoteHost(host, "") for host in config.plant.hosts if host.name in names]
    given = {**settings.env, **secret_variables(settings, os.environ)}
    engine = next((given[name] for name in (SOCKET_VARIABLE, DOCKER_VARIABLE) if given.get(name)), "")
    near = _is_near(config)
    state = WELL
    if unset := [name for name in settings.pass_env if name not in os.environ]:
        state = WARNING
        reached += f"; pass_env: {', '.join(unset)} is not set here; set it where Penstock is started"
    return Seen((state, reached), {one.host.name: _served(one, nodes, engine, near) for one in there})


def _served(remote: RemoteHost, nodes: list[Node], engine: str, near: bool) -> tuple[str, str]:
    """`engine`: that of containers, if nodes are told one; `near`: models are reached from this machine alone."""
    if remote.host.type == "agent" and is_shared(engine):
        return WRONG, cannot_agree(engine)
    fit = [node for node in nodes if remote.fits(node.resources, node.labels)]
    if not fit:
        return WRONG, fits_nowhere(remote, len(nodes))
    away = [node.name for node in fit if node.name != platform.node()]
    if near and needs_door(remote.host) and away:
        why = f"it calls models through the dispatcher, which node {away[0]} does not reach"
        return WARNING, f"{why}; set `host` and `advertise` of [server], or keep it off such nodes with `ray`"
    return WELL, f"the Ray cluster runs it: {len(fit)} of {len(nodes)} nodes can"


def _is_near(config: Config) -> bool:
    told = config.engine.calls_url or config.server.advertise
    return is_loopback(config.server.host if told is None else urlsplit(told).hostname or "")


async def _asked(settings: EngineSettings, spawn: Spawn) -> tuple[Joined, list[Node]]:
    """By a driver that hires nobody: it takes nothing along, and does not say whose it is."""
    joining = Joining(address=settings.address, namespace=settings.namespace or "penstock")
    link = Link(joining, lambda: None)
    line = await spawn()
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: link, sock=line.ours)
    try:
        joined = await _answer(link, "join", msgspec.json.encode(joining))
        nodes = await _answer(link, "nodes", b"")
    finally:
        transport.abort()
        await asyncio.sleep(0)  # for it to close the socket
        await line.end()
    return msgspec.json.decode(joined, type=Joined), msgspec.json.decode(nodes, type=list[Node])


async def _answer(link: Link, verb: str, body: bytes) -> bytes:
    answer, told = await link.wait(Ask(number=0, verb=verb), body)
    if answer.fault:
        raise DispatcherError(f"the cluster cannot be reached: {why_not(answer)}")
    return told
