"""A document (tables of tables, as TOML gives it) → one frozen Config, or every problem it has."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import keys
from penstock.config.agent_hosts import with_agents, without_usual_slots
from penstock.config.agent_tables import agent_document, read_agents
from penstock.config.agents import Agent
from penstock.config.beads import Beads, beads_document, check_beads, read_beads
from penstock.config.council_hosts import is_implied, with_councils
from penstock.config.council_tables import council_document, read_councils
from penstock.config.councils import Council
from penstock.config.crosschecks import Parts, cross_check
from penstock.config.engine import EngineSettings, check_nodes, engine_document, outliving, read_engine
from penstock.config.hosts import given, host_document, read_host
from penstock.config.keys import AVAILABLE, HostTypes
from penstock.config.own_calls import with_own_lane
from penstock.config.postgres_place import is_postgres, mistyped, postgres_place
from penstock.config.problems import Near, Problems, file_shown, kind_alone
from penstock.config.rules import gate_document, lane_document, read_gate, read_lane, read_retry
from penstock.config.server import (
    Server,
    price_document,
    read_models,
    read_prices,
    read_server,
    server_document,
)
from penstock.config.tables import Table
from penstock.config.telemetry import Telemetry, read_telemetry, telemetry_document
from penstock.errors import ConfigError
from penstock.model import DEFAULT_LANE, Lane, OnCrash, Plant, Price

if TYPE_CHECKING:
    from penstock.config.places import KeyPath, Lines

DEFAULT_STORE = "penstock.db"
_ON_CRASH = (OnCrash.RETRY.value, OnCrash.BLOCK.value)


@dataclass(frozen=True, slots=True)
class Config:
    """All that penstock.toml says."""

    plant: Plant = field(default_factory=Plant)
    store: str = DEFAULT_STORE  # an absolute path, or a postgresql:// URL
    timeout_s: float = 21_600.0  # of an attempt whose task has none
    keep_days: float | None = 30.0  # None: nothing is forgotten
    heartbeat_s: float = 1.0
    on_crash: OnCrash = OnCrash.RETRY  # of a task that does not say
    payload_limit_bytes: int = 16_777_216
    output_root: str | None = None  # an absolute path; None: the config's folder, and only for its owner
    server: Server = field(default_factory=Server)
    models: Mapping[str, str] = field(default_factory=dict)  # names of /v1 clients -> models or kinds
    prices: Mapping[str, Price] = field(default_factory=dict)
    telemetry: Telemetry = field(default_factory=Telemetry)
    beads: Beads = field(default_factory=Beads)
    agents: Mapping[str, Agent] = field(default_factory=dict)
    councils: Mapping[str, Council] = field(default_factory=dict)
    engine: EngineSettings = field(default_factory=EngineSettings)
    path: Path | None = None  # the file it came from
    settings: tuple[KeyPath, ...] = field(default=(), compare=False)  # keys that options have set

    @property
    def outputs(self) -> str:
        """The folder that outputs lie in."""
        if self.output_root is not None:
            return self.output_root
        return os.getcwd() if self.path is None else str(self.path.absolute().parent)

    def with_settings(self, settings: Mapping[str, Any], *, types: HostTypes = AVAILABLE) -> Config:
        """This config with some keys set, like {"hosts.fenrir.slots": "4"}; checked like a file."""
        from penstock.config.settings import apply_settings

        document, given_paths = apply_settings(as_document(self), settings)
        changed = read_document(document, self.path, types=types, settings=given_paths)
        return replace(changed, settings=(*self.settings, *given_paths))


def read_document(
    document: Mapping[str, Any],
    path: Path | None = None,
    *,
    types: HostTypes = AVAILABLE,
    lines: Callable[[], Lines] = dict,
    settings: Collection[KeyPath] = (),
    any_names: bool = False,
) -> Config:
    """The config a document describes. `lines` is asked only when there are problems to place.

    With `any_names`, hosts, lanes and kinds may be called anything, as in the log of another system.
    """
    problems = Problems()
    config = _read(Table(document, (), problems, any_names=any_names), path, types)
    if not problems and config.councils:
        from penstock.config.council_reach import check_councils, with_real_models

        config = with_real_models(config)
        check_councils(config, problems)
    if not problems and not any_names:  # what is replayed makes no calls
        from penstock.config.deadlocks import check_own_calls

        check_own_calls(config, problems)
    if not problems and config.agents:
        from penstock.config.agent_reach import check_reach

        check_reach(config, problems)
    if problems:
        raise ConfigError(problems.told(file_shown(path), lines, settings))
    return config


def _read(top: Table, path: Path | None, types: HostTypes) -> Config:
    _check_top(top)
    folder = Path.cwd() if path is None else path.parent.absolute()
    store = _store(top, folder)
    prices = read_prices(top)
    hosts = {
        name: read_host(name, table, types, folder, prices)
        for name, table in top.named_tables("hosts", keys.MAX_HOSTS)
    }
    agents = read_agents(top, folder, hosts)
    with_agents(hosts, agents, top)
    councils = read_councils(top, folder, store)
    with_councils(hosts, councils, top)
    most_lanes = keys.MAX_LANES + (DEFAULT_LANE in _declared(top, "lanes"))  # that one is always there
    lanes = {name: read_lane(name, table) for name, table in top.named_tables("lanes", most_lanes)}
    lanes.setdefault(DEFAULT_LANE, Lane(DEFAULT_LANE))
    with_own_lane(hosts.values(), lanes)
    gates = {name: read_gate(name, table) for name, table in top.named_tables("gates", keys.MAX_GATES)}
    retry = read_retry(top)
    parts = Parts(hosts, lanes, gates, _declared(top, "hosts") | hosts.keys(), _declared(top, "lanes"))
    cross_check(parts, top.problems)
    beads = read_beads(top, folder)
    check_beads(beads, parts, top.problems)
    engine = read_engine(top, folder)
    check_nodes(top, hosts)
    default = Config()
    return Config(
        plant=Plant(
            hosts=tuple(hosts.values()),
            lanes=tuple(lanes.values()),
            gates=tuple(gates.values()),
            aging_s=top.number("aging_s", default.plant.aging_s, keys.SECONDS),
            retry=retry,
            outliving=outliving(engine, hosts.values()),
        ),
        store=store,
        timeout_s=top.number("timeout_s", default.timeout_s, keys.SECONDS),
        keep_days=_keep_days(top, default.keep_days),
        heartbeat_s=top.number("heartbeat_s", default.heartbeat_s, keys.HEARTBEAT),
        on_crash=OnCrash(top.choice("on_crash", default.on_crash.value, _ON_CRASH)),
        payload_limit_bytes=top.whole("payload_limit_bytes", default.payload_limit_bytes, keys.BYTES),
        output_root=_output_root(top, folder),
        server=read_server(top),
        models=read_models(top),
        prices=prices,
        telemetry=read_telemetry(top),
        beads=beads,
        agents=agents,
        councils=councils,
        engine=engine,
        path=path,
    )


def _check_top(top: Table) -> None:
    for key in top.raw:
        if key not in keys.TOP:
            top.refuse("unknown key", key, near=Near(key, keys.TOP))


def _declared(top: Table, section: str) -> frozenset[str]:
    """The names a section gives, also those whose own table has problems."""
    raw = top.raw.get(section)
    return frozenset(raw) if isinstance(raw, Mapping) else frozenset()


def _store(top: Table, folder: Path) -> str:
    store = top.text("store", DEFAULT_STORE)
    if is_postgres(store):
        try:
            postgres_place(store)
        except ValueError as problem:
            top.refuse(str(problem), "store")
        return store
    if told := mistyped(store):
        top.refuse(told, "store")
    elif "://" in store:
        top.refuse('must be the path of a file, or a URL that starts with "postgresql://"', "store")
    elif store == ":memory:":
        top.refuse("must be a file: what is only in memory is lost when the process ends", "store")
    elif store.endswith("/"):
        top.refuse(f"must be a file, not a folder; add a name: {DEFAULT_STORE}", "store")
    return os.path.normpath(folder / os.path.expanduser(store))


def _output_root(top: Table, folder: Path) -> str | None:
    root = top.text("output_root", "")
    return os.path.normpath(folder / os.path.expanduser(root)) if root else None


def _keep_days(top: Table, default: float | None) -> float | None:
    value = top.raw.get("keep_days")
    if value == keys.FOREVER:
        return None
    if isinstance(value, str):
        top.refuse(f'must be a number of days or "{keys.FOREVER}", not {kind_alone(value)}', "keep_days")
        return default
    return top.number("keep_days", default, keys.DAYS)


def as_document(config: Config) -> dict[str, Any]:
    """The document that `read_document` would read this config from."""
    plant, retry = config.plant, config.plant.retry
    return {
        "store": config.store,
        "aging_s": plant.aging_s,
        "timeout_s": config.timeout_s,
        "keep_days": keys.FOREVER if config.keep_days is None else config.keep_days,
        "heartbeat_s": config.heartbeat_s,
        "on_crash": str(config.on_crash),
        "payload_limit_bytes": config.payload_limit_bytes,
        **given(output_root=config.output_root),
        "retry": given(
            retries=retry.retries, base_s=retry.base_s, max_s=retry.max_s, host_faults=retry.host_faults
        ),
        "hosts": {
            host.name: without_usual_slots(host, host_document(host), config.agents)
            for host in plant.hosts
            if not is_implied(host, config.councils)
        },
        "lanes": {lane.name: lane_document(lane) for lane in plant.lanes},
        "gates": {gate.name: gate_document(gate) for gate in plant.gates},
        "server": server_document(config.server),
        "models": dict(config.models),
        "prices": {model: price_document(price) for model, price in config.prices.items()},
        "telemetry": telemetry_document(config.telemetry),
        "beads": beads_document(config.beads),
        "agents": {name: agent_document(agent) for name, agent in config.agents.items()},
        "councils": {
            name: council_document(council, config.store) for name, council in config.councils.items()
        },
        **engine_document(config.engine),
    }
