"""[engine]: where attempts run, on this machine or on the nodes of a Ray cluster, and what those nodes are given.

Which nodes a host's attempts run on is the host's own to say: `ray = { … }` in its table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.config import keys
from penstock.config.manifests import read_env, variable_problem
from penstock.config.server import read_root_url
from penstock.config.tables import Table
from penstock.errors import ConfigError
from penstock.model import Host, RayNodes

LOCAL, RAY = "local", "ray"
_TYPES = (LOCAL, RAY)
ELSEWHERE = ("command", "python", "researcher")  # types of host whose attempts a cluster runs
_ADDRESS = re.compile(r"auto|(?:ray://)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?")
_OWN_WORDS = {  # of Ray's runtime environment, and our words for them
    "working_dir": "working_dir",
    "excludes": "excludes",
    "py_modules": "py_modules",
    "pip": "pip",
    "env_vars": "env",
}


@dataclass(frozen=True, slots=True)
class EngineSettings:
    type: str = LOCAL
    address: str = "auto"  # of the cluster: the one on this machine, ray://HOST:PORT, or HOST:PORT
    namespace: str | None = None  # of the workers' names; None: one of the store's own
    working_dir: str | None = None  # a folder that is copied to the nodes, an absolute path
    excludes: tuple[str, ...] = ()  # what is not copied, as .gitignore has it
    py_modules: tuple[str, ...] = ()  # packages that are copied, as absolute paths
    pip: tuple[str, ...] = ()  # requirements that are installed there
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()  # variables that go there as they are here
    runtime_env: Mapping[str, Any] = field(default_factory=dict)  # what else Ray's takes, in its words
    calls_url: str | None = None  # where attempts reach whoever leads, for their calls of models
    start_s: float = 300.0  # a worker that has not begun by then is a fault of its host
    idle_s: float = 60.0  # a worker with nothing to do ends after so long

    @property
    def is_ray(self) -> bool:
        return self.type == RAY

    @property
    def joins_node(self) -> bool:
        """Whether it reaches the cluster by a node on this machine, and not by its head's port for clients."""
        return self.is_ray and not self.address.startswith("ray://")


_DEFAULT = EngineSettings()


def read_engine(top: Table, folder: Path) -> EngineSettings:
    table = top.table("engine", "[engine]")
    if table is None:
        return _DEFAULT
    table.only(keys.ENGINE)
    if "type" not in table and table.raw:
        table.refuse(f'has no type; add type = "{RAY}", which its keys are for, or type = "{LOCAL}"')
    return EngineSettings(
        type=table.choice("type", LOCAL, _TYPES),
        address=_address(table),
        namespace=table.name("namespace", None),
        working_dir=_folder(table, folder),
        excludes=table.texts("excludes", (), most=keys.MAX_WORDS),
        py_modules=tuple(_placed(p, folder) for p in table.texts("py_modules", (), most=keys.MAX_WORDS)),
        pip=table.texts("pip", (), most=keys.MAX_WORDS),
        env=read_env(table),
        pass_env=_pass_env(table),
        runtime_env=_runtime_env(table),
        calls_url=read_root_url(table, "calls_url", "all servers together", "http://penstock.example:8787"),
        start_s=table.number("start_s", _DEFAULT.start_s, keys.SECONDS),
        idle_s=table.number("idle_s", _DEFAULT.idle_s, keys.DELAY),
    )


def check_folders(engine: EngineSettings) -> None:
    """What goes to the nodes must be there, for whoever dispatches; those who only submit need none of it."""
    if not engine.is_ray:
        return
    problems = [
        f"engine.py_modules: there is no {path}" for path in engine.py_modules if not os.path.exists(path)
    ]
    if engine.working_dir is not None and not os.path.isdir(engine.working_dir):
        problems.insert(0, f"engine.working_dir: there is no folder {engine.working_dir}")
    if problems:
        raise ConfigError([f"{problem}; make it, or correct the key" for problem in problems])


def check_nodes(top: Table, hosts: Mapping[str, Host]) -> None:
    """A host that names nodes of a cluster needs an engine that has one."""
    if "engine" in top or top.any_names:  # with type = "local" they wait for the day they are wanted again
        return
    for host in hosts.values():
        if host.ray is not None:
            message = f'says which nodes of a Ray cluster it runs on; add [engine] with type = "{RAY}"'
            top.refuse(message, "hosts", host.name, "ray")


def outliving(engine: EngineSettings, hosts: Iterable[Host]) -> tuple[str, ...]:
    """Those whose attempts go on when their dispatcher is gone."""
    return tuple(host.name for host in hosts if engine.is_ray and is_elsewhere(host))


def is_elsewhere(host: Host) -> bool:
    """Whether a cluster runs its attempts. Containers are where they always were, unless their nodes are named."""
    return host.type in ELSEWHERE or (host.type == "agent" and host.ray is not None)


def read_nodes(table: Table) -> RayNodes | None:
    """Which nodes the attempts of a host run on."""
    inner = table.table("ray", '{ resources = { gpu_node = 1 }, labels = { zone = "a" } }')
    if inner is None:
        return None
    inner.only(keys.RAY)
    num_cpus = inner.number("num_cpus", RayNodes().num_cpus, keys.CPUS_OR_NONE)
    per_worker = inner.whole("per_worker", RayNodes().per_worker, keys.COUNT)
    return RayNodes(_resources(inner), _labels(inner), num_cpus, per_worker)


def _resources(table: Table) -> dict[str, float]:
    inner = table.table("resources", "{ gpu_node = 1 }")
    found: dict[str, float] = {}
    for name in () if inner is None else inner.raw:
        assert inner is not None
        if name in ("CPU", "num_cpus"):
            inner.refuse("is no resource here; write num_cpus = … beside resources", name)
        elif not keys.NAME.fullmatch(name):
            inner.refuse(f"is not a name: {keys.NAME_RULE}", name)
        elif (amount := inner.number(name, None, keys.AMOUNT)) is not None:
            found[name] = amount
    return found


def _labels(table: Table) -> dict[str, str]:
    inner = table.table("labels", '{ zone = "a" }')
    found: dict[str, str] = {}
    for name in () if inner is None else inner.raw:
        assert inner is not None
        if not _LABEL.fullmatch(name):
            inner.refuse("is not a label: letters, digits, '.', '_', '/' and '-', at most 253", name)
        elif (value := inner.text(name, None)) is not None:
            found[name] = value
    return found


def _address(table: Table) -> str:
    address = table.text("address", _DEFAULT.address)
    if not _ADDRESS.fullmatch(address):
        message = 'must be "auto" for the cluster on this machine, "ray://HOST:10001" or "HOST:6379"'
        table.refuse(message, "address")
    return address


def _placed(path: str, folder: Path) -> str:
    return os.path.normpath(folder / os.path.expanduser(path))


def _folder(table: Table, folder: Path) -> str | None:
    given = table.text("working_dir", None)
    return None if given is None else _placed(given, folder)


def _pass_env(table: Table) -> tuple[str, ...]:
    given = table.texts("pass_env", (), most=keys.MAX_VARIABLES)
    for number, name in enumerate(given):
        if (wrong := variable_problem(name, None)) is not None:
            table.refuse(wrong, "pass_env", number)
    return given


def _runtime_env(table: Table) -> dict[str, Any]:
    inner = table.table("runtime_env", '{ uv = ["numpy"] }')
    if inner is None:
        return {}
    for word, ours in _OWN_WORDS.items():
        if word in inner:
            inner.refuse(f"belongs beside runtime_env: write {ours} = … in [engine]", word)
    for word in inner.raw:
        if word.lower() in keys.SECRETS:
            inner.refuse("a secret does not belong in this file; name it in pass_env", word)
    return dict(inner.raw)


def engine_document(engine: EngineSettings) -> dict[str, Any]:
    """The table that `read_engine` would read it from; none for the usual engine."""
    if engine == _DEFAULT:
        return {}
    table: dict[str, Any] = {"type": engine.type}
    for key in keys.ENGINE:
        value = getattr(engine, key)
        if value != getattr(_DEFAULT, key):
            table[key] = list(value) if isinstance(value, tuple) else value
    return {"engine": table}


def nodes_document(nodes: RayNodes) -> dict[str, Any]:
    usual = RayNodes()
    table: dict[str, Any] = {"num_cpus": nodes.num_cpus} if nodes.num_cpus != usual.num_cpus else {}
    if nodes.per_worker != usual.per_worker:
        table["per_worker"] = nodes.per_worker
    if nodes.resources:
        table["resources"] = dict(nodes.resources)
    if nodes.labels:
        table["labels"] = dict(nodes.labels)
    return table
