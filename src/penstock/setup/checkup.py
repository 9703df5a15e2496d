"""Whether a config works: each host, probe, the store and the server's address are tried once, all at a time;
and whether its budgets can close.

A finding is well, worth a warning, or wrong; what is wrong says what to do. Nothing is started, submitted or
changed, so it may be done beside a dispatcher at work.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import platform
import shutil
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from penstock.clock import SystemClock
from penstock.config import Config
from penstock.config.budgets import blind_budgets
from penstock.config.crosschecks import greedy_models
from penstock.config.engine import check_folders
from penstock.config.names import Names
from penstock.config.postgres_place import shown_store
from penstock.config.problems import file_shown
from penstock.config.running import Difference
from penstock.config.takes import takes
from penstock.diagnosis.words import counted
from penstock.dispatcher.probes import read_once
from penstock.engine.outcomes import failure, one_line
from penstock.errors import PenstockError, StoreMissing
from penstock.hosts.base import Adapter
from penstock.machine import shortcomings
from penstock.model import Gate
from penstock.setup import agent_checkup, council_checkup, engine_checkup
from penstock.store.status import config_difference
from penstock.wiring import make_adapters, open_store

TIME_LIMIT_S = 15.0
_LITTLE_SPACE = 256 * 1024 * 1024
_MAX_DETAIL = 500
_NOT_YET = "is made with the first task"

WELL, WARNING, WRONG = agent_checkup.WELL, agent_checkup.WARNING, agent_checkup.WRONG


@dataclass(frozen=True, slots=True)
class Finding:
    what: str  # machine, engine, host, agent, council, serves, model, probe, budget, store, config or server
    name: str
    state: str  # well, warning or wrong
    detail: str
    takes: str = ""  # of a host: which tasks and calls, in words

    def as_record(self) -> dict[str, Any]:
        record = {"what": self.what, "name": self.name, "state": self.state, "detail": self.detail}
        return record | ({"takes": self.takes} if self.takes else {})


def _nobody(finding: Finding) -> None:
    """Listens to what has been tried."""


async def examine(
    config: Config, time_limit_s: float = TIME_LIMIT_S, told: Callable[[Finding], None] = _nobody
) -> list[Finding]:
    """Everything that was tried, in the order of the config. What is wrong with options raises ConfigError.

    `told` hears of each host as soon as it has answered, or has not.
    """
    check_folders(config.engine)
    adapters = make_adapters(config, SystemClock())
    elsewhere = config.plant.outliving

    hosts = {host.name: host for host in config.plant.hosts}

    async def tried(name: str, adapter: Adapter) -> Finding:
        if name in elsewhere:
            found = Finding("host", name, *(await cluster).hosts[name])
        else:
            found = await _host(name, adapter, time_limit_s)
        found = replace(found, takes=takes(hosts[name]))
        told(found)
        return found

    async with asyncio.TaskGroup() as group:
        cluster = group.create_task(engine_checkup.look(config, time_limit_s))
        tries = [group.create_task(tried(name, one)) for name, one in adapters.items()]
        probes = group.create_task(_probes(config, time_limit_s))
        store = group.create_task(_store(config))
    kept = store.result()
    server = await _server(config, kept)
    file = file_shown(config.path)
    edited = [Finding("config", file, WARNING, kept.differs.told(config))] if kept.differs else []
    budgets = [Finding("budget", blind.place, WARNING, blind.detail) for blind in blind_budgets(config.plant)]
    greedy = [Finding("serves", name, WARNING, detail) for name, detail in greedy_models(config.plant)]
    astray = [
        Finding("model", name, WRONG, what)
        for name, what in Names(config, config.councils.values()).astray().items()
    ]
    agents = await asyncio.to_thread(_agents, config)
    down = {one.result().name for one in tries if one.result().state == WRONG}
    councils = await asyncio.to_thread(_councils, config, down)
    seen = cluster.result()
    lack = shortcomings()
    machine = [] if lack is None else [Finding("machine", platform.system(), WARNING, lack)]
    engine = [] if seen.engine is None else [Finding("engine", "ray", *seen.engine)]
    return [
        *machine,
        *engine,
        *(one.result() for one in tries),
        *agents,
        *councils,
        *greedy,
        *astray,
        *probes.result(),
        *budgets,
        kept.finding,
        *edited,
        server,
    ]


async def _host(name: str, adapter: Adapter, time_limit_s: float) -> Finding:
    try:
        async with asyncio.timeout(time_limit_s):
            await adapter.open()
            try:
                health = await adapter.check()
            finally:
                await adapter.close()
    except TimeoutError:
        return Finding("host", name, WRONG, f"no answer within {time_limit_s:g} s; is it overloaded?")
    except Exception as raised:  # noqa: BLE001 - an adapter of a plug-in's may raise anything
        return Finding("host", name, WRONG, one_line(failure(raised).error or "", _MAX_DETAIL))
    return Finding(
        "host", name, WELL if health.up and not health.amiss else WRONG, one_line(health.detail, _MAX_DETAIL)
    )


def _agents(config: Config) -> list[Finding]:
    return [
        Finding("agent", name, state, one_line(detail, _MAX_DETAIL))
        for name, state, detail in agent_checkup.oddities(config, os.environ)
    ]


def _councils(config: Config, down: Collection[str]) -> list[Finding]:
    return [
        Finding("council", name, state, one_line(detail, _MAX_DETAIL))
        for name, state, detail in council_checkup.findings(config, down)
    ]


async def _probes(config: Config, time_limit_s: float) -> list[Finding]:
    gates = {gate.name: gate for gate in config.plant.gates}
    beside = () if config.path is None else (str(config.path.absolute().parent),)
    told = await read_once(gates.values(), time_limit_s, search_path=beside)
    return [_reading(gates[reading.gate], reading.value, reading.error) for reading in told]


def _reading(gate: Gate, value: float | None, error: str) -> Finding:
    name = f"{gate.name} ({gate.probe})"
    if value is None:
        state = WARNING if gate.on_error == "open" else WRONG
        return Finding("probe", name, state, f"{error}; until it can be read the gate is {gate.on_error}")
    low, high = gate.min is not None and value < gate.min, gate.max is not None and value > gate.max
    return Finding("probe", name, WELL, f"reads {value:g}: {'closed' if low or high else 'open'}")


# ---- the store


class _Kept(NamedTuple):
    """How the store is, and what the server's address is judged by."""

    finding: Finding
    has_tokens: bool = False
    served: bool = False  # its dispatcher is `penstock serve`
    differs: Difference = Difference()  # from the config of its dispatcher


async def _store(config: Config) -> _Kept:
    if "://" not in config.store:
        not_yet = await asyncio.to_thread(_place_for, Path(config.store))
        if not_yet is not None:
            return _Kept(not_yet)
    try:
        store = open_store(config)
        await store.open(makes=False)
        try:
            snapshot = await store.snapshot(SystemClock().now())
            has_tokens = bool(await store.tokens())
            differs = await config_difference(store, config)
            if store.elects:  # its user may read, and not write: that changes nothing, and needs the right
                await store.end_lease("check", "nobody")
        finally:
            await store.close()
    except StoreMissing:  # a schema that is not there; or a file that is empty
        return _Kept(await asyncio.to_thread(_with_space, config.store, _NOT_YET))
    except PenstockError as error:
        return _Kept(_unusable(config.store, error))
    queued = sum(snapshot.queued.values())
    detail = f"{counted(queued, 'task')} queued" + ("; a dispatcher is at work" if snapshot.epoch else "")
    served = snapshot.epoch is not None and snapshot.epoch.owner.command.endswith(" serve")
    kept = await asyncio.to_thread(_with_space, config.store, detail)
    return _Kept(kept, has_tokens, served, differs)


def _unusable(store: str, error: PenstockError) -> Finding:
    """Its errors begin with its place, which a finding has already."""
    name, told = shown_store(store), str(error)
    for place in (name, os.path.realpath(store)):
        told = told.removeprefix(f"{place}: ")
    return Finding("store", name, WRONG, one_line(told, _MAX_DETAIL))


def _place_for(path: Path) -> Finding | None:
    """Of a store that is made with the first task: whether it can be."""
    if path.exists():
        return None
    folder = path.parent
    if not folder.is_dir():
        return Finding("store", str(path), WRONG, f"there is no folder {folder}; make it, or correct store")
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        told = f"{folder} is on a read-only file system; correct store, or mount it writable"
        return Finding("store", str(path), WRONG, told)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("store", str(path), WRONG, f"{folder} may not be written to; correct store")
    return _with_space(str(path), _NOT_YET)


def _with_space(store: str, detail: str) -> Finding:
    if "://" in store:
        return Finding("store", shown_store(store), WELL, detail)
    free = shutil.disk_usage(Path(store).parent).free
    if free < _LITTLE_SPACE:
        return Finding("store", store, WARNING, f"{detail}; only {free // 1024**2} MiB of disk are free")
    return Finding("store", store, WELL, detail)


# ---- the server


async def _server(config: Config, kept: _Kept) -> Finding:
    host, port = config.server.host, config.server.port
    name = f"{host}:{port}"
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return Finding("server", name, WRONG, f"no address ({error.strerror}); correct server.host")
    addresses = [(family, address) for family, _, _, _, address in found]
    if not kept.has_tokens and not all(
        ipaddress.ip_address(str(a[0]).partition("%")[0]).is_loopback for _, a in addresses
    ):
        remedy = "make one: `penstock token add NAME`, or set server.host to 127.0.0.1"
        return Finding("server", name, WRONG, f"reaches beyond this machine, which needs a token; {remedy}")
    taken = _taken(addresses)
    if taken is None:
        return Finding("server", name, WELL, "the address is free")
    if taken == errno.EADDRINUSE:
        if kept.served and await _is_healthy(host, port):
            return Finding("server", name, WELL, "Penstock serves there")
        remedy = "stop it, or choose another server.port"
        return Finding("server", name, WRONG, f"another program has this port; {remedy}")
    return Finding(
        "server", name, WRONG, f"cannot be used ({os.strerror(taken)}); correct server.host or port"
    )


def _taken(addresses: Sequence[tuple[int, Any]]) -> int | None:
    """What keeps us from listening there."""
    for family, address in addresses:
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(address)
                listener.listen(1)
            except OSError as error:
                return error.errno
    return None


async def _is_healthy(host: str, port: int) -> bool:
    """Whether what listens there answers as our /health does. Others do as well: it alone proves nothing."""
    import aiohttp

    at = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - where to ask, not to listen
    url = f"http://[{at}]:{port}/health" if ":" in at else f"http://{at}:{port}/health"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3)) as session,
            session.get(url, allow_redirects=False) as reply,
        ):
            told = msgspec.json.decode(await reply.content.read(65_536))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, msgspec.DecodeError):
        return False
    return isinstance(told, dict) and told.get("status") in ("ok", "degraded", "failing")
