"""The only place that picks parts: which store, which engine, which adapter for which type of host.

Adapters are named, not imported, so that a command pays only for the parts it uses. A plug-in adds a type of
host by an entry point in the group `penstock.hosts`, whose object is called as `make(host, clock)`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import AVAILABLE, Config, HostTypes, load
from penstock.config.councils import COUNCIL_TYPE
from penstock.config.engine import check_folders
from penstock.config.own_calls import calls_lane, needs_desk, needs_door, own_lanes
from penstock.config.own_files import OwnFiles, agents_dir, folder_of, library_dir, store_tag, work_dir
from penstock.config.postgres_place import is_postgres, mistyped
from penstock.errors import ConfigError, UsageError, install_line
from penstock.model import OnStop

if TYPE_CHECKING:
    from penstock.clock import Clock
    from penstock.dispatcher.doorway import Doorway
    from penstock.dispatcher.loop import Dispatcher
    from penstock.engine.base import Engine, MakeEngine, Notice, Report
    from penstock.engine.ray import Cluster
    from penstock.hosts.base import Adapter
    from penstock.hosts.inner_desk import InnerDesk
    from penstock.hosts.own_door import Entrance, OwnDoor
    from penstock.model import Host, Task
    from penstock.store.base import Store
    from penstock.store.database import Database
    from penstock.telemetry.traces import Traces

MakeAdapter = Callable[["Host", "Clock"], "Adapter"]

_ADAPTERS = {
    "agent": "penstock.hosts.agent:make",
    "command": "penstock.hosts.command:make",
    "council": "penstock.hosts.council:make",
    "file_prompt": "penstock.hosts.file_prompt:make",
    "library": "penstock.hosts.library:make",
    "local": "penstock.hosts.local:make",
    "openai": "penstock.hosts.openai:make",
    "python": "penstock.hosts.python:make",
    "researcher": "penstock.hosts.researcher:make",
    "simulated": "penstock.hosts.simulated:make",
}
_PLUG_INS = "penstock.hosts"
DISPATCHERS = ("async", "threads")
ON_STOP = tuple(str(choice) for choice in OnStop)
_PRIVATE_DOOR = "penstock.web.private_door:opened"  # it stands above us, and only some configs need it
_RAY_ENGINE = "penstock.engine.ray:RayEngine"
_OTLP_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def read_config(path: Path | None = None, settings: Mapping[str, Any] | None = None) -> Config:
    """The config of that file, or the one found from here, with some keys set; plug-ins' types are known."""
    try:
        return _read(path, settings, AVAILABLE)
    except ConfigError:
        plug_ins = _plug_ins()  # looked for only now: finding them reads the metadata of every package
        if not plug_ins:
            raise
    return _read(path, settings, {**AVAILABLE, **dict.fromkeys(plug_ins)})


def _read(path: Path | None, settings: Mapping[str, Any] | None, types: HostTypes) -> Config:
    config = load(path, types=types)
    return config.with_settings(settings, types=types) if settings else config


def open_store(config: Config) -> Store:
    if is_postgres(config.store):
        from penstock.store.postgres import PostgresStore

        return PostgresStore(config.store, max_payload_bytes=config.payload_limit_bytes)
    _refuse_unknown(config.store)
    from penstock.store.sqlite import SQLiteStore

    return SQLiteStore(config.store, max_payload_bytes=config.payload_limit_bytes)


def open_database(store: str) -> Database:
    """Of the database alone, for what is done to a store as a whole."""
    if is_postgres(store):
        from penstock.store.postgres import postgres_database

        return postgres_database(store)
    _refuse_unknown(store)
    from penstock.store.sqlite_database import SQLiteDatabase
    from penstock.store.sqlite_open import Place

    return SQLiteDatabase(Place(os.path.realpath(store)))


def _refuse_unknown(store: str) -> None:
    if told := mistyped(store):
        raise UsageError(f"store: {told}")
    if "://" in store:
        scheme = store.split("://", 1)[0]
        raise UsageError(
            f"store: {scheme} is unknown; name a file, such as penstock.db, or a URL: postgresql://…"
        )


@dataclass(frozen=True, slots=True)
class Ways:
    """How attempts reach the dispatcher that runs them, where their hosts need it."""

    door: OwnDoor | None = None  # for calls of models
    desk: InnerDesk | None = None  # for tasks of questions


NO_WAYS = Ways()


def make_adapters(
    config: Config, clock: Clock, ways: Ways = NO_WAYS, store: Store | None = None
) -> dict[str, Adapter]:
    """One adapter per host; everything wrong with their options is told at once.

    By the `store` machines agree that share an engine for containers, and councils know earlier turns.
    """
    adapters: dict[str, Adapter] = {}
    problems: list[str] = []
    for host in config.plant.hosts:
        try:
            adapters[host.name] = _maker(host.type)(_placed(config, host, ways, store), clock)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return adapters


def _placed(config: Config, host: Host, ways: Ways, store: Store | None = None) -> Host:
    """The host with what its adapter must know of the config it stands in."""
    options = dict(host.options)
    if host.type == "python" and config.path is not None:
        # It also finds what lies beside the config, as a script finds what lies beside it.
        options["path"] = [*options.get("path", ()), str(config.path.absolute().parent)]
    elif host.type == "local":
        from penstock.engine.trees import MARKER, worker_mark

        options["environment"] = {MARKER: worker_mark(store_tag(config), host.name, 0)}
    if host.type == "researcher":
        options["work_dir"] = work_dir(config, host)
        if "/" in str(options.get("python", "")) and config.path is not None:
            # Not as other paths: a plain name is looked up on the PATH.
            options["python"] = os.path.join(config.path.absolute().parent, options["python"])
    if host.type == "file_prompt":
        options["root"] = options.get("root") or folder_of(config)
        options["own_files"] = OwnFiles(config)
    if host.type == "agent":
        from penstock.hosts.agent import Placement

        agent = config.agents[options.get("agent", host.name)]
        options["placement"] = Placement(agent, agents_dir(config), store)
    if needs_door(host):
        from penstock.hosts.own_door import OwnDoor

        options["door"] = ways.door or OwnDoor()
    if needs_desk(host):
        options["placement"] = _at_the_desk(config, host, ways, store)
    return replace(host, options=options) if options != host.options else host


def _at_the_desk(config: Config, host: Host, ways: Ways, store: Store | None) -> object:
    """The placement of a host whose attempts ask their dispatcher for tasks."""
    from penstock.hosts.inner_desk import InnerDesk

    desk = ways.desk or InnerDesk()
    if host.type == COUNCIL_TYPE:
        from penstock.hosts.council import Placement

        return Placement(config.councils[host.options["council"]], config.plant.hosts, desk, store)
    from penstock.engine.trees import MARKER, worker_mark
    from penstock.hosts.library import LibraryPlacement

    async def call(task: Task, endpoint: str, body: bytes) -> bytes:
        return await desk.inner.call(task, endpoint, body)

    environment = {MARKER: worker_mark(store_tag(config), host.name, 0)}
    return LibraryPlacement(
        config.councils,
        library_dir(config),
        call,
        calls_lane(host),
        environment,
        announce=desk.library_is,
    )


@dataclass(frozen=True, slots=True)
class Dispatching:
    """How this process dispatches, if it does, in the words that users choose from."""

    dispatcher: str = "async"  # or threads: one per kind, which runs one task at a time
    on_stop: str = "requeue"  # or block: what becomes of what is stopped before its end
    command: str = "a client"  # who it is, for those who ask
    only_run: str = ""  # the one run that it works on; "": all that is queued

    def __post_init__(self) -> None:
        for name, given, choices in (
            ("dispatcher", self.dispatcher, DISPATCHERS),
            ("on_stop", self.on_stop, ON_STOP),
        ):
            if given not in choices:
                raise UsageError(f"{name}: there is no {given!r}; choose from {', '.join(choices)}")

    @property
    def has_threads(self) -> bool:
        return self.dispatcher == "threads"

    def options(self) -> str:
        """Those that say something else than usual, as a command line has them."""
        given = (
            ("--dispatcher", self.dispatcher, DISPATCHERS[0]),
            ("--on-stop", self.on_stop, ON_STOP[0]),
        )
        return " ".join(f"{option} {word}" for option, word, usual in given if word != usual)

    def named(self, command: str) -> str:
        """The command that dispatches, as others are told it."""
        return f"{command} --dispatcher threads" if self.has_threads else command


_USUAL = Dispatching()


def make_dispatcher(
    config: Config,
    store: Store,
    command: str,
    dispatching: Dispatching = _USUAL,
    *,
    traced: bool = True,
    url: str = "",
) -> Dispatcher:
    """`url` is where others reach it, if it serves."""
    import platform

    from penstock.diagnosis.history import Owner
    from penstock.dispatcher.loop import Dispatcher

    owner = Owner(
        os.getpid(), platform.node(), dispatching.named(command), url=url, only_run=dispatching.only_run
    )
    traces = make_traces(config) if traced else None
    ways = Ways(make_door(config), make_desk(config))
    make_engine = _engine(config, ways, store)
    doorway = _doorway(config, store, ways)
    if dispatching.has_threads:
        from penstock.engine.kinds import thread_per_kind

        make_engine = thread_per_kind(make_engine)
        config = replace(config, plant=replace(config.plant, thread_per_kind=True))
    return Dispatcher(config, store, make_engine, owner, traces, OnStop(dispatching.on_stop), doorway)


async def end_forsaken(config: Config) -> None:
    """Kill what dispatchers of this store that died have left on this machine, whoever leads now."""
    import asyncio

    from penstock.engine.trees import kill_forsaken

    await asyncio.to_thread(kill_forsaken, store_tag(config))


def _doorway(config: Config, store: Store, ways: Ways) -> Doorway | None:
    if ways == NO_WAYS:
        return None
    from penstock.dispatcher.doorway import Doorway

    def open_privately(dispatcher: Dispatcher) -> AbstractAsyncContextManager[Entrance]:
        opened: AbstractAsyncContextManager[Entrance] = _named(_PRIVATE_DOOR)(config, store, dispatcher)
        return opened

    return Doorway(ways.door, open_privately, own_lanes(config.plant), ways.desk)


def make_door(config: Config) -> OwnDoor | None:
    """The way from this config's hosts to the models of their own dispatcher, where some go it."""
    if not any(map(needs_door, config.plant.hosts)):
        return None
    from penstock.config.deadlocks import lanes_without_runs
    from penstock.hosts.own_door import OwnDoor

    return OwnDoor(lanes_without_runs(config))


def make_desk(config: Config) -> InnerDesk | None:
    """Where questions of this config's councils ask for tasks, where it has any."""
    if not any(map(needs_desk, config.plant.hosts)):
        return None
    from penstock.hosts.inner_desk import InnerDesk

    return InnerDesk()


def are_traced(config: Config) -> bool:
    """Whether tasks have traces of ours, for want of a caller's."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if config.telemetry.otlp_endpoint is not None:
        return True
    named = any(os.environ.get(name) for name in _OTLP_VARIABLES)
    return named and os.environ.get("OTEL_TRACES_EXPORTER") != "none"


def make_traces(config: Config) -> Traces | None:
    """Who sends traces, where the config or the standard variables name a collector."""
    if not are_traced(config):
        return None
    endpoint = config.telemetry.otlp_endpoint
    try:
        from penstock.telemetry.traces import Traces
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(("opentelemetry", "google")):
            raise
        if endpoint is not None:
            raise UsageError(f"telemetry.otlp_endpoint needs OpenTelemetry; {install_line('otel')}") from None
        return None  # the variables may be meant for other programs
    return Traces(endpoint)


def _engine(config: Config, ways: Ways, store: Store) -> MakeEngine:
    from penstock.clock import SystemClock
    from penstock.config.outputs import OutputRules
    from penstock.engine.base import Ended
    from penstock.engine.local import LocalEngine
    from penstock.engine.outputs import Outputs

    clock = SystemClock()
    adapters = make_adapters(config, clock, ways, store)
    door = ways.door
    slots = {h.name: h.slots for h in config.plant.hosts}
    tag = store_tag(config)
    outputs = Outputs(OutputRules(config))
    make_engine: Callable[..., Engine] = LocalEngine
    if config.engine.is_ray:
        make_engine = partial(_named(_RAY_ENGINE), _cluster(config, ways, store))

    def make(report: Report, notice: Notice) -> Engine:
        def leave_and_report(ended: Ended) -> None:
            if door is not None:
                for job, _ in ended:
                    door.ended(job.task, job.attempt)
            report(ended)

        told = report if door is None else leave_and_report
        return make_engine(adapters, slots, told, notice, clock, config.timeout_s, tag, outputs=outputs)

    return make


def _cluster(config: Config, ways: Ways, store: Store) -> Cluster:
    """The Ray cluster, and what runs there; all else, such as calls of models, stays with the dispatcher."""
    from importlib.util import find_spec

    from penstock.config.own_files import kept_here
    from penstock.dispatcher.patience import patiently
    from penstock.engine.cluster.remote import remote_host, runtime_env, secret_variables
    from penstock.engine.ray import Cluster
    from penstock.store.base import RAY_SECRET

    if find_spec("ray") is None:
        raise UsageError(f'engine.type = "ray" needs Ray; {install_line("ray")}')
    settings = config.engine
    check_folders(settings)
    if settings.working_dir is not None:
        excludes = (*settings.excludes, *kept_here(config, settings.working_dir))
        settings = replace(settings, excludes=excludes)
    remote = {
        host.name: remote_host(_placed(config, host, ways, store), _ADAPTERS[host.type])
        for host in config.plant.hosts
        if host.name in config.plant.outliving
    }
    secret = partial(
        patiently, partial(store.secret, RAY_SECRET)
    )  # read at a takeover, of which all waits for the store
    variables = secret_variables(settings, os.environ)
    return Cluster(settings, remote, secret, runtime_env(settings), variables=variables)


def _maker(type: str) -> MakeAdapter:
    target = _ADAPTERS.get(type)
    if target is not None:
        made: MakeAdapter = _named(target)
        return made
    return _plug_ins()[type]()


def _named(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def _plug_ins() -> dict[str, Callable[[], MakeAdapter]]:
    from importlib.metadata import entry_points

    return {point.name: point.load for point in entry_points(group=_PLUG_INS)}
