"""What an engine of many machines must know of a host whose attempts run on them; the wiring fills it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

from penstock.config.engine import EngineSettings
from penstock.config.masking import may_hold_secret
from penstock.config.own_calls import calls_lane
from penstock.hosts.agent import Placement
from penstock.hosts.base import Job
from penstock.hosts.own_door import Access, OwnDoor
from penstock.model import Host, RayNodes
from penstock.scheduling.details import NO_NODE, no_such_node

_ANYWHERE = RayNodes()
_OWN_WORDS = {"GPU": "num_gpus", "memory": "memory"}  # resources that Ray takes by words of their own only


class Way(NamedTuple):
    """How attempts of a host reach the models of their dispatcher."""

    door: OwnDoor
    lane: str

    def admit(self, job: Job, root: bytes) -> Access:
        return self.door.admit_afar(job, self.lane, root)


@dataclass(frozen=True, slots=True)
class RemoteHost:
    """Its options are plain values: they are sent to the worker, which makes the adapter."""

    host: Host
    make: str  # "module:function" of the adapter
    per_worker: int = 1  # attempts that share a worker
    way: Way | None = field(default=None, repr=False)  # back to our own models
    work_dir: str | None = None  # where files of what its attempts say are kept here
    agent: Any = None  # what its containers are made of

    @property
    def most_workers(self) -> int:
        return max(1, -(-self.host.slots // self.per_worker))

    def options(self) -> dict[str, Any]:
        """How Ray is to place a worker."""
        nodes = self.host.ray or _ANYWHERE
        options: dict[str, Any] = {"num_cpus": nodes.num_cpus}
        options |= {
            word: nodes.resources[name] for name, word in _OWN_WORDS.items() if name in nodes.resources
        }
        if others := {name: amount for name, amount in nodes.resources.items() if name not in _OWN_WORDS}:
            options["resources"] = others
        if nodes.labels:
            options["label_selector"] = dict(nodes.labels)
        if not nodes.num_cpus and not nodes.resources:
            options["scheduling_strategy"] = "SPREAD"  # what holds nothing would all go to one node
        return options

    def fits(self, resources: Mapping[str, float], labels: Mapping[str, str]) -> bool:
        """Whether a node has what a worker needs, were it alone there."""
        nodes = self.host.ray or _ANYWHERE
        wanted = {"CPU": nodes.num_cpus, **nodes.resources}
        if any(resources.get(name, 0.0) < amount for name, amount in wanted.items()):
            return False
        plain = {name: value for name, value in nodes.labels.items() if value.isidentifier()}
        return all(labels.get(name) == value for name, value in plain.items())


def fits_nowhere(remote: RemoteHost, nodes: int) -> str:
    """Of a host that none of so many nodes can serve."""
    if not nodes:
        return NO_NODE
    asked = remote.host.ray or _ANYWHERE
    cpus = {"num_cpus": asked.num_cpus} if asked.num_cpus else {}
    wanted = [f"{name} = {amount:g}" for name, amount in {**cpus, **asked.resources}.items()]
    wanted += [f"label {name} = {value}" for name, value in asked.labels.items()]
    none = "the only one has not" if nodes == 1 else f"none of the {nodes} there are has"
    return no_such_node(", ".join(wanted), none, f"hosts.{remote.host.name}.ray")


def remote_host(host: Host, make: str) -> RemoteHost:
    """A host as its adapter here is given it, without what only has a meaning here."""
    options = dict(host.options)
    door, work_dir = options.pop("door", None), options.pop("work_dir", None)
    way = Way(door, calls_lane(host)) if isinstance(door, OwnDoor) else None
    shared = 1 if host.ray is None else host.ray.per_worker
    placement = options.pop("placement", None)
    if not isinstance(placement, Placement):
        return RemoteHost(replace(host, options=options), make, shared, way, work_dir)
    # One worker keeps the containers of its node, and all attempts share them.
    agent = msgspec.to_builtins(placement.agent)
    return RemoteHost(replace(host, options=options), make, host.slots, agent=agent)


def runtime_env(settings: EngineSettings) -> dict[str, Any]:
    """What workers are given by Ray, in its words. It writes all of it into logs that everybody may read."""
    told: dict[str, Any] = {
        "working_dir": settings.working_dir,
        "excludes": list(settings.excludes) if settings.working_dir is not None else [],
        "py_modules": list(settings.py_modules),
        "pip": list(settings.pip),
        # Not by us: some are read before Python starts, as PYTHONPATH is.
        "env_vars": {name: value for name, value in settings.env.items() if not _is_secret(name, value)},
    }
    return {name: value for name, value in told.items() if value} | dict(settings.runtime_env)


def secret_variables(settings: EngineSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """What workers are given by us, so that Ray does not know it."""
    told = {name: value for name, value in settings.env.items() if _is_secret(name, value)}
    return told | {name: environ[name] for name in settings.pass_env if name in environ}


def _is_secret(name: str, value: str) -> bool:
    """Whether a variable could give one away. The config refuses names that are known for it, but not all are."""
    return may_hold_secret(f"{name}={value}")
